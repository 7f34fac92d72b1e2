//! The stream of events: what changes in the topics, as it changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::time::Instant;

use crate::auth::Caller;
use crate::auth::listeners::LISTENERS_MAX;
use crate::auth::peer::{Peer, network};
use crate::auth::standing::StandingCaller;
use crate::json::problem::Problem;
use crate::server::feed::{FeedChange, Listener};
use crate::server::state::HttpParts;

/// Something is sent at least so often, so that a connection that is gone is noticed.
const SIGN_EVERY: Duration = Duration::from_secs(15);
/// A client that lost its connection waits this long.
const RETRY_MS: u32 = 2000;
/// When to ask a node again that has too many listeners.
const RETRY_IN_S: u16 = 5;

#[derive(Serialize)]
struct Issue<'a> {
    detail: &'a str,
}

/// One stream.
struct EventStream {
    app: Arc<HttpParts>,
    listener: Listener,
    caller: StandingCaller,
    seen: Option<i64>,
    begun: bool,
    /// When something must be sent, whatever the listener may not see happens.
    sign_at: Instant,
    has_issue: bool,
}

fn event(name: &str, id: Option<String>, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("plain data");
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n")
}

impl EventStream {
    /// What is to be sent to `caller` now; `None`: nothing.
    fn news(&mut self, caller: &Caller) -> Option<String> {
        match self.listener.after(self.seen)? {
            Err(detail) if self.has_issue => {
                drop(detail);
                None
            }
            Err(detail) => {
                self.has_issue = true;
                let shown = if caller.sees_all() { detail.as_str() } else { "the topics cannot be counted" };
                Some(event("issue", None, &Issue { detail: shown }))
            }
            Ok(FeedChange { at, mut topics, mut gone }) => {
                topics.retain(|topic| caller.sees(topic.name()));
                gone.retain(|name| caller.sees(name));
                let is_first = self.seen.is_none();
                self.seen = Some(at);
                let ended = std::mem::take(&mut self.has_issue);
                let is_empty = topics.is_empty() && gone.is_empty();
                let name = if is_first { "topics" } else { "change" };
                (!is_empty || is_first || ended)
                    .then(|| event(name, Some(self.listener.id(at)), &FeedChange { at, topics, gone }))
            }
        }
    }

    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if !std::mem::replace(&mut self.begun, true) {
            return Some((Ok(format!("retry: {RETRY_MS}\n\n").into()), self));
        }
        self.sign_at = Instant::now() + SIGN_EVERY;
        loop {
            let caller = self.caller.current().ok()?.clone();
            if self.app.draining.is_cancelled() || self.listener.ended().is_cancelled() {
                return None;
            }
            if let Some(text) = self.news(&caller) {
                return Some((Ok(text.into()), self));
            }
            let ended = self.listener.ended().clone();
            tokio::select! {
                biased;
                () = self.app.draining.cancelled() => return None,
                () = ended.cancelled() => return None,
                _ = self.caller.refused() => return None,
                // Before changes: there may always be another one that this listener does not see.
                () = tokio::time::sleep_until(self.sign_at) => return Some((Ok(Bytes::from_static(b":\n\n")), self)),
                () = self.listener.changed() => {}
            }
        }
    }
}

/// Events
///
/// Server-sent events: `topics` with all topics, then `change` with those that changed and those that are gone, at most
/// one a second; `issue` while they cannot be counted. The topics are counted once for all who listen. A client that
/// comes back sends the id of the last event as `Last-Event-ID` and is sent what changed since; all, where the node does
/// not know that id. A node has 128 listeners at most, of whom the oldest of the token that has most makes way for one of a
/// token that has fewer, and ends the streams when it drains.
#[utoipa::path(
    get, path = "/v1/events", tag = "operations", operation_id = "get_events",
    security(("token" = [])),
    params(("Last-Event-ID" = inline(Option<String>), Header, description = "The id of the last event that was seen")),
    responses((status = 200, description = "A stream without an end; `data` of `topics` and `change` has `at`, `topics` and `gone`",
        body = String, content_type = "text/event-stream"))
)]
pub(crate) async fn get(
    State(app): State<Arc<HttpParts>>,
    Extension(caller): Extension<Caller>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let tenant = caller.tenant(peer.map(|Extension(peer)| network(peer.0.ip())));
    let caller = StandingCaller::of(&app.auth, &headers, &[], &[])?;
    let listener = app.feed.listen(tenant).ok_or_else(|| {
        let detail = format!("{LISTENERS_MAX} clients listen to this node already; close some, or ask another node");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail).retry_in(RETRY_IN_S)
    })?;
    // What is not one of our ids is not known: all is sent.
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| listener.time(id));
    let stream = EventStream { app, listener, caller, seen, begun: false, sign_at: Instant::now(), has_issue: false };
    let body = Body::from_stream(futures::stream::unfold(stream, EventStream::next));
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, body).into_response())
}
