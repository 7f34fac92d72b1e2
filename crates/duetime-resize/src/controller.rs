//! Takes wishes, sees to it that every change that was begun is carried on, and tells how far it is.
//!
//! Upstream: the front door (wishes), the catalog's topics (changes begun elsewhere), the number of
//! nodes (`"auto"`). Downstream: the drive of each change, the scrubber.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::routing::RoutingState;
use duetime_core::topic::by_name;
use duetime_core::{
    Clock, OwnedShards, ResizeError, ResizeProgress, Resizing, Routing, RoutingAuthority, RoutingRecord, ShardCount,
    StoreError, TopicName, TopicRecord, Topics,
};
use duetime_metrics::Meters;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::auto::Auto;
use crate::config::ResizeConfig;
use crate::progress::Track;
use crate::steps::{Step, Tools};
use crate::throttle::Throttle;

/// How often a wish is tried again because somebody else changed the record in between.
const CONFLICTS_MAX: u32 = 16;

/// How often changes are looked after, and their progress measured.
const TICK: Duration = Duration::from_secs(1);

/// Time for this node's picture of the topics to follow a change that ended.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// What a resizer is made of.
#[derive(Debug)]
pub struct ResizeParts {
    /// The store, and what every step needs.
    pub tools: Tools,
    /// Who decides on routing records.
    pub authority: Arc<dyn RoutingAuthority>,
    /// The topics, now and as they change.
    pub topics: watch::Receiver<Arc<Topics>>,
    /// The shards this node scans: it moves those first.
    pub owned: watch::Receiver<Arc<OwnedShards>>,
    /// How many nodes share the shards.
    pub nodes: watch::Receiver<u32>,
    /// This node's clock.
    pub clock: Arc<dyn Clock>,
    /// Where everything is counted.
    pub meters: Arc<Meters>,
    /// Bounds.
    pub config: ResizeConfig,
}

/// What the loops share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub tools: Tools,
    pub authority: Arc<dyn RoutingAuthority>,
    pub topics: watch::Receiver<Arc<Topics>>,
    pub owned: watch::Receiver<Arc<OwnedShards>>,
    pub nodes: watch::Receiver<u32>,
    pub clock: Arc<dyn Clock>,
    pub meters: Arc<Meters>,
    pub config: ResizeConfig,
    pub throttle: Throttle,
    pub changed: Arc<Notify>,
    pub wished: Notify,
    pub tracks: Mutex<HashMap<TopicName, Track>>,
}

/// Changes numbers of shards. See the crate.
#[derive(Clone, Debug)]
pub struct Resizer(Arc<Inner>);

impl Resizer {
    /// A resizer that does nothing by itself until [`Resizer::run`].
    #[must_use]
    pub fn new(parts: ResizeParts) -> Self {
        let ResizeParts { tools, authority, topics, owned, nodes, clock, meters, config } = parts;
        Self(Arc::new(Inner {
            throttle: Throttle::new(config.messages_per_second),
            tools,
            authority,
            topics,
            owned,
            nodes,
            clock,
            meters,
            config,
            changed: Arc::default(),
            wished: Notify::new(),
            tracks: Mutex::default(),
        }))
    }

    /// Told when a routing record was changed by this node: the topics must be read again.
    #[must_use]
    pub fn changed(&self) -> Arc<Notify> {
        self.0.changed.clone()
    }

    /// Carries on whatever change is under way, begins what is wished, scrubs, until `shutdown`. What
    /// it leaves half done another node, or this one's next start, goes on with.
    pub async fn run(self, shutdown: CancellationToken) {
        let inner = &self.0;
        let mut drives: JoinSet<TopicName> = JoinSet::new();
        let mut driven: HashSet<TopicName> = HashSet::new();
        let (mut topics, mut auto) = (inner.topics.clone(), Auto::default());
        let (scrub, mut scrubs) = (inner.clone().scrub(shutdown.clone()), true);
        tokio::pin!(scrub);
        loop {
            let present = topics.borrow_and_update().clone();
            inner.forget_gone(&present);
            for record in by_name(&present) {
                inner.follow(record, &mut auto).await;
                let busy = record.routing.is_moving() || record.desired.is_some();
                if busy && driven.insert(record.name.clone()) {
                    let (inner, name) = (inner.clone(), record.name.clone());
                    drives.spawn(async move {
                        inner.drive(&name).await;
                        // Until the topics have been read again.
                        tokio::time::sleep(READ_AGAIN).await;
                        name
                    });
                }
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = drives.join_next(), if !drives.is_empty() => match ended {
                    Ok(name) => { driven.remove(&name); }
                    // Which one is not known: all are looked at again.
                    Err(panic) => {
                        error!(%panic, "a change of a shard count broke off, it is carried on; report it");
                        driven.clear();
                    }
                },
                Ok(()) = topics.changed() => {}
                () = inner.wished.notified() => {}
                () = &mut scrub, if scrubs => scrubs = false,
                () = tokio::time::sleep(TICK) => inner.measure(&present).await,
            }
        }
        drives.shutdown().await;
    }
}

impl Inner {
    /// The topic's record of its routing, from who decides.
    pub(crate) async fn present(&self, topic: &TopicName) -> Result<RoutingRecord, ResizeError> {
        let record = self.authority.routing(topic).await.map_err(ResizeError::AuthorityAway)?;
        record.ok_or_else(|| ResizeError::UnknownTopic(topic.clone()))
    }

    /// Wishes for `shards`: begins, or keeps the wish.
    pub(crate) async fn wish(&self, topic: &TopicName, shards: u32) -> Result<RoutingRecord, ResizeError> {
        for _ in 0..CONFLICTS_MAX {
            let seen = self.present(topic).await?;
            let desired = (seen.routing.shards != shards).then_some(shards);
            if !seen.routing.is_moving() && desired.is_some() {
                match self.begin(topic, &seen, shards).await {
                    Err(StoreError::Conflict) => continue,
                    begun => return Ok(begun?),
                }
            }
            if seen.desired == desired {
                return Ok(seen);
            }
            let new = RoutingRecord { routing: seen.routing.clone(), desired };
            match self.authority.swap_routing(topic, &seen, &new).await {
                Ok(()) => {
                    self.changed.notify_one();
                    return Ok(new);
                }
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(ResizeError::AuthorityAway(error)),
            }
        }
        Err(ResizeError::Store(StoreError::Conflict))
    }

    /// Begins the change of `seen`, which is stable, to `shards`.
    pub(crate) async fn begin(
        &self,
        topic: &TopicName,
        seen: &RoutingRecord,
        shards: u32,
    ) -> Result<RoutingRecord, StoreError> {
        // Above every epoch that any shard has ever heard of, retired ones among them.
        let widest = self.record(topic).await?.map_or(0, |record| record.widest());
        let found = self.tools.store.inspect(topic, 0..widest.max(shards)).await?;
        let highest = found.iter().flatten().map(|shard| shard.routing.epoch).max().unwrap_or(0);
        let routing = Routing {
            epoch: highest.max(seen.routing.epoch) + 1,
            rid: format!("{:016x}", self.tools.draw.next()),
            shards,
            previous: seen.routing.shards,
            state: RoutingState::Moving,
            seed: seen.routing.seed,
        };
        let new = RoutingRecord { routing, desired: None };
        match self.authority.swap_routing(topic, seen, &new).await {
            Ok(()) => {}
            // The answer to an earlier sending of this very swap may have been lost.
            Err(StoreError::Conflict) if self.authority.routing(topic).await?.as_ref() == Some(&new) => {}
            Err(error) => return Err(error),
        }
        info!(%topic, from = new.routing.previous, to = shards, epoch = new.routing.epoch, "shard count is changing");
        self.changed.notify_one();
        self.tools.steps.reached(Step::Begun).await;
        Ok(new)
    }

    /// Takes up the wish that `seen`, which is stable, keeps; nothing where another record has taken its place.
    pub(crate) async fn take_up(&self, topic: &TopicName, seen: &RoutingRecord, shards: u32) -> Result<(), StoreError> {
        let taken_up = if seen.routing.shards == shards {
            let without = RoutingRecord { routing: seen.routing.clone(), desired: None };
            self.authority.swap_routing(topic, seen, &without).await
        } else {
            self.begin(topic, seen, shards).await.map(drop)
        };
        match taken_up {
            Err(StoreError::Conflict) => Ok(()),
            taken_up => taken_up,
        }
    }

    /// Says that the change is done; false: it is not the present one any more.
    pub(crate) async fn commit(&self, topic: &TopicName, routing: &Routing) -> Result<bool, StoreError> {
        for _ in 0..CONFLICTS_MAX {
            let Some(seen) = self.authority.routing(topic).await? else { return Ok(false) };
            if seen.routing != *routing {
                return Ok(false);
            }
            let stable = Routing { state: RoutingState::Stable, ..routing.clone() };
            let new = RoutingRecord { routing: stable, desired: seen.desired };
            match self.authority.swap_routing(topic, &seen, &new).await {
                Ok(()) => {
                    info!(%topic, shards = routing.shards, epoch = routing.epoch, "shard count has changed");
                    self.changed.notify_one();
                    self.tools.steps.reached(Step::Committed).await;
                    return Ok(true);
                }
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict)
    }

    /// The topic's whole record, from the store.
    pub(crate) async fn record(&self, topic: &TopicName) -> Result<Option<TopicRecord>, StoreError> {
        Ok(self.tools.store.topics().await?.into_iter().find(|record| record.name == *topic))
    }

    /// Begins what the topic's settings say, if nothing is under way: a wish whose node died before it was
    /// written down, or the number of nodes that `"auto"` follows. Only from the record that was read with
    /// those settings: a node that stood still in between may know a request that another has superseded.
    async fn follow(&self, known: &TopicRecord, auto: &mut Auto) {
        let nodes = *self.nodes.borrow();
        let mut wanted = |record: &TopicRecord| {
            let present = record.routing.shards;
            let wanted = match record.config.shards {
                ShardCount::Fixed(shards) => Some(shards),
                ShardCount::Auto => auto.wants(&record.name, present, nodes, &self.config),
            };
            let busy = record.routing.is_moving() || record.desired.is_some();
            wanted.filter(|shards| *shards != present && !busy)
        };
        if wanted(known).is_none() {
            return;
        }
        // Settings and routing are learnt in different ways: only together do they say what is wanted.
        let Ok(Some(record)) = self.record(&known.name).await else { return };
        let Some(shards) = wanted(&record) else { return };
        match self.begin(&record.name, &record.routing_record(), shards).await {
            // Somebody was quicker, perhaps with a later request.
            Ok(_) | Err(StoreError::Conflict) => {}
            Err(error) => warn!(topic = %record.name, shards, %error, "shard count cannot be changed at present"),
        }
    }
}

#[async_trait]
impl Resizing for Resizer {
    async fn check(&self, topic: &TopicName) -> Result<RoutingRecord, ResizeError> {
        self.0.present(topic).await
    }

    async fn ask(&self, topic: &TopicName, shards: ShardCount) -> Result<RoutingRecord, ResizeError> {
        let shards = match shards {
            ShardCount::Fixed(shards) => shards,
            ShardCount::Auto => self.0.config.auto(*self.0.nodes.borrow()),
        };
        let record = self.0.wish(topic, shards).await?;
        self.0.wished.notify_one();
        Ok(record)
    }

    async fn progress(&self, topic: &TopicName) -> Result<Option<ResizeProgress>, ResizeError> {
        let record = self.0.present(topic).await?;
        Ok(self.0.progress_of(topic, &record).await?)
    }
}
