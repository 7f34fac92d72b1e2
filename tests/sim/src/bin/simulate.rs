//! `simulate FIRST COUNT`: runs the worlds of so many seeds; a seed that fails is printed, and replays.

use std::panic::catch_unwind;

fn main() -> std::process::ExitCode {
    let number = |nth, or| std::env::args().nth(nth).and_then(|text| text.parse().ok()).unwrap_or(or);
    let (first, count): (u64, u64) = (number(1, 0), number(2, 10_000));
    let mut failed = 0;
    let (mut events, mut accepted, mut changes) = (0, 0, 0);
    for seed in first..first + count {
        match catch_unwind(|| duetime_sim::run(seed)) {
            Ok(story) => {
                events += story.events;
                accepted += story.accepted;
                changes += story.changes;
            }
            Err(_) => {
                failed += 1;
                eprintln!("seed {seed} failed; again: cargo run -p duetime-sim --bin simulate {seed} 1");
            }
        }
    }
    println!(
        "{count} seeds, {failed} failed: {events} events, {accepted} deliveries, {changes} changes of the shard count"
    );
    if failed == 0 { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
