//! Figures of the whole cluster, where each node has only its own: this node adds up what all of them answer.
//!
//! The others are asked with the token of whoever asks, for what they have themselves (`scope=node`), so that no
//! request goes round in circles and each node shows a token what it may see there. An answer says of every node
//! whether its figures are in it.

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
use utoipa::ToSchema;

use crate::auth::token_hash::hash_of;
use crate::json::path::Query;
use crate::json::problem::Problem;
use crate::server::memory::Account;
use crate::server::peers::address_of;
use crate::server::state::HttpParts;

/// Longest wait for all nodes together.
const ALL_WITHIN: Duration = Duration::from_secs(4);
/// Most nodes that are asked for one answer.
const NODES_MAX: usize = 256;

/// The parameters of a query that say whose figures are asked for.
pub(crate) const PARAMETERS: [&str; 2] = ["scope", "node"];

/// A node, and whether its figures are in an answer about the cluster.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct NodeAnswer {
    /// Its name.
    name: String,
    /// False: it has not answered, and its figures are missing.
    answered: bool,
    /// Why not, as the end of a sentence that begins with its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    reason: Option<String>,
}

/// Whose figures are asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Those of the node that answers.
    This,
    /// Those of all nodes.
    All,
    /// Those of the nodes with this name.
    One(String),
}

impl Whose {
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
            (_, Some(name)) => Ok(Self::One(name)),
            (Some(true), None) => Ok(Self::All),
            _ => Ok(Self::This),
        }
    }
}

/// What is asked of each node.
pub(crate) struct Question {
    /// Of the route.
    pub path: &'static str,
    /// Its parameters, but for [`PARAMETERS`].
    pub parameters: Vec<(&'static str, String)>,
}

/// Figures that several nodes have.
pub(crate) trait ClusterView: Serialize + DeserializeOwned + Send {
    /// Those of no node, answered by `node`.
    fn none(node: &str) -> Self;

    /// The node that they are of.
    fn node(&self) -> &str;

    /// Adds those of another node.
    fn add(&mut self, other: Self);

    /// Once all are added: says which nodes are in it.
    fn finish(&mut self, nodes: Vec<NodeAnswer>);
}

/// Whether `member` is the node that answers.
fn is_this(app: &HttpParts, member: &Member) -> bool {
    member.id == app.node.id && member.address == app.node.address
}

/// What `member` answers.
async fn ask<V: ClusterView>(
    app: &HttpParts,
    member: &Member,
    question: &Question,
    token: Option<&HeaderValue>,
) -> Result<V, String> {
    let mut url = address_of(&app.node.address, member)?;
    url.set_path(question.path);
    url.query_pairs_mut().extend_pairs(&question.parameters).append_pair("scope", "node");
    let answer = app.options.peers.ask(url, token, |bytes| Account::current().take(bytes).is_ok()).await?;
    let view: V = serde_json::from_slice(&answer).map_err(|_| "answered what this version does not know".to_owned())?;
    if view.node() != member.id {
        return Err("publishes an address at which another node answers: correct node.advertise there".to_owned());
    }
    Ok(view)
}

/// The members that `whose` means, each once: one that was started again is listed twice for some seconds.
fn meant<'a>(members: impl Iterator<Item = &'a Member>, whose: &Whose) -> Vec<&'a Member> {
    let mut found = BTreeMap::new();
    for member in members {
        let is_meant = match whose {
            Whose::One(name) => member.id == *name,
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

/// The figures of those of `others` that answer in time, and those of this node if there are any in `own`.
async fn total<V: ClusterView>(
    app: &HttpParts,
    others: &[&Member],
    question: &Question,
    token: Option<&HeaderValue>,
    own: Option<V>,
) -> V {
    let mut sum = V::none(&app.node.id);
    let mut nodes: Vec<NodeAnswer> = Vec::new();
    // By its place in `others`: why its figures are missing, until they are there.
    let too_many = format!("is beyond the {NODES_MAX} nodes that are asked");
    let late = || "was not reached in time".to_owned();
    let why = |at: usize| if at < NODES_MAX { late() } else { too_many.clone() };
    let mut missing: Vec<Option<String>> = (0..others.len()).map(|at| Some(why(at))).collect();
    if let Some(own) = own {
        sum.add(own);
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
                sum.add(view);
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
    sum.finish(nodes);
    sum
}

/// Answers with the figures of whom `whose` says; `own` makes those of this node.
///
/// # Errors
///
/// 404 `unknown_node`.
pub(crate) async fn answer<V: ClusterView>(
    app: &Arc<HttpParts>,
    headers: &HeaderMap,
    whose: &Whose,
    question: Question,
    own: impl FnOnce() -> V,
) -> Result<Response, Problem> {
    if *whose == Whose::This {
        return Ok(Json(own()).into_response());
    }
    let cluster = app.cluster.borrow().clone();
    let members = meant(cluster.members.values(), whose);
    if let (Whose::One(name), []) = (whose, &members[..]) {
        let detail = format!("there is no node {name:?}; see GET /v1/nodes for those that were heard of lately");
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown_node", detail).at("node"));
    }
    let token = headers.get(header::AUTHORIZATION);
    let asked = (question.path, &question.parameters, whose);
    let key = hash_of(format!("{:?} {asked:?}", token.map(HeaderValue::as_bytes)).as_bytes());
    let (these, others): (Vec<&Member>, Vec<&Member>) = members.iter().partition(|member| is_this(app, member));
    let has_own = *whose == Whose::All || !these.is_empty();
    let made = async {
        let sum = total(app, &others, &question, token, has_own.then(own)).await;
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
        let read = |query: &str| Whose::read(&Query::read(Some(query), &PARAMETERS).unwrap());
        assert_eq!(read("").unwrap(), Whose::This);
        assert_eq!(read("scope=node").unwrap(), Whose::This);
        assert_eq!(read("scope=cluster").unwrap(), Whose::All);
        for query in ["node=n2", "scope=cluster&node=n2"] {
            assert_eq!(read(query).unwrap(), Whose::One("n2".to_owned()), "{query}");
        }
        for query in ["scope=all", "scope=node&node=n2"] {
            assert_eq!(read(query).unwrap_err().code, "invalid_query", "{query}");
        }
    }
}
