//! The sink `log`: each message is a line in the node's own log, or nothing is written of it.
//!
//! For trying things out and for measuring: it accepts everything at once.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::{Delivery, Sink, TopicName, Verdict};
use duetime_settings::Redactor;
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::info;

use crate::settings;
use crate::target::Target;

/// The type as in the configuration.
pub const KIND: &str = "log";

/// Most messages in one call: a whole claim.
const BATCH_MAX: usize = 256;
/// Calls at once. They take no time, so a few are enough.
const CALLS_MAX: usize = 4;

/// `type = "log"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Write nothing. Default `false`; set it to measure how fast the rest is.
    pub count_only: bool,
    /// How many bytes of each payload are shown. Default 200; 0 shows none, for payloads that must
    /// not appear in logs.
    #[serde(with = "duetime_core::units::size")]
    pub payload_bytes: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { count_only: false, payload_bytes: 200 }
    }
}

/// A named sink of this type: it is the same for all topics.
#[derive(Debug)]
pub struct LogTarget(pub LogConfig);

#[async_trait]
impl Target for LogTarget {
    fn bind(self: Arc<Self>, _: &TopicName, given: &Map<String, Value>) -> Result<Arc<dyn Sink>, String> {
        let _: Map<String, Value> = settings::read(KIND, &[], given)?;
        Ok(self)
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[async_trait]
impl Sink for LogTarget {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn batch_max(&self) -> usize {
        BATCH_MAX
    }

    fn calls_max(&self) -> usize {
        CALLS_MAX
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        if !self.0.count_only {
            let shown = usize::try_from(self.0.payload_bytes).unwrap_or(usize::MAX);
            for message in batch {
                let payload = &message.payload[..message.payload.len().min(shown)];
                let payload = Redactor::default().redact(&String::from_utf8_lossy(payload), shown);
                info!(
                    target: "duetime::sink::log",
                    topic = %message.topic,
                    id = %message.id,
                    attempt = message.attempt,
                    trace_id = message.trace(),
                    due_at = %message.due_at,
                    bytes = message.payload.len(),
                    payload,
                    "message handed over"
                );
            }
        }
        vec![Verdict::Accepted; batch.len()]
    }

    async fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use duetime_testkit::conformance::sink::{Part, Received, SinkWorld, message, run_all};

    use super::*;

    struct World(Arc<LogTarget>);

    #[async_trait]
    impl SinkWorld for World {
        fn lacks(&self) -> &'static [Part] {
            &[Part::Received, Part::RefusedMessage, Part::BehindProxy, Part::TakeDown]
        }

        fn sink(&self) -> Arc<dyn Sink> {
            self.0.clone().bind(&message("x", "").topic, &Map::new()).unwrap()
        }

        async fn received(&mut self) -> Option<Vec<Received>> {
            None
        }

        async fn take_down(&mut self) -> bool {
            false
        }

        async fn bring_back(&mut self) {}
    }

    #[tokio::test]
    async fn the_log_keeps_the_contract_of_a_sink() {
        for count_only in [false, true] {
            run_all(&mut World(Arc::new(LogTarget(LogConfig { count_only, ..LogConfig::default() })))).await;
        }
    }
}
