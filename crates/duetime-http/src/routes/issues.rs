//! What nodes know to be wrong with topics, the store, the sharing of shards or a log.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::Caller;
use crate::json::path::Query;
use crate::json::problem::Problem;
use crate::routes::cluster::{self, ClusterView, FiguresOf, FiguresParams, OfNodes, PARAMETERS, Question};
use crate::server::state::HttpParts;

/// Most issues in an answer.
const ISSUES_MAX: usize = 1024;

/// What this node knows to be wrong. Asks nobody.
pub(crate) fn own_issues(app: &HttpParts) -> Vec<String> {
    let catalog = app.catalog.issues().of_catalog().map(|(code, detail)| format!("{code}: {detail}"));
    let mut issues: Vec<String> = catalog.into_iter().chain(app.catalog.issues().of_topics()).collect();
    issues.extend(app.store.issues());
    issues.extend(app.ownership.issue());
    issues.extend(app.options.audit.issues());
    issues
}

/// What a node knows to be wrong.
#[derive(Serialize, Deserialize, ToSchema)]
pub(crate) struct NodeIssueView {
    /// The node that says so.
    node: String,
    /// A sentence, as in the `issues` of its `/readyz`.
    issue: String,
}

/// What nodes know to be wrong.
#[derive(Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct IssuesView {
    /// What several nodes know is there once for each of them; 1,024 at most.
    issues: Vec<NodeIssueView>,
}

type IssuesAnswer = OfNodes<IssuesView>;

impl ClusterView for IssuesView {
    fn add(&mut self, node: &str, other: Self) {
        self.issues.extend(other.issues.into_iter().map(|one| NodeIssueView { node: node.to_owned(), ..one }));
        self.issues.sort_by(|a, b| (&a.node, &a.issue).cmp(&(&b.node, &b.issue)));
        self.issues.truncate(ISSUES_MAX);
    }
}

/// What is wrong
///
/// What harms topics, the sharing of shards, the store or a log, as `/readyz` of the answering node says it, or with
/// `scope=cluster` those of all nodes; what is wrong with a sink, its topics say. Nothing for a token that is not for all
/// topics. Costs the store nothing.
#[utoipa::path(
    get, path = "/v1/issues", tag = "operations", operation_id = "list_issues",
    security(("token" = [])),
    params(FiguresParams),
    responses(
        (status = 200, description = "By node", body = IssuesAnswer),
        (status = 404, description = "`unknown_node`: there is no `node` of that name"),
    )
)]
pub(crate) async fn list(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let whose = FiguresOf::read(&Query::read(query.as_deref(), &PARAMETERS)?)?;
    let own = async {
        let known = if caller.sees_all() { own_issues(&app) } else { Vec::new() };
        let issues = known.into_iter().take(ISSUES_MAX).map(|issue| NodeIssueView { node: app.node.id.clone(), issue });
        Ok(IssuesView { issues: issues.collect() })
    };
    let question = Question { path: &["v1", "issues"], parameters: Vec::new() };
    cluster::answer(&app, &headers, &whose, question, IssuesView::default(), own).await
}
