//! The worlds that are explored, and the mutations that must be caught.

/// What a client does, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Schedules a message with this id.
    Enqueue(u8),
    /// Cancels it.
    Cancel(u8),
    /// Claims the first message of any shard, then acks it.
    ClaimAck,
    /// Claims the first message of any shard, then makes it a dead letter.
    ClaimBury,
}

/// A fault built into the protocol on purpose: the properties must find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// The source drops a batch before it is put.
    DropBeforePut,
    /// A taken batch stays claimable at the source.
    CopyWithoutFreezing,
    /// Movers do not fence.
    NoFence,
    /// Operations look at the new home first.
    NewHomeFirst,
    /// Operations look only at the new home.
    StraightToNewHome,
    /// The destination remembers a batch's number without its nonce.
    NumberWithoutNonce,
    /// A put is not replicated before the source drops.
    NoWaitAtDestination,
    /// A receipt is the number of attempts instead of the deadline.
    ReceiptIsAttempts,
    /// A mover commits after one pass over what it could take itself.
    CommitWithoutVerify,
    /// A second resize begins while one moves.
    SecondResizeWhileMoving,
    /// What is absent at the source shard is acted on at the new one before the absence is replicated.
    AbsenceUnconfirmed,
    /// A shard counts as verified before what was seen there is replicated.
    VerifyUnreplicated,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::DropBeforePut,
        Self::CopyWithoutFreezing,
        Self::NoFence,
        Self::NewHomeFirst,
        Self::StraightToNewHome,
        Self::NumberWithoutNonce,
        Self::NoWaitAtDestination,
        Self::ReceiptIsAttempts,
        Self::CommitWithoutVerify,
        Self::SecondResizeWhileMoving,
        Self::AbsenceUnconfirmed,
        Self::VerifyUnreplicated,
    ];
}

/// One world: who is in it, and how many faults may happen.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For people.
    pub name: &'static str,
    /// The shard counts, one after the other.
    pub plan: Vec<u8>,
    /// What is there (and acknowledged) at the start.
    pub stored: Vec<u8>,
    /// What each client does.
    pub clients: Vec<Vec<Op>>,
    /// Most messages in one batch of a move.
    pub batch: usize,
    /// How many movers.
    pub movers: usize,
    /// How many times a mover may crash.
    pub crashes: u8,
    /// How many times a primary may be replaced by its replica.
    pub failovers: u8,
    /// How many times a claim's deadline may pass.
    pub expiries: u8,
    /// Replicas may also catch up by themselves, not only when somebody waits for them.
    pub catch_up: bool,
    /// A take waits for its replica. Without it a failover may bring a copy back (a duplicate), but
    /// must lose nothing.
    pub wait_for_take: bool,
    /// The fault built in.
    pub mutation: Option<Mutation>,
}

/// Shards that can exist in any world.
pub const SHARDS: usize = 3;

/// The home of an id among `shards`: as with jump hashing, growing moves ids only into new shards.
#[must_use]
pub fn home(id: u8, shards: u8) -> usize {
    match (id, shards) {
        (0 | 3, 2..) => 1,
        (1, 3..) => 2,
        _ => 0,
    }
}

impl Settings {
    fn base(name: &'static str, plan: &[u8], stored: &[u8], clients: &[&[Op]]) -> Self {
        Self {
            name,
            plan: plan.to_vec(),
            stored: stored.to_vec(),
            clients: clients.iter().map(|ops| ops.to_vec()).collect(),
            batch: 8,
            movers: 1,
            crashes: 0,
            failovers: 0,
            expiries: 0,
            catch_up: false,
            wait_for_take: true,
            mutation: None,
        }
    }

    /// The small worlds: explored by every test run.
    #[must_use]
    pub fn small() -> Vec<Self> {
        use Op::{Cancel, ClaimAck, ClaimBury, Enqueue};
        vec![
            Self {
                movers: 2,
                crashes: 1,
                ..Self::base("grow, enqueue and cancel", &[1, 2], &[], &[&[Enqueue(0), Cancel(0)], &[Enqueue(0)]])
            },
            Self {
                movers: 2,
                failovers: 1,
                ..Self::base("grow under a failover, two movers", &[1, 2], &[0], &[&[Cancel(0)], &[Enqueue(0)]])
            },
            Self {
                movers: 2,
                expiries: 1,
                ..Self::base("grow while claimed", &[1, 2], &[0], &[&[ClaimAck], &[ClaimAck]])
            },
            Self {
                expiries: 1,
                ..Self::base(
                    "an old receipt meets a new life",
                    &[1, 2],
                    &[0],
                    &[&[ClaimAck], &[Cancel(0), Enqueue(0), ClaimAck]],
                )
            },
            Self {
                crashes: 1,
                failovers: 1,
                ..Self::base("shrink with a dead letter", &[2, 1], &[0, 1], &[&[ClaimBury], &[Cancel(0)]])
            },
            Self {
                movers: 2,
                ..Self::base("one source, two destinations", &[1, 3], &[0, 1], &[&[Cancel(0)], &[Enqueue(1)]])
            },
            Self {
                crashes: 1,
                ..Self::base(
                    "two resizes one after the other",
                    &[1, 2, 1],
                    &[0],
                    &[&[Cancel(0), Enqueue(0)], &[ClaimAck]],
                )
            },
            Self {
                movers: 2,
                failovers: 1,
                batch: 1,
                ..Self::base("batches of one under a failover", &[1, 2], &[0, 3], &[&[Cancel(3)]])
            },
            Self {
                movers: 2,
                failovers: 1,
                batch: 1,
                wait_for_take: false,
                ..Self::base("batches of one, takes without replicas", &[1, 2], &[0, 3], &[&[Cancel(3)]])
            },
            Self {
                movers: 2,
                failovers: 1,
                wait_for_take: false,
                ..Self::base("takes without replicas", &[1, 2], &[0], &[&[Enqueue(0)], &[Cancel(0)]])
            },
        ]
    }

    /// The large worlds: explored by a command.
    #[must_use]
    pub fn large() -> Vec<Self> {
        use Op::{Cancel, ClaimAck, ClaimBury, Enqueue};
        vec![
            Self {
                movers: 2,
                crashes: 1,
                failovers: 1,
                catch_up: true,
                ..Self::base("grow, everything at once", &[1, 2], &[0], &[&[Cancel(0), Enqueue(0)], &[ClaimAck]])
            },
            Self {
                movers: 2,
                failovers: 1,
                expiries: 1,
                ..Self::base(
                    "grow and shrink under a failover",
                    &[1, 2, 1],
                    &[0],
                    &[&[Cancel(0), Enqueue(0)], &[ClaimAck]],
                )
            },
            Self {
                movers: 2,
                crashes: 1,
                failovers: 1,
                ..Self::base("two destinations and a dead letter", &[1, 3], &[0, 1], &[&[ClaimBury], &[Cancel(1)]])
            },
            Self {
                movers: 2,
                crashes: 1,
                failovers: 2,
                wait_for_take: false,
                ..Self::base("takes without replicas, two failovers", &[1, 2], &[0], &[&[Enqueue(0)], &[Cancel(0)]])
            },
        ]
    }

    /// A world in which `mutation` does its harm soon.
    #[must_use]
    pub fn with_mutation(mutation: Mutation) -> Self {
        use Op::{Cancel, ClaimAck, Enqueue};
        let base = match mutation {
            Mutation::DropBeforePut => Self { crashes: 1, ..Self::base("mutated", &[1, 2], &[0], &[&[Cancel(0)]]) },
            Mutation::CopyWithoutFreezing => Self::base("mutated", &[1, 2], &[0], &[&[ClaimAck], &[ClaimAck]]),
            Mutation::NoFence => Self::base("mutated", &[1, 2], &[], &[&[Enqueue(0)], &[Enqueue(0)]]),
            Mutation::NewHomeFirst | Mutation::StraightToNewHome => {
                Self::base("mutated", &[1, 2], &[0], &[&[Cancel(0)], &[Enqueue(0)]])
            }
            Mutation::NumberWithoutNonce => Self {
                movers: 2,
                failovers: 1,
                wait_for_take: false,
                batch: 1,
                ..Self::base("mutated", &[1, 2], &[0, 3], &[&[Cancel(0)]])
            },
            Mutation::NoWaitAtDestination => {
                Self { failovers: 1, ..Self::base("mutated", &[1, 2], &[0], &[&[Cancel(0)]]) }
            }
            Mutation::ReceiptIsAttempts => Self {
                expiries: 1,
                ..Self::base("mutated", &[1, 2], &[0], &[&[ClaimAck], &[Cancel(0), Enqueue(0), ClaimAck]])
            },
            Mutation::CommitWithoutVerify => {
                Self { movers: 2, ..Self::base("mutated", &[1, 2], &[0], &[&[Cancel(0)]]) }
            }
            Mutation::VerifyUnreplicated => {
                Self { movers: 2, failovers: 1, ..Self::base("mutated", &[1, 2], &[0], &[&[Cancel(0)], &[Enqueue(0)]]) }
            }
            Mutation::AbsenceUnconfirmed => {
                Self { failovers: 1, ..Self::base("mutated", &[1, 2], &[0], &[&[Cancel(0)], &[Enqueue(0)]]) }
            }
            Mutation::SecondResizeWhileMoving => {
                Self::base("mutated", &[1, 2, 3], &[0], &[&[Cancel(0)], &[Enqueue(0)]])
            }
        };
        Self { mutation: Some(mutation), ..base }
    }
}
