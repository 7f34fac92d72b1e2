//! Whether a loop is stuck: inside of one poll for longer than any poll should take, which blocks a thread of the runtime.
//!
//! A loop that waits for something is not stuck, however long it waits.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// It is in no poll.
const WAITS: u64 = u64::MAX;

/// All loops that run.
#[derive(Debug)]
pub(crate) struct Pulses {
    origin: Instant,
    next: AtomicU64,
    running: Mutex<HashMap<u64, Arc<Pulse>>>,
}

#[derive(Debug)]
struct Pulse {
    name: &'static str,
    /// When the poll it is in began, in milliseconds since the origin.
    polled_since_ms: AtomicU64,
}

impl Default for Pulses {
    #[expect(clippy::disallowed_methods, reason = "a thread is blocked in real time, which no test moves")]
    fn default() -> Self {
        Self { origin: Instant::now(), next: AtomicU64::default(), running: Mutex::default() }
    }
}

impl Pulses {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).expect("no program runs for that long")
    }

    /// A loop that is in one poll for longer than this.
    pub(crate) fn stuck(&self, longest: Duration) -> Option<&'static str> {
        let began_before = self.now_ms().saturating_sub(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX));
        let running = self.running.lock();
        running.values().find(|pulse| pulse.polled_since_ms.load(Ordering::Relaxed) < began_before).map(|p| p.name)
    }

    /// Runs the loop and notes when it is polled.
    pub(crate) async fn watch<F: Future>(&self, name: &'static str, run: F) -> F::Output {
        let pulse = Arc::new(Pulse { name, polled_since_ms: AtomicU64::new(WAITS) });
        let _listed = ListedLoop::new(self, pulse.clone());
        let mut run = pin!(run);
        poll_fn(|context| {
            pulse.polled_since_ms.store(self.now_ms(), Ordering::Relaxed);
            let polled = run.as_mut().poll(context);
            pulse.polled_since_ms.store(WAITS, Ordering::Relaxed);
            polled
        })
        .await
    }
}

/// In the list until dropped, also where the loop panics or is cut off.
struct ListedLoop<'a> {
    pulses: &'a Pulses,
    number: u64,
}

impl<'a> ListedLoop<'a> {
    fn new(pulses: &'a Pulses, pulse: Arc<Pulse>) -> Self {
        let number = pulses.next.fetch_add(1, Ordering::Relaxed);
        pulses.running.lock().insert(number, pulse);
        Self { pulses, number }
    }
}

impl Drop for ListedLoop<'_> {
    fn drop(&mut self) {
        self.pulses.running.lock().remove(&self.number);
    }
}
