//! What a run found: figures, checks, and on what machine with which command.

use std::collections::BTreeMap;
use std::fmt;

use duetime_core::Timestamp;
use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::Value;

use crate::args::Common;
use crate::load::Took;

/// One number with its unit.
#[derive(Debug, Serialize)]
struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
}

/// Percentiles of one thing, in milliseconds.
#[derive(Debug, Serialize)]
struct Latency {
    what: String,
    count: u64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

/// Something that must hold.
#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    holds: bool,
}

/// What a run found: figures, checks, and on what machine with which command.
#[derive(Debug, Serialize)]
pub struct Report {
    workload: &'static str,
    date: String,
    command: String,
    duetime: &'static str,
    machine: BTreeMap<&'static str, String>,
    settings: BTreeMap<&'static str, Value>,
    notes: BTreeMap<String, Value>,
    figures: Vec<Figure>,
    latencies: Vec<Latency>,
    checks: Vec<Check>,
    #[serde(skip)]
    began_at: Timestamp,
}

impl Report {
    /// A report with nothing in it but where and how.
    #[must_use]
    pub fn begin(workload: &'static str, common: &Common, now: Timestamp) -> Self {
        let target = common.store.as_ref().unwrap_or(&common.node);
        let settings = BTreeMap::from([
            ("target", Value::from(without_password(target))),
            ("shards", common.shards.into()),
            ("payload_bytes", common.payload.into()),
            ("batch", common.batch.into()),
            ("concurrency", common.concurrency.into()),
            ("warmup", common.warmup().into()),
        ]);
        let pairs = common.note.iter().filter_map(|note| note.split_once('='));
        Self {
            workload,
            date: now.to_string(),
            command: command(),
            duetime: env!("CARGO_PKG_VERSION"),
            machine: machine(),
            settings,
            notes: pairs.map(|(key, value)| (key.to_owned(), value.into())).collect(),
            figures: Vec::new(),
            latencies: Vec::new(),
            checks: Vec::new(),
            began_at: now,
        }
    }

    /// When the run began.
    #[must_use]
    pub fn began_at(&self) -> Timestamp {
        self.began_at
    }

    /// Adds a number.
    pub fn figure(&mut self, what: &str, value: f64, unit: &'static str) {
        self.figures.push(Figure { what: what.to_owned(), value, unit });
    }

    /// Adds a rate, and the time of its calls if there were any.
    pub fn rate(&mut self, what: &str, took: &Took) {
        self.figure(what, took.rate(), "messages/s");
        self.figure(&format!("{what} took"), took.elapsed.as_secs_f64(), "s");
        self.latency(&format!("{what} call"), &took.calls);
    }

    /// Adds percentiles of microseconds; an empty histogram adds nothing.
    pub fn latency(&mut self, what: &str, micros: &Histogram<u64>) {
        if micros.is_empty() {
            return;
        }
        let at = |quantile| micros.value_at_quantile(quantile) as f64 / 1000.0;
        self.latencies.push(Latency {
            what: what.to_owned(),
            count: micros.len(),
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: micros.max() as f64 / 1000.0,
        });
    }

    /// Adds resident memory before and after.
    pub fn memory(&mut self, before: Option<u64>, after: Option<u64>) {
        self.memory_at("before", before);
        self.memory_at("after", after);
    }

    /// Adds resident memory at one moment.
    pub fn memory_at(&mut self, when: &str, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.figure(&format!("resident memory {when}"), bytes as f64 / f64::from(1 << 20), "MiB");
        }
    }

    /// Adds something that must hold.
    pub fn must(&mut self, what: &'static str, holds: bool) {
        self.checks.push(Check { what, holds });
    }

    /// Adds what the target wants to be kept.
    pub fn finish(&mut self, notes: BTreeMap<String, Value>) {
        self.notes.extend(notes);
    }

    /// Whether every check holds.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} · {} · duetime {}", self.workload, self.date, self.duetime)?;
        writeln!(f, "{}", self.command)?;
        let machine: Vec<&str> = self.machine.values().map(String::as_str).collect();
        writeln!(f, "{}", machine.join(" · "))?;
        for (key, value) in &self.notes {
            writeln!(f, "{key}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))?;
        }
        writeln!(f)?;
        for Figure { what, value, unit } in &self.figures {
            writeln!(f, "  {what:36} {:>14} {unit}", number(*value))?;
        }
        if !self.latencies.is_empty() {
            writeln!(f, "\n  {:24} {:>9} {:>9} {:>9} {:>9} {:>9}  ms", "", "p50", "p90", "p99", "p99.9", "max")?;
        }
        for l in &self.latencies {
            let Latency { what, p50_ms, p90_ms, p99_ms, p999_ms, max_ms, .. } = l;
            writeln!(f, "  {what:24} {p50_ms:>9.3} {p90_ms:>9.3} {p99_ms:>9.3} {p999_ms:>9.3} {max_ms:>9.3}")?;
        }
        if !self.checks.is_empty() {
            writeln!(f)?;
        }
        for Check { what, holds } in &self.checks {
            writeln!(f, "  {} {what}", if *holds { "ok   " } else { "WRONG" })?;
        }
        Ok(())
    }
}

/// Whole numbers whole and with thousands apart, small ones with two digits.
fn number(value: f64) -> String {
    if value.abs() < 100.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// A URL as it may be shown.
fn without_password(url: &str) -> String {
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?))) {
        Some((scheme, (_, host))) => format!("{scheme}://…@{host}"),
        None => url.to_owned(),
    }
}

fn command() -> String {
    let mut hide = false;
    let shown = std::env::args().enumerate().map(|(at, arg)| {
        let secret = std::mem::replace(&mut hide, arg == "--token");
        match at {
            0 => "duetime".to_owned(),
            _ if secret => "…".to_owned(),
            _ => without_password(&arg),
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn machine() -> BTreeMap<&'static str, String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str, apart: char| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(apart)?.1.trim().trim_matches('"').to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut found = BTreeMap::from([("cores", format!("{cores} cores"))]);
    found.extend(field(&read("/proc/cpuinfo"), "model name", ':').map(|it| ("cpu", it)));
    found.extend(field(&read("/etc/os-release"), "PRETTY_NAME", '=').map(|it| ("os", it)));
    let memory = field(&read("/proc/meminfo"), "MemTotal", ':');
    found.extend(memory.map(|it| ("memory", format!("{it} memory"))));
    let kernel = read("/proc/sys/kernel/osrelease");
    found.insert("kernel", format!("kernel {}", kernel.trim()));
    let load = read("/proc/loadavg");
    found.insert("load", format!("load {}", load.split(' ').next().unwrap_or("?")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_at_a_glance_and_passwords_are_not_shown() {
        assert_eq!(number(1_234_567.4), "1 234 567");
        assert_eq!(number(999.0), "999");
        assert_eq!(number(1.234), "1.23");
        assert_eq!(without_password("redis://me:secret@host:1/2"), "redis://…@host:1/2");
        assert_eq!(without_password("--store=redis://:p@h"), "--store=redis://…@h");
        assert_eq!(without_password("embedded:data"), "embedded:data");
    }
}
