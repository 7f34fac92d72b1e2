//! Forwards dead letters of topics that say where to (`dead_to`), and removes those that their topics keep no longer
//! (`dead_retention`, `dead_max`), in the background.
//!
//! Each node looks at the shards that it scans. Correctness does not depend on that: the step that removes decides by what
//! its shard holds then, and by the clock of the store. Upstream: the program. Downstream: `forward` and [`crate::DeadLetters`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{DeadKept, ShardCounts};
use duetime_core::{Draw, OwnedShards, Shard, StoreError, TopicName, TopicRecord};
use duetime_request::RequestDeadline;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::error::RouteError;
use crate::forward::Forwarder;
use crate::router::Router;

/// Time between looks, of which [`LOOK_JITTER`] is drawn: nodes that take turns at shards come to all of them.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_JITTER: f64 = 0.5;
/// Dead letters a second that a node forwards or removes at most, of all topics together.
const PER_SECOND_MAX: f64 = 2_560.0;
/// Steps that removed anything of one topic in a look; then other topics have their turn, and it has the next look's.
const STEPS_OF_TOPIC_MAX: usize = 16;
/// Shards one call to the store counts.
const SHARDS_PER_CALL: usize = 1024;
/// Nothing is begun by a topic's settings that were read longer ago: they may be others by now.
const ACT_WITHIN: Duration = Duration::from_secs(2);
/// Settings that were read longer ago are read again before a topic is begun.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What is done with the letters of a topic, one after the other.
#[derive(Clone, Copy)]
enum Act {
    Forward,
    /// Also what could not be forwarded.
    Remove,
}

fn keeps_all(record: &TopicRecord) -> bool {
    record.config.dead_retention.is_none() && record.config.dead_max.is_none()
}

/// Whether all its dead letters stay for as long as nobody acts on them.
fn is_left_alone(record: &TopicRecord) -> bool {
    keeps_all(record) && record.config.dead_to.is_none()
}

/// How many dead letters of each shard are kept, that they are `most` together: shards with more than a level are cut down
/// to it, some of the first to one more. Whoever counts again after some were cut finds the same level, so nodes that do
/// the same at once remove no more than one.
fn kept_of_each(dead: &[u64], most: u64) -> Vec<u64> {
    let sum = |level: u64| dead.iter().map(|dead| u128::from((*dead).min(level))).sum::<u128>();
    let (mut level, mut above) = (0, u64::MAX);
    while level < above {
        let middle = above - (above - level) / 2;
        if sum(middle) <= u128::from(most) { level = middle } else { above = middle - 1 }
    }
    let mut left = u128::from(most) - sum(level);
    let of = |dead: &u64| {
        let one_more = *dead > level && left > 0;
        left -= u128::from(one_more);
        (*dead).min(level) + u64::from(one_more)
    };
    dead.iter().map(of).collect()
}

/// What this node removes of a topic's shards: of each that it scans and that has any to remove, perhaps.
fn due(record: &TopicRecord, counted: &[(u32, u64)], owned: &[u32]) -> Vec<(u32, DeadKept)> {
    let dead: Vec<u64> = counted.iter().map(|(_, dead)| *dead).collect();
    let newest = match record.config.dead_max {
        Some(most) => kept_of_each(&dead, most),
        None => dead.clone(),
    };
    let age = record.config.dead_retention;
    let kept = counted.iter().zip(newest).map(|((index, dead), newest)| {
        let beyond = dead - newest;
        (*index, DeadKept { age, newest, beyond })
    });
    let has_any = |kept: &DeadKept| kept.beyond > 0 || age.is_some() && kept.newest > 0;
    kept.filter(|(index, kept)| has_any(kept) && owned.contains(index)).collect()
}

/// Forwards dead letters, and removes those that their topics keep no longer, for a node.
#[derive(Clone)]
pub struct Retention {
    router: Arc<Router>,
    owned: watch::Receiver<Arc<OwnedShards>>,
    draw: Draw,
    forwarder: Arc<Forwarder>,
}

impl Retention {
    /// For a node that scans `owned`; its pauses are drawn from `draw`.
    #[must_use]
    pub fn new(router: Arc<Router>, owned: watch::Receiver<Arc<OwnedShards>>, draw: Draw) -> Self {
        Self { router, owned, draw, forwarder: Arc::default() }
    }

    /// Looks until `stop`; at once again where there was more to do than one look may.
    pub async fn run(self, stop: CancellationToken) {
        let (mut turn, mut has_failed) = (0, false);
        loop {
            let looked = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                looked = self.look(turn) => looked,
            };
            turn += 1;
            if let Err((error, _)) = &looked
                && !has_failed
            {
                warn!(%error, "dead letters of a topic could not be looked at");
            }
            has_failed = looked.is_err();
            // A topic that fails does not slow down the others.
            let more = looked.unwrap_or_else(|(_, more)| more);
            if more {
                continue;
            }
            let pause = LOOK_EVERY.mul_f64(1.0 + LOOK_JITTER * (self.draw.unit() - 0.5));
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
        }
    }

    /// One look at all topics; whether there may be more to do. A topic that fails fails for itself: its error is
    /// answered, with whether there may be more to do in others, and it is looked at again.
    pub(crate) async fn look(&self, turn: usize) -> Result<bool, (RouteError, bool)> {
        let owned = self.owned.borrow().clone();
        let mut shards: HashMap<&TopicName, Vec<u32>> = HashMap::new();
        owned.0.iter().for_each(|(topic, index)| shards.entry(topic).or_default().push(*index));
        let catalog = &self.router.dispatcher.catalog;
        let (mut read_at, mut more, mut failed) = (None::<Instant>, false, None);
        let names: Vec<TopicName> =
            catalog.all().iter().filter(|(_, r)| !is_left_alone(r)).map(|(n, _)| n.clone()).collect();
        let forwards = |topic: &TopicName| {
            shards.contains_key(topic) && catalog.get(topic).is_some_and(|record| record.config.dead_to.is_some())
        };
        self.forwarder.keep(&self.router, forwards);
        // Each by settings that were just read: one that takes all its time leaves the other its own.
        for (name, act) in names.iter().flat_map(|name| [(name, Act::Forward), (name, Act::Remove)]) {
            let Some(owned) = shards.get(name) else { continue };
            if read_at.is_none_or(|at| at.elapsed() >= READ_AGAIN_AFTER) {
                let began = Instant::now();
                match timeout(ACT_WITHIN, catalog.refresh()).await {
                    Ok(read) => read.map_err(|error| (RouteError::from(error), false))?,
                    Err(late) => {
                        let doing = "read the topics";
                        let error = StoreError::Unavailable { doing, source: late.to_string().into() };
                        return Err((error.into(), false));
                    }
                }
                read_at = Some(began);
            }
            let Some(record) = catalog.get(name).filter(|record| !is_left_alone(record)) else { continue };
            let left = ACT_WITHIN.saturating_sub(read_at.map_or(ACT_WITHIN, |at| at.elapsed()));
            let acts = async {
                match act {
                    Act::Forward => self.forward(&record, owned, turn).await,
                    Act::Remove if keeps_all(&record) => Ok(false),
                    Act::Remove => self.look_at(&record, owned, turn).await,
                }
            };
            match RequestDeadline::after(left).scope(acts).await {
                Ok(is_more) => more |= is_more,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(more), |error| Err((error, more)))
    }

    /// Forwards dead letters of one topic that says where to, in the shards `owned`.
    async fn forward(&self, record: &TopicRecord, owned: &[u32], turn: usize) -> Result<bool, RouteError> {
        let Some(to) = &record.config.dead_to else { return Ok(false) };
        let shards: Vec<Shard> =
            record.routing.all(&record.name).filter(|shard| owned.contains(&shard.index)).collect();
        let counted = self.count(&shards).await?;
        let mut with_any: Vec<u32> = counted.iter().filter(|(_, dead)| *dead > 0).map(|(index, _)| *index).collect();
        let first = turn % with_any.len().max(1);
        with_any.rotate_left(first);
        let looked = self.forwarder.look(&self.router, (record, to), with_any).await?;
        if looked.done > 0 {
            sleep(Duration::from_secs_f64(looked.done as f64 / PER_SECOND_MAX)).await;
        }
        Ok(looked.more && looked.done > 0)
    }

    /// Removes what one topic keeps no longer, in the shards `owned`, until the deadline of this task. A shard that fails
    /// fails for itself.
    async fn look_at(&self, record: &TopicRecord, owned: &[u32], turn: usize) -> Result<bool, RouteError> {
        // How many there may be is a matter of the whole topic.
        let is_counted = |shard: &Shard| record.config.dead_max.is_some() || owned.contains(&shard.index);
        let shards: Vec<Shard> = record.routing.all(&record.name).filter(is_counted).collect();
        let mut due = due(record, &self.count(&shards).await?, owned);
        let (mut steps, mut more, mut failed) = (0, false, None);
        let first = turn.wrapping_mul(STEPS_OF_TOPIC_MAX) % due.len().max(1);
        due.rotate_left(first);
        for (index, kept) in due {
            let is_late = RequestDeadline::of_task().is_some_and(RequestDeadline::has_passed);
            if is_late || steps >= STEPS_OF_TOPIC_MAX {
                more = steps > 0;
                break;
            }
            let removed = match self.router.dead.expire(record, index, kept).await {
                Ok(removed) => removed,
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            };
            if removed > 0 {
                // A step may take fewer than it could, where bodies are large.
                (steps, more) = (steps + 1, true);
                sleep(Duration::from_secs_f64(removed as f64 / PER_SECOND_MAX)).await;
            }
        }
        failed.map_or(Ok(more), Err)
    }

    /// Dead letters of each of these shards whose server answers.
    async fn count(&self, shards: &[Shard]) -> Result<Vec<(u32, u64)>, RouteError> {
        let context = &self.router.dispatcher.context;
        let mut counted = Vec::with_capacity(shards.len());
        for some in shards.chunks(SHARDS_PER_CALL) {
            let counts: Vec<Option<ShardCounts>> = context.schedule.counts(some, context.clock.now()).await?;
            counted.extend(some.iter().zip(counts).filter_map(|(shard, counts)| Some((shard.index, counts?.dead))));
        }
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_shards_are_cut_to_one_level_and_again_to_the_same() {
        assert_eq!(kept_of_each(&[], 3), Vec::<u64>::new());
        assert_eq!(kept_of_each(&[5, 5], 10), [5, 5]);
        assert_eq!(kept_of_each(&[100, 0, 300], 40), [20, 0, 20]);
        assert_eq!(kept_of_each(&[1, 1, 1], 2), [1, 1, 0]);
        assert_eq!(kept_of_each(&[u64::MAX, 1, u64::MAX], 4), [2, 1, 1]);
        assert_eq!(kept_of_each(&[u64::MAX, u64::MAX], u64::MAX).iter().sum::<u64>(), u64::MAX);
        let dead = [3, 0, 11, 7, 4];
        for most in 0..30 {
            let kept = kept_of_each(&dead, most);
            assert_eq!(kept.iter().sum::<u64>(), most.min(25));
            // Some were cut by another node, in whatever order.
            for cut in 0..1 << dead.len() {
                let part = |at: usize| if cut >> at & 1 == 1 { kept[at] } else { dead[at] };
                let now: Vec<u64> = (0..dead.len()).map(part).collect();
                assert_eq!(kept_of_each(&now, most), kept, "{now:?}");
            }
        }
    }
}
