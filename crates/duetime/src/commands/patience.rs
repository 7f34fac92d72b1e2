//! How long a call is repeated that a node did not answer, or refused for the moment.

use std::time::Duration;

use duetime_client::ClientError;
use tokio::time::Instant;

/// The pause before a call is repeated.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause grows up to this.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Whether a refusal with this code says nothing against the request: the same may be taken a moment later.
pub(crate) fn is_passing(code: &str) -> bool {
    [
        "store_unavailable",
        "routing_changing",
        "clock_skew",
        "busy",
        "draining",
        "timeout",
        "rate_limited",
        "deadline_exceeded",
        "authority_unavailable",
    ]
    .contains(&code)
}

/// The time that is left for repetitions of one call.
pub(crate) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub fn new(budget: Duration) -> Self {
        Self { until: Instant::now() + budget, pause: PAUSE }
    }

    /// Waits before the call is repeated; false: it is not to be, for the error stays or the time is up.
    pub async fn again(&mut self, error: &ClientError) -> bool {
        let passing = match error {
            ClientError::Unreachable { .. } | ClientError::Lost { .. } => true,
            ClientError::Refused(problem) => is_passing(&problem.code),
            _ => false,
        };
        passing && self.pause().await
    }

    /// Waits; false: the time is up.
    pub async fn pause(&mut self) -> bool {
        if Instant::now() + self.pause > self.until {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_waited_for_as_long_as_was_said_and_a_wrong_request_is_not() {
        let begun = Instant::now();
        let lost = ClientError::Unreachable { base: String::new(), reason: String::new() };
        let mut patience = Patience::new(Duration::from_secs(20));
        let mut tries = 0;
        while patience.again(&lost).await {
            tries += 1;
        }
        assert!(tries > 5 && begun.elapsed() <= Duration::from_secs(20), "{tries} {:?}", begun.elapsed());
        let wrong = ClientError::Refused(Box::new(duetime_client::Problem {
            code: "unknown_topic".to_owned(),
            ..Default::default()
        }));
        assert!(!Patience::new(Duration::from_secs(20)).again(&wrong).await);
    }
}
