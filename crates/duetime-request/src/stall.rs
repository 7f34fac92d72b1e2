//! Notices that this process did not run for a while: it was stopped, its machine was paused, or it got no time.
//!
//! What such a process reads when it goes on is of unknown age: the sender may have given it up and asked another node
//! for the opposite since. The one rule: **a connection ends with the generation that it was made in, and each stall
//! ends a generation.** A request in hand looks at its [`RequestDeadline`](crate::RequestDeadline) before it begins a call.
//!
//! A thread notes every so often that the process runs. A stall is known to whoever compares the last note with the
//! clock, so no order of wakeups matters. Nothing is noticed before [`watch`], and nothing of a machine that is paused
//! and whose monotonic clock stopped with it: a deadline that the sender names needs none of this.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::warn;

/// A shorter stall is not distinguished from a busy machine.
pub const STALL_MIN: Duration = Duration::from_secs(3);
/// How often the thread notes that the process runs.
const BEAT_EVERY: Duration = Duration::from_millis(250);

/// The stretch of time between two stalls of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u64);

impl Generation {
    /// The one that runs now.
    #[must_use]
    pub fn current() -> Self {
        Self(PROCESS.get().map_or(0, |process| process.count(now())))
    }

    /// One that ended before the process began, for tests of what a stall ends.
    #[doc(hidden)]
    #[must_use]
    pub fn that_has_ended() -> Self {
        Self(u64::MAX)
    }

    /// Whether the process has stalled since.
    #[must_use]
    pub fn has_ended(self) -> bool {
        self != Self::current()
    }

    /// Waits until it has ended; within a quarter of a second after the stall.
    pub async fn ended(self) {
        match PROCESS.get() {
            // Never an error: the sender lives as long as the process.
            Some(process) => drop(process.noted.subscribe().wait_for(|stalls| *stalls != self.0).await),
            None => std::future::pending().await,
        }
    }
}

/// The last note that the process runs, and how many stalls there were until then.
#[derive(Clone, Copy, Debug)]
struct Beat {
    at_ms: u64,
    stalls: u64,
}

impl Beat {
    /// Enough for five hundred years.
    const AT_BITS: u32 = 44;

    fn packed(self) -> u64 {
        self.stalls << Self::AT_BITS | self.at_ms
    }

    fn unpacked(word: u64) -> Self {
        Self { at_ms: word & ((1 << Self::AT_BITS) - 1), stalls: word >> Self::AT_BITS }
    }

    /// Stalls, including one that the thread has not noted yet.
    fn count(self, now_ms: u64) -> u64 {
        self.stalls + u64::from(self.is_overdue(now_ms))
    }

    fn is_overdue(self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) >= ms(STALL_MIN)
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What is known of one process. Times are milliseconds since it was made.
#[derive(Debug)]
struct Process {
    begun: Instant,
    /// A [`Beat`] in one word, so that nobody reads half of it.
    last: AtomicU64,
    /// Stalls that the thread has noted.
    noted: watch::Sender<u64>,
}

impl Process {
    fn new(begun: Instant) -> Self {
        Self { begun, last: AtomicU64::new(0), noted: watch::Sender::new(0) }
    }

    fn at(&self, now: Instant) -> u64 {
        ms(now.saturating_duration_since(self.begun))
    }

    fn last(&self) -> Beat {
        Beat::unpacked(self.last.load(Ordering::SeqCst))
    }

    fn count(&self, now: Instant) -> u64 {
        self.last().count(self.at(now))
    }

    /// Notes that the process runs. Called by one thread only.
    fn beat(&self, now: Instant) {
        let (now, last) = (self.at(now), self.last());
        let stalls = last.count(now);
        self.last.store(Beat { at_ms: now, stalls }.packed(), Ordering::SeqCst);
        if stalls != last.stalls {
            self.noted.send_replace(stalls);
            let for_ms = now - last.at_ms;
            warn!(for_ms, "this process did not run; connections from before are closed unread");
        }
    }
}

/// The time that passes while tests move theirs.
#[expect(clippy::disallowed_methods, reason = "a thread without a runtime, and what a process really does")]
fn now() -> Instant {
    Instant::now()
}

static PROCESS: OnceLock<Process> = OnceLock::new();

/// Begins to notice stalls, with a thread that ends with the process. Done twice, it is done once.
///
/// # Errors
///
/// There is no thread to be had.
pub fn watch() -> std::io::Result<()> {
    if PROCESS.set(Process::new(now())).is_err() {
        return Ok(());
    }
    let process = PROCESS.get().expect("it was just set");
    let beat = move || {
        loop {
            process.beat(now());
            std::thread::sleep(BEAT_EVERY);
        }
    };
    std::thread::Builder::new().name("stall".to_owned()).spawn(beat).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_noticed_by_who_looks_before_the_next_beat_and_by_who_looks_after_it() {
        let begun = now();
        let at = |seconds: f64| begun + Duration::from_secs_f64(seconds);
        let process = Process::new(begun);
        process.beat(at(0.25));
        assert_eq!(process.count(at(3.0)), 0, "the machine is busy");
        assert_eq!((process.count(at(9.0)), *process.noted.borrow()), (1, 0), "nothing was noted since");
        process.beat(at(9.0));
        assert_eq!((process.count(at(9.5)), *process.noted.borrow()), (1, 1), "the same one");
        process.beat(at(9.5));
        assert_eq!(process.count(at(10.1)), 1);
        assert_eq!(process.count(at(20.0)), 2);
    }

    #[test]
    fn who_looks_while_a_stall_is_noted_counts_it_once() {
        const STALLS: u32 = 20_000;
        let process = Process::new(now());
        let (begun, process, noted) = (process.begun, &process, AtomicU64::new(0));
        let (turn, mut wrong) = (std::sync::Barrier::new(2), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=STALLS {
                    turn.wait();
                    process.beat(begun + STALL_MIN * n);
                    noted.store(u64::from(n), Ordering::SeqCst);
                }
            });
            for n in 1..=STALLS {
                turn.wait();
                while noted.load(Ordering::SeqCst) < u64::from(n) {
                    let count = process.count(begun + STALL_MIN * n);
                    if count != u64::from(n) {
                        wrong.push((n, count));
                    }
                }
            }
        });
        assert_eq!(wrong, []);
    }
}
