//! How long a confirm is waited for: by the latest one on the connection, not by the publish alone.
//!
//! Upstream: sinks whose broker confirms messages on one shared connection. What was published before a message is
//! confirmed before it, so a broker that goes on confirming is slow and not silent.

use std::pin::pin;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

/// When anything was confirmed last on one connection, and how long the next confirm is waited for.
#[derive(Debug)]
pub(crate) struct ConfirmWait {
    timeout: Duration,
    latest: Mutex<Option<Instant>>,
}

impl ConfirmWait {
    /// Waits for a connection that may be silent for `timeout`.
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, latest: Mutex::default() }
    }

    /// How long any message is waited for, however many others are confirmed meanwhile: one of which nothing is heard
    /// for that long is in a place that does not confirm.
    pub fn longest(timeout: Duration) -> Duration {
        timeout + timeout / 2
    }

    /// Something was confirmed.
    pub fn confirmed(&self) {
        *self.latest.lock() = Some(Instant::now());
    }

    /// Whether anything was confirmed within `span`.
    pub fn was_within(&self, span: Duration) -> bool {
        self.latest.lock().is_some_and(|latest| latest.elapsed() <= span)
    }

    fn until(&self, sent: Instant) -> Instant {
        let heard = self.latest.lock().map_or(sent, |latest| latest.max(sent));
        (heard + self.timeout).min(sent + Self::longest(self.timeout))
    }

    /// What `answer` brings for something sent at `sent`; `None`: the time is up.
    pub async fn within<T>(&self, sent: Instant, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            let until = self.until(sent);
            match timeout_at(until, &mut answer).await {
                Ok(answer) => return Some(answer),
                Err(_) if self.until(sent) > until => {}
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_waited_for_once_and_one_that_confirms_others_half_as_long_again() {
        let (wait, start) = (ConfirmWait::new(10 * SECOND), Instant::now());
        assert_eq!(wait.within(start, pending::<()>()).await, None);
        assert_eq!(start.elapsed().as_secs(), 10);
        let sent = Instant::now();
        let slow = async {
            tokio::time::sleep(14 * SECOND).await;
            7
        };
        let others = async {
            for _ in 0..20 {
                tokio::time::sleep(SECOND).await;
                wait.confirmed();
            }
        };
        let silent = async {
            assert_eq!(wait.within(sent, pending::<()>()).await, None);
            sent.elapsed().as_secs()
        };
        let (answer, (), given_up) = futures::join!(wait.within(sent, slow), others, silent);
        assert_eq!((answer, given_up), (Some(7), 15));
        assert!(wait.was_within(SECOND));
        tokio::time::sleep(2 * SECOND).await;
        assert!(!wait.was_within(SECOND));
    }
}
