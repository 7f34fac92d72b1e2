//! What a command on a topic is given: the parts of the API, who sends it, the topic, and what its body asks for.
//!
//! Upstream: `pause`, `sinks`, `settle` and others. A body that is no JSON is refused, as everywhere, so that no page of another site can
//! have a browser send such a command.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use duetime_core::TopicName;
use serde::de::DeserializeOwned;

use crate::auth::Caller;
use crate::json::fields;
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

/// What a command on a topic is given whose body, of so many bytes at most, is JSON that says what is asked for.
pub(crate) struct Asked<T, const BYTES_MAX: usize> {
    pub app: Arc<HttpParts>,
    pub caller: Caller,
    pub topic: TopicName,
    pub headers: HeaderMap,
    pub ask: T,
}

impl<T: DeserializeOwned, const BYTES_MAX: usize> FromRequest<Arc<HttpParts>> for Asked<T, BYTES_MAX> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<HttpParts>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let CommandRequest { app, caller, topic } = CommandRequest::from_request_parts(&mut parts, app).await?;
        let bytes = body::whole(body, &parts.headers, BYTES_MAX).await?;
        Ok(Self { app, caller, topic, headers: parts.headers, ask: fields::read(&bytes)? })
    }
}
