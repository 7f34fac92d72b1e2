//! Topics, shards, forecast.

use serde_json::{Value, json};

use super::{NOW_MS, TestApi};

#[tokio::test]
async fn a_topic_is_created_changed_looked_at_and_deleted() {
    let api = TestApi::new().await;
    let made = api.put("/v1/topics/orders", r#"{"shards":"auto","visibility_timeout":"45s"}"#).await;
    assert_eq!(made.status, 201);
    let body = made.json();
    assert_eq!((&body["name"], &body["shards"], &body["shard_count"]), (&json!("orders"), &json!("auto"), &json!(4)));
    assert_eq!((&body["visibility_timeout"], &body["version"]), (&json!("45s"), &json!(1)));
    assert_eq!((&body["scheduled"], &body["created_at"]), (&json!(0), &json!(NOW_MS)));

    let changed = api.put("/v1/topics/orders", r#"{"retry":{"max_attempts":3}}"#).await;
    assert_eq!(changed.status, 200);
    let body = changed.json();
    assert_eq!((&body["retry"]["max_attempts"], &body["retry"]["initial"]), (&json!(3), &json!("1s")));
    assert_eq!((&body["visibility_timeout"], &body["version"]), (&json!("45s"), &json!(2)));
    let same = api.put("/v1/topics/orders", "{}").await.json();
    assert_eq!(same["version"], 2);
    let back = api.put("/v1/topics/orders", r#"{"visibility_timeout":null}"#).await.json();
    assert_eq!(back["visibility_timeout"], "30s");

    api.put("/v1/topics/bills", "").await;
    let names: Vec<_> = api.get("/v1/topics").await.json()["topics"].as_array().unwrap().clone();
    assert_eq!(names.iter().map(|t| t["name"].as_str().unwrap()).collect::<Vec<_>>(), ["bills", "orders"]);
    assert_eq!(api.delete("/v1/topics/orders").await.json(), json!({"outcome": "deleted"}));
    assert_eq!(api.delete("/v1/topics/orders").await.problem(), (404, "unknown_topic".to_owned()));
    assert_eq!(api.get("/v1/topics/orders").await.problem(), (404, "unknown_topic".to_owned()));
    assert_eq!(api.enqueue("{}").await.problem(), (404, "unknown_topic".to_owned()));
    assert!(!api.get("/metrics").await.text.contains("topic=\"orders\""));
}

#[tokio::test]
async fn a_topic_that_holds_messages_is_deleted_only_by_force() {
    let api = TestApi::with_orders().await;
    assert_eq!(api.delete("/v1/topics/orders?force=perhaps").await.problem(), (400, "invalid_query".to_owned()));
    api.enqueue(r#"{"id":"a","delay":"1h"}"#).await;
    let refused = api.delete("/v1/topics/orders").await;
    assert_eq!(refused.problem(), (409, "topic_not_empty".to_owned()));
    assert!(refused.text.contains("holds 1 messages; to delete it as it is, send DELETE"), "{}", refused.text);
    assert_eq!(api.delete("/v1/topics/orders?force=false").await.status, 409);
    assert_eq!(api.get("/v1/topics/orders/messages/a").await.status, 200);
    assert_eq!(api.delete("/v1/topics/orders?force=true").await.json(), json!({"outcome": "deleted"}));
    assert_eq!(api.delete("/v1/topics/orders?force=true").await.problem(), (404, "unknown_topic".to_owned()));
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let api = TestApi::new().await;
    for (body, code, field) in [
        (r#"{"visibility_timout":"1s"}"#, "unknown_field", "visibility_timout"),
        (r#"{"retry":{"max_attemps":1}}"#, "unknown_field", "retry.max_attemps"),
        (r#"{"max_payload":"17MiB"}"#, "invalid_topic_settings", "max_payload"),
        (r#"{"shards":0}"#, "invalid_topic_settings", "shards"),
        (r#"{"sink":"log"}"#, "invalid_topic_settings", "sink"),
        (r#"{"retry":7}"#, "invalid_topic_settings", "retry"),
        (r#"{"delivery":"exactly-once"}"#, "invalid_topic_settings", "delivery"),
    ] {
        let refused = api.put("/v1/topics/orders", body).await;
        assert_eq!(refused.problem(), (400, code.to_owned()), "{body}: {}", refused.text);
        assert_eq!(refused.json()["field"], field, "{}", refused.text);
    }
    for body in ["[]", "{", "7"] {
        assert_eq!(api.put("/v1/topics/orders", body).await.problem().0, 400, "{body}");
    }
    assert_eq!(api.get("/v1/topics").await.json(), json!({"topics": []}));
}

#[tokio::test]
async fn another_shard_count_begins_a_resize_and_the_last_request_is_kept_while_it_runs() {
    let api = TestApi::with_orders().await;
    assert_eq!(api.put("/v1/topics/orders", r#"{"shards":4}"#).await.status, 200);
    let same = api.put("/v1/topics/orders/shards", r#"{"shards":4}"#).await;
    assert_eq!((same.status.as_u16(), same.json().get("resize")), (202, None));
    for n in 0..40 {
        api.enqueue(&json!({"id": n.to_string(), "delay": "1h"}).to_string()).await;
    }
    let preview = api.get("/v1/topics/orders/shards?to=16").await.json()["preview"].clone();
    let expected = json!({"from": 4, "to": 16, "moves": 30, "per_second_max": 20_000});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&preview[name], value, "{name}: {preview}");
    }
    assert!(preview["seconds_min"].as_f64().unwrap() > 0.001, "{preview}");
    for (to, status) in [("auto", 200), ("0", 400), ("many", 400)] {
        assert_eq!(api.get(&format!("/v1/topics/orders/shards?to={to}")).await.status, status, "{to}");
    }
    assert!(api.get("/v1/topics/orders/shards").await.json().get("preview").is_none());
    let begun = api.put("/v1/topics/orders/shards", r#"{"shards":8}"#).await;
    assert_eq!(begun.status, 202);
    let begun = begun.json();
    assert_eq!(begun["resize"], json!({"from": 4, "to": 8, "moved": 0, "remaining": 20}));
    assert_eq!((&begun["configured"], &begun["epoch"]), (&json!(8), &json!(2)));
    for shards in [16, 2] {
        let kept = api.put("/v1/topics/orders", &json!({ "shards": shards }).to_string()).await;
        assert_eq!(kept.status, 200);
        let shown = api.get("/v1/topics/orders/shards").await.json();
        assert_eq!((&shown["resize"]["to"], &shown["resize"]["desired"]), (&json!(8), &json!(shards)));
    }
    let back = api.put("/v1/topics/orders/shards", r#"{"shards":8}"#).await.json();
    assert_eq!(back["resize"].get("desired"), None);
    let auto = api.put("/v1/topics/orders/shards", r#"{"shards":"auto"}"#).await.json();
    assert_eq!((&auto["configured"], &auto["resize"]["desired"]), (&json!("auto"), &json!(4)));

    // Nothing has moved yet, and everything is found.
    assert_eq!(api.get("/v1/topics/orders/messages/7").await.json()["state"], "scheduled");
    assert_eq!(api.enqueue(r#"{"id":"7","delay":"1h"}"#).await.status, 409);
    assert_eq!(api.delete("/v1/topics/orders/messages/7").await.status, 200);
}

#[tokio::test]
async fn a_shard_count_that_makes_no_sense_is_refused() {
    let api = TestApi::with_orders().await;
    let bounds = "shards must be 1 to 4096";
    for (bad, said) in [
        (r#"{"shards":0}"#, bounds),
        (r#"{"shards":4097}"#, bounds),
        (r#"{"shards":-1}"#, bounds),
        (r#"{"shards":"many"}"#, bounds),
        ("{}", "missing field"),
    ] {
        let refused = api.put("/v1/topics/orders/shards", bad).await;
        assert_eq!((refused.problem().0, &refused.json()["field"]), (400, &json!("shards")), "{bad}");
        assert!(refused.text.contains(said), "{}", refused.text);
    }
    assert_eq!(api.put("/v1/topics/nope/shards", r#"{"shards":4}"#).await.problem(), (404, "unknown_topic".to_owned()));
    assert_eq!(api.get("/v1/topics/orders/shards").await.json()["epoch"], 1);
}

#[tokio::test]
async fn shards_show_who_scans_them_and_what_is_in_them() {
    let api = TestApi::with_orders().await;
    let messages: Vec<_> =
        (0..100).map(|n| json!({"id": n.to_string(), "delay": if n < 50 { "0ms" } else { "1h" }})).collect();
    api.enqueue(&json!(messages).to_string()).await;
    api.advance("5s");
    let answer = api.get("/v1/topics/orders/shards").await.json();
    let shards = answer["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 4);
    assert_eq!(shards.iter().map(|s| s["scheduled"].as_u64().unwrap()).sum::<u64>(), 100);
    assert_eq!(shards.iter().map(|s| s["due"].as_u64().unwrap()).sum::<u64>(), 50);
    assert_eq!((&shards[0]["owner"], shards[1].get("owner")), (&json!("n1"), None));
    assert!(shards.iter().all(|s| s["oldest_due_at"] == NOW_MS));
    assert!(shards.iter().all(|s| s["slot"].is_u64() && s["tag"].is_u64()), "{shards:?}");
    assert_eq!(api.get("/v1/topics/nope/shards").await.problem().0, 404);
}

#[tokio::test]
async fn the_forecast_counts_what_falls_due_in_each_bucket() {
    let api = TestApi::with_orders().await;
    let messages: Vec<_> = (0..120).map(|n| json!({"delay": format!("{n}s")})).collect();
    api.enqueue(&json!(messages).to_string()).await;
    api.advance("10s");
    let answer = api.get("/v1/topics/orders/forecast?bucket=30s&buckets=5").await.json();
    let counts: Vec<u64> = answer["buckets"].as_array().unwrap().iter().map(|b| b["count"].as_u64().unwrap()).collect();
    // The message of this very millisecond is in the first bucket, which ends at the next half minute.
    assert_eq!((answer["due"].as_u64().unwrap(), counts), (10, vec![20, 30, 30, 30, 0]));
    assert_eq!((&answer["at"], &answer["buckets"][1]["from"]), (&json!(NOW_MS + 10_000), &json!(NOW_MS + 30_000)));
    assert!(answer.get("capacity").is_none() && answer["buckets"][0].get("above_capacity").is_none(), "{answer}");
    assert_eq!(api.get("/v1/topics/orders/forecast").await.json()["buckets"].as_array().unwrap().len(), 60);
    for bad in ["bucket=0", "bucket=x", "buckets=0", "buckets=1441", "buckets=-1", "bukets=3", "bucket=400d"] {
        assert_eq!(api.get(&format!("/v1/topics/orders/forecast?{bad}")).await.problem().0, 400, "{bad}");
    }
}

/// So many counts were asked of the store.
fn counted(api: &TestApi) -> u64 {
    let text = api.parts.meters.render();
    let line = text.lines().find(|line| line.starts_with("duetime_store_call_seconds_count{op=\"forecast\"}"));
    line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_herd_is_seen_to_the_second_and_many_viewers_cost_one_count() {
    let api = TestApi::with_orders().await;
    assert_eq!(api.put("/v1/topics/orders", r#"{"rate_limit":{"per_second":100}}"#).await.status, 200);
    let herd: Vec<_> = (0..450).map(|n| json!({"delay": format!("{}ms", 3_600_000 + n % 1000)})).collect();
    api.enqueue(&json!(herd).to_string()).await;
    let path = "/v1/topics/orders/forecast?bucket=1m&buckets=120";
    let viewers = futures::future::join_all((0..50).map(|_| api.get(path))).await;
    let answer = viewers[0].json();
    assert!(viewers.iter().all(|one| one.json() == answer));
    // The minutes, and the seconds of the fullest.
    assert_eq!(counted(&api), 2);
    assert_eq!(answer["capacity"], 100.0);
    assert_eq!(answer["buckets"][60]["count"], 450);
    assert_eq!(answer["buckets"][60]["above_capacity"], true);
    assert_eq!(answer["buckets"][60]["last_late_ms"], 4_500);
    assert_eq!(answer["buckets"][59]["above_capacity"], false);
    assert_eq!(answer["herd"]["from"], NOW_MS + 3_600_000);
    let summary = answer["herd"]["summary"].as_str().unwrap();
    assert_eq!(summary, "450 at 2025-11-21T01:00:00Z, capacity 100/s: the last one 4s 500ms late");
    api.enqueue(r#"{"delay":"1h"}"#).await;
    assert_eq!(api.get(path).await.json(), answer, "it is kept");
    tokio::time::sleep(duetime_router::FORECAST_KEPT).await;
    assert_eq!(api.get(path).await.json()["buckets"][60]["count"], 451);
    assert_eq!(counted(&api), 4);
}

#[tokio::test(start_paused = true)]
async fn a_forecast_of_a_topic_made_anew_is_not_that_of_the_one_before() {
    let api = TestApi::with_orders().await;
    api.enqueue(r#"{"delay":"30s"}"#).await;
    let all = |answer: Value| answer["buckets"].as_array().unwrap().iter().map(|b| b["count"].as_u64().unwrap()).sum();
    let sum: u64 = all(api.get("/v1/topics/orders/forecast").await.json());
    assert_eq!(sum, 1);
    assert_eq!(api.delete("/v1/topics/orders?force=true").await.status, 200);
    assert_eq!(api.get("/v1/topics/orders/forecast").await.problem().0, 404);
    assert_eq!(api.put("/v1/topics/orders", "{}").await.status, 201);
    let sum: u64 = all(api.get("/v1/topics/orders/forecast").await.json());
    assert_eq!(sum, 0);
}

#[tokio::test]
async fn a_paused_topic_says_so_and_takes_messages_and_cancels_as_ever() {
    let api = TestApi::with_orders().await;
    assert!(api.get("/v1/topics/orders").await.json().get("paused").is_none());
    for _ in 0..2 {
        let paused = api.post("/v1/topics/orders/pause", "{}").await;
        assert_eq!((paused.status.as_u16(), &paused.json()["paused"]), (200, &json!(true)));
    }
    assert_eq!(api.get("/v1/topics").await.json()["topics"][0]["paused"], true);
    assert_eq!(api.enqueue(r#"{"id":"a"}"#).await.status, 201);
    assert_eq!(api.enqueue(r#"{"id":"b","delay":"1h"}"#).await.status, 201);
    let next = |answer: Value| answer["next"].as_str().unwrap().to_owned();
    let told = next(api.get("/v1/topics/orders/messages/a/explain").await.json());
    assert!(
        told.starts_with("Due since") && told.contains("paused") && told.contains("duetime resume orders"),
        "{told}"
    );
    assert!(next(api.get("/v1/topics/orders/messages/b/explain").await.json()).contains("Due at"));
    assert_eq!(api.delete("/v1/topics/orders/messages/b").await.status, 200);
    // A change of something else leaves it as it is.
    assert_eq!(api.put("/v1/topics/orders", r#"{"max_payload":1000}"#).await.json()["paused"], true);
    let resumed = api.post("/v1/topics/orders/resume", "{}").await;
    assert_eq!((resumed.status.as_u16(), resumed.json().get("paused")), (200, None));
    assert_eq!(api.post("/v1/topics/nope/pause", "{}").await.problem(), (404, "unknown_topic".to_owned()));
}

#[tokio::test]
async fn a_topic_whose_name_is_dots_alone_is_not_made() {
    let api = TestApi::new().await;
    for dots in ["%2e", "%2E%2E", ".%2e"] {
        let refused = api.put(&format!("/v1/topics/{dots}"), "{}").await;
        assert_eq!(refused.problem(), (400, "invalid_topic_name".to_owned()), "{dots}");
        assert!(
            refused.json()["field"] == "topic" && refused.text.contains("use another topic name"),
            "{}",
            refused.text
        );
        assert_eq!(api.get(&format!("/v1/topics/{dots}")).await.problem(), (404, "unknown_topic".to_owned()));
    }
    assert_eq!(api.put("/v1/topics/...", "{}").await.status, 201);
}
