//! What users set on a topic.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{
    DEAD_RETENTION_MIN, DUE_AHEAD_MAX, PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX, REMEMBER_MAX, REMEMBER_MIN,
    SHARDS_MAX, SMEAR_MAX, VISIBILITY_MAX, VISIBILITY_MIN,
};
use crate::names::TopicName;
use crate::retry::RetryPolicy;
use crate::setting::{Kind, settings};
use crate::shard_count::ShardCount;
use crate::units::check_delay;

/// The lowest and the highest `rate_limit.per_second`; there is none by default.
const PER_SECOND_MIN: f64 = 0.000_001;
const PER_SECOND_MAX: f64 = 10_000_000.0;

/// Which configured sink a topic delivers to, with the topic's own settings for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "an object with the name of a sink, such as {\"name\": \"hook\"}")]
pub struct SinkRef {
    /// The name under `[sinks.NAME]` in the node's configuration.
    pub name: String,
    /// What that type of sink wants to know per topic (an exchange, a routing key, a path …).
    #[serde(flatten)]
    pub settings: serde_json::Map<String, serde_json::Value>,
}

/// What is promised about a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeliveryMode {
    /// Nothing is lost; a fault can make a duplicate.
    #[default]
    AtLeastOnce,
    /// Removed before it is delivered: never twice, and a fault can lose it.
    AtMostOnce,
}

settings! {
    /// Limits how many messages of a topic are delivered per second.
    #[derive(Copy)]
    pub struct RateLimit {
        /// Most messages delivered per second, 0.000001 to 10,000,000.
        per_second: f64 = 0.0, Kind::Number(PER_SECOND_MIN, PER_SECOND_MAX), option "rate-limit";
        /// How many may go at once after a pause, 1 or more. Default 1.
        burst: u32 = 1, Kind::Count(1, u32::MAX as u64), option "burst";
    }
}

/// What becomes of a message that has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// It is removed, and counted.
    #[default]
    Drop,
    /// It is a dead letter.
    Dead,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_drop(on_expiry: &OnExpiry) -> bool {
    *on_expiry == OnExpiry::Drop
}

settings! {
    /// Everything a user sets on a topic. Absent fields have their defaults.
    pub struct TopicConfig {
        /// How many shards: 1 to 4096, or `"auto"` to follow the number of nodes. Default `"auto"`.
        ///
        /// Another number for a topic that is there begins a resize.
        shards: ShardCount = ShardCount::Auto, Kind::Shards;
        /// Where due messages go: a name under `[sinks.NAME]` of the node, with the topic's own settings for that sink.
        /// Default: none, consumers claim.
        #[serde(skip_serializing_if = "Option::is_none")]
        sink: Option<SinkRef> = None, Kind::Maybe(&Kind::Sink);
        /// How long a claimed message stays hidden from others, 100 ms to 24 h. Default `30s`.
        ///
        /// Set it above the slowest delivery: too low means duplicates, too high means that a crashed node's messages
        /// are late by that much. A change holds from the next claim on.
        #[serde(with = "crate::units::duration")]
        visibility_timeout: Duration = Duration::from_secs(30), Kind::Duration;
        /// When a message falls due that names neither `delay` nor `due_at`: this long after it was enqueued, up to 10
        /// years. Default `0s`: at once.
        #[serde(skip_serializing_if = "Duration::is_zero", with = "crate::units::duration")]
        delay: Duration = Duration::ZERO, Kind::Duration;
        /// When failed messages are tried again; or a list of the waits before each retry, such as `["2m", "10m", "1h"]`.
        /// Default: 10 attempts, `1s` doubling to `10m`, jitter 0.2.
        #[serde(deserialize_with = "crate::retry::read")]
        retry: RetryPolicy = RetryPolicy::default(), Kind::Object(RetryPolicy::SETTINGS);
        /// How many messages each node delivers per second at most: several nodes deliver as many times that. Default: no
        /// limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        rate_limit: Option<RateLimit> = None, Kind::Maybe(&Kind::Object(RateLimit::SETTINGS));
        /// Messages fall due up to this much later than asked for, each by a share that its id decides, at most 1 h.
        /// Default `0s`: all of them when they were asked for.
        ///
        /// Set it where many messages fall due at one moment and their target is better asked over some seconds.
        #[serde(skip_serializing_if = "Duration::is_zero", with = "crate::units::duration")]
        smear: Duration = Duration::ZERO, Kind::Duration;
        /// How long the topic remembers what became of a message: delivered, cancelled, or a dead letter that was removed;
        /// 1 s to 31 days. Default `0s`: not at all.
        ///
        /// Set it so that a cancel or a read of what is gone is answered with its end, an id is not scheduled twice, a
        /// cancel that overtakes its enqueue holds, and an ack that is repeated is known. A message costs about 120 bytes
        /// of the store for so long. A change holds from when each node has read it, within about a second; `0s` forgets.
        #[serde(skip_serializing_if = "Duration::is_zero", with = "crate::units::duration")]
        remember: Duration = Duration::ZERO, Kind::Duration;
        /// What becomes of a message that was not handed over before it expired: `drop`, it is removed and counted, or
        /// `dead`, it is a dead letter. Default `drop`.
        #[serde(skip_serializing_if = "is_drop")]
        on_expiry: OnExpiry = OnExpiry::Drop, Kind::Word(&["drop", "dead"]);
        /// How long a dead letter is kept after it died, 1 s to 10 years; then it is removed for good, and counted. Default:
        /// until it is redriven or purged.
        ///
        /// Its age is counted by the clock of the store, and what is redriven and dies again begins anew. A node looks every
        /// ten seconds or so, and removes up to 2,560 a second. A change holds within seconds.
        #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::maybe_duration")]
        dead_retention: Option<Duration> = None, Kind::Maybe(&Kind::Duration);
        /// How many dead letters the topic keeps; beyond, the oldest of its fullest shards are removed, in the same way.
        /// Default: no limit.
        ///
        /// There may be more of them by what died since the last look, so it is no limit of space: see `max_messages`.
        #[serde(skip_serializing_if = "Option::is_none")]
        dead_max: Option<u64> = None, Kind::Maybe(&Kind::Count(1, u64::MAX));
        /// The topic to which dead letters are forwarded: each is scheduled there, due at once, and leaves this topic. Default:
        /// none, they stay.
        ///
        /// That topic must remember (`remember`), so that none comes twice, and forwards none itself. A node looks every ten
        /// seconds or so. What that topic does not take stays here, and so does what was forwarded once and dies again.
        #[serde(skip_serializing_if = "Option::is_none")]
        dead_to: Option<TopicName> = None, Kind::Maybe(&Kind::Topic);
        /// How many messages of the topic may be claimed and not settled at one time, over all nodes, consumers and
        /// sinks; at least as many as it has shards, over which it is divided. Default: no limit.
        ///
        /// Set it where the target bears only so many at once. What was claimed counts until it is acked, given back,
        /// cancelled or a dead letter, or until its `visibility_timeout` has passed; what waits for a retry does not.
        /// Each shard has its part, so with few messages in few shards fewer may be in flight: give the topic few
        /// shards. Not with `delivery` = `at-most-once`, nor with a sink in place, which settle nothing; not changed
        /// while the shard count changes.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_in_flight: Option<u32> = None, Kind::Maybe(&Kind::Count(1, u32::MAX as u64));
        /// `at-least-once`, or `at-most-once`: removed before it is delivered, so that nothing brings it twice. Default
        /// `at-least-once`.
        ///
        /// What is delivered at most once is lost by a crash of the node or the consumer in that moment, by a client that
        /// hangs up as it is answered, and for a sink by an answer of Redis that is lost with its connection
        /// (`duetime_at_most_once_claims_unanswered_total`). It is never put back, so `cancelled` and `unknown` hold.
        delivery: DeliveryMode = DeliveryMode::AtLeastOnce, Kind::Word(&["at-least-once", "at-most-once"]);
        /// Largest payload, up to 16 MiB. Default 256 KiB.
        #[serde(with = "crate::units::size")]
        max_payload: u64 = PAYLOAD_BYTES_DEFAULT, Kind::Size;
        /// Most messages, dead letters too; more are refused, each by itself, with 507 `topic_full`. Default: no limit.
        ///
        /// Set it so that a producer without consumers fills its own topic and not the store.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_messages: Option<u64> = None, Kind::Maybe(&Kind::Count(1, u64::MAX));
        /// Most bytes of their bodies (payload, headers and about 30 bytes each), in the same way; at least
        /// `max_payload`. Default: no limit.
        #[serde(skip_serializing_if = "Option::is_none", with = "crate::units::maybe_size")]
        max_bytes: Option<u64> = None, Kind::Maybe(&Kind::Size);
        /// Acks, nacks and extensions too are answered once replicas have them, as `store.durability` asks for.
        /// Default `false`.
        ///
        /// Set it where a duplicate after a failover costs more than the wait for a replica.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        confirm_acks: bool = false, Kind::Flag;
        /// The topic has a watermark: a moment before which everything that was due is done. Default `false`. Given when the
        /// topic is created, and never changed.
        ///
        /// Set it where something may be closed only when all that was due before it is done: a billing run, a report.
        /// Each claim and each settlement writes one more entry of the store for each message.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        watermark: bool = false, Kind::Flag;
        /// Nothing is claimed, whether for a sink or by consumers; what falls due waits, as after `POST …/pause`.
        /// Default `false`.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        paused: bool = false, Kind::Flag;
    }
}

/// Refuses a visibility timeout outside its bounds.
///
/// # Errors
///
/// A sentence that names the bounds.
pub fn check_visibility(asked: Duration) -> Result<Duration, String> {
    if (VISIBILITY_MIN..=VISIBILITY_MAX).contains(&asked) {
        Ok(asked)
    } else {
        Err("visibility_timeout must be 100ms to 24h".to_owned())
    }
}

/// What makes no sense in the settings of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingFault {
    /// The setting, then others that it does not go with as they are. Never empty.
    pub settings: &'static [&'static str],
    /// A sentence that names them and the fix.
    pub text: String,
}

impl TopicConfig {
    /// So many shards, or as many as `max_in_flight` can be divided over.
    #[must_use]
    pub fn bounded_shards(&self, shards: u32) -> u32 {
        self.max_in_flight.map_or(shards, |max| shards.min(max.max(1)))
    }

    /// Refuses values that make no sense.
    ///
    /// # Errors
    ///
    /// A sentence that names the field and the fix.
    pub fn check(&self) -> Result<(), String> {
        self.faults().into_iter().next().map_or(Ok(()), |fault| Err(fault.text))
    }

    fn in_flight_fault(&self) -> Option<SettingFault> {
        let max = self.max_in_flight?;
        let (settings, text): (&'static [&'static str], String) = if max == 0 {
            (&["max_in_flight"], "max_in_flight must be 1 or more; leave it out for no limit".to_owned())
        } else if self.delivery == DeliveryMode::AtMostOnce {
            let text = "max_in_flight needs delivery = \"at-least-once\": at most once, nothing is settled that could \
                        be counted; leave it out";
            (&["max_in_flight", "delivery"], text.to_owned())
        } else if let ShardCount::Fixed(shards) = self.shards
            && shards > max
        {
            let text = format!(
                "max_in_flight = {max} is less than shards = {shards}, over which it is divided; set shards to {max} or \
                 fewer"
            );
            (&["max_in_flight", "shards"], text)
        } else {
            return None;
        };
        Some(SettingFault { settings, text })
    }

    /// All that makes no sense.
    #[must_use]
    pub fn faults(&self) -> Vec<SettingFault> {
        let mut found = Vec::new();
        let mut add = |settings: &'static [&'static str], text: String| found.push(SettingFault { settings, text });
        if let Err(fault) = self.retry.check() {
            add(&["retry"], fault);
        }
        if let Err(fault) = check_visibility(self.visibility_timeout) {
            add(&["visibility_timeout"], fault);
        }
        if check_delay(self.delay).is_err() {
            add(&["delay"], "delay must be 10 years or less; 0s for none".to_owned());
        }
        if self.smear > SMEAR_MAX {
            add(&["smear"], "smear must be 1h or less; 0s for none".to_owned());
        }
        if self.on_expiry == OnExpiry::Dead && self.delivery == DeliveryMode::AtMostOnce && self.sink.is_some() {
            let fault = "on_expiry = \"dead\" needs delivery = \"at-least-once\": at most once, a claim for a sink takes the \
                         message out of the store; set on_expiry to \"drop\"";
            add(&["on_expiry", "delivery", "sink"], fault.to_owned());
        }
        if !self.remember.is_zero() && !(REMEMBER_MIN..=REMEMBER_MAX).contains(&self.remember) {
            add(&["remember"], "remember must be 1s to 31d; 0s for none".to_owned());
        }
        if self.dead_retention.is_some_and(|kept| !(DEAD_RETENTION_MIN..=DUE_AHEAD_MAX).contains(&kept)) {
            let fault = "dead_retention must be 1s to 10 years; leave it out to keep dead letters until they are redriven or \
                         purged";
            add(&["dead_retention"], fault.to_owned());
        }
        if self.dead_max == Some(0) {
            add(&["dead_max"], "dead_max must be 1 or more; leave it out for no limit".to_owned());
        }
        if !(1..=PAYLOAD_BYTES_MAX).contains(&self.max_payload) {
            add(&["max_payload"], "max_payload must be 1 byte to 16MiB".to_owned());
        }
        if self.max_messages == Some(0) {
            add(&["max_messages"], "max_messages must be 1 or more; leave it out for no limit".to_owned());
        }
        if self.max_bytes.is_some_and(|most| most < self.max_payload) {
            let fault = "max_bytes must be at least max_payload; leave it out for no limit".to_owned();
            add(&["max_bytes", "max_payload"], fault);
        }
        if let Some(limit) = self.rate_limit {
            if !(PER_SECOND_MIN..=PER_SECOND_MAX).contains(&limit.per_second) {
                add(&["rate_limit"], "rate_limit.per_second must be 0.000001 to 10000000".to_owned());
            }
            if limit.burst == 0 {
                add(&["rate_limit"], "rate_limit.burst must be 1 or more".to_owned());
            }
        }
        if let ShardCount::Fixed(count) = self.shards
            && !(1..=SHARDS_MAX).contains(&count)
        {
            add(&["shards"], format!("shards must be 1 to {SHARDS_MAX} or \"auto\""));
        }
        found.extend(self.in_flight_fault());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_read_as_users_write_it_and_typos_are_named() {
        let text = r#"{"shards": "auto", "visibility_timeout": "45s", "max_payload": "1MiB",
            "retry": {"max_attempts": 3}, "delivery": "at-most-once",
            "sink": {"name": "mq", "exchange": "orders"}}"#;
        let config: TopicConfig = serde_json::from_str(text).unwrap();
        assert_eq!(config.visibility_timeout, Duration::from_secs(45));
        assert_eq!(config.sink.as_ref().unwrap().settings["exchange"], "orders");
        let back: TopicConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
        assert_eq!(back, config);
        let typo = serde_json::from_str::<TopicConfig>(r#"{"visibility_timout": 1}"#).unwrap_err();
        assert!(typo.to_string().contains("visibility_timeout"));
        for bad in ["0", "4097", "-1", "\"many\"", "1.5"] {
            let error = serde_json::from_str::<TopicConfig>(&format!("{{\"shards\": {bad}}}")).unwrap_err();
            assert!(error.to_string().contains("shards must be 1 to 4096"), "{error}");
        }
    }

    #[test]
    fn what_may_be_in_flight_is_at_least_one_for_each_shard_and_only_of_what_is_settled() {
        let read = |text: &str| serde_json::from_str::<TopicConfig>(text).unwrap();
        let config = read(r#"{"max_in_flight": 6}"#);
        assert!(config.check().is_ok());
        assert_eq!([1, 6, 64].map(|shards| config.bounded_shards(shards)), [1, 6, 6]);
        assert!(read(r#"{"max_in_flight": 6, "shards": 6}"#).check().is_ok());
        let refused = read(r#"{"max_in_flight": 6, "shards": 7}"#).check().unwrap_err();
        assert!(refused.starts_with("max_in_flight") && refused.ends_with("set shards to 6 or fewer"), "{refused}");
        assert!(read(r#"{"max_in_flight": 0}"#).check().unwrap_err().contains("leave it out"));
        assert!(read(r#"{"max_in_flight": 6, "delivery": "at-most-once"}"#).check().unwrap_err().contains("delivery"));
        assert_eq!(TopicConfig::default().bounded_shards(4096), 4096);
    }

    #[test]
    fn how_long_dead_letters_are_kept_is_read_as_users_write_it_and_bounded() {
        let read = |text: &str| serde_json::from_str::<TopicConfig>(text).unwrap();
        let config = read(r#"{"dead_retention": "14d", "dead_max": 100}"#);
        assert_eq!(config.dead_retention, Some(Duration::from_secs(14 * 86_400)));
        assert_eq!(read(&serde_json::to_string(&config).unwrap()), config);
        assert_eq!(read(r#"{"dead_retention": null, "dead_max": null}"#), TopicConfig::default());
        for (bad, fix) in [
            (r#"{"dead_retention": "999ms"}"#, "leave it out to keep dead letters"),
            (r#"{"dead_retention": "11years"}"#, "1s to 10 years"),
            (r#"{"dead_max": 0}"#, "1 or more"),
        ] {
            assert!(read(bad).check().unwrap_err().contains(fix), "{bad}");
        }
    }

    #[test]
    fn a_dead_letter_of_what_has_expired_needs_a_message_that_a_claim_leaves_in_the_store() {
        let check = |text: &str| serde_json::from_str::<TopicConfig>(text).unwrap().check();
        let fault = check(r#"{"on_expiry": "dead", "delivery": "at-most-once", "sink": {"name": "mq"}}"#).unwrap_err();
        assert!(fault.contains("on_expiry") && fault.contains("set on_expiry to \"drop\""), "{fault}");
        for good in [
            r#"{"on_expiry": "dead", "delivery": "at-most-once"}"#,
            r#"{"on_expiry": "dead", "sink": {"name": "mq"}}"#,
            r#"{"delivery": "at-most-once", "sink": {"name": "mq"}}"#,
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }
}
