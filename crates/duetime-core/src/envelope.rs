//! The stored form of a message's body: versioned, compact, binary.
//!
//! ```text
//! byte 0      version, 1
//! bytes 1-8   due time, milliseconds, big endian   (a script rewrites just these)
//! bytes 9-16  nonce of the enqueue, big endian
//! varint      number of headers; for each: varint length + name, varint length + value
//! the rest    payload
//! ```
//! The part behind the due time is the *tail*: a producer sends it, the store's script puts the
//! due time before it.

use bytes::{BufMut, Bytes, BytesMut};

use crate::message::{Headers, Nonce};
use crate::time::Timestamp;

/// The version this code writes.
pub const VERSION: u8 = 1;
/// Bytes before the tail.
pub const PREFIX_LEN: usize = 9;

/// A decoded body. Headers are copied, the payload is a slice of what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The due time the message was given.
    pub due_at: Timestamp,
    /// Of this enqueue.
    pub nonce: Nonce,
    /// As given.
    pub headers: Headers,
    /// As given, bit for bit.
    pub payload: Bytes,
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

/// Reads a stored body; the payload shares the memory of `body`.
///
/// # Errors
///
/// [`EnvelopeError`] when the bytes are not an envelope of a known version.
pub fn decode(body: &Bytes) -> Result<Envelope, EnvelopeError> {
    let bytes: &[u8] = body;
    if bytes.len() < PREFIX_LEN + 8 + 1 {
        return Err(EnvelopeError("it ends early"));
    }
    if bytes[0] != VERSION {
        return Err(EnvelopeError("its version is unknown; a newer Duetime wrote it"));
    }
    let eight = |at: usize| <[u8; 8]>::try_from(&bytes[at..at + 8]).expect("eight bytes");
    let due_at = Timestamp::from_millis(i64::from_be_bytes(eight(1)));
    let nonce = Nonce(u64::from_be_bytes(eight(PREFIX_LEN)));
    let mut rest = &bytes[PREFIX_LEN + 8..];
    let count = take_varint(&mut rest)?;
    let mut pairs = Vec::with_capacity(count.min(crate::limits::HEADERS_MAX));
    for _ in 0..count {
        pairs.push((take_text(&mut rest)?, take_text(&mut rest)?));
    }
    let payload = body.slice(bytes.len() - rest.len()..);
    Ok(Envelope { due_at, nonce, headers: Headers::from_stored(pairs), payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            due in 0i64..7_000_000_000_000, nonce: u64,
            headers in proptest::collection::vec(("[a-z]{1,10}", "[ -~]{0,200}"), 0..5),
            payload in proptest::collection::vec(any::<u8>(), 0..500),
        ) {
            let headers = Headers::new(headers).unwrap();
            let due_at = Timestamp::from_millis(due);
            let body = encode(due_at, Nonce(nonce), &headers, &payload);
            let back = decode(&body).unwrap();
            prop_assert_eq!(back, Envelope { due_at, nonce: Nonce(nonce), headers, payload: payload.into() });
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
            assert_eq!(encode(due_at, nonce, &headers, &payload), body, "{line}");
            let told = Envelope { due_at, nonce, headers, payload: payload.into() };
            assert_eq!(decode(&body.into()).unwrap(), told, "{line}");
        }
    }
}
