//! Explores the large worlds (or the small ones with `small`) and prints their state counts.

use duetime_model::Settings;
use stateright::{Checker, Model};

fn main() {
    let small = std::env::args().nth(1).is_some_and(|word| word == "small");
    for settings in if small { Settings::small() } else { Settings::large() } {
        let name = settings.name;
        let checker = settings.checker().threads(2).spawn_bfs().join();
        println!("{:>10} states, depth {:>3}: {name}", checker.unique_state_count(), checker.max_depth());
        checker.assert_properties();
    }
}
