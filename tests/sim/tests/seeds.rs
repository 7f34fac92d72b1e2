//! Some worlds, and every rule that must be missed. Ten thousand: `cargo run --release -p duetime-sim --bin simulate 0 10000`.

use duetime_sim::{Mutation, Sum, judged};

const SEEDS: u64 = 60;
/// A rule that is left out is missed within so many seeds.
const MISSED_WITHIN: u64 = 1_000;

#[test]
fn in_every_world_nothing_is_lost_doubled_early_or_misplaced() {
    let (mut failed, mut sum) = (Vec::new(), Sum::default());
    for seed in 0..SEEDS {
        let ended = judged(seed, None);
        sum.add(ended.as_ref());
        failed.extend(ended.err().map(|why| (seed, why)));
    }
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    let why = failed.first().map_or("", |(_, why)| why);
    assert!(failed.is_empty(), "seeds {seeds:?}; again: cargo run -p duetime-sim --bin simulate SEED 1\n{why}");
    assert_eq!(sum.check(), Ok(()), "{sum}");
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 1_000..1_006 {
        assert_eq!(judged(seed, None), judged(seed, None));
    }
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    for mutation in Mutation::ALL {
        // What the documents say first; the code may have changed since.
        let mut seeds = std::iter::once(mutation.first_seed()).chain(0..MISSED_WITHIN);
        let missed = seeds.any(|seed| judged(seed, Some(mutation)).is_err());
        assert!(missed, "{}: not missed in {MISSED_WITHIN} worlds", mutation.name());
    }
}
