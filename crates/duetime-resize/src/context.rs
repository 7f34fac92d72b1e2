//! What every step of a change needs, and the changes of a topic's routing record.
//!
//! Upstream: the controller, and the drive of each change. Downstream: the store, as the authority of routing.

use std::sync::Arc;

use duetime_core::routing::RoutingState;
use duetime_core::{
    ChangeId, Clock, OwnedShards, ResizeError, Routing, RoutingAuthority, RoutingRecord, ScheduleStore, StoreError,
    TopicName, TopicRecord, TopicStore, Topics,
};
use duetime_metrics::Meters;
use tokio::sync::{Notify, watch};
use tracing::info;

use crate::config::ResizeConfig;
use crate::progress::Tracks;
use crate::steps::{MoveDeps, Step};
use crate::throttle::Throttle;

/// How often a request is tried again because somebody else changed the record in between.
const CONFLICTS_MAX: u32 = 16;

/// What a resizer is made of.
#[derive(Debug)]
pub struct ResizeDeps {
    /// The store, and what every step needs.
    pub deps: MoveDeps,
    /// Who decides on routing records.
    pub authority: Arc<dyn RoutingAuthority>,
    /// The records of the topics.
    pub records: Arc<dyn TopicStore>,
    /// How much is in the shards.
    pub counts: Arc<dyn ScheduleStore>,
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
pub(crate) struct Context {
    pub given: ResizeDeps,
    pub throttle: Throttle,
    /// Notified when this node has changed a routing record: the topics must be read again.
    pub changed: Arc<Notify>,
    /// Notified when another number of shards is requested.
    pub requested: Notify,
    pub tracks: Tracks,
}

/// So many shards, or as many as the topic's bound of what is in flight can be divided over.
fn bounded(seen: &RoutingRecord, shards: u32) -> u32 {
    seen.routing.max_in_flight.map_or(shards, |most| shards.min(most))
}

impl Context {
    /// The topic's record of its routing, from who decides.
    pub(crate) async fn present(&self, topic: &TopicName) -> Result<RoutingRecord, ResizeError> {
        let record = self.given.authority.routing(topic).await.map_err(ResizeError::AuthorityAway)?;
        record.ok_or_else(|| ResizeError::UnknownTopic(topic.clone()))
    }

    /// Requests `shards`: begins, or keeps the request.
    pub(crate) async fn request(&self, topic: &TopicName, shards: u32) -> Result<RoutingRecord, ResizeError> {
        for _ in 0..CONFLICTS_MAX {
            let seen = self.present(topic).await?;
            let shards = bounded(&seen, shards);
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
            let new = RoutingRecord { desired, ..seen.clone() };
            match self.given.authority.swap_routing(topic, &seen, &new).await {
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
        let max_shards_ever = self.record(topic).await?.map_or(0, |record| record.max_shards_ever());
        let found = self.given.deps.store.inspect(topic, 0..max_shards_ever.max(shards)).await?;
        // A forgotten change may have moved messages to shards that nobody would look into.
        let forgotten = found.iter().flatten().filter(|shard| shard.routing.epoch > seen.routing.epoch);
        if forgotten.map(|shard| shard.routing.reach()).any(|reach| reach > max_shards_ever) {
            return Err(StoreError::Outdated(topic.to_string()));
        }
        let highest = found.iter().flatten().map(|shard| shard.routing.epoch).max().unwrap_or(0);
        let routing = Routing {
            epoch: highest.max(seen.routing.epoch) + 1,
            change_id: ChangeId(self.given.deps.draw.next()),
            shards,
            previous: seen.routing.shards,
            state: RoutingState::Moving,
            ..seen.routing.clone()
        };
        let new = RoutingRecord { routing, desired: None, earlier: seen.earlier.clone() };
        match self.given.authority.swap_routing(topic, seen, &new).await {
            Ok(()) => {}
            // The answer to an earlier sending of this very swap may have been lost.
            Err(StoreError::Conflict) if self.given.authority.routing(topic).await?.as_ref() == Some(&new) => {}
            Err(error) => return Err(error),
        }
        info!(%topic, from = new.routing.previous, to = shards, epoch = new.routing.epoch, "shard count is changing");
        self.changed.notify_one();
        self.given.deps.steps.reached(Step::Begun).await;
        Ok(new)
    }

    /// Takes up the request that `seen`, which is stable, keeps; nothing where another record has taken its place.
    pub(crate) async fn take_up(&self, topic: &TopicName, seen: &RoutingRecord, shards: u32) -> Result<(), StoreError> {
        let shards = bounded(seen, shards);
        let taken_up = if seen.routing.shards == shards {
            let without = RoutingRecord { desired: None, ..seen.clone() };
            self.given.authority.swap_routing(topic, seen, &without).await
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
            let Some(seen) = self.given.authority.routing(topic).await? else { return Ok(false) };
            if seen.routing != *routing {
                return Ok(false);
            }
            let new = seen.committed(self.given.clock.now());
            match self.given.authority.swap_routing(topic, &seen, &new).await {
                Ok(()) => {
                    info!(%topic, shards = routing.shards, epoch = routing.epoch, "shard count has changed");
                    self.changed.notify_one();
                    self.given.deps.steps.reached(Step::Committed).await;
                    return Ok(true);
                }
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict)
    }

    /// Whether the authority has this very record.
    pub(crate) async fn is_present(&self, topic: &TopicName, routing: &Routing) -> Result<bool, StoreError> {
        Ok(self.given.authority.routing(topic).await?.is_some_and(|record| record.routing == *routing))
    }

    /// The topic's whole record, from the store.
    pub(crate) async fn record(&self, topic: &TopicName) -> Result<Option<TopicRecord>, StoreError> {
        Ok(self.given.records.topics().await?.into_iter().find(|record| record.name == *topic))
    }
}
