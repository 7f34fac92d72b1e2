//! Fuzz targets of this crate: each takes any bytes and panics when a law is broken.
//!
//! Upstream: `fuzz/fuzz_targets`, and the tests below with the corpora. Not in a plain build.

use std::time::Duration;

use bytes::Bytes;

use crate::envelope::{self, Envelope};
use crate::limits::ATTEMPTS_MAX;
use crate::units::{parse_duration, parse_size, parse_time, show_duration};
use crate::{
    Headers, LeaseClass, MessageId, Namespace, Nonce, Receipt, Score, Timestamp, TopicConfig, TopicName, stored,
};

fn eight(data: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    let there = data.get(at..).unwrap_or_default();
    let len = there.len().min(8);
    bytes[..len].copy_from_slice(&there[..len]);
    u64::from_le_bytes(bytes)
}

/// A stored body is refused or read, and what is read is written and read as the same again.
pub fn envelope(data: &[u8]) {
    if let Ok(body) = envelope::decode(&Bytes::copy_from_slice(data)) {
        let again = body.encode();
        assert!(again.len() <= data.len(), "what is written is never longer than what was read");
        assert_eq!(envelope::decode(&again).expect("what was written is read"), body);
    }
    let (head, rest) = data.split_at(data.len().min(16));
    let (due_at, nonce) = (Timestamp::from_millis(eight(head, 0).cast_signed()), Nonce(eight(head, 8)));
    let mut parts = rest.split(|byte| *byte == b'\n');
    let payload = parts.next().unwrap_or_default();
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let pairs: Vec<_> = parts.map(|part| part.split_at(part.len() / 2)).map(|(n, v)| (text(n), text(v))).collect();
    let headers = Headers::from_stored(pairs);
    let body = envelope::encode(due_at, nonce, &headers, payload);
    let wanted = Envelope { due_at, nonce, redrives: 0, headers, payload: Bytes::copy_from_slice(payload) };
    assert_eq!(envelope::decode(&body).expect("what was written is read"), wanted);
}

/// A receipt is refused, or is written as it was read; a score gives back its parts.
pub fn receipts(data: &[u8]) {
    let topic = TopicName::new("orders").expect("a plain name");
    let text = String::from_utf8_lossy(data);
    if let Ok(receipt) = Receipt::parse(&topic, &text) {
        assert_eq!(receipt.to_string(), text);
    }
    let score = Score::from_raw(eight(data, 0).cast_signed());
    let (at, class, attempts) = (score.visible_at(), score.class(), score.attempts());
    assert!(attempts <= ATTEMPTS_MAX);
    // The last millisecond of all is cut by the width of the number.
    if (i64::MIN / 1000 + 1..i64::MAX / 1000).contains(&at.as_millis()) {
        assert_eq!(Score::new(at, class, attempts), score);
        assert!(score <= Score::due_at_most(at));
    }
    let asked = Duration::from_nanos(eight(data, 8));
    assert!(LeaseClass::for_visibility(asked).is_held());
    if let Ok(id) = MessageId::new(&String::from_utf8_lossy(data.get(16..).unwrap_or_default())) {
        let epoch = eight(data, 8);
        let receipt = Receipt::new(&topic, epoch as u32, epoch, id, score);
        assert_eq!(Receipt::parse(&topic, &receipt.to_string()), Ok(receipt));
    }
}

/// Durations, sizes, times and names are refused, or are read as the same when they are shown.
pub fn units(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(read) = parse_duration(&text) {
        let whole = Duration::from_millis(u64::try_from(read.as_millis()).unwrap_or(u64::MAX));
        assert_eq!(parse_duration(&show_duration(read)), Ok(whole));
    }
    let drawn = Duration::from_millis(eight(data, 0));
    assert_eq!(parse_duration(&show_duration(drawn)), Ok(drawn));
    if let Ok(size) = parse_size(&text) {
        assert_eq!(parse_size(&size.to_string()), Ok(size));
    }
    if let Ok(at) = parse_time(&text) {
        assert_eq!(parse_time(&at.as_millis().to_string()), Ok(at));
        // Beyond the year 9999 there is no calendar, and it is shown as a number.
        if !at.to_string().ends_with("ms") {
            assert_eq!(parse_time(&at.to_string()), Ok(at));
        }
    }
    if let Ok(name) = TopicName::new(&text) {
        assert_eq!(name.as_str(), text);
        assert!(name.as_str().bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)));
    }
    if let Ok(id) = MessageId::new(&text) {
        assert!(id.as_str() == text && !id.as_str().contains(['\n', '\r', '\0', '\u{1b}']));
    }
    if let Ok(namespace) = Namespace::new(&text) {
        assert!(!namespace.as_str().contains([':', '{', '}', '*', ' ']));
    }
}

/// A topic's settings are refused, or written and read as the same; so is a stored record.
pub fn topics(data: &[u8]) {
    if let Ok(config) = serde_json::from_slice::<TopicConfig>(data) {
        let text = serde_json::to_string(&config).expect("plain data");
        // A duration is written in whole milliseconds: the second time nothing changes any more.
        let once = serde_json::from_str::<TopicConfig>(&text).expect("what was written is read");
        assert_eq!(serde_json::to_string(&once).expect("plain data"), text);
        if once.check().is_ok() {
            let most = once.retry.waits.iter().copied().max().unwrap_or(once.retry.max);
            for attempts in [0, 1, ATTEMPTS_MAX, u8::MAX] {
                assert!(once.retry.backoff(attempts, f64::from(data.len() as u32 % 11) / 10.0) <= most);
            }
        }
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(record) = stored::read(text) {
        let again = stored::write(&record, Some(text));
        assert_eq!(stored::read(&again).expect("what was written is read"), record);
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
replay::corpora!(envelope, receipts, topics, units);
