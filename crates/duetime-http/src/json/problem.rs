//! Refusals and failures as users see them: RFC 9457 problem details with a stable `code`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use duetime_core::{ResizeError, StoreError};
use duetime_router::{CatalogError, RouteError};
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::json::became::BecameView;
use crate::json::codes::{CODES, is_retryable};
use crate::json::found::ReadyFound;
use crate::json::schema;

/// The content type of a problem.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// Seconds after which a client may try again what failed for a passing reason.
const RETRY_AFTER_S: u16 = 1;

/// What can be done about a topic whose record is gone.
const ADOPT_OR_DELETE: &str = "put it back with POST /v1/topics/{topic}/adopt, or give its messages up with \
                               DELETE /v1/topics/{topic}?force=true";

/// What can be done about a topic of which nothing is left.
const CREATE_ANEW: &str =
    "bring the store's data back from a copy, or create the topic anew with PUT /v1/topics/{topic}";

/// The code of an answer's problem, for whoever counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProblemCode(pub &'static str);

/// Most bytes of a sentence about what was sent: it quotes some of that.
const DETAIL_BYTES_MAX: usize = 1000;

/// Most bytes of the name of a field: one that is not known is quoted.
const FIELD_BYTES_MAX: usize = 100;

/// The beginning of a text, of at most so many bytes.
fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text
}

/// What a request about one message found of it: as the results of many have it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(crate) struct Verdict {
    /// The id of the message.
    pub id: Option<String>,
    #[schema(value_type = schema::RefusedOutcome)]
    pub outcome: Option<&'static str>,
    /// The due time of the message that is there already, where the store knows it.
    pub due_at: Option<i64>,
    pub shard: Option<u32>,
    /// Replicas of Redis that know of it, where `store.durability` waits for them.
    pub replicas: Option<u32>,
    /// What became of the message that is gone, where its topic remembers.
    pub became: Option<BecameView>,
}

/// A problem: `code` is for programs and never changes its meaning, `detail` says what to do.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// Always `about:blank`: `code` distinguishes problems.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'static str,
    /// The status.
    status: u16,
    /// Stable word for programs.
    #[schema(value_type = schema::Code)]
    pub code: &'static str,
    /// What is wrong and what to do, for people.
    pub detail: String,
    /// The field to blame.
    pub field: Option<String>,
    /// The same request may be done later, without anybody doing anything else: send it again after a pause.
    pub retryable: bool,
    #[serde(flatten)]
    #[schema(value_type = Verdict)]
    verdict: Option<Box<Verdict>>,
    /// Only of `/readyz`: what was found of each thing that the node depends on.
    #[schema(value_type = Option<ReadyFound>)]
    found: Option<Box<ReadyFound>>,
    #[serde(skip)]
    retry_after: Option<u16>,
}

impl Problem {
    /// A problem of that status.
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        debug_assert!(CODES.contains(&code), "{code} is in no list");
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            code,
            detail: cut(detail.into(), DETAIL_BYTES_MAX),
            field: None,
            retryable: is_retryable(code),
            verdict: None,
            found: None,
            retry_after: (status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_S),
        }
    }

    /// 400.
    pub fn bad(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, detail)
    }

    /// A topic cannot have the sink that it was to be given.
    pub fn of_sink(detail: impl Into<String>) -> Self {
        Self::bad("invalid_topic_settings", detail).at("sink")
    }

    /// The same, with a field to blame.
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(cut(field.into(), FIELD_BYTES_MAX));
        self
    }

    /// The same, with what was found of the message.
    pub fn with(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(Box::new(verdict));
        self
    }

    /// The same, with what was found of what the node depends on.
    pub fn found(mut self, found: ReadyFound) -> Self {
        self.found = Some(Box::new(found));
        self
    }

    /// The same, with another pause before it may be tried again.
    pub fn retry_in(mut self, seconds: u16) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Says in the head of an answer that this is in it: its code, for whoever counts them, and when to ask again.
    pub fn mark(&self, response: &mut Response) {
        response.extensions_mut().insert(ProblemCode(self.code));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
    }

    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).expect("made from a status")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self).expect("a problem is plain data");
        let mut response = (self.status(), [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        self.mark(&mut response);
        if self.status == 401 {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"duetime\""));
        }
        response
    }
}

/// One item of many that was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub code: &'static str,
    pub field: Option<String>,
    pub detail: String,
}

impl Refusal {
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        debug_assert!(CODES.contains(&code), "{code} is in no list");
        Self { code, field: None, detail: cut(detail.into(), DETAIL_BYTES_MAX) }
    }

    /// The same, with a field to blame.
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(cut(field.into(), FIELD_BYTES_MAX));
        self
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.code {
            "payload_too_large" | "too_many_items" => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self { field: refusal.field, ..Self::new(status, refusal.code, refusal.detail) }
    }
}

impl From<&RouteError> for Refusal {
    fn from(error: &RouteError) -> Self {
        let problem = Problem::from(error);
        Self { code: problem.code, field: problem.field, detail: problem.detail }
    }
}

impl From<&StoreError> for Problem {
    fn from(error: &StoreError) -> Self {
        let (status, code, advice) = match error {
            StoreError::Full(_) => (
                StatusCode::INSUFFICIENT_STORAGE,
                "store_full",
                "slow down, and let the backlog drain or give the store more room",
            ),
            StoreError::RecordLimit(said) => {
                return Self::new(StatusCode::INSUFFICIENT_STORAGE, "store_full", said.as_str());
            }
            StoreError::Unavailable { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "store_unavailable",
                "repeat the request after a pause; whether it was done is unknown",
            ),
            StoreError::Stale(_) | StoreError::NotReady(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "routing_changing", "repeat the request after a pause")
            }
            StoreError::UnknownShard(_) => {
                (StatusCode::NOT_FOUND, "unknown_topic", "its topic was deleted; create it with PUT /v1/topics/{topic}")
            }
            StoreError::Conflict => (StatusCode::CONFLICT, "conflict", "nothing was changed"),
            StoreError::Lost(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "shard_lost",
                "an operator must bring its server's data back, or accept the loss with POST /v1/topics/{topic}/adopt",
            ),
            StoreError::Occupied { .. } => (
                StatusCode::CONFLICT,
                "shard_occupied",
                "nothing was removed; an operator must look: POST /v1/topics/{topic}/adopt with accept_loss empties it",
            ),
            StoreError::Vanished { .. } => (StatusCode::SERVICE_UNAVAILABLE, "topic_vanished", ADOPT_OR_DELETE),
            StoreError::NotEmpty { .. } => (
                StatusCode::CONFLICT,
                "topic_not_empty",
                "nothing was deleted; to delete it as it is, send DELETE /v1/topics/{topic}?force=true",
            ),
            StoreError::Emptied(_) => (StatusCode::SERVICE_UNAVAILABLE, "topic_emptied", CREATE_ANEW),
            StoreError::Outdated(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "topic_outdated",
                "put the later one back with POST /v1/topics/{topic}/adopt",
            ),
            StoreError::SettingsUnknown(_) => {
                (StatusCode::CONFLICT, "settings_unknown", "give them as settings in the body of the request")
            }
            StoreError::ClockSkew(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "clock_skew",
                "nothing was done; repeat the request when the clocks agree, or give a due_at",
            ),
            StoreError::Damaged(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "store_damaged", "an operator must look at the store")
            }
            StoreError::Setup(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_setup", "an operator must change this"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "report this"),
        };
        Self::new(status, code, format!("{error}; {advice}"))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::from(&error)
    }
}

impl From<&RouteError> for Problem {
    fn from(error: &RouteError) -> Self {
        match error {
            RouteError::UnknownTopic(name) => Self::new(
                StatusCode::NOT_FOUND,
                "unknown_topic",
                format!("topic {name:?} does not exist; create it with PUT /v1/topics/{name}"),
            ),
            RouteError::TopicFull { limit, .. } => Self::new(
                StatusCode::INSUFFICIENT_STORAGE,
                "topic_full",
                format!("{error}; slow down, let its backlog and dead letters drain, or raise {limit}"),
            ),
            RouteError::CannotRepeat { .. } => {
                Self::new(StatusCode::CONFLICT, "topic_cannot_repeat", error.to_string()).at("repeat")
            }
            RouteError::RequestOver => {
                let detail = format!("{error}; send it again if it is still wanted");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "timeout", detail).retry_in(1)
            }
            RouteError::Store(error) => Self::from(&**error),
            other => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", other.to_string()),
        }
    }
}

impl From<RouteError> for Problem {
    fn from(error: RouteError) -> Self {
        Self::from(&error)
    }
}

impl From<CatalogError> for Problem {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Invalid { field, detail } => Self { field, ..Self::bad("invalid_topic_settings", detail) },
            CatalogError::Sink(error) => Self::of_sink(error.to_string()),
            CatalogError::Name(error) => Self::bad("invalid_topic_name", error.to_string()).at("topic"),
            CatalogError::Store(error @ StoreError::Vanished { .. }) => {
                Self::new(StatusCode::CONFLICT, "topic_vanished", format!("{error}; {ADOPT_OR_DELETE}"))
            }
            CatalogError::Store(error) => Self::from(&error),
            other => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", other.to_string()),
        }
    }
}

impl From<ResizeError> for Problem {
    fn from(error: ResizeError) -> Self {
        match error {
            ResizeError::UnknownTopic(_) => Self::new(
                StatusCode::NOT_FOUND,
                "unknown_topic",
                format!("{error}; create it with PUT /v1/topics/{{topic}}"),
            ),
            ResizeError::AuthorityAway(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "authority_unavailable",
                format!("{error}; nothing was begun, repeat the request when it is back"),
            ),
            ResizeError::Store(error) => Self::from(&error),
            other => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained_and_no_other() {
        let text = include_str!("../../../../docs/API.md");
        let table = text.split_once("## Problems").unwrap().1.split_once("## Tokens").unwrap().0;
        for code in CODES {
            assert!(table.contains(&format!("`{code}`")), "{code} is not in docs/API.md");
        }
        let rows = table.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit());
        for code in rows.flat_map(|row| row.split('`').skip(1).step_by(2)) {
            let is_code = code.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(!is_code || CODES.contains(&code), "{code} is in docs/API.md and is no code");
        }
    }

    #[test]
    fn what_quotes_a_request_is_cut() {
        let problem = Problem::bad("invalid_value", "ж".repeat(5000)).at("x".repeat(5000));
        assert!(problem.detail.len() <= DETAIL_BYTES_MAX + 3 && problem.detail.ends_with('…'));
        assert!(problem.field.unwrap().len() <= FIELD_BYTES_MAX + 3);
    }
}
