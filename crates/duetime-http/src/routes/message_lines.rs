//! A page of messages with their payloads as NDJSON: one message a line, and the cursor of the next page in a header.

use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};

use crate::routes::view::MessageView;

const NDJSON: &str = "application/x-ndjson";
/// The cursor of the page after this one.
const NEXT: HeaderName = HeaderName::from_static("duetime-next");

/// Whether the caller asks for one message a line.
pub(crate) fn are_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split([',', ';']).any(|kind| kind.trim() == NDJSON)
}

/// The messages, one a line; what comes next is in a header.
pub(crate) fn answer<'a>(messages: impl IntoIterator<Item = MessageView<'a>>, next: Option<&str>) -> Response {
    let mut text = Vec::new();
    for message in messages {
        serde_json::to_writer(&mut text, &message).expect("memory can be written");
        text.push(b'\n');
    }
    let mut answer = ([(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON))], text).into_response();
    if let Some(next) = next {
        answer.headers_mut().insert(NEXT, HeaderValue::from_str(next).expect("a cursor is of letters and digits"));
    }
    answer
}
