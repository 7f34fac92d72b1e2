//! The contract of a sink: where due messages go.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::hand_over::InPlace;
use crate::message::{Headers, Nonce};
use crate::names::{MessageId, TopicName};
use crate::routing::hash_of;
use crate::time::Timestamp;
use crate::topic::SinkRef;
use crate::trace::SpanRef;

/// One message to be handed over.
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
    /// The span of this hand-over, which goes on instead of the producer's; `None`: hand-overs are not recorded.
    pub span: Option<SpanRef>,
}

impl Delivery {
    /// A stable id of this delivery, for dedupe downstream: the same for every attempt of one life
    /// of the message. 32 hexadecimal digits.
    #[must_use]
    pub fn delivery_id(&self) -> String {
        delivery_id(&self.topic, &self.id, self.nonce)
    }

    /// The trace that log lines about this hand-over name: its own, or the producer's where hand-overs are not recorded.
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

/// What a sink says of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The target has it, durably as far as it can promise.
    Accepted,
    /// Not taken this time, and this message's own matter: it costs an attempt.
    Retry {
        /// Why, for the operator. Never a credential.
        reason: String,
        /// The target asked for at least this wait.
        after: Option<Duration>,
    },
    /// Never to be taken: to the dead letters at once.
    Rejected {
        /// Why, for the operator. Never a credential.
        reason: String,
    },
    /// The place that this one message goes to does not take it now: a tenant behind a webhook, a queue, a
    /// stream, a partition. Also said when nobody can know whether it is that place or the whole target (no
    /// answer in time, an answer 5xx). Costs an attempt only if the target accepts others meanwhile; if it
    /// accepts none, the target is taken to be down.
    DestinationDown {
        /// Why, for the operator. Never a credential.
        reason: String,
        /// The target asked for at least this wait, for this message.
        after: Option<Duration>,
        /// Nothing was answered at all, and the target as a whole may have been silent. Not set where the sink
        /// has found that the target answered others at the end of the wait.
        silent: bool,
    },
    /// It was not offered to the target: a limit of the sink itself is used up. Costs no attempt and says
    /// nothing of the target.
    NotSent {
        /// Which limit, for the operator.
        reason: String,
        /// When messages may be taken again.
        after: Duration,
    },
    /// The target as a whole cannot be used (no connection, no login, no rights) or asks for a pause: costs
    /// no attempt, opens the breaker.
    Unavailable {
        /// Why, for the operator. Never a credential.
        reason: String,
        /// The target asked for at least this wait.
        after: Option<Duration>,
        /// It may have been sent. Where it certainly was not (there is no connection), a message that is claimed
        /// at most once is kept and offered again.
        sent: bool,
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

    /// Longest wait before a target that is down is tried again.
    fn probe_wait_max(&self) -> Duration {
        PROBE_WAIT_MAX_DEFAULT
    }

    /// Whether the target can be reached, for sinks that find out too late in [`Sink::deliver`] to say that nothing
    /// was sent. Asked before each hand-over of messages that are delivered at most once.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    async fn reach(&self) -> Result<(), String> {
        Ok(())
    }

    /// Hands over.
    async fn deliver(&self, batch: &[Delivery]) -> Vec<Verdict>;

    /// Tries the connection and the settings without handing anything over.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong and how to fix it.
    async fn check(&self) -> Result<(), String>;
}

/// Makes a configured sink ready for one topic.
pub trait SinkBinder: Send + Sync + std::fmt::Debug + 'static {
    /// The sink that `sink` names, with the topic's settings checked. Opens no connection.
    ///
    /// # Errors
    ///
    /// A sentence for the user: an unknown name (with the known ones), an unknown or missing setting.
    fn bind(&self, topic: &TopicName, sink: &SinkRef) -> Result<Arc<dyn Sink>, String>;
}
