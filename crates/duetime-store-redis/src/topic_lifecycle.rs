//! Creates and deletes topics; both touch many shards and can be resumed.
//!
//! A creation first records its intent, which gives the incarnation its number; then it creates the shards, then it
//! publishes the topic's record in place of the intent. A deletion records its intent and removes the topic's record, then
//! deletes the shards of that incarnation, then removes the intent. A call that executes late names its incarnation or
//! its intent, and changes nothing of a newer one.

use duetime_core::limits::SHARDS_MAX;
use duetime_core::store::{Deletion, StoreError};
use duetime_core::{ChangeId, Shard, Timestamp, TopicConfig, TopicName, TopicRecord, stored};
use duetime_redis::Sending;
use futures::{StreamExt, TryStreamExt, stream};
use redis::Cmd;
use serde_json::{Value, json};
use tracing::info;

use crate::calls::Calls;
use crate::catalog::{SHARDS_AT_ONCE, SWAPS_MAX, Swap, damaged, parse, shards};
use crate::look::FoundShard;
use crate::record::{seed_word, state_word};
use crate::reply::{array, store_error, text, unexpected_reply};
use crate::settings::{COPIES, copy};
use crate::{catalog, look, seal, shard_creation};

/// A creation that is not finished after this belongs to a dead node. If the node is only slow, its creation is refused,
/// since its incarnation is the earlier one.
const CREATING_FOR_MS: i64 = 10_000;
/// A deletion that is not finished after this is finished by another node; that both finish it is safe.
const DELETING_FOR_MS: i64 = 30_000;
/// The first shards of a name that are inspected before the name is taken for unused. They lie on every master that
/// has a 64th of the slots, so shards of a larger topic can be missed only if all of these were lost; the
/// shards themselves then refuse to be made over messages.
const INSPECTED: u32 = 64;

/// A recorded creation or deletion of a topic that is not finished.
pub(crate) struct TopicIntent {
    life: u64,
    pub(crate) deleting: bool,
    since_ms: i64,
    record: TopicRecord,
}

impl TopicIntent {
    pub(crate) fn read(text: &str) -> Result<Self, StoreError> {
        let mut note: Value = serde_json::from_str(text).map_err(|error| damaged(&error))?;
        // A note that is no object has none.
        let record = note.get_mut("record").map(Value::take).unwrap_or_default();
        let record = stored::read_value(record).map_err(|error| damaged(&error))?;
        Ok(Self {
            life: note["life"].as_u64().unwrap_or_else(|| record.routing.life()),
            deleting: note["deleting"].as_bool().ok_or_else(|| unexpected_reply("the note of unfinished work"))?,
            since_ms: note["since_ms"].as_i64().unwrap_or(0),
            record,
        })
    }

    /// True if the creation is in progress, or the deletion unfinished.
    pub(crate) fn is_in_progress(&self, now_ms: i64) -> bool {
        self.deleting || now_ms - self.since_ms < CREATING_FOR_MS
    }
}

/// A note as it goes on behind its life, which the script puts in front.
fn rest_of_note(deleting: bool, since_ms: i64, record: &TopicRecord) -> String {
    let note = json!({ "deleting": deleting, "since_ms": since_ms, "record": record }).to_string();
    note[1..].to_owned()
}

fn note(life: u64, rest: &str) -> String {
    format!("{{\"life\":{life},{rest}")
}

/// Returns the newest incarnation among these shards.
pub(crate) fn newest_life(found: &[FoundShard]) -> u64 {
    found.iter().filter_map(|found| Some(found.inspected.as_ref()?.routing.life())).max().unwrap_or(0)
}

/// Counts messages that no deletion up to incarnation `deleted` covers.
fn left(found: &[FoundShard], deleted: u64) -> u64 {
    let covered = |found: &&FoundShard| found.inspected.as_ref().is_none_or(|shard| shard.routing.life() > deleted);
    found.iter().filter(covered).map(|found| found.held).sum()
}

/// What is in the places of the shards of this name: the first ones, and as many as these know of.
pub(crate) async fn look_for(calls: &Calls, topic: &TopicName) -> Result<Vec<FoundShard>, StoreError> {
    let mut found = look::look_at_shards(calls, topic, 0..INSPECTED).await?;
    let of =
        |found: &FoundShard| found.inspected.as_ref().map(|shard| shard.routing.shards.max(shard.routing.previous));
    let last = found.iter().filter_map(of).max().unwrap_or(0).min(SHARDS_MAX);
    if last > INSPECTED {
        found.extend(look::look_at_shards(calls, topic, INSPECTED..last).await?);
    }
    Ok(found)
}

/// Messages of a topic that is not in the catalog.
pub(crate) async fn count_leftovers(calls: &Calls, topic: &TopicName) -> Result<u64, StoreError> {
    let doing = "look for a topic that vanished";
    let now = calls.link.clock().await.map_err(|error| store_error(doing, None, error))?;
    for looks in 0..2 {
        if catalog::field(calls, doing, calls.keys.topics(), topic).await?.is_some() {
            return Ok(0);
        }
        if let Some(text) = catalog::field(calls, doing, calls.keys.pending(), topic).await?
            && TopicIntent::read(&text)?.is_in_progress(now)
        {
            return Ok(0);
        }
        let deleted = catalog::deleted_life(calls, topic).await?;
        let messages = left(&look_for(calls, topic).await?, deleted);
        // It may have been created or deleted during the first look.
        if messages == 0 || looks == 1 {
            return Ok(messages);
        }
    }
    unreachable!("the second look answers")
}

pub(crate) async fn create(calls: &Calls, record: &TopicRecord) -> Result<TopicRecord, StoreError> {
    let topic = &record.name;
    let doing = "create a topic";
    let now = calls.link.clock().await.map_err(|error| store_error(doing, None, error))?;
    let mut noted = String::new();
    if let Some(text) = catalog::field(calls, doing, calls.keys.pending(), topic).await? {
        let pending = TopicIntent::read(&text)?;
        if pending.deleting {
            finish_deletion(calls, &pending, &text).await?;
        } else if pending.record.routing.change_id != record.routing.change_id && pending.is_in_progress(now) {
            return Err(StoreError::Conflict);
        } else {
            noted = text;
        }
    }
    let deleted = catalog::deleted_life(calls, topic).await?;
    let found = look_for(calls, topic).await?;
    let messages = left(&found, deleted);
    if messages > 0 {
        // Those of a topic that somebody else created meanwhile are no remains.
        if count_leftovers(calls, topic).await? == 0 {
            return Err(StoreError::Conflict);
        }
        let vanished = StoreError::Vanished { topic: topic.to_string(), messages };
        calls.refused(&vanished);
        return Err(vanished);
    }
    let rest = rest_of_note(false, now, record);
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        catalog::name_catalog(calls, cmd, topic);
        cmd.arg(&noted).arg(&rest).arg(newest_life(&found)).arg(sending.not_after_ms);
    };
    let life = catalog::kept(calls, &calls.scripts.topic_note, &calls.keys.topics(), fill).await;
    let life = life.map_err(|error| store_error(doing, None, error))?;
    let life = text(life).and_then(|life| life.parse().ok()).ok_or_else(|| unexpected_reply("the number of a life"))?;
    if life == 0 {
        return Err(StoreError::Conflict);
    }
    let (record, noted) = (record.clone().in_life(life), note(life, &rest));
    let made = stream::iter(shards(&record).map(|shard| create_shard(calls, &record, shard, deleted)))
        .buffer_unordered(SHARDS_AT_ONCE)
        .try_collect::<()>()
        .await;
    if let Err(error) = made {
        calls.refused(&error);
        // Nothing is under way any more, if this is not overtaken.
        catalog::swap(calls, topic, Swap { noted: &noted, ..Swap::default() }).await?;
        return Err(error);
    }
    // Refused, if another creator that took over in between has noted its own life.
    let swap = Swap { new: &stored::write(&record, None), noted: &noted, life, ..Swap::default() };
    if catalog::swap(calls, topic, swap).await? { Ok(record) } else { Err(StoreError::Conflict) }
}

async fn create_shard(calls: &Calls, record: &TopicRecord, shard: Shard, deleted: u64) -> Result<(), StoreError> {
    let routing = &record.routing;
    let copy = if shard.index < COPIES { copy(record) } else { String::new() };
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        calls.keys.fill_all(cmd, &shard);
        cmd.arg(routing.epoch).arg(routing.change_id.to_string()).arg(routing.shards).arg(routing.previous);
        cmd.arg(state_word(routing.state)).arg(seed_word(routing)).arg(deleted).arg(&copy);
        cmd.arg(sending.not_after_ms);
    };
    let made = catalog::kept(calls, &calls.scripts.create, &calls.keys.messages(&shard), fill).await;
    made.map(drop).map_err(|error| store_error("create a shard", Some(&shard), error))
}

pub(crate) async fn remove_topic(calls: &Calls, topic: &TopicName, how: Deletion) -> Result<bool, StoreError> {
    let doing = "delete a topic";
    let now = calls.link.clock().await.map_err(|error| store_error(doing, None, error))?;
    // The life that is to go: one that is created once it has gone is not meant.
    let mut meant = None;
    for _ in 0..SWAPS_MAX {
        let there = catalog::field(calls, doing, calls.keys.topics(), topic).await?;
        let noted = catalog::field(calls, doing, calls.keys.pending(), topic).await?.unwrap_or_default();
        let record = match &there {
            Some(text) => {
                let record = parse(text)?;
                if record.routing.life() > *meant.get_or_insert(record.routing.life()) {
                    return Ok(true);
                }
                record
            }
            None => {
                let pending = if noted.is_empty() { None } else { Some(TopicIntent::read(&noted)?) };
                let gone = match meant {
                    Some(life) => catalog::deleted_life(calls, topic).await? >= life,
                    None => false,
                };
                match pending {
                    // A deletion that was interrupted is finished.
                    Some(pending) if pending.deleting => {
                        finish_deletion(calls, &pending, &noted).await?;
                        return Ok(true);
                    }
                    _ if gone => return Ok(true),
                    Some(pending) if pending.is_in_progress(now) => return Ok(false),
                    _ => match lost_record(calls, topic, now).await? {
                        Some(_) if how == Deletion::IfEmpty => {
                            let why = "is not in the catalog, although its shards are there".to_owned();
                            return Err(StoreError::NotEmpty { topic: topic.to_string(), why });
                        }
                        Some(record) => record,
                        None => return Ok(false),
                    },
                }
            }
        };
        if how == Deletion::IfEmpty {
            match seal::close_all(calls, &record).await {
                // Somebody changed its shard count meanwhile.
                Err(StoreError::Conflict) => continue,
                closed => closed?,
            }
        }
        let life = record.routing.life();
        let rest = rest_of_note(true, now, &record);
        let note = note(life, &rest);
        let seen = there.as_deref().unwrap_or_default();
        let swap = Swap { seen, noted: &noted, note: &note, deletes: Some(life), ..Swap::default() };
        // Refused, if it was changed in between, or the answer to the first sending was lost.
        if catalog::swap(calls, topic, swap).await? {
            let pending = TopicIntent { life, deleting: true, since_ms: now, record };
            finish_deletion(calls, &pending, &note).await?;
            return Ok(true);
        }
    }
    Err(StoreError::Conflict)
}

/// A record that names every shard there is of a topic whose own record vanished.
async fn lost_record(calls: &Calls, topic: &TopicName, now: i64) -> Result<Option<TopicRecord>, StoreError> {
    let found = look::look_at_shards(calls, topic, 0..SHARDS_MAX).await?;
    let is_there = |found: &FoundShard| found.inspected.is_some() || found.held > 0;
    let Some(last) = found.iter().rposition(is_there) else { return Ok(None) };
    let inspected = found.iter().filter_map(|found| found.inspected.as_ref());
    let newest = inspected.max_by_key(|shard| shard.routing.epoch).map(|shard| shard.routing.clone());
    let max_shards_ever = u32::try_from(last + 1).unwrap_or(SHARDS_MAX);
    let now = Timestamp::from_millis(now);
    let fresh = TopicRecord::with_shards(topic.clone(), TopicConfig::default(), 1, ChangeId::default(), now);
    Ok(Some(TopicRecord { routing: newest.unwrap_or(fresh.routing), max_shards_ever, ..fresh }))
}

async fn finish_deletion(calls: &Calls, pending: &TopicIntent, noted: &str) -> Result<(), StoreError> {
    stream::iter(
        shards(&pending.record)
            .map(|shard| async move { shard_creation::delete_shard(calls, &shard, pending.life).await }),
    )
    .buffer_unordered(SHARDS_AT_ONCE)
    .try_collect::<()>()
    .await?;
    // Refused, if somebody else has finished it.
    catalog::swap(calls, &pending.record.name, Swap { noted, ..Swap::default() }).await?;
    Ok(())
}

/// Finishes what other nodes began to delete and did not finish.
pub(crate) async fn finish_old_deletions(calls: &Calls) -> Result<(), StoreError> {
    let doing = "look for deletions that were interrupted";
    let failed = |error| store_error(doing, None, error);
    let mut cmd = redis::cmd("HVALS");
    cmd.arg(calls.keys.pending());
    let noted = array(calls.link.command("topics", &cmd).await.map_err(failed)?)?;
    if noted.is_empty() {
        return Ok(());
    }
    let now = calls.link.clock().await.map_err(failed)?;
    for noted in noted.into_iter().filter_map(text) {
        let pending = TopicIntent::read(&noted)?;
        if pending.deleting && now - pending.since_ms > DELETING_FOR_MS {
            finish_deletion(calls, &pending, &noted).await?;
            info!(topic = %pending.record.name, "a deletion that another node began was finished");
        }
    }
    Ok(())
}
