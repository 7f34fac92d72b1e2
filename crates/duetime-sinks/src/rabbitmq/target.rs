//! One broker: verdicts from what it said of each message.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Clock, Delivery, Sink, TopicName, Verdict};
use duetime_settings::Redactor;
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::FieldTable;
use lapin::uri::AMQPUri;
use lapin::{ErrorKind, ExchangeKind};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::config::{KIND, RabbitMqConfig, RabbitMqSettings};
use super::connection::{CHANNELS_MAX, Connection};
use super::publish::{self, Outcome, Route};
use crate::confirm_wait::ConfirmWait;
use crate::fault::SinkFault;
use crate::gate::{Full, Gate, GateMember};
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
    /// What is unconfirmed, over all topics.
    gate: Arc<Gate>,
    redactor: Redactor,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for RabbitMqTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitMqTarget").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Why none of a batch was published.
enum NotPublished {
    /// The broker cannot be used.
    Unavailable(String),
    /// Too much is unconfirmed already.
    Full(Full),
}

/// What an error says of the messages it met.
#[derive(Clone)]
enum PublishErrorScope {
    /// One of them is not acceptable to the broker, but which?
    OneOfThem(String),
    /// The broker takes nothing there, from this user.
    Target(String),
    /// The connection ended: what was published may have arrived.
    Connection(String),
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
        let redactor = Redactor::new(config.url.secrets());
        let tls = OwnedTLSConfig { identity: None, cert_chain };
        let gate = Gate::of_broker(CHANNELS_MAX, config.timeout);
        Ok(Self { config: config.clone(), uri, tls, link: SharedConnection::default(), gate, redactor, clock })
    }

    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let connect = async || {
            let place = &self.config.url;
            let opening = Connection::open(&self.uri, &self.tls, ConfirmWait::new(self.config.timeout));
            match tokio::time::timeout(self.config.connect_timeout, opening).await {
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
        self.redactor.redact(&error.to_string(), REASON_BYTES_MAX)
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
                _ => PublishErrorScope::Connection(said),
            },
            _ => PublishErrorScope::Connection(format!("lost the connection to {}: {said}", self.config.url)),
        }
    }

    /// Publishes `messages` on a channel of their own, once they have their turn. `Err`: none of them was sent.
    async fn attempt(&self, sink: &RabbitMqSink, messages: &[&Delivery]) -> Result<Vec<Outcome>, NotPublished> {
        let mut turn = sink.turns.enter(messages.len()).await.map_err(NotPublished::Full)?;
        let outcomes = self.attempt_now(&sink.route, messages).await.map_err(NotPublished::Unavailable)?;
        turn.confirmed(outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Confirmed)).count());
        Ok(outcomes)
    }

    async fn attempt_now(&self, route: &Route, messages: &[&Delivery]) -> Result<Vec<Outcome>, String> {
        let connection = self.connection().await?;
        if let Some(why) = connection.blocked() {
            return Err(format!("the broker takes nothing for now: {}", self.redactor.redact(&why, REASON_BYTES_MAX)));
        }
        let now = self.clock.now();
        let prepared = messages.iter().map(|message| route.prepare(message, now)).collect();
        let opening = async {
            let place = connection.place().await;
            connection.channel().await.map(|channel| (channel, place))
        };
        let (channel, _place) = match connection.confirms.within(Instant::now(), opening).await {
            Some(Ok(opened)) => opened,
            Some(Err(error)) => {
                self.link.give_up(&connection).await;
                return Err(self.said(&error));
            }
            None => return Err(self.silent(&connection).await),
        };
        let mut outcomes = publish::publish(&channel, route, messages, prepared, &connection.confirms).await;
        if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Unconfirmed)) {
            // Confirms that came say nothing of a broker that fell silent after them.
            if connection.blocked().is_some() || !self.answers(&connection).await {
                let why = self.silent(&connection).await;
                let unconfirmed = outcomes.iter_mut().filter(|outcome| matches!(outcome, Outcome::Unconfirmed));
                unconfirmed.for_each(|outcome| *outcome = Outcome::Silent(why.clone()));
            }
        } else if !outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed(_))) {
            // A channel with confirms to come is not used again: they would be taken for those of other messages.
            connection.keep(channel);
        }
        Ok(outcomes)
    }

    /// Whether the broker answers at all: it has confirmed something just now, or opens a channel in a moment.
    async fn answers(&self, connection: &Connection) -> bool {
        let moment = ANSWERS_WITHIN.min(self.config.timeout / 4);
        let opened = tokio::time::timeout(moment, connection.fresh_channel());
        connection.confirms.was_within(moment) || matches!(opened.await, Ok(Ok(_)))
    }

    /// Why a connection on which nothing is answered is of no use. A blocked one is kept, it will say when it is
    /// free; a half-open one is given up.
    async fn silent(&self, connection: &Arc<Connection>) -> String {
        if let Some(why) = connection.blocked() {
            return format!("the broker takes nothing for now: {}", self.redactor.redact(&why, REASON_BYTES_MAX));
        }
        self.link.give_up(connection).await;
        self.unconfirmed()
    }

    fn unconfirmed(&self) -> String {
        format!("the broker did not confirm within {} ms", self.config.timeout.as_millis())
    }

    /// Publishes what is large on a channel of its own: when the broker closes the channel over it,
    /// the others' confirms are not lost with it.
    async fn deliver(&self, sink: &RabbitMqSink, batch: &[Delivery]) -> Vec<Verdict> {
        let large = |message: &&Delivery| message.payload.len() > LARGE_BYTES;
        let small: Vec<&Delivery> = batch.iter().filter(|message| !large(message)).collect();
        let alone = batch.iter().filter(large).map(async |message| self.publish(sink, &[message]).await.remove(0));
        let together = async { if small.is_empty() { Vec::new() } else { self.publish(sink, &small).await } };
        let (together, alone) = futures::join!(together, futures::future::join_all(alone));
        let (mut together, mut alone) = (together.into_iter(), alone.into_iter());
        let verdicts = batch.iter().map(|message| {
            let next = if large(&message) { alone.next() } else { together.next() };
            next.expect("each message has a verdict")
        });
        verdicts.collect()
    }

    async fn publish(&self, sink: &RabbitMqSink, messages: &[&Delivery]) -> Vec<Verdict> {
        let retry = |reason: String| Verdict::Retry { reason, after: None };
        let outcomes = match self.attempt(sink, messages).await {
            Ok(outcomes) => outcomes,
            Err(NotPublished::Unavailable(reason)) => {
                return vec![Verdict::Unavailable { reason }; messages.len()];
            }
            Err(NotPublished::Full(full)) => return vec![full.not_sent(); messages.len()],
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
                Outcome::Refused => retry("the broker refused it, its queue may be full".to_owned()),
                Outcome::Unconfirmed => Verdict::NoAnswer { reason: self.unconfirmed() },
                Outcome::Silent(reason) => Verdict::NoAnswer { reason },
                Outcome::Returned(reason) => retry(reason),
                Outcome::Invalid(reason) => Verdict::Rejected { reason },
                Outcome::Failed(error) => match met(&error) {
                    PublishErrorScope::Target(reason) => retry(reason),
                    PublishErrorScope::Connection(reason) => Verdict::NoAnswer { reason },
                    PublishErrorScope::OneOfThem(reason) if messages.len() == 1 => Verdict::Rejected { reason },
                    // The broker closed the channel over one of them; alone, each speaks for itself.
                    PublishErrorScope::OneOfThem(_) => match Box::pin(self.publish(sink, &[message])).await.remove(0) {
                        // It may have been taken the first time.
                        Verdict::Unavailable { reason } => Verdict::NoAnswer { reason },
                        verdict => verdict,
                    },
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
        Ok(Arc::new(RabbitMqSink { queue: route.queue(topic), route, turns: self.gate.join(), target: self }))
    }

    async fn check(&self) -> Result<(), String> {
        self.connection().await.map(drop)
    }
}

#[derive(Debug)]
struct RabbitMqSink {
    target: Arc<RabbitMqTarget>,
    route: Route,
    /// Its share of what all topics of the target may have unconfirmed.
    turns: GateMember,
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

    fn max_probe_wait(&self) -> Duration {
        self.target.config.max_probe_wait.0
    }

    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict> {
        self.target.deliver(self, batch).await
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
                PublishErrorScope::OneOfThem(reason)
                | PublishErrorScope::Target(reason)
                | PublishErrorScope::Connection(reason) => Err(reason),
            },
            Err(_) => Err("the broker did not answer in time".to_owned()),
        }
    }
}
