//! When a message that failed is tried again.

use std::fmt;
use std::time::Duration;

use serde::Deserialize as _;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use crate::limits::ATTEMPTS_MAX;
use crate::setting::{Kind, settings};
use crate::units::durations;

/// Longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Most entries of `waits`: one before each retry.
pub const WAITS_MAX: usize = ATTEMPTS_MAX as usize - 1;

settings! {
    /// When a message that failed is tried again, and how often: exponential backoff with jitter, or a list of waits.
    pub struct RetryPolicy {
        /// How many times a message is delivered before it is a dead letter, 1 to 99. Default 10.
        max_attempts: u8 = 10, Kind::Count(1, ATTEMPTS_MAX as u64), option "max-attempts";
        /// Wait after the first failure. Default `1s`.
        #[serde(with = "crate::units::duration")]
        initial: Duration = Duration::from_secs(1), Kind::Duration;
        /// Longest wait between attempts, at most 7 days. Default `10m`.
        #[serde(with = "crate::units::duration")]
        max: Duration = Duration::from_secs(600), Kind::Duration;
        /// Each wait is the one before times this, 1 to 10. Default 2.
        factor: f64 = 2.0, Kind::Number(1.0, 10.0);
        /// Share of the wait that is drawn at random, 0 to 1: 0 none, 1 "full jitter"
        /// (AWS Architecture Blog, 2015). Default 0.2.
        jitter: f64 = 0.2, Kind::Number(0.0, 1.0);
        /// The wait before each retry, up to 98 of at most 7 days, instead of `initial`, `max` and `factor`; later retries
        /// wait as long as the last one says, until `max_attempts`. Default: none.
        ///
        /// A list in place of `retry` sets both: `["2m", "10m"]` is `{"max_attempts": 3, "waits": ["2m", "10m"]}`.
        #[serde(skip_serializing_if = "Vec::is_empty", with = "crate::units::durations")]
        waits: Vec<Duration> = Vec::new(), Kind::Durations(WAITS_MAX);
    }
}

/// The names of the settings, for who asks a type for its fields.
const FIELDS: &[&str] = &{
    let mut names = [""; RetryPolicy::SETTINGS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = RetryPolicy::SETTINGS[at].name;
        at += 1;
    }
    names
};

/// Reads the settings, or the list of waits that stands for them.
///
/// # Errors
///
/// It is neither, or an entry is no duration.
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<RetryPolicy, D::Error> {
    struct GivenRetry;
    impl<'de> Visitor<'de> for GivenRetry {
        type Value = RetryPolicy;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object, or a list of waits such as [\"2m\", \"10m\"]")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RetryPolicy, A::Error> {
            RetryPolicy::deserialize(MapAccessDeserializer::new(map))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<RetryPolicy, A::Error> {
            durations::deserialize(SeqAccessDeserializer::new(list)).map(RetryPolicy::of_waits)
        }
    }
    from.deserialize_struct("RetryPolicy", FIELDS, GivenRetry)
}

impl RetryPolicy {
    /// One retry after each of these waits.
    #[must_use]
    pub fn of_waits(waits: Vec<Duration>) -> Self {
        let max_attempts = u8::try_from(waits.len() + 1).unwrap_or(u8::MAX);
        Self { max_attempts, waits, ..Self::default() }
    }

    /// Refuses values that make no sense together.
    ///
    /// # Errors
    ///
    /// A sentence that names the field and the fix.
    pub fn check(&self) -> Result<(), String> {
        if self.waits.len() > WAITS_MAX {
            return Err(format!("retry.waits is a list of {}; give {WAITS_MAX} at most", self.waits.len()));
        }
        if let Some(at) = self.waits.iter().position(|wait| *wait > WAIT_MAX) {
            return Err(format!("retry.waits is longer than 7 days in its entry {}; make it shorter", at + 1));
        }
        if !(1..=ATTEMPTS_MAX).contains(&self.max_attempts) {
            return Err(format!("retry.max_attempts is {}; give 1 to {ATTEMPTS_MAX}", self.max_attempts));
        }
        if !(1.0..=10.0).contains(&self.factor) {
            return Err(format!("retry.factor is {}; give 1 to 10", self.factor));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(format!("retry.jitter is {}; give a share from 0 to 1", self.jitter));
        }
        if self.initial > self.max {
            return Err("retry.initial is longer than retry.max; make it at most as long".to_owned());
        }
        if self.max > WAIT_MAX {
            return Err("retry.max is longer than 7 days; make it shorter".to_owned());
        }
        Ok(())
    }

    /// Whether a message that had so many of its `most` attempts, the last of them without a verdict, is claimed alone.
    ///
    /// One that kills its consumer is to take nobody along. But most consumers that vanish were stopped, with many
    /// messages: these come together once more, unless that would be the last attempt of those beside it.
    #[must_use]
    pub fn suspect_is_alone(attempts: u8, most: u8) -> bool {
        attempts > 1 || most < 3
    }

    /// The wait after `attempts` failed attempts; `random` in 0..1 draws the jitter.
    #[must_use]
    pub fn backoff(&self, attempts: u8, random: f64) -> Duration {
        let before = attempts.max(1) - 1;
        let whole = match self.waits.get(usize::from(before)).or(self.waits.last()) {
            Some(wait) => wait.as_secs_f64(),
            None => (self.initial.as_secs_f64() * self.factor.powi(i32::from(before))).min(self.max.as_secs_f64()),
        };
        Duration::from_secs_f64(whole * (1.0 - self.jitter * random.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_jitter_only_shortens() {
        let policy = RetryPolicy::default();
        let waits: Vec<u64> = (1..=12).map(|n| policy.backoff(n, 0.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
        assert_eq!(policy.backoff(1, 1.0), Duration::from_millis(800));
        assert!(policy.check().is_ok());
        assert!(RetryPolicy { factor: f64::NAN, ..policy }.check().is_err());
    }

    #[test]
    fn a_list_is_one_retry_after_each_wait_and_more_attempts_wait_as_the_last_says() {
        let secs = Duration::from_secs;
        let read = |text: &str| read(&mut serde_json::Deserializer::from_str(text)).map_err(|error| error.to_string());
        let policy = read(r#"["2m", "10m", "1h"]"#).unwrap();
        assert_eq!((policy.max_attempts, policy.check()), (4, Ok(())));
        let whole = r#"{"max_attempts": 4, "waits": ["2m", "10m", "1h"]}"#;
        assert_eq!(read(whole), Ok(policy.clone()), "the list is short for this");
        assert_eq!(read(&serde_json::to_string(&policy).unwrap()), Ok(policy.clone()));
        let waits = [0, 1, 2, 3, 4, 99].map(|attempts| policy.backoff(attempts, 0.0));
        assert_eq!(waits, [secs(120), secs(120), secs(600), secs(3600), secs(3600), secs(3600)]);
        assert_eq!(policy.backoff(2, 1.0), secs(480), "jitter shortens these waits too");
        assert_eq!(read("[]").map(|policy| policy.max_attempts), Ok(1), "no retry");
        assert_eq!(read(r#"{"waits": []}"#), Ok(RetryPolicy::default()));
        for (wrong, named) in [("[7]", "7"), (r#"["soon"]"#, "soon"), ("5", "a list of waits"), ("true", "an object")] {
            assert!(read(wrong).unwrap_err().contains(named), "{wrong}");
        }
    }

    #[test]
    fn a_suspect_is_alone_once_it_took_two_attempts_or_the_next_is_the_last() {
        let alone = |attempts| RetryPolicy::suspect_is_alone(attempts, 10);
        assert_eq!([0, 1, 2, 3].map(alone), [false, false, true, true]);
        assert_eq!([1, 2, 3].map(|most| RetryPolicy::suspect_is_alone(1, most)), [true, true, false]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_its_field_is_named() {
        let good = RetryPolicy::default();
        let week = Duration::from_secs(7 * 86_400);
        let waits = |waits: Vec<Duration>| RetryPolicy { waits, ..RetryPolicy::default() };
        assert_eq!(RetryPolicy { initial: good.max, ..good.clone() }.check(), Ok(()));
        assert_eq!(RetryPolicy { max: week, ..good.clone() }.check(), Ok(()));
        assert_eq!(waits(vec![week; WAITS_MAX]).check(), Ok(()));
        for (field, policy) in [
            ("retry.initial", RetryPolicy { initial: good.max + Duration::from_millis(1), ..good.clone() }),
            ("retry.max_attempts", RetryPolicy { max_attempts: 0, ..good.clone() }),
            ("retry.max_attempts", RetryPolicy { max_attempts: 100, ..good.clone() }),
            ("retry.factor", RetryPolicy { factor: 0.9, ..good.clone() }),
            ("retry.jitter", RetryPolicy { jitter: 1.1, ..good.clone() }),
            ("retry.max", RetryPolicy { max: week + Duration::from_millis(1), ..good }),
            ("retry.waits", waits(vec![week, week + Duration::from_millis(1)])),
            ("retry.waits", waits(vec![week; WAITS_MAX + 1])),
            ("retry.waits", RetryPolicy::of_waits(vec![week; 300])),
        ] {
            let refused = policy.check().expect_err(field);
            assert!(refused.starts_with(&format!("{field} is ")), "{refused}");
        }
    }
}
