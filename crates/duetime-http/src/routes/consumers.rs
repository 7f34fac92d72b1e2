//! Who claims the messages of a topic.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::json::path::{Query, Topic};
use crate::json::problem::Problem;
use crate::json::schema;
use crate::routes::cluster::{self, ClusterView, FiguresOf, FiguresParams, NodeAnswer, OfNodes, PARAMETERS, Question};
use crate::server::state::HttpParts;

/// Most consumers in an answer about several nodes: as many as each of them keeps.
const CONSUMERS_MAX: usize = 256;

schema::one_of!(
    /// Of what an answer is.
    ScopeOfAnswer,
    {"type": "string", "enum": ["node", "cluster"]}
);

/// A consumer that names itself.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct ConsumerView {
    consumer: String,
    /// When it claimed last, milliseconds since the Unix epoch. A claim that waits counts from its beginning.
    last_claim_at: i64,
    /// Its claims in the last minute, those that found nothing too.
    claims_per_minute: u32,
    /// Messages that it claimed at a node and that nobody settled there, while their visibility timeouts last.
    held: usize,
    /// When the last of these timeouts ends; absent: it holds nothing.
    held_until: Option<i64>,
}

/// The consumers of a topic that name themselves.
#[derive(Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ConsumersView {
    /// `node`: those that claimed at the node that answers, since it started; `cluster`: those that claimed at any of
    /// `nodes`.
    #[schema(value_type = ScopeOfAnswer)]
    scope: String,
    /// By name, those that claimed last: 256 at most.
    consumers: Vec<ConsumerView>,
}

type ConsumersAnswer = OfNodes<ConsumersView>;

impl ConsumerView {
    /// Adds what it did at another node.
    fn add(&mut self, other: &Self) {
        self.last_claim_at = self.last_claim_at.max(other.last_claim_at);
        self.claims_per_minute = self.claims_per_minute.saturating_add(other.claims_per_minute);
        self.held = self.held.saturating_add(other.held);
        self.held_until = self.held_until.max(other.held_until);
    }
}

impl ClusterView for ConsumersView {
    fn add(&mut self, _: &str, other: Self) {
        let known = std::mem::take(&mut self.consumers).into_iter();
        let mut all: BTreeMap<String, ConsumerView> = known.map(|one| (one.consumer.clone(), one)).collect();
        for one in other.consumers {
            match all.get_mut(&one.consumer) {
                Some(known) => known.add(&one),
                None => drop(all.insert(one.consumer.clone(), one)),
            }
        }
        self.consumers = all.into_values().collect();
    }

    fn finish(&mut self, _: &[NodeAnswer]) {
        "cluster".clone_into(&mut self.scope);
        self.consumers.sort_by_key(|one| Reverse(one.last_claim_at));
        self.consumers.truncate(CONSUMERS_MAX);
        self.consumers.sort_by(|a, b| a.consumer.cmp(&b.consumer));
    }
}

/// List the consumers of a topic
///
/// Those that name themselves in their claims, as the node that answers has seen them since it started; with
/// `scope=cluster` as all nodes have, each consumer once.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/consumers", tag = "consumers", operation_id = "list_consumers",
    security(("token" = ["consume"]), ("token" = ["view"])),
    params(FiguresParams),
    responses(
        (status = 200, description = "Who claims, how often, and what each holds", body = ConsumersAnswer),
        (status = 404, description = "There is no such topic; `unknown_node`: there is no `node` of that name"),
    )
)]
pub(crate) async fn list(
    State(app): State<Arc<HttpParts>>,
    Topic(topic): Topic,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let whose = FiguresOf::read(&Query::read(query.as_deref(), &PARAMETERS)?)?;
    app.router.topic(&topic).await?;
    let own = async {
        let seen = app.options.named_consumers.of(&topic, app.clock.now());
        let consumers = seen.into_iter().map(|one| ConsumerView {
            consumer: one.name.to_string(),
            last_claim_at: one.last.as_millis(),
            claims_per_minute: one.claims_per_minute,
            held: one.held,
            held_until: one.until.map(|until| until.as_millis()),
        });
        Ok(ConsumersView { scope: "node".to_owned(), consumers: consumers.collect() })
    };
    let question = Question { path: &["v1", "topics", topic.as_str(), "consumers"], parameters: Vec::new() };
    cluster::answer(&app, &headers, &whose, question, ConsumersView::default(), own).await
}
