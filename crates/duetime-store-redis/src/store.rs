//! The store itself: connects, checks the server, carries the calls.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use duetime_core::in_place::{StreamTransfer, Streamed};
use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::message::StoredMessage;
use duetime_core::resize_store::Frozen;
use duetime_core::store::{
    AckWait, Adopt, Adopted, BatchReply, Claim, ClaimRequest, DeadAction, DeadEdit, DeadEdited, DeadKept, DeadPage,
    Deletion, Edit, Edited, Enqueue, Enqueued, Settle, Settled, ShardCounts, StoreError, Wakeup,
};
use duetime_core::{
    Backup, BackupError, BackupStore, ClaimStore, Clock, ListPage, ListRange, Lookup, MessageId, MessageStore, Role,
    ScheduleStore, Score, ServerId, Shard, ShardLocation, StoreHealth, Timestamp, TopicName, TopicRecord, TopicStore,
    Undone,
};
use duetime_metrics::Meters;
use duetime_redis::{Checks, Link, LinkError};
use duetime_supervisor::{Policy, Supervisor};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::abandoned::Abandoned;
use crate::calls::Calls;
use crate::config::RedisStoreConfig;
use crate::health::{ServerHealth, Wanted};
use crate::keys::{self, Keys};
use crate::reply::store_error;
use crate::reply_cache::ReplyCache;
use crate::scripts::Scripts;
use crate::{
    adopt, catalog, claim, edit, edit_dead, enqueue, in_place, read, restore, settle, sizes, source, topic_lifecycle,
    topics, watermark,
};

/// Hints a slow reader may be behind; it misses the older ones.
const WAKEUPS_MAX: usize = 1024;
/// Longest wait for the answer that the server is there.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// `Store` on Redis. See the crate.
#[derive(Debug)]
pub struct RedisStore {
    pub(crate) calls: Calls,
    /// Names whose record could not be read at the last look.
    pub(crate) unreadable: Mutex<Vec<String>>,
    wakeups: broadcast::Sender<Wakeup>,
    pub(crate) abandoned: Abandoned,
    health: Arc<ServerHealth>,
    /// Ends the store's loops with it.
    _stop: DropGuard,
}

/// This machine's clock, for the start-up check alone; calls are given the time.
fn machine_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "what is compared is the machine's clock itself")]
    let now = std::time::SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

impl RedisStore {
    /// Connects for what has no other loops, such as a test: see [`Self::connect_under`].
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn connect(config: RedisStoreConfig, meters: Arc<Meters>) -> Result<Arc<Self>, StoreError> {
        let supervisor = Supervisor::new(meters.clone());
        Self::connect_under(config, meters, &supervisor).await
    }

    /// Connects, and refuses a server that cannot be trusted with messages. `supervisor` watches over the loops of the
    /// store, which end with it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Setup`] with the remedy; [`StoreError::Unavailable`] when nobody answers
    /// within the configured bound.
    pub async fn connect_under(
        config: RedisStoreConfig,
        meters: Arc<Meters>,
        supervisor: &Supervisor,
    ) -> Result<Arc<Self>, StoreError> {
        let at_start = |error| store_error("connect to redis", None, error);
        let link = Link::new(config.link().map_err(at_start)?).map_err(at_start)?;
        let most = i64::try_from(CLOCK_SKEW_MAX.as_millis()).expect("two seconds");
        let facts = link.check(Checks { noeviction: true, scripts: true }).await.map_err(at_start)?;
        let own_clock = config.surroundings.clock.clone();
        let own_ms = || own_clock.as_ref().map_or_else(machine_ms, |clock| clock.now().as_millis());
        link.check_clock(own_ms, most).await.map_err(at_start)?;
        let wanted = Wanted { durability: config.durability, sentinels: link.has_sentinels() };
        ServerHealth::check(&link, wanted).await.map_err(at_start)?;
        tracing::info!(server = %link.shown(), version = %facts.version, "redis store connected");
        let draw = config.draw();
        let replies = ReplyCache::new(config.response_timeout, config.first_reply_slot, draw.clone());
        let keys = Keys::new(config.namespace);
        let (wakeups, _) = broadcast::channel(WAKEUPS_MAX);
        let (channel, sender) = (keys.wake_channel(), wakeups.clone());
        // A scope of its own: they end with the store, after all that is waited for at the end of the program.
        let (stop, loops) = (CancellationToken::new(), supervisor.scope());
        let run = |name, make: Box<dyn Fn() -> BoxFuture<'static, ()> + Send>| {
            let stopped = stop.clone();
            loops.start(name, Policy::RestartOrEnd, &stop, move || {
                stopped.clone().run_until_cancelled_owned(make()).map(drop)
            });
        };
        let of = link.clone();
        run(
            "store hints",
            Box::new(move || {
                let sender = sender.clone();
                let pass_on = move |message: Vec<u8>| {
                    if let Some((topic, index, ms)) = keys::read_wake(&message) {
                        // Nobody listening is as good as nobody asleep.
                        let visible_at = Some(Timestamp::from_millis(ms));
                        let _ = sender.send(Wakeup { topic, index, visible_at });
                    }
                };
                Box::pin(of.clone().subscribe(channel.clone(), pass_on))
            }),
        );
        let health = Arc::<ServerHealth>::default();
        let (of, at, to) = (health.clone(), link.clone(), meters.clone());
        run("store health", Box::new(move || Box::pin(of.clone().watch(at.clone(), wanted, to.clone()))));
        let of = link.clone();
        run("store masters", Box::new(move || Box::pin(of.clone().watch())));
        Ok(Arc::new(Self {
            _stop: stop.drop_guard(),
            abandoned: Abandoned::default(),
            health,
            calls: Calls { link, keys, scripts: Scripts::new(), durability: config.durability, meters, replies, draw },
            unreadable: Mutex::default(),
            wakeups,
        }))
    }

    /// What this process has settled or cancelled may leave room for others in flight, where there is a bound.
    fn has_room(&self, shard: &Shard) {
        if shard.in_flight.is_some() {
            let _ = self.wakeups.send(Wakeup { topic: shard.topic.clone(), index: shard.index, visible_at: None });
        }
    }

    /// The link to Redis, for what shares the shards through it.
    #[must_use]
    pub fn link(&self) -> Arc<Link> {
        self.calls.link.clone()
    }
}

#[async_trait]
impl TopicStore for RedisStore {
    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        topics::all_topics(&self.calls, &self.unreadable).await
    }

    async fn confirm(&self, record: &TopicRecord) -> Result<(), StoreError> {
        let routing = record.routing_record();
        catalog::replace_routing(&self.calls, &record.name, &routing, &routing).await
    }

    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        topics::store_topic(&self.calls, record, seen).await
    }

    async fn delete_topic(&self, topic: &TopicName, how: Deletion) -> Result<bool, StoreError> {
        topic_lifecycle::remove_topic(&self.calls, topic, how).await
    }

    async fn remains(&self, topic: &TopicName) -> Result<u64, StoreError> {
        topic_lifecycle::count_leftovers(&self.calls, topic).await
    }

    async fn was_deleted(&self, topic: &TopicName, life: u64) -> Result<bool, StoreError> {
        Ok(catalog::deleted_life(&self.calls, topic).await? >= life)
    }

    async fn adopt_topic(&self, topic: &TopicName, ask: &Adopt) -> Result<Adopted, StoreError> {
        adopt::adopt(&self.calls, topic, ask).await
    }

    async fn finish_deletions(&self) -> Result<(), StoreError> {
        topic_lifecycle::finish_old_deletions(&self.calls).await
    }

    fn unreadable(&self) -> Vec<String> {
        self.unreadable.lock().clone()
    }
}

#[async_trait]
impl MessageStore for RedisStore {
    async fn enqueue_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Enqueue],
    ) -> Result<Vec<Lookup<Enqueued>>, StoreError> {
        role.ask(
            || enqueue::schedule(&self.calls, shard, now, batch),
            || source::schedule_at_source(&self.calls, shard, now, batch),
        )
        .await
    }

    async fn edit_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Edit],
    ) -> Result<BatchReply<Lookup<Edited>>, StoreError> {
        let changed = role.ask(
            || edit::change(&self.calls, shard, now, batch),
            || source::change_at_source(&self.calls, shard, now, batch),
        );
        changed.await.inspect(|_| self.has_room(shard))
    }

    async fn get_at(
        &self,
        shard: &Shard,
        role: Role,
        ids: &[MessageId],
    ) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
        role.ask(|| read::read_messages(&self.calls, shard, ids), || source::read_at_source(&self.calls, shard, ids))
            .await
    }

    async fn cancelled_claims(&self, shard: &Shard) -> Result<Vec<(MessageId, Score)>, StoreError> {
        read::read_cancelled(&self.calls, shard).await
    }

    async fn dead_letters(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, StoreError> {
        read::read_dead(&self.calls, shard, from, limit).await
    }

    async fn list(&self, shard: &Shard, range: &ListRange, limit: usize) -> Result<ListPage, StoreError> {
        read::read_list(&self.calls, shard, range, limit).await
    }

    async fn resolve_dead_letters_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<BatchReply<Lookup<bool>>, StoreError> {
        role.ask(
            || settle::settle_dead_letters(&self.calls, shard, now, ids, action),
            || source::settle_dead_letters_at_source(&self.calls, shard, now, ids, action),
        )
        .await
    }

    async fn edit_dead_letters_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        edits: &[DeadEdit],
    ) -> Result<BatchReply<Lookup<DeadEdited>>, StoreError> {
        role.ask(
            || edit_dead::edit_dead(&self.calls, shard, now, edits),
            || edit_dead::edit_dead_at_source(&self.calls, shard, now, edits),
        )
        .await
    }

    async fn restore(
        &self,
        shard: &Shard,
        now: Timestamp,
        by: u64,
        taken: &[Frozen],
    ) -> Result<BatchReply<bool>, StoreError> {
        restore::restore_taken(&self.calls, shard, now, by, taken).await
    }

    async fn expire_dead_letters(&self, shard: &Shard, now: Timestamp, kept: DeadKept) -> Result<u64, StoreError> {
        settle::expire_dead_letters(&self.calls, shard, now, kept).await
    }

    async fn undone(&self, shard: &Shard, now: Timestamp) -> Result<Undone, StoreError> {
        watermark::read_undone(&self.calls, shard, now).await
    }

    async fn keep_watermark(&self, shard: &Shard, at: Timestamp) -> Result<Timestamp, StoreError> {
        watermark::keep(&self.calls, shard, at).await
    }

    async fn bytes(&self, shards: &[Shard]) -> Result<u64, StoreError> {
        sizes::estimate_bytes(&self.calls, shards).await
    }

    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<(Vec<u64>, usize), StoreError> {
        read::count_buckets(&self.calls, shards, edges).await
    }
}

#[async_trait]
impl ClaimStore for RedisStore {
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        claim::take(&self.calls, &self.abandoned, shard, now, request).await
    }

    async fn deliver_in_place(
        &self,
        shard: &Shard,
        now: Timestamp,
        ask: &StreamTransfer,
    ) -> Result<Streamed, StoreError> {
        in_place::move_to_stream(&self.calls, shard, now, ask).await
    }

    fn has_streams(&self) -> bool {
        true
    }

    async fn settle_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Settle],
        wait: AckWait,
    ) -> Result<BatchReply<Lookup<Settled>>, StoreError> {
        let settled = role.ask(
            || settle::settle_claims(&self.calls, shard, now, batch, wait),
            || source::settle_claims_at_source(&self.calls, shard, now, batch),
        );
        settled.await.inspect(|_| self.has_room(shard))
    }
}

#[async_trait]
impl ScheduleStore for RedisStore {
    async fn next_due(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        read::read_heads(&self.calls, shards).await
    }

    fn server_of(&self, shard: &Shard) -> ServerId {
        // Asked several times a claim: the key is written only where it decides.
        match self.calls.link.is_cluster() {
            true => self.calls.link.server_of(self.calls.keys.messages(shard).as_bytes()),
            false => ServerId::default(),
        }
    }

    async fn counts(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Option<ShardCounts>>, StoreError> {
        read::count_shards(&self.calls, shards, now).await
    }

    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        self.wakeups.subscribe()
    }
}

#[async_trait]
impl BackupStore for RedisStore {
    async fn backup(&self) -> Result<Backup, BackupError> {
        let how = "this store is Redis, which is copied by itself: `deploy/redis/backup` (docs/OPERATIONS.md, \"Back up and \
                   restore\")";
        Err(BackupError::Elsewhere(how))
    }
}

#[async_trait]
impl StoreHealth for RedisStore {
    fn locate(&self, shard: &Shard) -> ShardLocation {
        self.calls.keys.locate(shard)
    }

    fn issues(&self) -> Vec<String> {
        self.health.issues()
    }

    async fn clock_skew_ms(&self, clock: &dyn Clock) -> Result<i64, StoreError> {
        let doing = "compare redis's clock with this node's";
        let look = self.calls.link.clock_skew_ms(|| clock.now().as_millis());
        let apart = match tokio::time::timeout(READY_WITHIN, look).await {
            Ok(answer) => answer.map_err(|error| store_error(doing, None, error))?,
            Err(_) => return Err(store_error(doing, None, LinkError::Unavailable("no answer in time".to_owned()))),
        };
        self.calls.meters.store_clock_skew(apart.worst_ms);
        self.health.one_clock(&apart);
        Ok(apart.least_ms)
    }

    async fn ready(&self) -> Result<(), StoreError> {
        let doing = "see whether redis answers";
        match tokio::time::timeout(READY_WITHIN, self.calls.link.alive()).await {
            Ok(answer) => answer.map_err(|error| store_error(doing, None, error)),
            Err(_) => Err(store_error(doing, None, LinkError::Unavailable("no answer in time".to_owned()))),
        }
    }
}
