//! What docs/COMPATIBILITY.md promises of the HTTP API and of metrics is held by lists, so that nothing of it goes unseen.
//!
//! The commands and the keys of the configuration are held in the same way by tests of the program's crate.

use std::collections::BTreeSet;

use duetime_metrics::table::{Kind, TABLE};
use serde_json::{Map, Value};

use crate::kept::{faults, holds, list};
use crate::repo::none;

/// Statuses that stand for the same everywhere: one line for all routes.
const OF_ALL_ROUTES: [&str; 13] =
    ["400", "401", "403", "404", "408", "412", "413", "415", "421", "429", "500", "503", "507"];

/// Whether clients write a schema, or read it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Answer,
    Request,
}

impl Direction {
    const fn word(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Request => "request",
        }
    }
}

/// The lines of an OpenAPI document.
struct Reading<'a> {
    api: &'a Value,
    lines: BTreeSet<String>,
    seen: BTreeSet<(Direction, String)>,
}

/// The name of the schema that `schema` refers to.
fn referred(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

/// `required`, or `optional`.
const fn need(required: bool) -> &'static str {
    if required { "required" } else { "optional" }
}

impl Reading<'_> {
    fn line(&mut self, line: String) {
        self.lines.insert(line);
    }

    /// The type of a value in one word. What it consists of gets lines of its own, below `place`.
    fn kind(&mut self, direction: Direction, place: &str, schema: &Value) -> String {
        if let Some(name) = referred(schema) {
            self.component(direction, name);
            return name.to_owned();
        }
        for word in schema["enum"].as_array().into_iter().flatten() {
            self.line(format!("{place} = {word}"));
        }
        if let Some(parts) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
            let kinds: Vec<String> = parts.iter().map(|part| self.kind(direction, place, part)).collect();
            return kinds.join("|");
        }
        if schema["properties"].is_object() || schema["allOf"].is_array() {
            self.fields(direction, place, schema);
            return "object".to_owned();
        }
        if schema["items"].is_object() {
            return format!("[{}]", self.kind(direction, place, &schema["items"]));
        }
        if schema["additionalProperties"]["type"].is_string() || schema["additionalProperties"]["$ref"].is_string() {
            return format!("{{{}}}", self.kind(direction, place, &schema["additionalProperties"]));
        }
        match &schema["type"] {
            Value::String(one) => one.clone(),
            Value::Array(many) => many.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
            _ => "any".to_owned(),
        }
    }

    /// The fields of an object; those of the schemas that it is put together from are its own.
    fn fields(&mut self, direction: Direction, place: &str, schema: &Value) {
        for part in schema["allOf"].as_array().into_iter().flatten() {
            let part = match referred(part) {
                Some(name) => self.api["components"]["schemas"][name].clone(),
                None => part.clone(),
            };
            self.fields(direction, place, &part);
        }
        let needed: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{place}.{name}");
            let kind = self.kind(direction, &at, field);
            self.line(format!("{at} {kind} {}", need(needed.contains(&name.as_str()))));
        }
    }

    fn component(&mut self, direction: Direction, name: &str) {
        if !self.seen.insert((direction, name.to_owned())) {
            return;
        }
        let schema = self.api["components"]["schemas"][name].clone();
        assert!(schema.is_object(), "no schema {name}");
        let place = format!("{} {name}", direction.word());
        let kind = self.kind(direction, &place, &schema);
        if kind != "object" {
            self.line(format!("{place} {kind}"));
        }
    }

    /// The bodies of a request or an answer, by their content types; `end` is the end of each line.
    fn bodies(&mut self, direction: Direction, place: &str, content: &Value, end: &str) {
        for (of, body) in content.as_object().into_iter().flatten() {
            let kind = self.kind(direction, place, &body["schema"]);
            self.line(format!("{place} {of} {kind}{end}"));
        }
    }

    fn operation(&mut self, route: &str, operation: &Map<String, Value>) {
        self.line(route.to_owned());
        let parameters = operation.get("parameters").and_then(Value::as_array);
        for parameter in parameters.into_iter().flatten().filter(|parameter| parameter["in"] != "path") {
            let (of, name) = (parameter["in"].as_str().expect("a place"), parameter["name"].as_str().expect("a name"));
            let place = format!("{route} {of} {name}");
            let kind = self.kind(Direction::Request, &place, &parameter["schema"]);
            self.line(format!("{place} {kind} {}", need(parameter["required"] == true)));
        }
        if let Some(body) = operation.get("requestBody") {
            let end = format!(" {}", need(body["required"] == true));
            self.bodies(Direction::Request, &format!("{route} body"), &body["content"], &end);
        }
        for (status, answer) in operation.get("responses").and_then(Value::as_object).into_iter().flatten() {
            let place = if OF_ALL_ROUTES.contains(&status.as_str()) { "all routes" } else { route };
            let place = format!("{place} {status}");
            // A status with a body is named by the line of its body.
            if answer["content"].as_object().is_none_or(Map::is_empty) {
                self.line(place.clone());
            }
            self.bodies(Direction::Answer, &place, &answer["content"], "");
            for header in answer["headers"].as_object().into_iter().flatten().map(|(name, _)| name) {
                self.line(format!("{place} header {header}"));
            }
        }
    }
}

/// What the document promises, one promise a line.
fn of_the_document(api: &Value) -> BTreeSet<String> {
    let mut reading = Reading { api, lines: BTreeSet::new(), seen: BTreeSet::new() };
    for (path, item) in api["paths"].as_object().expect("the document has paths") {
        for (method, operation) in item.as_object().expect("a path has methods") {
            let route = format!("{} {path}", method.to_uppercase());
            reading.operation(&route, operation.as_object().expect("an operation"));
        }
    }
    reading.lines
}

/// What a request must have from now on, though requests were promised without it.
fn refuses_requests_of_before(list: &str, present: &BTreeSet<String>) -> Vec<String> {
    let lines: Vec<&str> = list.lines().collect();
    let asks_for_more = |line: &&String| {
        let Some((at, _)) = line.strip_suffix(" required").and_then(|rest| rest.rsplit_once(' ')) else { return false };
        let was_there = match at.strip_prefix("request ").and_then(|field| field.split_once('.')) {
            Some((schema, _)) => lines.iter().any(|line| line.starts_with(&format!("request {schema}."))),
            None => {
                let words: Vec<&str> = at.splitn(3, ' ').collect();
                words.len() == 3 && lines.contains(&words[..2].join(" ").as_str())
            }
        };
        let promised = |line: &&str| line.starts_with(&format!("{at} ")) && line.ends_with(" required");
        was_there && !lines.iter().any(promised)
    };
    present.iter().filter(asks_for_more).cloned().collect()
}

#[test]
fn nothing_of_the_http_api_goes_unseen() {
    let api = serde_json::to_value(duetime_http::openapi()).expect("the document is plain data");
    let present = of_the_document(&api);
    let refused = refuses_requests_of_before(&list("http.txt"), &present);
    none(
        "a request that was whole before would be refused: let these be absent, and say in docs/api what that means",
        refused,
    );
    holds("http.txt", &present);
}

#[test]
fn nothing_of_the_metrics_goes_unseen() {
    let kind = |kind: Kind| match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    let line = |name: &str, of: Kind, labels: &[&str]| {
        let words: Vec<&str> = [name, kind(of)].into_iter().chain(labels.iter().copied()).collect();
        words.join(" ")
    };
    holds("metrics.txt", &TABLE.iter().map(|row| line(row.name, row.kind, row.labels)).collect());
}

#[test]
fn what_is_promised_of_a_document_is_read_right() {
    let mut api = serde_json::json!({
        "components": {"schemas": {
            "Half": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            "Whole": {"allOf": [{"$ref": "#/components/schemas/Half"}, {"type": "object", "properties": {
                "b": {"type": "array", "items": {"$ref": "#/components/schemas/Word"}},
                "c": {"oneOf": [{"type": "object", "properties": {"d": {"type": ["string", "null"]}}}, {"type": "null"}]},
            }}]},
            "Word": {"type": "string", "enum": ["yes"]},
        }},
        "paths": {"/x/{id}": {"post": {
            "parameters": [{"in": "path", "name": "id"}, {"in": "query", "name": "q", "schema": {"type": "string"}}],
            "requestBody": {"required": true, "content": {"text/json": {"schema": {"$ref": "#/components/schemas/Half"}}}},
            "responses": {
                "200": {"content": {"text/json": {"schema": {"$ref": "#/components/schemas/Whole"}}}, "headers": {"N": {}}},
                "404": {},
            },
        }}},
    });
    let wanted = [
        "POST /x/{id}",
        "POST /x/{id} 200 header N",
        "POST /x/{id} 200 text/json Whole",
        "POST /x/{id} body text/json Half required",
        "POST /x/{id} query q string optional",
        "all routes 404",
        "answer Whole.a integer required",
        "answer Whole.b [Word] optional",
        "answer Whole.c object|null optional",
        "answer Whole.c.d string|null optional",
        "answer Word = \"yes\"",
        "answer Word string",
        "request Half.a integer required",
    ];
    let before = of_the_document(&api);
    assert_eq!(before.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
    let list = wanted.join("\n");
    assert_eq!(refuses_requests_of_before(&list, &before), [""; 0]);
    api["components"]["schemas"]["Half"]["properties"]["z"] = serde_json::json!({"type": "string"});
    assert_eq!(refuses_requests_of_before(&list, &of_the_document(&api)), [""; 0]);
    api["components"]["schemas"]["Half"]["required"] = serde_json::json!(["a", "z"]);
    api["paths"]["/x/{id}"]["post"]["parameters"][1]["required"] = true.into();
    let asked = ["POST /x/{id} query q string required", "request Half.z string required"];
    assert_eq!(refuses_requests_of_before(&list, &of_the_document(&api)), asked);
}

#[test]
fn a_line_that_is_gone_and_one_that_is_new_are_seen() {
    let present = ["a", "c"].map(str::to_owned).into();
    assert_eq!(faults("a\nc\n", &present), [""; 0]);
    for (list, fault) in [
        ("a\nb\nc\n", "docs/COMPATIBILITY.md"),
        ("a\n", "add this line"),
        ("c\na\n", "not sorted"),
        ("a\na\nc\n", "there twice"),
    ] {
        let found = faults(list, &present);
        assert!(found.len() == 1 && found[0].contains(fault), "{list:?}: {found:?}");
    }
}
