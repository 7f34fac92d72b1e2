//! Fuzz targets of this crate: each takes any bytes and panics when a law is broken.
//!
//! Upstream: `fuzz/fuzz_targets`, and the tests below with the corpora. Not in a plain build.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::routing::get;
use bytes::Bytes;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::store::Enqueue;
use duetime_core::{MessageId, Nonce, Timestamp, TopicConfig, TopicName};
use futures::FutureExt as _;
use percent_encoding::percent_decode_str;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tower::ServiceExt as _;

use crate::json::bounded_vec::BoundedVec;
use crate::json::fields;
use crate::json::message_in::{self, Rules};
use crate::json::ndjson::Lines;
use crate::json::path::{Query, TopicAndId};
use crate::routes::claims::ClaimIn;
use crate::routes::{dead, list};
use crate::server::guard;

const LINE_BYTES_MAX: usize = 1 << 16;
const RULES: Rules<'static> = Rules {
    now: Timestamp::from_millis(1_763_683_200_000),
    payload_bytes_max: 1 << 10,
    delay: Duration::ZERO,
    trace: None,
    body: None,
};

/// What became of one item: it, or the id and the code and field of the refusal.
type ReadItem = Result<String, (Option<String>, &'static str, Option<String>)>;

fn read(json: &[u8]) -> ReadItem {
    let item = message_in::read(json, &RULES).map_err(|(id, refusal)| (id, refusal.code, refusal.field))?;
    assert!(item.payload.len() as u64 <= RULES.payload_bytes_max);
    // Random, like an id that is made: what does not compare is taken out.
    let fields = serde_json::from_slice::<BTreeMap<String, Option<IgnoredAny>>>(json).expect("it was read");
    let is_given = fields.get("id").is_some_and(Option::is_some);
    let id = if is_given { item.id } else { MessageId::new("made").expect("a plain id") };
    Ok(format!("{:?}", Enqueue { id, nonce: Nonce(0), ..item }))
}

fn lines(data: &[u8], piece: usize) -> Vec<(u64, Option<Bytes>)> {
    let mut lines = Lines::new(LINE_BYTES_MAX);
    let mut found = Vec::new();
    for chunk in data.chunks(piece) {
        lines.push(&Bytes::copy_from_slice(chunk));
        found.extend(std::iter::from_fn(|| lines.next()));
        assert!(lines.held() <= LINE_BYTES_MAX + piece);
    }
    found.extend(lines.last());
    found.into_iter().map(|line| (line.number, line.bytes)).collect()
}

/// A stream is cut into the same lines whatever pieces it comes in, and an item is read as the same message
/// or refused for the same reason alone, in a stream and in an array.
pub fn items(data: &[u8]) {
    let cut = lines(data, data.len().max(1));
    for piece in [1, 7] {
        assert_eq!(lines(data, piece), cut, "pieces of {piece}");
    }
    let json: Vec<Bytes> = cut
        .into_iter()
        .filter_map(|(_, bytes)| bytes)
        .filter(|bytes| serde_json::from_slice::<&RawValue>(bytes).is_ok())
        .collect();
    let array = [b"[".as_slice(), &json.join(&b","[..]), b"]"].concat();
    let raw: BoundedVec<&RawValue> = serde_json::from_slice(&array).expect("values with commas are an array");
    assert_eq!(raw.len(), json.len());
    for (line, raw) in json.iter().zip(raw.iter()) {
        let alone = read(line);
        assert_eq!(read(raw.get().as_bytes()), alone, "{raw}");
        assert_eq!(read(&[b" \t", &line[..], b" "].concat()), alone, "{raw}");
    }
}

/// The bodies of the other requests are read or refused.
pub fn bodies(data: &[u8]) {
    if let Ok(config) = fields::read::<TopicConfig>(data)
        && config.check().is_ok()
    {
        let text = serde_json::to_vec(&config).expect("plain data");
        assert_eq!(fields::read::<TopicConfig>(&text), Ok(config));
    }
    if let Ok(Ok(asked)) = fields::read::<ClaimIn>(data).map(|claim| claim.checked()) {
        assert!((1..=BATCH_ITEMS_MAX).contains(&asked.max));
    }
}

/// A page's cursor is refused or written as it was read; a query is refused or each parameter is read once.
pub fn queries(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(Some(cursor)) = dead::read_cursor(text) {
        assert_eq!(dead::show_cursor(cursor), text);
    }
    if let Ok(Some(cursor)) = list::read_cursor(text) {
        assert_eq!(list::read_cursor(&list::show_cursor(cursor.clone())), Ok(Some(cursor)));
    }
    if let Ok(query) = Query::read(Some(text), &["limit", "cursor"]) {
        let known = |name: &str| query.get(name, String::new(), |text| Ok(text.to_owned())).unwrap_or_default();
        assert!(known("limit").len() + known("cursor").len() <= 3 * text.len());
    }
}

/// Whoever decides about rights sees the topic that the handler sees, and names are decoded once.
pub fn paths(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(request) = Request::get(text).body(Body::empty()) else { return };
    let path = request.uri().path().to_owned();
    let handler = |TopicAndId(topic, id): TopicAndId| async move { format!("{topic} {id}") };
    let app = axum::Router::new().route("/v1/topics/{topic}/messages/{id}", get(handler));
    let answer = app.oneshot(request).now_or_never().expect("nothing waits").expect("it cannot fail");
    if !answer.status().is_success() {
        return;
    }
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).now_or_never().expect("nothing waits");
    let body = String::from_utf8(body.expect("it is in memory").to_vec()).expect("it was a String");
    let (topic, id) = body.split_once(' ').expect("both");
    assert_eq!(guard::topic_in(&path), topic);
    assert!(TopicName::new(topic).is_ok() && MessageId::new(id).is_ok());
    let decoded = percent_decode_str(path.rsplit('/').next().unwrap_or_default()).decode_utf8_lossy();
    assert_eq!(decoded, id);
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
replay::corpora!(items, bodies, queries, paths);
