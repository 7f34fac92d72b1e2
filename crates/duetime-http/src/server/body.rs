//! Takes request bodies, bounded in bytes and in time.

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use tokio::time::Instant;

use crate::json::problem::Problem;
use crate::json::spool::Spool;
use crate::server::memory::{self, Account};

/// Largest body of a request that is read whole, unless a topic's payload limit needs more.
pub(crate) const BODY_BYTES_MAX: usize = 32 << 20;

/// Largest body of receipts or ids: as many as an array may have, of messages whose ids have 60 bytes.
pub(crate) const ITEMS_BYTES_MAX: usize = 8 << 20;

/// A larger body is kept in memory of its own.
const BUFFERED_BYTES_MAX: usize = 256 << 10;

/// What each bracket may take of the JSON reader's memory: one byte, in a buffer that doubles when it is full.
const BRACKET_BYTES: usize = 3;

/// A body that brings nothing of use for this long is given up: it must end by then, or bring [`PROGRESS_BYTES`].
pub(crate) const BODY_IDLE_MAX: Duration = Duration::from_secs(30);

/// What a body must bring in [`BODY_IDLE_MAX`] at least.
const PROGRESS_BYTES: usize = 64 << 10;

/// Until when a body must have brought something of use.
pub(crate) struct BodyProgress {
    until: Instant,
    brought: usize,
}

impl BodyProgress {
    /// From now on.
    pub fn new() -> Self {
        Self { until: Instant::now() + BODY_IDLE_MAX, brought: 0 }
    }

    /// Counts `bytes` that came.
    pub fn brought(&mut self, bytes: usize) {
        self.brought += bytes;
        if self.brought >= PROGRESS_BYTES {
            *self = Self::new();
        }
    }

    /// When it is too late.
    pub fn until(&self) -> Instant {
        self.until
    }
}

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
    let detail = format!(
        "the body brought less than {} KiB in {} s and did not end; send it faster",
        PROGRESS_BYTES >> 10,
        BODY_IDLE_MAX.as_secs()
    );
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
    let mut all = Gathered::Small(BytesMut::new());
    let mut progress = BodyProgress::new();
    loop {
        let chunk = match tokio::time::timeout_at(progress.until(), chunks.next()).await {
            Err(_) => return Err(too_slow()),
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                let early = || Problem::bad("body_unreadable", format!("the body ended early: {error}"));
                return Err(Account::current().refusal(memory::REPEAT).unwrap_or_else(early));
            }
            Ok(Some(Ok(chunk))) => chunk,
        };
        progress.brought(chunk.len());
        if first.len() + all.len() + chunk.len() > limit {
            return Err(too_large());
        }
        if first.is_empty() && all.len() == 0 {
            first = chunk;
        } else {
            if all.len() == 0 {
                all.push(&std::mem::take(&mut first), announced, limit)?;
            }
            all.push(&chunk, announced, limit)?;
        }
    }
    let whole = if all.len() == 0 { first } else { all.freeze() };
    if whole.len() > BUFFERED_BYTES_MAX {
        // Of a small one it is little, and costs as much to count as to read.
        let brackets = whole.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
        Account::current().take(BRACKET_BYTES * brackets)?;
    }
    Ok(whole)
}

/// A body that came in more than one piece.
enum Gathered {
    Small(BytesMut),
    Large(Spool),
}

impl Gathered {
    fn len(&self) -> usize {
        match self {
            Self::Small(all) => all.len(),
            Self::Large(all) => all.len(),
        }
    }

    /// Adds a piece; all of them have at most `limit` bytes.
    fn push(&mut self, piece: &[u8], announced: Option<usize>, limit: usize) -> Result<(), Problem> {
        let length = self.len() + piece.len();
        match self {
            Self::Small(all) if announced.unwrap_or(0).max(length) <= BUFFERED_BYTES_MAX => {
                all.reserve(announced.unwrap_or(0).saturating_sub(all.len()));
                all.extend_from_slice(piece);
            }
            Self::Small(all) => {
                let mut large = Spool::new(limit).map_err(|_| memory::busy())?;
                large.push(all);
                large.push(piece);
                *self = Self::Large(large);
            }
            Self::Large(all) => all.push(piece),
        }
        Ok(())
    }

    fn freeze(self) -> Bytes {
        match self {
            Self::Small(all) => all.freeze(),
            Self::Large(all) => all.freeze(),
        }
    }
}
