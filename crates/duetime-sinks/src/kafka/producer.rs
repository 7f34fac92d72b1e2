//! One producer of the client library, and the errors that the library reports next to its answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_settings::Redactor;
use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{FutureProducer, Producer as _};
use tokio::time::Instant;

/// Longest text of what the client library or a broker said.
pub(super) const REASON_BYTES_MAX: usize = 300;

/// A producer that brings some messages through and others not is replaced when it is older than this.
const PART_PATIENCE: Duration = Duration::from_secs(60);
/// Brokers that took something within this are given more without asking whether they are there.
const GREETED_FOR: Duration = Duration::from_millis(200);

/// An error that the library reported of a cluster.
#[derive(Clone, Debug)]
pub(super) struct KafkaClientError {
    /// True if all brokers are down and no other reason is known.
    pub(super) is_down: bool,
    pub(super) text: String,
}

/// Remembers the last error: the answers themselves say only that time ran out.
#[derive(Debug)]
pub(super) struct ErrorListener {
    redactor: Redactor,
    last: Mutex<Option<KafkaClientError>>,
}

impl ClientContext for ErrorListener {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, text: &str) {
        let text = self.redactor.redact(text, REASON_BYTES_MAX);
        tracing::debug!(facility, text, "kafka client");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let text = self.redactor.redact(reason, REASON_BYTES_MAX);
        let code = error.rdkafka_error_code();
        tracing::debug!(?code, text, "kafka client reports an error");
        let is_down = code == Some(RDKafkaErrorCode::AllBrokersDown);
        let mut last = self.last.lock();
        // That all brokers are down comes after each one's own reason, which says more.
        if !is_down || last.is_none() {
            *last = Some(KafkaClientError { is_down, text });
        }
    }
}

/// One producer of the client library, and the errors that it reports.
pub(super) struct Producer {
    listener: Arc<ErrorListener>,
    /// Empty only while it is dropped.
    inner: Option<FutureProducer<ErrorListenerHandle>>,
    born: Instant,
    /// How long it may take until it sends its first message.
    patience: Duration,
    accepted: Mutex<Option<Instant>>,
    spent: AtomicBool,
}

/// The context that the library owns; the producer shares its listener.
pub(super) struct ErrorListenerHandle(Arc<ErrorListener>);

impl ClientContext for ErrorListenerHandle {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.0.log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl Producer {
    /// Starts the library's threads, which then connect; `patience` is how long that may take.
    pub(super) fn start(config: &ClientConfig, redactor: &Redactor, patience: Duration) -> KafkaResult<Self> {
        let listener = Arc::new(ErrorListener { redactor: redactor.clone(), last: Mutex::default() });
        let inner = config.create_with_context(ErrorListenerHandle(listener.clone()))?;
        Ok(Self {
            listener,
            inner: Some(inner),
            born: Instant::now(),
            patience,
            accepted: Mutex::default(),
            spent: AtomicBool::new(false),
        })
    }

    pub(super) fn inner(&self) -> &FutureProducer<ErrorListenerHandle> {
        self.inner.as_ref().expect("it is taken only at the end")
    }

    /// The last error that the library reported.
    pub(super) fn last_error(&self) -> Option<KafkaClientError> {
        self.listener.last.lock().clone()
    }

    /// Records that a message was accepted, and forgets earlier errors.
    pub(super) fn took(&self) {
        *self.listener.last.lock() = None;
        *self.accepted.lock() = Some(Instant::now());
    }

    /// Whether its brokers can be reached, going by what it brought through last.
    pub(super) fn is_connected(&self) -> bool {
        self.accepted.lock().is_some_and(|last| last.elapsed() < GREETED_FOR) && self.last_error().is_none()
    }

    /// A message given to it at `given` was not answered in time.
    ///
    /// The library deals with most that can happen to an idempotent producer, but not with a broker
    /// that forgot it: it then sends the same over and over, and reports it to nobody. So a producer that
    /// brought nothing through for this long is used no more, unless it may still be on its way to
    /// the brokers; the next one costs a few connections. One that brings only a part through may
    /// be forgotten by a single broker, or that broker may be away: it is tried for a while.
    pub(super) fn timed_out(&self, given: Instant) {
        let useless = match *self.accepted.lock() {
            Some(last) => last < given || self.born.elapsed() > PART_PATIENCE,
            None => self.born.elapsed() > self.patience,
        };
        if useless {
            self.give_up();
        }
    }

    /// It is used no more.
    pub(super) fn give_up(&self) {
        self.spent.store(true, Ordering::Relaxed);
    }

    /// Whether it is to be used no more.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed) || self.inner().client().fatal_error().is_some()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // The library waits for its threads, so this thread does not wait for the library. Where
        // there is no further thread, it does.
        let inner = self.inner.take();
        let _ = std::thread::Builder::new().name("kafka-end".to_owned()).spawn(move || drop(inner));
    }
}
