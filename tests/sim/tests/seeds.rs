//! Some worlds, and every rule that must be missed. Ten thousand: `cargo run --release -p duetime-sim --bin simulate 0 10000`.

use duetime_sim::{Mutation, judged};

const SEEDS: u64 = 60;
/// A rule that is left out is missed within so many seeds.
const NOTICED_WITHIN: u64 = 1_000;

#[test]
fn in_every_world_nothing_is_lost_doubled_early_or_misplaced() {
    let failed: Vec<_> = (0..SEEDS).filter_map(|seed| Some((seed, judged(seed, None).err()?))).collect();
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    assert!(
        failed.is_empty(),
        "seeds {seeds:?}; again: cargo run -p duetime-sim --bin simulate SEED 1\n{}",
        failed[0].1
    );
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
        let seen = (0..NOTICED_WITHIN).any(|seed| judged(seed, Some(mutation)).is_err());
        assert!(seen, "{}: not noticed in {NOTICED_WITHIN} seeds", mutation.name());
    }
}
