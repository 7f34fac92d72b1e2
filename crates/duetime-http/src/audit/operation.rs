//! What each request that may change something does, in a word of the reference, and what kind of change that is.
//!
//! Upstream: the audit log names and filters its entries by them.

use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Scope;
use crate::auth::operations::Operations;

/// What a bulk plan does to a message by itself, without a request.
pub(crate) const PLAN_ITEM: &str = "plan_item";
/// The tokens were reloaded.
pub(crate) const RELOAD: &str = "reload";
/// A topic was made, by a request or as the configuration has it.
pub(crate) const PUT_TOPIC: &str = "put_topic";
/// Refused requests that have no line.
pub(crate) const LEFT_OUT: &str = "left_out";
/// Lines of the audit log that could not be written.
pub(crate) const LINES_LOST: &str = "lines_lost";
/// What no request asks for.
const BY_ITSELF: [&str; 4] = [PLAN_ITEM, RELOAD, LEFT_OUT, LINES_LOST];

/// What kind of change something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeKind {
    /// Of what administrators do: topics, sinks, nodes, plans, dead letters.
    Administration,
    /// Of messages coming and going: enqueued, cancelled, rescheduled.
    Messages,
    /// Of consumers: claims, and what settles them.
    Claims,
    /// Requests that were refused before anything of them was done, whatever they asked for.
    Refused,
}

impl ChangeKind {
    const ALL: [Self; 4] = [Self::Administration, Self::Messages, Self::Claims, Self::Refused];

    /// What programs call each.
    pub const WORDS: [&str; 4] = ["administration", "messages", "claims", "refused"];

    /// The one that is called so.
    pub fn named(word: &str) -> Option<Self> {
        Self::WORDS.iter().position(|known| *known == word).map(|at| Self::ALL[at])
    }

    /// What a request is for which a token needs one of these scopes.
    pub fn of(scopes: Option<&[Scope]>) -> Self {
        match scopes {
            Some([Scope::Admin]) => Self::Administration,
            Some([Scope::Consume]) => Self::Claims,
            _ => Self::Messages,
        }
    }
}

fn operations() -> impl Iterator<Item = &'static str> {
    Operations::that_write().chain(BY_ITSELF)
}

/// The operation that is called so.
pub(crate) fn operation_named(word: &str) -> Option<&'static str> {
    operations().find(|known| *known == word)
}

/// What operations are called, in a sentence.
pub(crate) fn operation_words() -> String {
    let mut words: Vec<&str> = operations().collect();
    words.sort_unstable();
    words.dedup();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_names_a_kind_and_each_operation_that_may_change_something() {
        let api = crate::openapi();
        let all = Operations::of(&api);
        assert_eq!((operation_named("claim"), operation_named("get_topic")), (Some("claim"), None));
        assert_eq!(ChangeKind::WORDS.map(|word| ChangeKind::named(word).unwrap()), ChangeKind::ALL);
        let kind = |route| ChangeKind::of(all.find(&axum::http::Method::POST, route).unwrap().scopes.as_deref());
        assert_eq!(kind("/v1/topics/{topic}/ack"), ChangeKind::Claims);
        assert_eq!(kind("/v1/topics/{topic}/cancel"), ChangeKind::Messages);
        assert_eq!(kind("/v1/sinks/{sink}/pause"), ChangeKind::Administration);
    }
}
