//! What can be counted: messages by state per topic and per shard.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::ShardCounts;
use duetime_core::{Shard, TopicName, TopicRecord};

use crate::error::RouteError;
use crate::route::{Dispatcher, FRESH_WAIT};

/// Shards one call to the store counts.
const SHARDS_PER_CALL: usize = 1024;

/// How often the shards of a topic are counted again because others delete and create it meanwhile.
const RECOUNTS_MAX: u32 = 4;
/// Wait before it, from the second time on; longer each time.
const RECOUNT_WAIT: Duration = Duration::from_millis(10);

/// Counts of a topic.
#[derive(Clone, Debug)]
pub struct TopicSurvey {
    /// The topic.
    pub record: Arc<TopicRecord>,
    /// All shards that answered together; the head is the earliest.
    pub total: ShardCounts,
    /// Shard by shard, from 0; `None`: its server does not answer at present.
    pub shards: Vec<Option<ShardCounts>>,
}

impl TopicSurvey {
    fn new(record: Arc<TopicRecord>, shards: Vec<Option<ShardCounts>>) -> Self {
        Self { total: sum(shards.iter().flatten()), shards, record }
    }

    /// Shards that are not in the total.
    #[must_use]
    pub fn silent(&self) -> usize {
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

/// Counts the messages of topics by state, as the store has them or as they were counted lately.
#[derive(Clone)]
pub struct Surveyor {
    dispatcher: Arc<Dispatcher>,
}

impl Surveyor {
    pub(crate) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self { dispatcher }
    }

    async fn survey_shards(&self, shards: &[Shard]) -> Result<Vec<Option<ShardCounts>>, RouteError> {
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
    pub async fn survey(&self, topic: &TopicName) -> Result<TopicSurvey, RouteError> {
        let mut recounts = 0;
        loop {
            let record = self.dispatcher.present_topic(topic).await?;
            match self.survey_record(record).await {
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
    async fn survey_record(&self, record: Arc<TopicRecord>) -> Result<TopicSurvey, RouteError> {
        let wanted: Vec<Shard> = record.routing.all(&record.name).collect();
        let shards = self.survey_shards(&wanted).await?;
        Ok(TopicSurvey::new(record, shards))
    }

    /// Every topic as it was counted in the last seconds, for this node's gauges or here, in the order of their names.
    /// Only `active` topics are counted anew, and shards that nobody has counted lately.
    ///
    /// # Errors
    ///
    /// The store's. A topic that goes away meanwhile is left out.
    pub async fn survey_recent(&self, active: &HashSet<TopicName>) -> Result<Vec<TopicSurvey>, RouteError> {
        let records: Vec<Arc<TopicRecord>> = self.dispatcher.catalog.all().values().cloned().collect();
        let context = &self.dispatcher.context;
        let (surveys, now) = (&context.meters.surveys, context.clock.now());
        let mut known = Vec::with_capacity(records.len());
        let mut unknown = Vec::new();
        for record in &records {
            let shards: Vec<Shard> = record.routing.all(&record.name).collect();
            let counts =
                if active.contains(&record.name) { vec![None; shards.len()] } else { surveys.of(now, &shards) };
            let missing = shards.into_iter().zip(&counts).filter(|(_, count)| count.is_none());
            unknown.extend(missing.map(|(shard, _)| shard));
            known.push(counts);
        }
        let counted = match self.survey_shards(&unknown).await {
            Ok(counted) => counted,
            Err(error) if error.is_misrouted() => return self.survey_all().await,
            Err(error) => return Err(error),
        };
        surveys.keep(now, unknown.iter().zip(&counted).filter_map(|(shard, count)| Some((shard, count.as_ref()?))));
        let mut counted = counted.into_iter();
        let survey = |(record, mut counts): (Arc<TopicRecord>, Vec<Option<ShardCounts>>)| {
            counts.iter_mut().filter(|count| count.is_none()).for_each(|count| *count = counted.next().flatten());
            TopicSurvey::new(record, counts)
        };
        Ok(records.into_iter().zip(known).map(survey).collect())
    }

    /// Counts every topic as [`Self::survey`] does one, in the order of their names.
    ///
    /// # Errors
    ///
    /// The store's. A topic that goes away meanwhile is left out.
    pub async fn survey_all(&self) -> Result<Vec<TopicSurvey>, RouteError> {
        // As it was known, where the catalogue does not answer and shards may.
        let _ = tokio::time::timeout(FRESH_WAIT, self.dispatcher.catalog.refresh()).await;
        let topics = self.dispatcher.catalog.all();
        let records: Vec<Arc<TopicRecord>> = topics.values().cloned().collect();
        let wanted: Vec<Shard> = records.iter().flat_map(|record| record.routing.all(&record.name)).collect();
        match self.survey_shards(&wanted).await {
            Ok(counts) => {
                let mut counts = counts.into_iter();
                let survey = |record: Arc<TopicRecord>| {
                    let shards = counts.by_ref().take(record.routing.reach() as usize).collect();
                    TopicSurvey::new(record, shards)
                };
                Ok(records.into_iter().map(survey).collect())
            }
            Err(error) if error.is_misrouted() => {
                let mut surveys = Vec::new();
                for name in records.iter().map(|record| &record.name) {
                    match self.survey(name).await {
                        Ok(survey) => surveys.push(survey),
                        Err(RouteError::UnknownTopic(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(surveys)
            }
            Err(error) => Err(error),
        }
    }
}
