//! The end of a request, and how it goes with a task.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::stall::Generation;

tokio::task_local! {
    static OF_TASK: RequestEnd;
}

/// When nothing is begun any more for a request: at a time, and once the process has stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnd {
    at: Instant,
    generation: Generation,
}

impl RequestEnd {
    /// This long from now.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, generation: Generation::current() }
    }

    /// That of the request that this task works for.
    #[must_use]
    pub fn of_task() -> Option<Self> {
        OF_TASK.try_with(|end| *end).ok()
    }

    /// Does `work` with this end.
    pub async fn scope<F: Future>(self, work: F) -> F::Output {
        OF_TASK.scope(self, work).await
    }

    /// Does `work`, in a task of its own for instance, with the end of this task.
    pub fn carry<F: Future>(work: F) -> impl Future<Output = F::Output> {
        let end = Self::of_task();
        async move {
            match end {
                Some(end) => end.scope(work).await,
                None => work.await,
            }
        }
    }

    /// When.
    #[must_use]
    pub fn at(self) -> Instant {
        self.at
    }

    /// Nothing is to be begun any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        Instant::now() >= self.at || self.generation.has_ended()
    }

    /// This long from now, of a request that began with this one: a long one has an end for each of its parts.
    #[must_use]
    pub fn renewed(self, limit: Duration) -> Self {
        Self { at: Instant::now() + limit, ..self }
    }

    /// The earlier one.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { at: self.at.min(other.at), generation: self.generation.min(other.generation) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_end_goes_with_its_task_and_into_those_that_carry_it() {
        assert_eq!(RequestEnd::of_task(), None);
        let end = RequestEnd::after(Duration::from_secs(5));
        end.scope(async {
            assert_eq!(tokio::spawn(async { RequestEnd::of_task() }).await.unwrap(), None);
            let carried = tokio::spawn(RequestEnd::carry(async { RequestEnd::of_task() })).await.unwrap();
            assert_eq!(carried, Some(end));
            assert!(!end.is_over());
            tokio::time::advance(Duration::from_secs(5)).await;
            assert!(end.is_over());
        })
        .await;
    }
}
