//! The stored form of a body: core's envelope and a checksum, so that a damaged disk is noticed.
//!
//! The checksum (murmur3, 32 bit) covers the id and everything behind the due time, which a
//! reschedule rewrites.

use std::io::Cursor;

use bytes::Bytes;
use duetime_core::store::Enqueue;
use duetime_core::{Headers, Nonce, Timestamp, envelope};

/// Bytes of the checksum at the end.
const SUM_LEN: usize = 4;
/// Bytes before the payload and headers that are always there.
const LEAST_LEN: usize = envelope::PREFIX_LEN + 8 + 1 + SUM_LEN;

fn sum(id: &str, tail: &[u8]) -> [u8; SUM_LEN] {
    let hash = |bytes: &[u8], seed| murmur3::murmur3_32(&mut Cursor::new(bytes), seed).expect("memory can be read");
    hash(tail, hash(id.as_bytes(), 0)).to_be_bytes()
}

/// The stored form of `item`, still without its due time.
pub fn encode(item: &Enqueue) -> Vec<u8> {
    encode_parts(item.id.as_str(), item.nonce, &item.headers, &item.payload)
}

/// [`encode`] of the parts of a message.
pub fn encode_parts(id: &str, nonce: Nonce, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let tail = envelope::encode_tail(nonce, headers, payload);
    let mut out = Vec::with_capacity(envelope::PREFIX_LEN + tail.len() + SUM_LEN);
    out.extend_from_slice(&envelope::prefix(Timestamp::ZERO));
    out.extend_from_slice(&tail);
    out.extend_from_slice(&sum(id, &tail));
    out
}

/// Writes the due time into a stored body.
pub fn set_due(body: &mut [u8], due_at: Timestamp) {
    body[..envelope::PREFIX_LEN].copy_from_slice(&envelope::prefix(due_at));
}

/// Whether the bytes are what was written; a reason for the operator if not.
pub fn check(id: &str, body: &[u8]) -> Result<(), &'static str> {
    if body.len() < LEAST_LEN {
        return Err("its body in the store is cut short");
    }
    if body[0] != envelope::VERSION {
        return Err("its body in the store has an unknown version");
    }
    let (tail, kept) = body[envelope::PREFIX_LEN..].split_at(body.len() - envelope::PREFIX_LEN - SUM_LEN);
    if sum(id, tail) != kept { Err("its body was damaged on the disk") } else { Ok(()) }
}

/// A stored body without its checksum, if it is what was written.
pub fn bare(id: &str, body: &[u8]) -> Option<Bytes> {
    check(id, body).ok()?;
    Some(Bytes::copy_from_slice(&body[..body.len() - SUM_LEN]))
}

/// The stored form of a bare body; of one that was lost, what every reader takes for lost.
pub fn stored(id: &str, bare: Option<&Bytes>) -> Vec<u8> {
    let Some(bare) = bare.filter(|bare| bare.len() >= LEAST_LEN - SUM_LEN) else { return Vec::new() };
    let mut out = Vec::with_capacity(bare.len() + SUM_LEN);
    out.extend_from_slice(bare);
    out.extend_from_slice(&sum(id, &bare[envelope::PREFIX_LEN..]));
    out
}

/// Reads a stored body that passed [`check`].
pub fn decode(body: &Bytes) -> Result<envelope::Envelope, envelope::EnvelopeError> {
    envelope::decode(&body.slice(..body.len().saturating_sub(SUM_LEN)))
}

/// The stored body of a message that is redriven once more; `None`: it stays as it is.
pub fn redriven(id: &str, body: &[u8]) -> Option<Vec<u8>> {
    Some(stored(id, Some(&envelope::redriven(&bare(id, body)?)?)))
}

/// Due time and nonce from the first bytes of a body; `None` if it is cut short.
pub fn head(body: &[u8]) -> Option<(Timestamp, u64)> {
    let eight = |at: usize| body.get(at..at + 8).map(|b| <[u8; 8]>::try_from(b).expect("eight bytes"));
    Some((Timestamp::from_millis(i64::from_be_bytes(eight(1)?)), u64::from_be_bytes(eight(envelope::PREFIX_LEN)?)))
}
