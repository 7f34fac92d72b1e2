//! One claim over several topics.

use serde_json::{Value, json};

use super::{Answer, TestApi};
use crate::{Auth, AuthConfig};

async fn with_topics(auth: Auth, topics: &[(&str, Value)]) -> TestApi {
    let api = TestApi::with(auth).await;
    for (topic, settings) in topics {
        assert_eq!(api.put(&format!("/v1/topics/{topic}"), &settings.to_string()).await.status, 201);
    }
    api
}

async fn claim(api: &TestApi, ask: Value) -> Answer {
    api.post("/v1/claim", &ask.to_string()).await
}

async fn enqueue(api: &TestApi, topic: &str, id: &str) {
    let answer = api.post(&format!("/v1/topics/{topic}/messages"), &json!({"id": id}).to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
}

#[tokio::test]
async fn the_topic_that_has_something_due_fills_the_claim_and_settles_it() {
    let api = with_topics(Auth::open(), &[("orders", json!({})), ("mails", json!({}))]).await;
    assert_eq!(
        claim(&api, json!({"topics": {"orders": 1, "mails": 1}})).await.json(),
        json!({"messages": [], "failed": []})
    );
    enqueue(&api, "mails", "a").await;
    enqueue(&api, "mails", "b").await;
    let found = claim(&api, json!({"topics": {"orders": 1000, "mails": 1}, "max": 10, "consumer": "w-1"})).await.json();
    assert_eq!((&found["topic"], &found["failed"]), (&json!("mails"), &json!([])));
    let receipts: Vec<&Value> = found["messages"].as_array().unwrap().iter().map(|one| &one["receipt"]).collect();
    assert_eq!(receipts.len(), 2);
    let acked = api.post("/v1/topics/mails/ack", &json!({"receipts": receipts}).to_string()).await.json();
    assert!(acked["results"].as_array().unwrap().iter().all(|one| one["outcome"] == "ok"), "{acked}");
    for topic in ["orders", "mails"] {
        let consumers = api.get(&format!("/v1/topics/{topic}/consumers")).await.json();
        assert_eq!(consumers["consumers"][0]["consumer"], "w-1", "{consumers}");
    }
}

#[tokio::test]
async fn a_claim_that_waits_is_filled_by_one_of_its_topics() {
    let api = with_topics(Auth::open(), &[("orders", json!({})), ("mails", json!({}))]).await;
    enqueue(&api, "mails", "a").await;
    let found = claim(&api, json!({"topics": {"orders": 1, "mails": 1}, "wait": "60s"})).await.json();
    assert_eq!((&found["topic"], &found["messages"][0]["id"]), (&json!("mails"), &json!("a")));
}

#[tokio::test]
async fn a_topic_that_cannot_be_claimed_from_is_named_beside_what_others_have() {
    let once = json!({"delivery": "at-most-once"});
    let topics = [("orders", json!({})), ("hooked", json!({"sink": {"name": "log"}})), ("once", once)];
    let api = with_topics(Auth::open(), &topics).await;
    enqueue(&api, "orders", "a").await;
    let all = json!({"topics": {"hooked": 1, "nowhere": 1, "once": 1}, "wait": "60s"});
    assert_eq!(claim(&api, all).await.problem(), (409, "topic_has_sink".to_owned()), "none of them can");
    let all = json!({"topics": {"orders": 1, "hooked": 1000, "nowhere": 1000, "once": 1000}});
    let mut most = 0;
    // Those that are asked after the one that has something due are not asked.
    for _ in 0..50 {
        let found = claim(&api, all.clone()).await.json();
        let receipt = &found["messages"][0]["receipt"];
        let failed = found["failed"].as_array().unwrap();
        most = most.max(failed.len());
        for one in failed {
            let code = match one["topic"].as_str().unwrap() {
                "hooked" => "topic_has_sink",
                "nowhere" => "unknown_topic",
                _ => "topic_at_most_once",
            };
            assert_eq!((&one["code"], &one["retryable"]), (&json!(code), &json!(false)), "{one}");
        }
        api.post("/v1/topics/orders/release", &json!({"receipts": [receipt]}).to_string()).await;
    }
    assert_eq!(most, 3);
}

/// The outcome of each receipt, or the code of its error.
fn words(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let word = |result: &Value| result.get("outcome").unwrap_or(&result["error"]["code"]).as_str().unwrap().to_owned();
    answer.json()["results"].as_array().unwrap().iter().map(word).collect()
}

/// Claims all that is due of one topic; the receipts.
async fn held(api: &TestApi, topic: &str) -> Vec<Value> {
    let found = api.post(&format!("/v1/topics/{topic}/claim"), r#"{"max":256}"#).await.json();
    found["messages"].as_array().unwrap().iter().map(|one| one["receipt"].clone()).collect()
}

#[tokio::test]
async fn each_receipt_of_a_claim_over_topics_is_acked_in_its_own_and_others_are_refused_by_themselves() {
    let one = json!({"shards": 1});
    let topics = [("orders", one.clone()), ("mails", one.clone()), ("others", one)];
    let api = with_topics(Auth::open(), &topics).await;
    for (topic, id) in [("orders", "a"), ("mails", "a"), ("mails", "cancelled"), ("others", "a")] {
        enqueue(&api, topic, id).await;
    }
    let (orders, mails, others) = (held(&api, "orders").await, held(&api, "mails").await, held(&api, "others").await);
    assert_eq!(api.delete("/v1/topics/mails/messages/cancelled").await.status, 409);
    enqueue(&api, "mails", "next").await;
    let ack = json!([mails[0], "x", orders[0], others[0], mails[1], orders[0], 7]);
    let ask = json!({"topics": {"orders": 1, "mails": 1}, "ack": ack, "wait": "60s", "consumer": "w-1"});
    let answer = claim(&api, ask).await;
    let wanted = ["ok", "invalid_receipt", "ok", "invalid_receipt", "cancelled", "already", "invalid_receipt"]
        .map(str::to_owned);
    assert_eq!(words(&answer), wanted);
    let found = answer.json();
    assert_eq!((&found["topic"], &found["messages"][0]["id"]), (&json!("mails"), &json!("next")), "{found}");
    assert_eq!((&found["failed"], found.get("error")), (&json!([]), None), "{found}");
    let error = &found["results"][3]["error"];
    assert_eq!((&error["field"], &error["index"]), (&json!("ack"), &json!(3)), "{found}");
    for (topic, left) in [("orders", 0), ("mails", 1), ("others", 1)] {
        assert_eq!(api.get(&format!("/v1/topics/{topic}")).await.json()["in_flight"], left, "{topic}");
    }
    let plain = claim(&api, json!({"topics": {"orders": 1, "mails": 1}})).await.json();
    assert_eq!(plain, json!({"messages": [], "failed": []}), "without acks there are no results");
    // One that is not done does not wait.
    let again = claim(&api, json!({"topics": {"orders": 1, "mails": 1}, "ack": [mails[1]], "wait": "60s"})).await;
    assert_eq!(words(&again), ["cancelled"]);
}

#[tokio::test]
async fn what_was_acked_is_told_where_no_topic_can_be_claimed_from() {
    let one = json!({"shards": 1});
    let api = with_topics(Auth::open(), &[("orders", one.clone()), ("mails", one)]).await;
    enqueue(&api, "orders", "a").await;
    let receipts = held(&api, "orders").await;
    assert_eq!(api.put("/v1/topics/orders", r#"{"sink":{"name":"log"}}"#).await.status, 200);
    let nobodys = json!({"topics": {"orders": 1, "nowhere": 0}, "ack": receipts});
    assert_eq!(claim(&api, nobodys).await.problem().0, 400);
    assert_eq!(api.get("/v1/topics/orders").await.json()["in_flight"], 1, "a claim that is refused has acked nothing");
    let answer = claim(&api, json!({"topics": {"orders": 1, "nowhere": 1}, "ack": receipts, "wait": "60s"})).await;
    assert_eq!(words(&answer), ["ok"]);
    let found = answer.json();
    assert_eq!((&found["messages"], &found["failed"]), (&json!([]), &json!([])), "{found}");
    assert_eq!(found["error"]["code"], "unknown_topic", "the first by name: {found}");
    assert_eq!(api.get("/v1/topics/orders").await.json()["in_flight"], 0);
    // A receipt of a topic that is gone is refused by itself.
    let mut both = json!({"topics": {"mails": 1, "orders": 1}});
    enqueue(&api, "mails", "a").await;
    both["ack"] = json!([held(&api, "mails").await[0], receipts[0]]);
    assert_eq!(api.delete("/v1/topics/orders?force=true").await.status, 200);
    assert_eq!(words(&claim(&api, both).await), ["ok", "unknown_topic"]);
}

#[tokio::test]
async fn a_token_claims_from_no_topic_that_it_is_not_for() {
    let secret = "a-secret-of-shop-0123";
    let shop = json!({"name": "shop", "secret": secret, "scopes": ["consume"], "topics": ["orders"]});
    let root = json!({"name": "root", "secret": "a-secret-of-root-0123", "scopes": ["admin"]});
    let config: AuthConfig = serde_json::from_value(json!({"tokens": [shop, root]})).unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    for (topics, status) in [(json!({"orders": 1}), 404), (json!({"orders": 1, "mails": 1}), 403)] {
        let ask = json!({ "topics": topics }).to_string();
        assert_eq!(api.call_as(secret, "POST", "/v1/claim", &ask).await.status, status);
    }
}

#[tokio::test]
async fn a_claim_over_topics_says_which_of_its_bounds_is_passed() {
    let api = TestApi::with_orders().await;
    let many: serde_json::Map<String, Value> = (0..17).map(|n| (format!("t-{n}"), json!(1))).collect();
    for (topics, says) in [
        (json!({}), "name 1 to 16"),
        (json!(many), "name 1 to 16"),
        (json!({"orders": 0}), "give 1 to 1000"),
        (json!({"orders": 1001}), "give 1 to 1000"),
        (json!({"no topic": 1}), "topic"),
        (json!(["orders"]), "map"),
    ] {
        let answer = claim(&api, json!({"topics": topics})).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        let problem = answer.json();
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
        assert!(problem["field"].as_str().is_some_and(|field| field.starts_with("topics")), "{problem}");
    }
}
