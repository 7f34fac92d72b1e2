//! A topic's sink as this node sees it, or as all nodes do: whether it is down, and a try at once.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use duetime_core::{ClusterNodes, Member, MemberState, SinkDown, SinkState, TopicName, TopicRecord};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::path::{Query, Topic};
use crate::json::problem::Problem;
use crate::routes::cluster::{self, ClusterView, FiguresOf, FiguresParams, NodeAnswer, OfNodes, PARAMETERS, Question};
use crate::routes::command::CommandRequest;
use crate::routes::pause_view::PauseView;
use crate::server::state::HttpParts;

/// Longest wait for what a try at once brings.
const TRIED_WITHIN: Duration = Duration::from_secs(15);

/// Why messages of a topic are not delivered to its sink, as the answering node sees it.
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct SinkIssueView {
    /// `down`: the sink is taken to be down, claims are stopped and it is tried once in a while; `refused`: the node
    /// cannot use it as it is configured, or a stream in the store takes nothing.
    #[schema(value_type = String)]
    pub state: Cow<'static, str>,
    /// What was said last. For tokens with the scope `view` or `admin`.
    pub reason: Option<String>,
    /// Since when it is down, milliseconds since the Unix epoch.
    pub since: Option<i64>,
    /// When it is tried next, with the first message that is due then; absent while it is being tried.
    pub next_try: Option<i64>,
    /// The same as the node has it.
    #[serde(skip)]
    pub down: Option<SinkDown>,
}

impl SinkIssueView {
    /// What is wrong with the sink of `topic`, if anything, as far as the caller may know.
    pub fn of(app: &HttpParts, topic: &TopicName, caller: &Caller) -> Option<Self> {
        Self::new(app.sinks.state(topic)?, caller)
    }

    fn new(state: SinkState, caller: &Caller) -> Option<Self> {
        let shown = |reason: String| caller.sees_reasons().then_some(reason);
        if let Some(reason) = state.refused {
            let (since, next_try, down) = (None, None, None);
            return Some(Self { state: "refused".into(), reason: shown(reason), since, next_try, down });
        }
        let down = state.down?;
        Some(Self {
            state: "down".into(),
            reason: shown(down.reason.clone()),
            since: Some(down.since.as_millis()),
            next_try: down.next_try.map(|at| at.as_millis()),
            down: Some(down),
        })
    }

    /// The same in words, for what waits for `sink`.
    pub fn in_words(&self, sink: &str) -> String {
        let moment = |ms: i64| duetime_core::Timestamp::from_millis(ms);
        let because = self.reason.as_ref().map(|reason| format!(", because: {reason}")).unwrap_or_default();
        match (self.since, self.next_try) {
            (Some(since), Some(next)) => {
                let since = moment(since);
                format!("the sink {sink:?} is down since {since}{because}. It is tried again at {}.", moment(next))
            }
            (Some(since), None) => {
                format!("the sink {sink:?} is down since {}{because}. It is being tried.", moment(since))
            }
            (None, _) => format!("this node cannot use the sink {sink:?}{because}."),
        }
    }
}

/// Why a node delivers nothing to the sink of a topic.
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NodeSinkIssueView {
    /// The node that says so: each finds out for itself.
    node: String,
    /// `down`: the sink is taken to be down; `refused`: the node cannot use it as it is configured.
    #[schema(value_type = String)]
    state: Cow<'static, str>,
    /// What was said last. For tokens with the scope `view` or `admin`.
    reason: Option<String>,
    /// Since when it is down, milliseconds since the Unix epoch.
    since: Option<i64>,
    /// When it is tried next; absent while it is being tried.
    next_try: Option<i64>,
}

impl NodeSinkIssueView {
    pub fn new(node: &str, issue: SinkIssueView) -> Self {
        let SinkIssueView { state, reason, since, next_try, .. } = issue;
        Self { node: node.to_owned(), state, reason, since, next_try }
    }
}

/// A node that scans shards of a topic.
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ScannerView {
    /// Its name.
    id: String,
    /// Where it listens.
    address: String,
    /// How many shards of the topic it scans; absent in round-robin, where a node knows only of its own.
    shards: Option<u32>,
}

/// A topic's sink as the answering node sees it, or as several do. Each node that scans shards of the topic finds out for
/// itself whether the sink is down.
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct SinkView {
    /// As the topic names it.
    sink: String,
    /// Its type; absent where the node cannot use it.
    #[serde(rename = "type")]
    #[schema(value_type = Option<String>)]
    kind: Option<Cow<'static, str>>,
    /// Absent: nothing is wrong as far as the nodes know whose figures these are. Of several issues the worst: one that
    /// is down, and that the longest.
    issue: Option<SinkIssueView>,
    /// The same by node, as each of them says it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    issues: Vec<NodeSinkIssueView>,
    /// Nothing is claimed for it: the topic is paused, or the whole sink is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    paused: bool,
    /// Why, as far as somebody noted it and the token may know.
    pause: Option<PauseView<'static>>,
    /// Messages of the topic whose time has come, at all nodes: what waits.
    due: u64,
    /// How long all that takes once the sink accepts, in milliseconds, without what falls due meanwhile: at the topic's
    /// rate limit, or at the best that the answering node was able to, times the number of nodes. Absent: nothing waits,
    /// or that is not known.
    catch_up_ms: Option<u64>,
    /// Shards of the topic that the node scans, or the nodes do together.
    shards_scanned: u32,
    /// The others that scan shards of the topic, each with a view of its own; of the cluster those that have not answered.
    other_nodes: Vec<ScannerView>,
}

pub(crate) type SinkAnswer = OfNodes<SinkView>;

impl SinkIssueView {
    /// Whether it says more than `other`.
    fn is_worse(&self, other: &Self) -> bool {
        let rank = |issue: &Self| (issue.state == "down", issue.since.map(std::cmp::Reverse));
        rank(self) > rank(other)
    }
}

impl ClusterView for SinkView {
    fn add(&mut self, _: &str, other: Self) {
        if other.issue.as_ref().is_some_and(|issue| self.issue.as_ref().is_none_or(|known| issue.is_worse(known))) {
            self.issue = other.issue;
        }
        // A node has one.
        self.issues.extend(other.issues.into_iter().take(1));
        self.shards_scanned = self.shards_scanned.saturating_add(other.shards_scanned);
        let known = std::mem::take(&mut self.other_nodes).into_iter().chain(other.other_nodes);
        let by_name: BTreeMap<_, _> = known.map(|one| ((one.id.clone(), one.address.clone()), one)).collect();
        self.other_nodes = by_name.into_values().collect();
        // Every node reads these from the same store; they differ by when they were read.
        self.kind = self.kind.take().or(other.kind);
        self.due = self.due.max(other.due);
        self.catch_up_ms = self.catch_up_ms.max(other.catch_up_ms);
    }

    fn finish(&mut self, nodes: &[NodeAnswer]) {
        self.issues.sort_by(|a, b| a.node.cmp(&b.node));
        self.other_nodes.retain(|one| !nodes.iter().any(|node| node.has_answered(&one.id)));
    }
}

/// What a try at once brought.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProbeView {
    /// `up`: it accepts again; `was_up`: it was not taken to be down; `down`: it still is; `nothing_due`: no message
    /// could be tried, the next that falls due is; `in_progress`: the try has not ended yet.
    outcome: &'static str,
    #[serde(flatten)]
    #[schema(value_type = SinkAnswer)]
    view: SinkAnswer,
}

fn no_sink(topic: &TopicName) -> Problem {
    let detail = format!("topic {topic:?} has no sink: consumers claim its messages");
    Problem::new(StatusCode::CONFLICT, "topic_has_no_sink", detail)
}

/// How many shards of `topic` this node scans, and who else scans some.
fn scanners(app: &HttpParts, cluster: &ClusterNodes, topic: &TopicName) -> (u32, Vec<ScannerView>) {
    let is_this = |member: &Member| member.id == app.node.id && member.address == app.node.address;
    let knows_all = !app.ownership.takes_turns();
    let (mut own, mut others) = (0, Vec::new());
    for (name, member) in &cluster.members {
        let shards = cluster.scanned_by(name).remove(topic).unwrap_or(0);
        if is_this(member) {
            own = shards;
        } else if shards > 0 || (!knows_all && member.state == MemberState::Serving) {
            let shards = knows_all.then_some(shards);
            others.push(ScannerView { id: member.id.clone(), address: member.address.clone(), shards });
        }
    }
    (own, others)
}

fn catch_up_ms(due: u64, per_second: f64) -> u64 {
    (due as f64 / per_second * 1000.0).ceil() as u64
}

async fn view(app: &HttpParts, record: &TopicRecord, caller: &Caller) -> Result<SinkView, Problem> {
    let topic = &record.name;
    let sink = record.config.sink.as_ref().ok_or_else(|| no_sink(topic))?;
    let due = app.router.counter.count(topic).await?.total.due;
    let cluster = app.cluster.borrow().clone();
    let (shards_scanned, other_nodes) = scanners(app, &cluster, topic);
    let state = app.sinks.state(topic);
    let kind = state.as_ref().and_then(|state| state.kind).map(Cow::from);
    let issue = state.and_then(|state| SinkIssueView::new(state, caller));
    Ok(SinkView {
        sink: sink.name.clone(),
        kind,
        issues: issue.iter().map(|issue| NodeSinkIssueView::new(&app.node.id, issue.clone())).collect(),
        issue,
        paused: record.config.paused,
        pause: PauseView::of(record, caller).map(PauseView::into_owned),
        due,
        catch_up_ms: app.router.forecaster.capacity(record).filter(|_| due > 0).map(|rate| catch_up_ms(due, rate)),
        shards_scanned,
        other_nodes,
    })
}

/// Look at a topic's sink
///
/// Whether it is taken to be down, since when, why, what waits, and when it is tried next. That is the answering node's
/// own picture: each node that scans shards of the topic has one; with `scope=cluster` it is what all of them say.
#[utoipa::path(
    get, path = "/v1/topics/{topic}/sink", tag = "operations", operation_id = "get_sink",
    security(("token" = ["view"])),
    params(FiguresParams),
    responses(
        (status = 200, description = "The sink as this node sees it, or as several do", body = SinkAnswer),
        (status = 404, description = "There is no such topic; `unknown_node`: there is no `node` of that name"),
        (status = 409, description = "`topic_has_no_sink`: consumers claim"),
    )
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    Topic(topic): Topic,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let whose = FiguresOf::read(&Query::read(query.as_deref(), &PARAMETERS)?)?;
    let record = app.router.topic(&topic).await?;
    let question = Question { path: &["v1", "topics", topic.as_str(), "sink"], parameters: Vec::new() };
    let own = view(&app, &record, &caller).await?;
    // What the store says is the same of every node, also where none of those that are asked answers.
    let of_none =
        SinkView { issue: None, issues: Vec::new(), shards_scanned: 0, other_nodes: Vec::new(), ..own.clone() };
    cluster::answer(&app, &headers, &whose, question, of_none, async { Ok(own) }).await
}

/// Try a topic's sink at once
///
/// Ends the wait before the next try of a sink that is down, also one that the target asked for, and answers within
/// 15 s what the try brought. It is tried with messages that are due; nothing is made up. Of the answering node only.
#[utoipa::path(
    post, path = "/v1/topics/{topic}/sink/probe", tag = "operations", operation_id = "probe_sink",
    security(("token" = ["admin"])),
    responses(
        (status = 200, description = "`up`, `was_up`, `down`, `nothing_due` or `in_progress`", body = ProbeView),
        (status = 409, description = "`topic_has_no_sink`: consumers claim; `not_owner`: other nodes scan the \
            topic's shards, `detail` names them"),
    )
)]
pub(crate) async fn probe(command: CommandRequest) -> Result<Response, Problem> {
    let CommandRequest { app, caller, topic } = command;
    let record = app.router.topic(&topic).await?;
    if record.config.sink.is_none() {
        return Err(no_sink(&topic));
    }
    let (own, others) = scanners(&app, &app.cluster.borrow().clone(), &topic);
    // In round-robin shards come and go all the time.
    if own == 0 && !app.ownership.takes_turns() {
        let named: Vec<String> = others.iter().map(|node| format!("{:?} at {}", node.id, node.address)).collect();
        let named = if named.is_empty() { "no node does for now".to_owned() } else { named.join(", ") };
        let detail = format!("node {:?} scans no shard of topic {topic:?}; ask one that does: {named}", app.node.id);
        return Err(Problem::new(StatusCode::CONFLICT, "not_owner", detail));
    }
    let tried = tokio::select! {
        biased;
        tried = app.sinks.probe_now(&topic, TRIED_WITHIN) => tried,
        () = app.draining.cancelled() => None,
    };
    let outcome = tried.unwrap_or(duetime_core::ProbeOutcome::NothingDue).as_str();
    let view = OfNodes::own(&app.node.id, view(&app, &record, &caller).await?);
    Ok(Json(ProbeView { outcome, view }).into_response())
}
