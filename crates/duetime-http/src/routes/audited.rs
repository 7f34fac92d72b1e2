//! The last entries of the audit log, as this node keeps them in memory.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use crate::audit::line::AuditLine;
use crate::audit::operation::{ChangeKind, operation_named, operation_words};
use crate::auth::Caller;
use crate::json::path::Query;
use crate::json::problem::Problem;
use crate::server::state::HttpParts;

/// Entries unless asked for otherwise, and at most.
const ENTRIES: usize = 100;
const ENTRIES_MAX: usize = 1000;

/// What was changed, or tried.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditView {
    /// The node that answers: each keeps its own.
    node: String,
    /// The newest first.
    entries: Vec<AuditLine>,
}

fn read_limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| (1..=ENTRIES_MAX).contains(limit));
    limit.ok_or_else(|| format!("give 1 to {ENTRIES_MAX}"))
}

fn read_kinds(text: &str) -> Result<Option<Vec<ChangeKind>>, String> {
    let kind = |word| ChangeKind::named(word).ok_or_else(|| format!("give some of {}", ChangeKind::WORDS.join(", ")));
    text.split(',').map(kind).collect::<Result<_, _>>().map(Some)
}

fn read_operations(text: &str) -> Result<Option<Vec<&'static str>>, String> {
    let operation = |word| operation_named(word).ok_or_else(|| format!("give some of {}", operation_words()));
    text.split(',').map(operation).collect::<Result<_, _>>().map(Some)
}

/// The audit log's last entries
///
/// Who changed what, from where and how it ended, at the answering node since it started; never payloads. The last
/// 1,000 entries of what administrators do (of whoever has most of them the oldest goes first), the last 256 of messages
/// coming and going, and the last 256 of claims and what settles them: all of them, unless the parameters say less. The
/// last 256 requests that were refused before anything of them was done (no token, no right, too late, a foreign page) are
/// answered for `kind=refused` alone.
/// They are kept in memory also where `node.audit` is not set. A token that is for some topics sees what is about them.
#[utoipa::path(
    get, path = "/v1/audit", tag = "operations", operation_id = "get_audit",
    security(("token" = ["admin"])),
    params(
        ("limit" = inline(Option<usize>), Query, description = "At most so many, 100 if absent", minimum = 1, maximum = 1000),
        ("kind" = inline(Option<String>), Query, description = "Only these kinds, with commas between them: \
            `administration`, `messages`, `claims`, `refused`; all but `refused` if absent"),
        ("operation" = inline(Option<String>), Query, description = "Only these operations, with commas between them, as \
            entries have them: `pause_sink,resume_sink`"),
        ("topic" = inline(Option<String>), Query, description = "Only what is about this topic"),
    ),
    responses((status = 200, description = "The newest first", body = AuditView))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["limit", "kind", "operation", "topic"])?;
    let limit = query.get("limit", ENTRIES, read_limit)?;
    let kinds = query.get("kind", None, read_kinds)?;
    let operations = query.get("operation", None, read_operations)?;
    let topic = query.get("topic", None, |text| Ok(Some(text.to_owned())))?;
    let wanted = |line: &AuditLine| {
        line.topic.as_ref().map_or(caller.sees_all(), |topic| caller.sees(topic))
            && kinds.as_ref().map_or(line.kind != ChangeKind::Refused, |kinds| kinds.contains(&line.kind))
            && operations.as_ref().is_none_or(|operations| operations.contains(&line.operation))
            && topic.as_ref().is_none_or(|topic| line.topic.as_ref() == Some(topic))
    };
    let entries = app.options.audit.last(limit, wanted);
    Ok(Json(AuditView { node: app.node.id.clone(), entries }).into_response())
}
