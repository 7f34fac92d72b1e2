//! One topic of several that a request asks, where it did not do what was asked.

use duetime_core::TopicName;
use serde::Serialize;
use utoipa::ToSchema;

use crate::json::problem::Problem;

/// A topic that did not do what was asked, though others may have.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopicFailure {
    topic: String,
    /// As that of a problem.
    #[schema(value_type = String)]
    code: &'static str,
    detail: String,
    /// It may answer later, without anybody doing anything else.
    retryable: bool,
}

impl TopicFailure {
    pub(crate) fn new(topic: &TopicName, problem: Problem) -> Self {
        let Problem { code, detail, retryable, .. } = problem;
        Self { topic: topic.to_string(), code, detail, retryable }
    }
}
