//! The values of labels.

/// What can happen to a message: the values of the label `event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Event {
    /// A new message was enqueued.
    Scheduled,
    /// Refused because its id lives.
    Duplicate,
    /// Took the place of another.
    Replaced,
    /// Cancelled.
    Cancelled,
    /// It got another due time.
    Rescheduled,
    /// Claimed for delivery.
    Claimed,
    /// Accepted by its sink, or acked by its consumer.
    Delivered,
    /// To be tried again.
    Retried,
    /// Became a dead letter.
    Dead,
    /// Came back from the dead letters.
    Redriven,
    /// Moved to another shard.
    Moved,
    /// Refused because its topic is full.
    Refused,
    /// Not handed over before it expired.
    Expired,
    /// A dead letter that its topic kept no longer was removed.
    DeadExpired,
    /// A dead letter was forwarded to the topic that its own names.
    DeadForwarded,
    /// Put back after a bulk action had removed it.
    Restored,
}

impl Event {
    /// All, in the order of their numbers.
    pub const ALL: [(Self, &'static str); 16] = [
        (Self::Scheduled, "scheduled"),
        (Self::Duplicate, "duplicate"),
        (Self::Replaced, "replaced"),
        (Self::Cancelled, "cancelled"),
        (Self::Rescheduled, "rescheduled"),
        (Self::Claimed, "claimed"),
        (Self::Delivered, "delivered"),
        (Self::Retried, "retried"),
        (Self::Dead, "dead"),
        (Self::Redriven, "redriven"),
        (Self::Moved, "moved"),
        (Self::Refused, "refused"),
        (Self::Expired, "expired"),
        (Self::DeadExpired, "dead_expired"),
        (Self::DeadForwarded, "dead_forwarded"),
        (Self::Restored, "restored"),
    ];
}

/// What a cancel can be answered: the values of the label `verdict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum CancelVerdict {
    /// It will not be delivered.
    Cancelled,
    /// It is being delivered, or was without an answer, and will not be tried again.
    InFlight,
    /// There is no such message.
    Unknown,
}

impl CancelVerdict {
    /// All, in the order of their numbers.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Cancelled, "cancelled"), (Self::InFlight, "in_flight"), (Self::Unknown, "unknown")];
}

/// Why a token can be refused: the values of the label `reason`, which are the codes of the answers.
pub const AUTH_REFUSALS: [&str; 5] = ["token_missing", "token_unknown", "forbidden", "rate_limited", "too_many_topics"];

/// How far ahead a forecast is shown: the values of the label `within`, and in seconds.
pub const FORECAST_WITHIN: [(&str, u64); 4] = [("1m", 60), ("5m", 300), ("1h", 3_600), ("24h", 86_400)];

/// What can be wrong with a server of the store: the values of the label `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum StoreIssue {
    /// It may evict messages.
    Eviction,
    /// It cannot keep what it is given on its disk.
    Disk,
    /// The disk of an embedded store is full: it refuses new messages.
    DiskFull,
    /// Fewer replicas follow it than are asked for.
    Replicas,
    /// Behind Sentinel, it takes writes without a replica.
    Unguarded,
    /// Shards of an embedded store are damaged on its disk, or acknowledged transactions are missing.
    Damage,
    /// The log of an embedded store cannot be copied into its database.
    Checkpoint,
    /// Another process holds the lock by which the database of an embedded store is written.
    Locked,
}

impl StoreIssue {
    /// All, in the order of their numbers.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::Eviction, "eviction"),
        (Self::Disk, "disk"),
        (Self::DiskFull, "disk_full"),
        (Self::Replicas, "replicas"),
        (Self::Unguarded, "unguarded"),
        (Self::Damage, "damage"),
        (Self::Checkpoint, "checkpoint"),
        (Self::Locked, "locked"),
    ];

    /// As in the metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What can become of a shard at a node: the values of the label `kind` of [`crate::table::LEASE_CHANGES`].
pub(crate) const LEASE_KINDS: [&str; 5] = ["taken", "released", "lost", "taken_over", "late"];
