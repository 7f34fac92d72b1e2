//! Random faults for as long as one likes on real servers and three real nodes, judged at the end.
//!
//! `cargo run -p duetime-tests --bin soak -- --for 1h [--store cluster|embedded] [--seed N] [--rate N]`. It is the
//! nodes' program too: with `serve` as its first argument it is `duetime`.

use std::process::ExitCode;
use std::time::Duration;

use duetime_tests::soak::{self, Options, StoreKind};

const USAGE: &str = "usage: soak --for TIME [--store cluster|embedded] [--seed N] [--rate MESSAGES_PER_SECOND] \
                     [--round TIME]; TIME as 90s, 30m or 1h";
/// A history is judged, and forgotten, after this time: an hour of it would not fit into memory.
const ROUND: Duration = Duration::from_secs(150);
const RATE: u64 = 150;

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.len() - text.chars().last().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(format!("{text}: write a time as 90s, 30m or 1h")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text}: write a time as 90s, 30m or 1h"))?;
    Ok(Duration::from_secs(number * seconds))
}

fn options() -> Result<Options, String> {
    let mut options =
        Options { length: Duration::ZERO, round: ROUND, store: StoreKind::Cluster, seed: rand::random(), rate: RATE };
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        let number = || value.parse::<u64>().map_err(|error| format!("{flag} {value}: {error}"));
        match (flag.as_str(), value.as_str()) {
            ("--for", _) => options.length = time(&value)?,
            ("--round", _) => options.round = time(&value)?,
            ("--store", "cluster") => options.store = StoreKind::Cluster,
            ("--store", "embedded") => options.store = StoreKind::Embedded,
            ("--seed", _) => options.seed = number()?,
            ("--rate", _) => options.rate = number()?.max(1),
            _ => return Err(USAGE.to_owned()),
        }
    }
    if options.length.is_zero() {
        return Err(USAGE.to_owned());
    }
    Ok(options)
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return duetime::main();
    }
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("soak: {error}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let told = options.to_string();
    println!("{told}");
    let run = runtime.expect("a runtime starts").block_on(async { tokio::spawn(soak::run(options)).await });
    match run {
        Ok(Ok(summary)) => {
            println!("passed: {summary}; {told}");
            ExitCode::SUCCESS
        }
        Ok(Err(why)) => {
            println!("NOT PASSED: {why}\n{told}");
            ExitCode::FAILURE
        }
        // The panic has said why.
        Err(_) => {
            println!("NOT PASSED: it ended before its time; {told}");
            ExitCode::FAILURE
        }
    }
}
