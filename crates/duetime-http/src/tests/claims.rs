//! Consumers claim, settle, and find dead letters.

use std::time::Duration;

use serde_json::{Value, json};

use super::{TestApi, within};

async fn claim(api: &TestApi, ask: &str) -> Vec<Value> {
    let answer = api.post("/v1/topics/orders/claim", ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["messages"].as_array().unwrap().clone()
}

async fn settle(api: &TestApi, how: &str, body: Value) -> Vec<Value> {
    let answer = api.post(&format!("/v1/topics/orders/{how}"), &body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["results"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_claim_is_acked_once() {
    let api = TestApi::with_orders().await;
    api.enqueue(r#"{"id":"a","delay":"1s","payload":{"n":1}}"#).await;
    assert!(claim(&api, "").await.is_empty());
    api.advance("1s");
    let messages = claim(&api, r#"{"max":10}"#).await;
    let message = &messages[0];
    assert_eq!(
        (&message["id"], &message["payload"], &message["attempt"]),
        (&json!("a"), &json!("{\"n\":1}"), &json!(1))
    );
    let receipt = &message["receipt"];
    let results = settle(&api, "ack", json!({"receipts": [receipt, receipt, "x"]})).await;
    assert_eq!((&results[0]["outcome"], &results[0]["id"]), (&json!("ok"), &json!("a")));
    assert_eq!(results[1]["outcome"], "already");
    assert_eq!(results[2]["error"]["code"], "invalid_receipt");
    let text = api.get("/metrics").await.text;
    assert!(text.contains("duetime_messages_total{event=\"delivered\",topic=\"orders\"} 1"));
    assert!(
        text.contains("duetime_http_requests_total{method=\"POST\",route=\"/v1/topics/{topic}/ack\",status=\"200\"} 1")
    );
    assert!(text.contains("duetime_store_call_seconds_count{op=\"settle\"} 1"));
}

#[tokio::test]
async fn a_nack_tries_again_and_the_last_one_buries() {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"shards":2,"retry":{"max_attempts":2,"jitter":0}}"#).await;
    api.enqueue(r#"{"id":"a"}"#).await;
    let receipt = claim(&api, "").await[0]["receipt"].clone();
    assert_eq!(settle(&api, "nack", json!({"receipts": [receipt], "delay": "5s"})).await[0]["outcome"], "ok");
    api.advance("4999ms");
    assert!(claim(&api, "").await.is_empty());
    api.advance("1ms");
    let second = claim(&api, "").await;
    assert_eq!(second[0]["attempt"], 2);
    assert_eq!(settle(&api, "nack", json!({"receipts": [second[0]["receipt"]]})).await[0]["outcome"], "ok");
    let dead = api.get("/v1/topics/orders/dead").await.json();
    assert_eq!(dead["messages"][0]["id"], "a");
    assert!(dead["messages"][0]["death"]["reason"].as_str().unwrap().contains("attempt 2 of 2"), "{dead}");
    assert_eq!(api.get("/v1/topics/orders").await.json()["dead"], 1);
    let explained = api.get("/v1/topics/orders/messages/a/explain").await.json();
    assert!(explained["next"].as_str().unwrap().starts_with("Dead since"), "{explained}");
    let moved = api.call("PATCH", "/v1/topics/orders/messages/a", "application/json", r#"{"delay":"1ms"}"#).await;
    assert_eq!((moved.problem(), &moved.json()["outcome"]), ((409, "dead".to_owned()), &json!("dead")));
}

#[tokio::test]
async fn a_message_is_tried_as_often_as_it_says_and_its_receipt_knows() {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"shards":1,"retry":{"max_attempts":2,"jitter":0}}"#).await;
    for (id, most) in [("fewer", 1), ("more", 4)] {
        api.enqueue(&json!({"id": id, "max_attempts": most, "expires": "1h", "headers": {"k": "v"}}).to_string()).await;
        let path = format!("/v1/topics/orders/messages/{id}");
        let got = api.get(&path).await.json();
        assert_eq!((&got["max_attempts"], &got["headers"]["k"]), (&json!(most), &json!("v")), "{got}");
        assert_eq!(api.get(&format!("{path}/explain")).await.json()["max_attempts"], most);
        for attempt in 1..=most {
            let claimed = claim(&api, "").await;
            assert_eq!((&claimed[0]["id"], &claimed[0]["attempt"]), (&json!(id), &json!(attempt)), "{claimed:?}");
            assert_eq!(claimed[0]["headers"], json!({"k": "v"}), "as sinks show it");
            let receipt = json!({"receipts": [claimed[0]["receipt"]]});
            let longer = settle(&api, "extend", receipt).await;
            let nack = json!({"receipts": [longer[0]["receipt"]], "delay": 0});
            assert_eq!(settle(&api, "nack", nack).await[0]["outcome"], "ok");
        }
        assert!(claim(&api, "").await.is_empty());
        let dead = api.get(&path).await.json();
        let says = format!("given back by its consumer on attempt {most} of {most}");
        assert_eq!((&dead["state"], &dead["death"]["reason"]), (&json!("dead"), &json!(says)), "{dead}");
    }
    api.enqueue(r#"{"id":"silent"}"#).await;
    assert_eq!(api.get("/v1/topics/orders/messages/silent").await.json().get("max_attempts"), None);
    // They are headers too, of which a message has so many.
    let own = |count: usize| (0..count).map(|n| (format!("duetime-{n}"), json!(""))).collect::<serde_json::Map<_, _>>();
    for (count, status) in [(70, 201), (71, 400)] {
        let full = json!({"max_attempts": 3, "expires": "1h", "headers": own(count)}).to_string();
        let said = api.post("/v1/topics/orders/messages", &full).await;
        assert_eq!(said.status, status, "{}", said.json());
    }
    assert_eq!(api.get("/v1/topics/orders/messages/silent/explain").await.json()["max_attempts"], 2);
    for wrong in [json!(0), json!(100), json!(-1), json!(1.5), json!("3"), json!(true)] {
        let body = json!({"id": "wrong", "max_attempts": wrong}).to_string();
        let refused = api.post("/v1/topics/orders/messages", &body).await;
        assert_eq!(refused.problem(), (400, "invalid_value".to_owned()), "{wrong}");
        assert_eq!(refused.json()["field"], "max_attempts", "{wrong}");
    }
}

#[tokio::test]
async fn a_message_says_how_long_it_is_hidden_and_its_receipt_knows() {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"shards":1,"visibility_timeout":"30s"}"#).await;
    let path = "/v1/topics/orders/messages/own";
    api.enqueue(r#"{"id":"own","visibility_timeout":"1h 30m","max_attempts":3,"headers":{"k":"v"}}"#).await;
    let got = api.get(path).await.json();
    assert_eq!((&got["visibility_timeout"], &got["max_attempts"]), (&json!("1h 30m"), &json!(3)), "{got}");
    assert_eq!(got["headers"]["duetime-visibility"], "5400000");
    let explained = api.get(&format!("{path}/explain")).await.json();
    let from = (&explained["visibility_timeout"], &explained["visibility_from"]);
    assert_eq!(from, (&json!("1h 30m"), &json!("message")), "{explained}");
    let claimed = claim(&api, "").await;
    assert_eq!(claimed[0]["headers"], json!({"k": "v"}), "as sinks show it");
    let hidden_for = async |body: Value| {
        let extended = settle(&api, "extend", body).await;
        let until = api.get(path).await.json()["visible_at"].as_i64().unwrap();
        (extended[0]["receipt"].clone(), (until - super::NOW_MS) / 1_000)
    };
    let (receipt, seconds) = hidden_for(json!({"receipts": [claimed[0]["receipt"]]})).await;
    assert_eq!(seconds, 5_400, "its own again");
    let (receipt, seconds) = hidden_for(json!({"receipts": [receipt], "visibility_timeout": "10s"})).await;
    assert_eq!(seconds, 10, "as asked for");
    let (receipt, seconds) = hidden_for(json!({"receipts": [receipt]})).await;
    assert_eq!(seconds, 5_400, "an extension forgets nothing");
    for _ in 0..2 {
        settle(&api, "nack", json!({"receipts": [receipt], "delay": 0})).await;
    }
    assert_eq!(api.get(path).await.json()["visibility_timeout"], "1h 30m", "for the next try too");
    api.enqueue(r#"{"id":"silent"}"#).await;
    assert_eq!(api.get("/v1/topics/orders/messages/silent").await.json().get("visibility_timeout"), None);
    let explained = api.get("/v1/topics/orders/messages/silent/explain").await.json();
    let from = (&explained["visibility_timeout"], &explained["visibility_from"]);
    assert_eq!(from, (&json!("30s"), &json!("topic")), "{explained}");
    for wrong in [json!("99ms"), json!("24h 1ms"), json!(0), json!(30), json!(1.5), json!("soon"), json!(true)] {
        let body = json!({"id": "wrong", "visibility_timeout": wrong}).to_string();
        let refused = api.post("/v1/topics/orders/messages", &body).await;
        assert_eq!(refused.problem(), (400, "invalid_value".to_owned()), "{wrong}");
        assert_eq!(refused.json()["field"], "visibility_timeout", "{wrong}");
    }
}

#[tokio::test]
async fn deploys_of_consumers_that_release_what_they_have_not_begun_burn_no_attempt() {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"shards":2,"retry":{"max_attempts":3}}"#).await;
    api.enqueue(r#"{"id":"a"}"#).await;
    for _ in 0..5 {
        let claimed = claim(&api, "").await;
        assert_eq!(claimed[0]["attempt"], 1);
        let receipt = &claimed[0]["receipt"];
        let results = settle(&api, "release", json!({"receipts": [receipt, receipt]})).await;
        assert_eq!((&results[0]["outcome"], &results[1]["outcome"]), (&json!("ok"), &json!("already")));
    }
    let counts = api.get("/v1/topics/orders").await.json();
    assert_eq!((&counts["dead"], &counts["in_flight"], &counts["due"]), (&json!(0), &json!(0), &json!(1)), "{counts}");
}

#[tokio::test]
async fn a_consumer_gives_up_a_message_at_once_and_says_why() {
    let api = TestApi::with_orders().await;
    api.enqueue(r#"{"id":"a"}"#).await;
    let receipt = claim(&api, "").await[0]["receipt"].clone();
    let both = json!({"receipts": [receipt], "dead": true, "delay": "1s"}).to_string();
    assert_eq!(api.post("/v1/topics/orders/nack", &both).await.problem(), (400, "invalid_value".to_owned()));
    let long = json!({"receipts": [receipt], "reason": "x".repeat(401)}).to_string();
    assert_eq!(api.post("/v1/topics/orders/nack", &long).await.problem(), (400, "invalid_value".to_owned()));
    let how = json!({"receipts": [receipt], "dead": true, "reason": "no such customer"});
    assert_eq!(settle(&api, "nack", how).await[0]["outcome"], "ok");
    let dead = api.get("/v1/topics/orders/dead").await.json();
    let reason = dead["messages"][0]["death"]["reason"].as_str().unwrap();
    assert_eq!(reason, "given up by its consumer on attempt 1 of 10: no such customer");
    assert_eq!(settle(&api, "ack", json!({"receipts": [receipt]})).await[0]["outcome"], "expired");
}

#[tokio::test]
async fn what_was_cancelled_in_flight_says_so_and_what_is_due_again_has_expired() {
    let api = TestApi::with_orders().await;
    api.enqueue(r#"{"id":"paid"}"#).await;
    api.enqueue(r#"{"id":"slow"}"#).await;
    let claimed = claim(&api, r#"{"max":2}"#).await;
    let receipt = |id: &str| claimed.iter().find(|message| message["id"] == id).unwrap()["receipt"].clone();
    assert_eq!(api.call("DELETE", "/v1/topics/orders/messages/paid", "", "").await.status, 409);
    api.advance("31s");
    assert_eq!(claim(&api, r#"{"max":2}"#).await.len(), 1);
    let how = json!({"receipts": [receipt("paid"), receipt("slow")]});
    for verb in ["ack", "nack", "extend"] {
        let results = settle(&api, verb, how.clone()).await;
        assert_eq!([&results[0]["outcome"], &results[1]["outcome"]], ["cancelled", "expired"], "{verb}");
    }
    let text = api.get("/metrics").await.text;
    assert!(text.contains("duetime_cancels_total{topic=\"orders\",verdict=\"in_flight\"} 1"), "{text}");
}

#[tokio::test]
async fn a_settlement_that_is_sent_again_was_done_already_and_another_one_was_not() {
    let api = TestApi::with_orders().await;
    for id in ["acked", "nacked", "released", "buried"] {
        api.enqueue(&json!({ "id": id }).to_string()).await;
    }
    let claimed = claim(&api, r#"{"max":4}"#).await;
    let how = |id: &str| {
        let receipt = claimed.iter().find(|message| message["id"] == id).unwrap()["receipt"].clone();
        match id {
            "nacked" => ("nack", json!({"receipts": [receipt], "delay": "1h"})),
            "buried" => ("nack", json!({"receipts": [receipt], "dead": true})),
            "released" => ("release", json!({"receipts": [receipt]})),
            _ => ("ack", json!({"receipts": [receipt]})),
        }
    };
    for id in ["acked", "nacked", "released", "buried"] {
        let (verb, body) = how(id);
        assert_eq!(settle(&api, verb, body.clone()).await[0]["outcome"], "ok", "{id}");
        assert_eq!(settle(&api, verb, body).await[0]["outcome"], "already", "{id}");
    }
    let late = settle(&api, "ack", json!({"receipts": how("nacked").1["receipts"]})).await;
    assert_eq!(late[0]["outcome"], "expired", "it will be tried again");
    let late = settle(&api, "nack", how("acked").1).await;
    assert_eq!(late[0]["outcome"], "gone", "it is done");
}

#[tokio::test]
async fn both_receipts_of_an_extended_claim_say_how_it_ended() {
    let api = TestApi::with_orders().await;
    for id in ["acked", "cancelled"] {
        api.enqueue(&json!({ "id": id }).to_string()).await;
    }
    let claimed = claim(&api, r#"{"max":2}"#).await;
    let old = |id: &str| claimed.iter().find(|message| message["id"] == id).unwrap()["receipt"].clone();
    let all = json!({"receipts": [old("acked"), old("cancelled")], "visibility_timeout": "1m"});
    let fresh = settle(&api, "extend", all).await;
    assert_eq!(api.call("DELETE", "/v1/topics/orders/messages/cancelled", "", "").await.status, 409);
    let receipts = [&old("acked"), &fresh[0]["receipt"], &old("cancelled"), &fresh[1]["receipt"]];
    let results = settle(&api, "ack", json!({ "receipts": receipts })).await;
    let words: Vec<&str> = results.iter().map(|result| result["outcome"].as_str().unwrap()).collect();
    assert_eq!(words, ["already", "ok", "cancelled", "cancelled"]);
}

#[tokio::test]
async fn who_lost_the_answer_to_an_extension_goes_on_by_the_old_receipt() {
    let api = TestApi::with_orders().await;
    for id in ["repeated", "acked", "expired"] {
        api.enqueue(&json!({ "id": id }).to_string()).await;
    }
    let claimed = claim(&api, r#"{"max":3,"visibility_timeout":"10s"}"#).await;
    let old = |id: &str| claimed.iter().find(|message| message["id"] == id).unwrap()["receipt"].clone();
    let olds = [old("repeated"), old("acked"), old("expired")];
    api.advance("9s");
    for result in settle(&api, "extend", json!({"receipts": olds, "visibility_timeout": "1m"})).await {
        assert_eq!(result["outcome"], "ok");
    }
    api.advance("50s");
    assert!(claim(&api, "").await.is_empty());
    let repeated = settle(&api, "extend", json!({"receipts": [olds[0]], "visibility_timeout": "1m"})).await;
    assert_eq!(repeated[0]["outcome"], "ok");
    assert_eq!(settle(&api, "ack", json!({"receipts": [olds[1]]})).await[0]["outcome"], "ok");
    api.advance("30s");
    let again = claim(&api, r#"{"max":3}"#).await;
    let ids: Vec<&str> = again.iter().map(|message| message["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["expired"], "one was extended twice, one is done");
    assert_eq!(settle(&api, "ack", json!({"receipts": [olds[2]]})).await[0]["outcome"], "expired", "it is another's");
    assert_eq!(settle(&api, "ack", json!({"receipts": [repeated[0]["receipt"]]})).await[0]["outcome"], "ok");
}

#[tokio::test]
async fn bad_asks_of_consumers_are_refused() {
    let api = TestApi::with_orders().await;
    for (path, body, field) in [
        ("claim", r#"{"max":0}"#, "max"),
        ("claim", r#"{"max":257}"#, "max"),
        ("claim", r#"{"wait":"61s"}"#, "wait"),
        ("claim", r#"{"visibility_timeout":"1ms"}"#, "visibility_timeout"),
        ("claim", r#"{"visibility_timout":"1s"}"#, "visibility_timout"),
        ("ack", r#"{"reciepts":[]}"#, "reciepts"),
        ("nack", r#"{"receipts":[],"delay":"11y"}"#, "delay"),
        ("extend", r#"{"receipts":[],"visibility_timeout":"25h"}"#, "visibility_timeout"),
        ("ack", r#"{}"#, "receipts"),
    ] {
        let refused = api.post(&format!("/v1/topics/orders/{path}"), body).await;
        assert_eq!(refused.problem().0, 400, "{path} {body}");
        assert_eq!(refused.json()["field"], field, "{}", refused.text);
    }
    assert_eq!(api.post("/v1/topics/nope/claim", "").await.problem(), (404, "unknown_topic".to_owned()));
    assert_eq!(api.post("/v1/topics/nope/ack", r#"{"receipts":[]}"#).await.problem().0, 404);
    api.put("/v1/topics/orders", r#"{"sink":{"name":"log"}}"#).await;
    assert_eq!(api.post("/v1/topics/orders/claim", "").await.problem(), (409, "topic_has_sink".to_owned()));
}

#[tokio::test]
async fn a_waiting_claim_ends_when_the_node_drains() {
    let api = TestApi::with_orders().await;
    let waiting = api.post("/v1/topics/orders/claim", r#"{"wait":"60s"}"#);
    let drain = async {
        tokio::task::yield_now().await;
        api.parts.draining.cancel();
    };
    let (answer, ()) = within(Duration::from_secs(30), async { tokio::join!(waiting, drain) }).await;
    assert_eq!(answer.json(), json!({"messages": []}));
}

async fn api_with_dead(count: usize) -> TestApi {
    let api = TestApi::new().await;
    api.put("/v1/topics/orders", r#"{"shards":4,"retry":{"max_attempts":1}}"#).await;
    let messages: Vec<Value> = (0..count).map(|n| json!({"id": format!("d-{n:03}")})).collect();
    api.enqueue(&Value::from(messages).to_string()).await;
    loop {
        let receipts: Vec<Value> = claim(&api, r#"{"max":256}"#).await.iter().map(|m| m["receipt"].clone()).collect();
        if receipts.is_empty() {
            break;
        }
        settle(&api, "nack", json!({"receipts": receipts})).await;
    }
    assert_eq!(api.get("/v1/topics/orders").await.json()["dead"], count);
    api
}

#[tokio::test]
async fn dead_letters_are_paged_over_all_shards_without_loss_or_repetition() {
    let api = api_with_dead(250).await;
    let mut ids = Vec::new();
    let mut path = "/v1/topics/orders/dead?limit=7".to_owned();
    loop {
        let page = api.get(&path).await.json();
        let messages = page["messages"].as_array().unwrap();
        assert!(messages.len() <= 7);
        ids.extend(messages.iter().map(|m| m["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/topics/orders/dead?limit=7&cursor={next}");
    }
    ids.sort();
    assert_eq!(ids, (0..250).map(|n| format!("d-{n:03}")).collect::<Vec<_>>());
    for bad in ["limit=0", "limit=501", "cursor=x", "page=2", "limit=1&limit=2"] {
        assert_eq!(api.get(&format!("/v1/topics/orders/dead?{bad}")).await.problem().0, 400, "{bad}");
    }
}

#[tokio::test]
async fn dead_letters_are_redriven_and_purged_by_id_or_all() {
    let api = api_with_dead(200).await;
    let some = api.post("/v1/topics/orders/dead/redrive", r#"{"ids":["d-000","x",""]}"#).await.json();
    assert_eq!(some["done"], 1);
    let outcomes: Vec<&Value> = some["results"].as_array().unwrap().iter().map(|r| &r["outcome"]).collect();
    assert_eq!(outcomes, ["redriven", "unknown", "refused"]);
    let purged = api.call("DELETE", "/v1/topics/orders/dead", "application/json", r#"{"ids":["d-001"]}"#).await;
    assert_eq!(purged.json()["results"][0]["outcome"], "purged");
    let all = api.post("/v1/topics/orders/dead/redrive", r#"{"all":true}"#).await.json();
    assert_eq!((&all["done"], &all["more"]), (&json!(198), &json!(false)));
    assert_eq!(api.drain().await.len(), 199);
    for (bad, field) in [("", "ids"), ("{}", "ids"), (r#"{"ids":[],"all":true}"#, "ids"), (r#"{"al":true}"#, "al")] {
        let refused = api.post("/v1/topics/orders/dead/redrive", bad).await;
        assert_eq!((refused.problem().0, &refused.json()["field"]), (400, &json!(field)), "{bad}");
    }
    let api = api_with_dead(20).await;
    let all = api.call("DELETE", "/v1/topics/orders/dead", "application/json", r#"{"all":true}"#).await.json();
    assert_eq!(all["done"], 20);
    assert_eq!(api.get("/v1/topics/orders").await.json()["dead"], 0);
}

#[tokio::test]
async fn who_replaces_what_somebody_holds_is_answered_so() {
    let api = TestApi::with_orders().await;
    let replace = r#"{"id":"a","delay":"1h","on_conflict":"replace"}"#;
    api.enqueue(r#"{"id":"a"}"#).await;
    let of_nobody = api.enqueue(replace).await;
    assert_eq!((of_nobody.status.as_u16(), &of_nobody.json()["in_flight"]), (200, &Value::Null));
    api.enqueue(r#"{"id":"a","on_conflict":"replace"}"#).await;
    let claim = api.post("/v1/topics/orders/claim", "{}").await.json();
    assert_eq!(claim["messages"][0]["id"], "a");
    let held = api.enqueue(replace).await;
    assert_eq!((held.status.as_u16(), &held.json()["outcome"]), (200, &json!("replaced")));
    assert_eq!(held.json()["in_flight"], true);
}

#[tokio::test]
async fn dead_letters_are_grouped_by_what_their_reasons_have_in_common() {
    let api = TestApi::with_orders().await;
    assert_eq!(api.put("/v1/topics/orders", r#"{"retry":{"max_attempts":1}}"#).await.status, 200);
    let bury = async |ids: std::ops::Range<u32>, reason: &dyn Fn(u32) -> String| {
        for n in ids {
            api.enqueue(&json!({"id": format!("m-{n}")}).to_string()).await;
            let claim = api.post("/v1/topics/orders/claim", "{}").await.json();
            let nack = json!({"receipts": [claim["messages"][0]["receipt"]], "reason": reason(n)}).to_string();
            assert_eq!(api.post("/v1/topics/orders/nack", &nack).await.status, 200);
            api.advance("1s");
        }
    };
    bury(0..12, &|n| format!("shop said 503 after {n} ms for order \"o-{n}\"")).await;
    bury(12..15, &|_| "connection refused".to_owned()).await;
    let answer = api.get("/v1/topics/orders/dead/groups?samples=2").await.json();
    assert_eq!((&answer["scanned"], &answer["complete"]), (&json!(15), &json!(true)));
    let groups = answer["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2, "{answer}");
    assert_eq!((&groups[0]["count"], &groups[1]["count"]), (&json!(12), &json!(3)));
    assert_eq!((&groups[0]["last_day"], &groups[1]["last_day"]), (&json!(12), &json!(3)));
    assert!(groups[0]["reason"].as_str().unwrap().contains("shop said # after # ms for order \"…\""), "{answer}");
    assert!(groups[1]["example"].as_str().unwrap().contains("connection refused"));
    assert_eq!(groups[0]["ids"].as_array().unwrap().len(), 2);
    // Read in parts: each letter is in one of them.
    let (mut counts, mut next) = (std::collections::HashMap::<String, u64>::new(), String::new());
    loop {
        let part = api.get(&format!("/v1/topics/orders/dead/groups?limit=4{next}")).await.json();
        assert!(part["scanned"].as_u64().unwrap() <= 4 && part["complete"] == false, "{part}");
        for group in part["groups"].as_array().unwrap() {
            *counts.entry(group["reason"].as_str().unwrap().to_owned()).or_default() +=
                group["count"].as_u64().unwrap();
        }
        let Some(cursor) = part["next"].as_str() else { break };
        next = format!("&cursor={cursor}");
    }
    assert_eq!(counts.len(), 2);
    assert!(groups.iter().all(|group| counts[group["reason"].as_str().unwrap()] == group["count"].as_u64().unwrap()));
    assert_eq!(api.get("/v1/topics/orders/dead/groups?limit=10001").await.problem().0, 400);
    // The letters of one group, as it has the reason or as a letter has it, page by page.
    let listed = async |reason: &str| {
        let (mut ids, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!(
                "/v1/topics/orders/dead?limit=2&reason={}{next}",
                percent_encoding::utf8_percent_encode(reason, percent_encoding::NON_ALPHANUMERIC)
            );
            let page = api.get(&path).await.json();
            let found = page["messages"].as_array().unwrap();
            assert!(found.len() <= 2, "{page}");
            ids.extend(found.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
            let Some(cursor) = page["next"].as_str() else { return ids };
            next = format!("&cursor={cursor}");
        }
    };
    for (group, count) in [(&groups[0], 12), (&groups[1], 3)] {
        for reason in ["reason", "example"] {
            let ids = listed(group[reason].as_str().unwrap()).await;
            assert_eq!(ids.len(), count, "{ids:?}");
            let samples = group["ids"].as_array().unwrap();
            assert!(samples.iter().all(|id| ids.iter().any(|listed| listed == id)), "{ids:?}");
        }
    }
    assert_eq!(listed("another").await, [""; 0]);
    let at = |field: &str| groups[0][field].as_i64().unwrap();
    assert_eq!(at("last") - at("first"), 11_000);
    let redriven_before = |answer: &Value| answer["groups"][1]["redriven_before"].clone();
    assert_eq!(redriven_before(&answer), 0);
    // One of them is redriven, and dies again of the same.
    assert_eq!(api.post("/v1/topics/orders/dead/redrive", r#"{"ids":["m-13"]}"#).await.json()["done"], 1);
    let claim = api.post("/v1/topics/orders/claim", "{}").await.json();
    let nack = json!({"receipts": [claim["messages"][0]["receipt"]], "reason": "connection refused"}).to_string();
    assert_eq!(api.post("/v1/topics/orders/nack", &nack).await.status, 200);
    assert_eq!(redriven_before(&api.get("/v1/topics/orders/dead/groups").await.json()), 1);
    for path in ["messages/m-13", "messages/m-13/explain"] {
        assert_eq!(api.get(&format!("/v1/topics/orders/{path}")).await.json()["redrives"], 1, "{path}");
    }
    let page = api.get("/v1/topics/orders/dead?limit=100").await.json();
    let redrives = |message: &Value| message["redrives"].as_u64().unwrap();
    assert_eq!(page["messages"].as_array().unwrap().iter().map(redrives).sum::<u64>(), 1);
    let plan = api.post("/v1/topics/orders/plans", r#"{"action":"redrive"}"#).await.json();
    assert_eq!((&plan["expected"], &plan["redriven_before"]), (&json!(15), &json!(1)));
    let plan = api.post("/v1/topics/orders/plans", r#"{"action":"cancel"}"#).await.json();
    assert_eq!(plan["redriven_before"], Value::Null, "it is of live messages");
    api.advance("25h");
    let later = api.get("/v1/topics/orders/dead/groups").await.json();
    assert_eq!((&later["groups"][0]["last_day"], &later["groups"][0]["count"]), (&json!(0), &json!(12)));
    assert_eq!(api.get("/v1/topics/orders/dead/groups?samples=0").await.problem().0, 400);
    assert_eq!(api.get("/v1/topics/nope/dead/groups").await.problem().0, 404);
}
