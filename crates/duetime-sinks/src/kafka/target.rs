//! Sinks on one cluster: a topic's settings, and what they are checked against.
//!
//! Upstream: `registry`. Downstream: `call`, `client`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Delivery, Sink, TopicName, Verdict};
use serde_json::{Map, Value};

use super::call;
use super::client::{Checked, KafkaTarget};
use super::config::{KIND, KafkaSettings};
use crate::settings;
use crate::target::Target;
use crate::template::Template;

/// Messages in one call.
const BATCH_MAX: usize = 256;
/// Calls in flight for one topic.
const CALLS_MAX: usize = 8;

#[async_trait]
impl Target for KafkaTarget {
    fn bind(self: Arc<Self>, name: &TopicName, given: &Map<String, Value>) -> Result<Arc<dyn Sink>, String> {
        let settings: KafkaSettings = settings::read(KIND, KafkaSettings::KNOWN, given)?;
        let topic = Template::parse(&settings.topic).map_err(|error| format!("topic {error}"))?;
        let key = Template::parse(&settings.key).map_err(|error| format!("key {error}"))?;
        if settings.topic.is_empty() || topic.literals().any(|text| text.chars().any(|c| call::plain(c) != c)) {
            let given = &settings.topic;
            return Err(format!("topic {given:?} is refused; write letters, digits, \".\", \"_\" and \"-\""));
        }
        let constant = (!topic.varies()).then(|| topic.of_topic(name, call::plain, ""));
        Ok(Arc::new(KafkaSink { target: self, settings: Checked { topic, key }, constant }))
    }

    async fn check(&self) -> Result<(), String> {
        self.topics().await.map(drop)
    }
}

#[derive(Debug)]
struct KafkaSink {
    target: Arc<KafkaTarget>,
    settings: Checked,
    /// The topic over there, if it is the same for all messages.
    constant: Option<String>,
}

#[async_trait]
impl Sink for KafkaSink {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn batch_max(&self) -> usize {
        BATCH_MAX
    }

    fn calls_max(&self) -> usize {
        CALLS_MAX
    }

    fn max_probe_wait(&self) -> Duration {
        self.target.config.max_probe_wait.0
    }

    async fn reach(&self) -> Result<(), String> {
        self.target.reach(self.constant.as_ref()).await
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        call::deliver(&self.target, &self.settings, batch).await
    }

    /// Besides the connection: whether the topic is there, if it does not vary.
    async fn check(&self) -> Result<(), String> {
        let known = self.target.topics().await?;
        match &self.constant {
            Some(topic) if !known.contains(topic) => Err(format!(
                "Kafka has no topic {topic:?}, or does not show it to this user; create it, or fix `topic`"
            )),
            _ => Ok(()),
        }
    }
}
