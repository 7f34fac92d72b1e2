//! How this node does: what it says of itself to the others.

use std::time::Duration;

use duetime_core::Vitals;

use crate::labels::Event;
use crate::recent::Recent;

/// What the process holds of memory, as Linux says.
fn memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// `up`: since the start of the program; `recent`: of each topic; `skew`: in seconds.
pub(crate) fn vitals(up: Duration, recent: impl Iterator<Item = Recent>, skew: f64) -> Vitals {
    let claims = recent.filter_map(|recent| recent.per_second.get(Event::Claimed as usize).copied()).sum::<f64>();
    Vitals {
        up_ms: u64::try_from(up.as_millis()).unwrap_or(u64::MAX),
        claims_per_minute: (claims * 60.0).round() as u64,
        memory_bytes: memory_bytes(),
        clock_skew_ms: (skew * 1000.0).round() as i64,
        lease_ms: None,
    }
}
