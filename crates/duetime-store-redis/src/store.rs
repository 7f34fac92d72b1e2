//! The store itself: connects, checks the server, carries the calls.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use duetime_core::hand_over::{StreamTransfer, Streamed};
use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::message::StoredMessage;
use duetime_core::store::{
    AckWait, Adopt, Adopted, Claim, ClaimRequest, DeadAction, DeadPage, Edit, Edited, Enqueue, Enqueued, Kept, Settle,
    Settled, StoreError, Survey, Wakeup,
};
use duetime_core::{
    ClaimStore, Clock, ListPage, ListRange, Lookup, MessageId, MessageStore, Place, Role, ScheduleStore, Shard,
    StoreHealth, Timestamp, TopicName, TopicRecord, TopicStore, Whereabouts,
};
use duetime_metrics::Meters;
use duetime_redis::{Backing, Checks, Link, LinkError, Script, Sending};
use duetime_supervisor::{Policy, Supervisor};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::abandoned::Abandoned;
use crate::carry::carry;
use crate::config::{Durability, RedisStoreConfig};
use crate::health::{ServerHealth, Wanted};
use crate::keys::{self, Keys};
use crate::present::Present;
use crate::reply::store_error;
use crate::reply_cache::{CachedCall, ReplyCache};
use crate::scripts::Scripts;

/// Hints a slow reader may be behind; it misses the older ones.
const WAKEUPS_MAX: usize = 1024;
/// Longest wait for the answer that the server is there.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// A write to the meta of a shard that changes nothing, for WAIT to wait for. It makes no meta.
const MARK: &str = "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HSET', KEYS[1], 'mark', '')";
/// The same where a full server can be told to take it.
const MARK_ALLOW_OOM: &str = "#!lua flags=allow-oom
return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HSET', KEYS[1], 'mark', '')";

/// `Store` on Redis. See the crate.
#[derive(Debug)]
pub struct RedisStore {
    pub(crate) link: Arc<Link>,
    pub(crate) keys: Keys,
    pub(crate) scripts: Scripts,
    pub(crate) durability: Durability,
    /// Names whose record could not be read at the last look.
    pub(crate) unreadable: Mutex<Vec<String>>,
    pub(crate) meters: Arc<Meters>,
    wakeups: broadcast::Sender<Wakeup>,
    pub(crate) abandoned: Abandoned,
    pub(crate) replies: ReplyCache,
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
    /// Connects, and refuses a server that cannot be trusted with messages.
    ///
    /// # Errors
    ///
    /// [`StoreError::Setup`] with the remedy; [`StoreError::Unavailable`] when nobody answers
    /// within the configured bound.
    pub async fn connect(config: RedisStoreConfig, meters: Arc<Meters>) -> Result<Arc<Self>, StoreError> {
        let at_start = |error| store_error("connect to redis", None, error);
        let link = Link::new(config.link().map_err(at_start)?).map_err(at_start)?;
        let most = i64::try_from(CLOCK_SKEW_MAX.as_millis()).expect("two seconds");
        let facts = link.check(Checks { noeviction: true }).await.map_err(at_start)?;
        link.check_clock(machine_ms, most).await.map_err(at_start)?;
        let wanted = Wanted { durability: config.durability, sentinels: link.has_sentinels() };
        ServerHealth::check(&link, wanted).await.map_err(at_start)?;
        tracing::info!(server = %link.shown(), version = %facts.version, "redis store connected");
        let replies = ReplyCache::new(config.response_timeout, config.first_reply_slot);
        let keys = Keys::new(config.namespace);
        let (wakeups, _) = broadcast::channel(WAKEUPS_MAX);
        let (channel, sender) = (keys.wake_channel(), wakeups.clone());
        let (stop, loops) = (CancellationToken::new(), Supervisor::new(meters.clone()));
        let run = |name, make: Box<dyn Fn() -> BoxFuture<'static, ()> + Send>| {
            let stopped = stop.clone();
            loops.start(name, Policy::Restart, &stop, move || {
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
                        let _ = sender.send(Wakeup { topic, index, visible_at: Timestamp::from_millis(ms) });
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
            replies,
            health,
            link,
            keys,
            scripts: Scripts::new(),
            durability: config.durability,
            unreadable: Mutex::default(),
            meters,
            wakeups,
        }))
    }

    /// The link to Redis, for what shares the shards through it.
    #[must_use]
    pub fn link(&self) -> Arc<Link> {
        self.link.clone()
    }

    /// Runs a script on the five keys of `shard`; [`head`] is its first argument. `call`: of one with the reply cache.
    pub(crate) async fn on_shard<F>(
        &self,
        doing: &'static str,
        script: &Script,
        shard: &Shard,
        now: Present,
        call: Option<&CachedCall<'_>>,
        fill: F,
    ) -> Result<Value, StoreError>
    where
        F: Fn(&mut Cmd, &Sending) + Send + Sync,
    {
        let key = self.keys.messages(shard);
        carry(doing, shard, call, async |epoch| {
            let run = self.link.script(script, &key, |cmd, sending| {
                self.keys.fill(cmd, shard);
                cmd.arg(head(epoch, sending, now));
                fill(cmd, sending);
            });
            run.await
        })
        .await
    }

    /// The same, and waits for as many replicas as configured; answers how many have it.
    pub(crate) async fn on_shard_confirmed<F>(
        &self,
        doing: &'static str,
        script: &Script,
        shard: &Shard,
        now: Present,
        call: Option<&CachedCall<'_>>,
        fill: F,
    ) -> Result<(Value, Option<u32>), StoreError>
    where
        F: Fn(&mut Cmd, &Sending) + Send + Sync,
    {
        let replicas = self.durability.replicas();
        if replicas == 0 {
            return Ok((self.on_shard(doing, script, shard, now, call, fill).await?, None));
        }
        let mut mark = redis::cmd("EVAL");
        mark.arg(if self.link.is_legacy() { MARK } else { MARK_ALLOW_OOM }).arg(1).arg(self.keys.meta(shard));
        let key = self.keys.messages(shard);
        let (value, reached) = carry(doing, shard, call, async |epoch| {
            let run = self.link.confirmed(script, &key, replicas, &mark, |cmd, sending| {
                self.keys.fill(cmd, shard);
                cmd.arg(head(epoch, sending, now));
                fill(cmd, sending);
            });
            run.await
        })
        .await?;
        self.meters.durability(reached >= u32::from(replicas));
        Ok((value, Some(reached)))
    }

    /// Runs a script of the resize, on all keys of `shard`; its answer is replicated.
    pub(crate) async fn on_shard_replicated<F>(
        &self,
        doing: &'static str,
        script: &Script,
        shard: &Shard,
        now: Present,
        call: Option<&CachedCall<'_>>,
        fill: F,
    ) -> Result<(Value, Backing), StoreError>
    where
        F: Fn(&mut Cmd, &Sending) + Send + Sync,
    {
        let key = self.keys.messages(shard);
        carry(doing, shard, call, async |epoch| {
            let run = self.link.replicated(script, &key, self.durability.replicas(), |cmd, sending| {
                self.keys.fill_all(cmd, shard);
                cmd.arg(head(epoch, sending, now));
                fill(cmd, sending);
            });
            run.await
        })
        .await
    }
}

/// The longest time that the first argument of a script can hold: in the year 2286.
const TIME_MAX_MS: i64 = 9_999_999_999_999;

/// The first argument of every script on a shard; see `prelude.lua`.
pub(crate) fn head(epoch: u64, sending: &Sending, now: Present) -> String {
    format!("{epoch} {:013} {:013}", sending.not_after_ms.clamp(0, TIME_MAX_MS), now.millis().clamp(0, TIME_MAX_MS))
}

#[async_trait]
impl TopicStore for RedisStore {
    async fn topics(&self) -> Result<Vec<TopicRecord>, StoreError> {
        self.all_topics().await
    }

    async fn confirm(&self, record: &TopicRecord) -> Result<(), StoreError> {
        let routing = record.routing_record();
        self.replace_routing(&record.name, &routing, &routing).await
    }

    async fn put_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        self.store_topic(record, seen).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<bool, StoreError> {
        self.remove_topic(topic).await
    }

    async fn remains(&self, topic: &TopicName) -> Result<u64, StoreError> {
        self.left_of(topic).await
    }

    async fn was_deleted(&self, topic: &TopicName, life: u64) -> Result<bool, StoreError> {
        Ok(self.deleted_life(topic).await? >= life)
    }

    async fn adopt_topic(&self, topic: &TopicName, ask: &Adopt) -> Result<Adopted, StoreError> {
        self.adopt(topic, ask).await
    }

    async fn finish_deletions(&self) -> Result<(), StoreError> {
        self.finish_old_deletions().await
    }

    fn unreadable(&self) -> Vec<String> {
        self.unreadable_topics()
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
        role.ask(|| self.schedule(shard, now, batch), || self.schedule_old(shard, now, batch)).await
    }

    async fn edit_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        batch: &[Edit],
    ) -> Result<Kept<Lookup<Edited>>, StoreError> {
        role.ask(|| self.change(shard, now, batch), || self.change_old(shard, now, batch)).await
    }

    async fn get_at(
        &self,
        shard: &Shard,
        role: Role,
        ids: &[MessageId],
    ) -> Result<Vec<Lookup<StoredMessage>>, StoreError> {
        role.ask(|| self.read_messages(shard, ids), || self.read_old(shard, ids)).await
    }

    async fn dead(&self, shard: &Shard, from: Option<i64>, limit: usize) -> Result<DeadPage, StoreError> {
        self.read_dead(shard, from, limit).await
    }

    async fn list(&self, shard: &Shard, range: &ListRange, limit: usize) -> Result<ListPage, StoreError> {
        self.read_list(shard, range, limit).await
    }

    async fn settle_dead_at(
        &self,
        shard: &Shard,
        role: Role,
        now: Timestamp,
        ids: &[MessageId],
        action: DeadAction,
    ) -> Result<Kept<Lookup<bool>>, StoreError> {
        role.ask(
            || self.settle_dead_letters(shard, now, ids, action),
            || self.settle_dead_letters_old(shard, now, ids, action),
        )
        .await
    }

    async fn bytes(&self, shards: &[Shard]) -> Result<u64, StoreError> {
        self.estimate_bytes(shards).await
    }

    async fn forecast_known(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<(Vec<u64>, usize), StoreError> {
        self.count_known_buckets(shards, edges).await
    }

    async fn forecast(&self, shards: &[Shard], edges: &[Timestamp]) -> Result<Vec<u64>, StoreError> {
        self.count_buckets(shards, edges).await
    }
}

#[async_trait]
impl ClaimStore for RedisStore {
    async fn claim(&self, shard: &Shard, now: Timestamp, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.take(shard, now, request).await
    }

    async fn hand_over(&self, shard: &Shard, now: Timestamp, ask: &StreamTransfer) -> Result<Streamed, StoreError> {
        self.move_to_stream(shard, now, ask).await
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
    ) -> Result<Kept<Lookup<Settled>>, StoreError> {
        role.ask(|| self.settle_claims(shard, now, batch, wait), || self.settle_claims_old(shard, now, batch)).await
    }
}

#[async_trait]
impl ScheduleStore for RedisStore {
    async fn survey(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Survey>, StoreError> {
        self.count_shards(shards, now).await
    }

    async fn heads(&self, shards: &[Shard]) -> Result<Vec<Option<Timestamp>>, StoreError> {
        self.read_heads(shards).await
    }

    fn place_of(&self, shard: &Shard) -> Place {
        self.link.place_of(self.keys.messages(shard).as_bytes())
    }

    async fn survey_known(&self, shards: &[Shard], now: Timestamp) -> Result<Vec<Option<Survey>>, StoreError> {
        self.count_known(shards, now).await
    }

    fn wakeups(&self) -> broadcast::Receiver<Wakeup> {
        self.wakeups.subscribe()
    }
}

#[async_trait]
impl StoreHealth for RedisStore {
    fn whereabouts(&self, shard: &Shard) -> Whereabouts {
        self.keys.whereabouts(shard)
    }

    async fn apart(&self, clock: &dyn Clock) -> Result<i64, StoreError> {
        let doing = "compare redis's clock with this node's";
        let look = self.link.apart(|| clock.now().as_millis());
        let apart = match tokio::time::timeout(READY_WITHIN, look).await {
            Ok(answer) => answer.map_err(|error| store_error(doing, None, error))?,
            Err(_) => return Err(store_error(doing, None, LinkError::Unavailable("no answer in time".to_owned()))),
        };
        self.meters.store_clock_skew(apart.worst_ms);
        self.health.one_clock(&apart);
        Ok(apart.least_ms)
    }

    async fn ready(&self) -> Result<(), StoreError> {
        // A server whose disk fails answers no ping: what is known to be wrong says more.
        self.health.ready()?;
        let doing = "see whether redis answers";
        match tokio::time::timeout(READY_WITHIN, self.link.alive()).await {
            Ok(answer) => answer.map_err(|error| store_error(doing, None, error)),
            Err(_) => Err(store_error(doing, None, LinkError::Unavailable("no answer in time".to_owned()))),
        }
    }
}
