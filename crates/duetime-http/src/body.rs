//! Takes request bodies, bounded in bytes and in time.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;

use crate::memory::{self, Account};
use crate::problem::Problem;

/// Largest body of a request that is read whole, unless a topic's payload limit needs more.
pub(crate) const BODY_BYTES_MAX: usize = 32 << 20;

/// A body whose length is not announced grows to so many bytes; then it is given its limit at once.
const GROWN_BYTES_MAX: usize = 1 << 20;

/// A body that brings nothing for so long is given up.
pub(crate) const BODY_IDLE_MAX: Duration = Duration::from_secs(30);

/// What a body says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Ndjson,
}

/// Reads `Content-Type`. Absent means JSON: [`typed`] has refused what must have one.
pub(crate) fn kind(headers: &HeaderMap) -> Result<BodyKind, Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(BodyKind::Json) };
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(BodyKind::Json)
    } else if essence.eq_ignore_ascii_case("application/x-ndjson") {
        Ok(BodyKind::Ndjson)
    } else {
        Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            format!(
                "content type {text:?} is not read here; send application/json (or, to enqueue, application/x-ndjson)"
            ),
        ))
    }
}

/// Refuses what has no `Content-Type` and must have one: each POST, and whatever has a body.
///
/// A browser sends a POST without it to any address, for any page, and asks nobody. All other
/// methods make it ask first, so a `PUT` without a body needs none.
pub(crate) fn typed(request: &Request) -> Result<(), Problem> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let bare = *request.method() != Method::POST && request.body().is_end_stream();
    if reads || bare || request.headers().contains_key(header::CONTENT_TYPE) {
        return Ok(());
    }
    let detail = "the request has no content type; send content-type: application/json \
                  (or, to enqueue, application/x-ndjson)";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
}

/// Refuses anything but JSON.
pub(crate) fn json_only(headers: &HeaderMap) -> Result<(), Problem> {
    match kind(headers)? {
        BodyKind::Json => Ok(()),
        BodyKind::Ndjson => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "NDJSON is read only by POST /v1/topics/{topic}/messages; send application/json",
        )),
    }
}

pub(crate) fn too_slow() -> Problem {
    let detail = format!("the body brought nothing of use for {} s; send it faster", BODY_IDLE_MAX.as_secs());
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail)
}

/// Takes the whole body, at most `limit` bytes.
pub(crate) async fn whole(body: Body, headers: &HeaderMap, limit: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("the body has more than {limit} bytes; split it, or stream NDJSON to enqueue any number");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let mut chunks = body.into_data_stream();
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    loop {
        let chunk = match tokio::time::timeout(BODY_IDLE_MAX, chunks.next()).await {
            Err(_) => return Err(too_slow()),
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                if Account::current().was_refused() {
                    return Err(memory::busy());
                }
                return Err(Problem::bad("body_unreadable", format!("the body ended early: {error}")));
            }
            Ok(Some(Ok(chunk))) => chunk,
        };
        if first.len() + all.len() + chunk.len() > limit {
            return Err(too_large());
        }
        if first.is_empty() && all.is_empty() {
            first = chunk;
        } else {
            if all.is_empty() {
                all.reserve(announced.unwrap_or(0).max(first.len() + chunk.len()));
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            if announced.is_none() && all.len() + chunk.len() > GROWN_BYTES_MAX && all.capacity() < limit {
                // Pages that are not written cost nothing, and growing would copy everything.
                all.reserve(limit - all.len());
            }
            all.extend_from_slice(&chunk);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}
