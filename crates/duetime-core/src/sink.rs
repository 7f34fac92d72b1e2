//! The contract of a sink: where due messages go.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::in_place::InPlace;
use crate::message::{Headers, Nonce};
use crate::names::{MessageId, TopicName};
use crate::routing::hash_of;
use crate::suggest::{listed, nearest};
use crate::time::Timestamp;
use crate::topic_config::{DeliveryMode, SinkRef};
use crate::trace::SpanRef;

/// One message to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The topic.
    pub topic: TopicName,
    /// The message.
    pub id: MessageId,
    /// The due time it was given.
    pub due_at: Timestamp,
    /// Which attempt this is, from 1.
    pub attempt: u8,
    /// Of the enqueue: the same for every attempt, another one for another life of the id.
    pub nonce: Nonce,
    /// The headers of the enqueue.
    pub headers: Headers,
    /// The payload of the enqueue, bit for bit.
    pub payload: Bytes,
    /// When the caller gives this delivery up, by its clock: a receiver must not act on it later.
    pub not_after: Timestamp,
    /// At most once: what may have been sent is not sent again.
    pub at_most_once: bool,
    /// The span of this delivery, which goes on instead of the producer's; `None`: deliveries are not recorded.
    pub span: Option<SpanRef>,
}

impl Delivery {
    /// A stable id of this delivery, for dedupe downstream: the same for every attempt of one life
    /// of the message. 32 hexadecimal digits.
    #[must_use]
    pub fn delivery_id(&self) -> String {
        delivery_id(&self.topic, &self.id, self.nonce)
    }

    /// The trace that log lines about this delivery name: its own, or the producer's where deliveries are not recorded.
    #[must_use]
    pub fn trace(&self) -> Option<String> {
        self.span.or_else(|| self.headers.creator()).map(|span| span.trace())
    }
}

/// The same of a message's parts.
#[must_use]
pub fn delivery_id(topic: &TopicName, id: &MessageId, nonce: Nonce) -> String {
    let seed = crate::routing::topic_seed(topic);
    format!("{:016x}{:016x}", hash_of(id, seed), nonce.0)
}

/// What a sink reports of one message: what it saw, not whose fault it is. Who pays is decided by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target has it, durably as far as it can promise.
    Accepted,
    /// It cannot be delivered, and that is certain without regard to the state of the target: no valid routing key,
    /// larger than the protocol or the broker allows. To the dead letters at once.
    Rejected {
        /// Why, for the operator. Never a credential.
        reason: String,
    },
    /// The target answered that it will never take it, with an answer that proxies and firewalls give to everybody
    /// too. Tried once more before it is a dead letter.
    Refused {
        /// Why, for the operator. Never a credential.
        reason: String,
    },
    /// The target answered that it does not take it this time.
    Retry {
        /// Why, for the operator. Never a credential.
        reason: String,
        /// The target asked for at least this wait, for this message.
        after: Option<Duration>,
    },
    /// It may have been sent, and there was no answer: it may have arrived, or arrive later.
    NoAnswer {
        /// Why, for the operator. Never a credential.
        reason: String,
    },
    /// It certainly was not taken, which says nothing of the target: a limit of the sink itself is used up.
    NotSent {
        /// Why, for the operator. Never a credential.
        reason: String,
        /// When messages may be taken again.
        after: Duration,
    },
    /// It certainly was not taken, because the target as a whole cannot be used: no connection, no login, no memory.
    Unavailable {
        /// Why, for the operator. Never a credential.
        reason: String,
    },
}

/// Longest wait before a target that is down is tried again, unless its sink sets another.
pub const PROBE_WAIT_MAX_DEFAULT: Duration = Duration::from_secs(5);

/// A sink bound to one topic.
///
/// `deliver` is called with 1 to [`Sink::batch_max`] messages, several calls at once, and must
/// answer exactly one verdict for each, in order. One message's failure never takes another along.
/// The caller bounds the time of a call; a call that is dropped may have delivered.
#[async_trait]
pub trait Sink: Send + Sync + std::fmt::Debug + 'static {
    /// The type as in the configuration, for metrics.
    fn kind(&self) -> &'static str;

    /// Most messages in one call.
    fn batch_max(&self) -> usize;

    /// Most calls at once.
    fn calls_max(&self) -> usize;

    /// How the store itself hands this sink's messages over; [`Sink::deliver`] is then never called.
    fn in_place(&self) -> Option<InPlace> {
        None
    }

    /// Whether messages may go to different targets, of which one that cannot be reached says nothing of the others.
    /// What is delivered at most once does not go through it, see [`check_delivery`].
    fn has_many_targets(&self) -> bool {
        false
    }

    /// Longest wait before a target that is down is tried again.
    fn max_probe_wait(&self) -> Duration {
        PROBE_WAIT_MAX_DEFAULT
    }

    /// Whether the target can be reached, for sinks that find out too late in [`Sink::deliver`] to say that nothing
    /// was sent. Asked before each delivery of messages that are delivered at most once.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    async fn reach(&self) -> Result<(), String> {
        Ok(())
    }

    /// Delivers the batch. Returns one verdict for each message, in order.
    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict>;

    /// Tries the connection and the settings without delivering anything.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and how to fix it.
    async fn check(&self) -> Result<(), String>;
}

/// Refuses a topic that delivers at most once through a sink whose messages go to different targets. What certainly was
/// not sent cannot go back to the store there: it would be lost with its own target, or take the place of all others.
///
/// # Errors
///
/// A sentence with the fix.
pub fn check_delivery(delivery: DeliveryMode, sink: &dyn Sink) -> Result<(), &'static str> {
    if delivery == DeliveryMode::AtMostOnce && sink.has_many_targets() {
        return Err(
            "delivery = \"at-most-once\" is refused where messages name the host that they go to: what cannot be \
             sent there would be lost, or hold up all others; write the host out in url of the topic's sink, or set \
             delivery to \"at-least-once\"",
        );
    }
    Ok(())
}

/// Why a sink could not be made ready for a topic. Its text names no sink but the one that the topic names: who reads
/// it may not be allowed to know the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// No sink has this name.
    #[error(
        "no sink is called {name:?}; make it, as [sinks.NAME] in the file of each node, or with `duetime sink put` where \
         [sinks_by_api] is enabled, or name another"
    )]
    UnknownSink {
        /// As the topic names it.
        name: String,
        /// The names of all sinks, those that were put by the API too.
        configured: Vec<String>,
    },
    /// A sentence for the user: an unknown, missing or wrong setting.
    #[error("{0}")]
    Refused(String),
}

impl BindError {
    /// The text with the sinks that `shown` accepts, the nearest one first.
    #[must_use]
    pub fn listing(&self, shown: impl Fn(&str) -> bool) -> String {
        let Self::UnknownSink { name, configured } = self else { return self.to_string() };
        let known: Vec<&str> = configured.iter().map(String::as_str).filter(|name| shown(name)).collect();
        match nearest(name, known.iter().copied()) {
            _ if known.is_empty() => self.to_string(),
            Some(near) => {
                format!("no sink is called {name:?}; did you mean {near:?}? Configured: {}", listed(&known))
            }
            None => format!("{self}; configured: {}", listed(&known)),
        }
    }
}

/// Makes a configured sink ready for one topic.
pub trait SinkBinder: Send + Sync + std::fmt::Debug + 'static {
    /// The sink that `sink` names, with the topic's settings checked. Opens no connection.
    ///
    /// # Errors
    ///
    /// [`BindError`]: the name is not known, or a setting is wrong.
    fn bind(&self, topic: &TopicName, sink: &SinkRef) -> Result<Arc<dyn Sink>, BindError>;

    /// Another number whenever the sink of this name is another, so that it has to be bound again.
    fn generation(&self, _name: &str) -> u64 {
        0
    }
}
