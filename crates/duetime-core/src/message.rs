//! A message: id, payload, headers and due time; the payload is bytes nobody looks into.

use std::time::Duration;

use bytes::Bytes;

use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX};
use crate::names::MessageId;
use crate::time::Timestamp;

/// Header names and values in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Checks and takes headers: at most 64, 16 KiB in all, names not empty, no control characters.
    ///
    /// # Errors
    ///
    /// A sentence that names the header and the fix.
    pub fn new(pairs: Vec<(String, String)>) -> Result<Self, String> {
        if pairs.len() > HEADERS_MAX {
            return Err(format!("{} headers; the limit is {HEADERS_MAX}", pairs.len()));
        }
        let bytes: usize = pairs.iter().map(|(n, v)| n.len() + v.len()).sum();
        if bytes > HEADER_BYTES_MAX {
            return Err(format!("headers have {bytes} bytes; the limit is {HEADER_BYTES_MAX}"));
        }
        for (name, value) in &pairs {
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if name.is_empty() || !name.bytes().all(token) {
                return Err(format!("header name {name:?} is refused; use letters, digits and - . _ as in HTTP"));
            }
            if value.chars().any(char::is_control) {
                return Err(format!("header {name:?} has a control character in its value; leave it out"));
            }
        }
        Ok(Self(pairs))
    }

    /// Takes headers that were checked when they were stored.
    #[must_use]
    pub fn from_stored(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// Name and value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// Bytes of all names and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// When a message is to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// This long after the store takes it, by the store's clock.
    In(Duration),
    /// At this moment; a past one is due at once.
    At(Timestamp),
}

/// What to do when the id is already there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// Answer `duplicate`; what is there stays.
    #[default]
    Reject,
    /// The new message takes its place; claims of the old one end.
    Replace,
}

/// A number that makes one enqueue of one message recognisable, so that a repeated request is
/// answered as the first was. Random, 64 bits, made by whoever enqueues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub u64);

/// Where a message is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// Nobody holds it: not yet due, due, or waiting for a retry.
    Scheduled,
    /// Claimed and not settled.
    InFlight,
    /// A dead letter.
    Dead,
}

impl MessageState {
    /// The word users see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::InFlight => "in_flight",
            Self::Dead => "dead",
        }
    }
}

/// Why and when a message died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// When.
    pub at: Timestamp,
    /// Why, in words for the operator.
    pub reason: String,
}

/// A message as its shard holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its id.
    pub id: MessageId,
    /// Where it is in its life.
    pub state: MessageState,
    /// The due time it was given.
    pub due_at: Timestamp,
    /// When it may be claimed (again): the due time, a retry's time or a claim's deadline.
    pub visible_at: Timestamp,
    /// How many times it was claimed.
    pub attempts: u8,
    /// How many times it was redriven, 0 to [`crate::limits::REDRIVES_MAX`]; a redrive sets `attempts` back.
    pub redrives: u16,
    /// Of this enqueue.
    pub nonce: Nonce,
    /// The headers of the enqueue.
    pub headers: Headers,
    /// The payload of the enqueue, bit for bit.
    pub payload: Bytes,
    /// Present when the state is dead.
    pub death: Option<Death>,
}

impl StoredMessage {
    /// Whether it fell due before `now` and waits for a later try without having paid an attempt, for the failure was
    /// its sink's. Its score alone does not say so.
    #[must_use]
    pub fn is_deferred(&self, now: Timestamp) -> bool {
        self.state == MessageState::Scheduled && self.attempts == 0 && self.due_at <= now && self.visible_at > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &str, value: &str) -> Result<Headers, String> {
        Headers::new(vec![(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_header_that_could_end_its_line_is_refused() {
        for value in ["a\r\nx-admin: yes", "a\nb", "a\rb", "a\0b", "a\u{7f}b", "a\u{85}b"] {
            let refused = headers("trace", value).expect_err("a control character ends the line of a header");
            assert!(refused.contains("\"trace\"") && !refused.contains("admin"), "{refused}");
        }
        for name in ["", "a b", "a:b", "a\r\nb", "ä", "a\0"] {
            assert!(headers(name, "x").is_err(), "{name:?}");
        }
        assert!(headers("x-Trace_1.a", "a: b, ü").is_ok());
    }

    #[test]
    fn headers_are_bounded_in_number_and_bytes() {
        let many = |count: usize| Headers::new((0..count).map(|n| (format!("h{n}"), String::new())).collect());
        assert_eq!(many(HEADERS_MAX).map(|headers| headers.len()), Ok(HEADERS_MAX));
        assert!(many(HEADERS_MAX + 1).unwrap_err().contains(&HEADERS_MAX.to_string()));
        let long = |bytes: usize| headers("name", &"v".repeat(bytes - "name".len()));
        assert!(long(HEADER_BYTES_MAX).is_ok());
        assert!(long(HEADER_BYTES_MAX + 1).unwrap_err().contains(&HEADER_BYTES_MAX.to_string()));
    }
}
