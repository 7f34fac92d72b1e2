//! Counts messages by state, per topic and per shard.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::ShardCounts;
use duetime_core::{Shard, StoreError, TopicName, TopicRecord};

use crate::calls::route::{Dispatcher, FRESH_WAIT};
use crate::error::RouteError;

/// Shards one call to the store counts.
const SHARDS_PER_CALL: usize = 1024;

/// How often the shards of a topic are counted again because other clients delete and create it meanwhile.
const RECOUNTS_MAX: u32 = 4;
/// Wait before each recount but the first; longer each time.
const RECOUNT_WAIT: Duration = Duration::from_millis(10);

/// Counts of a topic's messages by state.
#[derive(Clone, Debug)]
pub struct TopicCounts {
    /// The topic.
    pub record: Arc<TopicRecord>,
    /// All shards that answered together; the head is the earliest.
    pub total: ShardCounts,
    /// Shard by shard, from 0; `None`: its server does not answer at present.
    pub shards: Vec<Option<ShardCounts>>,
}

impl TopicCounts {
    fn new(record: Arc<TopicRecord>, shards: Vec<Option<ShardCounts>>) -> Self {
        Self { total: sum(shards.iter().flatten()), shards, record }
    }

    /// How many shards are not in the total, because their server does not answer.
    #[must_use]
    pub fn unreachable_shards(&self) -> usize {
        self.shards.iter().filter(|shard| shard.is_none()).count()
    }
}

fn sum<'a>(shards: impl Iterator<Item = &'a ShardCounts>) -> ShardCounts {
    shards.fold(ShardCounts::default(), |sum, one| ShardCounts {
        scheduled: sum.scheduled + one.scheduled,
        due: sum.due + one.due,
        in_flight: sum.in_flight + one.in_flight,
        dead: sum.dead + one.dead,
        moving: sum.moving + one.moving,
        head: [sum.head, one.head].into_iter().flatten().min(),
    })
}

/// Whether no server answered.
fn is_silent(error: &RouteError) -> bool {
    matches!(error, RouteError::Store(error) if matches!(**error, StoreError::Unavailable { .. }))
}

/// Counts the messages of topics by state, as the store has them or as they were counted lately.
#[derive(Clone)]
pub struct TopicCounter {
    dispatcher: Arc<Dispatcher>,
}

impl TopicCounter {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self { dispatcher }
    }

    async fn count_shards(&self, shards: &[Shard]) -> Result<Vec<Option<ShardCounts>>, RouteError> {
        let (mut counts, context) = (Vec::with_capacity(shards.len()), &self.dispatcher.context);
        for some in shards.chunks(SHARDS_PER_CALL) {
            counts.extend(context.schedule.counts(some, context.clock.now()).await?);
        }
        Ok(counts)
    }

    /// Counts one topic, without shards whose server does not answer where others do.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn count(&self, topic: &TopicName) -> Result<TopicCounts, RouteError> {
        let mut recounts = 0;
        loop {
            let record = self.dispatcher.current_topic(topic).await?;
            match self.count_record(record).await {
                Err(error) if error.is_misrouted() && recounts < RECOUNTS_MAX => {
                    tokio::time::sleep(RECOUNT_WAIT * recounts).await;
                    recounts += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Counts the shards of this record of a topic.
    ///
    /// # Errors
    ///
    /// The store's; [`RouteError::is_misrouted`]: the topic is another by now.
    async fn count_record(&self, record: Arc<TopicRecord>) -> Result<TopicCounts, RouteError> {
        let wanted: Vec<Shard> = record.routing.all(&record.name).collect();
        let shards = self.count_shards(&wanted).await?;
        Ok(TopicCounts::new(record, shards))
    }

    /// Every topic as it was counted in the last seconds, for this node's gauges or here, in the order of their names.
    /// Only `active` topics are counted again, and shards without a recent count. Where none of those answers, the
    /// others were counted all the same.
    ///
    /// # Errors
    ///
    /// The store's. A topic that goes away meanwhile is left out.
    pub async fn count_recent(&self, active: &HashSet<TopicName>) -> Result<Vec<TopicCounts>, RouteError> {
        let records: Vec<Arc<TopicRecord>> = self.dispatcher.catalog.all().values().cloned().collect();
        let context = &self.dispatcher.context;
        let (recent, now) = (&context.meters.surveys, context.clock.now());
        let mut known = Vec::with_capacity(records.len());
        let mut unknown = Vec::new();
        for record in &records {
            let shards: Vec<Shard> = record.routing.all(&record.name).collect();
            let counts = if active.contains(&record.name) { vec![None; shards.len()] } else { recent.of(now, &shards) };
            let missing = shards.into_iter().zip(&counts).filter(|(_, count)| count.is_none());
            unknown.extend(missing.map(|(shard, _)| shard));
            known.push(counts);
        }
        let counted = match self.count_shards(&unknown).await {
            Ok(counted) => counted,
            Err(error) if error.is_misrouted() => return self.count_all().await,
            // The store fails the call where no server of its shards answers, and those of the others are known.
            Err(error) if is_silent(&error) && known.iter().flatten().any(Option::is_some) => vec![None; unknown.len()],
            Err(error) => return Err(error),
        };
        recent.keep(now, unknown.iter().zip(&counted).filter_map(|(shard, count)| Some((shard, count.as_ref()?))));
        let mut counted = counted.into_iter();
        let counts = |(record, mut counts): (Arc<TopicRecord>, Vec<Option<ShardCounts>>)| {
            counts.iter_mut().filter(|count| count.is_none()).for_each(|count| *count = counted.next().flatten());
            TopicCounts::new(record, counts)
        };
        Ok(records.into_iter().zip(known).map(counts).collect())
    }

    /// Counts every topic as [`Self::count`] does one, in the order of their names.
    ///
    /// # Errors
    ///
    /// The store's. A topic that goes away meanwhile is left out.
    pub async fn count_all(&self) -> Result<Vec<TopicCounts>, RouteError> {
        // As it was known, where the catalog does not answer and shards may.
        let _ = tokio::time::timeout(FRESH_WAIT, self.dispatcher.catalog.refresh()).await;
        let topics = self.dispatcher.catalog.all();
        let records: Vec<Arc<TopicRecord>> = topics.values().cloned().collect();
        let wanted: Vec<Shard> = records.iter().flat_map(|record| record.routing.all(&record.name)).collect();
        match self.count_shards(&wanted).await {
            Ok(counts) => {
                let mut counts = counts.into_iter();
                let counts = |record: Arc<TopicRecord>| {
                    let shards = counts.by_ref().take(record.routing.reach() as usize).collect();
                    TopicCounts::new(record, shards)
                };
                Ok(records.into_iter().map(counts).collect())
            }
            Err(error) if error.is_misrouted() => {
                let mut all_counts = Vec::new();
                for name in records.iter().map(|record| &record.name) {
                    match self.count(name).await {
                        Ok(counts) => all_counts.push(counts),
                        Err(RouteError::UnknownTopic(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(all_counts)
            }
            Err(error) => Err(error),
        }
    }
}
