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
const BEAT_EVERY: Duration = Duration::from_millis(250);
/// For this long after it, who was waiting is still being found.
const AFTERMATH: Duration = Duration::from_secs(1);

/// What is known of one process. Times are milliseconds since it was made.
#[derive(Debug)]
struct Beats {
    begun: Instant,
    /// A [`Beat`], in one word: who looks while it beats sees all of it or nothing.
    last: AtomicU64,
    aftermath_until_ms: AtomicU64,
}

/// The last time that the process said that it runs.
#[derive(Clone, Copy, Debug)]
struct Beat {
    at_ms: u64,
    /// Standstills that are over.
    times: u64,
}

impl Beat {
    /// Enough for five hundred years.
    const AT_BITS: u32 = 44;

    fn packed(self) -> u64 {
        self.times << Self::AT_BITS | self.at_ms
    }

    fn unpacked(word: u64) -> Self {
        Self { at_ms: word & ((1 << Self::AT_BITS) - 1), times: word >> Self::AT_BITS }
    }

    fn is_overdue(self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) >= ms(STANDSTILL_MIN)
    }

    /// Standstills, with one that nobody has noted yet.
    fn count(self, now_ms: u64) -> u64 {
        self.times + u64::from(self.is_overdue(now_ms))
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Beats {
    fn new(begun: Instant) -> Self {
        Self { begun, last: AtomicU64::new(0), aftermath_until_ms: AtomicU64::new(0) }
    }

    fn at(&self, now: Instant) -> u64 {
        ms(now.saturating_duration_since(self.begun))
    }

    fn last(&self) -> Beat {
        Beat::unpacked(self.last.load(Ordering::SeqCst))
    }

    /// Of one thread only.
    fn beat(&self, now: Instant) {
        let (now, last) = (self.at(now), self.last());
        let is_overdue = last.is_overdue(now);
        if is_overdue {
            // Before the beat: who finds the beat new finds this too.
            self.aftermath_until_ms.store(now + ms(AFTERMATH), Ordering::SeqCst);
        }
        self.last.store(Beat { at_ms: now, times: last.count(now) }.packed(), Ordering::SeqCst);
        if is_overdue {
            let for_ms = now - last.at_ms;
            warn!(for_ms, "this process stood still; requests of unknown age are refused");
        }
    }

    fn count(&self, now: Instant) -> u64 {
        self.last().count(self.at(now))
    }

    fn is_recent(&self, now: Instant) -> bool {
        let now = self.at(now);
        // In this order, for the beat writes them in the other one.
        self.last().is_overdue(now) || now < self.aftermath_until_ms.load(Ordering::SeqCst)
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
                    std::thread::sleep(BEAT_EVERY);
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

    #[test]
    fn who_looks_while_a_standstill_is_noted_counts_it_once() {
        const STANDSTILLS: u32 = 20_000;
        let beats = Beats::new(now());
        let (begun, beats, noted) = (beats.begun, &beats, AtomicU64::new(0));
        let (turn, mut wrong) = (std::sync::Barrier::new(2), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=STANDSTILLS {
                    turn.wait();
                    beats.beat(begun + STANDSTILL_MIN * n);
                    noted.store(u64::from(n), Ordering::SeqCst);
                }
            });
            for n in 1..=STANDSTILLS {
                turn.wait();
                while noted.load(Ordering::SeqCst) < u64::from(n) {
                    let count = beats.count(begun + STANDSTILL_MIN * n);
                    if count != u64::from(n) {
                        wrong.push((n, count));
                    }
                }
            }
        });
        assert_eq!(wrong, []);
    }
}
