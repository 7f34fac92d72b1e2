//! What a command on a topic that needs no body is given: the parts of the API, who sends it, and the topic.
//!
//! Upstream: `pause`, `sinks`. A body that is no JSON is refused, as everywhere, so that no page of another site can
//! have a browser send such a command.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use duetime_core::TopicName;

use crate::auth::Caller;
use crate::json::path::Topic;
use crate::json::problem::Problem;
use crate::server::body;
use crate::server::state::HttpParts;

/// What a command on a topic that needs no body is given: the parts of the API, who sends it, and the topic.
pub(crate) struct CommandRequest {
    pub app: Arc<HttpParts>,
    pub caller: Caller,
    pub topic: TopicName,
}

impl FromRequestParts<Arc<HttpParts>> for CommandRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<HttpParts>) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().expect("the guard says who sends a request").clone();
        let Topic(topic) = Topic::from_request_parts(parts, app).await?;
        body::json_only(&parts.headers)?;
        Ok(Self { app: app.clone(), caller, topic })
    }
}
