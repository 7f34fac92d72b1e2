//! Every bound that more than one crate must agree on, by name.

use std::time::Duration;

/// Most items one store script may touch. A script of this size takes about 1 ms of Redis.
pub const BATCH_ITEMS_MAX: usize = 256;

/// Most items of one call at a source shard that may remove: what was found is remembered for a repetition, two
/// bits each, in a number that a script keeps exactly.
pub const OLD_ITEMS_MAX: usize = 25;

/// Items per script above which nothing more is gained per message (measured on Redis 7.0).
pub const BATCH_ITEMS: usize = 64;

/// Most bytes of bodies one claim brings. At least one message is always brought, however large.
pub const CLAIM_BYTES_MAX: usize = 1 << 20;

/// Most bytes of bodies one enqueue script is given. One message may be larger by itself.
pub const ENQUEUE_BYTES_MAX: usize = 4 << 20;

/// Longest message id, in bytes of UTF-8.
pub const ID_BYTES_MAX: usize = 256;

/// Longest topic name, in bytes.
pub const TOPIC_BYTES_MAX: usize = 100;

/// Most shards a topic may have.
pub const SHARDS_MAX: u32 = 4096;

/// Highest count of redrives that a message keeps; further ones leave it as it is.
pub const REDRIVES_MAX: u16 = 999;

/// Largest `max_attempts` of a topic and of a message: two decimal digits of the score hold the attempts.
pub const ATTEMPTS_MAX: u8 = 99;

/// Payload limit of a topic that names none.
pub const PAYLOAD_BYTES_DEFAULT: u64 = 256 << 10;

/// Largest payload limit a topic may name.
pub const PAYLOAD_BYTES_MAX: u64 = 16 << 20;

/// Most headers on one message, those that Duetime keeps itself not counted.
pub const HEADERS_MAX: usize = 64;

/// Most bytes of all header names and values of one message, of those that are counted by [`HEADERS_MAX`].
pub const HEADER_BYTES_MAX: usize = 16 << 10;

/// How the names of headers begin that Duetime keeps itself: how often a message is tried, when it expires, of which
/// message it is a copy.
pub const OWN_HEADERS: &str = "duetime-";

/// Headers of Duetime's own that a message may have besides [`HEADERS_MAX`] others.
pub const OWN_HEADERS_MAX: usize = 8;

/// Bytes that they may have besides [`HEADER_BYTES_MAX`].
pub const OWN_HEADER_BYTES_MAX: usize = 1 << 10;

/// How far ahead a due time may lie: ten years of 365.25 days.
pub const DUE_AHEAD_MAX: Duration = Duration::from_millis(315_576_000_000);

/// Shortest `repeat.every` of a message; the longest is [`DUE_AHEAD_MAX`].
pub const EVERY_MIN: Duration = Duration::from_secs(1);
/// Longest `repeat.cron` of a message, in bytes.
pub const CRON_BYTES_MAX: usize = 128;
/// Longest name of a time zone, in bytes; the longest there is has 32.
pub const TIME_ZONE_BYTES_MAX: usize = 64;
/// Shortest and longest `remember` of a topic.
pub const REMEMBER_MIN: Duration = Duration::from_secs(1);
/// See [`REMEMBER_MIN`].
pub const REMEMBER_MAX: Duration = Duration::from_secs(31 * 24 * 3600);

/// Cancels of unknown ids that a shard remembers at most; further ones are refused ([`crate::store::Edited::Full`]).
/// Each takes about 120 bytes of the store.
pub const NOTES_MAX: u32 = 1 << 20;

/// Shortest `dead_retention` of a topic; the longest is [`DUE_AHEAD_MAX`].
pub const DEAD_RETENTION_MIN: Duration = Duration::from_secs(1);

/// Earlier shard counts that a topic keeps while what ended under them is remembered.
pub const EARLIER_COUNTS_MAX: usize = 64;

/// Longest `smear` of a topic.
pub const SMEAR_MAX: Duration = Duration::from_secs(3600);

/// Longest reason of a pause, in bytes of UTF-8.
pub const PAUSE_REASON_BYTES_MAX: usize = 200;

/// Shortest and longest visibility timeout.
pub const VISIBILITY_MIN: Duration = Duration::from_millis(100);
/// See [`VISIBILITY_MIN`].
pub const VISIBILITY_MAX: Duration = Duration::from_secs(24 * 3600);

/// Longest time a consumer's claim may wait for something due.
pub const CLAIM_WAIT_MAX: Duration = Duration::from_secs(60);

/// Apart by more than this, the caller's clock and the store's take nothing (`ClockSkew`).
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(2);

/// A shard is polled no later than this after the last poll, hint or no hint.
pub const SAFETY_POLL_EVERY: Duration = Duration::from_secs(1);

/// Cancels of claimed messages that a shard remembers at least.
pub const CANCELS_KEPT: usize = 50;

/// Longest reason kept with a dead letter, in bytes; the rest is cut.
pub const REASON_BYTES_MAX: usize = 500;

/// Most buckets one forecast may ask for.
pub const FORECAST_BUCKETS_MAX: usize = 1_440;
