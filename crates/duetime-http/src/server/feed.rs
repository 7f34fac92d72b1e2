//! The counts of all topics as they change, counted once for all who listen.
//!
//! While anybody listens, one loop looks once a second at most at what the node has counted for its gauges anyway, and
//! asks the store only for topics to which something happened here since, and for shards that nobody has counted in the
//! last seconds. It keeps for each topic when it changed last: so a listener that comes back is sent what changed since,
//! whatever it missed.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Clock, SinkDown, SinkState, SinkStates, Timestamp, TopicName};
use duetime_metrics::Meters;
use duetime_router::{Catalog, Router, TopicCounts};
use parking_lot::Mutex;
use serde::Serialize;
use serde_with::skip_serializing_none;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::auth::listeners::{ListenerSlot, ListenerSlots};
use crate::auth::shares::Tenant;

/// Topics are counted once in this time at most.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// A count that takes long is followed by a rest of so many times as long, so that it never takes more than a part of
/// the store's time.
const REST_FACTOR: u32 = 4;
/// Shards of active topics that are counted again at a time; those of the others are as old as the gauges.
const ACTIVE_SHARDS_MAX: u32 = 1024;
/// Topics that went away and are still reported to clients that come back.
const GONE_MAX: usize = 1024;

/// A topic as events show it.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct TopicEvent {
    name: String,
    /// Milliseconds since the Unix epoch. Another one: it was deleted and made again.
    created_at: i64,
    version: u64,
    shard_count: u32,
    scheduled: u64,
    due: u64,
    in_flight: u64,
    dead: u64,
    /// Absent: none is due.
    oldest_due_at: Option<i64>,
    /// Nothing is claimed, what falls due waits.
    paused: bool,
    /// The answering node takes its sink to be down, or cannot use it.
    sink_down: bool,
    /// Shards that are not in the counts.
    unreachable_shards: usize,
}

impl TopicEvent {
    pub fn name(&self) -> &str {
        &self.name
    }

    fn new(counts: &TopicCounts, state: Option<SinkState>) -> Self {
        let (record, total) = (&counts.record, &counts.total);
        Self {
            name: record.name.to_string(),
            created_at: record.created_at_ms,
            version: record.version,
            shard_count: record.routing.shards,
            scheduled: total.waiting(),
            due: total.due,
            in_flight: total.in_flight,
            dead: total.dead,
            oldest_due_at: SinkDown::oldest_due(state.as_ref().and_then(|state| state.down.as_ref()), total)
                .map(Timestamp::as_millis),
            paused: record.config.paused,
            sink_down: state.is_some_and(|state| state.down.is_some() || state.refused.is_some()),
            unreachable_shards: counts.unreachable_shards(),
        }
    }
}

/// What a listener is sent.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct FeedChange {
    /// When the topics were counted, milliseconds since the Unix epoch.
    pub at: i64,
    /// Topics that changed; of the first event, all.
    pub topics: Vec<TopicEvent>,
    /// Topics that are gone.
    pub gone: Vec<String>,
}

/// What is known, and since when.
#[derive(Debug, Default)]
struct Known {
    /// When the last count was; 0: never.
    at: i64,
    /// Changes from then on are known.
    since: i64,
    /// Each with when it changed last.
    topics: BTreeMap<String, (i64, TopicEvent)>,
    gone: VecDeque<(i64, String)>,
    /// Why the last count failed.
    issue: Option<String>,
}

impl Known {
    /// Takes a count in; whether anything changed.
    fn take(&mut self, now: i64, topics: Vec<TopicEvent>) -> bool {
        // Ids grow, whatever the clock does.
        let at = now.max(self.at + 1);
        let is_first = self.at == 0;
        if is_first {
            self.since = at;
        }
        let mut changed = is_first || self.issue.take().is_some();
        let mut before = std::mem::take(&mut self.topics);
        for topic in topics {
            let (name, old) = (topic.name.clone(), before.remove(&topic.name));
            let same = old.filter(|(_, old)| *old == topic);
            changed |= same.is_none();
            self.topics.insert(name, same.unwrap_or((at, topic)));
        }
        changed |= !before.is_empty();
        self.gone.extend(before.into_keys().map(|name| (at, name)));
        while self.gone.len() > GONE_MAX {
            // Who was away for longer is sent everything.
            self.since = self.gone.pop_front().map_or(self.since, |(gone_at, _)| gone_at + 1);
        }
        if changed {
            self.at = at;
        }
        changed
    }

    /// What changed after `seen`; all, if that is not known any more.
    fn after(&self, seen: Option<i64>) -> FeedChange {
        let seen = seen.filter(|seen| (self.since..=self.at).contains(seen));
        let topics = self.topics.values().filter(|(at, _)| seen.is_none_or(|seen| *at > seen));
        let gone = self
            .gone
            .iter()
            .filter(|(at, name)| seen.is_some_and(|seen| *at > seen) && !self.topics.contains_key(name));
        FeedChange {
            at: self.at,
            topics: topics.map(|(_, topic)| topic.clone()).collect(),
            gone: gone.map(|(_, name)| name.clone()).collect(),
        }
    }
}

/// Which topics are active, by the events that this node has counted.
#[derive(Debug, Default)]
struct TopicActivity(HashMap<TopicName, u64>);

impl TopicActivity {
    /// Topics to which something happened since the last call, as many as may be counted again. What is over that stays
    /// unseen, and is counted the next time.
    fn take(&mut self, catalog: &Catalog, meters: &Meters) -> HashSet<TopicName> {
        let topics = catalog.all();
        self.0.retain(|name, _| topics.contains_key(name));
        let (mut active, mut shards) = (HashSet::new(), 0);
        for (name, record) in topics.iter() {
            let now = meters.known_topic(name).map_or(0, |meters| meters.activity());
            let seen = self.0.entry(name.clone()).or_insert(now);
            if *seen == now || shards >= ACTIVE_SHARDS_MAX {
                continue;
            }
            *seen = now;
            shards += record.routing.reach();
            active.insert(name.clone());
        }
        active
    }
}

/// The feed of one node.
#[derive(Debug)]
pub struct Feed {
    router: Arc<Router>,
    catalog: Arc<Catalog>,
    meters: Arc<Meters>,
    sinks: Arc<dyn SinkStates>,
    clock: Arc<dyn Clock>,
    /// This life of this node: what another one sent, this one does not know.
    life: u64,
    known: Mutex<Known>,
    /// The time of the last change; who listens is woken by it.
    changes: watch::Sender<i64>,
    listeners: ListenerSlots,
    /// Somebody listens again.
    listened: Notify,
}

/// One who listens.
#[derive(Debug)]
pub(crate) struct Listener {
    feed: Arc<Feed>,
    changes: watch::Receiver<i64>,
    slot: ListenerSlot,
}

impl Feed {
    /// A feed of the topics of `router`. Nothing is counted before [`Self::run`].
    #[must_use]
    pub fn new(
        router: Arc<Router>,
        catalog: Arc<Catalog>,
        meters: Arc<Meters>,
        sinks: Arc<dyn SinkStates>,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            router,
            catalog,
            meters,
            sinks,
            clock,
            life: rand::random(),
            known: Mutex::default(),
            changes: watch::Sender::new(0),
            listeners: ListenerSlots::default(),
            listened: Notify::new(),
        })
    }

    /// One more listener; `None`: there are too many.
    pub(crate) fn listen(self: &Arc<Self>, tenant: Tenant) -> Option<Listener> {
        let slot = self.listeners.admit(tenant)?;
        let changes = self.changes.subscribe();
        self.listened.notify_one();
        Some(Listener { feed: self.clone(), changes, slot })
    }

    /// Counts while anybody listens, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let counting = async {
            loop {
                let mut activity = TopicActivity::default();
                while self.changes.receiver_count() > 0 {
                    let begun = tokio::time::Instant::now();
                    self.count(&activity.take(&self.catalog, &self.meters)).await;
                    tokio::time::sleep(COUNT_EVERY.max(begun.elapsed() * REST_FACTOR)).await;
                }
                self.listened.notified().await;
            }
        };
        stop.run_until_cancelled(counting).await;
    }

    async fn count(&self, active: &HashSet<TopicName>) {
        let changed = match self.router.counter.count_recent(active).await {
            Ok(all_counts) => {
                let event = |counts: &TopicCounts| TopicEvent::new(counts, self.sinks.state(&counts.record.name));
                let topics = all_counts.iter().map(event).collect();
                self.known.lock().take(self.clock.now().as_millis(), topics)
            }
            Err(error) => {
                let mut known = self.known.lock();
                known.issue.replace(error.to_string()).is_none()
            }
        };
        if changed {
            let at = self.known.lock().at;
            self.changes.send_replace(at);
        }
    }
}

impl Listener {
    /// What names the state at `at` to whoever comes back, at this node.
    pub fn id(&self, at: i64) -> String {
        format!("{at}.{:x}", self.feed.life)
    }

    /// The time in such a name; `None`: it is not one of this node's.
    pub fn time(&self, id: &str) -> Option<i64> {
        let (at, life) = id.split_once('.')?;
        if u64::from_str_radix(life, 16).ok()? == self.feed.life { at.parse().ok() } else { None }
    }

    /// Cancelled when it has to make way for another one.
    pub fn ended(&self) -> &CancellationToken {
        &self.slot.ended
    }

    /// Waits for something to change.
    pub async fn changed(&mut self) {
        // The feed lives as long as the listener.
        let _ = self.changes.changed().await;
    }

    /// What changed after `seen`, or why nothing is known; `None`: nothing did.
    pub fn after(&mut self, seen: Option<i64>) -> Option<Result<FeedChange, String>> {
        self.changes.mark_unchanged();
        let known = self.feed.known.lock();
        if let Some(issue) = &known.issue {
            return Some(Err(issue.clone()));
        }
        if known.at == 0 || seen == Some(known.at) {
            return None;
        }
        Some(Ok(known.after(seen)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, due: u64) -> TopicEvent {
        TopicEvent {
            name: name.to_owned(),
            created_at: 1,
            version: 1,
            shard_count: 1,
            scheduled: due,
            due,
            in_flight: 0,
            dead: 0,
            oldest_due_at: None,
            paused: false,
            sink_down: false,
            unreachable_shards: 0,
        }
    }

    fn names(change: &FeedChange) -> Vec<&str> {
        change.topics.iter().map(|topic| topic.name.as_str()).collect()
    }

    #[test]
    fn who_comes_back_is_sent_what_changed_since_and_who_was_away_too_long_everything() {
        let mut known = Known::default();
        assert!(known.take(100, vec![topic("a", 1), topic("b", 1)]));
        assert!(!known.take(200, vec![topic("a", 1), topic("b", 1)]), "nothing changed");
        assert_eq!(known.at, 100);
        assert!(known.take(300, vec![topic("a", 2), topic("b", 1)]));
        assert!(known.take(400, vec![topic("a", 2)]));
        assert_eq!((names(&known.after(None)), known.after(None).gone), (vec!["a"], vec![]));
        assert_eq!((names(&known.after(Some(100))), known.after(Some(100)).gone), (vec!["a"], vec!["b".to_owned()]));
        assert_eq!(names(&known.after(Some(300))), Vec::<&str>::new());
        assert_eq!(known.after(Some(300)).gone, ["b"]);
        for foreign in [Some(99), Some(401)] {
            assert_eq!(names(&known.after(foreign)), ["a"], "an id of another node or of another life");
        }
        // The clock was set back: ids grow all the same.
        assert!(known.take(50, vec![topic("a", 3)]));
        assert_eq!(known.at, 401);
        for n in 0..=GONE_MAX as u64 {
            known.take(1_000 + n as i64 * 2, vec![topic(&format!("t{n}"), 1)]);
        }
        assert!(known.gone.len() <= GONE_MAX && !known.after(Some(300)).topics.is_empty());
        assert!(known.after(Some(300)).gone.is_empty(), "it is everything");
    }
}
