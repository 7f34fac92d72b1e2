//! The shards of a topic: where each lives, who scans it, what is in it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::store::ShardCounts;
use duetime_core::{ResizeError, ResizeProgress, ShardCount, ShardLocation, TopicName};
use duetime_router::{ShardAnomaly, TopicChange, TopicCounts};
use serde::{Deserialize, Serialize};
use serde_json::Map;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::path::{Query, Topic};
use crate::json::problem::Problem;
use crate::json::schema;
use crate::routes::command::Asked;
use crate::routes::topics::bounded;
use crate::server::state::HttpParts;

/// Largest body of a request for another shard count.
const SHARDS_BYTES_MAX: usize = 4 << 10;

/// One shard.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct ShardView {
    index: u32,
    /// Its Redis Cluster slot; absent on another store.
    slot: Option<u16>,
    /// The hash tag of its keys in Redis: `duetime:{TAG}:TOPIC:INDEX`; absent on another store.
    tag: Option<u32>,
    /// The key in Redis of the stream that its messages go to if the topic's sink delivers in place; absent on
    /// another store.
    stream: Option<String>,
    /// The node that scans it; absent while this node knows of none. In round-robin shards change
    /// hands all the time, and a node knows only of its own.
    owner: Option<String>,
    /// As of the topic.
    scheduled: u64,
    /// As of the topic.
    due: u64,
    /// As of the topic.
    in_flight: u64,
    dead: u64,
    /// When the first message that is due fell due; absent when none is.
    oldest_due_at: Option<i64>,
    /// Its server does not answer, and its counts are not known; absent when it does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    unreachable: bool,
    /// It should be there and is not: its server came back without it; absent when it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    lost: bool,
    /// Messages of an earlier incarnation of the topic that were never deleted and occupy the shard's keys; absent
    /// when there are none.
    #[serde(skip_serializing_if = "crate::routes::view::zero")]
    #[schema(required = false)]
    occupied_by: u64,
    /// The shard is of a newer incarnation than the topic's record: the catalog was restored from an older copy. Adopt
    /// the topic; absent when it is not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    newer_incarnation: bool,
}

/// A resize under way.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct ResizeView {
    from: u32,
    to: u32,
    /// The next request, which starts after this one; absent when there is none.
    desired: Option<u32>,
    /// Messages in their new home. While messages come and go, an estimate from the counts.
    moved: u64,
    /// Messages that are not, an estimate too.
    remaining: u64,
    /// Messages a second lately; absent while not known.
    per_second: Option<f64>,
    /// Seconds until nothing remains, at that rate.
    seconds_left: Option<f64>,
    /// Why it does not go on at present; absent while it does.
    blocked: Option<String>,
}

impl From<ResizeProgress> for ResizeView {
    fn from(progress: ResizeProgress) -> Self {
        let ResizeProgress { from, to, desired, moved, remaining, per_second, left, blocked } = progress;
        let seconds_left = left.map(|left| left.as_secs_f64());
        Self { from, to, desired, moved, remaining, per_second, seconds_left, blocked }
    }
}

/// What another number of shards would move.
#[derive(Serialize, ToSchema)]
pub(crate) struct ResizePreview {
    from: u32,
    to: u32,
    /// Messages whose shard would be another, about: of those that are there the share `1 - min(from, to) / max(from, to)`.
    moves: u64,
    /// Messages a second that move at most: `resize.messages_per_second` of the answering node, for each node.
    per_second_max: u64,
    /// So it takes at least so many seconds, in which everything goes on.
    seconds_min: f64,
}

impl ResizePreview {
    fn new(app: &HttpParts, counts: &TopicCounts, to: ShardCount) -> Self {
        let total = &counts.total;
        let (from, (to, each)) = (counts.record.routing.shards, app.resizing.meaning(to));
        let to = counts.record.config.bounded_shards(to);
        let share = 1.0 - f64::from(from.min(to)) / f64::from(from.max(to).max(1));
        let moves = (total.messages() as f64 * share).round() as u64;
        let per_second_max = u64::from(each) * u64::from(app.cluster.borrow().nodes());
        Self { from, to, moves, per_second_max, seconds_min: moves as f64 / per_second_max.max(1) as f64 }
    }
}

fn read_count(text: &str) -> Result<Option<ShardCount>, String> {
    let value = text.parse::<i64>().map_or_else(|_| serde_json::Value::from(text), serde_json::Value::from);
    serde_json::from_value(value).map(Some).map_err(|error| error.to_string())
}

/// The shards of a topic.
#[skip_serializing_none]
#[derive(Serialize, ToSchema)]
pub(crate) struct ShardsView {
    /// As configured: a number or `"auto"`.
    #[schema(value_type = schema::ShardCountIn)]
    configured: ShardCount,
    /// How many there are, or will be when the resize under way is done.
    shard_count: u32,
    /// Number of the topic's incarnation: a topic that is deleted and created again has a higher one.
    incarnation: u64,
    /// Grows by one with every change of the count, from 1 in each incarnation.
    epoch: u64,
    /// The seed of the hash that determines the shard of an id. Whoever knows it can make ids that all fall into one
    /// shard, so it is shown only to a token that may change the topic.
    seed: Option<u32>,
    /// How nodes share the shards. In `round-robin` a node knows of its own shards only, and a shard without an
    /// owner here may have another one.
    #[schema(value_type = schema::OwnershipMode)]
    mode: &'static str,
    shards: Vec<ShardView>,
    /// Keys in Redis of the streams of shards that the topic had and has no more. Nothing is appended to them any
    /// more, and what was may still be unread; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    retired_streams: Vec<String>,
    /// The resize under way; absent when none is.
    resize: Option<ResizeView>,
    /// What the number that `to` asked about would move.
    preview: Option<ResizePreview>,
}

async fn view(app: &HttpParts, caller: &Caller, counts: &TopicCounts) -> Result<ShardsView, Problem> {
    let resize = app.resizing.progress(&counts.record.name).await?;
    let record = &counts.record;
    let cluster = app.cluster.borrow().clone();
    // While a server is silent, what is lost is not known.
    let wrong = if counts.unreachable_shards() > 0 {
        Vec::new()
    } else {
        app.router.consistency.anomalies(record).await.unwrap_or_default()
    };
    let anomalies: HashMap<u32, ShardAnomaly> = wrong.into_iter().collect();
    let shard = |(index, known): (u32, &Option<ShardCounts>)| {
        let counts = known.unwrap_or_default();
        let ShardLocation { slot, stream, .. } = app.store.locate(&record.routing.shard(&record.name, index));
        ShardView {
            index,
            slot: slot.map(|(slot, _)| slot),
            tag: slot.map(|(_, tag)| tag),
            stream,
            owner: cluster.owner(&record.name, index).map(str::to_owned),
            scheduled: counts.waiting(),
            due: counts.due,
            in_flight: counts.in_flight,
            dead: counts.dead,
            oldest_due_at: counts.head.filter(|_| counts.due > 0).map(|head| head.as_millis()),
            unreachable: known.is_none(),
            lost: anomalies.get(&index) == Some(&ShardAnomaly::Lost),
            occupied_by: anomalies.get(&index).map_or(0, |what| match what {
                ShardAnomaly::Occupied(messages) => *messages,
                ShardAnomaly::Lost | ShardAnomaly::Later(_) => 0,
            }),
            newer_incarnation: matches!(anomalies.get(&index), Some(ShardAnomaly::Later(_))),
        }
    };
    let retired = record.routing.reach()..record.max_shards_ever();
    let stream_of = |index| app.store.locate(&record.routing.shard(&record.name, index)).stream;
    Ok(ShardsView {
        configured: record.config.shards,
        shard_count: record.routing.shards,
        incarnation: record.routing.life(),
        epoch: record.routing.change(),
        seed: caller.may_change_topics().then(|| record.routing.seed(&record.name)),
        mode: app.ownership.mode(),
        shards: (0..).zip(&counts.shards).map(shard).collect(),
        retired_streams: retired.filter_map(stream_of).collect(),
        resize: resize.map(ResizeView::from),
        preview: None,
    })
}

/// Look at the shards
#[utoipa::path(
    get, path = "/v1/topics/{topic}/shards", tag = "topics", operation_id = "get_shards",
    security(("token" = [])),
    params(
        ("to" = inline(Option<String>), Query,
            description = "A number of shards, or `auto`: what it would move is in `preview`; nothing is changed"),
    ),
    responses((status = 200, description = "Every shard", body = ShardsView))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let to = Query::read(query.as_deref(), &["to"])?.get("to", None, read_count)?;
    let seen = async {
        let counts = app.router.counter.count(&topic).await?;
        let seen = view(&app, &caller, &counts).await?;
        Ok(ShardsView { preview: to.map(|to| ResizePreview::new(&app, &counts, to)), ..seen })
    };
    let seen = seen.await.map_err(|problem| waiting(&app, &topic, problem));
    Ok(Json(seen?).into_response())
}

/// Where a part of the store is away, a resize that cannot be counted is said to wait for it.
fn waiting(app: &HttpParts, topic: &TopicName, mut problem: Problem) -> Problem {
    let moving = app.catalog.get(topic).filter(|record| record.routing.is_moving());
    if let Some(record) = moving.filter(|_| problem.code == "store_unavailable") {
        let (from, to) = (record.routing.previous, record.routing.shards);
        let _ = write!(problem.detail, "; the resize from {from} to {to} waits for it and goes on by itself");
    }
    problem
}

/// How many shards are wanted.
#[derive(Deserialize, ToSchema)]
#[schema(as = ShardCount)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShardsIn {
    // Read so, one that is missing is named like any other field.
    #[serde(deserialize_with = "ShardCount::deserialize")]
    #[schema(value_type = schema::ShardCountIn)]
    shards: ShardCount,
}

/// Why the number of shards is not changed: a topic that vanished is not one that was never created.
fn refusal(app: &HttpParts, error: ResizeError) -> Problem {
    let ResizeError::UnknownTopic(topic) = &error else { return error.into() };
    app.catalog.issues().of(topic).map_or_else(|| error.into(), Problem::from)
}

/// Ask for another shard count
///
/// Messages move while everything goes on; `GET` shows how far it is. While one resize runs another
/// request is only kept and starts after it: the last request wins.
#[utoipa::path(
    put, path = "/v1/topics/{topic}/shards", tag = "topics", operation_id = "put_shards",
    security(("token" = ["admin"])),
    request_body(content = ShardsIn, content_type = "application/json"),
    responses(
        (status = 202, description = "The topic has, or is getting, that many", body = ShardsView),
        (status = 409, description = "Others keep changing the topic"),
    )
)]
pub(crate) async fn put(asked: Asked<ShardsIn, SHARDS_BYTES_MAX>) -> Result<Response, Problem> {
    let Asked { app, caller, topic, ask, .. } = asked;
    // First of all: is there such a topic, and does who decides answer?
    app.resizing.check(&topic).await.map_err(|error| refusal(&app, error))?;
    let count = serde_json::to_value(ask.shards).expect("a number or a word");
    let change = TopicChange::new(Map::from_iter([("shards".to_owned(), count)]));
    let change = bounded(&app, app.catalog.find(&topic).await?.as_ref(), change, &caller)?;
    // A topic that is deleted meanwhile is not made again.
    if app.catalog.change(&topic, &change).await?.is_none() {
        return Err(ResizeError::UnknownTopic(topic).into());
    }
    app.resizing.ask(&topic, ask.shards).await?;
    app.catalog.refresh().await?;
    let counts = app.router.counter.count(&topic).await?;
    Ok((StatusCode::ACCEPTED, Json(view(&app, &caller, &counts).await?)).into_response())
}
