//! Why a store could not do what was asked, in variants that say what the caller can do.

use std::error::Error as StdError;

use crate::routing::{Routing, Shard};

/// Why the store could not do what was asked. Callers branch on the variant, never on the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The backend did not answer. Whether it acted is unknown; repeating the same request is safe.
    #[error("store did not answer while trying to {doing}: {source}")]
    Unavailable {
        /// What we were doing.
        doing: &'static str,
        /// What it said.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// No memory for another message; nothing was written. The producer must slow down.
    #[error("store is full: {0}")]
    Full(String),
    /// As many small records of a kind are kept as may be, or one is too long; nothing was written. The text says what
    /// to do.
    #[error("{0}")]
    RecordLimit(String),
    /// The caller's routing record is old, or of a change that the store has forgotten; here is the present one.
    #[error("routing record of epoch {} is the present one", .0.epoch)]
    Stale(Box<Routing>),
    /// The shard has not heard of the caller's epoch yet.
    #[error("shard {0} has not reached this epoch")]
    NotReady(String),
    /// The shard was never created, or its topic was deleted.
    #[error("shard {0} does not exist")]
    UnknownShard(String),
    /// The shard has vanished although its topic was not deleted: what it held is lost, unless its server comes
    /// back with it.
    #[error("shard {0} is lost: its server came back without it")]
    Lost(String),
    /// The keys of a shard hold messages of another incarnation of its topic, which was not deleted. Nothing was changed.
    #[error("shard {shard} is occupied by messages of another incarnation of its topic: {detail}")]
    Occupied {
        /// The shard.
        shard: String,
        /// What is there.
        detail: String,
    },
    /// The record of the topic is gone although nobody deleted the topic, and its shards hold messages.
    #[error("topic {topic:?} is not in the catalog, but nobody deleted it and its shards hold {messages} messages")]
    Vanished {
        /// The topic.
        topic: String,
        /// Messages, dead letters and frozen messages in the shards that were found.
        messages: u64,
    },
    /// The topic holds something, and was to be deleted only if it does not. Nothing was deleted.
    #[error("topic {topic:?} {why}")]
    NotEmpty {
        /// The topic.
        topic: String,
        /// What it holds, as a sentence goes on.
        why: String,
    },
    /// The record of the topic is gone with all its shards, although nobody deleted it: the store was emptied.
    #[error("topic {0:?} is gone with all its messages although nobody deleted it: the store was emptied")]
    Emptied(String),
    /// The record of the topic is of an earlier incarnation than its shards: the catalog was restored from before the
    /// topic was deleted and created again.
    #[error("the record of topic {0:?} is older than its shards: the catalog was restored from an earlier time")]
    Outdated(String),
    /// The topic cannot be adopted without its settings, of which no copy was found.
    #[error("no copy of the settings of topic {0:?} was found")]
    SettingsUnknown(String),
    /// The caller's clock and the store's are too far apart for a claim or a relative time; nothing was done.
    #[error("this node's clock and the store's differ by {0} ms, more than 2000; set both by NTP")]
    ClockSkew(i64),
    /// The topic changed since the caller read it. Read it again.
    #[error("topic was changed concurrently; read it again and retry")]
    Conflict,
    /// What was stored cannot be read, or the store's own rules are broken. An operator must look.
    #[error("store is damaged: {0}")]
    Damaged(String),
    /// The store refuses to work as it is set up; the text says what to change.
    #[error("{0}")]
    Setup(String),
}

impl StoreError {
    /// Whether the same request may simply be repeated after a pause.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::NotReady(_))
    }

    /// All that [`Self::kind`] answers: labels that a metric has from the start.
    pub const KINDS: [&str; 17] = [
        "unavailable",
        "full",
        "record_limit",
        "stale",
        "not_ready",
        "unknown_shard",
        "lost",
        "occupied",
        "vanished",
        "not_empty",
        "emptied",
        "outdated",
        "settings_unknown",
        "skew",
        "conflict",
        "damaged",
        "setup",
    ];

    /// Refuses a caller whose routing record is another one than `present`, which the shard has.
    ///
    /// # Errors
    ///
    /// [`Self::NotReady`]: the caller's epoch is higher. [`Self::Stale`]: it is lower, or the same of another change.
    pub fn unless_present(present: &Routing, caller: &Shard) -> Result<(), Self> {
        if caller.record() == present.id() {
            Ok(())
        } else if caller.epoch > present.epoch {
            Err(Self::NotReady(caller.to_string()))
        } else {
            Err(Self::Stale(Box::new(present.clone())))
        }
    }

    /// A stable word for metrics and logs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "unavailable",
            Self::Full(_) => "full",
            Self::RecordLimit(_) => "record_limit",
            Self::Stale(_) => "stale",
            Self::NotReady(_) => "not_ready",
            Self::UnknownShard(_) => "unknown_shard",
            Self::Lost(_) => "lost",
            Self::Occupied { .. } => "occupied",
            Self::Vanished { .. } => "vanished",
            Self::NotEmpty { .. } => "not_empty",
            Self::Emptied(_) => "emptied",
            Self::Outdated(_) => "outdated",
            Self::SettingsUnknown(_) => "settings_unknown",
            Self::ClockSkew(_) => "skew",
            Self::Conflict => "conflict",
            Self::Damaged(_) => "damaged",
            Self::Setup(_) => "setup",
        }
    }
}
