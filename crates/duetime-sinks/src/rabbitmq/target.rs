//! One broker: verdicts from what it said of each message.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Clock, Delivery, Sink, TopicName, Verdict};
use duetime_settings::Scrubber;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{ErrorKind, ExchangeKind};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};

use super::config::{KIND, RabbitMqConfig, RabbitMqSettings};
use super::connection::Connection;
use super::publish::{self, Outcome, Route};
use crate::fault::SinkFault;
use crate::settings;
use crate::shared_connection::SharedConnection;
use crate::target::Target;

/// Longest text of what the broker or the network said.
const REASON_BYTES_MAX: usize = 300;

/// A broker that does not open a channel within this does not answer at all.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// A payload above this may be above the broker's limit too.
const LARGE_BYTES: usize = 128 << 10;

/// A named sink of this type.
pub(crate) struct RabbitMqTarget {
    config: RabbitMqConfig,
    uri: AMQPUri,
    tls: OwnedTLSConfig,
    link: SharedConnection<Connection>,
    scrubber: Scrubber,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for RabbitMqTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitMqTarget").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What an error says of the messages it met.
#[derive(Clone)]
enum PublishErrorScope {
    /// One of them is not acceptable to the broker, but which?
    OneOfThem(String),
    /// The target as a whole cannot be used.
    Target(String),
}

impl RabbitMqTarget {
    /// Checks the configuration; opens no connection.
    pub(crate) fn new(config: &RabbitMqConfig, clock: Arc<dyn Clock>) -> Result<Self, SinkFault> {
        config.check()?;
        let uri = config.url.expose().parse::<AMQPUri>().map_err(|_| {
            let fault = format!("url {} is refused; write it as \"amqp://user:password@host:5672/vhost\"", config.url);
            SinkFault::at("url", fault)
        })?;
        let read = config.certificates.ca_file.as_ref().map(|file| file.read_text("ca_file")).transpose();
        let cert_chain = read.map_err(|fault| SinkFault::at("ca_file", fault))?;
        let scrubber = Scrubber::new(config.url.secrets());
        let tls = OwnedTLSConfig { identity: None, cert_chain };
        Ok(Self { config: config.clone(), uri, tls, link: SharedConnection::default(), scrubber, clock })
    }

    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let connect = async || {
            let place = &self.config.url;
            match tokio::time::timeout(self.config.connect_timeout, Connection::open(&self.uri, &self.tls)).await {
                Ok(Ok(connection)) => Ok(connection),
                Ok(Err(error)) => Err(format!("could not connect to {place}: {}", self.said(&error))),
                Err(_) => Err(format!("could not connect to {place} in time")),
            }
        };
        let connection = self.link.get(connect).await?;
        if connection.is_open() {
            return Ok(connection);
        }
        self.link.give_up(&connection).await;
        self.link.get(connect).await
    }

    fn said(&self, error: &lapin::Error) -> String {
        self.scrubber.clean(&error.to_string(), REASON_BYTES_MAX)
    }

    fn met(&self, error: &lapin::Error) -> PublishErrorScope {
        let said = self.said(error);
        match error.kind() {
            ErrorKind::SerialisationError(_) => PublishErrorScope::OneOfThem(said),
            ErrorKind::ProtocolError(error) => match error.kind() {
                AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::CONTENTTOOLARGE) => {
                    PublishErrorScope::OneOfThem(said)
                }
                AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND) => {
                    PublishErrorScope::Target(format!("{said}; declare the exchange, or fix `exchange` of the topic"))
                }
                AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED) => {
                    PublishErrorScope::Target(format!("{said}; give the user the right to write there"))
                }
                _ => PublishErrorScope::Target(said),
            },
            _ => PublishErrorScope::Target(format!("lost the connection to {}: {said}", self.config.url)),
        }
    }

    /// Publishes `messages` on a channel of their own. `Err`: none of them was sent.
    async fn attempt(&self, route: &Route, messages: &[&Delivery]) -> Result<Vec<Outcome>, String> {
        let connection = self.connection().await?;
        if let Some(why) = connection.blocked() {
            return Err(format!("the broker takes nothing for now: {}", self.scrubber.clean(&why, REASON_BYTES_MAX)));
        }
        let now = self.clock.now();
        let prepared = messages.iter().map(|message| route.prepare(message, now)).collect();
        let until = Instant::now() + self.config.timeout;
        let channel = match timeout_at(until, connection.channel()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => {
                self.link.give_up(&connection).await;
                return Err(self.said(&error));
            }
            Err(_) => return Err(self.silent(&connection).await),
        };
        let mut outcomes = publish::publish(&channel, route, messages, prepared, until).await;
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unconfirmed { .. })) {
            // Confirms that came say nothing of a broker that fell silent after them.
            if connection.blocked().is_some() || !self.answers(&connection).await {
                let why = self.silent(&connection).await;
                let unconfirmed = outcomes.iter_mut().filter(|outcome| matches!(outcome, Outcome::Unconfirmed { .. }));
                unconfirmed.for_each(|outcome| *outcome = Outcome::Silent(why.clone()));
            }
        } else if !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_))) {
            // A channel with confirms to come is not used again: they would be taken for those of other messages.
            connection.keep(channel);
        }
        Ok(outcomes)
    }

    /// Whether the broker answers at all: it opens a channel in a moment.
    async fn answers(&self, connection: &Connection) -> bool {
        let opened =
            tokio::time::timeout(ANSWERS_WITHIN.min(self.config.timeout / 4), connection.fresh_channel()).await;
        matches!(opened, Ok(Ok(_)))
    }

    /// Why a connection on which nothing is answered is of no use. A blocked one is kept, it will say when it is
    /// free; a half-open one is given up.
    async fn silent(&self, connection: &Arc<Connection>) -> String {
        if let Some(why) = connection.blocked() {
            return format!("the broker takes nothing for now: {}", self.scrubber.clean(&why, REASON_BYTES_MAX));
        }
        self.link.give_up(connection).await;
        self.unconfirmed()
    }

    fn unconfirmed(&self) -> String {
        format!("the broker did not confirm within {} ms", self.config.timeout.as_millis())
    }

    /// Publishes what is large on a channel of its own: when the broker closes the channel over it,
    /// the others' confirms are not lost with it.
    async fn deliver(&self, route: &Route, batch: &[Delivery]) -> Vec<Verdict> {
        let large = |message: &&Delivery| message.payload.len() > LARGE_BYTES;
        let small: Vec<&Delivery> = batch.iter().filter(|message| !large(message)).collect();
        let alone = batch.iter().filter(large).map(async |message| self.publish(route, &[message]).await.remove(0));
        let together = async { if small.is_empty() { Vec::new() } else { self.publish(route, &small).await } };
        let (together, alone) = futures::join!(together, futures::future::join_all(alone));
        let (mut together, mut alone) = (together.into_iter(), alone.into_iter());
        let verdicts = batch.iter().map(|message| {
            let next = if large(&message) { alone.next() } else { together.next() };
            next.expect("each message has a verdict")
        });
        verdicts.collect()
    }

    async fn publish(&self, route: &Route, messages: &[&Delivery]) -> Vec<Verdict> {
        let unavailable = |reason: String| Verdict::Unavailable { reason, after: None, sent: true };
        let destination_down = |reason: String| Verdict::DestinationDown { reason, after: None, silent: false };
        let outcomes = match self.attempt(route, messages).await {
            Ok(outcomes) => outcomes,
            Err(reason) => return vec![Verdict::Unavailable { reason, after: None, sent: false }; messages.len()],
        };
        // The broker says once why it closes the channel; what was to be published after that only finds it closed.
        let why_closed = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Failed(error) if matches!(error.kind(), ErrorKind::ProtocolError(_)) => Some(self.met(error)),
            _ => None,
        });
        let met = |error: &lapin::Error| match (error.kind(), &why_closed) {
            (ErrorKind::InvalidChannelState(..), Some(why)) => why.clone(),
            _ => self.met(error),
        };
        let mut verdicts = Vec::with_capacity(messages.len());
        for (message, outcome) in messages.iter().zip(outcomes) {
            verdicts.push(match outcome {
                Outcome::Confirmed => Verdict::Accepted,
                Outcome::Refused => destination_down("the broker refused it, its queue may be full".to_owned()),
                // The broker was found to answer: it is its queue that is silent, or all of it is slow.
                Outcome::Unconfirmed { others } => {
                    Verdict::DestinationDown { reason: self.unconfirmed(), after: None, silent: others }
                }
                Outcome::Silent(reason) => unavailable(reason),
                Outcome::Returned(reason) => Verdict::Retry { reason, after: None },
                Outcome::Invalid(reason) => Verdict::Rejected { reason },
                Outcome::Failed(error) => match met(&error) {
                    PublishErrorScope::Target(reason) => unavailable(reason),
                    PublishErrorScope::OneOfThem(reason) if messages.len() == 1 => Verdict::Rejected { reason },
                    // The broker closed the channel over one of them; alone, each speaks for itself.
                    PublishErrorScope::OneOfThem(_) => {
                        match Box::pin(self.publish(route, &[message])).await.remove(0) {
                            Verdict::Unavailable { reason, .. } => unavailable(reason),
                            verdict => verdict,
                        }
                    }
                },
            });
        }
        verdicts
    }
}

#[async_trait]
impl Target for RabbitMqTarget {
    fn bind(self: Arc<Self>, topic: &TopicName, given: &Map<String, Value>) -> Result<Arc<dyn Sink>, String> {
        let settings: RabbitMqSettings = settings::read(KIND, RabbitMqSettings::KNOWN, given)?;
        let route = Route::new(&settings)?;
        Ok(Arc::new(RabbitMqSink { queue: route.queue(topic), route, target: self }))
    }

    async fn check(&self) -> Result<(), String> {
        self.connection().await.map(drop)
    }
}

#[derive(Debug)]
struct RabbitMqSink {
    target: Arc<RabbitMqTarget>,
    route: Route,
    /// The one queue it sends to, if it is that simple.
    queue: Option<String>,
}

#[async_trait]
impl Sink for RabbitMqSink {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn batch_max(&self) -> usize {
        self.target.config.batch
    }

    fn calls_max(&self) -> usize {
        self.target.config.channels
    }

    fn probe_wait_max(&self) -> Duration {
        self.target.config.probe_wait_max.0
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        self.target.deliver(&self.route, batch).await
    }

    /// Besides the connection: whether the exchange exists, or the queue where none is named.
    async fn check(&self) -> Result<(), String> {
        let connection = self.target.connection().await?;
        let exchange = self.route.exchange.clone();
        let asked = async {
            let channel = connection.channel().await?;
            if !exchange.as_str().is_empty() {
                let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
                channel.exchange_declare(exchange, ExchangeKind::Direct, options, FieldTable::default()).await?;
            } else if let Some(queue) = &self.queue {
                let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
                channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await?;
            }
            connection.keep(channel);
            Ok(())
        };
        match tokio::time::timeout(self.target.config.timeout, asked).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) if self.queue.is_some() => {
                Err(format!("{}; declare the queue, or fix `routing_key` of the topic", self.target.said(&error)))
            }
            Ok(Err(error)) => match self.target.met(&error) {
                PublishErrorScope::OneOfThem(reason) | PublishErrorScope::Target(reason) => Err(reason),
            },
            Err(_) => Err("the broker did not answer in time".to_owned()),
        }
    }
}
