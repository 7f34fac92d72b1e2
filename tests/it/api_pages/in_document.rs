//! Examples of the OpenAPI document: what the first request of each section was answered.
//!
//! `DUETIME_WRITE_EXAMPLES=1` has the tests of the pages write them, one page after the other (`--test-threads 1`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ADDRESS, Example, PAGES, examples, page};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/duetime-http/src/openapi/examples.json");
/// Answers that are no example: a file, and the document itself.
const WITHOUT: [&str; 2] = ["POST /v1/backup", "GET /openapi.json"];
/// An answer that is text is cut behind so many bytes.
const TEXT_BYTES_MAX: usize = 400;

fn recorded() -> BTreeMap<String, Value> {
    serde_json::from_str(&std::fs::read_to_string(FILE).unwrap()).unwrap()
}

/// Returns the body of a request: what follows `--json`, with what was answered before in place of each `'"$NAME"'`.
fn body(request: &str, known: &BTreeMap<String, String>) -> Option<Value> {
    let text = request.split_once("--json '")?.1;
    let mut text = text[..text.rfind('\'')?].to_owned();
    for (name, value) in known {
        text = text.replace(&format!("'\"${name}\"'"), value).replace(&format!("'${name}'"), value);
    }
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{request}: {error}"));
    (body != json!({})).then_some(body)
}

/// True if a curl asks for that route.
fn asks(request: &str, route: &str) -> bool {
    let Some((_, url)) = request.split_once(ADDRESS) else { return false };
    let path = url.split(['?', ' ', '\'', '"', '\n']).next().unwrap_or_default();
    let given = request.split_once("-X ").and_then(|(_, rest)| rest.split(' ').next());
    let method = given.unwrap_or(if request.contains("--json") { "POST" } else { "GET" });
    let Some((wanted, pattern)) = route.split_once(' ') else { return false };
    let (parts, patterns): (Vec<_>, Vec<_>) = (path.split('/').collect(), pattern.split('/').collect());
    let same = |(part, pattern): (&&str, &&str)| part == pattern || pattern.starts_with('{');
    method == wanted && parts.len() == patterns.len() && parts.iter().zip(&patterns).all(same)
}

/// Routes of which nothing succeeds on a node that is alone and goes by its machine's clock.
const REFUSED: [&str; 2] = [" /v1/nodes/{id}/", " /v1/test-clock"];

/// True if it is an example of its route: it succeeds, where anything does.
fn is_one(route: &str, request: &str, status: &str) -> bool {
    let is_good = status.starts_with('2') || REFUSED.iter().any(|part| route.contains(part));
    is_good && asks(request, route) && !WITHOUT.contains(&route)
}

/// Notes an example, where they are to be written.
pub(super) fn record(route: &str, request: &str, known: &BTreeMap<String, String>, status: &str, said: &str) {
    if !is_one(route, request, status)
        || std::env::var_os("DUETIME_WRITE_EXAMPLES").is_none()
        || recorded().contains_key(route)
    {
        return;
    }
    let answer = serde_json::from_str(said).unwrap_or_else(|_| {
        let end = said.char_indices().map(|(at, _)| at).take_while(|at| *at <= TEXT_BYTES_MAX).last();
        Value::String(said[..end.unwrap_or_default()].to_owned())
    });
    let mut all = recorded();
    all.insert(route.to_owned(), json!({"request": body(request, known), "status": status, "answer": answer}));
    std::fs::write(FILE, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
}

/// Returns the example of an answer in the document.
fn of_answer<'a>(operation: &'a Value, status: &str) -> Option<&'a Value> {
    operation["responses"][status]["content"].as_object()?.values().find_map(|content| content.get("example"))
}

pub(super) fn check() {
    let api = serde_json::to_value(duetime_http::openapi()).unwrap();
    let recorded = recorded();
    let mut seen = BTreeSet::new();
    for Example { route, status, answer, request, .. } in PAGES.iter().flat_map(|name| examples(&page(name))) {
        if !is_one(&route, &request, &status) || !seen.insert(route.clone()) {
            continue;
        }
        let example = recorded.get(&route).unwrap_or_else(|| panic!("{route} has no example"));
        assert_eq!(example["status"], *status, "{route}");
        let text = example["answer"].as_str();
        if text.is_none() {
            let said = example["answer"].to_string();
            answer.matches(&said, &mut BTreeMap::new()).unwrap_or_else(|error| panic!("{route}: {error}"));
        }
        let (method, path) = route.split_once(' ').unwrap();
        let operation = &api["paths"][path][method.to_lowercase()];
        let of_request = &operation["requestBody"]["content"]["application/json"];
        let has_one = of_request.get("example").or(of_request.get("examples")).is_some();
        assert!(example["request"].is_null() || has_one, "{route}: {operation}");
        assert_eq!(of_answer(operation, &status), Some(&example["answer"]), "{route}");
    }
    let more: Vec<_> = recorded.keys().filter(|route| !seen.contains(*route)).collect();
    assert!(more.is_empty(), "{more:?} are in no page any more");
    let operations = api["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len());
    assert_eq!(recorded.len() + WITHOUT.len(), operations.sum::<usize>(), "a section asks for another route only");
}
