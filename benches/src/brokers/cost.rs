//! CPU that the child processes of this one have used, by the name of their program.

use std::collections::BTreeMap;
use std::fs;

/// Ticks of the kernel's clock in a second, as `/proc` counts them on Linux.
const TICKS: f64 = 100.0;

/// Seconds of CPU by program.
pub type Cost = BTreeMap<String, f64>;

fn one(stat: &str, parent: u32) -> Option<(String, f64)> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let fields: Vec<&str> = stat[close + 2..].split(' ').collect();
    if fields.get(1)?.parse::<u32>().ok()? != parent {
        return None;
    }
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some((stat[open + 1..close].to_owned(), ticks / TICKS))
}

/// What all children have used so far. Children of one program are added up.
#[must_use]
pub fn of_children() -> Cost {
    let mut cost = Cost::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some((program, seconds)) = one(&stat, std::process::id()) {
            *cost.entry(program).or_default() += seconds;
        }
    }
    cost
}

/// Microseconds of CPU for each of `messages`, between two looks.
#[must_use]
pub fn each(before: &Cost, after: &Cost, messages: u64) -> Cost {
    let used = |(program, seconds): (&String, &f64)| {
        let spent = seconds - before.get(program).copied().unwrap_or(0.0);
        (program.clone(), spent * 1e6 / messages as f64)
    };
    after.iter().map(used).filter(|(_, micros)| *micros > 0.05).collect()
}
