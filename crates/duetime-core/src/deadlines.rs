//! Which deadline a claim is given: one that its shard never gave before, and near the one wanted.
//!
//! Upstream: the embedded store and the test kit's model; `deadline.lua` of the Redis store is the
//! same rule. Each class is a series of deadlines that only rises, so no pair of class and deadline
//! is given twice: a receipt of an earlier claim never matches a later one, whatever became of the
//! message in between. A class whose last deadline is too far ahead (a rate above one claim a
//! millisecond, a longer claim before, a clock that was put right) is passed over for another one.

use std::time::Duration;

use crate::reshard::Floor;
use crate::score::LeaseClass;
use crate::time::Timestamp;

/// A claim stays in the class of its length while that costs less than this part of its visibility.
pub const NEAR_PART: u32 = 8;

/// How many milliseconds behind `wanted` the next deadline of `class` is.
fn over(last: &Floor, class: LeaseClass, wanted: Timestamp) -> i64 {
    (last.of(class).as_millis() + 1 - wanted.as_millis()).max(0)
}

/// Gives a deadline for a claim that should be hidden until `wanted`, `visibility` from now, and
/// raises the last deadline of its class in `last`. `home` is the class of claims of that length.
///
/// The deadline is never before `wanted`, and at most `visibility` behind it while any class allows that.
pub fn give(last: &mut Floor, wanted: Timestamp, visibility: Duration, home: LeaseClass) -> (Timestamp, LeaseClass) {
    let class = choose(last, wanted, visibility, home);
    let deadline = wanted.max(Timestamp::from_millis(last.of(class).as_millis() + 1));
    last.raise(class, deadline);
    (deadline, class)
}

fn choose(last: &Floor, wanted: Timestamp, visibility: Duration, home: LeaseClass) -> LeaseClass {
    let within = |class: LeaseClass, bound: Duration| {
        u128::try_from(over(last, class, wanted)).is_ok_and(|over| over <= bound.as_millis())
    };
    let longer = || LeaseClass::held().filter(|class| *class > home);
    let shorter = || LeaseClass::held().filter(|class| *class < home).collect::<Vec<_>>().into_iter().rev();
    let near = visibility / NEAR_PART;
    let here = || std::iter::once(home);
    // Longer claims are no worse off for a short deadline in their class; shorter ones are for a long
    // one in theirs, so theirs come last.
    here()
        .chain(longer())
        .find(|class| within(*class, near))
        .or_else(|| here().chain(longer()).chain(shorter()).find(|class| within(*class, visibility)))
        .or_else(|| LeaseClass::held().min_by_key(|class| over(last, *class, wanted)))
        .unwrap_or(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(last: &mut Floor, now_ms: i64, visibility_s: u64) -> i64 {
        let visibility = Duration::from_secs(visibility_s);
        let wanted = Timestamp::from_millis(now_ms).plus(visibility);
        let (deadline, _) = give(last, wanted, visibility, LeaseClass::for_visibility(visibility));
        deadline.as_millis() - wanted.as_millis()
    }

    #[test]
    fn a_shorter_visibility_holds_from_the_next_claim_on() {
        let mut last = Floor::default();
        assert_eq!(claim(&mut last, 0, 86_400), 0);
        for (after, visibility_s) in [3600, 3000, 1860, 60, 45, 30, 1].into_iter().enumerate() {
            assert_eq!(claim(&mut last, after as i64, visibility_s), 0, "{visibility_s} s");
        }
    }

    #[test]
    fn deadlines_do_not_run_ahead_at_seven_claims_a_millisecond() {
        let mut last = Floor::default();
        let furthest = (0..60_000).flat_map(|now| [now; 7]).map(|now| claim(&mut last, now, 10)).max();
        assert!(furthest <= Some(10_000), "{furthest:?} ms behind the one wanted");
    }

    #[test]
    fn after_a_clock_that_was_an_hour_ahead_deadlines_are_near_again() {
        let mut last = Floor::default();
        for n in 0..1_000 {
            claim(&mut last, 3_600_000 + n, 30);
        }
        for n in 0..1_000 {
            assert!(claim(&mut last, n, 30) <= 30_000 / i64::from(NEAR_PART));
        }
    }
}
