//! The catalog: one hash of the topics' records, the notes of work on them, and the swaps that change both.
//!
//! Upstream: `topics`, `topic_lifecycle` (creation and deletion), `seal`, `adopt`.

use duetime_core::store::StoreError;
use duetime_core::{RoutingRecord, Shard, TopicName, TopicRecord, stored};
use duetime_redis::{LinkError, Script, Sending};
use redis::Value;

use crate::calls::Calls;
use crate::reply::{int, store_error, text};

/// How often a change is tried again because others change the topic meanwhile.
pub(crate) const SWAPS_MAX: usize = 16;

/// Shards made or removed at the same time.
pub(crate) const SHARDS_AT_ONCE: usize = 32;

/// A change of one topic's record; see `topic_swap.lua`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Swap<'a> {
    /// The record seen, empty: none.
    pub(crate) seen: &'a str,
    /// The new one, empty: remove it.
    pub(crate) new: &'a str,
    /// The note of unfinished work seen, empty: none.
    pub(crate) noted: &'a str,
    /// The new note, empty: remove it.
    pub(crate) note: &'a str,
    /// The life of the new record.
    pub(crate) life: u64,
    /// The life that this deletes.
    pub(crate) deletes: Option<u64>,
}

pub(crate) fn damaged(error: &serde_json::Error) -> StoreError {
    StoreError::Damaged(format!("record of a topic: {error}"))
}

pub(crate) fn parse(text: &str) -> Result<TopicRecord, StoreError> {
    stored::read(text).map_err(|error| damaged(&error))
}

pub(crate) async fn field(
    calls: &Calls,
    doing: &'static str,
    key: String,
    topic: &TopicName,
) -> Result<Option<String>, StoreError> {
    let mut cmd = redis::cmd("HGET");
    cmd.arg(key).arg(topic.as_str());
    let value = calls.link.command("topics", &cmd).await.map_err(|error| store_error(doing, None, error))?;
    Ok(text(value))
}

/// Replaces the record if it is still what was seen; the unfinished work with it.
pub(crate) async fn swap(calls: &Calls, topic: &TopicName, swap: Swap<'_>) -> Result<bool, StoreError> {
    let fill = |cmd: &mut redis::Cmd, sending: &Sending| name_swap(calls, cmd, topic, swap, sending);
    let swapped = kept(calls, &calls.scripts.topic_swap, &calls.keys.topics(), fill).await;
    Ok(int(&swapped.map_err(|error| store_error("write a topic", None, error))?)? == 1)
}

/// Runs a script that writes. Where enqueues wait for replicas, topics do: a message that a replica
/// has is lost all the same if nobody has its topic.
pub(crate) async fn kept<F>(calls: &Calls, script: &Script, key: &str, fill: F) -> Result<Value, LinkError>
where
    F: Fn(&mut redis::Cmd, &Sending) + Send + Sync,
{
    match calls.durability.replicas() {
        0 => calls.link.script(script, key, fill).await,
        replicas => calls.link.replicated(script, key, replicas, fill).await.map(|(value, _)| value),
    }
}

pub(crate) fn name_catalog(calls: &Calls, cmd: &mut redis::Cmd, topic: &TopicName) {
    cmd.arg(3).arg(calls.keys.topics()).arg(calls.keys.pending()).arg(calls.keys.lives()).arg(topic.as_str());
}

pub(crate) fn name_swap(calls: &Calls, cmd: &mut redis::Cmd, topic: &TopicName, swap: Swap<'_>, sending: &Sending) {
    name_catalog(calls, cmd, topic);
    cmd.arg(swap.seen).arg(swap.new).arg(swap.noted).arg(swap.note).arg(swap.life);
    cmd.arg(swap.deletes.map_or_else(String::new, |life| life.to_string())).arg(u8::from(sending.repeated));
    cmd.arg(sending.not_after_ms);
}

/// The present life of the topic; `None`: it is not in the catalog.
pub(crate) async fn life(calls: &Calls, topic: &TopicName) -> Result<Option<u64>, StoreError> {
    let there = field(calls, "look up a topic", calls.keys.topics(), topic).await?;
    there.map(|text| Ok(parse(&text)?.routing.life())).transpose()
}

/// The last life of this name that was deleted; 0: none is known.
pub(crate) async fn deleted_life(calls: &Calls, topic: &TopicName) -> Result<u64, StoreError> {
    let there = field(calls, "look up a deleted topic", calls.keys.lives(), topic).await?;
    Ok(there.and_then(|life| life.parse().ok()).unwrap_or(0))
}

/// Every shard the topic has or ever had.
pub(crate) fn shards(record: &TopicRecord) -> impl Iterator<Item = Shard> + '_ {
    (0..record.max_shards_ever()).map(|index| record.routing.shard(&record.name, index))
}

pub(crate) async fn read_routing(calls: &Calls, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
    let there = field(calls, "read the routing of a topic", calls.keys.topics(), topic).await?;
    there.map(|text| Ok(parse(&text)?.routing_record())).transpose()
}

pub(crate) async fn replace_routing(
    calls: &Calls,
    topic: &TopicName,
    seen: &RoutingRecord,
    new: &RoutingRecord,
) -> Result<(), StoreError> {
    for _ in 0..SWAPS_MAX {
        let Some(text) = field(calls, "change the routing of a topic", calls.keys.topics(), topic).await? else {
            return Err(StoreError::Conflict);
        };
        let mut record = parse(&text)?;
        if record.routing_record() != *seen {
            return Err(StoreError::Conflict);
        }
        record.set_routing(new);
        let swap = Swap { seen: &text, new: &stored::write(&record, Some(&text)), ..Swap::default() };
        let fill = |cmd: &mut redis::Cmd, sending: &Sending| name_swap(calls, cmd, topic, swap, sending);
        let (script, key) = (&calls.scripts.topic_swap, calls.keys.topics());
        let run = calls.link.replicated(script, &key, calls.durability.replicas(), fill);
        let (swapped, _) = run.await.map_err(|error| store_error("change the routing of a topic", None, error))?;
        // Refused: a user changed the topic in between, which has nothing to do with its routing.
        if int(&swapped)? == 1 {
            return Ok(());
        }
    }
    Err(StoreError::Conflict)
}
