//! A node whose clock users move in their tests.

use axum::body::Body;
use axum::http::{Request, header};
use duetime_core::{TestClock, Timestamp};
use duetime_small_store::SmallStore;
use duetime_testkit::ManualClock;
use serde_json::json;

use super::{NOW_MS, TestApi};
use crate::server::state::MovedClock;
use crate::{Auth, HttpParts};

/// The API by a clock that was not moved yet, over the clock of `api`.
fn moved(api: &TestApi) -> TestApi {
    let clock = TestClock::new(api.clock.clone());
    let test_clock = Some(MovedClock { clock: clock.clone(), moved: std::sync::Arc::default() });
    api.again(HttpParts { clock, test_clock, ..api.parts.clone() })
}

#[tokio::test]
async fn a_node_without_a_test_clock_says_how_to_get_one() {
    let api = TestApi::new().await;
    for answer in [api.get("/v1/test-clock").await, api.post("/v1/test-clock", r#"{"advance":"1h"}"#).await] {
        assert_eq!(answer.problem(), (404, "no_test_clock".to_owned()));
        assert!(answer.text.contains("--test-clock"), "{}", answer.text);
    }
}

#[tokio::test]
async fn the_clock_is_moved_ahead_and_says_in_each_answer_what_it_shows() {
    let clock = ManualClock::at(Timestamp::from_millis(NOW_MS));
    let small = SmallStore::new(clock.clone()).await;
    let api = moved(&TestApi::on(&small, small.shared(), clock, Auth::open()).await);
    assert_eq!(api.get("/v1/test-clock").await.json(), json!({"now": NOW_MS, "ahead_ms": 0}));
    let hour = json!({"now": NOW_MS + 3_600_000, "ahead_ms": 3_600_000});
    assert_eq!(api.post("/v1/test-clock", r#"{"advance":"1h"}"#).await.json(), hour);
    let day = api.post("/v1/test-clock", r#"{"to":"2025-11-22T00:00:00Z"}"#).await;
    assert_eq!(day.json()["ahead_ms"], 86_400_000);
    assert_eq!(day.headers[header::DATE], "Sat, 22 Nov 2025 00:00:00 GMT");
    assert_eq!(api.get("/v1/me").await.json()["test_clock"], true);
    // A node whose store has another clock is not ready.
    small.set_ahead_ms(86_400_000);
    let ready = api.get("/readyz").await.json();
    assert_eq!(ready["found"]["test_clock"], "86400000 ms ahead of the machine's: this node is for tests alone");
}

#[tokio::test]
async fn the_clock_is_never_set_back_and_each_refusal_names_its_field() {
    let api = moved(&TestApi::new().await);
    for (body, field) in [
        (r#"{"to":"2025-11-20T00:00:00Z"}"#, "to"),
        (r#"{"to":1763600000}"#, "to"),
        (r#"{"advance":30}"#, "advance"),
        (r#"{"advance":"-1s"}"#, "advance"),
        (r#"{"advance":"11y"}"#, "advance"),
        (r#"{"advance":"1s","to":"2025-11-22T00:00:00Z"}"#, "advance"),
        ("{}", "advance"),
    ] {
        let refused = api.post("/v1/test-clock", body).await;
        assert_eq!(refused.problem(), (400, "invalid_value".to_owned()), "{body}");
        assert_eq!(refused.json()["field"], field, "{body}");
    }
    assert_eq!(api.get("/v1/test-clock").await.json()["ahead_ms"], 0);
}

#[tokio::test]
async fn until_when_a_client_waits_is_by_the_clock_of_its_machine() {
    let api = moved(&TestApi::with_orders().await);
    assert_eq!(api.post("/v1/test-clock", r#"{"advance":"1h"}"#).await.status, 200);
    let within = |end: i64| {
        let request = Request::post("/v1/topics/orders/messages").header("duetime-not-after", end);
        request.header(header::CONTENT_TYPE, "application/json").body(Body::from(r#"{"delay":"1h"}"#)).unwrap()
    };
    assert_eq!(api.send(within(NOW_MS + 1_000)).await.status, 201);
    assert_eq!(api.send(within(NOW_MS - 1_000)).await.problem(), (412, "deadline_exceeded".to_owned()));
}
