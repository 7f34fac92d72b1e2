//! Bulk actions.

use std::time::Duration;

use duetime_core::{RecordKind, RecordStore};
use duetime_router::{PlanDeps, Plans};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{TestApi, within};
use crate::PlanAudit;

const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn node(api: &TestApi, name: &str) -> std::sync::Arc<Plans> {
    let parts = &api.parts;
    let watcher = PlanAudit::new(parts.options.audit.clone(), parts.clock.clone());
    Plans::new(PlanDeps::new(parts.router.clone(), api.store.clone(), parts.clock.clone(), watcher, name))
}

pub(super) fn runs(plans: std::sync::Arc<Plans>) -> JoinHandle<()> {
    tokio::spawn(plans.run(CancellationToken::new()))
}

pub(super) async fn fill(api: &TestApi, prefix: &str, count: usize) {
    let batch: Vec<Value> = (0..count).map(|n| json!({ "id": format!("{prefix}{n:03}"), "delay": "1h" })).collect();
    for some in batch.chunks(500) {
        assert_eq!(api.enqueue(&json!(some).to_string()).await.status, 200);
    }
}

pub(super) async fn planned(api: &TestApi, ask: Value) -> Value {
    let answer = api.post("/v1/topics/orders/plans", &ask.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()
}

pub(super) fn path(plan: &Value, rest: &str) -> String {
    format!("/v1/topics/orders/plans/{}{rest}", plan["id"].as_str().unwrap())
}

/// Starts it for as many as were counted.
pub(super) async fn started(api: &TestApi, plan: &Value, ask: Value) {
    let mut ask = ask;
    ask["at_most"] = json!(plan["expected"].as_u64().unwrap().max(1));
    let answer = api.post(&path(plan, "/start"), &ask.to_string()).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["state"]), (200, &json!("running")), "{}", answer.text);
}

pub(super) async fn seen(api: &TestApi, plan: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
    within(PATIENCE, async {
        loop {
            let now = api.get(&path(plan, "")).await.json();
            if wanted(&now) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

pub(super) async fn scheduled(api: &TestApi) -> u64 {
    api.get("/v1/topics/orders").await.json()["scheduled"].as_u64().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_plan_counts_first_and_acts_once_it_is_started() {
    let api = TestApi::with_orders().await;
    fill(&api, "a-", 30).await;
    fill(&api, "b-", 5).await;
    let _runs = runs(api.parts.plans.clone());
    let plan = planned(&api, json!({ "action": "cancel", "prefix": "a-", "per_second": 10_000 })).await;
    assert_eq!(
        (&plan["state"], &plan["expected"], &plan["count_complete"]),
        (&json!("planned"), &json!(30), &json!(true))
    );
    assert_eq!(plan["samples"].as_array().unwrap().len(), 5);
    assert_eq!(scheduled(&api).await, 35, "a plan alone does nothing");
    // Nobody agreed to it: others do not see it, and nobody starts it by accident.
    assert_eq!(api.get("/v1/topics/orders/plans").await.json(), json!({ "plans": [] }));
    let refused = api.post(&path(&plan, "/start"), "{}").await;
    assert_eq!(refused.problem(), (409, "conflict".to_owned()));
    assert!(refused.text.contains("give at_most") && refused.text.contains("30 matched"), "{}", refused.text);
    assert_eq!(api.post(&path(&plan, "/start"), r#"{"at_most":0}"#).await.problem().0, 400);
    started(&api, &plan, json!({})).await;
    let done = seen(&api, &plan, |plan| plan["state"] == "done").await;
    assert_eq!((&done["counts"]["done"], &done["counts"]["failed"]), (&json!(30), &json!(0)));
    assert_eq!(scheduled(&api).await, 5);
    let again = api.post(&path(&plan, "/start"), "{}").await;
    assert_eq!(again.problem(), (409, "conflict".to_owned()));
    let listed = api.get("/v1/topics/orders/plans").await.json();
    assert_eq!(listed["plans"][0]["id"], plan["id"]);
    assert_eq!(api.delete(&path(&plan, "")).await.status, 200);
    assert_eq!(api.get(&path(&plan, "")).await.problem(), (404, "unknown_plan".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_plan_acts_on_as_many_as_were_agreed_to_whatever_comes_later() {
    let api = TestApi::with_orders().await;
    fill(&api, "a-", 60).await;
    let _runs = runs(api.parts.plans.clone());
    let plan = planned(&api, json!({ "action": "cancel", "prefix": "a-", "per_second": 25 })).await;
    started(&api, &plan, json!({})).await;
    seen(&api, &plan, |plan| plan["counts"]["done"].as_u64() > Some(0)).await;
    fill(&api, "a-later", 80).await;
    let done = seen(&api, &plan, |plan| plan["state"] == "done").await;
    assert_eq!((&done["counts"]["done"], &done["at_most"], scheduled(&api).await), (&json!(60), &json!(60), 80));
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_nobody_agreed_to_is_forgotten() {
    let api = TestApi::with_orders().await;
    let draft = planned(&api, json!({ "action": "cancel" })).await;
    let kept = planned(&api, json!({ "action": "cancel" })).await;
    started(&api, &kept, json!({})).await;
    let store: &dyn RecordStore = &*api.store;
    assert_eq!(store.records(RecordKind::Plan).await.unwrap().by_name.len(), 2);
    api.advance("14m");
    assert_eq!(api.get(&path(&draft, "")).await.status, 200);
    api.advance("1m");
    assert_eq!(api.get(&path(&draft, "")).await.problem(), (404, "unknown_plan".to_owned()));
    let late = api.post(&path(&draft, "/start"), r#"{"at_most":1}"#).await;
    assert_eq!(late.problem(), (404, "unknown_plan".to_owned()));
    // Nor does the store keep it.
    let _runs = runs(api.parts.plans.clone());
    seen(&api, &kept, |plan| plan["state"] == "done").await;
    assert_eq!(
        store.records(RecordKind::Plan).await.unwrap().by_name.into_keys().collect::<Vec<_>>(),
        [kept["id"].as_str().unwrap()]
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_reschedule_put_later_is_not_moved_and_counted_again() {
    for smear in ["0s", "5s"] {
        let api = TestApi::with_orders().await;
        assert_eq!(api.put("/v1/topics/orders", &json!({ "smear": smear }).to_string()).await.status, 200);
        fill(&api, "m-", 300).await;
        let _runs = runs(api.parts.plans.clone());
        let due_at = duetime_core::Clock::now(&*api.clock).as_millis() + 7_200_000;
        let ask = json!({ "action": "reschedule", "due_at": due_at, "per_second": 10_000 });
        let plan = planned(&api, ask.clone()).await;
        assert_eq!(plan["expected"], 300);
        started(&api, &plan, json!({})).await;
        let done = seen(&api, &plan, |plan| plan["state"] == "done").await;
        assert_eq!((&done["counts"]["done"], &done["counts"]["unchanged"]), (&json!(300), &json!(0)), "{done}");
        let listed = api.get(&format!("/v1/topics/orders/messages?due_from={due_at}&limit=500")).await.json();
        assert_eq!(listed["messages"].as_array().unwrap().len(), 300);
        assert_eq!(planned(&api, ask).await["expected"], 0, "all of them are due then");
    }
}

#[tokio::test(start_paused = true)]
async fn plans_of_one_topic_take_no_place_from_those_of_another() {
    let api = TestApi::with_orders().await;
    let ask = json!({ "action": "cancel" });
    let kept = planned(&api, ask.clone()).await;
    for topic in 0..6 {
        assert_eq!(api.put(&format!("/v1/topics/greedy-{topic}"), "{}").await.status, 201);
        for _ in 0..20 {
            api.advance("1ms");
            let answer = api.post(&format!("/v1/topics/greedy-{topic}/plans"), &ask.to_string()).await;
            assert_eq!(answer.status, 201, "{}", answer.text);
        }
        let kept = api.store.records(RecordKind::Plan).await.unwrap().by_name;
        let of_it = kept.values().filter(|plan| plan.contains(&format!("greedy-{topic}")));
        assert!(of_it.count() <= 16, "{kept:?}");
    }
    assert_eq!(api.get(&path(&kept, "")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_plan_of_a_topic_that_was_deleted_is_not_started() {
    let api = TestApi::with_orders().await;
    let plan = planned(&api, json!({ "action": "cancel" })).await;
    assert_eq!(api.delete("/v1/topics/orders?force=true").await.status, 200);
    let started = api.post(&path(&plan, "/start"), "{}").await;
    assert_eq!(started.problem(), (404, "unknown_topic".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_redriven_and_purged_by_reason_and_not_those_that_die_later() {
    let api = TestApi::with_orders().await;
    let bury = async |ids: std::ops::Range<usize>, reason: &str| {
        for n in ids {
            api.enqueue(&json!({ "id": format!("d-{n}") }).to_string()).await;
            let claim = api.post("/v1/topics/orders/claim", r#"{"max":1}"#).await.json();
            let nack = json!({ "receipts": [claim["messages"][0]["receipt"]], "dead": true, "reason": format!("{reason} {n}") });
            assert_eq!(api.post("/v1/topics/orders/nack", &nack.to_string()).await.status, 200);
        }
    };
    bury(0..6, "503 after").await;
    bury(6..8, "no such order").await;
    let groups = api.get("/v1/topics/orders/dead/groups").await.json();
    let reason = groups["groups"][0]["reason"].clone();
    let ask = |action: &str| json!({ "action": action, "reason": reason, "per_second": 10_000 });
    let (redrive, purge) = (planned(&api, ask("redrive")).await, planned(&api, json!({ "action": "purge" })).await);
    assert_eq!((&redrive["expected"], &purge["expected"]), (&json!(6), &json!(8)));
    api.advance("1s");
    let _runs = runs(api.parts.plans.clone());
    started(&api, &redrive, json!({})).await;
    let done = seen(&api, &redrive, |plan| plan["state"] == "done").await;
    assert_eq!(done["counts"]["done"], 6);
    bury(8..9, "503 after").await;
    started(&api, &purge, json!({ "per_second": 50 })).await;
    seen(&api, &purge, |plan| plan["state"] == "done").await;
    let left = api.get("/v1/topics/orders/dead").await.json();
    assert_eq!(left["messages"].as_array().unwrap().len(), 1, "what died after the plan was made is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_stopped_does_nothing_more_and_goes_on_where_it_was() {
    let api = TestApi::with_orders().await;
    fill(&api, "m-", 300).await;
    let _runs = runs(api.parts.plans.clone());
    let plan = planned(&api, json!({ "action": "cancel", "per_second": 20 })).await;
    started(&api, &plan, json!({})).await;
    seen(&api, &plan, |plan| plan["counts"]["done"].as_u64() > Some(0)).await;
    assert_eq!(api.delete(&path(&plan, "")).await.problem().0, 409, "a plan that runs is not forgotten");
    assert_eq!(api.post(&path(&plan, "/stop"), "{}").await.status, 200);
    let stopped = seen(&api, &plan, |plan| plan["state"] == "stopped").await;
    let left = scheduled(&api).await;
    assert_eq!(stopped["counts"]["done"].as_u64().unwrap() + left, 300, "{stopped}");
    assert!(left > 0);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(scheduled(&api).await, left, "a plan that was stopped went on");
    started(&api, &plan, json!({ "per_second": 10_000 })).await;
    let done = seen(&api, &plan, |plan| plan["state"] == "done").await;
    assert_eq!((&done["counts"]["done"], scheduled(&api).await), (&json!(300), 0));
}

#[tokio::test(start_paused = true)]
async fn another_node_goes_on_with_a_plan_whose_node_is_gone() {
    let api = TestApi::with_orders().await;
    fill(&api, "m-", 200).await;
    let first = runs(node(&api, "first"));
    let plan = planned(&api, json!({ "action": "due_now", "per_second": 40 })).await;
    started(&api, &plan, json!({})).await;
    // Its own loop was not notified: it looks by itself.
    seen(&api, &plan, |plan| plan["counts"]["done"].as_u64() > Some(0)).await;
    first.abort();
    let _second = runs(node(&api, "second"));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = api.get(&path(&plan, "")).await.json();
    assert_eq!(before["node"], "first", "it is held for a while");
    api.advance("20s");
    let done = seen(&api, &plan, |plan| plan["state"] == "done").await;
    let counts = |name: &str| done["counts"][name].as_u64().unwrap();
    assert_eq!(counts("done") + counts("unrecorded"), 200, "{done}");
    assert_eq!((counts("total"), counts("open")), (200, 0), "{done}");
    assert!(counts("unrecorded") <= 40, "{done}");
    assert_eq!(api.get("/v1/topics/orders").await.json()["due"], 200);
}

#[tokio::test(start_paused = true)]
async fn a_plan_asked_for_wrongly_says_what_to_give() {
    let api = TestApi::with_orders().await;
    for (ask, word) in [
        (json!({}), "action"),
        (json!({ "action": "delete" }), "redrive"),
        (json!({ "action": "redrive", "state": "due" }), "by reason or prefix"),
        (json!({ "action": "cancel", "reason": "x" }), "only dead letters"),
        (
            json!({ "action": "cancel", "due_from": 2_000_000_000_000_i64, "due_to": 2_000_000_000_000_i64 }),
            "after due_from",
        ),
        (json!({ "action": "reschedule" }), "needs it"),
        (json!({ "action": "cancel", "due_at": 2_000_000_000_000_i64 }), "only a reschedule"),
        (json!({ "action": "cancel", "per_second": 0 }), "1 to 10000"),
        (json!({ "action": "cancel", "prefx": "a" }), "prefix"),
    ] {
        let answer = api.post("/v1/topics/orders/plans", &ask.to_string()).await;
        assert_eq!(answer.problem().0, 400, "{ask}");
        assert!(answer.text.contains(word), "{ask}: {}", answer.text);
    }
    assert_eq!(api.post("/v1/topics/nope/plans", r#"{"action":"cancel"}"#).await.problem().0, 404);
    assert_eq!(api.post("/v1/topics/orders/plans/x/start", "{}").await.problem().0, 404);
}
