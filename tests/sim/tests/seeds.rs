//! Some worlds, and every rule that must be missed. Ten thousand: `cargo run --release -p duetime-sim --bin simulate 0 10000`.

use duetime_sim::{MUTATIONS, Mutation, Sum, judged};

const SEEDS: u64 = 32;
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

#[test]
fn every_rule_is_in_the_scripts_as_the_product_has_them() {
    let faults: Vec<String> = MUTATIONS.iter().flat_map(|one| one.faults()).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A test for each rule, for one that is noticed late must not take the others' time. All of them:
/// `cargo run --release -p duetime-sim --bin simulate 0 1000 mutations`.
macro_rules! missed {
    ($($test:ident: $name:literal;)*) => {
        $(#[test]
        fn $test() {
            is_missed($name);
        })*
    };
}

missed! {
    the_end_of_a_request_is_missed: "requests-without-end";
    the_reply_cache_is_missed: "no-reply-cache";
}

fn is_missed(name: &str) {
    let mutation = Mutation::named(name).expect("it is one of them");
    let missed = (0..MISSED_WITHIN).any(|seed| judged(seed, Some(mutation)).is_err());
    assert!(missed, "{name}: not missed in {MISSED_WITHIN} worlds");
}
