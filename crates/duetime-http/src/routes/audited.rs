//! The last entries of the audit log, as nodes keep them in memory.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::audit::line::AuditLine;
use crate::audit::operation::{ChangeKind, operation_named, operation_words};
use crate::auth::Caller;
use crate::json::path::Query;
use crate::json::problem::Problem;
use crate::routes::cluster::{self, ClusterView, FiguresOf, FiguresParams, OfNodes, PARAMETERS, Question};
use crate::server::state::HttpParts;

/// Entries unless asked for otherwise, and at most.
const ENTRIES: usize = 100;
const ENTRIES_MAX: usize = 1000;

/// What was changed, or tried.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct AuditView {
    /// The newest first.
    #[schema(value_type = Vec<AuditLine>)]
    entries: Vec<Map<String, Value>>,
    /// At most so many.
    #[serde(skip)]
    limit: usize,
}

type AuditAnswer = OfNodes<AuditView>;

/// An entry as it is answered.
fn shown(line: &AuditLine) -> Map<String, Value> {
    match serde_json::to_value(line) {
        Ok(Value::Object(map)) => map,
        _ => unreachable!("an entry is a plain struct"),
    }
}

impl ClusterView for AuditView {
    fn add(&mut self, node: &str, other: Self) {
        let node = Value::from(node);
        let named = |mut entry: Map<String, Value>| {
            entry.insert("node".to_owned(), node.clone());
            entry
        };
        self.entries.extend(other.entries.into_iter().map(named));
        // RFC 3339 in UTC sorts as the times do.
        let time =
            |entry: &Map<String, Value>| entry.get("time").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.entries.sort_by_cached_key(|entry| Reverse(time(entry)));
        self.entries.truncate(self.limit);
    }
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
/// With `scope=cluster` the newest `limit` entries of all nodes together.
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
        FiguresParams,
    ),
    responses(
        (status = 200, description = "The newest first", body = AuditAnswer),
        (status = 404, description = "`unknown_node`: there is no `node` of that name"),
    )
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(text): RawQuery,
) -> Result<Response, Problem> {
    let known = ["limit", "kind", "operation", "topic"];
    let query = Query::read(text.as_deref(), &[&known[..], &PARAMETERS].concat())?;
    let whose = FiguresOf::read(&query)?;
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
    let own = async {
        let entries = app.options.audit.last(limit, wanted).iter().map(shown).collect();
        Ok(AuditView { entries, limit })
    };
    let given = |name: &'static str| query.get(name, None, |text| Ok(Some((name, text.to_owned()))));
    let parameters = known.into_iter().filter_map(|name| given(name).transpose()).collect::<Result<_, _>>()?;
    let (question, none) = (Question { path: &["v1", "audit"], parameters }, AuditView { entries: Vec::new(), limit });
    cluster::answer(&app, &headers, &whose, question, none, own).await
}
