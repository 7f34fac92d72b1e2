//! Figures of the whole cluster, where each node has only its own: this node adds up what all of them answer.
//!
//! The others are asked with the token of whoever asks, for what they have themselves (`scope=node`), so that no
//! request goes round in circles and each node shows a token what it may see there. An answer says of every node
//! whether its figures are in it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use duetime_core::Member;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::auth::token_hash::hash_of;
use crate::json::path::Query;
use crate::json::problem::Problem;
use crate::server::memory::Account;
use crate::server::peers::{ASKED_AT_ONCE, address_of};
use crate::server::state::HttpParts;

/// Longest wait for all nodes together.
const ALL_WITHIN: Duration = Duration::from_secs(4);
/// Most nodes that are asked for one answer.
const NODES_MAX: usize = ASKED_AT_ONCE;

/// The parameters of a query that say whose figures are asked for.
pub(crate) const PARAMETERS: [&str; 2] = ["scope", "node"];

/// A node, and whether its figures are in an answer about the cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NodeAnswer {
    /// Its name.
    name: String,
    /// False: it has not answered, and its figures are missing.
    answered: bool,
    /// Why not, as the end of a sentence that begins with its name.
    reason: Option<String>,
}

impl NodeAnswer {
    /// Whether it is the node `name`, and its figures are in the answer.
    pub fn has_answered(&self, name: &str) -> bool {
        self.answered && self.name == name
    }
}

/// What [`FiguresOf::read`] reads, for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the document alone is made of it")]
pub(crate) struct FiguresParams {
    #[doc = "`node` (if absent): the node that answers; `cluster`: all nodes, which are asked with the same token; \
        `nodes` says which have not answered"]
    #[param(inline)]
    scope: Option<String>,
    /// Only of the node with this name, whichever answers
    #[param(inline)]
    node: Option<String>,
}

/// Whose figures are asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FiguresOf {
    /// Those of the node that answers.
    ThisNode,
    /// Those of all nodes.
    AllNodes,
    /// Those of the nodes with this name.
    Node(String),
}

impl FiguresOf {
    /// As the query has it: `scope` is `node` or `cluster`, and `node` a name.
    pub fn read(query: &Query) -> Result<Self, Problem> {
        let scope = query.get("scope", None, |text| match text {
            "node" | "cluster" => Ok(Some(text == "cluster")),
            _ => Err("give node or cluster".to_owned()),
        })?;
        let node = query.get("node", None, |text| Ok(Some(text.to_owned())))?;
        match (scope, node) {
            (Some(false), Some(_)) => {
                let detail = "node: scope=node is the node that answers; leave scope out, or give scope=cluster";
                Err(Problem::bad("invalid_query", detail).at("node"))
            }
            (_, Some(name)) => Ok(Self::Node(name)),
            (Some(true), None) => Ok(Self::AllNodes),
            _ => Ok(Self::ThisNode),
        }
    }
}

/// What is asked of each node.
pub(crate) struct Question<'a> {
    /// The route, part by part, as it is before anything is percent-encoded: `["v1", "rates"]`.
    pub path: &'a [&'a str],
    /// Its parameters, but for [`PARAMETERS`].
    pub parameters: Vec<(&'static str, String)>,
}

/// Figures that several nodes have.
pub(crate) trait ClusterView: Serialize + DeserializeOwned + Send {
    /// Adds those of the node `node`.
    fn add(&mut self, node: &str, other: Self);

    /// Called once all are added; `nodes` says whose are in it.
    fn finish(&mut self, _nodes: &[NodeAnswer]) {}
}

/// Whose figures an answer has.
#[skip_serializing_none]
#[derive(Serialize, Deserialize, ToSchema)]
struct NodesAsked {
    /// The node that answers.
    node: String,
    /// Only of the cluster, or of a `node`: which nodes there are, and whether their figures are in the answer.
    nodes: Option<Vec<NodeAnswer>>,
}

/// Figures of one node or several, with whose they are; in the document under the name of the figures.
#[derive(Serialize, Deserialize)]
pub(crate) struct OfNodes<T> {
    #[serde(flatten)]
    asked: NodesAsked,
    #[serde(flatten)]
    of: T,
}

impl<T> OfNodes<T> {
    /// Figures of the node `node`, which answers.
    pub fn own(node: &str, of: T) -> Self {
        Self { asked: NodesAsked { node: node.to_owned(), nodes: None }, of }
    }
}

impl<T: ToSchema> PartialSchema for OfNodes<T> {
    fn schema() -> RefOr<Schema> {
        let (RefOr::T(Schema::Object(mut whole)), RefOr::T(Schema::Object(asked))) =
            (T::schema(), NodesAsked::schema())
        else {
            unreachable!("both are structs with fields of their own")
        };
        whole.properties.extend(asked.properties);
        whole.required.extend(asked.required);
        RefOr::T(Schema::Object(whole))
    }
}

impl<T: ToSchema> ToSchema for OfNodes<T> {
    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        <NodesAsked as ToSchema>::schemas(schemas);
        <T as ToSchema>::schemas(schemas);
    }
}

/// Whether `member` is the node that answers.
fn is_this(app: &HttpParts, member: &Member) -> bool {
    member.id == app.node.id && member.address == app.node.address
}

/// What `member` answers.
async fn ask<V: ClusterView>(
    app: &HttpParts,
    member: &Member,
    question: &Question<'_>,
    token: Option<&HeaderValue>,
) -> Result<V, String> {
    let mut url = address_of(&app.node.address, member)?;
    url.path_segments_mut().expect("it is of HTTP").pop_if_empty().extend(question.path);
    url.query_pairs_mut().extend_pairs(&question.parameters).append_pair("scope", "node");
    let answer = app.options.peers.ask(url, token, |bytes| Account::current().take(bytes).is_ok()).await?;
    let view: OfNodes<V> =
        serde_json::from_slice(&answer).map_err(|_| "answered what this version does not know".to_owned())?;
    if view.asked.node != member.id {
        return Err("publishes an address at which another node answers: correct node.advertise there".to_owned());
    }
    Ok(view.of)
}

/// The members that `whose` means, each once: one that was started again is listed twice for some seconds.
fn meant<'a>(members: impl Iterator<Item = &'a Member>, whose: &FiguresOf) -> Vec<&'a Member> {
    let mut found = BTreeMap::new();
    for member in members {
        let is_meant = match whose {
            FiguresOf::Node(name) => member.id == *name,
            _ => true,
        };
        if is_meant {
            let latest = found.entry((&member.id, &member.address)).or_insert(member);
            if latest.since_ms < member.since_ms {
                *latest = member;
            }
        }
    }
    found.into_values().collect()
}

/// The figures of those of `others` that answer in time, and those of this node if there are any in `own`, added to `sum`.
async fn total<V: ClusterView>(
    app: &HttpParts,
    others: &[&Member],
    question: &Question<'_>,
    token: Option<&HeaderValue>,
    mut sum: V,
    own: Option<V>,
) -> OfNodes<V> {
    let mut nodes: Vec<NodeAnswer> = Vec::new();
    // By its place in `others`: why its figures are missing, until they are there.
    let too_many = format!("is beyond the {NODES_MAX} nodes that are asked");
    let late = || "was not reached in time".to_owned();
    let why = |at: usize| if at < NODES_MAX { late() } else { too_many.clone() };
    let mut missing: Vec<Option<String>> = (0..others.len()).map(|at| Some(why(at))).collect();
    if let Some(own) = own {
        sum.add(&app.node.id, own);
        nodes.push(NodeAnswer { name: app.node.id.clone(), answered: true, reason: None });
    }
    let asked = others.iter().take(NODES_MAX).enumerate();
    let mut asked: FuturesUnordered<_> =
        asked.map(|(at, member)| ask::<V>(app, member, question, token).map(move |answer| (at, answer))).collect();
    let deadline = tokio::time::sleep(ALL_WITHIN);
    tokio::pin!(deadline);
    loop {
        let (at, answer) = tokio::select! {
            biased;
            next = asked.next() => match next {
                Some(next) => next,
                None => break,
            },
            () = &mut deadline => break,
        };
        match answer {
            Ok(view) => {
                sum.add(&others[at].id, view);
                missing[at] = None;
            }
            Err(reason) => missing[at] = Some(reason),
        }
    }
    let of_others = others.iter().zip(missing);
    nodes.extend(of_others.map(|(member, reason)| NodeAnswer {
        name: member.id.clone(),
        answered: reason.is_none(),
        reason,
    }));
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    sum.finish(&nodes);
    let asked = NodesAsked { node: app.node.id.clone(), nodes: Some(nodes) };
    OfNodes { asked, of: sum }
}

/// Answers with the figures of whom `whose` says; `own` makes those of this node, `none` are those of no node.
///
/// # Errors
///
/// 404 `unknown_node`, and those of `own`.
pub(crate) async fn answer<V: ClusterView>(
    app: &Arc<HttpParts>,
    headers: &HeaderMap,
    whose: &FiguresOf,
    question: Question<'_>,
    none: V,
    own: impl Future<Output = Result<V, Problem>>,
) -> Result<Response, Problem> {
    if *whose == FiguresOf::ThisNode {
        return Ok(Json(OfNodes::own(&app.node.id, own.await?)).into_response());
    }
    let cluster = app.cluster.borrow().clone();
    let members = meant(cluster.members.values(), whose);
    if let (FiguresOf::Node(name), []) = (whose, &members[..]) {
        let detail = format!("there is no node {name:?}; see GET /v1/nodes for those that were heard of lately");
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_node", detail).at("node"));
    }
    let token = headers.get(header::AUTHORIZATION);
    let asked = (question.path, &question.parameters, whose);
    let key = hash_of(format!("{:?} {asked:?}", token.map(HeaderValue::as_bytes)).as_bytes());
    let (these, others): (Vec<&Member>, Vec<&Member>) = members.iter().partition(|member| is_this(app, member));
    let has_own = *whose == FiguresOf::AllNodes || !these.is_empty();
    let made = async {
        let own = if has_own { Some(own.await?) } else { None };
        let sum = total(app, &others, &question, token, none, own).await;
        Ok(Bytes::from(serde_json::to_vec(&sum).expect("figures are plain data")))
    };
    let bytes = app.options.peers.shared(key, made).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], bytes).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_figures_are_asked_for_is_in_the_query() {
        let read = |query: &str| FiguresOf::read(&Query::read(Some(query), &PARAMETERS).unwrap());
        assert_eq!(read("").unwrap(), FiguresOf::ThisNode);
        assert_eq!(read("scope=node").unwrap(), FiguresOf::ThisNode);
        assert_eq!(read("scope=cluster").unwrap(), FiguresOf::AllNodes);
        for query in ["node=n2", "scope=cluster&node=n2"] {
            assert_eq!(read(query).unwrap(), FiguresOf::Node("n2".to_owned()), "{query}");
        }
        for query in ["scope=all", "scope=node&node=n2"] {
            assert_eq!(read(query).unwrap_err().code, "invalid_query", "{query}");
        }
    }
}
