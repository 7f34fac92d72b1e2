//! Takes requests, sees to it that every change that was begun is carried on, and reports how far it is.
//!
//! Upstream: the HTTP API (requested shard counts), the catalog's topics (changes begun elsewhere), the number of
//! nodes (`"auto"`). Downstream: the drive of each change, the scrubber.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{
    ResizeError, ResizeProgress, Resizing, RoutingRecord, ShardCount, StoreError, TopicName, TopicRecord,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::auto::Auto;
use crate::context::{Context, ResizeDeps};
use crate::progress::Tracks;
use crate::throttle::Throttle;
use crate::{drive, measure, scrubber};

/// How often changes are looked after, and their progress measured.
const TICK: Duration = Duration::from_secs(1);

/// Time for this node's picture of the topics to follow a change that ended.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// Changes numbers of shards. See the crate.
#[derive(Clone, Debug)]
pub struct Resizer(Arc<Context>);

impl Resizer {
    /// A resizer that does nothing by itself until [`Resizer::run`].
    #[must_use]
    pub fn new(given: ResizeDeps) -> Self {
        Self(Arc::new(Context {
            throttle: Throttle::new(given.config.messages_per_second),
            given,
            changed: Arc::default(),
            requested: Notify::new(),
            tracks: Tracks::default(),
        }))
    }

    /// Notified when this node has changed a routing record: the topics must be read again.
    #[must_use]
    pub fn changed(&self) -> Arc<Notify> {
        self.0.changed.clone()
    }

    /// Carries on whatever change is under way, begins what is requested, scrubs, until `shutdown`. What
    /// it leaves half done another node, or this one's next start, goes on with.
    pub async fn run(self, shutdown: CancellationToken) {
        let context = &self.0;
        let mut drives: JoinSet<TopicName> = JoinSet::new();
        let mut driven: HashSet<TopicName> = HashSet::new();
        let (mut topics, mut auto) = (context.given.topics.clone(), Auto::default());
        let (scrub, mut scrubs) = (scrubber::scrub(context.clone(), shutdown.clone()), true);
        tokio::pin!(scrub);
        loop {
            let present = topics.borrow_and_update().clone();
            context.tracks.forget_gone(&present);
            for record in present.values() {
                follow(context, record, &mut auto).await;
                let busy = record.routing.is_moving() || record.desired.is_some();
                if busy && driven.insert(record.name.clone()) {
                    let (context, name) = (context.clone(), record.name.clone());
                    drives.spawn(async move {
                        drive::drive(&context, &name).await;
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
                () = context.requested.notified() => {}
                () = &mut scrub, if scrubs => scrubs = false,
                () = tokio::time::sleep(TICK) => measure::measure(context, &present).await,
            }
        }
        drives.shutdown().await;
    }
}

/// Begins what the topic's settings say, if nothing is under way: a request whose node died before it was
/// written down, or the number of nodes that `"auto"` follows. Only from the record that was read with
/// those settings: a node that stalled in between may know a request that another has superseded.
async fn follow(context: &Context, known: &TopicRecord, auto: &mut Auto) {
    let mut wanted = |record: &TopicRecord| {
        let (present, nodes) = (record.routing.shards, *context.given.nodes.borrow());
        let wanted = match record.config.shards {
            ShardCount::Fixed(shards) => Some(shards),
            ShardCount::Auto => {
                let wanted = record.config.bounded_shards(context.given.config.auto().shards(nodes));
                auto.wants(&record.name, present, wanted, &context.given.config)
            }
        };
        let busy = record.routing.is_moving() || record.desired.is_some();
        wanted.filter(|shards| *shards != present && !busy)
    };
    if wanted(known).is_none() {
        return;
    }
    // Settings and routing are learnt in different ways: only together do they say what is wanted.
    let Ok(Some(record)) = context.record(&known.name).await else { return };
    let Some(shards) = wanted(&record) else { return };
    match context.begin(&record.name, &record.routing_record(), shards).await {
        // Somebody was quicker, perhaps with a later request.
        Ok(_) | Err(StoreError::Conflict) => {}
        Err(error) => warn!(topic = %record.name, shards, %error, "shard count cannot be changed at present"),
    }
}

#[async_trait]
impl Resizing for Resizer {
    async fn check(&self, topic: &TopicName) -> Result<RoutingRecord, ResizeError> {
        self.0.present(topic).await
    }

    fn meaning(&self, shards: ShardCount) -> (u32, u32) {
        let config = &self.0.given.config;
        (shards.resolve(*self.0.given.nodes.borrow(), config.auto()), config.messages_per_second)
    }

    async fn ask(&self, topic: &TopicName, shards: ShardCount) -> Result<RoutingRecord, ResizeError> {
        let record = self.0.request(topic, self.meaning(shards).0).await?;
        self.0.requested.notify_one();
        Ok(record)
    }

    async fn progress(&self, topic: &TopicName) -> Result<Option<ResizeProgress>, ResizeError> {
        let record = self.0.present(topic).await?;
        Ok(measure::progress_of(&self.0, topic, &record).await?)
    }
}
