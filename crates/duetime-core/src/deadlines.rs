//! Which deadline a claim is given: one that its shard never gave before, and near the one wanted.
//!
//! Upstream: the embedded store and the test kit's model; `deadline.lua` of the Redis store is the
//! same rule. Each class is a series of deadlines that only rises, so no pair of class and deadline
//! is given twice: a receipt of an earlier claim never matches a later one, whatever became of the
//! message in between. A class whose last deadline is too far ahead (a rate above one claim a
//! millisecond, a longer claim before, a clock that was put right) is passed over for another one. While ids
//! move, deadlines of their source shards and of their new homes differ in parity.

use std::time::Duration;

use crate::resize_store::DeadlineFloor;
use crate::routing::Parity;
use crate::score::LeaseClass;
use crate::time::Timestamp;

/// A claim stays in the class of its length while that costs less than this part of its visibility.
pub const NEAR_PART: u32 = 8;

/// How many milliseconds behind `wanted` the next deadline of `class` is.
fn over(last: &DeadlineFloor, class: LeaseClass, wanted: Timestamp) -> i64 {
    (last.of(class).as_millis() + 1 - wanted.as_millis()).max(0)
}

/// Gives a deadline for a claim that should be hidden until `wanted`, `visibility` from now, and
/// raises the last deadline of its class in `last`. `home` is the class of claims of that length, `parity` that of the
/// shard ([`crate::Routing::deadlines`]).
///
/// The deadline is never before `wanted`, and at most `visibility` and a millisecond behind it while any class allows that.
pub fn give(
    last: &mut DeadlineFloor,
    wanted: Timestamp,
    visibility: Duration,
    home: LeaseClass,
    parity: Parity,
) -> (Timestamp, LeaseClass) {
    let class = choose(last, wanted, visibility, home);
    let deadline = parity.from(wanted.max(Timestamp::from_millis(last.of(class).as_millis() + 1)));
    last.raise(class, deadline);
    (deadline, class)
}

fn choose(last: &DeadlineFloor, wanted: Timestamp, visibility: Duration, home: LeaseClass) -> LeaseClass {
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
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is claimed and ended in whatever order, and wherever clocks go: a receipt is its
        /// class and deadline, and none is given a second time.
        #[test]
        fn no_receipt_of_an_earlier_claim_ever_matches_a_later_one(
            claims in proptest::collection::vec((-4_000_000i64..4_000_000, 1u64..90_000_000, 0usize..4), 1..400),
        ) {
            let (mut last, mut given) = (DeadlineFloor::default(), HashSet::new());
            let mut now = 1_000_000_000i64;
            for (step, visibility_ms, kind) in claims {
                // Mostly the same few milliseconds again, now and then a step of the clock.
                now += if kind == 0 { step } else { step % 2 };
                let visibility = Duration::from_millis(if kind == 3 { 30_000 } else { visibility_ms });
                let wanted = Timestamp::from_millis(now).plus(visibility);
                let (deadline, class) = give(&mut last, wanted, visibility, LeaseClass::for_visibility(visibility), Parity::Any);
                prop_assert!(deadline >= wanted && class.is_held());
                prop_assert!(given.insert((deadline, class)));
            }
        }

        /// With up to four lengths in use, at up to two claims a millisecond, no deadline is further
        /// behind the one wanted than the visibility asked for.
        #[test]
        fn a_deadline_is_never_a_visibility_behind_the_one_wanted(
            lengths in proptest::collection::vec(1_000u64..86_400_000, 1..=4),
            claims in proptest::collection::vec((0i64..1_000, 0usize..4, 1usize..3), 1..400),
        ) {
            let (mut last, mut now) = (DeadlineFloor::default(), 1_000_000_000i64);
            for (step, length, times) in claims {
                now += step;
                let visibility = Duration::from_millis(lengths[length % lengths.len()]);
                let wanted = Timestamp::from_millis(now).plus(visibility);
                for _ in 0..times {
                    let (deadline, _) = give(&mut last, wanted, visibility, LeaseClass::for_visibility(visibility), Parity::Any);
                    prop_assert!(deadline.since(wanted) <= visibility, "{deadline} for {wanted}");
                }
            }
        }
    }

    fn claim(last: &mut DeadlineFloor, now_ms: i64, visibility_s: u64) -> i64 {
        let visibility = Duration::from_secs(visibility_s);
        let wanted = Timestamp::from_millis(now_ms).plus(visibility);
        let (deadline, _) = give(last, wanted, visibility, LeaseClass::for_visibility(visibility), Parity::Any);
        deadline.as_millis() - wanted.as_millis()
    }

    #[test]
    fn a_shorter_visibility_holds_from_the_next_claim_on() {
        let mut last = DeadlineFloor::default();
        for (now, visibility_s) in (0..).zip([86_400, 3600, 2700, 60, 45, 1]) {
            assert_eq!(claim(&mut last, now, visibility_s), 0, "{visibility_s} s");
        }
        // A fourth in one class: a longer one's deadline is at most one visibility behind.
        assert!(claim(&mut last, 10, 1860) <= 1_860_000);
    }

    #[test]
    fn deadlines_do_not_run_ahead_at_seven_claims_a_millisecond() {
        let mut last = DeadlineFloor::default();
        let furthest = (0..60_000).flat_map(|now| [now; 7]).map(|now| claim(&mut last, now, 10)).max();
        assert!(furthest <= Some(10_000), "{furthest:?} ms behind the one wanted");
    }

    #[test]
    fn after_a_clock_that_was_an_hour_ahead_deadlines_are_near_again() {
        let mut last = DeadlineFloor::default();
        for n in 0..1_000 {
            claim(&mut last, 3_600_000 + n, 30);
        }
        for n in 0..1_000 {
            assert!(claim(&mut last, n, 30) <= 30_000 / i64::from(NEAR_PART));
        }
    }
}
