//! The catalogue: one hash of the topics' records, and the swaps that change it.
//!
//! Upstream: the contract, `lives` (creation and deletion), `adopt`. A record that cannot be read is left
//! out and told; the others are not touched by it.

use duetime_core::store::StoreError;
use duetime_core::{RoutingRecord, TopicName, TopicRecord, stored};
use duetime_redis::{LinkError, Script, Sending};
use redis::Value;
use tracing::error;

use crate::reply::{int, odd, store_error, text};
use crate::store::RedisStore;

/// How often a change is tried again because others change the topic meanwhile.
pub(crate) const SWAPS_MAX: usize = 16;

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

impl RedisStore {
    pub(crate) async fn field(
        &self,
        doing: &'static str,
        key: String,
        topic: &TopicName,
    ) -> Result<Option<String>, StoreError> {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(key).arg(topic.as_str());
        let value = self.link.command("topics", &cmd).await.map_err(|error| store_error(doing, None, error))?;
        Ok(text(value))
    }

    /// Replaces the record if it is still what was seen; the unfinished work with it.
    pub(crate) async fn swap(&self, topic: &TopicName, swap: Swap<'_>) -> Result<bool, StoreError> {
        let fill = |cmd: &mut redis::Cmd, sending: &Sending| self.name_swap(cmd, topic, swap, sending);
        let swapped = self.kept(&self.scripts.topic_swap, &self.keys.topics(), fill).await;
        Ok(int(&swapped.map_err(|error| store_error("write a topic", None, error))?)? == 1)
    }

    /// Runs a script that writes. Where enqueues wait for replicas, topics do: a message that a replica
    /// has is lost all the same if nobody has its topic.
    pub(crate) async fn kept<F>(&self, script: &Script, key: &str, fill: F) -> Result<Value, LinkError>
    where
        F: Fn(&mut redis::Cmd, &Sending) + Send + Sync,
    {
        match self.durability.replicas() {
            0 => self.link.script(script, key, fill).await,
            replicas => self.link.replicated(script, key, replicas, fill).await.map(|(value, _)| value),
        }
    }

    pub(crate) fn name_catalogue(&self, cmd: &mut redis::Cmd, topic: &TopicName) {
        cmd.arg(3).arg(self.keys.topics()).arg(self.keys.pending()).arg(self.keys.lives()).arg(topic.as_str());
    }

    pub(crate) fn name_swap(&self, cmd: &mut redis::Cmd, topic: &TopicName, swap: Swap<'_>, sending: &Sending) {
        self.name_catalogue(cmd, topic);
        cmd.arg(swap.seen).arg(swap.new).arg(swap.noted).arg(swap.note).arg(swap.life);
        cmd.arg(swap.deletes.map_or_else(String::new, |life| life.to_string())).arg(u8::from(sending.repeated));
        cmd.arg(sending.not_after_ms);
    }

    /// All records that can be read; the names of the others are kept for [`RedisStore::unreadable_topics`].
    pub(crate) async fn all_topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(self.keys.topics());
        let all = self.link.command("topics", &cmd).await.map_err(|error| store_error("read topics", None, error))?;
        let fields: Vec<(String, Vec<u8>)> =
            redis::from_redis_value(all).map_err(|_| odd("the hash of topics is something else"))?;
        let (mut records, mut unreadable) = (Vec::with_capacity(fields.len()), Vec::new());
        for (name, text) in fields {
            match String::from_utf8(text).map_err(|_| odd("it is not text")).and_then(|text| parse(&text)) {
                Ok(record) => records.push(record),
                Err(error) => {
                    if !self.unreadable.lock().contains(&name) {
                        error!(topic = %name, %error, "record of a topic cannot be read, the topic is left out");
                    }
                    unreadable.push(name);
                }
            }
        }
        *self.unreadable.lock() = unreadable;
        Ok(records)
    }

    pub(crate) fn unreadable_topics(&self) -> Vec<String> {
        self.unreadable.lock().clone()
    }

    pub(crate) async fn store_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        let topic = &record.name;
        let there = self.field("read a topic", self.keys.topics(), topic).await?;
        let Some(seen) = seen else {
            return match there.as_deref().map(parse).transpose()? {
                // The answer to the first sending of this very creation was lost.
                Some(there) if record.clone().in_life(there.routing.life()) == there => Ok(there),
                Some(_) => Err(StoreError::Conflict),
                None => self.create(record).await,
            };
        };
        let Some(text) = there else { return Err(StoreError::Conflict) };
        let old = parse(&text)?;
        let mut new = record.clone();
        new.keep_routing_of(&old);
        if old == new {
            return Ok(new);
        }
        let swap = Swap { seen: &text, new: &stored::write(&new, Some(&text)), ..Swap::default() };
        if old.version != seen || !self.swap(topic, swap).await? {
            return Err(StoreError::Conflict);
        }
        self.copy_settings(&new).await;
        Ok(new)
    }

    pub(crate) async fn read_routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        let there = self.field("read the routing of a topic", self.keys.topics(), topic).await?;
        there.map(|text| Ok(parse(&text)?.routing_record())).transpose()
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
            let mut record = parse(&text)?;
            if record.routing_record() != *seen {
                return Err(StoreError::Conflict);
            }
            record.set_routing(new);
            let swap = Swap { seen: &text, new: &stored::write(&record, Some(&text)), ..Swap::default() };
            let fill = |cmd: &mut redis::Cmd, sending: &Sending| self.name_swap(cmd, topic, swap, sending);
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

    /// The present life of the topic; `None`: it is not in the catalogue.
    pub(crate) async fn life(&self, topic: &TopicName) -> Result<Option<u64>, StoreError> {
        let there = self.field("look up a topic", self.keys.topics(), topic).await?;
        there.map(|text| Ok(parse(&text)?.routing.life())).transpose()
    }

    /// The last life of this name that was deleted; 0: none is known.
    pub(crate) async fn deleted_life(&self, topic: &TopicName) -> Result<u64, StoreError> {
        let there = self.field("look up a deleted topic", self.keys.lives(), topic).await?;
        Ok(there.and_then(|life| life.parse().ok()).unwrap_or(0))
    }
}
