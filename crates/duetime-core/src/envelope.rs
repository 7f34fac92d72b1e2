//! The stored form of a message's body: versioned, compact, binary.
//!
//! ```text
//! byte 0      version, 1
//! bytes 1-8   due time, milliseconds, big endian   (a script rewrites just these)
//! bytes 9-16  nonce of the enqueue, big endian
//! varint      number of headers; for each: varint length + name, varint length + value
//! the rest    payload
//! ```
//! A message that was redriven has the count of that as its first header, [`REDRIVES`], which is not the producer's. The
//! number of headers then has two bytes, `0x80 + number` and 0, which no producer writes; whoever does not know the count
//! reads the same number and one header more, and sinks leave out headers that begin with `duetime-`.
//!
//! The part behind the due time is the *tail*: a producer sends it, the store's script puts the
//! due time before it.

use bytes::{BufMut, Bytes, BytesMut};

use crate::limits::REDRIVES_MAX;
use crate::message::{Headers, MAX_ATTEMPTS, Nonce};
use crate::time::Timestamp;

/// The version this code writes.
pub const VERSION: u8 = 1;
/// Bytes before the tail.
pub const PREFIX_LEN: usize = 9;
/// Name of the header that counts redrives.
pub const REDRIVES: &str = "duetime-redrives";
/// Where the number of headers is.
const COUNT_AT: usize = PREFIX_LEN + 8;
/// Most headers of a body that counts redrives, the count among them: what fits into seven bits.
const COUNTED_MAX: usize = 0x7f;

/// A decoded body. Headers are copied, the payload is a slice of what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The due time the message was given.
    pub due_at: Timestamp,
    /// Of this enqueue.
    pub nonce: Nonce,
    /// How often it was redriven.
    pub redrives: u16,
    /// The headers of the enqueue.
    pub headers: Headers,
    /// The payload of the enqueue, bit for bit.
    pub payload: Bytes,
}

impl Envelope {
    /// What can be said of a message whose body is missing or cannot be read.
    #[must_use]
    pub fn lost() -> Self {
        Self {
            due_at: Timestamp::ZERO,
            nonce: Nonce(0),
            redrives: 0,
            headers: Headers::default(),
            payload: Bytes::new(),
        }
    }

    /// The whole stored body, with the count of redrives.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let body = encode(self.due_at, self.nonce, &self.headers, &self.payload);
        if self.redrives == 0 { body } else { counted(&body, self.redrives).unwrap_or(body) }
    }
}

/// Why a stored body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("body of the message cannot be read: {0}")]
pub struct EnvelopeError(&'static str);

fn put_varint(to: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        to.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.put_u8(value as u8);
}

fn take_varint(from: &mut &[u8]) -> Result<usize, EnvelopeError> {
    let mut value = 0usize;
    for shift in (0..=28).step_by(7) {
        let (first, rest) = from.split_first().ok_or(EnvelopeError("it ends early"))?;
        *from = rest;
        value |= usize::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(EnvelopeError("a length is too long"))
}

fn take_text(from: &mut &[u8]) -> Result<String, EnvelopeError> {
    let len = take_varint(from)?;
    if len > from.len() {
        return Err(EnvelopeError("it ends early"));
    }
    let (text, rest) = from.split_at(len);
    *from = rest;
    String::from_utf8(text.to_vec()).map_err(|_| EnvelopeError("a header is not UTF-8"))
}

/// The nine bytes before the tail.
#[must_use]
pub fn prefix(due_at: Timestamp) -> [u8; PREFIX_LEN] {
    let mut out = [VERSION; PREFIX_LEN];
    out[1..].copy_from_slice(&due_at.as_millis().to_be_bytes());
    out
}

/// What a producer sends: everything behind the due time.
#[must_use]
pub fn encode_tail(nonce: Nonce, headers: &Headers, payload: &[u8]) -> Bytes {
    let header_bytes: usize = headers.iter().map(|(n, v)| n.len() + v.len() + 6).sum();
    let mut out = BytesMut::with_capacity(8 + 5 + header_bytes + payload.len());
    out.put_u64(nonce.0);
    put_varint(&mut out, headers.len());
    for (name, value) in headers.iter() {
        put_varint(&mut out, name.len());
        out.put_slice(name.as_bytes());
        put_varint(&mut out, value.len());
        out.put_slice(value.as_bytes());
    }
    out.put_slice(payload);
    out.freeze()
}

/// The whole stored body.
#[must_use]
pub fn encode(due_at: Timestamp, nonce: Nonce, headers: &Headers, payload: &[u8]) -> Bytes {
    let tail = encode_tail(nonce, headers, payload);
    let mut out = BytesMut::with_capacity(PREFIX_LEN + tail.len());
    out.put_slice(&prefix(due_at));
    out.put_slice(&tail);
    out.freeze()
}

/// How often the message was redriven, and how many headers of the producer follow.
fn take_counts(from: &mut &[u8]) -> Result<(u16, usize), EnvelopeError> {
    let whole = *from;
    let count = take_varint(from)?;
    if whole.len() - from.len() == 2 && whole[1] == 0 && count > 0 {
        let mut rest = *from;
        let pair = (take_text(&mut rest), take_text(&mut rest));
        if let (Ok(name), Ok(value)) = pair
            && name == REDRIVES
            && let Ok(redrives) = value.parse::<u16>()
        {
            *from = rest;
            return Ok((redrives.min(REDRIVES_MAX), count - 1));
        }
    }
    Ok((0, count))
}

/// `body` with this count of redrives; `None` where it cannot have one.
fn counted(body: &[u8], redrives: u16) -> Option<Bytes> {
    let mut rest = body.get(COUNT_AT..)?;
    let (_, count) = take_counts(&mut rest).ok()?;
    let count = u8::try_from(count + 1).ok().filter(|count| usize::from(*count) <= COUNTED_MAX)?;
    let value = redrives.min(REDRIVES_MAX).to_string();
    let mut out = BytesMut::with_capacity(body.len() + REDRIVES.len() + value.len() + 4);
    out.put_slice(&body[..COUNT_AT]);
    out.put_slice(&[0x80 | count, 0]);
    for text in [REDRIVES, &value] {
        put_varint(&mut out, text.len());
        out.put_slice(text.as_bytes());
    }
    out.put_slice(rest);
    Some(out.freeze())
}

/// The body of a message that is redriven once more; `None`: it stays as it is, because it cannot be read or its count
/// is the highest there is. O(length).
#[must_use]
pub fn redriven(body: &[u8]) -> Option<Bytes> {
    let mut rest = body.get(COUNT_AT..).filter(|_| body[0] == VERSION)?;
    let (redrives, _) = take_counts(&mut rest).ok()?;
    if redrives < REDRIVES_MAX { counted(body, redrives + 1) } else { None }
}

/// How many deliveries the message says that it may have, see [`crate::max_attempts`]; `None`: nothing, or it cannot be
/// read. O(headers), copies nothing.
#[must_use]
pub fn max_attempts(body: &[u8]) -> Option<u8> {
    let mut rest = body.get(COUNT_AT..).filter(|_| body[0] == VERSION)?;
    let (_, count) = take_counts(&mut rest).ok()?;
    for _ in 0..count.min(COUNTED_MAX) {
        let mut part = || {
            let len = take_varint(&mut rest).ok()?;
            let (part, behind) = rest.split_at_checked(len)?;
            rest = behind;
            Some(part)
        };
        let (name, value) = (part()?, part()?);
        if name == MAX_ATTEMPTS.as_bytes() {
            return crate::max_attempts::read(value);
        }
    }
    None
}

/// Reads a stored body; the payload shares the memory of `body`.
///
/// # Errors
///
/// [`EnvelopeError`] when the bytes are not an envelope of a known version.
pub fn decode(body: &Bytes) -> Result<Envelope, EnvelopeError> {
    let bytes: &[u8] = body;
    if bytes.len() <= COUNT_AT {
        return Err(EnvelopeError("it ends early"));
    }
    if bytes[0] != VERSION {
        return Err(EnvelopeError("its version is unknown; a newer Duetime wrote it"));
    }
    let eight = |at: usize| <[u8; 8]>::try_from(&bytes[at..at + 8]).expect("eight bytes");
    let due_at = Timestamp::from_millis(i64::from_be_bytes(eight(1)));
    let nonce = Nonce(u64::from_be_bytes(eight(PREFIX_LEN)));
    let mut rest = &bytes[COUNT_AT..];
    let (redrives, count) = take_counts(&mut rest)?;
    let mut pairs = Vec::with_capacity(count.min(crate::limits::HEADERS_MAX));
    for _ in 0..count {
        pairs.push((take_text(&mut rest)?, take_text(&mut rest)?));
    }
    let payload = body.slice(bytes.len() - rest.len()..);
    Ok(Envelope { due_at, nonce, redrives, headers: Headers::from_stored(pairs), payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            due in 0i64..7_000_000_000_000, nonce: u64, redrives in 0..=REDRIVES_MAX,
            headers in proptest::collection::vec(("[a-z]{1,10}", "[ -~]{0,200}"), 0..5),
            payload in proptest::collection::vec(any::<u8>(), 0..500),
        ) {
            let headers = Headers::new(headers).unwrap();
            let due_at = Timestamp::from_millis(due);
            let told = Envelope { due_at, nonce: Nonce(nonce), redrives, headers, payload: payload.into() };
            let body = told.encode();
            prop_assert_eq!(&decode(&body).unwrap(), &told);
            let once_more = redriven(&body).map(|body| decode(&body).unwrap());
            let counted = (redrives < REDRIVES_MAX).then(|| Envelope { redrives: redrives + 1, ..told });
            prop_assert_eq!(once_more, counted);
        }

        #[test]
        fn damaged_bodies_are_refused_and_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&Bytes::from(bytes));
        }
    }

    fn bytes_of(hex: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        if hex == "-" { Vec::new() } else { (0..hex.len()).step_by(2).map(byte).collect() }
    }

    /// What the release before has instead of [`take_counts`].
    #[test]
    fn who_does_not_know_the_count_of_redrives_reads_one_header_more() {
        let given = Headers::new(vec![("a".to_owned(), "1".to_owned())]).unwrap();
        let body = redriven(&encode(Timestamp::ZERO, Nonce(7), &given, b"x")).unwrap();
        let mut rest = &body[COUNT_AT..];
        assert_eq!(take_varint(&mut rest).unwrap(), 2);
        let mut pair = || (take_text(&mut rest).unwrap(), take_text(&mut rest).unwrap());
        assert_eq!(pair(), (REDRIVES.to_owned(), "1".to_owned()));
        assert_eq!(pair(), ("a".to_owned(), "1".to_owned()));
        assert_eq!(rest, b"x");
    }

    #[test]
    fn a_producers_header_of_that_name_is_no_count() {
        let given = Headers::new(vec![(REDRIVES.to_owned(), "5".to_owned())]).unwrap();
        let body = encode(Timestamp::ZERO, Nonce(7), &given, b"x");
        let read = decode(&body).unwrap();
        assert_eq!((read.redrives, &read.headers), (0, &given));
        let read = decode(&redriven(&body).unwrap()).unwrap();
        assert_eq!((read.redrives, &read.headers), (1, &given));
    }

    #[test]
    fn a_body_that_cannot_be_read_stays_as_it_is_when_it_is_redriven() {
        let other = |version: u8| [&[version][..], &[0; 30]].concat();
        assert!(redriven(&other(VERSION)).is_some());
        for body in [&b""[..], b"nonsense", &other(2), &[VERSION; COUNT_AT]] {
            assert_eq!(redriven(body), None);
        }
    }

    /// The scripts of the store on Redis read the same bodies: `tests/it/redis_store/layout.rs`.
    #[test]
    fn bodies_are_laid_out_as_other_programs_read_them() {
        for line in include_str!("envelope.golden").lines().skip(1) {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap();
            let (due_at, nonce) = (Timestamp::from_millis(word().parse().unwrap()), Nonce(word().parse().unwrap()));
            let pair = |pair: &str| {
                let (name, value) = pair.split_once('=').unwrap();
                (name.to_owned(), String::from_utf8(bytes_of(value)).unwrap())
            };
            let headers = word();
            let pairs = if headers == "-" { Vec::new() } else { headers.split(',').map(pair).collect() };
            let (headers, payload, body) = (Headers::new(pairs).unwrap(), bytes_of(word()), bytes_of(word()));
            let redrives = word().parse().unwrap();
            let told = Envelope { due_at, nonce, redrives, headers, payload: payload.into() };
            assert_eq!(told.encode(), body, "{line}");
            assert_eq!(decode(&body.into()).unwrap(), told, "{line}");
        }
    }
}
