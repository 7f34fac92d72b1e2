//! Up to when a topic is done.

use serde_json::{Value, json};

use super::{NOW_MS, TestApi};

const PATH: &str = "/v1/topics/bills/watermark";

/// A topic with a watermark.
async fn bills() -> TestApi {
    let api = TestApi::new().await;
    assert_eq!(api.put("/v1/topics/bills", r#"{"shards":2,"watermark":true}"#).await.status, 201);
    api
}

async fn claimed(api: &TestApi) -> Value {
    let claimed = api.post("/v1/topics/bills/claim", "{}").await.json();
    claimed["messages"][0]["receipt"].clone()
}

#[tokio::test]
async fn a_watermark_waits_for_what_is_due_until_it_is_done() {
    let api = bills().await;
    assert_eq!(api.get(PATH).await.json(), json!({ "watermark": NOW_MS }));
    let message = json!({ "id": "a", "due_at": NOW_MS + 1000 });
    assert_eq!(api.post("/v1/topics/bills/messages", &message.to_string()).await.status, 201);
    api.advance("10s");
    let held = |answer: &Value| (answer["watermark"].clone(), answer["held_by"].clone());
    let (watermark, by) = held(&api.get(PATH).await.json());
    assert_eq!((watermark, &by["reason"], &by["id"]), (json!(NOW_MS + 1000), &json!("due"), &json!("a")));
    assert_eq!((&by["due_at"], by.get("until")), (&json!(NOW_MS + 1000), None));
    let receipt = claimed(&api).await;
    let (watermark, by) = held(&api.get(PATH).await.json());
    assert_eq!(
        (watermark, &by["reason"], &by["until"]),
        (json!(NOW_MS + 1000), &json!("in_flight"), &json!(NOW_MS + 40_000))
    );
    let nack = json!({ "receipts": [receipt], "delay": "1m" });
    assert_eq!(api.post("/v1/topics/bills/nack", &nack.to_string()).await.status, 200);
    let (watermark, by) = held(&api.get(PATH).await.json());
    assert_eq!(
        (watermark, &by["reason"], &by["until"]),
        (json!(NOW_MS + 1000), &json!("retrying"), &json!(NOW_MS + 70_000))
    );
    let until = |ms: i64| format!("{PATH}?until={}", NOW_MS + ms);
    assert_eq!(api.get(&until(1000)).await.json()["reached"], true);
    assert_eq!(api.get(&until(1001)).await.json()["reached"], false);
    assert_eq!(api.delete("/v1/topics/bills/messages/a").await.status, 200);
    assert_eq!(api.get(PATH).await.json(), json!({ "watermark": NOW_MS + 10_000 }));
}

#[tokio::test]
async fn what_is_late_does_not_take_a_watermark_back() {
    let api = bills().await;
    api.advance("10s");
    assert_eq!(api.get(PATH).await.json()["watermark"], NOW_MS + 10_000);
    let message = json!({ "id": "late", "due_at": NOW_MS + 1 });
    assert_eq!(api.post("/v1/topics/bills/messages", &message.to_string()).await.status, 201);
    api.advance("1s");
    let answer = api.get(PATH).await.json();
    assert_eq!((&answer["watermark"], &answer["held_by"]["id"]), (&json!(NOW_MS + 10_000), &json!("late")));
    let receipt = claimed(&api).await;
    assert_eq!(api.post("/v1/topics/bills/ack", &json!({ "receipts": [receipt] }).to_string()).await.status, 200);
    assert_eq!(api.get(PATH).await.json(), json!({ "watermark": NOW_MS + 11_000 }));
}

#[tokio::test(start_paused = true)]
async fn a_moment_is_waited_for_and_no_longer() {
    let api = bills().await;
    let message = json!({ "id": "a", "due_at": NOW_MS - 1000 });
    assert_eq!(api.post("/v1/topics/bills/messages", &message.to_string()).await.status, 201);
    let path = format!("{PATH}?until={NOW_MS}&wait=20s");
    let began = tokio::time::Instant::now();
    let answer = api.get(&path).await.json();
    assert_eq!((&answer["reached"], began.elapsed().as_secs()), (&json!(false), 20));
    let done = async {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        api.delete("/v1/topics/bills/messages/a").await
    };
    let began = tokio::time::Instant::now();
    let (answer, _) = tokio::join!(api.get(&path), done);
    assert_eq!(answer.json(), json!({ "watermark": NOW_MS, "reached": true }));
    assert!((3..5).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_topic_has_a_watermark_from_its_creation_on_or_never() {
    let api = TestApi::with_orders().await;
    let refused = api.get("/v1/topics/orders/watermark").await;
    assert_eq!(refused.problem(), (409, "topic_has_no_watermark".to_owned()));
    let refused = api.put("/v1/topics/orders", r#"{"watermark":true}"#).await;
    assert_eq!(refused.problem(), (400, "invalid_topic_settings".to_owned()));
    assert_eq!(refused.json()["field"], "watermark");
    assert!(refused.text.contains("create another topic with watermark = true"), "{}", refused.text);
    assert_eq!(api.put("/v1/topics/orders", r#"{"watermark":false,"delay":"1s"}"#).await.status, 200);
    assert_eq!(api.put("/v1/topics/bills", r#"{"watermark":true}"#).await.status, 201);
    assert_eq!(api.put("/v1/topics/bills", r#"{"watermark":null}"#).await.status, 400);
    assert_eq!(api.put("/v1/topics/bills", r#"{"delay":"1s"}"#).await.json()["watermark"], true);
    assert_eq!(api.get("/v1/topics/nope/watermark").await.problem().0, 404);
    for bad in ["until=soon", "wait=61s", "wait=x", "untill=1"] {
        assert_eq!(api.get(&format!("{PATH}?{bad}")).await.problem().0, 400, "{bad}");
    }
}
