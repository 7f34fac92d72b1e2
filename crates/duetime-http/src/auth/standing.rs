//! The caller of a request that stays open: a stream of messages, a claim that waits, a stream of events.
//!
//! Its token is looked up again when the tokens were replaced, so that one that was taken back, or narrowed, ends what it
//! began, and another rate holds at once.

use axum::http::{HeaderMap, HeaderValue, header};
use duetime_core::TopicName;
use tokio::sync::watch;

use crate::auth::{Auth, Caller, Scope};
use crate::json::problem::Problem;

/// The caller of a request that stays open.
pub(crate) struct StandingCaller {
    auth: Auth,
    authorization: Option<HeaderValue>,
    wanted: &'static [Scope],
    topics: Vec<TopicName>,
    replaced: watch::Receiver<()>,
    caller: Caller,
}

impl StandingCaller {
    /// Whoever sends these headers, needs one of `wanted` if there are any, and acts on `topics`.
    pub fn of(
        auth: &Auth,
        headers: &HeaderMap,
        wanted: &'static [Scope],
        topics: &[TopicName],
    ) -> Result<Self, Problem> {
        // Before the token is looked up: what is replaced meanwhile is seen.
        let replaced = auth.replaced();
        let authorization = headers.get(header::AUTHORIZATION).cloned();
        let caller = auth.caller_of(authorization.as_ref())?;
        let topics = topics.to_vec();
        let standing = Self { auth: auth.clone(), authorization, wanted, topics, replaced, caller };
        standing.check()?;
        Ok(standing)
    }

    fn look_up(&mut self) -> Result<(), Problem> {
        self.caller = self.auth.caller_of(self.authorization.as_ref())?;
        self.check()
    }

    fn check(&self) -> Result<(), Problem> {
        self.caller.check(self.wanted, None)?;
        self.topics.iter().try_for_each(|topic| self.caller.check(&[], Some(topic.as_str())))
    }

    /// The caller as the present tokens have it.
    pub fn current(&mut self) -> Result<&Caller, Problem> {
        if self.replaced.has_changed().unwrap_or(false) {
            self.replaced.mark_unchanged();
            self.look_up()?;
        }
        Ok(&self.caller)
    }

    /// Waits until the caller is not let in any more.
    pub async fn refused(&mut self) -> Problem {
        loop {
            if self.replaced.changed().await.is_err() {
                // No one can replace them any more.
                std::future::pending::<()>().await;
            }
            if let Err(problem) = self.look_up() {
                return problem;
            }
        }
    }
}
