//! The score of a message in its shard: next visible time, lease class and attempts in one number.
//!
//! `score = visible_ms · 1000 + class · 100 + attempts`: sorted by time, readable in redis-cli,
//! exact in a double until the year 2255.

use std::time::Duration;

use crate::limits::ATTEMPTS_MAX;
use crate::time::Timestamp;

/// The bound of the highest class; longer claims are in it too.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Who holds a message, and in which series of deadlines.
///
/// Deadlines are unique per shard and class. A claim looks for a deadline in the class of its length
/// first ([`crate::deadlines`]), so that one long claim does not push the deadlines of short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseClass(u8);

impl LeaseClass {
    /// Nobody holds the message: scheduled, or waiting for a retry.
    pub const FREE: Self = Self(0);
    /// The first class that means "in flight": of the shortest claims, and where the length is all one.
    pub const TOPIC: Self = Self(1);
    /// Nobody holds it, but its last claim ended without a verdict, or a delivery without an answer: it may have
    /// arrived, and is claimed apart from the others.
    pub const SUSPECT: Self = Self(9);
    /// Classes that mean "in flight".
    pub const HELD: std::ops::RangeInclusive<u8> = 1..=8;

    /// The class of claims of this length: each reaches to four times the one before, the last to a day.
    #[must_use]
    pub fn for_visibility(asked: Duration) -> Self {
        let (mut class, mut bound) = (*Self::HELD.end(), LONGEST / 4);
        while class > *Self::HELD.start() && asked <= bound {
            (class, bound) = (class - 1, bound / 4);
        }
        Self(class)
    }

    /// The class with this digit, if it means "in flight".
    #[must_use]
    pub fn of_digit(digit: u8) -> Option<Self> {
        Self::HELD.contains(&digit).then_some(Self(digit))
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

    /// Whether the message may have been delivered, or may be at any moment: it is held, or was without an answer.
    #[must_use]
    pub fn may_arrive(self) -> bool {
        self != Self::FREE
    }
}

/// The score of a message in its shard: next visible time, lease class and attempts in one number. Also the proof in
/// a receipt: a claimed score is never used twice.
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

    /// How many times it was claimed so far, without those that cost it nothing.
    #[must_use]
    pub fn attempts(self) -> u8 {
        u8::try_from(self.0.rem_euclid(100)).expect("two digits")
    }

    /// As [`Self::attempts`], for people: what may have been delivered was tried at least once.
    #[must_use]
    pub fn tries(self) -> u8 {
        self.attempts().max(u8::from(self.class() == LeaseClass::SUSPECT))
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
        let classes: Vec<u8> = [1, 5, 15, 60, 300, 1200, 3600, 20_000, 86_400, 100_000]
            .map(|s| LeaseClass::for_visibility(Duration::from_secs(s)).digit())
            .to_vec();
        assert_eq!(classes, [1, 1, 2, 3, 4, 5, 6, 7, 8, 8]);
        assert!(!LeaseClass::SUSPECT.is_held());
        assert_eq!(LeaseClass::of_digit(9), None);
    }
}
