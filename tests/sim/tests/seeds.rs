//! A few hundred worlds. Ten thousand: `cargo run --release -p duetime-sim --bin simulate 0 10000`.

use std::panic::catch_unwind;

const SEEDS: u64 = 300;

#[test]
fn in_every_world_nothing_is_lost_doubled_or_misplaced() {
    let failed: Vec<u64> = (0..SEEDS).filter(|seed| catch_unwind(|| duetime_sim::run(*seed)).is_err()).collect();
    assert!(failed.is_empty(), "seeds {failed:?}; again: cargo run -p duetime-sim --bin simulate SEED 1");
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 1_000..1_006 {
        assert_eq!(duetime_sim::run(seed), duetime_sim::run(seed));
    }
}
