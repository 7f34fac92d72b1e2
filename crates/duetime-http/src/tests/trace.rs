//! The trace of a producer stays with its message and is given to whoever claims it.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};

use super::TestApi;

const REQUEST: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OWN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

async fn enqueue(api: &TestApi, kind: &str, traces: &[(&str, &str)], body: String) -> u16 {
    let request = Request::post("/v1/topics/orders/messages").header(header::CONTENT_TYPE, kind);
    let request = traces.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    api.send(request.body(Body::from(body)).unwrap()).await.status.as_u16()
}

/// Headers and trace of what is due, by id.
async fn claimed(api: &TestApi) -> Value {
    let claim = api.post("/v1/topics/orders/claim", r#"{"max":256}"#).await.json();
    let one = |message: &Value| {
        let id = message["id"].as_str().unwrap().to_owned();
        (id, json!([message["headers"], message["traceparent"]]))
    };
    claim["messages"].as_array().unwrap().iter().map(one).collect::<serde_json::Map<_, _>>().into()
}

#[tokio::test]
async fn each_message_has_the_trace_of_its_request_unless_it_has_one_of_its_own() {
    let api = TestApi::with_orders().await;
    let traces = [("traceparent", REQUEST), ("tracestate", "vendor=1")];
    let messages = [json!({"id": "a", "headers": {"x": "y"}}), json!({"id": "b", "headers": {"Traceparent": OWN}})];
    let lines = messages.iter().map(|message| format!("{message}\n")).collect::<String>();
    let ways = [
        ("application/json", messages[0].to_string(), 201),
        ("application/json", json!([messages[1]]).to_string(), 200),
        ("application/x-ndjson", lines, 200),
    ];
    let a = json!([{"x": "y", "traceparent": REQUEST, "tracestate": "vendor=1"}, REQUEST]);
    let b = json!([{"Traceparent": OWN}, OWN]);
    let expected = [json!({"a": a}), json!({"b": b}), json!({"a": a, "b": b})];
    for ((kind, body, status), expected) in ways.into_iter().zip(expected) {
        assert_eq!(enqueue(&api, kind, &traces, body).await, status);
        assert_eq!(claimed(&api).await, expected);
        api.delete("/v1/topics/orders?force=true").await;
        api.put("/v1/topics/orders", r#"{"shards":4}"#).await;
    }
}

#[tokio::test]
async fn a_trace_that_is_malformed_or_doubled_is_ignored_and_never_refused() {
    let api = TestApi::with_orders().await;
    let doubled = [("traceparent", REQUEST), ("traceparent", OWN)];
    for traces in [&[("traceparent", "what?")][..], &[("tracestate", "vendor=1")], &doubled, &[]] {
        let body = json!([{"id": "a"}, {"id": "b", "headers": {"traceparent": "what?"}}]).to_string();
        assert_eq!(enqueue(&api, "application/json", traces, body).await, 200);
        let expected = json!({"a": [{}, null], "b": [{"traceparent": "what?"}, null]});
        assert_eq!(claimed(&api).await, expected, "{traces:?}");
        api.delete("/v1/topics/orders?force=true").await;
        api.put("/v1/topics/orders", r#"{"shards":4}"#).await;
    }
}
