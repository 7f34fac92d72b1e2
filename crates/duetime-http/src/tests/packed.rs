//! Long answers to whoever reads are compressed; others are not.

use std::io::Read as _;

use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use flate2::read::GzDecoder;
use futures::StreamExt as _;
use serde_json::json;
use tower::ServiceExt as _;

use super::TestApi;

/// More topics than are in a short answer.
const TOPICS: usize = 40;

async fn sent(api: &TestApi, request: Request<Body>) -> (HeaderMap, Vec<u8>) {
    let answer = api.api.clone().oneshot(request).await.unwrap();
    let (parts, body) = answer.into_parts();
    let pieces: Vec<_> = body.into_data_stream().map(|piece| piece.unwrap()).collect().await;
    (parts.headers, pieces.concat())
}

fn reading(path: &str) -> Request<Body> {
    Request::get(path).header(header::ACCEPT_ENCODING, "br, gzip").body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_long_answer_is_compressed_for_who_takes_it_and_says_the_same() {
    let api = TestApi::new().await;
    for n in 0..TOPICS {
        api.put(&format!("/v1/topics/topic-{n}"), "{}").await;
    }
    for path in ["/v1/topics", "/v1/rates", "/openapi.json"] {
        let plain = api.get(path).await;
        assert!(!plain.headers.contains_key(header::CONTENT_ENCODING), "{path}: nobody asked for it");
        let (headers, bytes) = sent(&api, reading(path)).await;
        assert_eq!(headers[header::CONTENT_ENCODING], "gzip", "{path}");
        assert_eq!(headers[header::VARY], "accept-encoding");
        assert_eq!(headers[header::CACHE_CONTROL], plain.headers[header::CACHE_CONTROL]);
        assert!(bytes.len() * 4 < plain.text.len(), "{path}: {} of {} bytes", bytes.len(), plain.text.len());
        let mut text = String::new();
        GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, plain.text, "{path}");
    }
}

#[tokio::test]
async fn short_answers_claims_and_refusals_are_sent_as_they_are() {
    let api = TestApi::with_orders().await;
    let payload = "x".repeat(10_000);
    api.enqueue(&json!({"id": "a", "payload": payload}).to_string()).await;
    let claim = Request::post("/v1/topics/orders/claim")
        .header(header::ACCEPT_ENCODING, "gzip")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from("{}"))
        .unwrap();
    let (headers, bytes) = sent(&api, claim).await;
    assert!(!headers.contains_key(header::CONTENT_ENCODING) && bytes.len() > 10_000, "{headers:?}");
    for path in ["/v1/me", "/v1/topics/none", "/metrics"] {
        let (headers, _) = sent(&api, reading(path)).await;
        assert!(!headers.contains_key(header::CONTENT_ENCODING), "{path}: {headers:?}");
    }
}
