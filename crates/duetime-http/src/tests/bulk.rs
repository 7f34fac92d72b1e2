//! Arrays and streams: one bad message never takes others along.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{TestApi, within};

const NDJSON: &str = "application/x-ndjson";
const PATH: &str = "/v1/topics/orders/messages";

fn words(results: &[Value]) -> Vec<String> {
    let word = |r: &Value| r["outcome"].as_str().or(r["error"]["code"].as_str()).unwrap().to_owned();
    results.iter().map(word).collect()
}

#[tokio::test]
async fn an_array_answers_item_by_item_in_order() {
    let api = TestApi::with_orders().await;
    let array = r#"[{"id":"a"},{"id":"b","dealy":1},{"id":"a"},{"id":"a","on_conflict":"replace"},7,{"id":"c"}]"#;
    let answer = api.enqueue(array).await;
    assert_eq!(answer.status, 200);
    let results = answer.json()["results"].as_array().unwrap().clone();
    let wanted = ["scheduled", "unknown_field", "duplicate", "replaced", "invalid_value", "scheduled"];
    assert_eq!(words(&results), wanted, "{}", answer.text);
    assert_eq!((&results[1]["id"], &results[1]["error"]["index"]), (&json!("b"), &json!(1)));
    assert_eq!(api.drain().await.len(), 2);
    assert_eq!(api.enqueue("[]").await.json(), json!({"results": []}));
    assert_eq!(api.enqueue(r#"[{"id":"a"},"#).await.problem(), (400, "malformed_json".to_owned()));
}

#[tokio::test]
async fn a_bad_line_of_a_stream_is_refused_with_its_number_and_the_others_go_through() {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"max_payload":1000}"#).await;
    let mut body = Vec::new();
    for line in [
        b"{\"id\":\"1\"}".as_slice(),
        b"",
        b"{\"id\":\"3\",\"delay\":NaN}",
        b"{\"id\":\"4\",\"payload\":\"\xff\"}",
        b"{\"id\":\"5\",\"payload_base64\":\"*\"}",
        b"{\"id\":\"6\"",
        b"{\"id\":\"7\",\"due_at\":99999999999999}",
        b"\"8\"",
        &[b'x'; 300_000],
        b"{\"id\":\"10\",\"payload\":\"ok\"}",
    ] {
        body.extend_from_slice(line);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"{\"id\":\"11\"}");
    let answer = api.call("POST", PATH, NDJSON, body).await;
    assert_eq!(answer.status, 200);
    let results = answer.json()["results"].as_array().unwrap().clone();
    let wanted = [
        "scheduled",
        "malformed_json",
        "malformed_json",
        "invalid_base64",
        "malformed_json",
        "invalid_due_time",
        "invalid_value",
        "line_too_long",
        "scheduled",
        "scheduled",
    ];
    assert_eq!(words(&results), wanted, "{}", answer.text);
    let lines: Vec<u64> = results.iter().filter_map(|r| r["error"]["line"].as_u64()).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(api.drain().await.len(), 3);
}

#[tokio::test]
async fn a_stream_is_answered_line_by_line_when_asked_so() {
    let api = TestApi::with_orders().await;
    let body: String = (0..10_000).map(|n| format!("{{\"id\":\"{n}\",\"delay\":\"1h\"}}\n")).collect();
    let request = Request::post(PATH).header(header::CONTENT_TYPE, NDJSON).header(header::ACCEPT, NDJSON);
    let answer = api.send(request.body(Body::from(body)).unwrap()).await;
    assert_eq!(answer.headers[header::CONTENT_TYPE], NDJSON);
    let ids: Vec<String> = answer.lines().iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(api.get("/v1/topics/orders").await.json()["scheduled"], 10_000);
}

#[tokio::test]
async fn a_stream_without_end_is_answered_while_it_is_sent() {
    let api = TestApi::with_orders().await;
    let (to, from) = tokio::sync::mpsc::channel::<Bytes>(1);
    let chunks = futures::stream::unfold(from, |mut from| async {
        let chunk = from.recv().await?;
        Some((Ok::<_, Infallible>(chunk), from))
    });
    to.send(Bytes::from_static(b"{\"id\":\"0\"}\n{\"id\":")).await.unwrap();
    let request = Request::post(PATH).header(header::CONTENT_TYPE, NDJSON).header(header::ACCEPT, NDJSON);
    let request = request.body(Body::from_stream(chunks)).unwrap();
    let response = crate::router(api.parts.clone(), axum::Router::new()).oneshot(request).await.unwrap();
    let mut answers = response.into_body().into_data_stream();
    for n in 0..50 {
        let answer = within(Duration::from_secs(60), answers.next()).await.unwrap().unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["id"], n.to_string());
        to.send(Bytes::from(format!("\"{}\"}}\n{{\"id\":", n + 1))).await.unwrap();
    }
    drop(to);
    let mut rest = Vec::new();
    while let Some(chunk) = answers.next().await {
        rest.extend(chunk.unwrap());
    }
    let rest = String::from_utf8(rest).unwrap();
    assert!(rest.contains("\"id\":\"50\"") && rest.contains("malformed_json"), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stalls_is_given_up_and_what_came_stays() {
    let api = TestApi::with_orders().await;
    let first = futures::stream::once(async { Ok::<_, Infallible>(Bytes::from_static(b"{\"id\":\"0\"}\n")) });
    let body = Body::from_stream(first.chain(futures::stream::pending()));
    let answer = api.call("POST", PATH, NDJSON, body).await.json();
    assert_eq!(words(answer["results"].as_array().unwrap()), ["scheduled", "body_timeout"]);
    let stalled = api
        .call(
            "POST",
            PATH,
            "application/json",
            Body::from_stream(futures::stream::pending::<Result<Bytes, Infallible>>()),
        )
        .await;
    assert_eq!(stalled.problem(), (408, "body_timeout".to_owned()));
}

#[tokio::test]
async fn a_stream_to_a_topic_that_is_not_there_is_refused_whole() {
    let api = TestApi::new().await;
    let answer = api.call("POST", PATH, NDJSON, "{}\n").await;
    assert_eq!(answer.problem(), (404, "unknown_topic".to_owned()));
    assert!(answer.json()["detail"].as_str().unwrap().contains("PUT /v1/topics/orders"));
}

#[tokio::test]
async fn another_content_type_is_refused() {
    let api = TestApi::with_orders().await;
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        let refused = api.call("POST", PATH, content_type, "{}").await;
        assert_eq!(refused.problem(), (415, "unsupported_media_type".to_owned()), "{content_type}");
    }
    let refused = api.call("POST", "/v1/topics/orders/ack", NDJSON, "{}").await;
    assert_eq!(refused.problem().0, 415);
    let taken = api.call("POST", PATH, "application/json; charset=utf-8", "{}").await;
    assert_eq!(taken.status, 201);
}
