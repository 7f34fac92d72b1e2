//! Some worlds, and rules that must be missed. Ten thousand: `cargo run --release -p duetime-sim --bin simulate 0 10000`.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Mutex;

use duetime_sim::{MUTATIONS, Mutation, Plan, Sum, each, judged, noticed};

const MODEL: &str = include_str!("../../../docs/MODEL.md");

const SEEDS: u64 = 32;
/// With `DUETIME_TEST_QUICK`, which `./test --quick` sets: too few for all that can happen to happen.
const SEEDS_QUICK: u64 = 10;
/// A rule that is left out is missed within so many seeds.
const MISSED_WITHIN: u64 = 1_000;
/// Worlds that are run twice, from this seed on: so many, and with `DUETIME_TEST_LONG`, which `./test --long` sets.
const TWICE_FROM: u64 = 1_000;
const TWICE: u64 = 4;
const TWICE_LONG: u64 = 50;

#[test]
fn in_every_world_nothing_is_lost_doubled_early_or_misplaced() {
    let all = Mutex::new((Vec::new(), Sum::default()));
    let quick = std::env::var_os("DUETIME_TEST_QUICK").is_some();
    each(0..if quick { SEEDS_QUICK } else { SEEDS }, |seed| {
        let ended = judged(&Plan::of(seed), None);
        let (failed, sum) = &mut *all.lock().expect("nobody panics here");
        sum.add(ended.as_ref());
        failed.extend(ended.err().map(|why| (seed, why)));
        true
    });
    let (failed, sum) = all.into_inner().expect("nobody panics here");
    let seeds: Vec<u64> = failed.iter().map(|(seed, _)| *seed).collect();
    let why = failed.first().map_or("", |(_, why)| why);
    assert!(failed.is_empty(), "seeds {seeds:?}; cargo run -p duetime-sim --bin simulate SEED story\n{why}");
    if !quick {
        assert_eq!(sum.check(), Ok(()), "{sum}");
    }
}

#[test]
fn the_same_seed_is_the_same_world_in_one_process_and_in_another() {
    let worlds = if std::env::var_os("DUETIME_TEST_LONG").is_some() { TWICE_LONG } else { TWICE };
    let run = Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args([TWICE_FROM.to_string(), worlds.to_string(), "prints".to_owned()])
        .output()
        .expect("the simulation is built");
    let there = String::from_utf8(run.stdout).expect("it prints text");
    let here = (TWICE_FROM..TWICE_FROM + worlds).map(|seed| {
        let print = judged(&Plan::of(seed), None).expect("all is well").print;
        format!("{seed} {print:016x}\n")
    });
    assert_eq!(here.collect::<String>(), there);
}

#[test]
fn every_rule_is_in_the_scripts_as_the_product_has_them() {
    let faults: Vec<String> = MUTATIONS.iter().flat_map(|one| one.faults()).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_rules_that_can_be_taken_out_are_those_that_the_document_lists() {
    let (_, table) = MODEL.split_once("| taken out | the rule |\n|---|---|\n").expect("it has the table");
    let rows = table.lines().map_while(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    let listed: BTreeSet<(&str, &str)> = rows.collect();
    let known: BTreeSet<(&str, &str)> = MUTATIONS.iter().map(|one| (one.name, one.rule)).collect();
    assert_eq!(listed.difference(&known).collect::<Vec<_>>(), Vec::<&(&str, &str)>::new(), "there is no such mutation");
    assert_eq!(known.difference(&listed).collect::<Vec<_>>(), Vec::<&(&str, &str)>::new(), "docs/MODEL.md lacks it");
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
    the_reply_cache_is_missed: "no-reply-cache";
    the_record_that_a_call_names_is_missed: "any-record";
    that_a_batch_is_put_once_is_missed: "put-twice";
    what_becomes_of_a_message_is_missed: "acks-not-remembered";
    what_expired_is_missed: "expiries-not-remembered";
    the_version_of_what_moves_is_missed: "moved-whatever-it-is";
    that_it_moved_is_missed: "moved-is-not-remembered";
    what_another_shard_remembers_is_missed: "source-remembers-nothing";
    the_mark_of_a_hand_over_without_an_answer_is_missed: "unanswered-is-over";
    that_the_next_of_a_series_is_written_with_the_end_of_the_one_before_is_missed: "next-by-itself";
    that_the_next_of_a_series_takes_the_receipt_of_the_one_before_is_missed: "next-of-any-claim";
    the_bound_of_what_is_in_flight_is_missed: "in-flight-not-counted";
    the_places_that_old_shards_gave_up_are_missed: "places-of-others";
    the_first_due_time_of_what_is_given_back_is_missed: "a-nack-is-done";
    the_first_due_time_of_what_moves_is_missed: "first-due-time-left-behind";
    that_what_lived_again_is_counted_is_missed: "revivals-not-counted";
    that_a_deletion_without_force_asks_each_shard_is_missed: "deletion-by-counts";
}

/// They take longer than all others together.
#[test]
fn that_what_is_frozen_is_nowhere_else_and_that_a_request_has_an_end_is_missed() {
    if std::env::var_os("DUETIME_TEST_LONG").is_some() {
        is_missed("copied-not-moved");
        is_missed("requests-without-end");
    }
}

fn is_missed(name: &str) {
    let mutation = Mutation::named(name).expect("it is one of them");
    assert!(noticed(0..MISSED_WITHIN, mutation).is_some(), "{name}: not missed in {MISSED_WITHIN} worlds");
}
