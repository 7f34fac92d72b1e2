//! `simulate FIRST COUNT`: runs the worlds of so many seeds; one that fails is printed, made smaller, and told.
//! `simulate FIRST COUNT mutations [NAME]`: takes out one rule of the protocol after the other, and prints the first
//! seed that notices.
//! `simulate FIRST COUNT prints`: prints of each world the number that is the same in every run of it.
//! `simulate PLAN story|trace|shrink [NAME]`: tells what happened in one world, as far as what failed is concerned or
//! altogether, or makes it smaller; with a rule taken out, if one is named. A plan is a seed, or what was printed.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use duetime_sim::{MUTATIONS, Mutation, Plan, Sum, each, judged, noticed, shrunk, told};

/// After this many worlds it prints how far it is.
const TOLD_EVERY: u64 = 1_000;
/// So many worlds that fail are made smaller.
const SHRUNK_MAX: u64 = 3;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{word:?} is no number"));
    let done = match words[..] {
        [] => Ok(worlds(0, 10_000)),
        [plan, how @ ("story" | "trace" | "shrink")] => one(plan, how, None),
        [plan, how @ ("story" | "trace" | "shrink"), name] => one(plan, how, Some(name)),
        [first, count] => number(first).and_then(|first| Ok(worlds(first, number(count)?))),
        [first, count, "prints"] => number(first).and_then(|first| Ok(prints(first, number(count)?))),
        [first, count, "mutations"] => number(first).and_then(|first| Ok(mutations(first, number(count)?, None))),
        [first, count, "mutations", name] => {
            number(first).and_then(|first| Ok(mutations(first, number(count)?, Some(name))))
        }
        _ => Err("simulate FIRST COUNT [prints | mutations [NAME]], or simulate PLAN story|trace|shrink [NAME]".into()),
    };
    done.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::FAILURE
    })
}

fn one(plan: &str, how: &str, name: Option<&str>) -> Result<ExitCode, String> {
    let plan: Plan = plan.parse()?;
    let rule =
        name.map(|name| Mutation::named(name).ok_or_else(|| format!("no rule is named {name:?}"))).transpose()?;
    match how {
        "shrink" => println!("{}", shrunk(&plan, |plan| judged(plan, rule).is_err())),
        how => println!("{}", told(&plan, rule, how == "trace")),
    }
    Ok(ExitCode::SUCCESS)
}

fn prints(first: u64, count: u64) -> ExitCode {
    for seed in first..first + count {
        let print = judged(&Plan::of(seed), None).map_or(0, |story| story.print);
        println!("{seed} {print:016x}");
    }
    ExitCode::SUCCESS
}

fn worlds(first: u64, count: u64) -> ExitCode {
    let (failed, sum) = (AtomicU64::new(0), Mutex::new(Sum::default()));
    each(first..first + count, |seed| {
        let plan = Plan::of(seed);
        let ended = judged(&plan, None);
        if let Err(why) = &ended {
            eprintln!("seed {plan} failed: {why}");
            if failed.fetch_add(1, Ordering::Relaxed) < SHRUNK_MAX {
                let least = shrunk(&plan, |plan| judged(plan, None).is_err());
                eprintln!("again: cargo run -p duetime-sim --bin simulate {least} story");
                eprintln!("{}", told(&least, None, false));
            }
        }
        let mut sum = sum.lock().expect("nobody panics here");
        sum.add(ended.as_ref());
        if sum.worlds.is_multiple_of(TOLD_EVERY) && sum.worlds < count {
            eprintln!("{sum}");
        }
        true
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
        match noticed(first..first + count, mutation) {
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
