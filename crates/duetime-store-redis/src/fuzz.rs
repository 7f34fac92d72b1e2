//! Fuzz targets of this crate: each takes any bytes and panics when a law is broken.
//!
//! Upstream: `fuzz/fuzz_targets`, and the tests below with the corpora. Not in a plain build.

use std::time::Duration;

use bytes::Bytes;
use duetime_core::store::Enqueue;
use duetime_core::{Due, Headers, MessageId, Nonce, OnConflict, Timestamp};
use redis::Value;

use crate::reply::{self, array};
use crate::{claim, edit, enqueue, in_place, keys, read, record, settings, settle, topic_lifecycle, watermark};

fn items() -> Vec<Enqueue> {
    let due = [Due::At(Timestamp::from_millis(1)), Due::In(Duration::MAX)];
    let item = |due| Enqueue {
        id: MessageId::new("o-1").expect("a plain id"),
        due,
        headers: Headers::default(),
        payload: Bytes::new(),
        on_conflict: OnConflict::Reject,
        nonce: Nonce(1),
    };
    due.map(item).into()
}

/// What a server answers to a script, however odd, is read or refused: as many answers as were asked for, and
/// no panic.
pub fn replies(data: &[u8]) {
    if let Some((_, shard, _)) = keys::read_wake(data) {
        let text = String::from_utf8_lossy(data);
        let is_written = |part: &str| part.trim_start_matches(['+', '0']) == shard.to_string();
        assert!(text.split(':').any(is_written) || shard == 0);
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = settings::read_copy(text);
        let _ = topic_lifecycle::TopicIntent::read(text).map(|pending| pending.is_in_progress(i64::MAX));
    }
    let Ok(value) = redis::parse_redis_value(data) else { return };
    let ids = [MessageId::new("a").expect("a plain id"), MessageId::new("b").expect("a plain id")];
    for once in [false, true] {
        if let Ok((claim, unreadable)) = claim::read(value.clone(), once) {
            for message in &claim.messages {
                assert!(once || message.score.visible_at() <= Timestamp::from_millis(i64::MAX / 1000));
            }
            assert!(claim.messages.len() + unreadable.len() <= data.len());
        }
    }
    let _ = in_place::read(value.clone());
    let _ = watermark::read(value.clone());
    let _ = record::outbox(0, value.clone());
    if let Ok(found) = read::messages(ids.iter(), value.clone()) {
        assert_eq!(found.len(), ids.len());
    }
    let mut answers = Vec::new();
    if edit::read_cancelled(2, value.clone(), &mut answers).is_ok() {
        assert_eq!(answers.len(), 2);
    }
    let mut answers = Vec::new();
    if edit::read_rescheduled(2, value.clone(), &mut answers).is_ok() {
        assert_eq!(answers.len(), 2);
    }
    let (items, mut answers) = (items(), Vec::new());
    if enqueue::read(items.iter(), value.clone(), None, &mut answers).is_ok() {
        assert_eq!(answers.len(), items.len());
    }
    let _ = read::head(value.clone());
    if let Ok(values) = array(value.clone()) {
        let _ = read::counted(&values);
        let mut totals = [0; 3];
        let _ = read::add_up(&mut totals, &values);
        let _ = record::floor(&values);
        if let Ok(fields) = <[Value; 6]>::try_from(values) {
            let _ = record::routing(fields);
        }
    }
    let _ = (reply::int(&value).map(settle::read), reply::score(&value), reply::count(&value));
    let _ = record::frozen(ids[0].clone(), value.clone());
    if let Value::ServerError(error) = value {
        let error = duetime_redis::LinkError::Refused {
            code: error.code().to_owned(),
            detail: error.details().unwrap_or_default().to_owned(),
        };
        let _ = reply::store_error("test", None, error).to_string();
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
replay::corpora!(replies);
