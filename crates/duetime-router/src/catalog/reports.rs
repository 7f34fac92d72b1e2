//! Notes what is wrong with topics and shards, in the log and the metrics, and what callers are answered then.
//!
//! Upstream: `route` and `consistency`, which find it. Downstream: the catalog's issues.

use std::sync::Arc;

use duetime_core::{StoreError, TopicName};
use duetime_metrics::Meters;
use tracing::{error, info};

use crate::catalog::Catalog;
use crate::error::RouteError;

/// Notes what is wrong with topics and shards, in the log and the metrics, and what callers are answered then.
#[derive(Clone)]
pub(crate) struct Reports {
    catalog: Arc<Catalog>,
    meters: Arc<Meters>,
}

impl Reports {
    pub(crate) fn new(catalog: Arc<Catalog>, meters: Arc<Meters>) -> Self {
        Self { catalog, meters }
    }

    /// The topic's shards are of a later life, or know of a later change of their number, than its record, and hold so
    /// many messages; `None`: they are not.
    pub(crate) fn later(&self, topic: &TopicName, later: Option<u64>) {
        let issues = self.catalog.issues();
        match later {
            Some(messages) if issues.set_outdated(topic, messages) => {
                error!(
                    %topic, messages,
                    "the catalog is older than the shards of this topic, which have a later record; adopt the topic"
                );
            }
            Some(_) => {}
            None if issues.is_outdated(topic) => {
                issues.agree(topic);
                info!(%topic, "the record of this topic and its shards agree again");
            }
            None => {}
        }
        self.meters.topic_issues("outdated", issues.count_outdated());
    }

    /// So many of the topic's messages are on their way to a shard that it does not have.
    pub(crate) fn stranded(&self, topic: &TopicName, messages: u64) {
        let issues = self.catalog.issues();
        if issues.strand(topic, messages) {
            match messages {
                0 => info!(%topic, "the messages that were on their way to no shard are home"),
                _ => error!(%topic, messages, "messages are on their way to a shard that the topic does not have"),
            }
        }
        self.meters.topic_issues("stranded", issues.count_stranded());
    }

    /// Notes that a shard is of a newer incarnation than the record in the catalog, which was read again before.
    pub(crate) fn outdated(&self, topic: &TopicName) -> StoreError {
        // How many messages it is about, the next review says.
        self.later(topic, Some(self.catalog.issues().messages_of_later(topic)));
        StoreError::Outdated(topic.to_string())
    }

    /// Notes that a shard that a call went to is lost.
    pub(crate) fn lost(&self, topic: &TopicName, index: u32) -> StoreError {
        if self.catalog.issues().lose_one(topic, index) {
            error!(%topic, index, "shard is lost: its server came back without it");
        }
        self.meters.shards_lost(topic, self.catalog.issues().count_lost(topic));
        StoreError::Lost(format!("{topic}:{index}"))
    }

    /// Why there is no such topic.
    pub(crate) fn unknown(&self, topic: &TopicName) -> RouteError {
        self.catalog.issues().of(topic).map_or_else(|| RouteError::UnknownTopic(topic.clone()), RouteError::from)
    }
}
