//! The values of labels.

/// An enum whose values have a word each, with `ALL` of them in the order of their numbers.
macro_rules! labelled {
    ($(#[$of_all:meta])* pub enum $name:ident { $($(#[$of_one:meta])* $value:ident = $word:literal,)* }) => {
        $(#[$of_all])*
        pub enum $name {
            $($(#[$of_one])* $value,)*
        }

        impl $name {
            /// All, in the order of their numbers.
            pub const ALL: [(Self, &'static str); [$($word),*].len()] = [$((Self::$value, $word)),*];
        }
    };
}

labelled! {
    /// What can happen to a message: the values of the label `event`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(usize)]
    pub enum Event {
        /// A new message was enqueued.
        Scheduled = "scheduled",
        /// Refused because its id lives.
        Duplicate = "duplicate",
        /// Took the place of another.
        Replaced = "replaced",
        /// Cancelled.
        Cancelled = "cancelled",
        /// It got another due time.
        Rescheduled = "rescheduled",
        /// Claimed for delivery.
        Claimed = "claimed",
        /// Accepted by its sink, or acked by its consumer.
        Delivered = "delivered",
        /// To be tried again.
        Retried = "retried",
        /// Became a dead letter.
        Dead = "dead",
        /// Came back from the dead letters.
        Redriven = "redriven",
        /// Moved to another shard.
        Moved = "moved",
        /// Refused because its topic is full.
        Refused = "refused",
        /// Not handed over before it expired.
        Expired = "expired",
        /// A dead letter that its topic kept no longer was removed.
        DeadExpired = "dead_expired",
        /// A dead letter was forwarded to the topic that its own names.
        DeadForwarded = "dead_forwarded",
        /// Put back after a bulk action had removed it.
        Restored = "restored",
    }
}

labelled! {
    /// What a cancel can be answered: the values of the label `verdict`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[repr(usize)]
    pub enum CancelVerdict {
        /// It will not be delivered.
        Cancelled = "cancelled",
        /// It is being delivered, or was without an answer, and will not be tried again.
        InFlight = "in_flight",
        /// There is no such message.
        Unknown = "unknown",
    }
}

/// Why a token can be refused: the values of the label `reason`, which are the codes of the answers.
pub const AUTH_REFUSALS: [&str; 5] = ["token_missing", "token_unknown", "forbidden", "rate_limited", "too_many_topics"];

/// How far ahead a forecast is shown: the values of the label `within`, and in seconds.
pub const FORECAST_WITHIN: [(&str, u64); 4] = [("1m", 60), ("5m", 300), ("1h", 3_600), ("24h", 86_400)];

labelled! {
    /// What can be wrong with a server of the store: the values of the label `kind`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(usize)]
    pub enum StoreIssue {
        /// It may evict messages.
        Eviction = "eviction",
        /// It cannot keep what it is given on its disk.
        Disk = "disk",
        /// The disk of an embedded store is full: it refuses new messages.
        DiskFull = "disk_full",
        /// Fewer replicas follow it than are asked for.
        Replicas = "replicas",
        /// Behind Sentinel, it takes writes without a replica.
        Unguarded = "unguarded",
        /// Shards of an embedded store are damaged on its disk, or acknowledged transactions are missing.
        Damage = "damage",
        /// The log of an embedded store cannot be copied into its database.
        Checkpoint = "checkpoint",
        /// Another process holds the lock by which the database of an embedded store is written.
        Locked = "locked",
    }
}

impl StoreIssue {
    /// As in the metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What can become of a shard at a node: the values of the label `kind` of [`crate::table::LEASE_CHANGES`].
pub(crate) const LEASE_KINDS: [&str; 5] = ["taken", "released", "lost", "taken_over", "late"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_value_has_a_word_of_its_own() {
        let are_own = |words: &[&str]| words.iter().collect::<BTreeSet<_>>().len() == words.len();
        assert!(are_own(&Event::ALL.map(|(_, word)| word)));
        assert!(are_own(&CancelVerdict::ALL.map(|(_, word)| word)));
        assert!(are_own(&StoreIssue::ALL.map(|(_, word)| word)));
    }
}
