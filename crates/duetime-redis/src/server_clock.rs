//! A lower bound of a server's clock, from its answers to TIME.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::error::{Failure, into_result};
use crate::reply::clock_of;

/// While calls are made, TIME is asked again after this.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// A slow answer does not replace a better one that is younger than this.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// What rounding, and two clocks that do not run equally fast, may add to the time until a send deadline.
const SLACK: Duration = Duration::from_millis(20);

/// One answer to TIME: the server's clock said `server_ms` at some moment between the two of ours.
#[derive(Clone, Copy)]
struct ClockSample {
    asked: Instant,
    answered: Instant,
    server_ms: i64,
}

/// Until when the server may execute one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendDeadline {
    /// In the server's clock: it does not execute the call later than this.
    pub(crate) not_after_ms: i64,
    /// In this process's clock: by then that time has passed on the server.
    pub(crate) over_at: Instant,
}

/// A lower bound of a server's clock, from its answers to TIME.
pub(crate) struct ServerClock {
    sample: Mutex<Option<ClockSample>>,
    is_sampling: AtomicBool,
    lifetime: Duration,
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl ServerClock {
    /// For calls that wait this long for their answer.
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self { sample: Mutex::default(), is_sampling: AtomicBool::new(false), lifetime }
    }

    /// Takes an answer to TIME that was asked for at `asked`. One that is no time is ignored.
    pub(crate) fn record(&self, asked: Instant, answer: &Value) {
        let Some(server_ms) = clock_of(answer) else { return };
        let sample = ClockSample { asked, answered: Instant::now(), server_ms };
        let mut known = self.sample.lock();
        let slow = sample.answered - sample.asked > self.lifetime / 2;
        let better =
            known.is_some_and(|known| known.answered > sample.answered || slow && known.answered.elapsed() < KEPT_FOR);
        if !better {
            *known = Some(sample);
        }
    }

    /// Forgets the sample: the server said that a call came too late, so its clock was set, or this process stalled.
    pub(crate) fn doubt(&self) {
        *self.sample.lock() = None;
    }

    /// Checks the answer to a call with a send deadline; one that came too late discards the sample.
    pub(crate) fn checked(&self, value: Value) -> Result<Value, Failure> {
        into_result(value).inspect_err(|failure| {
            if let Failure::Late { .. } = failure {
                self.doubt();
            }
        })
    }

    /// The send deadline of a call that is sent now.
    fn end_from(&self, sample: ClockSample) -> SendDeadline {
        let now = Instant::now();
        // As if it had read the time at the very end: the server's clock says this or more.
        let least_ms = sample.server_ms + ms(now - sample.answered);
        SendDeadline { not_after_ms: least_ms + ms(self.lifetime), over_at: now + self.lifetime + SLACK }
    }

    /// Like `end_from`, but reads TIME first if there is no sample, and in the background if the sample is old.
    pub(crate) async fn end(
        self: &std::sync::Arc<Self>,
        connection: &mut MultiplexedConnection,
    ) -> Result<SendDeadline, Failure> {
        let known = *self.sample.lock();
        if let Some(sample) = known {
            if sample.answered.elapsed() > SAMPLE_EVERY && !self.is_sampling.swap(true, Ordering::Relaxed) {
                let (clock, mut connection) = (self.clone(), connection.clone());
                tokio::spawn(async move {
                    // Without an answer the old sample stays; a call for which it is wrong is answered LATE.
                    let _ = clock.ask(&mut connection).await;
                    clock.is_sampling.store(false, Ordering::Relaxed);
                });
            }
            return Ok(self.end_from(sample));
        }
        self.ask(connection).await?;
        let known = *self.sample.lock();
        known.map(|sample| self.end_from(sample)).ok_or_else(|| Failure::unexpected_reply("TIME without a time"))
    }

    async fn ask(&self, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        let asked = Instant::now();
        let answer = into_result(connection.send_packed_command(&redis::cmd("TIME")).await?)?;
        self.record(asked, &answer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(ms: i64) -> Value {
        let bulk = |number: i64| Value::BulkString(number.to_string().into_bytes());
        Value::Array(vec![bulk(ms / 1000), bulk(ms % 1000 * 1000)])
    }

    fn clock() -> ServerClock {
        ServerClock::new(Duration::from_secs(5))
    }

    fn end(clock: &ServerClock) -> SendDeadline {
        clock.end_from(clock.sample.lock().expect("it was asked"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_sending_is_over_when_the_server_refuses_it_for_certain() {
        let clock = clock();
        let asked = Instant::now();
        // The server reads its time at once, and the answer takes 300 ms: it is 300 ms ahead of what is thought.
        tokio::time::advance(Duration::from_millis(300)).await;
        clock.record(asked, &time(1_000_000));
        tokio::time::advance(Duration::from_millis(700)).await;
        let end = end(&clock);
        assert_eq!(end.not_after_ms, 1_000_700 + 5_000);
        let least = 1_000_000 + ms(end.over_at - asked - Duration::from_millis(300));
        assert!(least > end.not_after_ms, "even if it read its time as late as it can have");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_does_not_replace_a_good_one() {
        let clock = clock();
        clock.record(Instant::now(), &time(1_000_000));
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        clock.record(asked, &time(1_000_000));
        assert_eq!(end(&clock).not_after_ms, 1_003_000 + 5_000, "three seconds went by since");
        clock.record(asked, &Value::Nil);
        tokio::time::advance(KEPT_FOR).await;
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        clock.record(asked, &time(1_015_000));
        assert_eq!(end(&clock).not_after_ms, 1_015_000 + 5_000, "better than none");
    }
}
