//! Moves between shards: fence, scan, take, put, memory, renumber, drop.

use std::ops::Range;

use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::reshard::{
    Batch, BatchName, Cursor, Fenced, Floor, Frozen, FrozenState, Inspected, Kept, Put, ScanPage, Scanned,
};
use duetime_core::routing::RoutingState;
use duetime_core::store::StoreError;
use duetime_core::{LeaseClass, MessageId, MessageState, Routing, Shard, Timestamp, TopicName};
use duetime_redis::Sending;
use redis::{Cmd, Pipeline, Value};

use crate::claim::Present;
use crate::enqueue::{HINT_WITHIN, millis};
use crate::keys::wake_stem;
use crate::made::CLOSED;
use crate::reply::{array, bytes, count, id, int, odd, score, store_error, text, tuple};
use crate::store::RedisStore;

/// Whether a fence makes a shard that it does not find; see `fence.lua`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Making {
    /// It must be there.
    Never = 0,
    /// If nothing is in its place.
    New = 1,
    /// What another life left in its place goes.
    Anew = 2,
}

/// What is in the place of a shard.
#[derive(Debug)]
pub(crate) struct Found {
    /// As its meta tells; `None`: it has none.
    pub(crate) inspected: Option<Inspected>,
    /// Messages, dead letters and frozen messages.
    pub(crate) held: u64,
}

/// Shards inspected in one pipeline.
const INSPECTED_AT_ONCE: u32 = 512;
/// The outbox is empty.
const NO_NONCE: &str = "-";

pub(crate) fn state_word(state: RoutingState) -> &'static str {
    if state == RoutingState::Moving { "moving" } else { "stable" }
}

/// The seed as scripts keep it: empty, if it is that of the topic's name.
pub(crate) fn seed_word(routing: &Routing) -> String {
    routing.seed.map_or_else(String::new, |seed| seed.to_string())
}

/// A record from the fields of meta, in the order epoch, rid, shards, previous, state, seed.
pub(crate) fn routing(fields: [Value; 6]) -> Option<Routing> {
    let [epoch, rid, shards, previous, state, seed] = fields.map(text);
    Some(Routing {
        epoch: epoch?.parse().ok()?,
        rid: rid?,
        shards: shards?.parse().ok()?,
        previous: previous?.parse().ok()?,
        state: if state? == "moving" { RoutingState::Moving } else { RoutingState::Stable },
        seed: seed.and_then(|seed| seed.parse().ok()),
    })
}

pub(crate) fn floor(deadlines: &[Value]) -> Result<Floor, StoreError> {
    let mut floor = Floor::default();
    for (class, last) in LeaseClass::held().zip(deadlines) {
        if *last != Value::Nil {
            floor.raise(class, Timestamp::from_millis(int(last)?));
        }
    }
    Ok(floor)
}

/// `number nonce`, and what follows.
fn name(text: &str) -> Option<(BatchName, Option<u32>)> {
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok()?;
    let nonce = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((BatchName { number, nonce }, words.next().and_then(|to| to.parse().ok())))
}

fn nonce_text(nonce: u64) -> String {
    format!("{nonce:016x}")
}

/// A message as the outbox keeps it; see `take.lua`.
pub(crate) fn frozen(id: MessageId, stored: Value) -> Option<Frozen> {
    let stored = bytes(stored)?;
    let kind = *stored.first()?;
    let space = |from: usize| stored[from..].iter().position(|byte| *byte == b' ').map(|at| from + at);
    let first = space(1)?;
    let second = space(first + 1)?;
    let number = |from: usize, to: usize| std::str::from_utf8(&stored[from..to]).ok();
    let length: usize = number(first + 1, second)?.parse().ok()?;
    let at = score(&Value::BulkString(stored[1..first].to_vec())).ok()??;
    let end = (second + 1).checked_add(length)?;
    let info = stored.get(second + 1..end)?;
    let state = if kind.eq_ignore_ascii_case(&b'l') {
        FrozenState::Live(at)
    } else {
        let (attempts, reason) = std::str::from_utf8(info).ok()?.split_once(' ')?;
        FrozenState::Dead { at: at.raw(), attempts: attempts.parse().unwrap_or(0), reason: reason.to_owned() }
    };
    let body = kind.is_ascii_lowercase().then(|| stored.slice(end..));
    Some(Frozen { id, state, body })
}

/// Reads an outbox as its scripts answer it.
pub(crate) fn outbox(from: u32, reply: Value) -> Result<Option<Batch>, StoreError> {
    let fields = match reply {
        Value::Map(pairs) => pairs,
        list => {
            let mut list = array(list)?.into_iter();
            std::iter::from_fn(|| Some((list.next()?, list.next()?))).collect()
        }
    };
    let mut named = None;
    let mut messages = Vec::with_capacity(fields.len());
    for (field, value) in fields {
        if matches!(&field, Value::BulkString(field) if field.is_empty()) {
            named = text(value);
        } else {
            let id = id(&field)?;
            messages.push(frozen(id, value).ok_or_else(|| odd("a message in an outbox"))?);
        }
    }
    let named = named.ok_or_else(|| odd("an outbox without a name"))?;
    if named.split(' ').nth(1) == Some(NO_NONCE) {
        return Ok(None);
    }
    let Some((name, Some(to))) = name(&named) else { return Err(odd("the name of an outbox")) };
    messages.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(Some(Batch { name, from, to, messages }))
}

impl RedisStore {
    pub(crate) async fn fence_shard(
        &self,
        topic: &TopicName,
        index: u32,
        record: &Routing,
        above: &Floor,
    ) -> Result<Fenced, StoreError> {
        let making = if record.may_lack(index) { Making::New } else { Making::Never };
        let shard = record.shard(topic, index);
        if self.life(topic).await? != Some(record.life()) {
            return Err(StoreError::UnknownShard(shard.to_string()));
        }
        let fenced = match self.fence_once(&shard, record, above, making, 0).await {
            // What a failover brought back of a topic that was deleted may go.
            Err(StoreError::Occupied { .. }) => {
                let deleted = self.deleted_life(topic).await?;
                self.fence_once(&shard, record, above, making, deleted).await
            }
            fenced => fenced,
        };
        let fenced = fenced.inspect_err(|error| self.refused(error))?;
        // The topic may have been deleted between the look above and the script.
        if fenced.before.is_none() && self.life(topic).await? != Some(record.life()) {
            self.unmake_shard(&shard, record.life()).await?;
            return Err(StoreError::UnknownShard(shard.to_string()));
        }
        Ok(fenced)
    }

    /// A shard that ids are to move into for the first time is noted before it takes any.
    async fn fence_once(
        &self,
        shard: &Shard,
        record: &Routing,
        above: &Floor,
        mut making: Making,
        deleted: u64,
    ) -> Result<Fenced, StoreError> {
        if making == Making::New && record.is_moving() {
            self.make_noted(shard, record, deleted).await?;
            making = Making::Never;
        }
        let fenced = self.fence_making(shard, record, above, making, deleted).await?;
        // One that was closed until then is new to whoever asks.
        Ok(Fenced { before: fenced.before.filter(|before| before.rid != CLOSED), ..fenced })
    }

    pub(crate) async fn fence_making(
        &self,
        shard: &Shard,
        record: &Routing,
        above: &Floor,
        making: Making,
        deleted: u64,
    ) -> Result<Fenced, StoreError> {
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            self.keys.fill_all(cmd, shard);
            cmd.arg(record.epoch).arg(&record.rid).arg(record.shards).arg(record.previous);
            cmd.arg(state_word(record.state)).arg(seed_word(record)).arg(deleted).arg(making as u8);
            for (_, deadline) in above.iter() {
                cmd.arg(deadline.as_millis());
            }
            cmd.arg(sending.not_after_ms);
        };
        let (script, key) = (&self.scripts.fence, self.keys.messages(shard));
        let run = self.link.replicated(script, &key, self.durability.replicas(), fill).await;
        let (reply, _) = run.map_err(|error| store_error("fence a shard", Some(shard), error))?;
        let mut fields = array(reply)?;
        if fields.len() != 14 {
            return Err(odd("a fence of another length"));
        }
        let floor = floor(&fields.split_off(6))?;
        let before = <[Value; 6]>::try_from(fields).ok().and_then(routing);
        Ok(Fenced { before, floor })
    }

    pub(crate) async fn inspect_shards(
        &self,
        topic: &TopicName,
        indexes: Range<u32>,
    ) -> Result<Vec<Option<Inspected>>, StoreError> {
        Ok(self.look_at_shards(topic, indexes).await?.into_iter().map(|found| found.inspected).collect())
    }

    /// What is known of shards, and what is there where no meta is.
    pub(crate) async fn look_at_shards(
        &self,
        topic: &TopicName,
        indexes: Range<u32>,
    ) -> Result<Vec<Found>, StoreError> {
        let mut found = Vec::with_capacity(indexes.len());
        for start in indexes.clone().step_by(INSPECTED_AT_ONCE as usize) {
            let end = start.saturating_add(INSPECTED_AT_ONCE).min(indexes.end);
            found.extend(self.look_at_some(topic, start..end).await?);
        }
        Ok(found)
    }

    async fn look_at_some(&self, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<Found>, StoreError> {
        let mut found = Vec::with_capacity(indexes.len());
        let mut pipeline = Pipeline::with_capacity(indexes.len() * 5);
        for index in indexes {
            let shard = Shard { topic: topic.clone(), index, epoch: 0 };
            pipeline.cmd("HMGET").arg(self.keys.meta(&shard));
            for field in
                ["epoch", "rid", "shards", "previous", "state", "seed", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"]
            {
                pipeline.arg(field);
            }
            pipeline.cmd("HGET").arg(self.keys.outbox(&shard)).arg("");
            pipeline.cmd("HLEN").arg(self.keys.outbox(&shard));
            pipeline.cmd("ZCARD").arg(self.keys.messages(&shard));
            pipeline.cmd("ZCARD").arg(self.keys.dead(&shard));
        }
        let values = self.link.pipeline("inspect", &pipeline).await;
        let mut values = values.map_err(|error| store_error("inspect shards", None, error))?.into_iter();
        while let (Some(meta), Some(outbox), Some(frozen), Some(live), Some(dead)) =
            (values.next(), values.next(), values.next(), values.next(), values.next())
        {
            let mut fields = array(meta)?;
            let floor = floor(&fields.split_off(6))?;
            let record = <[Value; 6]>::try_from(fields).ok().and_then(routing);
            let named = text(outbox).and_then(|text| name(&text));
            // Each key has an entry that is never claimed.
            let beside = |value: &Value| Ok::<_, StoreError>(count(value)?.saturating_sub(1));
            let frozen = beside(&frozen)?;
            let held = frozen + beside(&live)? + beside(&dead)?;
            let outbox = named.and_then(|(name, to)| Some((name, to?, frozen)));
            let inspected = record.map(|routing| Inspected { routing, floor, outbox, held });
            found.push(Found { inspected, held });
        }
        Ok(found)
    }

    pub(crate) async fn scan_shard(
        &self,
        shard: &Shard,
        from: Option<&Cursor>,
        limit: usize,
    ) -> Result<ScanPage, StoreError> {
        let start = ("", "l".to_owned(), "0".to_owned());
        let asked = from.and_then(|cursor| {
            let mut words = cursor.0.split(' ');
            Some((words.next()?, words.next()?.to_owned(), words.next()?.to_owned()))
        });
        let mut first = asked.is_none();
        let (of, mut part, mut at) = asked.unwrap_or(start);
        loop {
            let fill = |cmd: &mut Cmd, _: &Sending| {
                cmd.arg(&part).arg(&at).arg(limit.clamp(1, BATCH_ITEMS_MAX));
            };
            let doing = "scan a shard";
            let (reply, backing) =
                self.on_shard_replicated(doing, &self.scripts.scan, shard, Present::none(), None, fill).await?;
            if !first && backing.server != of {
                // The cursor is another server's: this page means nothing.
                (first, part, at) = (true, "l".to_owned(), "0".to_owned());
                continue;
            }
            let [next, pairs] = tuple(reply)?;
            let next = text(next).ok_or_else(|| odd("a cursor was expected"))?;
            let mut found = Vec::new();
            for pair in array(pairs)?.chunks_exact(2) {
                // The entry that is never claimed has no score.
                let Some(score) = score(&pair[1])? else { continue };
                let state = match part.as_str() {
                    "d" => MessageState::Dead,
                    _ if score.class().is_held() => MessageState::InFlight,
                    _ => MessageState::Scheduled,
                };
                found.push(Scanned { id: id(&pair[0])?, state, visible_at: score.visible_at() });
            }
            let next = match (next.as_str(), part.as_str()) {
                ("0", "l") => Some(format!("{} d 0", backing.server)),
                ("0", _) => None,
                (next, part) => Some(format!("{} {part} {next}", backing.server)),
            };
            return Ok(ScanPage { first, found, next: next.map(Cursor) });
        }
    }

    pub(crate) async fn take_messages(
        &self,
        shard: &Shard,
        to: u32,
        ids: &[MessageId],
        nonce: u64,
    ) -> Result<Option<Batch>, StoreError> {
        let ids = &ids[..ids.len().min(BATCH_ITEMS_MAX)];
        if ids.is_empty() {
            return self.read_outbox(shard).await;
        }
        let fill = |cmd: &mut Cmd, _: &Sending| {
            cmd.arg(to).arg(nonce_text(nonce)).arg(CLAIM_BYTES_MAX);
            for id in ids {
                cmd.arg(id.as_str());
            }
        };
        let (reply, _) =
            self.on_shard_replicated("take messages", &self.scripts.take, shard, Present::none(), None, fill).await?;
        outbox(shard.index, reply)
    }

    pub(crate) async fn read_outbox(&self, shard: &Shard) -> Result<Option<Batch>, StoreError> {
        let run =
            self.on_shard_replicated("read an outbox", &self.scripts.outbox, shard, Present::none(), None, |_, _| {});
        outbox(shard.index, run.await?.0)
    }

    pub(crate) async fn put_batch(&self, shard: &Shard, batch: &Batch) -> Result<Put, StoreError> {
        if batch.messages.len() > BATCH_ITEMS_MAX {
            return Err(StoreError::Setup(format!("a batch has at most {BATCH_ITEMS_MAX} messages")));
        }
        let fill = |cmd: &mut Cmd, _: &Sending| {
            cmd.arg(batch.from).arg(batch.name.number).arg(nonce_text(batch.name.nonce));
            cmd.arg(self.keys.wake_channel()).arg(wake_stem(shard)).arg(millis(HINT_WITHIN));
            cmd.arg(batch.messages.len());
            for message in &batch.messages {
                cmd.arg(message.id.as_str());
            }
            for message in &batch.messages {
                let there = message.body.is_some();
                match &message.state {
                    FrozenState::Live(score) => cmd.arg(if there { "l" } else { "L" }).arg(score.raw()).arg(""),
                    FrozenState::Dead { at, attempts, reason } => {
                        cmd.arg(if there { "d" } else { "D" }).arg(at).arg(format!("{attempts} {reason}"))
                    }
                };
                cmd.arg(message.body.as_deref().unwrap_or_default());
            }
        };
        let (reply, backing) =
            self.on_shard_replicated("put a batch", &self.scripts.put, shard, Present::none(), None, fill).await?;
        let kept = if backing.replicas > 0 { Kept::Safe } else { Kept::Alone };
        match reply {
            Value::Int(fresh) => Ok(Put::Done { fresh: u64::try_from(fresh).unwrap_or(0), kept }),
            other => {
                let last = text(other).and_then(|text| name(&text)).ok_or_else(|| odd("the name of a batch"))?;
                Ok(Put::Conflict { last: last.0 })
            }
        }
    }

    pub(crate) async fn remembered(&self, shard: &Shard, from: u32) -> Result<Option<BatchName>, StoreError> {
        let fill = |cmd: &mut Cmd, _: &Sending| {
            cmd.arg(from);
        };
        let doing = "look up a batch";
        match self.on_shard_replicated(doing, &self.scripts.memory, shard, Present::none(), None, fill).await?.0 {
            Value::Nil => Ok(None),
            value => {
                let named = text(value).and_then(|text| name(&text)).ok_or_else(|| odd("the name of a batch"))?;
                Ok(Some(named.0))
            }
        }
    }

    /// Another name for the batch in the outbox, or, without one, the end of it.
    pub(crate) async fn rename_batch(
        &self,
        shard: &Shard,
        seen: u64,
        new: Option<BatchName>,
    ) -> Result<bool, StoreError> {
        let fill = |cmd: &mut Cmd, _: &Sending| {
            cmd.arg(nonce_text(seen));
            match new {
                Some(new) => cmd.arg(new.number).arg(nonce_text(new.nonce)),
                None => cmd.arg("").arg(""),
            };
        };
        let doing = if new.is_some() { "renumber a batch" } else { "drop a batch" };
        let (reply, _) =
            self.on_shard_replicated(doing, &self.scripts.renumber, shard, Present::none(), None, fill).await?;
        Ok(int(&reply)? == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_is_read_as_the_script_packs_it() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let list = ["", "7 00000000000000ff 3", "b", "d1763700000123000 11 2 it burnedbody", "a", "L5 0 "];
        let batch = outbox(1, Value::Array(list.iter().map(|text| bulk(text)).collect())).unwrap().unwrap();
        assert_eq!((batch.name, batch.from, batch.to), (BatchName { number: 7, nonce: 255 }, 1, 3));
        assert_eq!((batch.messages[0].body.as_ref(), batch.messages[0].id.as_str()), (None, "a"));
        let FrozenState::Dead { at, attempts, reason } = &batch.messages[1].state else { panic!() };
        assert_eq!((*at, *attempts, reason.as_str()), (1_763_700_000_123_000, 2, "it burned"));
        assert_eq!(batch.messages[1].body.as_deref(), Some(&b"body"[..]));
        assert_eq!(outbox(1, Value::Array(vec![bulk(""), bulk("7 - 0")])).unwrap(), None);
    }
}
