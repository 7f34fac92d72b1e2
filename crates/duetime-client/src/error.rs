//! Why a call was not answered as hoped.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::became::Became;

/// A refusal of the node: RFC 9457 problem details.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    #[serde(default)]
    pub status: u16,
    /// The status in words.
    #[serde(default)]
    pub title: String,
    /// Stable word for programs.
    #[serde(default)]
    pub code: String,
    /// What is wrong and what to do, for people.
    #[serde(default)]
    pub detail: String,
    /// The field to blame.
    pub field: Option<String>,
    /// The same request may be done later, without anybody doing anything else: as the node says, or, where the answer
    /// does not, by its status.
    #[serde(default)]
    pub retryable: bool,
    /// After how many seconds at the earliest, where the node says so.
    #[serde(skip)]
    pub retry_after: Option<u64>,
    /// The id of the request, which the lines of the node's log about it have.
    #[serde(skip)]
    pub request_id: Option<String>,
    /// What became of the message that is not there, where its topic remembers.
    pub became: Option<Became>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = if self.detail.is_empty() { &self.title } else { &self.detail };
        write!(f, "{text}")?;
        let request = self.request_id.as_ref().map(|id| format!("request {id}"));
        let code = Some(self.code.clone()).filter(|code| !code.is_empty());
        match [code, request].into_iter().flatten().collect::<Vec<_>>().join(", ") {
            more if more.is_empty() => Ok(()),
            more => write!(f, " ({more})"),
        }
    }
}

/// Why a call was not answered as hoped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address of the node cannot be used.
    #[error("{0:?} is not the address of a node; write it like \"http://127.0.0.1:3830\"")]
    Address(String),
    /// The token cannot be sent in a header.
    #[error("the token has characters that cannot be sent; it is one line of visible ASCII")]
    Token,
    /// A name that no path can have. Nothing was sent.
    #[error(
        "{0:?} cannot be a part of a path, where it is a step; of an id, list the message with --prefix and cancel it \
         with `duetime cancel` (POST …/cancel), which names it in its body"
    )]
    Dots(String),
    /// No connection. Nothing was done.
    #[error("cannot reach {base}: {reason}")]
    Unreachable {
        /// The node.
        base: String,
        /// What the system said.
        reason: String,
    },
    /// The connection broke or the time was up: whether the node acted is unknown.
    #[error("{base} did not answer: {reason}{}{}", advice(*changes), named(request_id.as_deref()))]
    Lost {
        /// The node.
        base: String,
        /// What the system said.
        reason: String,
        /// Whether the request was one that changes something.
        changes: bool,
        /// The id of the request, where the client was given one.
        request_id: Option<String>,
    },
    /// The node refused, or could not.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The response is not one of a node: most likely the address is another server's.
    #[error("unexpected response from {base} ({reason}); is it a Duetime node?{}", named(request_id.as_deref()))]
    Foreign {
        /// The address.
        base: String,
        /// What could not be read.
        reason: String,
        /// The id of the request, where the answer or the client had one.
        request_id: Option<String>,
    },
}

impl ClientError {
    /// The node's refusal, if it is one.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    /// The id of the request, which the lines of the node's log about it have: from the answer, or as the client was
    /// given it.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Refused(problem) => problem.request_id.as_deref(),
            Self::Lost { request_id, .. } | Self::Foreign { request_id, .. } => request_id.as_deref(),
            _ => None,
        }
    }

    /// Whether the same call may succeed later, without anybody doing anything else: nobody was there or answered, the
    /// answer says `retryable`, or it was that the request came too late. What [`Client::retrying`] sends again.
    ///
    /// [`Client::retrying`]: crate::Client::retrying
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Lost { .. } => true,
            // What came too late was not done, and has a later end the next time.
            Self::Refused(problem) => problem.retryable || problem.code == "deadline_exceeded",
            _ => false,
        }
    }

    /// Whether a program that goes on for good, such as a consumer, may ask later: also after each 429, 502, 503 and 504,
    /// some of which an operator has to cure.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.is_retryable() || self.problem().is_some_and(|problem| is_passing(problem.status))
    }

    /// Whether the node may have carried out a request that ended so, and that changes something.
    pub(crate) fn may_be_done(&self) -> bool {
        match self {
            Self::Lost { changes, .. } => *changes,
            // Without a code it is of what stands before the node.
            Self::Refused(problem) => match problem.code.as_str() {
                "" | "store_unavailable" | "timeout" => is_passing(problem.status),
                // With 429 and 503 a node says that it did nothing.
                _ => matches!(problem.status, 502 | 504) || (problem.retryable && !matches!(problem.status, 429 | 503)),
            },
            _ => false,
        }
    }

    /// The same, after an earlier try that may have been carried out.
    pub(crate) fn after_another(self, request_id: Option<String>) -> Self {
        match self {
            Self::Unreachable { base, reason } => Self::Lost { base, reason, changes: true, request_id },
            other => other,
        }
    }

    /// How long the node asks to wait before the next try.
    pub(crate) fn retry_after(&self) -> Duration {
        Duration::from_secs(self.problem().and_then(|problem| problem.retry_after).unwrap_or(0))
    }

    /// `changes`: whether the request was one that changes something.
    pub(crate) fn from_transport(
        base: &str,
        request_id: Option<String>,
        changes: bool,
        error: &reqwest::Error,
    ) -> Self {
        let (base, reason) = (base.to_owned(), innermost(error));
        if error.is_connect() {
            Self::Unreachable { base, reason }
        } else {
            Self::Lost { base, reason, changes, request_id }
        }
    }
}

/// Whether an answer with this status may be another one later.
pub(crate) fn is_passing(status: u16) -> bool {
    matches!(status, 429 | 502 | 503 | 504)
}

/// What the text of an error says of its request.
fn named(request_id: Option<&str>) -> String {
    request_id.map_or_else(String::new, |id| format!("; request {id}"))
}

fn advice(changes: bool) -> &'static str {
    // The request said until when it is waited for.
    if changes {
        "; whether it was done is not known: some seconds from now nothing of it is under way any more, so look then, or \
         repeat it"
    } else {
        ""
    }
}

/// The last of the causes says what happened; those above it only that something did.
fn innermost(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "time is up".to_owned();
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text
}
