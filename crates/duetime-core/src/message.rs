//! A message: id, payload, headers and due time; the payload is bytes nobody looks into.

use std::fmt;
use std::io::Cursor;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;

use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX, OWN_HEADER_BYTES_MAX, OWN_HEADERS, OWN_HEADERS_MAX};
use crate::names::MessageId;
use crate::score::{LeaseClass, Score};
use crate::time::Timestamp;

/// The header that keeps how many deliveries a message may have, see [`crate::max_attempts`]: one or two digits.
pub const MAX_ATTEMPTS: &str = "duetime-max-attempts";
/// The header that keeps an [`Expiry`](crate::Expiry): milliseconds since the Unix epoch, or, after a `+`, after the due
/// time.
pub const EXPIRES: &str = "duetime-expires";
/// The header that keeps how long a claim hides the message, see [`crate::own_visibility`]: milliseconds.
pub const VISIBILITY: &str = "duetime-visibility";
/// The header that keeps a [`Previous`](crate::Previous): the payload that the message had before somebody edited it.
pub const PREVIOUS: &str = "duetime-previous";
/// The header that keeps a [`Repeat`](crate::Repeat): by which rule the message comes again, and how far that has come.
pub const REPEAT: &str = "duetime-repeat";
/// What a message says of how Duetime treats it: kept among its headers, and shown to nobody who is handed it.
const KEPT: [&str; 5] = [EXPIRES, MAX_ATTEMPTS, VISIBILITY, REPEAT, PREVIOUS];

/// Header names and values in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Checks and takes headers: at most 64, 16 KiB in all, names not empty, no control characters.
    ///
    /// Headers that Duetime keeps itself count for neither limit, up to limits of their own: else a message with 64
    /// headers and a number of attempts could not be enqueued again as it is read.
    ///
    /// # Errors
    ///
    /// A sentence that names the header and the fix.
    pub fn new(pairs: Vec<(String, String)>) -> Result<Self, String> {
        let headers = Self(pairs);
        headers.check_size()?;
        for (name, value) in headers.iter() {
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            if name.is_empty() || !name.bytes().all(token) {
                return Err(format!("header name {name:?} is refused; use letters, digits and - . _ as in HTTP"));
            }
            if value.chars().any(char::is_control) {
                return Err(format!("header {name:?} has a control character in its value; leave it out"));
            }
        }
        Ok(headers)
    }

    /// Refuses more than [`Headers::new`] takes, where what Duetime keeps itself was added since.
    ///
    /// # Errors
    ///
    /// A sentence with the number and the limit.
    pub fn check_size(&self) -> Result<(), String> {
        let (mut given, mut given_bytes, mut bytes) = (0, 0, 0);
        for (name, value) in self.iter() {
            let more = name.len() + value.len();
            bytes += more;
            if !name.starts_with(OWN_HEADERS) {
                given += 1;
                given_bytes += more;
            }
        }
        let count = self.len().saturating_sub(OWN_HEADERS_MAX).max(given);
        if count > HEADERS_MAX {
            return Err(format!("{count} headers; the limit is {HEADERS_MAX}"));
        }
        let bytes = bytes.saturating_sub(OWN_HEADER_BYTES_MAX).max(given_bytes);
        if bytes > HEADER_BYTES_MAX {
            return Err(format!("headers have {bytes} bytes; the limit is {HEADER_BYTES_MAX}"));
        }
        Ok(())
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

    /// Those that whoever is handed the message sees: all but what says how Duetime treats it.
    pub fn delivered(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(|(name, _)| !KEPT.contains(name))
    }

    /// The value of the first header with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// The headers with this one as the first, in place of all that have its name.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut headers = self.without(name);
        headers.0.insert(0, (name.to_owned(), value.to_owned()));
        headers
    }

    /// The headers without those of this name.
    pub(crate) fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(other, _)| other != name).cloned().collect())
    }

    /// The headers with this one as the last; as an error without it, where that would be more than a message may have.
    pub(crate) fn append(mut self, name: &str, value: &str) -> Result<Self, Self> {
        self.0.push((name.to_owned(), value.to_owned()));
        if self.check_size().is_ok() {
            return Ok(self);
        }
        self.0.pop();
        Err(self)
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

impl Due {
    /// The moment, for a message that is taken at `now`.
    #[must_use]
    pub fn of(self, now: Timestamp) -> Timestamp {
        match self {
            Self::In(delay) => now.plus(delay),
            Self::At(at) => at,
        }
    }
}

/// A number that makes one enqueue of one message recognisable, so that a repeated request is
/// answered as the first was. Random, 64 bits, made by whoever enqueues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub u64);

impl Nonce {
    /// The nonce of an enqueue that is made from this one: the same for the same `cause`, however often it is made.
    /// Of two causes it differs, as far as 64 bits of murmur3 do.
    #[must_use]
    pub fn derived(self, cause: &[u8]) -> Self {
        let text = [&self.0.to_be_bytes()[..], cause].concat();
        let whole = murmur3::murmur3_x64_128(&mut Cursor::new(text), 0).expect("memory can be read");
        Self(whole as u64)
    }
}

/// What a message is at one moment: its enqueue and its score. A reschedule changes the score, a replacement the nonce;
/// one that is given its old due time again is what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Of the enqueue.
    pub nonce: Nonce,
    /// Of a message that nobody holds and that was not delivered without an answer (class 0).
    pub score: Score,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.nonce.0, self.score.raw())
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (nonce, score) = text.split_once('-')?;
            let is_hex = nonce.len() == 16 && nonce.bytes().all(|b| b.is_ascii_hexdigit());
            let is_number = !score.is_empty() && score.bytes().all(|b| b.is_ascii_digit());
            let nonce = u64::from_str_radix(nonce, 16).ok().filter(|_| is_hex && is_number)?;
            Some(Self { nonce: Nonce(nonce), score: Score::from_raw(score.parse().ok()?) })
        };
        read().ok_or_else(|| format!("{text:?} is no version; give the `version` of the message, exactly"))
    }
}

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
    /// What it is now; `None`: it is claimed or a dead letter.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        let score = Score::new(self.visible_at, LeaseClass::FREE, self.attempts);
        (self.state == MessageState::Scheduled).then_some(Version { nonce: self.nonce, score })
    }

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
    fn a_version_is_read_as_it_was_written_and_nothing_else_is() {
        let version = Version { nonce: Nonce(7), score: Score::from_raw(1_763_700_000_123_000) };
        assert_eq!(version.to_string(), "0000000000000007-1763700000123000");
        assert_eq!(version.to_string().parse(), Ok(version));
        for bad in ["", "7-1763700000123000", "0000000000000007", "0000000000000007--1", "+000000000000007-1", "x"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
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

    #[test]
    fn what_is_kept_by_duetime_itself_takes_no_place_of_a_producers_headers() {
        let of = |given: usize, own: usize, bytes: usize| {
            let given = (0..given).map(|n| (format!("h{n}"), String::new()));
            let own = (0..own).map(|n| (format!("{OWN_HEADERS}{n}"), "v".repeat(bytes)));
            Headers::new(given.chain(own).collect()).map(|headers| headers.len())
        };
        assert_eq!(of(HEADERS_MAX, OWN_HEADERS_MAX, 1), Ok(HEADERS_MAX + OWN_HEADERS_MAX));
        assert_eq!(of(0, HEADERS_MAX + OWN_HEADERS_MAX, 1), Ok(HEADERS_MAX + OWN_HEADERS_MAX));
        assert!(of(HEADERS_MAX, OWN_HEADERS_MAX + 1, 1).is_err() && of(HEADERS_MAX + 1, 0, 1).is_err());
        let most = HEADER_BYTES_MAX + OWN_HEADER_BYTES_MAX - "duetime-0".len();
        assert!(of(0, 1, most).is_ok() && of(0, 1, most + 1).is_err());
    }
}
