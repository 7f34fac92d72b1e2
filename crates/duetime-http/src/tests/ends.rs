//! Requests that say until when they are wanted.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use duetime_core::Clock as _;

use super::TestApi;

async fn ask(api: &TestApi, method: Method, path: &str, end: &str) -> super::Answer {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    let body = Body::from(r#"{"id":"order-1","delay":"1h"}"#);
    api.send(request.header("duetime-not-after", end).body(body).unwrap()).await
}

#[tokio::test]
async fn a_request_is_not_carried_out_after_the_end_that_it_names() {
    let api = TestApi::with_orders().await;
    let (now, path) = (api.clock.now().as_millis(), "/v1/topics/orders/messages");
    for late in [now, now - 1, 0] {
        let refused = ask(&api, Method::POST, path, &late.to_string()).await;
        assert_eq!(refused.problem(), (412, "deadline_exceeded".to_owned()));
        assert!(refused.text.contains(&now.to_string()), "{}", refused.text);
    }
    for odd in ["", "soon", "-1", "1.5", "99999999999999999999"] {
        let refused = ask(&api, Method::POST, path, odd).await;
        assert_eq!(refused.problem(), (400, "invalid_value".to_owned()), "{odd}");
    }
    let read = ask(&api, Method::GET, "/v1/topics/orders", "0").await;
    assert_eq!(read.status, StatusCode::OK, "what changes nothing may be late");
    assert_eq!(api.get("/v1/topics/orders").await.json()["scheduled"], 0);
    let in_time = ask(&api, Method::POST, path, &(now + 1_000).to_string()).await;
    assert!(in_time.status.is_success(), "{}", in_time.text);
    let again = ask(&api, Method::POST, path, &i64::MAX.to_string()).await;
    assert!(again.text.contains("duplicate"), "{}", again.text);
}

#[tokio::test]
async fn of_several_ends_the_earliest_counts_and_each_has_to_be_one() {
    let api = TestApi::with_orders().await;
    let now = api.clock.now().as_millis();
    for (first, second, status) in
        [(now + 1_000, now - 1, "412"), (now - 1, now + 1_000, "412"), (now + 1_000, -1, "400")]
    {
        let request = Request::builder().method(Method::POST).uri("/v1/topics/orders/messages");
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let request = request.header("duetime-not-after", first).header("duetime-not-after", second);
        let refused = api.send(request.body(Body::from(r#"{"id":"order-1","delay":"1h"}"#)).unwrap()).await;
        assert_eq!(refused.status.as_str(), status, "{first} {second}: {}", refused.text);
    }
    assert_eq!(api.get("/v1/topics/orders").await.json()["scheduled"], 0);
}
