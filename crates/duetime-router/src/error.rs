//! Why an operation on topics or ids could not be done.

use std::sync::Arc;

use duetime_core::{BindError, NameError, StoreError, TopicName};

/// Why a message was not acted on. Cheap to copy: one failed call answers many items.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// No such topic, here or in the store.
    #[error("topic {:?} does not exist", .0.as_str())]
    UnknownTopic(TopicName),
    /// The request refers to an earlier incarnation of the topic, which was deleted and recreated since.
    #[error("topic {:?} was deleted and recreated", .0.as_str())]
    EarlierLife(TopicName),
    /// The topic holds as much as it may; nothing was written for this message.
    #[error("topic {:?} is full: its {limit} is {most}", .topic.as_str())]
    TopicFull {
        /// The topic.
        topic: TopicName,
        /// The setting that says so.
        limit: &'static str,
        /// Its value.
        most: u64,
    },
    /// The message repeats, and nobody would write the next one of its series; nothing was written.
    #[error("topic {:?} takes no message that repeats: {why}", .topic.as_str())]
    CannotRepeat {
        /// The topic.
        topic: TopicName,
        /// What it is about the topic, and what to do.
        why: &'static str,
    },
    /// The request that it came with has ended before its turn came; nothing was begun for it.
    #[error("its request has ended; nothing was begun for it")]
    RequestOver,
    /// The store's own answer for the batch this item was in.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for RouteError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl RouteError {
    /// Whether a look at the present topics may fix it.
    #[must_use]
    pub fn is_misrouted(&self) -> bool {
        matches!(self, Self::Store(error) if is_misrouted(error))
    }
}

impl From<RouteError> for StoreError {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::UnknownTopic(topic) | RouteError::EarlierLife(topic) => Self::UnknownShard(topic.to_string()),
            full @ RouteError::TopicFull { .. } => Self::Full(full.to_string()),
            refused @ RouteError::CannotRepeat { .. } => Self::Setup(refused.to_string()),
            over @ RouteError::RequestOver => {
                Self::Unavailable { doing: "begin a call", source: over.to_string().into() }
            }
            RouteError::Store(error) => Arc::try_unwrap(error).unwrap_or_else(|shared| match &*shared {
                Self::Stale(routing) => Self::Stale(routing.clone()),
                Self::NotReady(shard) => Self::NotReady(shard.clone()),
                Self::UnknownShard(shard) => Self::UnknownShard(shard.clone()),
                Self::ClockSkew(apart_ms) => Self::ClockSkew(*apart_ms),
                Self::Lost(shard) => Self::Lost(shard.clone()),
                Self::Full(text) => Self::Full(text.clone()),
                Self::Damaged(text) => Self::Damaged(text.clone()),
                other => Self::Unavailable { doing: "act on messages", source: other.to_string().into() },
            }),
        }
    }
}

/// Whether a shard refused the caller's picture of the topics.
pub(crate) fn is_misrouted(error: &StoreError) -> bool {
    matches!(error, StoreError::Stale(_) | StoreError::NotReady(_) | StoreError::UnknownShard(_))
}

/// Why a topic could not be created or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The request makes no sense; `detail` says what to write.
    #[error("{detail}")]
    Invalid {
        /// The field, when one is to blame.
        field: Option<String>,
        /// A sentence for the user.
        detail: String,
    },
    /// The topic cannot have this sink.
    #[error(transparent)]
    Sink(#[from] BindError),
    /// No topic may be made with this name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The store's own answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}
