//! What can be counted: messages by state per topic and per shard, and how many fall due when.

use std::sync::Arc;

use duetime_core::store::Survey;
use duetime_core::{Shard, Timestamp, TopicName, TopicRecord};

use crate::error::RouteError;
use crate::router::Router;

/// Shards one call to the store counts.
const SHARDS_PER_CALL: usize = 1024;

/// Counts of a topic.
#[derive(Clone, Debug)]
pub struct TopicSurvey {
    /// The topic.
    pub record: Arc<TopicRecord>,
    /// All shards together; the head is the earliest.
    pub total: Survey,
    /// Shard by shard, from 0.
    pub shards: Vec<Survey>,
}

fn sum(shards: &[Survey]) -> Survey {
    shards.iter().fold(Survey::default(), |sum, one| Survey {
        scheduled: sum.scheduled + one.scheduled,
        due: sum.due + one.due,
        in_flight: sum.in_flight + one.in_flight,
        dead: sum.dead + one.dead,
        head: [sum.head, one.head].into_iter().flatten().min(),
    })
}

impl Router {
    async fn survey_shards(&self, shards: &[Shard]) -> Result<Vec<Survey>, RouteError> {
        let mut counts = Vec::with_capacity(shards.len());
        for some in shards.chunks(SHARDS_PER_CALL) {
            counts.extend(self.kit.tools.store.survey(some, self.kit.clock.now()).await?);
        }
        Ok(counts)
    }

    /// Counts one topic.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn survey(&self, topic: &TopicName) -> Result<TopicSurvey, RouteError> {
        let record = self.topic(topic).await?;
        match self.survey_record(record).await {
            Err(error) if error.is_misrouted() => {
                self.catalog.refresh().await?;
                let record = self.topic(topic).await?;
                self.survey_record(record).await
            }
            answer => answer,
        }
    }

    async fn survey_record(&self, record: Arc<TopicRecord>) -> Result<TopicSurvey, RouteError> {
        let wanted: Vec<Shard> = record.routing.all(&record.name).collect();
        let shards = self.survey_shards(&wanted).await?;
        Ok(TopicSurvey { total: sum(&shards), shards, record })
    }

    /// Counts every topic, in the order of their names.
    ///
    /// # Errors
    ///
    /// The store's. A topic that goes away meanwhile is left out.
    pub async fn survey_all(&self) -> Result<Vec<TopicSurvey>, RouteError> {
        let topics = self.catalog.all();
        let mut records: Vec<Arc<TopicRecord>> = topics.values().cloned().collect();
        records.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let wanted: Vec<Shard> = records.iter().flat_map(|record| record.routing.all(&record.name)).collect();
        match self.survey_shards(&wanted).await {
            Ok(counts) => {
                let mut counts = counts.into_iter();
                let survey = |record: Arc<TopicRecord>| {
                    let shards: Vec<Survey> = counts.by_ref().take(record.routing.reach() as usize).collect();
                    TopicSurvey { total: sum(&shards), shards, record }
                };
                Ok(records.into_iter().map(survey).collect())
            }
            Err(error) if error.is_misrouted() => {
                self.catalog.refresh().await?;
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

    /// How many messages of the topic are visible first in each bucket
    /// `edges[i] <= t < edges[i + 1]`.
    ///
    /// # Errors
    ///
    /// [`RouteError::UnknownTopic`], or the store's.
    pub async fn forecast(&self, topic: &TopicName, edges: &[Timestamp]) -> Result<Vec<u64>, RouteError> {
        let record = self.topic(topic).await?;
        let shards: Vec<Shard> = record.routing.all(topic).collect();
        let mut buckets = vec![0; edges.len().saturating_sub(1)];
        for some in shards.chunks(SHARDS_PER_CALL) {
            let counts = self.kit.tools.store.forecast(some, edges).await?;
            buckets.iter_mut().zip(counts).for_each(|(bucket, count)| *bucket += count);
        }
        Ok(buckets)
    }
}
