//! How many messages a target is given before it has answered for others: a fixed number, or as many as it confirms
//! within a set time.
//!
//! Upstream: `gate`. A broker queues what it is given behind what it has not confirmed yet, whichever topic that is of,
//! so what lies unconfirmed decides how long a message waits for its confirm. The limit follows the broker by the time
//! that calls take: it rises by what was confirmed in time, as in the slow start of TCP (RFC 5681), and falls by what a
//! call took too long.

use std::time::Duration;

use tokio::time::Instant;

/// Messages in flight at a broker of which nothing is known yet.
const FIRST: usize = 1_024;
/// At once the limit falls to this part of what it was at most.
const FALL_MAX: f64 = 0.5;
/// Below this the limit does not fall.
const LEAST: usize = 16;
/// Above this it does not rise: more is not in flight on a node.
const MOST: usize = 65_536;

/// How many messages a target is given before it has answered for others.
#[derive(Clone, Copy, Debug)]
pub enum InFlightLimit {
    /// So many.
    Fixed(usize),
    /// As many as the target confirms within `target`.
    Adaptive {
        /// How long a call should take at most.
        target: Duration,
        /// So many at present.
        messages: usize,
        /// When it was lowered last.
        lowered: Option<Instant>,
    },
}

impl InFlightLimit {
    /// A limit that follows a broker that is waited for `timeout` long: a call should take an eighth of that, so that a
    /// broker which is suddenly eight times as slow still confirms in time.
    #[must_use]
    pub fn adaptive(timeout: Duration) -> Self {
        Self::Adaptive { target: timeout / 8, messages: FIRST, lowered: None }
    }

    /// So many messages may be in flight.
    pub(crate) fn messages(&self) -> usize {
        match self {
            Self::Fixed(messages) | Self::Adaptive { messages, .. } => *messages,
        }
    }

    /// A call that began at `began` has ended, and `confirmed` of its `all` messages were; `wanted`: others wait for
    /// their turn, so that the limit is what holds them back.
    pub(crate) fn measured(&mut self, began: Instant, (confirmed, all): (usize, usize), wanted: bool) {
        let Self::Adaptive { target, messages, lowered } = self else { return };
        let now = Instant::now();
        let took = now - began;
        if took <= *target {
            if wanted {
                *messages = (*messages + confirmed).min(MOST);
            }
        } else if confirmed == all && lowered.is_none_or(|at| at <= began) {
            // A place that does not confirm says nothing of the broker, and calls that were under way already say nothing
            // of the limit as it is since. A call is quicker by as much as less is in flight (Little's law).
            let share = (target.as_secs_f64() / took.as_secs_f64()).max(FALL_MAX);
            *messages = ((*messages as f64 * share) as usize).max(LEAST);
            *lowered = Some(now);
        }
    }
}
