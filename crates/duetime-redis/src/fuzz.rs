//! Fuzz targets of this crate: each takes any bytes and panics when a law is broken.
//!
//! Upstream: `fuzz/fuzz_targets`, and the tests below with the corpora. Not in a plain build.

use redis::Value;

use crate::error::into_result;
use crate::{RedisUrl, cluster, facts, fence, replicated, reply, sentinel, setup};

/// What a server says of itself and of others, however odd, is read or refused.
pub fn server_says(data: &[u8]) {
    // Replies of a connection follow each other, and the last may be cut.
    let Ok(value) = redis::parse_redis_value(data) else { return };
    if let Ok(value) = into_result(value.clone()) {
        read(&value);
    }
    read(&value);
    // As rows of a list too, for these are read one by one.
    read(&Value::Array(vec![value.clone(), value.clone(), value]));
}

fn read(value: &Value) {
    for (first, last, address) in cluster::read_slots(value, "teller:7000").unwrap_or_default() {
        assert!(first <= last && last < crate::slots::SLOTS && address.contains(':'));
    }
    let _ = sentinel::read_epoch(value);
    let _ = replicated::read(value);
    let _ = fence::connection_id(value);
    let _ = setup::read_clock(value);
    let text = reply::text(value);
    let _ = (facts::read(&text), replicated::following_in(&text), setup::numbers(&text));
}

/// The address of a store is refused or read, and never shown with a password.
pub fn store_urls(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (begin, end) = text.split_once('\n').unwrap_or(("redis://", &text));
    let url = format!("{begin}u:LEFTLEFT{end}");
    let shown = match RedisUrl::parse(&url) {
        Ok(read) => format!("{read} {read:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    // Without an `@` behind it, what stands there is a host.
    let is_password = begin.ends_with("://") && begin.matches("://").count() == 1 && end.contains('@');
    // What is shown may have the mark of its own: a scheme that is refused is named. Addresses are read without these.
    let has_mark = |part: &str| part.replace(['\t', '\n', '\r'], "").contains("LEFTLEFT");
    let is_password = is_password && !has_mark(begin) && !has_mark(end);
    assert!(!is_password || !shown.contains("LEFTLEFT"), "{url} is shown as {shown}");
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
replay::corpora!(server_says, store_urls);
