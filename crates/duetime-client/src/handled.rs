//! What a worker is told and tells: how it works, what became of a message, and what befell it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What is to become of a message that was handled. A handler may return it, nothing, or a `Result<(), E>`, of which an
/// error is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It is acked.
    Done,
    /// It comes again: after this long, or after the topic's backoff.
    Again {
        /// `None`: as the topic says.
        delay: Option<Duration>,
        /// Kept with the dead letter, if this makes it one.
        reason: Option<String>,
    },
    /// It is a dead letter at once.
    Dead {
        /// Why.
        reason: String,
    },
    /// It was not begun: it is due again at once, and the claim costs no attempt.
    NotBegun,
}

impl From<()> for Handled {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl<E: fmt::Display> From<Result<(), E>> for Handled {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(error) => Self::Again { delay: None, reason: Some(error.to_string()) },
        }
    }
}

/// What a consumer has to say besides handling messages.
#[derive(Clone, Debug)]
pub enum ConsumerEvent {
    /// A message is not its handler's any more, which was dropped if it was still running. `cancelled`: undo what was
    /// done; `expired` or `gone`: somebody else may have it.
    Lost {
        /// The message.
        id: String,
        /// Why.
        outcome: String,
    },
    /// Something could not be claimed, extended or settled. A node that is away is asked again.
    Failed {
        /// The message, where it is about one.
        id: Option<String>,
        /// Why.
        error: String,
    },
}

type OnEvent = Arc<dyn Fn(ConsumerEvent) + Send + Sync>;

/// How a consumer works.
#[derive(Clone)]
pub struct ConsumeOptions {
    /// Messages that are handled at a time, and so the most that are claimed; 1 or more. Default 10.
    pub concurrency: usize,
    /// How long a claim lasts, 100 ms or more; each is extended by every third of it. Default 30 s.
    pub visibility: Duration,
    /// How long one claim waits for something due, and so how long a stop may take; a third of `visibility` at most,
    /// which counts from before it waits. Default 5 s.
    pub wait: Duration,
    /// How long handlers may take to end after the stop, before they are dropped and their messages released. Default
    /// 30 s.
    pub grace: Duration,
    /// The name of the consumer in [`Client::consumers`](crate::Client::consumers), for people, in 100 bytes. Default:
    /// none.
    pub consumer: Option<String>,
    /// Is told what was lost or failed. Default: nobody.
    pub on_event: Option<OnEvent>,
}

impl Default for ConsumeOptions {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            concurrency: 10,
            visibility: seconds(30),
            wait: seconds(5),
            grace: seconds(30),
            consumer: None,
            on_event: None,
        }
    }
}

impl fmt::Debug for ConsumeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumeOptions").field("concurrency", &self.concurrency).finish_non_exhaustive()
    }
}
