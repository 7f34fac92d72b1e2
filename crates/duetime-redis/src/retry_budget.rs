//! How long a call goes on, and what it has learned on its way to an answer.

use std::time::Duration;

use duetime_core::Draw;
use duetime_request::RequestDeadline;
use tokio::time::Instant;
use tracing::debug;

use crate::error::{Failure, LinkError, late};

/// First pause before a call is sent again; each is twice the one before, half of it drawn.
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// How often one call loads its script before it takes the server for one without memory.
const LOADS_MAX: u8 = 3;
/// How often one call is sent elsewhere at once; then it pauses before each further redirection.
pub(crate) const REDIRECTS_MAX: u8 = 4;

/// What is left of a call's time, and how long to wait before the next sending.
pub(crate) struct RetryBudget {
    call: &'static str,
    draw: Draw,
    give_up: Instant,
    /// Of the request that the call is made for.
    end: Option<RequestDeadline>,
    pause: Duration,
    loads: u8,
    redirects: u8,
}

/// What earlier sendings of a call taught about the next.
#[derive(Default)]
pub(crate) struct RetryState {
    /// One of them may have taken effect.
    pub(crate) unsure: bool,
    /// The server does not have the script.
    pub(crate) load: bool,
    /// A node that is still taking the slot over, to be asked this once.
    pub(crate) ask: Option<String>,
}

impl RetryState {
    /// `may_have_run`: whether a sending that failed so may have taken effect.
    pub(crate) fn learn(&mut self, failure: &Failure, may_have_run: bool) {
        self.unsure |= may_have_run;
        match failure {
            Failure::NoScript => self.load = true,
            Failure::Ask { to } => self.ask = Some(to.clone()),
            _ => {}
        }
    }
}

impl RetryBudget {
    pub(crate) fn new(call: &'static str, longest: Duration, draw: Draw) -> Self {
        let end = RequestDeadline::of_task();
        let longest = Instant::now() + longest;
        let give_up = end.map_or(longest, |end| end.at().min(longest));
        Self { call, draw, give_up, end, pause: BACKOFF_FIRST, loads: 0, redirects: 0 }
    }

    /// Refuses to send for a request that is over.
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        if self.end.is_some_and(RequestDeadline::has_passed) {
            return Err(LinkError::Unavailable("its request is over; it was not sent".to_owned()));
        }
        Ok(())
    }

    /// Waits if sending again can help; else says why not.
    pub(crate) async fn after(&mut self, failure: Failure) -> Result<(), LinkError> {
        let text = match failure {
            Failure::Final(error) => return Err(error),
            Failure::NoScript if self.loads < LOADS_MAX => {
                self.loads += 1;
                return Ok(());
            }
            Failure::NoScript => "redis forgets its scripts as fast as they are loaded".to_owned(),
            Failure::Moved { .. } | Failure::Ask { .. } if self.redirects < REDIRECTS_MAX => {
                self.redirects += 1;
                return Ok(());
            }
            Failure::Moved { slot, to } => format!("MOVED {slot} {to}"),
            Failure::Ask { to } => format!("ASK {to}"),
            Failure::Late { ms } => late(&ms),
            Failure::Transient { text, .. } => text,
        };
        let wait = self.pause.mul_f64(0.5 + self.draw.unit() / 2.0);
        if Instant::now() + wait >= self.give_up || self.end.is_some_and(RequestDeadline::has_passed) {
            return Err(LinkError::Unavailable(text));
        }
        debug!(call = self.call, reason = %text, "redis cannot answer, trying again");
        tokio::time::sleep(wait).await;
        self.pause = (self.pause * 2).min(BACKOFF_MAX);
        Ok(())
    }
}
