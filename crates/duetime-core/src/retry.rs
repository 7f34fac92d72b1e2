//! When a message that failed is tried again.

use std::time::Duration;

use crate::limits::ATTEMPTS_MAX;
use crate::setting::{Kind, settings};

settings! {
    /// When a message that failed is tried again, and how often: exponential backoff with jitter.
    #[derive(Copy)]
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
    }
}

impl RetryPolicy {
    /// Refuses values that make no sense together.
    ///
    /// # Errors
    ///
    /// A sentence that names the field and the fix.
    pub fn check(&self) -> Result<(), String> {
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
        if self.max > Duration::from_secs(7 * 86_400) {
            return Err("retry.max is longer than 7 days; make it shorter".to_owned());
        }
        Ok(())
    }

    /// Whether a message that had so many attempts, the last of them without a verdict, is claimed alone.
    ///
    /// One that kills its consumer is to take nobody along. But most consumers that vanish were stopped, with many
    /// messages: these come together once more, unless that would be the last attempt of those beside it.
    #[must_use]
    pub fn suspect_is_alone(&self, attempts: u8) -> bool {
        attempts > 1 || self.max_attempts < 3
    }

    /// The wait after `attempts` failed attempts; `random` in 0..1 draws the jitter.
    #[must_use]
    pub fn backoff(&self, attempts: u8, random: f64) -> Duration {
        let exponent = i32::from(attempts.max(1)) - 1;
        let whole = (self.initial.as_secs_f64() * self.factor.powi(exponent)).min(self.max.as_secs_f64());
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
        assert!(RetryPolicy { factor: f64::NAN, ..policy }.check().is_err());
        assert!(policy.check().is_ok());
    }

    #[test]
    fn a_suspect_is_alone_once_it_took_two_attempts_or_the_next_is_the_last() {
        let policy = |max_attempts| RetryPolicy { max_attempts, ..RetryPolicy::default() };
        let alone = |attempts| policy(10).suspect_is_alone(attempts);
        assert_eq!([0, 1, 2, 3].map(alone), [false, false, true, true]);
        assert_eq!([1, 2, 3].map(|most| policy(most).suspect_is_alone(1)), [true, true, false]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_its_field_is_named() {
        let good = RetryPolicy::default();
        let week = Duration::from_secs(7 * 86_400);
        assert_eq!(RetryPolicy { initial: good.max, ..good }.check(), Ok(()));
        assert_eq!(RetryPolicy { max: week, ..good }.check(), Ok(()));
        for (field, policy) in [
            ("retry.initial", RetryPolicy { initial: good.max + Duration::from_millis(1), ..good }),
            ("retry.max_attempts", RetryPolicy { max_attempts: 0, ..good }),
            ("retry.max_attempts", RetryPolicy { max_attempts: 100, ..good }),
            ("retry.factor", RetryPolicy { factor: 0.9, ..good }),
            ("retry.jitter", RetryPolicy { jitter: 1.1, ..good }),
            ("retry.max", RetryPolicy { max: week + Duration::from_millis(1), ..good }),
        ] {
            let refused = policy.check().expect_err(field);
            assert!(refused.starts_with(&format!("{field} is ")), "{refused}");
        }
    }
}
