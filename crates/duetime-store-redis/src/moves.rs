//! Moves between shards: fence, scan, take, put, memory, renumber, drop.

use std::ops::Range;

use duetime_core::limits::{BATCH_ITEMS_MAX, CLAIM_BYTES_MAX};
use duetime_core::reshard::{
    Batch, BatchName, BatchPut, Cursor, Fenced, Floor, FrozenState, Inspected, Replication, ScanPage, Scanned,
};
use duetime_core::store::StoreError;
use duetime_core::{MessageId, MessageState, Routing, Shard, TopicName};
use duetime_redis::Sending;
use redis::{Cmd, Pipeline, Value};

use crate::held::{ask_held, held};
use crate::keys::wake_stem;
use crate::made::{CLOSED, Making};
use crate::present::{HINT_WITHIN, Present, millis};
use crate::record::{floor, name, nonce_text, outbox, routing};
use crate::reply::{array, count, id, int, odd, score, store_error, text, tuple};
use crate::store::RedisStore;

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
        // The topic may have been deleted between the look above and the script. Where its record is gone without
        // that, the shard may hold messages by now, and stays for whoever adopts them.
        if fenced.before.is_none() && self.life(topic).await? != Some(record.life()) {
            if self.deleted_life(topic).await? >= record.life() {
                self.unmake_shard(&shard, record.life()).await?;
            }
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
            ask_held(&mut pipeline, &self.keys, &shard);
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
            // The name of the batch is in the outbox too.
            let frozen = count(&frozen)?.saturating_sub(1);
            let held = held([&live, &dead])?;
            let held = frozen + held.live + held.dead;
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

    pub(crate) async fn put_batch(&self, shard: &Shard, batch: &Batch) -> Result<BatchPut, StoreError> {
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
        let kept = if backing.replicas > 0 { Replication::Replicated } else { Replication::Unreplicated };
        match reply {
            Value::Int(fresh) => Ok(BatchPut::Done { fresh: u64::try_from(fresh).unwrap_or(0), kept }),
            other => {
                let last = text(other).and_then(|text| name(&text)).ok_or_else(|| odd("the name of a batch"))?;
                Ok(BatchPut::Conflict { last: last.0 })
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
