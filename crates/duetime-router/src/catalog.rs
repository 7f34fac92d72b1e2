//! This node's cache of topic records: read from memory, changed through the store (`catalog/writes.rs`).
//!
//! Upstream: the HTTP API, the engine (which watches it), the program at start. Downstream:
//! `TopicStore`. Reads follow one another, and what is in memory is what the last one found: a change that
//! this node makes is read back before it is answered. A change made by another node is seen at the next
//! refresh or the next refused call.

pub(crate) mod change;
pub(crate) mod dead_to;
pub(crate) mod issues;
pub(crate) mod reports;
pub(crate) mod store_rollback;
pub(crate) mod vanished;
mod writes;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use duetime_core::{
    AutoShards, Clock, Draw, Routing, RoutingRecord, ShardCount, SinkBinder, StoreError, TopicName, TopicRecord,
    TopicStore, Topics,
};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::catalog::issues::Issues;
use crate::put_sinks::PutSinks;

/// How often topics of a store that other nodes change too are read again.
const REFRESH_EVERY: Duration = Duration::from_millis(800);

/// A name that is not known is looked up in the store no more often than this.
const MISS_EVERY: Duration = Duration::from_millis(100);

/// How often a change is made again because somebody else changed the topic in between.
const CONFLICTS_MAX: u32 = 16;
/// Longest pause before it: each of those who met waits for another while.
const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(30);

/// This node's cache of topic records: read from memory, changed through the store.
#[derive(Debug)]
pub struct Catalog {
    store: Arc<dyn TopicStore>,
    clock: Arc<dyn Clock>,
    topics: watch::Sender<Arc<Topics>>,
    nodes: watch::Sender<u32>,
    /// What `"auto"` means; the default until [`Catalog::set_auto`].
    auto: OnceLock<AutoShards>,
    /// Binds sinks, and whether the store has streams to hand messages over to in place.
    sinks: OnceLock<(Arc<dyn SinkBinder>, bool)>,
    /// The sinks that were put by the API, which are read with the topics.
    put_sinks: OnceLock<Arc<PutSinks>>,
    /// Where random numbers come from.
    draw: Draw,
    issues: Issues,
    /// Records as the store has them, of topics of which a later change is known.
    older: parking_lot::Mutex<Topics>,
    /// Topics that were known and are not there any more, until it is known why.
    missing: parking_lot::Mutex<Topics>,
    /// The lock of a caller that waits for a look into one of them.
    pub(crate) looking: Mutex<()>,
    /// How many reads of the topics have begun.
    begun: AtomicU64,
    /// How many had begun with the last one that ended well; held while the topics are read.
    reading: Mutex<u64>,
    /// When the last one began.
    read_at: parking_lot::Mutex<Instant>,
}

impl Catalog {
    /// Reads the topics. For one node; see [`Catalog::set_nodes`]. Pauses, names and hash seeds are drawn from
    /// `draw`, the pauses of the first read too.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::topics`].
    pub async fn open(store: Arc<dyn TopicStore>, clock: Arc<dyn Clock>, draw: Draw) -> Result<Arc<Self>, StoreError> {
        let catalog = Self {
            store,
            clock,
            topics: watch::Sender::new(Arc::default()),
            nodes: watch::Sender::new(1),
            auto: OnceLock::new(),
            sinks: OnceLock::new(),
            put_sinks: OnceLock::new(),
            draw,
            issues: Issues::default(),
            older: parking_lot::Mutex::default(),
            missing: parking_lot::Mutex::default(),
            looking: Mutex::default(),
            begun: AtomicU64::new(0),
            reading: Mutex::new(0),
            read_at: parking_lot::Mutex::new(Instant::now()),
        };
        catalog.refresh().await?;
        Ok(Arc::new(catalog))
    }

    /// True if the sink of this topic delivers in place, as far as this node knows its sinks.
    #[must_use]
    pub fn delivers_in_place(&self, record: &TopicRecord) -> bool {
        let (Some(sink), Some((sinks, _))) = (&record.config.sink, self.sinks.get()) else { return false };
        sinks.bind(&record.name, sink).is_ok_and(|bound| bound.in_place().is_some())
    }

    /// From now on a topic's sink must be one that `sinks` can bind, and in place only where the store
    /// `has_streams`. Only the first call counts.
    pub fn check_sinks_with(&self, sinks: Arc<dyn SinkBinder>, has_streams: bool) {
        let _ = self.sinks.set((sinks, has_streams));
    }

    /// From now on these are read with the topics: who sees a topic has its sink. Only the first call counts.
    pub fn read_sinks_too(&self, sinks: Arc<PutSinks>) {
        let _ = self.put_sinks.set(sinks);
    }

    async fn conflict_pause(&self) {
        tokio::time::sleep(CONFLICT_PAUSE_MAX.mul_f64(self.draw.next() as f64 / u64::MAX as f64)).await;
    }

    /// From now on `"auto"` of a new topic means this for so many nodes as there are. Only the first call counts.
    pub fn set_auto(&self, auto: AutoShards) {
        let _ = self.auto.set(auto);
    }

    /// How many shards a topic has that is made with `count` at present.
    pub fn shards_of(&self, count: ShardCount) -> u32 {
        count.resolve(*self.nodes.borrow(), self.auto.get().copied().unwrap_or_default())
    }

    /// How many shards a topic may come to have with `count`: `"auto"` follows the number of nodes up to its maximum.
    pub fn most_shards_of(&self, count: ShardCount) -> u32 {
        count.resolve(u32::MAX, self.auto.get().copied().unwrap_or_default())
    }

    /// How many nodes share the shards, which `"auto"` of a new topic follows.
    pub fn set_nodes(&self, nodes: u32) {
        self.nodes.send_replace(nodes);
    }

    /// How many nodes share the shards, now and as that changes.
    pub fn nodes(&self) -> watch::Receiver<u32> {
        self.nodes.subscribe()
    }

    /// Merges a topic's routing, as a shard has it. Returns true if it was newer.
    pub fn learn(&self, topic: &TopicName, routing: &Routing) -> bool {
        self.topics.send_if_modified(|topics| {
            let Some(known) = topics.get(topic) else { return false };
            // Another life has settings of its own: the whole record is read.
            // The shard counts that a topic had, by which its memory is found, are in its record alone.
            // So are settings that hold as they were when the change began.
            let is_bounded = known.config.max_in_flight.is_some();
            let is_read_whole = known.routing.life() != routing.life() || known.memory().is_on() || is_bounded;
            if known.routing.epoch >= routing.epoch || is_read_whole {
                return false;
            }
            let mut record = (**known).clone();
            record.set_routing(&RoutingRecord { routing: routing.clone(), ..known.routing_record() });
            Arc::make_mut(topics).insert(topic.clone(), Arc::new(record));
            true
        })
    }

    /// The topic's record as the last read found it, where it is older than what was known before that.
    pub(crate) fn older(&self, topic: &TopicName) -> Option<Arc<TopicRecord>> {
        self.older.lock().get(topic).cloned()
    }

    /// All topics of which that is so.
    pub(crate) fn all_older(&self) -> Vec<TopicName> {
        self.older.lock().keys().cloned().collect()
    }

    /// Takes the store's older record of a topic after a store rollback. Returns true if this node knew a newer one.
    pub(crate) fn accept_rollback(&self, record: &Arc<TopicRecord>) -> bool {
        self.older.lock().remove(&record.name);
        self.topics.send_if_modified(|topics| {
            let is_later = topics.get(&record.name).is_some_and(|known| record.is_older(known));
            if is_later {
                Arc::make_mut(topics).insert(record.name.clone(), record.clone());
            }
            is_later
        })
    }

    /// The issues of topics.
    #[must_use]
    pub fn issues(&self) -> &Issues {
        &self.issues
    }

    /// Returns the records of topics that were known and are missing from the catalog.
    pub(crate) fn missing(&self) -> Vec<Arc<TopicRecord>> {
        self.missing.lock().values().cloned().collect()
    }

    /// Returns the record of one missing topic.
    pub(crate) fn missing_one(&self, topic: &TopicName) -> Option<Arc<TopicRecord>> {
        self.missing.lock().get(topic).cloned()
    }

    /// Forgets a missing topic: it is there again, or it is known why it is missing.
    pub(crate) fn found(&self, topic: &TopicName) {
        self.missing.lock().remove(topic);
    }

    /// A topic, from memory.
    #[must_use]
    pub fn get(&self, name: &TopicName) -> Option<Arc<TopicRecord>> {
        self.topics.borrow().get(name).cloned()
    }

    /// A topic, from memory or else from the store, which is asked at most ten times a second.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::topics`].
    pub async fn find(&self, name: &TopicName) -> Result<Option<Arc<TopicRecord>>, StoreError> {
        if let Some(found) = self.get(name) {
            return Ok(Some(found));
        }
        // What was read before may be older than another node's answer that the caller has. All who ask
        // meanwhile share the next read.
        let begun = self.begun.load(Ordering::SeqCst);
        let since = self.read_at.lock().elapsed();
        tokio::time::sleep(MISS_EVERY.saturating_sub(since)).await;
        if self.get(name).is_none() {
            self.read_after(begun).await?;
        }
        Ok(self.get(name))
    }

    /// All topics, from memory.
    #[must_use]
    pub fn all(&self) -> Arc<Topics> {
        self.topics.borrow().clone()
    }

    /// The topics now and as they change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Topics>> {
        self.topics.subscribe()
    }

    /// Reads the topics from the store; all that was answered before the call is seen. Those who call
    /// meanwhile share the next read. Whoever watches hears of it only if something changed.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::topics`].
    pub async fn refresh(&self) -> Result<(), StoreError> {
        self.read_after(self.begun.load(Ordering::SeqCst)).await
    }

    /// Reads the topics, unless a read has ended that began after so many others.
    async fn read_after(&self, begun: u64) -> Result<(), StoreError> {
        let mut last = self.reading.lock().await;
        if *last > begun { Ok(()) } else { self.read(&mut last).await }
    }

    async fn read(&self, last: &mut u64) -> Result<(), StoreError> {
        let mut tries = 0;
        let mut this;
        let records = loop {
            this = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            *self.read_at.lock() = Instant::now();
            let mut records = self.store.topics().await?;
            match self.confirm(&mut records).await {
                Err(StoreError::Conflict) if tries < CONFLICTS_MAX => {
                    tries += 1;
                    self.conflict_pause().await;
                }
                confirmed => break confirmed.map(|()| records)?,
            }
        };
        self.issues.set_unreadable(self.store.unreadable());
        // After the topics: a sink that one of them names was put before it was.
        let has_other_sinks = match self.put_sinks.get() {
            Some(sinks) => sinks.refresh().await,
            None => false,
        };
        self.topics.send_if_modified(|topics| {
            let known = topics.clone();
            let mut older = Topics::default();
            let mut keep = |mut record: TopicRecord| match known.get(&record.name) {
                Some(same) if **same == record => same.clone(),
                // A shard reported a later change than this look saw, or the store went back: see `older`.
                Some(known) if record.is_older(known) => {
                    older.insert(record.name.clone(), Arc::new(record.clone()));
                    record.set_routing(&known.routing_record());
                    Arc::new(record)
                }
                _ => Arc::new(record),
            };
            let fresh: Topics = records.into_iter().map(|record| (record.name.clone(), keep(record))).collect();
            *self.older.lock() = older;
            let changed = fresh != **topics;
            if changed {
                let gone =
                    topics.iter().filter(|(name, _)| !fresh.contains_key(*name) && !self.issues.is_unreadable(name));
                self.missing.lock().extend(gone.map(|(name, record)| (name.clone(), record.clone())));
                *topics = Arc::new(fresh);
            }
            // Who watches binds the sinks of topics anew.
            changed || has_other_sinks
        });
        *last = this;
        Ok(())
    }

    /// A change that is news is taken in once no failover can undo it; until then its topic stays as it was known.
    async fn confirm(&self, records: &mut [TopicRecord]) -> Result<(), StoreError> {
        let known = self.all();
        let is_known =
            |record: &TopicRecord| known.get(&record.name).is_some_and(|known| known.routing == record.routing);
        for record in records.iter_mut().filter(|record| record.routing.is_moving() && !is_known(record)) {
            match (self.store.confirm(record).await, known.get(&record.name)) {
                (Ok(()), _) => {}
                (Err(_), Some(known)) if known.routing.life() == record.routing.life() => {
                    record.set_routing(&known.routing_record());
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the topics every second until `shutdown`. Only for a store that other nodes share, and where sinks are put:
    /// with a store of its own, a node makes every change itself, but what a sink needs may come later.
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut failing = false;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(REFRESH_EVERY) => {}
            }
            match self.refresh().await {
                Ok(()) => failing = false,
                Err(error) if !failing => {
                    failing = true;
                    warn!(%error, "topics could not be read again, going on with those known");
                }
                Err(_) => {}
            }
        }
    }
}
