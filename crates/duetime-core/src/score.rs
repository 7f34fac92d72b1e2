//! The score of a message in its shard: next visible time, lease class and attempts in one number.
//!
//! `score = visible_ms · 1000 + class · 100 + attempts`: sorted by time, readable in redis-cli,
//! exact in a double until the year 2255.

use std::time::Duration;

use crate::limits::ATTEMPTS_MAX;
use crate::time::Timestamp;

/// Who holds a message, and for what length of time it was taken.
///
/// Deadlines are unique per shard and class, so claims of other lengths than the topic's own fall
/// into classes of similar lengths: one long claim does not push the deadlines of short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseClass(u8);

impl LeaseClass {
    /// Nobody holds the message: scheduled, or waiting for a retry.
    pub const FREE: Self = Self(0);
    /// Claimed for the topic's own visibility timeout.
    pub const TOPIC: Self = Self(1);
    /// Nobody holds it, but its last claim ended without a verdict: it is handed over alone.
    pub const SUSPECT: Self = Self(9);
    /// Classes that mean "in flight".
    pub const HELD: std::ops::RangeInclusive<u8> = 1..=8;

    /// The class of a claim that asks for `asked` in a topic whose own timeout is `own`.
    #[must_use]
    pub fn for_visibility(asked: Duration, own: Duration) -> Self {
        if asked == own {
            return Self::TOPIC;
        }
        let bounds_s = [1, 5, 15, 60, 300, 1800];
        let class = bounds_s.iter().position(|s| asked <= Duration::from_secs(*s)).unwrap_or(bounds_s.len());
        Self(u8::try_from(class).expect("at most 6") + 2)
    }

    /// All classes that mean "in flight", in order.
    pub fn held() -> impl Iterator<Item = Self> {
        Self::HELD.map(Self)
    }

    /// The digit.
    #[must_use]
    pub const fn digit(self) -> u8 {
        self.0
    }

    /// Whether somebody holds a claim on the message.
    #[must_use]
    pub fn is_held(self) -> bool {
        Self::HELD.contains(&self.0)
    }
}

/// See the module. Also the proof in a receipt: a claimed score is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Score(i64);

impl Score {
    /// Puts the three parts together. `attempts` beyond 99 are kept at 99.
    #[must_use]
    pub fn new(visible_at: Timestamp, class: LeaseClass, attempts: u8) -> Self {
        Self(visible_at.as_millis() * 1000 + i64::from(class.0) * 100 + i64::from(attempts.min(ATTEMPTS_MAX)))
    }

    /// A score as the store keeps it.
    #[must_use]
    pub const fn from_raw(raw: i64) -> Self {
        Self(raw)
    }

    /// The number as the store keeps it.
    #[must_use]
    pub const fn raw(self) -> i64 {
        self.0
    }

    /// The highest score that is due at `now`.
    #[must_use]
    pub fn due_at_most(now: Timestamp) -> Self {
        Self(now.as_millis() * 1000 + 999)
    }

    /// The moment from which the message may be claimed (again).
    #[must_use]
    pub const fn visible_at(self) -> Timestamp {
        Timestamp::from_millis(self.0.div_euclid(1000))
    }

    /// Who holds it.
    #[must_use]
    pub fn class(self) -> LeaseClass {
        LeaseClass(u8::try_from(self.0.rem_euclid(1000) / 100).expect("one digit"))
    }

    /// How many times it was claimed so far.
    #[must_use]
    pub fn attempts(self) -> u8 {
        u8::try_from(self.0.rem_euclid(100)).expect("two digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_gives_back_what_was_put_in() {
        let at = Timestamp::from_millis(1_763_700_000_123);
        let score = Score::new(at, LeaseClass::TOPIC, 7);
        assert_eq!(score.raw(), 1_763_700_000_123_107);
        assert_eq!((score.visible_at(), score.class(), score.attempts()), (at, LeaseClass::TOPIC, 7));
        assert!(score <= Score::due_at_most(at));
    }

    #[test]
    fn a_claim_of_another_length_has_another_class() {
        let own = Duration::from_secs(30);
        assert_eq!(LeaseClass::for_visibility(own, own), LeaseClass::TOPIC);
        let classes: Vec<u8> = [1, 5, 15, 60, 300, 1800, 86_400]
            .map(|s| LeaseClass::for_visibility(Duration::from_secs(s), own).digit())
            .to_vec();
        assert_eq!(classes, [2, 3, 4, 5, 6, 7, 8]);
        assert!(!LeaseClass::SUSPECT.is_held());
    }
}
