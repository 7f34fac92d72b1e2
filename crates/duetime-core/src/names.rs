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
    /// A name that a path cannot have as a part of its own.
    #[error(
        "{what} {name:?} is refused: clients and proxies take a part of a path that is one or two dots for a step in \
         it; use another {what}"
    )]
    Dots {
        /// What is called so.
        what: &'static str,
        /// `.` or `..`.
        name: String,
    },
    /// A namespace that would break key names.
    #[error("namespace {0:?} is refused; use 1 to 50 of A-Z a-z 0-9 . _ -")]
    Namespace(String),
}

fn plain(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Whether this cannot be a part of a path: `.` and `..` are steps in it, however they are encoded.
#[must_use]
pub fn is_dots(name: &str) -> bool {
    matches!(name, "." | "..")
}

/// Refuses a new name of `what` that a path could not have.
///
/// # Errors
///
/// [`NameError::Dots`].
pub fn refuse_dots(what: &'static str, name: &str) -> Result<(), NameError> {
    if is_dots(name) { Err(NameError::Dots { what, name: name.to_owned() }) } else { Ok(()) }
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

    /// Whether a topic may be made with this name. What is stored already keeps it.
    ///
    /// # Errors
    ///
    /// [`NameError::Dots`].
    pub fn check_new(&self) -> Result<(), NameError> {
        refuse_dots("topic name", &self.0)
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

    /// Whether a message may be enqueued with this id. What is stored already keeps it.
    ///
    /// # Errors
    ///
    /// [`NameError::Dots`].
    pub fn check_new(&self) -> Result<(), NameError> {
        refuse_dots("id", &self.0)
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

    #[test]
    fn a_name_of_one_or_two_dots_is_read_where_it_is_stored_and_refused_where_it_would_be_new() {
        for dots in [".", ".."] {
            let (id, topic) = (MessageId::new(dots).unwrap(), TopicName::new(dots).unwrap());
            let refused = [id.check_new().unwrap_err().to_string(), topic.check_new().unwrap_err().to_string()];
            assert!(refused[0].starts_with(&format!("id {dots:?} is refused")), "{}", refused[0]);
            assert!(refused[1].ends_with("use another topic name"), "{}", refused[1]);
        }
        for name in ["...", ".a", "a.", "-"] {
            assert!(
                MessageId::new(name).unwrap().check_new().is_ok() && TopicName::new(name).unwrap().check_new().is_ok()
            );
        }
        // Text of three letters, which is encoded as `%252e`.
        assert!(MessageId::new("%2e").unwrap().check_new().is_ok());
    }
}
