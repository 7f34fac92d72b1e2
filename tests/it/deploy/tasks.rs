//! The scripts beside this file: real servers and nodes, and what an operator does with them.

use super::{PROGRAM, command, done};

/// Runs a script, which fails if anything is not as it says.
fn script(name: &str) {
    let python = std::env::var("DUETIME_TEST_PYTHON").expect("run the tests with `./test`");
    done(command(&python).arg(format!("tests/it/deploy/{name}.py")).env("DUETIME_TEST_PROGRAM_UNDER", PROGRAM));
}

#[test]
fn the_cluster_of_the_compose_file_keeps_its_data_over_down_and_up() {
    script("compose");
}
