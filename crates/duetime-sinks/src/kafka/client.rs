//! One cluster: its producers, the topics there, and what is wrong with it.
//!
//! Upstream: `target`, `call`. Downstream: `producer`, which one connection of the client library is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_settings::Redactor;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::Producer as _;

use super::config::KafkaConfig;
use super::producer::{Producer, REASON_BYTES_MAX};
use super::verdict;
use crate::fault::SinkFault;
use crate::shared_connection::SharedConnection;
use crate::template::Template;

/// A topic's settings, checked.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) topic: Template,
    pub(super) key: Template,
}

/// A named sink of this type.
pub(crate) struct KafkaTarget {
    pub(super) config: KafkaConfig,
    together: ProducerEntry,
    alone: ProducerEntry,
    redactor: Redactor,
}

/// A producer's settings, and the one that is in use.
struct ProducerEntry {
    client: ClientConfig,
    link: SharedConnection<Producer>,
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batching {
    /// In the library's batches.
    Together,
    /// Each in a batch of its own: a broker takes or refuses a batch as a whole.
    Alone,
}

impl std::fmt::Debug for KafkaTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaTarget").field("config", &self.config).finish_non_exhaustive()
    }
}

impl KafkaTarget {
    /// Checks the configuration; opens no connection.
    pub(crate) fn new(config: &KafkaConfig) -> Result<Self, SinkFault> {
        config.check()?;
        let redactor = Redactor::new(config.secrets());
        let together = config.client(&redactor)?;
        let mut alone = together.clone();
        alone.set("batch.num.messages", "1");
        let entry = |client| ProducerEntry { client, link: SharedConnection::default() };
        Ok(Self { config: config.clone(), together: entry(together), alone: entry(alone), redactor })
    }

    pub(super) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// The producer for messages that travel this way.
    pub(super) async fn producer(&self, batching: Batching) -> Result<Arc<Producer>, String> {
        let ProducerEntry { client, link } = match batching {
            Batching::Together => &self.together,
            Batching::Alone => &self.alone,
        };
        let start = async || {
            Producer::start(client, &self.redactor, self.config.connect_timeout + self.config.timeout)
                .map_err(|error| format!("the Kafka client does not start: {}", self.redact(&error)))
        };
        let producer = link.get(start).await?;
        if !producer.is_spent() {
            return Ok(producer);
        }
        link.give_up(&producer).await;
        link.get(start).await
    }

    pub(super) fn redact(&self, error: &KafkaError) -> String {
        // The text of a refused property has its value in it.
        if let KafkaError::ClientConfig(_, said, name, _) = error {
            return self.redactor.redact(&format!("{name}: {said}"), REASON_BYTES_MAX);
        }
        self.redactor.redact(&error.to_string(), REASON_BYTES_MAX)
    }

    /// The sentence for an error of the whole cluster.
    pub(super) fn explain(&self, producer: &Producer, code: RDKafkaErrorCode) -> String {
        let brokers = &self.config.brokers;
        let cause = producer.last_error().map_or_else(|| code.to_string(), |last_error| last_error.text);
        match code {
            RDKafkaErrorCode::MessageTimedOut => {
                let wait = self.config.timeout.as_millis();
                format!("{brokers} did not acknowledge within {wait} ms: {cause}")
            }
            _ if verdict::met(code) == verdict::ErrorScope::Cluster => format!("{brokers} cannot be used: {cause}"),
            _ => code.to_string(),
        }
    }

    /// Whether brokers can be reached: what is given to the library before waits there, and nobody can say later
    /// whether it was sent. They are asked for the topic that something is about to be sent to, if it is always the same.
    pub(super) async fn reach(&self, topic: Option<&String>) -> Result<(), String> {
        let producer = self.producer(Batching::Together).await?;
        let connected = producer.is_connected()
            || self.answers_within(&producer, topic.cloned(), self.config.connect_timeout).await;
        if connected { Ok(()) } else { Err(self.explain(&producer, RDKafkaErrorCode::AllBrokersDown)) }
    }

    /// `of`: one topic, or all.
    async fn answers_within(&self, producer: &Arc<Producer>, of: Option<String>, within: Duration) -> bool {
        let asking = producer.clone();
        // The library answers this question on the thread that asks.
        let asked = move || asking.inner().client().fetch_metadata(of.as_deref(), within).is_ok();
        tokio::task::spawn_blocking(asked).await.unwrap_or_default()
    }

    /// The names of all topics that the user may see. To ask for one by name might make it.
    pub(super) async fn topics(&self) -> Result<BTreeSet<String>, String> {
        let producer = self.producer(Batching::Together).await?;
        let (asking, within) = (producer.clone(), self.config.connect_timeout);
        // The library answers this question on the thread that asks.
        let asked = tokio::task::spawn_blocking(move || {
            let known = asking.inner().client().fetch_metadata(None, within)?;
            Ok(known.topics().iter().map(|topic| topic.name().to_owned()).collect())
        });
        match asked.await {
            Ok(Ok(known)) => Ok(known),
            Ok(Err::<_, KafkaError>(error)) => {
                tracing::debug!(%error, "no answer from Kafka");
                // That brokers are down is said of silent ones too.
                let cause = producer.last_error().filter(|last_error| !last_error.is_down);
                let cause = cause.map(|last_error| last_error.text).unwrap_or_else(|| {
                    let waited = within.as_millis();
                    format!("no answer within {waited} ms; fix host and port, or see if it wants `tls` or `sasl`")
                });
                let remedy = remedy(&cause).unwrap_or_default();
                Err(format!("{} does not answer as a Kafka cluster: {cause}{remedy}", self.config.brokers))
            }
            Err(_) => Err("the Kafka client could not be asked".to_owned()),
        }
    }
}

/// What to do about what only this client library says so, and in words alone: nothing but the advice rests on them.
fn remedy(cause: &str) -> Option<&'static str> {
    const REMEDIES: [(&str, &str); 7] = [
        ("SASL authentication", "; check `sasl`"),
        ("Unsupported SASL mechanism", "; check `sasl.mechanism`"),
        ("certificate verify failed", "; set `ca_file` to a PEM of the authority that signed its certificate"),
        ("Failed to resolve", "; fix the host"),
        ("SSL handshake failed", "; fix the port, or take out `tls`"),
        ("Disconnected", "; brokers that want TLS or a login do this: see to `tls` and `sasl`"),
        ("ApiVersionRequest failed", "; fix the port, or see to `tls` and `sasl`"),
    ];
    REMEDIES.iter().find(|(part, _)| cause.contains(part)).map(|(_, remedy)| *remedy)
}
