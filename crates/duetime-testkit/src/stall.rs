//! Notices when the machine stalled: a thread that sleeps for a moment and wakes much later was not run.
//!
//! Whatever a test says in such a minute may be the machine's fault. `tests/retries.py` looks for the line.

use std::sync::Once;
use std::time::{Duration, Instant};

use crate::wait::{Because, let_pass_blocking};

/// Begins the line that says so.
const STALLED: &str = "[stall]";
/// How long the thread sleeps.
const TICK: Duration = Duration::from_millis(50);
/// A stall that is longer than this is reported.
const LATE: Duration = Duration::from_millis(500);

/// Watches from now on, once in a process.
#[expect(clippy::disallowed_methods, reason = "the machine's time, which no test moves")]
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let watching = std::thread::Builder::new().name("stall".to_owned()).spawn(|| {
            loop {
                let before = Instant::now();
                let_pass_blocking(TICK, Because::Rate);
                if let Some(line) = line(before.elapsed().saturating_sub(TICK)) {
                    eprintln!("{line}");
                }
            }
        });
        watching.expect("a thread starts");
    });
}

fn line(late: Duration) -> Option<String> {
    (late >= LATE).then(|| format!("{STALLED} the machine stood still for {} ms", late.as_millis()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_stall_is_reported_and_as_the_script_reads_it() {
        assert_eq!(line(Duration::from_millis(499)), None);
        assert_eq!(line(Duration::from_millis(730)).unwrap(), "[stall] the machine stood still for 730 ms");
    }
}
