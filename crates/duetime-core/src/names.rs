//! Names that users choose, checked once where they enter.

use std::fmt;
use std::sync::Arc;

use crate::limits::{ID_BYTES_MAX, TOPIC_BYTES_MAX};

/// Why a name was refused; the text says how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// A topic name outside `[A-Za-z0-9._-]{1,100}`.
    #[error("topic name {0:?} is refused; use 1 to {TOPIC_BYTES_MAX} of A-Z a-z 0-9 . _ -")]
    Topic(String),
    /// An empty id.
    #[error("id is empty; give 1 to {ID_BYTES_MAX} bytes, or leave `id` out to have one made")]
    EmptyId,
    /// An id over the bound.
    #[error("id has {0} bytes; the limit is {ID_BYTES_MAX}")]
    LongId(usize),
    /// An id with a control character.
    #[error("id has a control character at byte {0}; leave it out")]
    ControlInId(usize),
    /// A namespace that would break key names.
    #[error("namespace {0:?} is refused; use 1 to 50 of A-Z a-z 0-9 . _ -")]
    Namespace(String),
}

fn plain(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

macro_rules! shared_text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(&self.0)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(from)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

shared_text! {
    /// The name of a topic: `[A-Za-z0-9._-]{1,100}`.
    TopicName
}

shared_text! {
    /// The id of a message: 1 to 256 bytes of UTF-8 without control characters.
    MessageId
}

shared_text! {
    /// What all keys of one installation begin with.
    Namespace
}

impl TopicName {
    /// Checks and takes a topic name.
    ///
    /// # Errors
    ///
    /// [`NameError::Topic`].
    pub fn new(text: &str) -> Result<Self, NameError> {
        if plain(text, TOPIC_BYTES_MAX) {
            Ok(Self(text.into()))
        } else {
            Err(NameError::Topic(text.chars().take(TOPIC_BYTES_MAX).collect()))
        }
    }
}

impl Namespace {
    /// The one that is taken where none is given.
    pub const DEFAULT: &str = "duetime";

    /// Checks and takes a namespace.
    ///
    /// # Errors
    ///
    /// [`NameError::Namespace`].
    pub fn new(text: &str) -> Result<Self, NameError> {
        if plain(text, 50) { Ok(Self(text.into())) } else { Err(NameError::Namespace(text.to_owned())) }
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

impl MessageId {
    /// Checks and takes a message id.
    ///
    /// # Errors
    ///
    /// [`NameError::EmptyId`], [`NameError::LongId`], [`NameError::ControlInId`].
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::EmptyId);
        }
        if text.len() > ID_BYTES_MAX {
            return Err(NameError::LongId(text.len()));
        }
        if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(NameError::ControlInId(at));
        }
        Ok(Self(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_enter() {
        assert!(TopicName::new("orders.v1_x-2").is_ok());
        assert!(TopicName::new("").is_err());
        assert!(TopicName::new("a:b").is_err());
        assert!(TopicName::new(&"a".repeat(101)).is_err());
        assert!(MessageId::new("заказ 42").is_ok());
        assert_eq!(MessageId::new(""), Err(NameError::EmptyId));
        assert_eq!(MessageId::new(&"x".repeat(257)), Err(NameError::LongId(257)));
        assert_eq!(MessageId::new("a\nb"), Err(NameError::ControlInId(1)));
    }
}
