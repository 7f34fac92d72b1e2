//! This node's cache of topic records: read from memory, changed through the store.
//!
//! Upstream: the HTTP API, the engine (which watches it), the program at start. Downstream:
//! `TopicStore`. Reads follow one another, and what is in memory is what the last one found: a change that
//! this node makes is read back before it is answered. A change made by another node is seen at the next
//! refresh or the next refused call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use duetime_core::store::{Adopt, Adopted, Deletion};
use duetime_core::{
    AutoShards, ChangeId, Clock, Draw, Routing, RoutingRecord, ShardCount, SinkBinder, StoreError, TopicConfig,
    TopicName, TopicRecord, TopicStore, Topics,
};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::change::{CatalogPut, TopicChange, TopicPut, check_sink};
use crate::error::CatalogError;
use crate::issues::Issues;

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

    /// From now on a topic's sink must be one that `sinks` can bind, and in place only where the store
    /// `has_streams`. Only the first call counts.
    pub fn check_sinks_with(&self, sinks: Arc<dyn SinkBinder>, has_streams: bool) {
        let _ = self.sinks.set((sinks, has_streams));
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
            if known.routing.epoch >= routing.epoch || known.routing.life() != routing.life() {
                return false;
            }
            let mut record = (**known).clone();
            record.set_routing(&RoutingRecord { routing: routing.clone(), desired: known.desired });
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
            changed
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

    /// Reads the topics every second until `shutdown`. Only for a store that other nodes share:
    /// with a store of its own, a node makes every change itself.
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

    /// Creates the topic, or makes `change` to the one that is there: what the change leaves out
    /// stays, what it sets to `null` goes back to the default.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Invalid`] names the field; [`StoreError::Conflict`] after several changes
    /// by others in between.
    pub async fn put(&self, name: &TopicName, change: &TopicChange) -> Result<TopicPut, CatalogError> {
        self.write(name, change, true).await.map(|put| put.expect("what is not there is created"))
    }

    /// Makes `change` to the topic that is there; none: it is not, or not any more.
    ///
    /// # Errors
    ///
    /// As [`Catalog::put`].
    pub async fn change(&self, name: &TopicName, change: &TopicChange) -> CatalogPut {
        self.write(name, change, false).await
    }

    /// Makes `change` to each of these topics that is there; one that fails fails alone.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::topics`]; nothing was changed.
    pub async fn change_each(
        &self,
        names: impl IntoIterator<Item = TopicName>,
        change: &TopicChange,
    ) -> Result<Vec<(CatalogPut, TopicName)>, StoreError> {
        self.refresh().await?;
        let mut puts = Vec::new();
        for name in names {
            puts.push((self.write_known(&name, change, false).await, name));
        }
        self.read_back(puts.iter().filter_map(|(put, _)| put.as_ref().ok()?.as_ref())).await;
        Ok(puts)
    }

    async fn write(&self, name: &TopicName, change: &TopicChange, creates: bool) -> CatalogPut {
        self.refresh().await?;
        let put = self.write_known(name, change, creates).await?;
        self.read_back(&put).await;
        Ok(put)
    }

    /// Reads what was changed as all others read it.
    async fn read_back(&self, puts: impl IntoIterator<Item = &TopicPut>) {
        let changed: Vec<&TopicPut> = puts.into_iter().filter(|put| put.changed).collect();
        let Some(last) = changed.last() else { return };
        if let Err(error) = self.refresh().await {
            warn!(topic = %last.record.name, %error, "a changed topic could not be read back");
            changed.iter().for_each(|put| self.take_in(&put.record));
        }
    }

    async fn write_known(&self, name: &TopicName, change: &TopicChange, creates: bool) -> CatalogPut {
        let mut tries = 0;
        loop {
            match self.put_once(name, change, creates).await {
                Err(CatalogError::Store(StoreError::Conflict)) if tries < CONFLICTS_MAX => {
                    tries += 1;
                    self.conflict_pause().await;
                    self.refresh().await?;
                }
                answer => return answer,
            }
        }
    }

    async fn put_once(&self, name: &TopicName, change: &TopicChange, creates: bool) -> CatalogPut {
        let present = self.get(name);
        if present.is_none() && !creates {
            return Ok(None);
        }
        if present.is_none() {
            name.check_new()?;
        }
        let Some((config, note)) = change.made(present.as_deref(), self.clock.now())? else {
            return Ok(present.map(|record| TopicPut { record, created: false, changed: false }));
        };
        if let (Some(sink), Some((sinks, has_streams))) = (&config.sink, self.sinks.get())
            && (present.is_none() || change.has("sink"))
        {
            check_sink(name, sink, &**sinks, *has_streams)?;
        }
        let record = match &present {
            None => self.fresh(name, config),
            Some(old) => TopicRecord { config, version: old.version + 1, ..(**old).clone() },
        };
        let record = TopicRecord { pause: note.map(|note| note.at_version(record.version)), ..record };
        let stored = self.store.put_topic(&record, present.as_ref().map(|old| old.version)).await;
        if let Err(StoreError::Vanished { messages, .. }) = &stored {
            self.issues.set_vanished(name, Some(*messages), None);
        }
        let record = Arc::new(stored?);
        Ok(Some(TopicPut { record, created: present.is_none(), changed: true }))
    }

    fn fresh(&self, name: &TopicName, config: TopicConfig) -> TopicRecord {
        let (change_id, shards) = (ChangeId(self.draw.next()), self.shards_of(config.shards));
        let mut record = TopicRecord::with_shards(name.clone(), config, shards, change_id, self.clock.now());
        // Nobody outside can choose ids that all have one home.
        record.routing.seed = Some(self.draw.next() as u32);
        record
    }

    /// Takes in what this node wrote, unless a later record of the topic is known.
    fn take_in(&self, record: &Arc<TopicRecord>) {
        let age = |record: &TopicRecord| (record.routing.life(), record.version);
        self.topics.send_if_modified(|topics| {
            let is_later = topics.get(&record.name).is_none_or(|known| age(known) < age(record));
            if is_later {
                Arc::make_mut(topics).insert(record.name.clone(), record.clone());
            }
            is_later
        });
    }

    /// Creates the topic unless it is there; true: it was created.
    ///
    /// # Errors
    ///
    /// As [`Catalog::put`].
    pub async fn create_if_absent(&self, name: &TopicName, config: &TopicConfig) -> Result<bool, CatalogError> {
        self.refresh().await?;
        if self.get(name).is_some() {
            return Ok(false);
        }
        Ok(self.put(name, &TopicChange::whole(config)).await?.created)
    }

    /// How many messages there are of a topic that is not in the catalog.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::remains`].
    pub async fn remains(&self, name: &TopicName) -> Result<u64, StoreError> {
        self.store.remains(name).await
    }

    /// Removes the topic with what `how` allows to go with it; false: it was not there.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::delete_topic`]; repeating it is safe.
    pub async fn delete(&self, name: &TopicName, how: Deletion) -> Result<bool, StoreError> {
        let before = self.get(name).map(|known| known.routing.life());
        let was = self.store.delete_topic(name, how).await?;
        self.issues.end_of(name);
        if let Err(error) = self.refresh().await {
            warn!(topic = %name, %error, "the topics could not be read after one was deleted");
            // Somebody else may have created it again meanwhile.
            let is_it = |known: &Arc<TopicRecord>| Some(known.routing.life()) == before;
            self.topics.send_if_modified(|topics| {
                topics.get(name).is_some_and(is_it) && Arc::make_mut(topics).remove(name).is_some()
            });
        }
        self.found(name);
        Ok(was)
    }

    /// Puts back the record of a topic that vanished, with the settings that `change` makes of the defaults,
    /// or with those it had; with `accept_loss`, recreates its lost shards, empty.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::adopt_topic`].
    pub async fn adopt(
        &self,
        name: &TopicName,
        change: Option<&TopicChange>,
        accept_loss: bool,
    ) -> Result<Adopted, CatalogError> {
        let config = change.map(|change| change.apply(&TopicConfig::default())).transpose()?;
        let known = self.issues.known(name).or_else(|| self.get(name)).map(|known| (*known).clone());
        let ask = Adopt { config, known, accept_loss, now: self.clock.now() };
        let adopted = self.store.adopt_topic(name, &ask).await?;
        self.issues.end_of(name);
        self.issues.lose(name, adopted.lost.iter().copied().collect());
        self.refresh().await?;
        Ok(adopted)
    }
}
