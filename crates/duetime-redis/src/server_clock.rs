//! What a server's clock says at least, as its answers to TIME show.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::error::{Failure, into_result};
use crate::reply::clock_of;

/// While calls are made, TIME is asked again after this.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A slow answer does not replace a better one that is younger than this.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// What rounding, and two clocks that do not run equally fast, may add to the life of one sending.
const SLACK: Duration = Duration::from_millis(20);

/// One answer to TIME: the server's clock said `told_ms` at some moment between the two of ours.
#[derive(Clone, Copy)]
struct ClockLook {
    asked: Instant,
    heard: Instant,
    told_ms: i64,
}

/// The end of one sending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// In the server's clock: it does not carry the call out later than this.
    pub(crate) not_after_ms: i64,
    /// In this process's clock: by then that time has passed on the server.
    pub(crate) over_at: Instant,
}

/// What a server's clock says at least, as its answers to TIME show.
pub(crate) struct ServerClock {
    look: Mutex<Option<ClockLook>>,
    looking: AtomicBool,
    lifetime: Duration,
}

fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl ServerClock {
    /// For calls that are waited for this long.
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self { look: Mutex::default(), looking: AtomicBool::new(false), lifetime }
    }

    /// TIME was answered. An answer that is not a time is left out.
    pub(crate) fn heard(&self, asked: Instant, answer: &Value) {
        let Some(told_ms) = clock_of(answer) else { return };
        let look = ClockLook { asked, heard: Instant::now(), told_ms };
        let mut known = self.look.lock();
        let slow = look.heard - look.asked > self.lifetime / 2;
        let better = known.is_some_and(|known| known.heard > look.heard || slow && known.heard.elapsed() < KEPT_FOR);
        if !better {
            *known = Some(look);
        }
    }

    /// The server said that a call came too late: its clock may have been set, or ours stood still.
    pub(crate) fn doubt(&self) {
        *self.look.lock() = None;
    }

    /// The answer to a call with an end. One that came too late makes the clock doubtful.
    pub(crate) fn checked(&self, value: Value) -> Result<Value, Failure> {
        into_result(value).inspect_err(|failure| {
            if let Failure::Late { .. } = failure {
                self.doubt();
            }
        })
    }

    /// The end of a sending that begins now.
    fn end_from(&self, look: ClockLook) -> End {
        let now = Instant::now();
        // As if it had read the time at the very end: the server's clock says this or more.
        let least_ms = look.told_ms + ms(now - look.heard);
        End { not_after_ms: least_ms + ms(self.lifetime), over_at: now + self.lifetime + SLACK }
    }

    /// The same; asks for the time first if it is not known, and beside the call if the last answer is old.
    pub(crate) async fn end(
        self: &std::sync::Arc<Self>,
        connection: &mut MultiplexedConnection,
    ) -> Result<End, Failure> {
        let known = *self.look.lock();
        if let Some(look) = known {
            if look.heard.elapsed() > LOOK_EVERY && !self.looking.swap(true, Ordering::Relaxed) {
                let (clock, mut connection) = (self.clone(), connection.clone());
                tokio::spawn(async move {
                    // Without an answer the old one goes on; who finds it wrong gets LATE.
                    let _ = clock.ask(&mut connection).await;
                    clock.looking.store(false, Ordering::Relaxed);
                });
            }
            return Ok(self.end_from(look));
        }
        self.ask(connection).await?;
        let known = *self.look.lock();
        known.map(|look| self.end_from(look)).ok_or_else(|| Failure::unexpected_reply("TIME without a time"))
    }

    async fn ask(&self, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
        let asked = Instant::now();
        let answer = into_result(connection.send_packed_command(&redis::cmd("TIME")).await?)?;
        self.heard(asked, &answer);
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

    fn end(clock: &ServerClock) -> End {
        clock.end_from(clock.look.lock().expect("it was asked"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_sending_is_over_when_the_server_refuses_it_for_certain() {
        let clock = clock();
        let asked = Instant::now();
        // The server reads its time at once, and the answer takes 300 ms: it is 300 ms ahead of what is thought.
        tokio::time::advance(Duration::from_millis(300)).await;
        clock.heard(asked, &time(1_000_000));
        tokio::time::advance(Duration::from_millis(700)).await;
        let end = end(&clock);
        assert_eq!(end.not_after_ms, 1_000_700 + 5_000);
        let least = 1_000_000 + ms(end.over_at - asked - Duration::from_millis(300));
        assert!(least > end.not_after_ms, "even if it read its time as late as it can have");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_does_not_replace_a_good_one() {
        let clock = clock();
        clock.heard(Instant::now(), &time(1_000_000));
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        clock.heard(asked, &time(1_000_000));
        assert_eq!(end(&clock).not_after_ms, 1_003_000 + 5_000, "three seconds went by since");
        clock.heard(asked, &Value::Nil);
        tokio::time::advance(KEPT_FOR).await;
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        clock.heard(asked, &time(1_015_000));
        assert_eq!(end(&clock).not_after_ms, 1_015_000 + 5_000, "better than none");
    }
}
