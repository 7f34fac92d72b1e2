//! Examples of the OpenAPI document: what the first request of each section was answered, and the first with each other
//! status of success or content type that the document has.
//!
//! `DUETIME_WRITE_EXAMPLES=1` has the tests of the pages write them, one page after the other (`--test-threads 1`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{ADDRESS, Example, ONE_OF_TWO, PAGES, WITH_TEST_CLOCK, examples, page};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/duetime-http/src/openapi/examples.json");
/// Answers that are no example: a file, and the document itself.
const WITHOUT: [&str; 2] = ["POST /v1/backup", "GET /openapi.json"];
const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";
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
    let addresses = [ADDRESS, WITH_TEST_CLOCK, ONE_OF_TWO];
    let Some((_, url)) = addresses.iter().find_map(|address| request.split_once(address)) else { return false };
    let path = url.split(['?', ' ', '\'', '"', '\n']).next().unwrap_or_default();
    let given = request.split_once("-X ").and_then(|(_, rest)| rest.split(' ').next());
    let has_body = ["--json", "--data-binary"].iter().any(|option| request.contains(option));
    let method = given.unwrap_or(if has_body { "POST" } else { "GET" });
    let Some((wanted, pattern)) = route.split_once(' ') else { return false };
    let (parts, patterns): (Vec<_>, Vec<_>) = (path.split('/').collect(), pattern.split('/').collect());
    let same = |(part, pattern): (&&str, &&str)| part == pattern || pattern.starts_with('{');
    method == wanted && parts.len() == patterns.len() && parts.iter().zip(&patterns).all(same)
}

/// The first line of a request that sends lines.
fn first_line(request: &str) -> Option<Value> {
    let lines = request.strip_prefix("printf '").filter(|_| request.contains("content-type: application/x-ndjson"))?;
    serde_json::from_str(lines.split_once("\\n")?.0).ok()
}

/// True if it is an example of its route: it succeeds.
fn is_one(route: &str, request: &str, status: &str) -> bool {
    status.starts_with('2') && asks(request, route) && !WITHOUT.contains(&route)
}

/// The content type that a request wants.
fn kind(request: &str) -> &'static str {
    if request.contains("accept: application/x-ndjson") { LINES } else { JSON }
}

/// Notes a further example of a route, if the document has such an answer and no example of it.
fn record_more(route: &str, example: &mut Value, request: &str, status: &str, said: &str) -> bool {
    let api = serde_json::to_value(duetime_http::openapi()).unwrap();
    let kind = kind(request);
    let answer = &operations(&api)[route]["responses"][status]["content"];
    let is_first = example["status"] == status && kind == JSON;
    let same = |more: &Value| more["status"] == status && more["kind"] == kind;
    let has_one = example["more"].as_array().is_some_and(|all| all.iter().any(same));
    if is_first || has_one || answer.get(kind).is_none() {
        return false;
    }
    let answer = if kind == LINES { json!(said) } else { serde_json::from_str(said).unwrap() };
    let more = json!({"status": status, "kind": kind, "answer": answer});
    match example["more"].as_array_mut() {
        Some(all) => all.push(more),
        None => example["more"] = json!([more]),
    }
    true
}

/// Notes an example, where they are to be written.
pub(super) fn record(route: &str, request: &str, known: &BTreeMap<String, String>, status: &str, said: &str) {
    if !is_one(route, request, status) || std::env::var_os("DUETIME_WRITE_EXAMPLES").is_none() {
        return;
    }
    let mut all = recorded();
    if let Some(example) = all.get_mut(route) {
        let line = first_line(request).filter(|_| example.get("line").is_none());
        let is_new = line.is_some();
        if let Some(line) = line {
            example["line"] = line;
        }
        if record_more(route, example, request, status, said) || is_new {
            write(&all);
        }
        return;
    }
    let answer = serde_json::from_str(said).unwrap_or_else(|_| {
        let end = said.char_indices().map(|(at, _)| at).take_while(|at| *at <= TEXT_BYTES_MAX).last();
        Value::String(said[..end.unwrap_or_default()].to_owned())
    });
    all.insert(route.to_owned(), json!({"request": body(request, known), "status": status, "answer": answer}));
    write(&all);
}

fn write(all: &BTreeMap<String, Value>) {
    std::fs::write(FILE, serde_json::to_string_pretty(all).unwrap() + "\n").unwrap();
}

/// Returns the example of an answer in the document.
fn of_answer<'a>(operation: &'a Value, status: &str) -> Option<&'a Value> {
    operation["responses"][status]["content"].as_object()?.values().find_map(|content| content.get("example"))
}

/// The operations of the document, by method and path.
fn operations(api: &Value) -> BTreeMap<String, &Value> {
    let mut found = BTreeMap::new();
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            found.insert(format!("{} {path}", method.to_uppercase()), operation);
        }
    }
    found
}

/// Whether each operation has the example that the pages have of it, of a request that succeeds, and so has each of its
/// answers of success.
pub(super) fn check() {
    let api = serde_json::to_value(duetime_http::openapi()).unwrap();
    let (recorded, operations) = (recorded(), operations(&api));
    let pages: Vec<Example> = PAGES.iter().flat_map(|name| examples(&page(name))).collect();
    for (route, operation) in operations.iter().filter(|(route, _)| !WITHOUT.contains(&route.as_str())) {
        let of_route: Vec<&Example> =
            pages.iter().filter(|one| one.route == *route && is_one(route, &one.request, &one.status)).collect();
        let Some(Example { status, answer, .. }) = of_route.first() else {
            panic!("{route}: no page has a request of it that succeeds");
        };
        let example = recorded.get(route).unwrap_or_else(|| panic!("{route} has no example"));
        assert_eq!(example["status"], *status, "{route}");
        if !example["answer"].is_string() {
            let said = example["answer"].to_string();
            answer.matches(&said, &mut BTreeMap::new()).unwrap_or_else(|error| panic!("{route}: {error}"));
        }
        assert_eq!(of_answer(operation, status), Some(&example["answer"]), "{route}");
        for more in example["more"].as_array().into_iter().flatten() {
            let (status, answered) = (more["status"].as_str().unwrap(), more["kind"].as_str().unwrap());
            let of_page = of_route.iter().find(|one| one.status == status && kind(&one.request) == answered);
            let of_page = of_page.unwrap_or_else(|| panic!("{route}: no page has {status}, {answered}"));
            let said = more["answer"].as_str().map_or_else(|| more["answer"].to_string(), str::to_owned);
            let matches = of_page.answer.matches(&said, &mut BTreeMap::new());
            matches.unwrap_or_else(|error| panic!("{route}: {status}, {answered}: {error}"));
            let content = &operation["responses"][status]["content"][answered];
            assert_eq!(content["example"], more["answer"], "{route}: {status}, {answered}");
        }
        for (status, answer) in operation["responses"].as_object().unwrap() {
            for (kind, content) in answer["content"].as_object().into_iter().flatten() {
                let has_one = content.get("example").or(content.get("examples")).is_some();
                assert!(has_one || !status.starts_with('2'), "{route}: {status}, {kind} has no example");
            }
        }
        let of_body = &operation["requestBody"]["content"];
        for (kind, content) in of_body.as_object().into_iter().flatten() {
            if kind.ends_with("ndjson") {
                let line = of_route.iter().find_map(|one| first_line(&one.request));
                assert!(line.is_some(), "{route}: no page sends lines");
                assert_eq!(content.get("example"), line.as_ref(), "{route}: {kind}");
            } else {
                let has_one = content.get("example").or(content.get("examples")).is_some();
                assert!(example["request"].is_null() || has_one, "{route}: {operation}");
            }
        }
    }
    let more: Vec<_> = recorded.keys().filter(|route| !operations.contains_key(*route)).collect();
    assert!(more.is_empty(), "{more:?} are no operations any more");
}
