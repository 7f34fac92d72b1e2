//! What each request that may change something does, in a word of the reference, and what kind of change that is.
//!
//! Upstream: the audit log names and filters its entries by them.

use axum::http::Method;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::Scope;
use crate::auth::scopes::scopes_of;

/// Method, route below `/v1`, and the `operationId` that the reference has for it.
const OPERATIONS: &[(&str, &str, &str)] = &[
    ("POST", "/nodes/{id}/drain", "drain_node"),
    ("POST", "/nodes/{id}/undrain", "undrain_node"),
    ("POST", "/backup", "back_up"),
    ("PUT", "/topics/{topic}", "put_topic"),
    ("DELETE", "/topics/{topic}", "delete_topic"),
    ("POST", "/topics/{topic}/adopt", "adopt_topic"),
    ("PUT", "/topics/{topic}/shards", "put_shards"),
    ("POST", "/topics/{topic}/pause", "pause_topic"),
    ("POST", "/topics/{topic}/resume", "resume_topic"),
    ("POST", "/topics/{topic}/plans", "create_plan"),
    ("DELETE", "/topics/{topic}/plans/{id}", "delete_plan"),
    ("POST", "/topics/{topic}/plans/{id}/start", "start_plan"),
    ("POST", "/topics/{topic}/plans/{id}/stop", "stop_plan"),
    ("POST", "/topics/{topic}/sink/probe", "probe_sink"),
    ("POST", "/sinks/{sink}/pause", "pause_sink"),
    ("POST", "/sinks/{sink}/resume", "resume_sink"),
    ("DELETE", "/topics/{topic}/dead", "purge_dead"),
    ("POST", "/topics/{topic}/dead/redrive", "redrive_dead"),
    ("POST", "/topics/{topic}/messages", "enqueue"),
    ("PATCH", "/topics/{topic}/messages/{id}", "reschedule_message"),
    ("DELETE", "/topics/{topic}/messages/{id}", "cancel_message"),
    ("POST", "/topics/{topic}/cancel", "cancel_messages"),
    ("POST", "/topics/{topic}/claim", "claim"),
    ("POST", "/topics/{topic}/ack", "ack"),
    ("POST", "/topics/{topic}/nack", "nack"),
    ("POST", "/topics/{topic}/release", "release"),
    ("POST", "/topics/{topic}/extend", "extend"),
];

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

/// What no route is for.
const OTHER: &str = "other";

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

    /// What a request is.
    pub fn of(method: &Method, route: &str) -> Self {
        match scopes_of(method, route) {
            [Scope::Admin] => Self::Administration,
            [Scope::Consume] => Self::Claims,
            _ => Self::Messages,
        }
    }
}

/// What a request does.
pub(crate) fn operation_of(method: &Method, route: &str) -> &'static str {
    let below = route.strip_prefix("/v1").unwrap_or(route);
    OPERATIONS.iter().find(|(m, r, _)| method == *m && *r == below).map_or(OTHER, |(.., operation)| operation)
}

/// The operation that is called so.
pub(crate) fn operation_named(word: &str) -> Option<&'static str> {
    OPERATIONS.iter().map(|(.., operation)| *operation).chain(BY_ITSELF).find(|known| *known == word)
}

/// What operations are called, in a sentence.
pub(crate) fn operation_words() -> String {
    OPERATIONS.iter().map(|(.., operation)| *operation).chain(BY_ITSELF).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_that_may_change_something_has_the_name_that_the_reference_gives_it() {
        let document = crate::openapi();
        let mut seen = 0;
        for (path, item) in &document.paths.paths {
            let writes = [("PUT", &item.put), ("POST", &item.post), ("PATCH", &item.patch), ("DELETE", &item.delete)];
            for (method, operation) in writes {
                let Some(operation) = operation else { continue };
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                assert_eq!(operation.operation_id.as_deref(), Some(operation_of(&method, path)), "{method} {path}");
                seen += 1;
            }
        }
        assert_eq!(seen, OPERATIONS.len());
        assert_eq!((operation_named("claim"), operation_named("get_topic")), (Some("claim"), None));
        assert_eq!(ChangeKind::WORDS.map(|word| ChangeKind::named(word).unwrap()), ChangeKind::ALL);
        let kind = |method, route| ChangeKind::of(&method, route);
        assert_eq!(kind(Method::POST, "/v1/topics/{topic}/ack"), ChangeKind::Claims);
        assert_eq!(kind(Method::POST, "/v1/topics/{topic}/cancel"), ChangeKind::Messages);
        assert_eq!(kind(Method::POST, "/v1/sinks/{sink}/pause"), ChangeKind::Administration);
    }
}
