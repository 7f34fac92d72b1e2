//! Bulk actions that are taken back.

use serde_json::{Value, json};

use super::TestApi;
use super::plans::{fill, node, path, planned, runs, scheduled, seen, started};

async fn remembering() -> TestApi {
    let api = TestApi::new().await;
    assert_eq!(api.put("/v1/topics/orders", r#"{"shards":4,"remember":"1h"}"#).await.status, 201);
    api
}

/// Plans it as one that can be taken back, and has it carried out.
async fn removed(api: &TestApi, ask: Value) -> Value {
    let mut ask = ask;
    ask["undoable"] = json!(true);
    let plan = planned(api, ask).await;
    started(api, &plan, json!({})).await;
    seen(api, &plan, |plan| plan["state"] == "done").await
}

async fn taken_back(api: &TestApi, plan: &Value) -> Value {
    let asked = api.post(&path(plan, "/undo"), "{}").await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    let plan = seen(api, plan, |plan| !matches!(plan["undo"]["state"].as_str(), Some("asked" | "running"))).await;
    assert_eq!(plan["undo"]["why_not"], Value::Null, "{plan}");
    plan["undo"].clone()
}

/// The sentence of the refusal, which the plan has as well.
async fn refusal(api: &TestApi, plan: &Value) -> String {
    let refused = api.post(&path(plan, "/undo"), "{}").await;
    assert_eq!(refused.problem(), (409, "conflict".to_owned()));
    let (detail, plan) = (refused.json()["detail"].clone(), api.get(&path(plan, "")).await.json());
    if let Some(why_not) = plan["undo"]["why_not"].as_str() {
        assert!(detail.as_str().unwrap().contains(why_not), "{detail} {why_not}");
    } else {
        assert_eq!(plan["undo"], Value::Null);
    }
    detail.as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn what_a_bulk_cancel_removed_is_put_back_once() {
    let api = remembering().await;
    fill(&api, "a-", 30).await;
    assert_eq!(api.enqueue(r#"[{"id":"a-soon","delay":"5m","payload":"x","headers":{"k":"v"}}]"#).await.status, 200);
    let soon = api.get("/v1/topics/orders/messages/a-soon").await.json();
    let _runs = runs(api.parts.plans.clone());
    let ask = json!({ "action": "cancel", "prefix": "a-", "per_second": 10_000, "undoable": true });
    let draft = planned(&api, ask.clone()).await;
    assert_eq!((&draft["undo"]["state"], &draft["undo"]["node"]), (&json!("keeping"), &Value::Null));
    assert!(refusal(&api, &draft).await.contains("not started"));
    let plan = removed(&api, ask).await;
    let undo = &plan["undo"];
    assert_eq!((&undo["state"], &undo["kept"], &undo["due_at_once"]), (&json!("possible"), &json!(31), &json!(0)));
    assert_eq!(undo["until"].as_i64().unwrap() - plan["ended_at"].as_i64().unwrap(), 600_000);
    assert_eq!((undo["node"].as_str(), undo["why_not"].as_str(), scheduled(&api).await), (Some("n1"), None, 0));
    // One is enqueued again meanwhile, which the topic's memory refuses unless it takes the place of another.
    let anew = r#"[{"id":"a-000","delay":"2h","on_conflict":"replace"}]"#;
    assert_eq!(api.enqueue(anew).await.json()["results"][0]["outcome"], "scheduled");
    let anew = api.get("/v1/topics/orders/messages/a-000").await.json();
    api.advance("6m");
    assert_eq!(api.get(&path(&plan, "")).await.json()["undo"]["due_at_once"], 1);
    let undo = taken_back(&api, &plan).await;
    assert_eq!((&undo["state"], &undo["restored"], &undo["left"]), (&json!("done"), &json!(30), &json!(1)));
    assert_eq!(scheduled(&api).await, 31);
    assert_eq!(api.get("/v1/topics/orders/messages/a-000").await.json(), anew, "the new one stays");
    let back = api.get("/v1/topics/orders/messages/a-soon").await.json();
    for field in ["payload", "headers", "due_at", "visible_at", "attempts", "version"] {
        assert_eq!(back[field], soon[field], "{field}");
    }
    assert_eq!(taken_back(&api, &plan).await["restored"], json!(30), "asked again, nothing changes");
    let started = api.post(&path(&plan, "/start"), "{}").await;
    assert_eq!(started.problem(), (409, "conflict".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_plan_is_taken_back_within_ten_minutes_and_only_if_that_was_asked_for() {
    let api = remembering().await;
    let _runs = runs(api.parts.plans.clone());
    let refused = api.post("/v1/topics/orders/plans", r#"{"action":"redrive","undoable":true}"#).await;
    assert_eq!(refused.problem().0, 400);
    fill(&api, "a-", 3).await;
    let plan = planned(&api, json!({ "action": "cancel" })).await;
    started(&api, &plan, json!({})).await;
    let plan = seen(&api, &plan, |plan| plan["state"] == "done").await;
    assert!(plan["undo"].is_null());
    assert!(refusal(&api, &plan).await.contains("undoable"));
    fill(&api, "b-", 3).await;
    let plan = removed(&api, json!({ "action": "cancel" })).await;
    api.advance("10m");
    assert_eq!(api.get(&path(&plan, "")).await.json()["undo"]["state"], "over");
    assert!(refusal(&api, &plan).await.contains("more than ten minutes ago"));
    assert_eq!(scheduled(&api).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_does_not_remember_says_before_anything_is_done_that_it_cannot_be_taken_back() {
    let api = TestApi::with_orders().await;
    let _runs = runs(api.parts.plans.clone());
    fill(&api, "a-", 3).await;
    let ask = json!({ "action": "cancel", "undoable": true });
    let draft = planned(&api, ask.clone()).await;
    assert_eq!(draft["undo"]["state"], "impossible");
    assert!(draft["undo"]["why_not"].as_str().unwrap().contains("\"remember\""), "{draft}");
    let plan = removed(&api, ask).await;
    assert_eq!((&plan["counts"]["done"], &plan["undo"]["kept"]), (&json!(3), &json!(0)));
    assert!(refusal(&api, &plan).await.contains("10m or more"));
    assert_eq!(scheduled(&api).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_another_node_keeps_is_put_back_by_it_and_lost_with_it() {
    let api = remembering().await;
    fill(&api, "a-", 5).await;
    let running = runs(node(&api, "far"));
    let plan = removed(&api, json!({ "action": "cancel" })).await;
    assert_eq!(plan["undo"]["node"], "far");
    let own = runs(api.parts.plans.clone());
    let undo = taken_back(&api, &plan).await;
    assert_eq!((&undo["state"], &undo["restored"], scheduled(&api).await), (&json!("done"), &json!(5), 5));
    own.abort();
    let plan = removed(&api, json!({ "action": "cancel" })).await;
    running.abort();
    let _own = runs(api.parts.plans.clone());
    assert_eq!(api.post(&path(&plan, "/undo"), "{}").await.status, 200);
    assert_eq!(api.delete(&path(&plan, "")).await.problem().0, 409, "a plan that is taken back is not forgotten");
    api.advance("2m");
    let plan = seen(&api, &plan, |plan| plan["undo"]["state"] == "lost").await;
    assert_eq!((&plan["undo"]["restored"], scheduled(&api).await), (&json!(0), 0));
    assert!(refusal(&api, &plan).await.contains("\"far\""));
}

#[tokio::test(start_paused = true)]
async fn purged_dead_letters_are_put_back_as_they_were() {
    let api = remembering().await;
    let _runs = runs(api.parts.plans.clone());
    assert_eq!(api.enqueue(r#"[{"id":"a","payload":"x"},{"id":"b","headers":{"k":"v"}}]"#).await.status, 200);
    let claim = api.post("/v1/topics/orders/claim", r#"{"max":2}"#).await.json();
    let receipts: Vec<&Value> = claim["messages"].as_array().unwrap().iter().map(|one| &one["receipt"]).collect();
    let nack = json!({ "receipts": receipts, "dead": true, "reason": "no such customer" });
    assert_eq!(api.post("/v1/topics/orders/nack", &nack.to_string()).await.status, 200);
    let dead = async || {
        let mut page = api.get("/v1/topics/orders/dead").await.json()["messages"].clone();
        page.as_array_mut().unwrap().sort_by_key(|letter| letter["id"].to_string());
        page
    };
    let before = dead().await;
    assert_eq!(before.as_array().unwrap().len(), 2);
    let plan = removed(&api, json!({ "action": "purge" })).await;
    assert_eq!(dead().await, json!([]));
    assert_eq!(taken_back(&api, &plan).await["restored"], json!(2));
    assert_eq!(dead().await, before);
}
