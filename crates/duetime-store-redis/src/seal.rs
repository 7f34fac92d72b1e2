//! A deletion that takes nothing with it: every shard is closed while it is empty, and only then the topic goes.
//!
//! A closed shard takes nothing in, whoever comes. What opens it again is a fence by a later record, and a later
//! record needs a swap of the topic's record: the deletion swaps that very record, so one of the two is refused.
//! Hence no order of shards matters, and nobody has to be alive: shards that a deletion left closed are opened by
//! the first call that comes to one.
//!
//! Upstream: `topic_lifecycle` (deletion), `moves` (fence).

use duetime_core::resize_store::DeadlineFloor;
use duetime_core::store::StoreError;
use duetime_core::{ChangeId, Routing, RoutingRecord, Shard, TopicName, TopicRecord};
use duetime_redis::Sending;
use futures::{StreamExt, TryStreamExt, stream};
use redis::Cmd;
use tracing::debug;

use crate::calls::Calls;
use crate::catalog::{self, SHARDS_AT_ONCE, shards};
use crate::reply::{count, store_error, tuple};
use crate::shard_creation::{self, FenceMode};

/// What is in shards.
#[derive(Debug, Clone, Copy, Default)]
struct Contents {
    messages: u64,
    /// Of their streams.
    entries: u64,
}

impl Contents {
    /// Refuses a deletion that would take them with it.
    fn check(self, record: &TopicRecord) -> Result<(), StoreError> {
        record.check_deletable(self.messages)?;
        match self.entries {
            0 => Ok(()),
            entries => Err(StoreError::NotEmpty {
                topic: record.name.to_string(),
                why: format!("has {entries} entries in its streams, delivered and not removed from there"),
            }),
        }
    }
}

async fn of_shard(calls: &Calls, shard: &Shard, close: bool) -> Result<Contents, StoreError> {
    let fill = |cmd: &mut Cmd, sending: &Sending| {
        calls.keys.fill_whole(cmd, shard);
        cmd.arg(shard.epoch).arg(u8::from(close)).arg(sending.not_after_ms);
    };
    let (script, key) = (&calls.scripts.seal, calls.keys.messages(shard));
    // A shard that a failover opens again must not count as closed.
    let run = calls.link.replicated(script, &key, calls.durability.replicas(), fill).await;
    let (reply, _) = run.map_err(|error| store_error("look whether a shard is empty", Some(shard), error))?;
    let [messages, entries] = tuple(reply)?;
    Ok(Contents { messages: count(&messages)?, entries: count(&entries)? })
}

async fn of_all(calls: &Calls, record: &TopicRecord, close: bool) -> Result<Contents, StoreError> {
    let all = shards(record).map(|shard| async move { of_shard(calls, &shard, close).await });
    let sum = |sum: Contents, one: Contents| async move {
        Ok(Contents { messages: sum.messages + one.messages, entries: sum.entries + one.entries })
    };
    stream::iter(all).buffer_unordered(SHARDS_AT_ONCE).try_fold(Contents::default(), sum).await
}

/// Closes every shard of `record`, which is the topic's present one, if none holds anything.
///
/// # Errors
///
/// [`StoreError::NotEmpty`]; no shard is closed then, or each is opened by whoever comes.
pub(crate) async fn close_all(calls: &Calls, record: &TopicRecord) -> Result<(), StoreError> {
    // Nearly always this finds what there is, and no shard has to be closed and opened again.
    of_all(calls, record, false).await?.check(record)?;
    let closed = async { of_all(calls, record, true).await?.check(record) }.await;
    if closed.is_err() {
        open_all(calls, record).await;
    }
    closed
}

/// Opens what a deletion closed that did not come about. What stays closed is opened by whoever comes.
async fn open_all(calls: &Calls, record: &TopicRecord) {
    let open = async {
        let routing = lift(calls, &record.name, &record.routing).await?;
        let floor = DeadlineFloor::default();
        let fences =
            shards(record).map(|shard| {
                let (routing, floor) = (&routing, &floor);
                async move {
                    shard_creation::fence_making(calls, &shard, routing, floor, FenceMode::Never, 0).await.map(drop)
                }
            });
        stream::iter(fences).buffer_unordered(SHARDS_AT_ONCE).try_collect::<()>().await
    };
    if let Err(error) = open.await {
        debug!(topic = %record.name, %error, "not every shard is open again, and the next call to one opens it");
    }
}

/// The record by which shards that were closed under `closed` are opened: a later one of the same shards.
///
/// # Errors
///
/// [`StoreError::UnknownShard`]: the topic was deleted.
pub(crate) async fn lift(calls: &Calls, topic: &TopicName, closed: &Routing) -> Result<Routing, StoreError> {
    loop {
        let seen = catalog::read_routing(calls, topic).await?;
        let Some(seen) = seen.filter(|seen| seen.routing.life() == closed.life()) else {
            return Err(StoreError::UnknownShard(topic.to_string()));
        };
        if seen.routing.epoch > closed.epoch {
            return Ok(seen.routing);
        }
        let change_id = ChangeId(calls.draw.next());
        let routing = Routing { epoch: closed.epoch + 1, change_id, ..seen.routing.clone() };
        let new = RoutingRecord { routing: routing.clone(), ..seen.clone() };
        match catalog::replace_routing(calls, topic, &seen, &new).await {
            Ok(()) => return Ok(routing),
            // Somebody else did it, or deleted the topic.
            Err(StoreError::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
}
