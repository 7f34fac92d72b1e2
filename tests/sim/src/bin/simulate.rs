//! `simulate FIRST COUNT`: runs the worlds of so many seeds; a seed that fails is printed, and replays.
//! `simulate FIRST COUNT mutations [NAME]`: leaves out one rule of the protocol after the other, and prints the first
//! seed that notices.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use duetime_sim::{MUTATIONS, Sum, judged};

/// After this many worlds it prints how far it is.
const TOLD_EVERY: u64 = 1_000;

fn main() -> ExitCode {
    let number = |nth, or| std::env::args().nth(nth).and_then(|text| text.parse().ok()).unwrap_or(or);
    let (first, count): (u64, u64) = (number(1, 0), number(2, 10_000));
    if std::env::args().nth(3).is_some_and(|word| word == "mutations") {
        return mutations(first, count, std::env::args().nth(4).as_deref());
    }
    let (next, sum) = (AtomicU64::new(0), Mutex::new(Sum::default()));
    // A world is one thread; several worlds at once are independent of each other.
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|nth| *nth < count) {
                    let seed = first + seed;
                    let ended = judged(seed, None);
                    if let Err(why) = &ended {
                        eprintln!("seed {seed} failed; again: cargo run -p duetime-sim --bin simulate {seed} 1\n{why}");
                    }
                    let mut sum = sum.lock().expect("nobody panics here");
                    sum.add(ended.as_ref());
                    if sum.worlds.is_multiple_of(TOLD_EVERY) && sum.worlds < count {
                        eprintln!("{sum}");
                    }
                }
            });
        }
    });
    let sum = sum.into_inner().expect("nobody panics here");
    println!("{sum}");
    match sum.check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn mutations(first: u64, count: u64, only: Option<&str>) -> ExitCode {
    let mut unseen = 0;
    for mutation in MUTATIONS.iter().copied().filter(|one| only.is_none_or(|only| only == one.name)) {
        for fault in mutation.faults() {
            unseen += 1;
            println!("{fault}");
        }
        let found = (first..first + count).find_map(|seed| Some((seed, judged(seed, Some(mutation)).err()?)));
        match found {
            Some((seed, why)) => {
                let why: Vec<&str> = why.lines().take(2).collect();
                println!("{}: seed {seed}: {}", mutation.name, why.join(" "));
            }
            None => {
                unseen += 1;
                println!("{}: NOT SEEN in {count} seeds", mutation.name);
            }
        }
    }
    if unseen == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
