//! The engine's bounds, by name.

use std::time::Duration;

/// Bounds of one node's engine. The defaults suit a node with a few hundred MiB of memory.
#[derive(Clone, Debug)]
pub struct DispatchConfig {
    /// Most messages in flight on this node, from claim to settlement. Default 65,536.
    pub messages_max: usize,
    /// Most messages in flight of one topic. Default 8,192.
    pub topic_messages_max: usize,
    /// Most bytes of bodies in flight on this node. Default 256 MiB.
    pub bytes_max: usize,
    /// Most bytes of bodies in flight of one topic. Default 64 MiB.
    pub topic_bytes_max: usize,
    /// Longest time one call of a sink may take, whatever the visibility timeout. Default `60s`.
    pub call_timeout: Duration,
    /// How often the gauges of scheduled, due, in flight and dead messages are taken. Default `5s`.
    pub gauges_every: Duration,
    /// Waits for due times by a timer of the system where there is one, and not by the runtime's, which is up to 2 ms
    /// late. Default false, for tests that move the runtime's time.
    pub precise_timer: bool,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self {
            messages_max: 65_536,
            topic_messages_max: 8_192,
            bytes_max: 256 << 20,
            topic_bytes_max: 64 << 20,
            call_timeout: Duration::from_secs(60),
            gauges_every: Duration::from_secs(5),
            precise_timer: false,
        }
    }
}

/// However often a poll is wanted before its time, two are at least this far apart.
pub(crate) const POLL_GAP: Duration = Duration::from_millis(20);

/// Most claims of one topic under way at once at one server of the store.
pub(crate) const CLAIMS_IN_FLIGHT: usize = 8;

/// A claim that is not answered within this holds nobody up any more, where the store has other servers: its own is
/// asked after them, and what it reserved is theirs.
pub(crate) const GIVES_BACK_AFTER: Duration = Duration::from_millis(100);

/// A server that has not answered a claim for this long is reported, and the consumer who asked goes on.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(1);

/// Most batches waiting between two loops of a topic. What waits is bounded by the permits too.
pub(crate) const QUEUE_BATCHES: usize = 64;

/// Most bytes of bodies in one call of a sink, unless a single message is larger.
pub(crate) const CALL_BYTES_MAX: usize = 4 << 20;

/// A claim that brought nothing from a shard that should have something due is repeated after this.
pub(crate) const EMPTY_PAUSE: Duration = Duration::from_millis(5);

/// First and longest wait before a shard is asked again that has as many messages in flight as it may; it doubles. What
/// this node settles is heard of at once, what other nodes settle and what runs out of its visibility is found so.
pub(crate) const FULL_PAUSE_MIN: Duration = Duration::from_millis(25);
/// See [`FULL_PAUSE_MIN`].
pub(crate) const FULL_PAUSE_MAX: Duration = Duration::from_millis(400);

/// First and longest wait between two tries of a store call.
pub(crate) const STORE_BACKOFF_MIN: Duration = Duration::from_millis(50);
/// See [`STORE_BACKOFF_MIN`].
pub(crate) const STORE_BACKOFF_MAX: Duration = Duration::from_secs(2);

/// Verdicts of one shard wait this long for company before they are settled in one call.
pub(crate) const SETTLE_LINGER: Duration = Duration::from_millis(5);

/// The wait before a shard is asked again that was full so many times on end.
pub(crate) fn full_pause(times: u32) -> Duration {
    FULL_PAUSE_MIN.saturating_mul(1 << times.clamp(1, 10).saturating_sub(1)).min(FULL_PAUSE_MAX)
}

/// The wait after `failures` failed tries, up to [`STORE_BACKOFF_MAX`]; a fifth of it is drawn at random.
pub(crate) fn store_backoff(failures: u32) -> Duration {
    let whole = STORE_BACKOFF_MIN.saturating_mul(1 << failures.clamp(1, 10).saturating_sub(1)).min(STORE_BACKOFF_MAX);
    whole.mul_f64(1.0 - 0.2 * rand::random::<f64>())
}
