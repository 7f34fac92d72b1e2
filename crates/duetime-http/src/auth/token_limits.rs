//! What a token's holder may have at most: requests and messages a second, topics.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::http::StatusCode;

use crate::auth::rate_limit::RequestRate;
use crate::auth::topic_ceilings::TopicCeilings;
use crate::json::problem::Problem;

/// What a token's holder may have at most.
#[derive(Default)]
pub(crate) struct TokenLimits {
    /// The token's.
    pub name: Arc<str>,
    /// All tokens of one name share a rate, and a reload keeps what is left of it.
    pub requests: Option<Arc<RequestRate>>,
    /// As `requests`, of messages that are enqueued.
    pub messages: Option<Arc<RequestRate>>,
    pub max_topics: Option<usize>,
    /// Of each topic that it makes or changes.
    pub ceilings: TopicCeilings,
}

/// Where no token is asked for.
pub(crate) static NO_LIMITS: LazyLock<TokenLimits> = LazyLock::new(TokenLimits::default);

/// `rate` as it stands at those before it: the same one, or another speed with what is left of the one before.
fn resumed<'a>(
    rate: Option<Arc<RequestRate>>,
    before: impl Iterator<Item = &'a Arc<RequestRate>> + Clone,
) -> Option<Arc<RequestRate>> {
    let rate = rate?;
    let same = before.clone().find(|other| other.per_second().to_bits() == rate.per_second().to_bits());
    if let Some(same) = same {
        return Some(same.clone());
    }
    Some(before.last().map_or(rate.clone(), |other| Arc::new(other.at_speed(rate.per_second()))))
}

impl TokenLimits {
    /// Goes on with what is left at those of the same name in `before`.
    pub fn resume<'a>(&mut self, before: impl Iterator<Item = &'a Self> + Clone) {
        let name = self.name.clone();
        let before = before.filter(move |other| other.name == name);
        self.requests = resumed(self.requests.take(), before.clone().filter_map(|other| other.requests.as_ref()));
        self.messages = resumed(self.messages.take(), before.filter_map(|other| other.messages.as_ref()));
    }

    fn too_many(&self, what: &str, wait: Duration) -> Problem {
        let seconds = u16::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u16::MAX).max(1);
        let detail = format!("token {:?} has used up its {what} a second; ask again in {seconds} s", self.name);
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_in(seconds)
    }

    /// Counts a request; refuses it when there were too many.
    pub fn take_request(&self) -> Result<(), Problem> {
        let Some(rate) = &self.requests else { return Ok(()) };
        rate.take(1).map_err(|wait| self.too_many("requests", wait))
    }

    /// Counts what a request does besides, as one more: it is done, and the next one waits longer.
    pub fn charge_request(&self) {
        self.requests.iter().for_each(|rate| rate.charge(1));
    }

    /// Counts messages; refuses them when there were too many.
    pub fn take_messages(&self, count: usize) -> Result<(), Problem> {
        let Some(rate) = &self.messages else { return Ok(()) };
        rate.take(count).map_err(|wait| self.too_many("messages", wait))
    }

    /// Counts messages of a stream, or answers after how long there may be so many.
    pub fn try_messages(&self, count: usize) -> Result<(), Duration> {
        self.messages.as_ref().map_or(Ok(()), |rate| rate.take(count))
    }

    /// Most messages of a stream that are taken together.
    pub fn portion(&self) -> usize {
        self.messages.as_ref().map_or(usize::MAX, |rate| rate.portion())
    }

    /// Refuses another topic where there are `there` among those the token is for.
    pub fn check_topics(&self, there: usize) -> Result<(), Problem> {
        let Some(most) = self.max_topics.filter(|most| there >= *most) else { return Ok(()) };
        let detail = format!(
            "token {:?} may have {most} topics, and there are {there}; delete one, or raise its max_topics",
            self.name
        );
        Err(Problem::new(StatusCode::FORBIDDEN, "too_many_topics", detail))
    }
}
