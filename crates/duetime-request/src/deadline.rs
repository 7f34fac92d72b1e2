//! The deadline of a request, which a task carries with it.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::stall::Generation;

tokio::task_local! {
    static OF_TASK: RequestDeadline;
}

/// After it nothing more is started for a request: a time, or the moment at which the process stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDeadline {
    at: Instant,
    generation: Generation,
}

impl RequestDeadline {
    /// Returns a deadline this long from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, generation: Generation::current() }
    }

    /// Returns the deadline of the request that this task works for.
    #[must_use]
    pub fn of_task() -> Option<Self> {
        OF_TASK.try_with(|deadline| *deadline).ok()
    }

    /// Runs `work` under this deadline.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        OF_TASK.scope(self, work)
    }

    /// Returns `work` that runs, in another task for instance, under the deadline of this task.
    pub fn propagate<F: Future>(work: F) -> impl Future<Output = F::Output> {
        let deadline = Self::of_task();
        async move {
            match deadline {
                Some(deadline) => deadline.scope(work).await,
                None => work.await,
            }
        }
    }

    /// The time of the deadline.
    #[must_use]
    pub fn at(self) -> Instant {
        self.at
    }

    /// True if nothing more may be started for the request.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Instant::now() >= self.at || self.generation.has_ended()
    }

    /// Returns a deadline this long from now for the next part of a long request, which a stall ends as this one.
    #[must_use]
    pub fn renewed(self, limit: Duration) -> Self {
        Self { at: Instant::now() + limit, ..self }
    }

    /// Returns the earlier of two deadlines.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { at: self.at.min(other.at), generation: self.generation.min(other.generation) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_goes_with_its_task_and_into_those_to_which_it_is_propagated() {
        assert_eq!(RequestDeadline::of_task(), None);
        let deadline = RequestDeadline::after(Duration::from_secs(5));
        deadline
            .scope(async {
                assert_eq!(tokio::spawn(async { RequestDeadline::of_task() }).await.unwrap(), None);
                let carried =
                    tokio::spawn(RequestDeadline::propagate(async { RequestDeadline::of_task() })).await.unwrap();
                assert_eq!(carried, Some(deadline));
                assert!(!deadline.has_passed());
                tokio::time::advance(Duration::from_secs(5)).await;
                assert!(deadline.has_passed());
            })
            .await;
    }
}
