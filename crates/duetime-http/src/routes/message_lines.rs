//! A page of messages with their payloads as NDJSON: one message a line, and the cursor of the next page in a header.

use axum::http::HeaderValue;
use axum::http::header::{self, HeaderName};
use axum::response::{IntoResponse as _, Response};

use crate::json::ndjson::NDJSON;
use crate::routes::view::MessageView;

/// The cursor of the page after this one.
const NEXT: HeaderName = HeaderName::from_static("duetime-next");

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
