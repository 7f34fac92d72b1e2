//! Puts back the record of a topic that vanished from the catalog, or that a restored catalog has an older one of: its shards know its routing, and the
//! first ones keep a copy of its settings.

use std::collections::BTreeSet;

use duetime_core::limits::SHARDS_MAX;
use duetime_core::resize_store::DeadlineFloor;
use duetime_core::store::{Adopt, Adopted, StoreError};
use duetime_core::{Routing, TopicConfig, TopicName, TopicRecord, stored};
use tracing::{info, warn};

use crate::calls::Calls;
use crate::catalog::{Swap, parse};
use crate::look::FoundShard;
use crate::shard_creation::FenceMode;
use crate::topic_lifecycle::TopicIntent;
use crate::{catalog, look, settings, shard_creation};

/// Shards that should be there under `routing` and are not: missing, or another life's. `made`: of those that ids
/// move into, the ones that were there.
fn lost(routing: &Routing, found: &[FoundShard], made: &BTreeSet<u32>) -> BTreeSet<u32> {
    let is_there = |index: u32| {
        let shard = found.get(index as usize).and_then(|found| found.inspected.as_ref());
        shard.is_some_and(|shard| shard.routing.life() >= routing.life())
    };
    let was_there = |index: u32| !routing.may_lack(index) || made.contains(&index);
    (0..routing.reach()).filter(|index| was_there(*index) && !is_there(*index)).collect()
}

/// The epoch of the latest record that a shard has.
fn newest_epoch(found: &[FoundShard]) -> u64 {
    found.iter().filter_map(|found| Some(found.inspected.as_ref()?.routing.epoch)).max().unwrap_or(0)
}

pub(crate) async fn adopt(calls: &Calls, topic: &TopicName, ask: &Adopt) -> Result<Adopted, StoreError> {
    let doing = "adopt a topic";
    let there = catalog::field(calls, doing, calls.keys.topics(), topic).await?;
    let noted = catalog::field(calls, doing, calls.keys.pending(), topic).await?.unwrap_or_default();
    let found = look::look_at_shards(calls, topic, 0..SHARDS_MAX).await?;
    let there = there.map(|text| Ok::<_, StoreError>((parse(&text)?, text))).transpose()?;
    let (record, restored) = match there {
        Some((record, text)) if record.routing.epoch < newest_epoch(&found) => {
            (put_back(calls, topic, ask, &text, &noted, &found).await?, true)
        }
        Some((record, _)) => (record, false),
        None => (put_back(calls, topic, ask, "", &noted, &found).await?, true),
    };
    let routing = &record.routing;
    let comes = if routing.is_moving() { routing.previous..routing.shards } else { 0..0 };
    let mut missing = lost(routing, &found, &shard_creation::noted_of(calls, topic, routing, comes).await?);
    let mut recreated = Vec::new();
    if ask.accept_loss {
        // Places that hold another life's messages are emptied too, of shards that are to come as well.
        let left = (0..routing.reach()).filter(|index| {
            let place = &found[*index as usize];
            let older = place.inspected.as_ref().is_none_or(|shard| shard.routing.life() < routing.life());
            older && place.held > 0
        });
        for index in left.chain(missing.clone()).collect::<BTreeSet<u32>>() {
            let shard = routing.shard(topic, index);
            shard_creation::fence_making(calls, &shard, routing, &DeadlineFloor::default(), FenceMode::Anew, 0).await?;
            warn!(%shard, "lost shard recreated empty, as an operator asked for");
            missing.remove(&index);
            recreated.push(index);
        }
        settings::copy_settings(calls, &record).await;
    }
    Ok(Adopted { record, restored, lost: missing.into_iter().collect(), recreated })
}

async fn put_back(
    calls: &Calls,
    topic: &TopicName,
    ask: &Adopt,
    seen: &str,
    noted: &str,
    found: &[FoundShard],
) -> Result<TopicRecord, StoreError> {
    let now = ask.now.as_millis();
    if !noted.is_empty() && TopicIntent::read(noted)?.is_in_progress(now) {
        return Err(StoreError::Conflict);
    }
    let newest = found.iter().filter_map(|found| found.inspected.as_ref()).max_by_key(|shard| shard.routing.epoch);
    let routing = newest.ok_or_else(|| StoreError::UnknownShard(topic.to_string()))?.routing.clone();
    let life = routing.life();
    let known = ask.known.clone().filter(|known| known.routing.life() == life);
    let copied = settings::settings(calls, topic, life).await?;
    let best = [known, copied].into_iter().flatten().max_by_key(|record| record.version);
    let config = ask.config.clone().or_else(|| best.as_ref().map(|record| record.config.clone()));
    let config = config.ok_or_else(|| StoreError::SettingsUnknown(topic.to_string()))?;
    // A topic has a watermark from its creation on, or never.
    let watermark = best.as_ref().map_or(config.watermark, |record| record.config.watermark);
    let config = TopicConfig { watermark, ..config };
    let routing = routing.under(&config);
    let of_this_life = |found: &FoundShard| found.inspected.as_ref().is_some_and(|shard| shard.routing.life() == life);
    let last = found.iter().rposition(of_this_life).unwrap_or(0);
    let version = best.as_ref().map_or(1, |record| record.version + 1);
    let record = TopicRecord {
        name: topic.clone(),
        config,
        desired: None,
        max_shards_ever: u32::try_from(last + 1).unwrap_or(SHARDS_MAX).max(routing.reach()),
        pause: best.as_ref().and_then(|record| record.pause().cloned()).map(|note| note.at_version(version)),
        // The shard counts since the copy are not known: what is remembered begins anew.
        earlier: Vec::new(),
        remembers_since: version,
        version,
        created_at_ms: best.as_ref().map_or(now, |record| record.created_at_ms),
        routing,
    };
    record.check_in_flight(&record.config).map_err(|_| {
        let shards = record.routing.reach();
        let why = format!("max_in_flight is less than the {shards} shards that were found, over which it is divided");
        StoreError::Setup(format!("{why}; adopt the topic with settings that have {shards} or more, or leave it out"))
    })?;
    let swap = Swap { seen, new: &stored::write(&record, None), noted, life, ..Swap::default() };
    if !catalog::swap(calls, topic, swap).await? {
        return Err(StoreError::Conflict);
    }
    info!(%topic, life, shards = record.routing.shards, "topic is adopted: its record is put back");
    settings::copy_settings(calls, &record).await;
    Ok(record)
}
