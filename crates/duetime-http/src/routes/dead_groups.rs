//! Dead letters by what killed them.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use duetime_router::{DeadGroup, SCANNED_MAX};
use serde::Serialize;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::json::path::{Query, Topic};
use crate::json::problem::Problem;
use crate::routes::dead::{read_cursor, show_cursor};
use crate::server::memory;
use crate::server::state::HttpParts;

/// Ids of each group, unless asked for otherwise, and at most.
const SAMPLES: usize = 5;
const SAMPLES_MAX: usize = 1000;

/// Dead letters of one reason.
#[derive(Serialize, ToSchema)]
pub(crate) struct DeadGroupView {
    /// The reason without what differs from message to message: `#` stands for digits, `…` for what is in quotes or
    /// looks like an id. `other reasons`: the rest of more than 200.
    reason: String,
    /// One of them as it is.
    example: String,
    /// How many of those that were read.
    count: u64,
    /// How many of these were redriven before.
    redriven_before: u64,
    /// How many of these died within the last 24 hours.
    last_day: u64,
    /// When the first of them died, milliseconds since the Unix epoch.
    first: i64,
    /// When the last of them died.
    last: i64,
    /// Some of their ids.
    ids: Vec<String>,
}

impl From<DeadGroup> for DeadGroupView {
    fn from(group: DeadGroup) -> Self {
        let DeadGroup { reason, example, count, redriven_before, last_day, first, last, ids } = group;
        Self {
            reason,
            example,
            count,
            redriven_before,
            last_day,
            first: first.as_millis(),
            last: last.as_millis(),
            ids,
        }
    }
}

/// Dead letters by reason.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct DeadGroupsView {
    /// The largest first.
    groups: Vec<DeadGroupView>,
    /// Dead letters that were read: `limit` at most, shard by shard.
    scanned: u64,
    /// True if these are all dead letters there are; else the counts are of a part.
    complete: bool,
    /// Give it as `cursor` to read on; absent where these were the last.
    next: Option<String>,
}

fn read_samples(text: &str) -> Result<usize, String> {
    let samples = text.parse().ok().filter(|samples| (1..=SAMPLES_MAX).contains(samples));
    samples.ok_or_else(|| format!("give 1 to {SAMPLES_MAX}"))
}

fn read_limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok().filter(|limit| (1..=SCANNED_MAX).contains(limit));
    limit.ok_or_else(|| format!("give 1 to {SCANNED_MAX}"))
}

/// Group dead letters
///
/// By reason, without the numbers and names in it: how many, since when and which. Reads `limit` dead letters, 32 MiB or
/// for five seconds at most, and says in `complete` whether these were all; with `next` as `cursor` it reads on.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/dead/groups", tag = "dead letters", operation_id = "group_dead",
    security(("token" = ["view"])),
    params(
        ("samples" = inline(Option<usize>), Query, description = "Most ids of each group, 5 if absent", minimum = 1, maximum = 1000),
        ("limit" = inline(Option<usize>), Query, description = "Most dead letters to read, 10,000 if absent", minimum = 1, maximum = 10000),
        ("cursor" = inline(Option<String>), Query, description = "`next` of the answer before"),
    ),
    responses((status = 200, description = "The largest group first", body = DeadGroupsView))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["samples", "limit", "cursor"])?;
    let samples = query.get("samples", SAMPLES, read_samples)?;
    let limit = query.get("limit", SCANNED_MAX, read_limit)?;
    let cursor = query.get("cursor", None, read_cursor)?;
    let _turn = memory::turn().await;
    let found = app.router.dead.groups(&topic, samples, cursor, limit).await?;
    let groups = found.groups.into_iter().map(DeadGroupView::from).collect();
    let complete = cursor.is_none() && found.next.is_none();
    Ok(Json(DeadGroupsView { groups, scanned: found.scanned, complete, next: found.next.map(show_cursor) })
        .into_response())
}
