//! Items, bytes and memory of requests.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, header};
use serde_json::Value;

use super::{TestApi, within};
use crate::json::bounded_vec::ARRAY_ITEMS_MAX;
use crate::{HttpOptions, HttpParts, Shares};

const MESSAGES: &str = "/v1/topics/orders/messages";

/// A node with the topic `orders` whose requests share `bytes`.
async fn api_with(bytes: u64) -> TestApi {
    let api = TestApi::with_orders().await;
    let options = HttpOptions { shares: Shares::new(bytes), ..HttpOptions::default() };
    api.again(HttpParts { options, ..api.parts.clone() })
}

fn array(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

#[tokio::test]
async fn arrays_have_a_bound_of_items_that_is_in_the_document() {
    let api = TestApi::with_orders().await;
    let over = ARRAY_ITEMS_MAX + 1;
    for (path, body) in [
        (MESSAGES, array("0", over)),
        ("/v1/topics/orders/cancel", format!(r#"{{"ids":{}}}"#, array("\"a\"", over))),
        ("/v1/topics/orders/ack", format!(r#"{{"receipts":{}}}"#, array("\"\"", over))),
        ("/v1/topics/orders/nack", format!(r#"{{"receipts":{}}}"#, array("\"\"", over))),
        ("/v1/topics/orders/extend", format!(r#"{{"receipts":{}}}"#, array("\"\"", over))),
        ("/v1/topics/orders/dead/redrive", format!(r#"{{"ids":{}}}"#, array("\"a\"", over))),
    ] {
        let answer = api.post(path, &body).await;
        assert_eq!(answer.problem(), (413, "too_many_items".to_owned()), "{path}");
        assert!(answer.json()["detail"].as_str().unwrap().contains("more than 65536"), "{}", answer.text);
    }
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    let schemas = &document["components"]["schemas"];
    for (schema, field) in [
        ("MessageIds", "ids"),
        ("DeadLetters", "ids"),
        ("ReceiptList", "receipts"),
        ("Nack", "receipts"),
        ("Extend", "receipts"),
    ] {
        assert_eq!(schemas[schema]["properties"][field]["maxItems"], ARRAY_ITEMS_MAX, "{schema}");
    }
    let one_or_many = schemas["OneOrMany"].to_string();
    assert!(one_or_many.contains("\"maxItems\":65536"), "{one_or_many}");
    let most = api.post("/v1/topics/orders/cancel", &format!(r#"{{"ids":{}}}"#, array("\"a\"", 5000))).await;
    assert_eq!(most.json()["results"].as_array().unwrap().len(), 5000);
}

#[tokio::test]
async fn reading_headers_ends_at_the_first_one_too_many() {
    let api = TestApi::with_orders().await;
    let headers: Vec<String> = (0..20_000).map(|n| format!("\"{n}\":\"\"")).collect();
    let answer = api.enqueue(&format!(r#"{{"headers":{{{}}}}}"#, headers.join(","))).await;
    assert_eq!(answer.problem(), (400, "invalid_headers".to_owned()));
    // How many there are nobody has counted.
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("more than 64") && !detail.contains("20000"), "{detail}");
}

#[tokio::test]
async fn what_all_requests_hold_is_bounded_and_given_back() {
    let api = api_with(1 << 20).await;
    let large = format!(r#"{{"payload":"{}"}}"#, "x".repeat(200_000));
    let total = api.parts.options.shares.memory_left();
    assert_eq!(api.enqueue(&large).await.status, 201);
    assert_eq!(api.parts.options.shares.memory_left(), total, "given back");
    // Somebody who sends slowly holds what came so far.
    let (to, from) = futures::channel::mpsc::unbounded::<Result<Bytes, std::io::Error>>();
    let request = Request::post(MESSAGES).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from_stream(from)).unwrap();
    to.unbounded_send(Ok(Bytes::from(vec![b' '; 700_000]))).unwrap();
    let slow = api.clone_api();
    let slow = tokio::spawn(async move { tower::ServiceExt::oneshot(slow, request).await.unwrap().status() });
    within(Duration::from_secs(60), async {
        while api.parts.options.shares.memory_left() > 400_000 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let refused = api.enqueue(&large).await;
    assert_eq!(refused.problem(), (503, "busy".to_owned()));
    assert_eq!(refused.headers[header::RETRY_AFTER], "1");
    assert_eq!(api.enqueue("{}").await.status, 201, "small ones go on");
    to.unbounded_send(Ok(Bytes::from_static(b"{}"))).unwrap();
    drop(to);
    // Three copies of it would be more than there is, so its own turn comes only in part.
    assert!([201, 503].contains(&slow.await.unwrap().as_u16()));
    assert_eq!(api.parts.options.shares.memory_left(), total);
    assert_eq!(api.enqueue(&large).await.status, 201);
}

#[tokio::test]
async fn items_count_before_they_are_made() {
    let api = api_with(1 << 20).await;
    // Small in bytes, large in what is made of it and answered.
    let refused = api.post(MESSAGES, &array("0", 10_000)).await;
    assert_eq!(refused.problem(), (503, "busy".to_owned()));
    let refused = api.post("/v1/topics/orders/cancel", &format!(r#"{{"ids":{}}}"#, array("0", 10_000))).await;
    assert_eq!(refused.problem(), (503, "busy".to_owned()));
    assert_eq!(api.post(MESSAGES, &array("{}", 100)).await.status, 200);
}

// The clock stands still while there is work: however slow the machine is, the request is in time.
#[tokio::test(start_paused = true)]
async fn an_answer_to_an_array_has_a_bound_of_bytes() {
    let api = TestApi::with_orders().await;
    let name = "x".repeat(400);
    let answer = api.post(MESSAGES, &array(&format!(r#"{{"{name}":1}}"#), 60_000)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.text.len() < 20 << 20, "{} bytes", answer.text.len());
    let results = answer.json()["results"].as_array().unwrap().clone();
    let error = |at: usize| &results[at]["error"];
    assert_eq!((results.len(), &error(59_999)["code"]), (60_000, &"unknown_field".into()));
    assert!(error(0)["detail"].as_str().unwrap().contains("unknown field"), "{}", error(0));
    assert!(error(59_999)["detail"].as_str().unwrap().contains("send fewer"), "{}", error(59_999));
}

#[tokio::test]
async fn a_stream_holds_no_more_than_what_is_under_way() {
    let api = api_with(1 << 20).await;
    let line = format!("{{\"payload\":\"{}\"}}\n", "x".repeat(1000));
    let pieces = futures::stream::iter((0..5000).map(move |_| Ok::<_, std::io::Error>(Bytes::from(line.clone()))));
    let request = Request::post(MESSAGES).header(header::CONTENT_TYPE, "application/x-ndjson");
    let request = request.header(header::ACCEPT, "application/x-ndjson");
    let total = api.parts.options.shares.memory_left();
    let answer = api.send(request.body(Body::from_stream(pieces)).unwrap()).await;
    let outcomes = answer.lines();
    let scheduled = outcomes.iter().filter(|line| line["outcome"] == "scheduled").count();
    assert!(scheduled > 0, "{:?}", outcomes.last());
    assert_eq!(api.parts.options.shares.memory_left(), total);
}

#[tokio::test]
async fn what_a_body_of_brackets_takes_to_be_read_is_counted_before() {
    let body = "[".repeat(1 << 20);
    let refused = api_with(3 << 20).await.post(MESSAGES, &body).await;
    assert_eq!(refused.problem(), (503, "busy".to_owned()));
    let read = api_with(8 << 20).await.post(MESSAGES, &body).await;
    assert_eq!(read.problem(), (400, "malformed_json".to_owned()));
}
