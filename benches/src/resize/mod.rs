//! A change of the shard count under load, measured: the same load with and without it.
//!
//! Upstream: `benches/src/bin/resize.rs`. The node is the released program, on a Redis of its own.

pub mod load;
pub mod moved;
pub mod phase;
pub mod slow;

/// The topic.
pub const TOPIC: &str = "orders";
/// Its shards at first.
pub const FROM: u32 = 8;
/// And after each doubling.
pub const TO: u32 = 16;
/// Messages enqueued a second, and due a second.
pub const PER_S: u64 = 2_000;

/// Microseconds since 1970.
#[must_use]
pub fn now_micros() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "a measurement of real time")]
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_micros()).expect("before the end of time")
}
