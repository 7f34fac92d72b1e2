//! `simulate FIRST COUNT`: runs the worlds of so many seeds; a seed that fails is printed, and replays.
//! `simulate FIRST COUNT mutations [NAME]`: leaves out one rule of the protocol after the other, and tells the first
//! seed that notices.

use std::process::ExitCode;

use duetime_sim::{Mutation, judged};

fn main() -> ExitCode {
    let number = |nth, or| std::env::args().nth(nth).and_then(|text| text.parse().ok()).unwrap_or(or);
    let (first, count): (u64, u64) = (number(1, 0), number(2, 10_000));
    if std::env::args().nth(3).is_some_and(|word| word == "mutations") {
        return mutations(first, count, std::env::args().nth(4).as_deref());
    }
    let mut failed = 0;
    let (mut events, mut accepted, mut changes, mut explained, mut all_through) = (0, 0, 0, 0, 0);
    for seed in first..first + count {
        match judged(seed, None) {
            Ok(story) => {
                events += story.events;
                accepted += story.accepted;
                changes += story.changes;
                explained += story.explained;
                all_through += u64::from(story.all_through);
            }
            Err(why) => {
                failed += 1;
                eprintln!("seed {seed} failed; again: cargo run -p duetime-sim --bin simulate {seed} 1\n{why}");
            }
        }
    }
    println!(
        "{count} seeds, {failed} failed: {events} events, {accepted} deliveries, {explained} duplicates that a fault \
         explains, {changes} changes of the shard count; {all_through} worlds had faults all through"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn mutations(first: u64, count: u64, only: Option<&str>) -> ExitCode {
    let mut unseen = 0;
    for mutation in Mutation::ALL.into_iter().filter(|one| only.is_none_or(|only| only == one.name())) {
        let found = (first..first + count).find_map(|seed| Some((seed, judged(seed, Some(mutation)).err()?)));
        match found {
            Some((seed, why)) => {
                let why: Vec<&str> = why.lines().take(2).collect();
                println!("{}: seed {seed}: {}", mutation.name(), why.join(" "));
            }
            None => {
                unseen += 1;
                println!("{}: NOT SEEN in {count} seeds", mutation.name());
            }
        }
    }
    if unseen == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
