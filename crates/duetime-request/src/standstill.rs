//! Notices that this process stood still: it was stopped, its machine was paused, or it got no time to run.
//!
//! What a process finds when it goes on is of an unknown age: who sent it may have given it up and done something else
//! since. One thread says every so often that the process runs; whoever finds its last word old, or hears of a gap from
//! it, knows. Nothing is noticed before [`watch`], and none of a machine that is paused
//! and does not know it: an end that the sender names ([`crate::RequestEnd`]) needs none of this.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracing::warn;

/// A shorter one is not distinguished from a busy machine.
pub const STANDSTILL_MIN: Duration = Duration::from_secs(3);
/// How often the thread says that the process runs.
const BEAT: Duration = Duration::from_millis(250);
/// For this long after it, who was waiting is still being found.
const AFTERMATH: Duration = Duration::from_secs(1);

/// What is known of one process. Times are milliseconds since it was made.
#[derive(Debug)]
struct Beats {
    begun: Instant,
    last_ms: AtomicU64,
    /// Standstills that are over.
    times: AtomicU64,
    aftermath_until_ms: AtomicU64,
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Beats {
    fn new(begun: Instant) -> Self {
        let zero = || AtomicU64::new(0);
        Self { begun, last_ms: zero(), times: zero(), aftermath_until_ms: zero() }
    }

    fn at(&self, now: Instant) -> u64 {
        ms(now.saturating_duration_since(self.begun))
    }

    fn is_overdue(&self, now: u64) -> bool {
        now.saturating_sub(self.last_ms.load(Ordering::SeqCst)) >= ms(STANDSTILL_MIN)
    }

    fn beat(&self, now: Instant) {
        let now = self.at(now);
        if self.is_overdue(now) {
            // Before the beat: who finds the beat new finds these too.
            self.aftermath_until_ms.store(now + ms(AFTERMATH), Ordering::SeqCst);
            self.times.fetch_add(1, Ordering::SeqCst);
            let for_ms = now - self.last_ms.load(Ordering::SeqCst);
            warn!(for_ms, "this process stood still; requests of unknown age are refused");
        }
        self.last_ms.store(now, Ordering::SeqCst);
    }

    fn count(&self, now: Instant) -> u64 {
        // In this order: a beat between the two is counted once or not at all, and the next look counts it.
        let is_overdue = self.is_overdue(self.at(now));
        self.times.load(Ordering::SeqCst) + u64::from(is_overdue)
    }

    fn is_recent(&self, now: Instant) -> bool {
        let now = self.at(now);
        // In this order, for the beat writes them in the other one.
        self.is_overdue(now) || now < self.aftermath_until_ms.load(Ordering::SeqCst)
    }
}

/// The time that passes while tests move theirs.
#[expect(clippy::disallowed_methods, reason = "a thread without a runtime, and what a process really does")]
fn now() -> Instant {
    Instant::now()
}

static WATCHED: Once = Once::new();
static BEATS: std::sync::OnceLock<Beats> = std::sync::OnceLock::new();

/// Begins to notice, with a thread of its own that ends with the process. Done twice, it is done once.
///
/// # Errors
///
/// There is no thread to be had.
pub fn watch() -> std::io::Result<()> {
    let mut started = Ok(());
    WATCHED.call_once(|| {
        let thread = std::thread::Builder::new().name("standstill".to_owned());
        let beats = || BEATS.get_or_init(|| Beats::new(now()));
        beats();
        started = thread
            .spawn(move || {
                loop {
                    beats().beat(now());
                    std::thread::sleep(BEAT);
                }
            })
            .map(drop);
    });
    started
}

/// How often this process has stood still.
#[must_use]
pub fn count() -> u64 {
    BEATS.get().map_or(0, |beats| beats.count(now()))
}

/// Whether it stood still until just now, so that what is read may have waited for long.
#[must_use]
pub fn is_recent() -> bool {
    BEATS.get().is_some_and(|beats| beats.is_recent(now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_noticed_by_who_looks_before_the_next_beat_and_by_who_looks_after_it() {
        let begun = now();
        let at = |seconds: f64| begun + Duration::from_secs_f64(seconds);
        let beats = Beats::new(begun);
        beats.beat(at(0.25));
        assert_eq!((beats.count(at(3.0)), beats.is_recent(at(3.0))), (0, false), "the machine is busy");
        assert_eq!((beats.count(at(9.0)), beats.is_recent(at(9.0))), (1, true), "nobody has beaten since");
        beats.beat(at(9.0));
        assert_eq!((beats.count(at(9.5)), beats.is_recent(at(9.5))), (1, true), "the same one");
        beats.beat(at(9.5));
        assert_eq!((beats.count(at(10.1)), beats.is_recent(at(10.1))), (1, false));
        assert_eq!(beats.count(at(20.0)), 2);
    }
}
