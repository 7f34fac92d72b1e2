//! One call of a sink, and what is left of a message that it did not take.
//!
//! Upstream: `deliverer`.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use duetime_core::{Delivery, MessageId, Nonce, Verdict};
use tokio::time::Instant;

use crate::work::ClaimInfo;

/// One call of the sink, before and after.
#[derive(Debug)]
pub(crate) struct SinkCall {
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) claims: Vec<ClaimInfo>,
    pub(crate) said: Vec<Verdict>,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

impl SinkCall {
    pub(crate) fn has_accepted(&self) -> bool {
        self.said.contains(&Verdict::Accepted)
    }

    /// Why the target as a whole cannot be used, if it was found so.
    pub(crate) fn unavailable(&self) -> Option<&Verdict> {
        self.said.iter().find(|said| matches!(said, Verdict::Unavailable { .. }))
    }
}

/// A message that was not accepted, until it is known whether it pays for that.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) id: MessageId,
    pub(crate) nonce: Nonce,
    pub(crate) attempt: u8,
    /// Attempts that it may have.
    pub(crate) most: u8,
    pub(crate) claim: ClaimInfo,
    pub(crate) said: Verdict,
}

/// Runs `call` until it is done, but for no step of it at or after `deadline`, when somebody else may have its messages:
/// a timer alone leaves a process that stalled the step that was ready before. `None`: the deadline came first.
pub(crate) async fn polled_before<F: Future>(deadline: Instant, call: F) -> Option<F::Output> {
    let mut call = pin!(call);
    std::future::poll_fn(|cx| {
        if Instant::now() >= deadline {
            return Poll::Ready(None);
        }
        call.as_mut().poll(cx).map(Some)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_ready_before_the_process_stalled_is_not_sent_after_the_deadline() {
        let deadline = Instant::now() + Duration::from_secs(5);
        assert_eq!(polled_before(deadline, async { "sent" }).await, Some("sent"));
        let (connected, connecting) = tokio::sync::oneshot::channel();
        let send = tokio::time::timeout(Duration::from_secs(5), async {
            connecting.await.unwrap();
            "sent"
        });
        let sending = tokio::spawn(polled_before(deadline, send));
        tokio::task::yield_now().await;
        connected.send(()).unwrap();
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(sending.await.unwrap(), None);
    }
}
