//! Structs that only the document has are held to what is read.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::TestApi;

#[tokio::test]
async fn a_request_may_have_the_fields_of_its_schema_and_no_others() {
    let api = TestApi::with_orders().await;
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    let topic = "/v1/topics/orders";
    let unknown = r#"{"zzz":1}"#;
    for (schema, answer) in [
        ("Message", api.enqueue(unknown).await),
        ("TopicChange", api.put(topic, unknown).await),
        ("Retry", api.put(topic, r#"{"retry":{"zzz":1}}"#).await),
        ("RateLimit", api.put(topic, r#"{"rate_limit":{"zzz":1}}"#).await),
        ("Adopt", api.post(&format!("{topic}/adopt"), unknown).await),
        ("Pause", api.post(&format!("{topic}/pause"), unknown).await),
    ] {
        assert_eq!(answer.problem(), (400, "unknown_field".to_owned()), "{schema}");
        let refusal = answer.json();
        let read = refusal["detail"].as_str().unwrap().split_once("known here: ").expect("all fields are listed").1;
        let read: BTreeSet<&str> = read.split(", ").collect();
        let properties = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        assert_eq!(properties.keys().map(String::as_str).collect::<BTreeSet<_>>(), read, "{schema}");
    }
}

/// Calls `check` with each object schema and where it is.
fn objects<'a>(at: &str, schema: &'a Value, check: &mut impl FnMut(&str, &'a Value)) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, property) in properties {
            check(&format!("{at}.{name}"), property);
        }
    }
    for parts in [&schema["oneOf"], &schema["allOf"]] {
        parts.as_array().into_iter().flatten().for_each(|part| objects(at, part, check));
    }
}

#[test]
fn each_property_says_what_it_is_and_no_body_is_null() {
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        objects(name, schema, &mut |at, property| {
            assert!(property["description"].as_str().is_some_and(|text| !text.is_empty()), "{at}: {property}");
        });
    }
    for operation in document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap()) {
        let body = operation.1["requestBody"].to_string();
        assert!(!body.contains("null\"}"), "{body}");
    }
    assert_eq!(document["servers"][0]["url"], "/");
}

#[test]
fn what_may_be_left_out_is_not_null_but_where_null_means_something() {
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    let null = json!("null");
    let mut found = BTreeSet::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        objects(name, schema, &mut |at, property| {
            let is_null = |kind: &Value| *kind == null || kind.as_array().is_some_and(|kinds| kinds.contains(&null));
            let mut either = property["oneOf"].as_array().into_iter().flatten();
            if is_null(&property["type"]) || either.any(|part| is_null(&part["type"])) {
                found.insert(if name == "AuditLine" || name == "Pause" { at.to_owned() } else { name.clone() });
            }
        });
    }
    let wanted = ["AuditLine.from", "AuditLine.who", "Pause.reason", "RateLimit", "Retry", "TopicChange"];
    assert_eq!(found, wanted.map(str::to_owned).into());
}

#[test]
fn a_failure_has_one_shape_whatever_the_operation_and_the_status() {
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    let problem = json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
    let mut failures = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for (status, answer) in operation["responses"].as_object().unwrap() {
                let mut content = answer["content"].clone();
                let bodies = content.as_object_mut().into_iter().flat_map(|bodies| bodies.values_mut());
                bodies.for_each(|body| drop(body.as_object_mut().unwrap().remove("example")));
                let is_failure = status.as_str() >= "400";
                failures += usize::from(is_failure);
                assert_eq!(content == problem, is_failure, "{method} {path} {status}: {content}");
            }
        }
    }
    assert!(failures > 300, "{failures}");
}
