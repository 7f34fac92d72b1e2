//! The topics as they are kept in the catalog: reading all, writing one.
//!
//! Upstream: the contract. A record that cannot be read is left
//! out and reported; the others are not touched by it.

use duetime_core::store::StoreError;
use duetime_core::{TopicRecord, stored};
use parking_lot::Mutex;
use tracing::error;

use crate::calls::Calls;
use crate::catalog::{Swap, parse};
use crate::reply::{store_error, unexpected_reply};
use crate::{catalog, settings, topic_lifecycle};

/// All records that can be read; the names of the others are put into `unreadable`.
pub(crate) async fn all_topics(calls: &Calls, unreadable: &Mutex<Vec<String>>) -> Result<Vec<TopicRecord>, StoreError> {
    let mut cmd = redis::cmd("HGETALL");
    cmd.arg(calls.keys.topics());
    let all = calls.link.command("topics", &cmd).await.map_err(|error| store_error("read topics", None, error))?;
    let fields: Vec<(String, Vec<u8>)> =
        redis::from_redis_value(all).map_err(|_| unexpected_reply("the hash of topics is something else"))?;
    let (mut records, mut left_out) = (Vec::with_capacity(fields.len()), Vec::new());
    for (name, text) in fields {
        match String::from_utf8(text).map_err(|_| unexpected_reply("it is not text")).and_then(|text| parse(&text)) {
            Ok(record) => records.push(record),
            Err(error) => {
                if !unreadable.lock().contains(&name) {
                    error!(topic = %name, %error, "record of a topic cannot be read, the topic is left out");
                }
                left_out.push(name);
            }
        }
    }
    *unreadable.lock() = left_out;
    Ok(records)
}

pub(crate) async fn store_topic(
    calls: &Calls,
    record: &TopicRecord,
    seen: Option<u64>,
) -> Result<TopicRecord, StoreError> {
    let topic = &record.name;
    let there = catalog::field(calls, "read a topic", calls.keys.topics(), topic).await?;
    let Some(seen) = seen else {
        return match there.as_deref().map(parse).transpose()? {
            // The answer to the first sending of this very creation was lost.
            Some(there) if record.clone().in_life(there.routing.life()) == there => Ok(there),
            Some(_) => Err(StoreError::Conflict),
            None => topic_lifecycle::create(calls, record).await,
        };
    };
    let Some(text) = there else { return Err(StoreError::Conflict) };
    let old = parse(&text)?;
    let mut new = record.clone();
    old.check_in_flight(&new.config).map_err(|_| StoreError::Conflict)?;
    new.keep_routing_of(&old);
    if old == new {
        return Ok(new);
    }
    let swap = Swap { seen: &text, new: &stored::write(&new, Some(&text)), ..Swap::default() };
    if old.version != seen || !catalog::swap(calls, topic, swap).await? {
        return Err(StoreError::Conflict);
    }
    settings::copy_settings(calls, &new).await;
    Ok(new)
}
