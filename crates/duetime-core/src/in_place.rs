//! Delivery inside the store: what is due moves to a stream beside the shard, in one atomic step.
//!
//! Upstream: dispatch, for topics whose sink says so ([`crate::Sink::in_place`]). A store that can
//! answers [`crate::ClaimStore::has_streams`]. There is no claim and nothing to settle: the step that
//! takes a message out of the shard is the one that appends it, so it happens exactly once.

use crate::time::Timestamp;
use crate::topic_config::OnExpiry;

/// What is wrong with a sink in place on a store without streams, after its name.
pub const IN_PLACE_NEEDS_STREAMS: &str = "delivers in place, which needs a store that has streams itself; choose one (docs/SINKS.md), or give the sink a url";

/// Why a topic whose sink delivers in place takes no message that repeats.
pub const IN_PLACE_ENDS_SERIES: &str = "its sink delivers in place: the store hands messages over by itself, and no node \
    is there to write the next one; give the sink a url, or the topic another sink";

/// Why a topic whose sink delivers in place has no bound of what is in flight.
pub const IN_PLACE_IS_NEVER_IN_FLIGHT: &str = "delivers in place: what is handed over is settled in the \
    same step, so nothing is ever in flight; give the sink a url, or leave max_in_flight out";

/// How a sink wants its messages delivered inside the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InPlace {
    /// About how many entries each shard's stream keeps, read or not; `None`: all.
    pub max_length: Option<u64>,
}

/// What one step of delivery in place is asked to do.
#[derive(Clone, Debug)]
pub struct StreamTransfer {
    /// Random name of this step, so that one whose answer was lost is answered again and not counted twice.
    pub request: u64,
    /// Most messages, at most [`crate::limits::BATCH_ITEMS_MAX`].
    pub limit: usize,
    /// The sink's settings.
    pub how: InPlace,
    /// What becomes of messages that have expired.
    pub on_expiry: OnExpiry,
}

/// The answer to a [`StreamTransfer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streamed {
    /// Messages that are in the stream now.
    pub count: u64,
    /// Since when they were visible, and how many each time, rounded inwards to the batch for what
    /// was redriven; empty when this repeats the answer of an earlier step.
    pub visible: Vec<(Timestamp, u64)>,
    /// The present moment as the store decided it.
    pub now: Timestamp,
    /// When the earliest message left in the shard is visible; `None`: the shard is empty.
    pub next_due: Option<Timestamp>,
    /// Messages visible at `now` that this step left behind.
    pub due_left: u64,
    /// Messages moved to the dead letters: expired, without a body, or with one that cannot be read.
    pub buried: u64,
    /// Claims of an earlier sink that this step found ended without a verdict.
    pub ran_out: u64,
    /// Messages that had expired, removed or moved to the dead letters.
    pub expired: u64,
}
