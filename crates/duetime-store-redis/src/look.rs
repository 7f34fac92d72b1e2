//! What is in the places of shards, whether or not anybody knows of them.

use std::ops::Range;

use duetime_core::resize_store::Inspected;
use duetime_core::store::StoreError;
use duetime_core::{RoutingId, Shard, TopicName};
use redis::{Pipeline, Value};

use crate::calls::Calls;
use crate::held::{ask_held, held};
use crate::record::{floor, name, routing};
use crate::reply::{array, store_error, text};

/// What is instead of a shard.
#[derive(Debug)]
pub(crate) struct FoundShard {
    /// As its meta says; `None`: it has none.
    pub(crate) inspected: Option<Inspected>,
    /// Messages, dead letters and frozen messages.
    pub(crate) held: u64,
}

/// Shards inspected in one pipeline.
const INSPECTED_AT_ONCE: u32 = 512;

/// What is known of shards, and what is there where no meta is.
pub(crate) async fn look_at_shards(
    calls: &Calls,
    topic: &TopicName,
    indexes: Range<u32>,
) -> Result<Vec<FoundShard>, StoreError> {
    let mut found = Vec::with_capacity(indexes.len());
    for start in indexes.clone().step_by(INSPECTED_AT_ONCE as usize) {
        let end = start.saturating_add(INSPECTED_AT_ONCE).min(indexes.end);
        found.extend(look_at_some(calls, topic, start..end).await?);
    }
    Ok(found)
}

async fn look_at_some(calls: &Calls, topic: &TopicName, indexes: Range<u32>) -> Result<Vec<FoundShard>, StoreError> {
    let mut found = Vec::with_capacity(indexes.len());
    let mut pipeline = Pipeline::with_capacity(indexes.len() * 5);
    for index in indexes {
        let shard = Shard::new(topic.clone(), index, RoutingId::default());
        pipeline.cmd("HMGET").arg(calls.keys.meta(&shard));
        for field in ["epoch", "rid", "shards", "previous", "state", "seed", "sealed"]
            .into_iter()
            .chain(["d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8"])
        {
            pipeline.arg(field);
        }
        pipeline.cmd("HGET").arg(calls.keys.outbox(&shard)).arg("");
        ask_held(&mut pipeline, &calls.keys, &shard);
    }
    let values = calls.link.pipeline("inspect", &pipeline).await;
    let mut values = values.map_err(|error| store_error("inspect shards", None, error))?.into_iter();
    while let (Some(meta), Some(outbox), Some(live), Some(dead), Some(frozen)) =
        (values.next(), values.next(), values.next(), values.next(), values.next())
    {
        let mut fields = array(meta)?;
        let floor = floor(&fields.split_off(7))?;
        // One that is closed for a deletion has the record by which it was closed, and a lower epoch meanwhile.
        if let Some(sealed) = fields.pop().filter(|sealed| *sealed != Value::Nil) {
            fields[0] = sealed;
        }
        let record = <[Value; 6]>::try_from(fields).ok().and_then(routing);
        let named = text(outbox).and_then(|text| name(&text));
        let counts = held([&live, &dead, &frozen])?;
        let held = counts.all();
        let outbox = named.and_then(|(name, to)| Some((name, to?, counts.frozen)));
        let inspected = record.map(|routing| Inspected { routing, floor, outbox, held });
        found.push(FoundShard { inspected, held });
    }
    Ok(found)
}
