//! One producer of the client library, and what it says beside its answers.

use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::producer::{FutureProducer, Producer as _};

use crate::secret::Scrubber;

/// Longest text of what the client library or a broker said.
pub(super) const SAID_BYTES: usize = 300;

/// Keeps the last complaint: the answers themselves say only that time ran out.
#[derive(Debug)]
pub(super) struct Ear {
    scrubber: Scrubber,
    last: Mutex<Option<String>>,
}

impl ClientContext for Ear {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, text: &str) {
        let text = self.scrubber.clean(text, SAID_BYTES);
        tracing::debug!(facility, text, "kafka client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let text = self.scrubber.clean(reason, SAID_BYTES);
        tracing::debug!(code = ?error.rdkafka_error_code(), text, "kafka client complains");
        // That all brokers are down comes after each one's own reason, which says more.
        if !text.ends_with("brokers are down") || self.last.lock().is_none() {
            *self.last.lock() = Some(text);
        }
    }
}

/// See the module.
pub(super) struct Producer {
    ear: Arc<Ear>,
    pub(super) inner: FutureProducer<EarHandle>,
}

/// The context that the library owns; the ear stays ours too.
pub(super) struct EarHandle(Arc<Ear>);

impl ClientContext for EarHandle {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.0.log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl Producer {
    /// Starts the library's threads, which then connect.
    pub(super) fn start(config: &ClientConfig, scrubber: &Scrubber) -> KafkaResult<Self> {
        let ear = Arc::new(Ear { scrubber: scrubber.clone(), last: Mutex::default() });
        let inner = config.create_with_context(EarHandle(ear.clone()))?;
        Ok(Self { ear, inner })
    }

    /// What was complained about last.
    pub(super) fn complaint(&self) -> Option<String> {
        self.ear.last.lock().clone()
    }

    /// A message was taken: older complaints say nothing any more.
    pub(super) fn content(&self) {
        *self.ear.last.lock() = None;
    }

    /// Whether it will never send again.
    pub(super) fn is_dead(&self) -> bool {
        self.inner.client().fatal_error().is_some()
    }
}
