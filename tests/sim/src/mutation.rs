//! Rules of the protocol that can be switched off, one at a time, to see that the simulation notices.

/// A rule that is left out. See `docs/MODEL.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Scripts know no end, and abandoned connections are not ended.
    LateCalls,
    /// A creation takes a shard of any other life for a left-over.
    LateCreation,
    /// A creation empties shards that hold messages nobody deleted.
    CreationOverMessages,
    /// A shard compares the caller's epoch, not the life.
    AnyLife,
    /// A relative delay is added to the server's clock, whatever the caller's says.
    DelayOfOneClock,
    /// What is due is decided by the latest moment the shard has seen.
    HighWater,
    /// A deletion removes a shard of any life.
    DeletionOfAnyLife,
    /// A deadline is above the last one of its class, however long that claim was.
    DeadlinesRunAhead,
    /// Of a cancel of more than 25 ids a shard remembers only that all were cancelled.
    LongCancels,
    /// A batch is several scripts, and a refusal of the second is the answer to all of it.
    BatchOfOneAnswer,
    /// What a client has given up is carried out when its node gets to it.
    RequestsWithoutEnd,
    /// A receipt names its topic without the life.
    ReceiptOfAnyLife,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::LateCalls,
        Self::LateCreation,
        Self::CreationOverMessages,
        Self::AnyLife,
        Self::DelayOfOneClock,
        Self::HighWater,
        Self::DeletionOfAnyLife,
        Self::DeadlinesRunAhead,
        Self::LongCancels,
        Self::BatchOfOneAnswer,
        Self::RequestsWithoutEnd,
        Self::ReceiptOfAnyLife,
    ];

    /// As it is written on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LateCalls => "late-calls",
            Self::LateCreation => "late-creation",
            Self::CreationOverMessages => "creation-over-messages",
            Self::AnyLife => "any-life",
            Self::DelayOfOneClock => "delay-of-one-clock",
            Self::HighWater => "high-water",
            Self::DeletionOfAnyLife => "deletion-of-any-life",
            Self::DeadlinesRunAhead => "deadlines-run-ahead",
            Self::LongCancels => "long-cancels",
            Self::BatchOfOneAnswer => "batch-of-one-answer",
            Self::RequestsWithoutEnd => "requests-without-end",
            Self::ReceiptOfAnyLife => "receipt-of-any-life",
        }
    }

    /// The first seed whose world misses the rule, as `docs/MODEL.md` has it.
    #[must_use]
    pub const fn first_seed(self) -> u64 {
        match self {
            Self::LateCalls => 1,
            Self::LateCreation => 74,
            Self::CreationOverMessages => 4,
            Self::AnyLife => 18,
            Self::DelayOfOneClock => 55,
            Self::HighWater => 5,
            Self::DeletionOfAnyLife => 28,
            Self::DeadlinesRunAhead => 1,
            Self::LongCancels => 16,
            Self::BatchOfOneAnswer => 2,
            Self::RequestsWithoutEnd => 16,
            Self::ReceiptOfAnyLife => 1,
        }
    }
}
