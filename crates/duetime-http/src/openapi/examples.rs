//! An example of each operation: the first request of its section in docs/api and what a node answered to it.
//!
//! A test of the pages writes `examples.json`, and compares it with them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Content, OpenApi, RefOr};

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

fn is_lines(name: &str) -> bool {
    name.ends_with("ndjson")
}

/// A request, by its method and path, and its answer.
#[derive(Deserialize)]
struct Example {
    request: Option<Value>,
    /// Of a request that sends lines: the first of them.
    line: Option<Value>,
    status: String,
    answer: Value,
    #[serde(default)]
    more: Vec<More>,
}

/// Another answer of success of the same route.
#[derive(Deserialize)]
struct More {
    status: String,
    /// The content type.
    kind: String,
    answer: Value,
}

/// Gives the example to a content that has none.
fn give(content: Option<&mut RefOr<Content>>, example: &Value) {
    if let Some(RefOr::T(content)) = content
        && content.examples.is_empty()
    {
        content.example.get_or_insert_with(|| example.clone());
    }
}

fn add_to(operation: &mut Operation, example: &Example) {
    if let (Some(RefOr::T(body)), Some(request)) = (&mut operation.request_body, &example.request) {
        give(body.content.get_mut(JSON), request);
    }
    if let (Some(RefOr::T(body)), Some(line)) = (&mut operation.request_body, &example.line) {
        give(body.content.get_mut(LINES), line);
    }
    if let Some(RefOr::T(answer)) = operation.responses.responses.get_mut(&example.status) {
        let is_its = |name: &str| if example.answer.is_string() { name.starts_with("text/") } else { !is_lines(name) };
        give(answer.content.iter_mut().find_map(|(name, content)| is_its(name).then_some(content)), &example.answer);
    }
    for More { status, kind, answer } in &example.more {
        if let Some(RefOr::T(of_status)) = operation.responses.responses.get_mut(status) {
            give(of_status.content.get_mut(kind), answer);
        }
    }
}

/// Adds its example to each operation.
pub(super) fn add(api: &mut OpenApi) {
    let examples: BTreeMap<String, Example> =
        serde_json::from_str(include_str!("examples.json")).expect("a test reads it");
    for (path, item) in &mut api.paths.paths {
        let all = [
            ("GET", &mut item.get),
            ("PUT", &mut item.put),
            ("POST", &mut item.post),
            ("PATCH", &mut item.patch),
            ("DELETE", &mut item.delete),
        ];
        for (method, operation) in all {
            let example = examples.get(&format!("{method} {path}"));
            if let (Some(operation), Some(example)) = (operation, example) {
                add_to(operation, example);
            }
        }
    }
}
