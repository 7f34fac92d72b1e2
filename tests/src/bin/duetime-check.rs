//! Judges a recorded history by the invariants of `docs/PROTOCOL.md`.
//!
//! `duetime-check FILE [--attempts-max N] [--aftermath-ms N]` · `FILE` may be `-`; exit status 0: nothing
//! is broken, 1: something is, 2: wrong use.

use std::process::ExitCode;

use duetime_testkit::history::{Rules, check, read};

const USAGE: &str = "usage: duetime-check FILE|- [--attempts-max N] [--aftermath-ms N]";

fn judge() -> Result<bool, String> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or(USAGE)?;
    let mut rules = Rules { attempts_max: duetime_core::limits::ATTEMPTS_MAX, aftermath_ms: 60_000 };
    while let Some(flag) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        let wrong = |error: std::num::ParseIntError| format!("{flag} {value}: {error}");
        match flag.as_str() {
            "--attempts-max" => rules.attempts_max = value.parse().map_err(wrong)?,
            "--aftermath-ms" => rules.aftermath_ms = value.parse().map_err(wrong)?,
            _ => return Err(USAGE.to_owned()),
        }
    }
    let text = match file.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()),
        path => std::fs::read_to_string(path),
    };
    let (events, state) = read(&text.map_err(|error| format!("{file}: {error}"))?)?;
    let verdict = check(&events, &state, rules);
    print!("{verdict}");
    Ok(verdict.is_good())
}

fn main() -> ExitCode {
    match judge() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("duetime-check: {error}");
            ExitCode::from(2)
        }
    }
}
