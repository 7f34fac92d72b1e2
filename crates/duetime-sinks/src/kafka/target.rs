//! One cluster: records from messages, and their verdicts.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::{Delivery, Sink, TopicName, Verdict};
use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureRecord, Producer as _};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::config::{KIND, KafkaConfig, KafkaSettings};
use super::producer::{Producer, SAID_BYTES};
use super::verdict;
use crate::link::Link;
use crate::registry::Target;
use crate::secret::Scrubber;
use crate::settings;
use crate::template::Template;

/// Messages in one call.
const BATCH_MAX: usize = 256;
/// Calls in flight for one topic.
const CALLS_MAX: usize = 8;
/// So many producers are tried for a call: one that its brokers no longer know, and its successor.
const PRODUCERS_MAX: usize = 2;
/// The library looks for messages whose time is over once a second, and is waited for that much longer:
/// this share of the time-out. After that a call is not its matter any more, for claims end too.
const LATE_SHARE: u32 = 4;
/// Longest name of a topic that Kafka takes.
const TOPIC_BYTES_MAX: usize = 249;

/// A named sink of this type.
pub(crate) struct KafkaTarget {
    config: KafkaConfig,
    client: ClientConfig,
    link: Link<Producer>,
    scrubber: Scrubber,
}

impl std::fmt::Debug for KafkaTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaTarget").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What became of a message with one producer.
enum Answer {
    /// The verdict.
    Final(Verdict),
    /// It was not taken because this producer is of no more use; the verdict if its successor is not either.
    OfProducer(Verdict),
}

impl Answer {
    fn verdict(self) -> Verdict {
        match self {
            Self::Final(verdict) | Self::OfProducer(verdict) => verdict,
        }
    }
}

/// A message on its way to a topic, or what became of it already.
type Sent = Result<(String, rdkafka::producer::DeliveryFuture), Answer>;

impl KafkaTarget {
    /// Checks the configuration; opens no connection.
    pub(crate) fn new(config: &KafkaConfig) -> Result<Self, String> {
        config.check()?;
        let scrubber = Scrubber::new(config.secrets());
        let client = config.client(&scrubber)?;
        Ok(Self { config: config.clone(), client, link: Link::default(), scrubber })
    }

    async fn producer(&self) -> Result<Arc<Producer>, String> {
        let start = async || {
            Producer::start(&self.client, &self.scrubber, self.config.connect_timeout + self.config.timeout)
                .map_err(|error| format!("the Kafka client does not start: {}", self.clean(&error)))
        };
        let producer = self.link.get(start).await?;
        if !producer.is_spent() {
            return Ok(producer);
        }
        self.link.give_up(&producer).await;
        self.link.get(start).await
    }

    fn clean(&self, error: &KafkaError) -> String {
        // The text of a refused property has its value in it.
        if let KafkaError::ClientConfig(_, said, name, _) = error {
            return self.scrubber.clean(&format!("{name}: {said}"), SAID_BYTES);
        }
        self.scrubber.clean(&error.to_string(), SAID_BYTES)
    }

    /// The sentence for an error of the whole cluster.
    fn explain(&self, producer: &Producer, code: RDKafkaErrorCode) -> String {
        let brokers = &self.config.brokers;
        let cause = producer.complaint().unwrap_or_else(|| code.to_string());
        match code {
            RDKafkaErrorCode::MessageTimedOut => {
                let wait = self.config.timeout.as_millis();
                format!("{brokers} did not acknowledge within {wait} ms: {cause}")
            }
            _ if verdict::met(code) == verdict::Met::Cluster => format!("{brokers} cannot be used: {cause}"),
            _ => code.to_string(),
        }
    }

    fn of_error(&self, producer: &Producer, error: &KafkaError, topic: &str, varies: bool) -> Answer {
        if *error == KafkaError::Canceled {
            let reason = "the Kafka client ended before it was answered".to_owned();
            return Answer::Final(Verdict::Unavailable { reason, after: None });
        }
        let Some(code) = error.rdkafka_error_code() else {
            let reason = format!("it cannot be made a record: {}", self.clean(error));
            return Answer::Final(Verdict::Rejected { reason });
        };
        let verdict = verdict::of_code(code, &self.explain(producer, code), topic, varies);
        if !verdict::ends_producer(code) {
            return Answer::Final(verdict);
        }
        tracing::debug!(?code, "another Kafka producer takes over");
        producer.give_up();
        Answer::OfProducer(verdict)
    }

    fn send(&self, producer: &Producer, settings: &Checked, message: &Delivery) -> Sent {
        let refused = |reason| Answer::Final(Verdict::Rejected { reason });
        let topic = topic_of(&settings.topic, message).map_err(refused)?;
        let key = settings.key.fill(message, |c| c).map_err(refused)?;
        let mut record = FutureRecord::<str, [u8]>::to(&topic).payload(&message.payload).headers(headers(message));
        if !key.is_empty() {
            record = record.key(&key);
        }
        match producer.inner().send_result(record) {
            Ok(sent) => Ok((topic, sent)),
            Err((error, _)) => Err(self.of_error(producer, &error, &topic, settings.topic.varies())),
        }
    }

    /// Sends by one producer; as many answers as messages, in order, and all `until` then.
    async fn send_all(
        &self,
        producer: &Producer,
        settings: &Checked,
        messages: impl Iterator<Item = &Delivery>,
        until: Instant,
    ) -> Vec<Answer> {
        let (varies, given) = (settings.topic.varies(), Instant::now());
        let timed_out = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        // All are given to the library before the first answer is awaited: it batches them itself.
        let sent: Vec<Sent> = messages.map(|message| self.send(producer, settings, message)).collect();
        let answers: FuturesOrdered<_> = sent
            .into_iter()
            .map(async |sent| match sent {
                Err(answer) => answer,
                Ok((topic, answer)) => {
                    let error = match tokio::time::timeout_at(until, answer).await {
                        Ok(Ok(Ok(_))) => {
                            producer.took();
                            return Answer::Final(Verdict::Accepted);
                        }
                        Ok(Ok(Err((error, _)))) => error,
                        Ok(Err(_)) => KafkaError::Canceled,
                        Err(_) => timed_out.clone(),
                    };
                    if error == timed_out {
                        producer.timed_out(given);
                    }
                    self.of_error(producer, &error, &topic, varies)
                }
            })
            .collect();
        answers.collect().await
    }

    async fn deliver(self: &Arc<Self>, settings: &Checked, batch: &[Delivery]) -> Vec<Verdict> {
        let until = Instant::now() + self.config.timeout + self.config.timeout / LATE_SHARE;
        let mut answers: Vec<Answer> = Vec::new();
        for _ in 0..PRODUCERS_MAX {
            let open = |n: usize| answers.get(n).is_none_or(|answer| matches!(answer, Answer::OfProducer(_)));
            let open: Vec<usize> = (0..batch.len()).filter(|n| open(*n)).collect();
            if open.is_empty() {
                break;
            }
            let again = match self.producer().await {
                Ok(producer) => {
                    let again = self.send_all(&producer, settings, open.iter().map(|n| &batch[*n]), until).await;
                    if producer.is_spent() {
                        // Its successor finds the brokers while the engine waits before it tries again.
                        let this = self.clone();
                        tokio::spawn(async move { this.producer().await.map(drop) });
                    }
                    again
                }
                Err(reason) => {
                    let away = Verdict::Unavailable { reason, after: None };
                    open.iter().map(|_| Answer::Final(away.clone())).collect()
                }
            };
            if answers.is_empty() {
                answers = again;
            } else {
                open.into_iter().zip(again).for_each(|(n, answer)| answers[n] = answer);
            }
        }
        answers.into_iter().map(Answer::verdict).collect()
    }
}

fn topic_of(template: &Template, message: &Delivery) -> Result<String, String> {
    let topic = template.fill(message, plain)?;
    if topic.is_empty() || topic.len() > TOPIC_BYTES_MAX || topic == "." || topic == ".." {
        return Err(format!("Kafka takes no topic called {topic:?}"));
    }
    Ok(topic)
}

/// What a topic's name may contain.
fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' }
}

fn headers(message: &Delivery) -> OwnedHeaders {
    let (attempt, due_at) = (message.attempt.to_string(), message.due_at.as_millis().to_string());
    let delivery_id = message.delivery_id();
    let own = [
        ("duetime-topic", message.topic.as_str()),
        ("duetime-id", message.id.as_str()),
        ("duetime-delivery-id", delivery_id.as_str()),
        ("duetime-attempt", attempt.as_str()),
        ("duetime-due-at", due_at.as_str()),
    ];
    let given = message.headers.iter().filter(|(name, _)| !name.to_ascii_lowercase().starts_with("duetime-"));
    let mut headers = OwnedHeaders::new_with_capacity(own.len() + message.headers.iter().count());
    for (key, value) in own.into_iter().chain(given) {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    headers
}

#[async_trait]
impl Target for KafkaTarget {
    fn bind(self: Arc<Self>, _: &TopicName, given: &Map<String, Value>) -> Result<Arc<dyn Sink>, String> {
        let settings: KafkaSettings = settings::read(KIND, KafkaSettings::KNOWN, given)?;
        let topic = Template::parse(&settings.topic).map_err(|error| format!("topic {error}"))?;
        let key = Template::parse(&settings.key).map_err(|error| format!("key {error}"))?;
        if settings.topic.is_empty() || topic.literals().any(|text| text.chars().any(|c| plain(c) != c)) {
            let given = &settings.topic;
            return Err(format!("topic {given:?} is refused; write letters, digits, \".\", \"_\" and \"-\""));
        }
        Ok(Arc::new(KafkaSink { target: self, settings: Checked { topic, key } }))
    }

    async fn check(&self) -> Result<(), String> {
        let producer = self.producer().await?;
        let (asking, within) = (producer.clone(), self.config.connect_timeout);
        // The library answers this question on the thread that asks.
        let asked = tokio::task::spawn_blocking(move || {
            asking.inner().client().fetch_metadata(None, within).map(|known| known.brokers().len())
        });
        match asked.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::BrokerTransportFailure);
                let cause = producer.complaint().unwrap_or_else(|| code.to_string());
                Err(format!("{} does not answer as a Kafka cluster: {cause}", self.config.brokers))
            }
            Err(_) => Err("the Kafka client could not be asked".to_owned()),
        }
    }
}

#[derive(Debug)]
struct Checked {
    topic: Template,
    key: Template,
}

#[derive(Debug)]
struct KafkaSink {
    target: Arc<KafkaTarget>,
    settings: Checked,
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

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        self.target.deliver(&self.settings, batch).await
    }

    async fn check(&self) -> Result<(), String> {
        self.target.check().await
    }
}
