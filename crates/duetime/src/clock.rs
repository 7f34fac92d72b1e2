//! The system's clock: the one place that asks it.

use std::time::Duration;

use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::{Clock, Timestamp};
use tokio::time::Instant;

/// Wall time of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.precise_now().0
    }

    #[allow(clippy::disallowed_methods, reason = "everybody else is given this clock")]
    fn precise_now(&self) -> (Timestamp, Duration) {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        (Timestamp::ZERO.plus(since), Duration::from_nanos(u64::from(since.subsec_nanos() % 1_000_000)))
    }
}

/// A step of the machine's clock that has held for this long is taken for right.
const STEP_TOLD_FOR: Duration = Duration::from_secs(600);

/// Compares the machine's clock with one that only goes on, and notices when somebody sets it.
#[derive(Debug)]
pub struct StepWatch {
    wall: Timestamp,
    /// Between these two moments the clock was read.
    read: (Instant, Instant),
    off_ms: i64,
    stepped: Instant,
}

impl StepWatch {
    /// From this moment on: the clock was read as `wall` since `before`.
    #[must_use]
    pub fn new(before: Instant, wall: Timestamp) -> Self {
        Self { wall, read: (before, Instant::now()), off_ms: 0, stepped: Instant::now() }
    }

    /// Looks at the clock, which was read as `wall` since `before`; a new step of more than clocks may be apart, in ms,
    /// negative: back. What a stall of the process beside a reading explains is no step.
    pub fn look(&mut self, before: Instant, wall: Timestamp) -> Option<i64> {
        let after = Instant::now();
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        let (least_ms, most_ms) = (ms(before - self.read.1), ms(after - self.read.0));
        let passed_ms = wall.as_millis() - self.wall.as_millis();
        let step_ms = passed_ms - passed_ms.clamp(least_ms, most_ms);
        (self.wall, self.read) = (wall, (before, after));
        if Duration::from_millis(step_ms.unsigned_abs()) > CLOCK_SKEW_MAX {
            (self.off_ms, self.stepped) = (self.off_ms + step_ms, Instant::now());
            return Some(step_ms);
        }
        if self.stepped.elapsed() > STEP_TOLD_FOR {
            self.off_ms = 0;
        }
        None
    }

    /// By how much the clock is ahead of what it showed before its steps, in ms.
    #[must_use]
    pub fn off_ms(&self) -> i64 {
        self.off_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_clock_is_noticed_once_and_its_correction_too() {
        let at = |ms: i64| Timestamp::from_millis(1_000_000 + ms);
        let mut watch = StepWatch::new(Instant::now(), at(0));
        let mut steps = Vec::new();
        for (second, wall_ms) in [(1, 1_000), (2, 3_500), (3, 3_603_000), (4, 3_604_000), (5, 5_001)] {
            tokio::time::sleep(Duration::from_secs(1)).await;
            steps.extend(watch.look(Instant::now(), at(wall_ms)).map(|step| (second, step, watch.off_ms())));
        }
        assert_eq!(steps, [(3, 3_598_500, 3_598_500), (5, -3_599_999, -1_499)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_that_holds_is_taken_for_right() {
        let mut watch = StepWatch::new(Instant::now(), Timestamp::ZERO);
        assert_eq!(watch.look(Instant::now(), Timestamp::from_millis(90_000)), Some(90_000));
        tokio::time::sleep(STEP_TOLD_FOR * 2).await;
        let now = Timestamp::from_millis(90_000).plus(STEP_TOLD_FOR * 2);
        assert_eq!((watch.look(Instant::now(), now), watch.off_ms()), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_of_the_process_as_it_reads_the_clock_is_no_step() {
        const STALL: Duration = Duration::from_secs(20);
        let at = |ms: i64| Timestamp::from_millis(1_000_000 + ms);
        let mut watch = StepWatch::new(Instant::now(), at(0));
        tokio::time::advance(Duration::from_secs(1)).await;
        // Before the reading, and then behind it.
        let before = Instant::now();
        tokio::time::advance(STALL).await;
        assert_eq!(watch.look(before, at(21_000)), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        let before = Instant::now();
        tokio::time::advance(STALL).await;
        assert_eq!(watch.look(before, at(22_000)), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((watch.look(Instant::now(), at(43_000)), watch.off_ms()), (None, 0));
    }
}
