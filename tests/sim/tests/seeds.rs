//! Some worlds, and every rule that must be missed. Ten thousand: `cargo run --release -p duetime-sim --bin simulate 0 10000`.

use duetime_sim::{Mutation, Sum, judged};

const SEEDS: u64 = 60;
/// With `DUETIME_TEST_QUICK`, which `./test --quick` sets: too few for all that can happen to happen.
const SEEDS_QUICK: u64 = 10;
/// A rule that is left out is missed within so many seeds.
const MISSED_WITHIN: u64 = 1_000;

#[test]
fn in_every_world_nothing_is_lost_doubled_early_or_misplaced() {
    let (mut failed, mut sum) = (Vec::new(), Sum::default());
    let quick = std::env::var_os("DUETIME_TEST_QUICK").is_some();
    for seed in 0..if quick { SEEDS_QUICK } else { SEEDS } {
        let ended = judged(seed, None);
        sum.add(ended.as_ref());
        failed.extend(ended.err().map(|why| (seed, why)));
    }
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    let why = failed.first().map_or("", |(_, why)| why);
    assert!(failed.is_empty(), "seeds {seeds:?}; again: cargo run -p duetime-sim --bin simulate SEED 1\n{why}");
    if !quick {
        assert_eq!(sum.check(), Ok(()), "{sum}");
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 1_000..1_006 {
        assert_eq!(judged(seed, None), judged(seed, None));
    }
}

/// A test for each rule, for one that is noticed late must not take the others' time.
macro_rules! missed {
    ($($test:ident: $mutation:ident;)*) => {
        $(#[test]
        fn $test() {
            is_missed(Mutation::$mutation);
        })*

        #[test]
        fn no_rule_is_without_its_test() {
            assert_eq!([$(Mutation::$mutation),*], Mutation::ALL);
        }
    };
}

missed! {
    the_end_of_a_call_is_missed: LateCalls;
    the_life_that_a_creation_is_of_is_missed: LateCreation;
    that_a_creation_empties_nothing_is_missed: CreationOverMessages;
    the_life_in_the_epoch_is_missed: AnyLife;
    the_refusal_of_skew_is_missed: DelayOfOneClock;
    the_present_that_decides_what_is_due_is_missed: HighWater;
    the_life_that_a_deletion_is_of_is_missed: DeletionOfAnyLife;
    the_bound_of_deadlines_is_missed: DeadlinesRunAhead;
    the_memory_of_long_cancels_is_missed: LongCancels;
    the_answer_of_each_item_is_missed: BatchOfOneAnswer;
    the_end_of_a_request_is_missed: RequestsWithoutEnd;
    the_life_in_a_receipt_is_missed: ReceiptOfAnyLife;
}

fn is_missed(mutation: Mutation) {
    // What the documents say first; the code may have changed since.
    let mut seeds = std::iter::once(mutation.first_seed()).chain(0..MISSED_WITHIN);
    let missed = seeds.any(|seed| judged(seed, Some(mutation)).is_err());
    assert!(missed, "{}: not missed in {MISSED_WITHIN} worlds", mutation.name());
}
