//! Topics: one hash of records; creation and deletion touch many shards and can be taken up again.
//!
//! A creation first writes down what it is about to do, then makes the shards, then publishes the
//! record. A deletion moves the record out of sight, then removes the shards, then forgets it.

use duetime_core::reshard::RoutingRecord;
use duetime_core::store::StoreError;
use duetime_core::{Shard, TopicName, TopicRecord};
use duetime_redis::{LinkError, Script, Sending};
use futures::{StreamExt, TryStreamExt, stream};
use redis::Value;
use serde::{Deserialize, Serialize};

use crate::moves::{seed_word, state_word};
use crate::reply::{array, int, odd, store_error, text};
use crate::store::RedisStore;

/// A creation that is neither finished nor taken back after this belongs to a dead node.
const CREATING_FOR_MS: i64 = 10_000;
/// How often a change is tried again because others change the topic meanwhile.
const SWAPS_MAX: usize = 16;
/// Shards made or removed at the same time.
const SHARDS_AT_ONCE: usize = 32;

/// Work on a topic that is under way.
#[derive(Serialize, Deserialize)]
struct Pending {
    deleting: bool,
    since_ms: i64,
    record: TopicRecord,
}

fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("records have string keys only")
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged(format!("record of a topic: {error}")))
}

/// Every shard the topic has or ever had.
fn shards(record: &TopicRecord) -> impl Iterator<Item = Shard> + '_ {
    (0..record.widest()).map(|index| record.routing.shard(&record.name, index))
}

impl RedisStore {
    async fn field(&self, doing: &'static str, key: String, topic: &TopicName) -> Result<Option<String>, StoreError> {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(key).arg(topic.as_str());
        let value = self.link.command("topics", &cmd).await.map_err(|error| store_error(doing, None, error))?;
        Ok(text(value))
    }

    /// Replaces the record if it is still what was seen; the unfinished work with it.
    async fn swap(&self, topic: &TopicName, seen: &str, new: &str, pending: &str) -> Result<bool, StoreError> {
        let fill = |cmd: &mut redis::Cmd, sending: &Sending| {
            self.name_swap(cmd, topic, seen, new, pending);
            cmd.arg(u8::from(sending.repeated)).arg(sending.not_after_ms);
        };
        let swapped = self.kept(&self.scripts.topic_swap, &self.keys.topics(), fill).await;
        Ok(int(&swapped.map_err(|error| store_error("write a topic", None, error))?)? == 1)
    }

    /// Runs a script that writes. Where enqueues wait for replicas, topics do: a message that a replica
    /// has is lost all the same if nobody has its topic.
    async fn kept<F>(&self, script: &Script, key: &str, fill: F) -> Result<Value, LinkError>
    where
        F: Fn(&mut redis::Cmd, &Sending) + Send + Sync,
    {
        match self.durability.replicas() {
            0 => self.link.script(script, key, fill).await,
            replicas => self.link.replicated(script, key, replicas, fill).await.map(|(value, _)| value),
        }
    }

    fn name_swap(&self, cmd: &mut redis::Cmd, topic: &TopicName, seen: &str, new: &str, pending: &str) {
        cmd.arg(2).arg(self.keys.topics()).arg(self.keys.pending());
        cmd.arg(topic.as_str()).arg(seen).arg(new).arg(pending);
    }

    pub(crate) async fn all_topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        let mut cmd = redis::cmd("HVALS");
        cmd.arg(self.keys.topics());
        let all = self.link.command("topics", &cmd).await.map_err(|error| store_error("read topics", None, error))?;
        array(all)?
            .into_iter()
            .map(|value| parse(&text(value).ok_or_else(|| odd("the record of a topic is not text"))?))
            .collect()
    }

    pub(crate) async fn store_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<(), StoreError> {
        let topic = &record.name;
        let there = self.field("read a topic", self.keys.topics(), topic).await?;
        let Some(seen) = seen else {
            return match there {
                // The answer to the first sending of this very creation was lost.
                Some(text) if parse::<TopicRecord>(&text)? == *record => Ok(()),
                Some(_) => Err(StoreError::Conflict),
                None => self.create(record).await,
            };
        };
        let Some(text) = there else { return Err(StoreError::Conflict) };
        let old: TopicRecord = parse(&text)?;
        let mut new = record.clone();
        new.keep_routing_of(&old);
        if old == new {
            return Ok(());
        }
        if old.version != seen || !self.swap(topic, &text, &json(&new), "").await? {
            return Err(StoreError::Conflict);
        }
        Ok(())
    }

    pub(crate) async fn read_routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        let there = self.field("read the routing of a topic", self.keys.topics(), topic).await?;
        there.map(|text| Ok(parse::<TopicRecord>(&text)?.routing_record())).transpose()
    }

    pub(crate) async fn replace_routing(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        new: &RoutingRecord,
    ) -> Result<(), StoreError> {
        for _ in 0..SWAPS_MAX {
            let Some(text) = self.field("change the routing of a topic", self.keys.topics(), topic).await? else {
                return Err(StoreError::Conflict);
            };
            let mut record: TopicRecord = parse(&text)?;
            if record.routing_record() != *seen {
                return Err(StoreError::Conflict);
            }
            record.set_routing(new);
            let (seen, new) = (text.as_str(), json(&record));
            let fill = |cmd: &mut redis::Cmd, sending: &Sending| {
                self.name_swap(cmd, topic, seen, &new, "");
                cmd.arg(u8::from(sending.repeated)).arg(sending.not_after_ms);
            };
            let (script, key) = (&self.scripts.topic_swap, self.keys.topics());
            let run = self.link.replicated(script, &key, self.durability.replicas(), fill);
            let (swapped, _) = run.await.map_err(|error| store_error("change the routing of a topic", None, error))?;
            // Refused: a user changed the topic in between, which has nothing to do with its routing.
            if int(&swapped)? == 1 {
                return Ok(());
            }
        }
        Err(StoreError::Conflict)
    }

    /// When the topic was created, which tells its shards from those of one that had its name before.
    pub(crate) async fn born(&self, topic: &TopicName) -> Result<Option<i64>, StoreError> {
        let there = self.field("look up a topic", self.keys.topics(), topic).await?;
        there.map(|text| Ok(parse::<TopicRecord>(&text)?.created_at_ms)).transpose()
    }

    async fn create(&self, record: &TopicRecord) -> Result<(), StoreError> {
        let topic = &record.name;
        let doing = "create a topic";
        let now = self.link.clock().await.map_err(|error| store_error(doing, None, error))?;
        if let Some(text) = self.field(doing, self.keys.pending(), topic).await? {
            let pending: Pending = parse(&text)?;
            if pending.deleting {
                self.drop_shards(&pending.record).await?;
            } else if pending.record.routing.rid != record.routing.rid && now - pending.since_ms < CREATING_FOR_MS {
                return Err(StoreError::Conflict);
            }
        }
        let pending = Pending { deleting: false, since_ms: now, record: record.clone() };
        if !self.swap(topic, "", "", &json(&pending)).await? {
            return Err(StoreError::Conflict);
        }
        stream::iter(shards(record).map(|shard| self.create_shard(record, shard)))
            .buffer_unordered(SHARDS_AT_ONCE)
            .try_collect::<()>()
            .await?;
        // Another creator that took over in between owns the shards now.
        match self.field(doing, self.keys.pending(), topic).await? {
            Some(text) if parse::<Pending>(&text)?.record.routing.rid == record.routing.rid => {}
            _ => return Err(StoreError::Conflict),
        }
        if self.swap(topic, "", &json(record), "").await? { Ok(()) } else { Err(StoreError::Conflict) }
    }

    async fn create_shard(&self, record: &TopicRecord, shard: Shard) -> Result<(), StoreError> {
        let routing = &record.routing;
        let fill = |cmd: &mut redis::Cmd, sending: &Sending| {
            self.keys.fill_all(cmd, &shard);
            cmd.arg(routing.epoch).arg(&routing.rid).arg(routing.shards).arg(routing.previous);
            cmd.arg(state_word(routing.state))
                .arg(record.created_at_ms)
                .arg(seed_word(routing))
                .arg(sending.not_after_ms);
        };
        let made = self.kept(&self.scripts.create, &self.keys.messages(&shard), fill).await;
        made.map(drop).map_err(|error| store_error("create a shard", Some(&shard), error))
    }

    pub(crate) async fn remove_topic(&self, topic: &TopicName) -> Result<bool, StoreError> {
        let doing = "delete a topic";
        let now = self.link.clock().await.map_err(|error| store_error(doing, None, error))?;
        let mut tries = 0;
        let record = loop {
            match self.field(doing, self.keys.topics(), topic).await? {
                Some(text) => {
                    let record: TopicRecord = parse(&text)?;
                    let pending = Pending { deleting: true, since_ms: now, record: record.clone() };
                    if self.swap(topic, &text, "", &json(&pending)).await? {
                        break record;
                    }
                    // Changed in between, or the answer to the first sending was lost.
                    tries += 1;
                    if tries == SWAPS_MAX {
                        return Err(StoreError::Conflict);
                    }
                }
                // A deletion that was interrupted is finished.
                None => match self.field(doing, self.keys.pending(), topic).await? {
                    Some(text) => match parse::<Pending>(&text)? {
                        Pending { deleting: true, record, .. } => break record,
                        Pending { .. } => return Ok(false),
                    },
                    None => return Ok(false),
                },
            }
        };
        self.drop_shards(&record).await?;
        self.swap(topic, "", "", "").await?;
        Ok(true)
    }

    async fn drop_shards(&self, record: &TopicRecord) -> Result<(), StoreError> {
        stream::iter(shards(record).map(|shard| async move { self.unmake(&shard, "", record.created_at_ms).await }))
            .buffer_unordered(SHARDS_AT_ONCE)
            .try_collect::<()>()
            .await
    }

    /// Removes a shard of a topic that is deleted, unless it is another's by now. `rid`: empty, if any will do.
    /// Everything of it goes at once, and memory is freed in the background.
    pub(crate) async fn unmake(&self, shard: &Shard, rid: &str, born: i64) -> Result<(), StoreError> {
        let fill = |cmd: &mut redis::Cmd, sending: &Sending| {
            self.keys.fill_every(cmd, shard);
            cmd.arg(rid).arg(born).arg(sending.not_after_ms);
        };
        let removed = self.link.script(&self.scripts.unmake, &self.keys.messages(shard), fill).await;
        removed.map(drop).map_err(|error| store_error("remove a shard of a deleted topic", Some(shard), error))
    }
}
