//! The small worlds hold every property; every mutation is caught.

use duetime_model::{Mutation, Settings};
use stateright::{Checker, Model};

#[test]
fn every_small_world_keeps_every_promise() {
    for settings in Settings::small() {
        let name = settings.name;
        let checker = settings.checker().threads(2).spawn_bfs().join();
        println!("{:>10} states, depth {:>3}: {name}", checker.unique_state_count(), checker.max_depth());
        checker.assert_properties();
    }
}

#[test]
fn every_mutation_is_caught() {
    for mutation in Mutation::ALL {
        let checker = Settings::with_mutation(mutation).checker().threads(2).spawn_bfs().join();
        let caught: Vec<_> =
            checker.discoveries().into_iter().filter(|(name, _)| *name != "the last resize is committed").collect();
        println!(
            "{mutation:?}: {:?}",
            caught.iter().map(|(name, path)| (*name, path.clone().into_actions().len())).collect::<Vec<_>>()
        );
        assert!(!caught.is_empty(), "{mutation:?} does its harm unseen");
    }
}
