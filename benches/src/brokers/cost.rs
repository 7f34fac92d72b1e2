//! CPU that the child processes of this one have used, by the name of their program.

use std::collections::BTreeMap;
use std::fs;

/// Ticks of the kernel's clock in a second, as `/proc` counts them on Linux.
const TICKS: f64 = 100.0;

/// Seconds of CPU by program.
pub type Cost = BTreeMap<String, f64>;

/// One child; children are ordered by when they started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    started: u64,
    pid: u32,
    /// The name of its program.
    pub program: String,
}

/// Seconds of CPU by child.
pub type Spent = BTreeMap<Process, f64>;

fn one(stat: &str, parent: u32) -> Option<(Process, f64)> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let fields: Vec<&str> = stat[close + 2..].split(' ').collect();
    if fields.get(1)?.parse::<u32>().ok()? != parent {
        return None;
    }
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    let (started, pid) = (fields.get(19)?.parse().ok()?, stat[..open].trim_end().parse().ok()?);
    Some((Process { started, pid, program: stat[open + 1..close].to_owned() }, ticks / TICKS))
}

/// What each child has used so far.
#[must_use]
pub fn of_each() -> Spent {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter_map(|stat| one(&stat, std::process::id())).collect()
}

/// What each child used between two looks.
#[must_use]
pub fn between(before: &Spent, after: &Spent) -> Spent {
    let used =
        |(process, seconds): (&Process, &f64)| (process.clone(), seconds - before.get(process).copied().unwrap_or(0.0));
    after.iter().map(used).collect()
}

/// Resident memory of all children of one program.
#[must_use]
pub fn memory_mib(program: &str) -> f64 {
    let of = |process: &Process| -> Option<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().split(' ').next()?.parse::<f64>().ok()? / 1024.0)
    };
    of_each().keys().filter(|process| process.program == program).filter_map(of).sum()
}

/// What all children have used so far. Children of one program are added up.
#[must_use]
pub fn of_children() -> Cost {
    let mut cost = Cost::new();
    for (process, seconds) in of_each() {
        *cost.entry(process.program).or_default() += seconds;
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
