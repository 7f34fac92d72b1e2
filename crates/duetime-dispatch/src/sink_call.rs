//! One call of a sink, and what is left of a message that it did not take.
//!
//! Upstream: `deliverer`.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use duetime_core::{Delivery, MessageId, Nonce, Verdict};
use tokio::time::Instant;

use crate::verdicts::{AttemptCharge, is_failure, is_of_target, is_overdue};
use crate::work::ClaimInfo;

/// One call of the sink, before and after.
#[derive(Debug)]
pub(crate) struct SinkCall {
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) claims: Vec<ClaimInfo>,
    pub(crate) said: Vec<Verdict>,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// The process did not run for a while meanwhile.
    pub(crate) stalled: bool,
}

impl SinkCall {
    pub(crate) fn has_accepted(&self) -> bool {
        self.said.contains(&Verdict::Accepted)
    }

    /// Why the target as a whole cannot be used, if it was found so.
    pub(crate) fn unavailable(&self) -> Option<&Verdict> {
        self.of_target().find(|said| matches!(said, Verdict::Unavailable { .. }))
    }

    /// A failure that may be the target's.
    pub(crate) fn failed(&self) -> Option<&Verdict> {
        self.of_target().find(|said| is_failure(said))
    }

    /// The verdicts that are a word on the target.
    fn of_target(&self) -> impl Iterator<Item = &Verdict> {
        self.said.iter().filter(|said| is_of_target(said, self.stalled))
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

/// The charge for a failure that may be the target's or the message's.
pub(crate) fn free(said: &Verdict, claim: &ClaimInfo, wait: Duration) -> AttemptCharge {
    if is_overdue(said, claim.lateness(Instant::now())) { AttemptCharge::Charged } else { AttemptCharge::Free(wait) }
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
    #[tokio::test(start_paused = true)]
    async fn what_a_stall_of_the_process_explains_is_not_the_targets() {
        let said = |said: Vec<Verdict>, stalled| {
            let (began, ended) = (Instant::now(), Instant::now());
            SinkCall { deliveries: Vec::new(), claims: Vec::new(), said, began, ended, stalled }
        };
        let silence = || vec![Verdict::NoAnswer { reason: "no answer in time".to_owned() }];
        let away = || vec![Verdict::Unavailable { reason: "no connection in time".to_owned() }];
        assert!(said(silence(), false).failed().is_some() && said(silence(), true).failed().is_none());
        assert!(said(away(), false).unavailable().is_some() && said(away(), true).unavailable().is_none());
        let answer = Verdict::Retry { reason: "503".to_owned(), after: None };
        assert_eq!(said(vec![answer.clone()], true).failed(), Some(&answer), "it was heard");
    }
}
