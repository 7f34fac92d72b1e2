//! The scripts beside this file: real servers and nodes, and what an operator does with them.

use duetime_testkit::violation::{is_long, only_in_long};

use super::{PROGRAM, command, done, ran};

/// Carries out tasks of the page beside a load.
fn tasks(which: &str) {
    if !is_long() {
        return only_in_long("slots that move and servers that restart take minutes");
    }
    script("tasks", &[which]);
}

/// Runs a script, which fails if anything is not as it says.
fn script(name: &str, arguments: &[&str]) {
    let python = std::env::var("DUETIME_TEST_PYTHON").expect("run the tests with `./test`");
    let path = format!("tests/it/deploy/{name}.py");
    done(command(&python).arg(path).args(arguments).env("DUETIME_TEST_PROGRAM_UNDER", PROGRAM));
}

#[test]
fn the_cluster_of_the_compose_file_keeps_its_data_over_down_and_up() {
    script("compose", &[]);
}

#[test]
fn a_master_of_redis_is_added_and_taken_away_by_the_commands_of_the_page() {
    tasks("slots");
}

#[test]
fn redis_is_upgraded_and_its_password_changed_by_the_commands_of_the_page() {
    tasks("servers");
}

#[test]
fn etcd_and_the_ownership_mode_are_changed_by_the_commands_of_the_page() {
    tasks("owners");
}

#[test]
fn certificates_of_nodes_are_replaced_by_the_commands_of_the_page() {
    tasks("certificates");
}

#[test]
fn one_master_or_one_sink_takes_no_node_out_of_service_and_each_is_said() {
    script("readiness", &[]);
}

#[test]
fn the_trial_shows_a_sink_that_goes_down_and_comes_back_and_calls_somebody_for_it() {
    if !is_long() {
        return only_in_long("an alert waits for two minutes");
    }
    script("trial", &[]);
}

#[test]
fn the_trial_says_how_it_is_run_without_a_build_and_on_other_ports() {
    let said = done(command("deploy/try").arg("--help"));
    for what in ["--for ", "DUETIME=", "DUETIME_TRY_PORT="] {
        assert!(said.contains(what), "{what}: {said}");
    }
    let (well, said) = ran(command("deploy/try").arg("--fro"));
    assert!(!well && said.contains("--for "), "{said}");
}
