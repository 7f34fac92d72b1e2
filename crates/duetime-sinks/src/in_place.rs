//! The sink `redis-stream` with `in_place`: the stream lies beside the shard, in the store's Redis.
//!
//! It says so ([`Sink::in_place`]) and does nothing else: the store moves the messages, in one atomic step.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::{Delivery, InPlace, Sink, TopicName, Verdict};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fault::SinkFault;
use crate::redis_stream::{KIND, RedisStreamConfig};
use crate::settings;
use crate::target::Target;

/// A named sink of this type.
#[derive(Debug)]
pub(crate) struct InPlaceTarget;

/// What a topic may set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct InPlaceSettings {
    /// Each shard's stream is cut to about this many entries, the oldest go first, read or not. Default: never.
    max_length: Option<u64>,
}

impl InPlaceTarget {
    /// Checks that nothing is set that only another server needs.
    pub(crate) fn new(config: &RedisStreamConfig) -> Result<Self, SinkFault> {
        if config.url.is_some() || config.certificates.ca_file.is_some() {
            let fault = "in_place means the store's own Redis; leave out url and ca_file, or in_place";
            return Err(SinkFault::at("in_place", fault));
        }
        Ok(Self)
    }
}

#[async_trait]
impl Target for InPlaceTarget {
    fn bind(self: Arc<Self>, _: &TopicName, given: &Map<String, Value>) -> Result<Arc<dyn Sink>, String> {
        let InPlaceSettings { max_length } = settings::read("redis-stream in place", &["max_length"], given)?;
        if max_length == Some(0) {
            return Err("max_length must be above 0".to_owned());
        }
        Ok(Arc::new(InPlaceSink(InPlace { max_length })))
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Debug)]
struct InPlaceSink(InPlace);

#[async_trait]
impl Sink for InPlaceSink {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn batch_max(&self) -> usize {
        duetime_core::limits::BATCH_ITEMS_MAX
    }

    fn calls_max(&self) -> usize {
        1
    }

    fn in_place(&self) -> Option<InPlace> {
        Some(self.0)
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        let reason = "this sink delivers inside the store; nothing is to be delivered to it".to_owned();
        vec![Verdict::Unavailable { reason }; batch.len()]
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bind(config: &str, settings: serde_json::Value) -> Result<Arc<dyn Sink>, String> {
        let config: RedisStreamConfig = toml::from_str(config).map_err(|error| error.to_string())?;
        let topic = TopicName::new("orders").unwrap();
        Arc::new(InPlaceTarget::new(&config).map_err(|fault| fault.text)?).bind(&topic, settings.as_object().unwrap())
    }

    #[test]
    fn it_says_how_the_store_hands_over_and_refuses_what_it_cannot_use() {
        let sink = bind("in_place = true", json!({ "max_length": 7 })).unwrap();
        assert_eq!(sink.in_place(), Some(InPlace { max_length: Some(7) }));
        for (config, settings, says) in [
            ("in_place = true\nurl = \"redis://h:1\"", json!({}), "leave out url"),
            ("in_place = true", json!({ "stream": "x" }), "unknown sink setting \"stream\""),
            ("in_place = true", json!({ "max_length": 0 }), "above 0"),
        ] {
            let error = bind(config, settings).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
