//! Several messages in one request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::http::sign::Signer;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The messages in a request.
fn items(hit: &Hit) -> Vec<Value> {
    serde_json::from_slice(&hit.body).unwrap()
}

fn ids(hit: &Hit) -> Vec<String> {
    items(hit).iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

fn payload(item: &Value) -> Vec<u8> {
    use base64::Engine as _;
    match (item["payload"].as_str(), item["payload_base64"].as_str()) {
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(text)) => base64::engine::general_purpose::STANDARD.decode(text).unwrap(),
        both => panic!("{both:?}"),
    }
}

struct BatchWorld(World);

#[async_trait]
impl SinkWorld for BatchWorld {
    fn sink(&self) -> Arc<dyn Sink> {
        self.0.sink()
    }

    async fn received(&mut self) -> Option<Vec<Received>> {
        let posts: Vec<Hit> = self.0.hook.hits().into_iter().filter(|hit| hit.method == "POST").collect();
        let taken = posts[self.0.seen..].iter().filter(|hit| !is_refused(hit));
        let of_hit = |hit: &Hit| {
            let topic = hit.header("duetime-topic").to_owned();
            let one = move |item: Value| Received {
                topic: topic.clone(),
                id: item["id"].as_str().unwrap().to_owned(),
                delivery_id: item["delivery_id"].as_str().unwrap().to_owned(),
                attempt: item["attempt"].to_string(),
                due_at: item["due_at"].to_string(),
                payload: payload(&item),
            };
            items(hit).into_iter().map(one).collect::<Vec<_>>()
        };
        let new = taken.flat_map(of_hit).collect();
        self.0.seen = posts.len();
        Some(new)
    }

    fn refused_message(&self) -> Option<Delivery> {
        self.0.refused_message()
    }

    fn verdict_within(&self) -> Duration {
        self.0.verdict_within()
    }

    async fn behind_proxy(&mut self) -> Option<(Arc<dyn Sink>, Proxy)> {
        let proxy = Proxy::before(self.0.hook.port()).await;
        let url = format!("http://127.0.0.1:{}/in", proxy.port());
        let text =
            format!("[hook]\ntype = \"http\"\nurl = {url:?}\nallow = [\"127.0.0.1\"]\ntimeout = \"5m\"\nbatch = 10");
        let named = serde_json::from_value(json!({"name": "hook"})).unwrap();
        let sink = registry(&text, Arc::new(WallClock)).unwrap().bind(&message("x", "").topic, &named).unwrap();
        Some((sink, proxy))
    }

    async fn take_down(&mut self) -> bool {
        self.0.take_down().await
    }

    async fn bring_back(&mut self) {
        self.0.bring_back().await;
    }
}

fn is_refused(hit: &Hit) -> bool {
    hit.body.windows(9).any(|part| part == b"refuse me")
}

#[tokio::test]
async fn a_webhook_that_takes_several_messages_keeps_the_contract_of_a_sink() {
    let hook = Webhook::start();
    hook.answer(|hit| Answer::status(if is_refused(hit) { 400 } else { 204 }));
    let sink = sink(&hook, &format!("headers = {{ authorization = \"Bearer {CANARY}\" }}\nbatch = 10"));
    run_all(&mut BatchWorld(World { hook, sink, seen: 0 })).await;
}

#[tokio::test]
async fn a_batch_is_an_array_of_its_messages_and_is_signed_as_one() {
    let hook = Webhook::start();
    let sink = sink(&hook, &format!("batch = 100\nsigning_secrets = [{SECRET:?}]"));
    let pairs = [("shop", "42"), ("duetime-id", "forged"), ("duetime-dead-from", "paid")];
    let headers = Headers::new(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec()).unwrap();
    let sent = [Delivery { headers, ..message("a", "{\"n\": 1}") }, message("b", b"\xff".to_vec())];
    assert_eq!(sink.deliver(&sent).await, [Verdict::Accepted, Verdict::Accepted]);
    let hits = hook.hits();
    let [hit] = &hits[..] else { panic!("{} requests", hits.len()) };
    let expected = json!([
        {
            "id": "a", "delivery_id": sent[0].delivery_id(), "due_at": 1_800_000_000_123_i64, "attempt": 1,
            "headers": {"shop": "42", "duetime-dead-from": "paid"}, "payload": "{\"n\": 1}",
        },
        {
            "id": "b", "delivery_id": sent[1].delivery_id(), "due_at": 1_800_000_000_123_i64, "attempt": 1,
            "headers": {}, "payload_base64": "/w==",
        },
    ]);
    assert_eq!(json!(items(hit)), expected);
    let said = ["content-type", "duetime-batch", "duetime-topic", "duetime-id"].map(|name| hit.header(name));
    assert_eq!(said, ["application/json", "2", "conformance", ""]);
    let signer = Signer::new(&[duetime_settings::Secret::new(SECRET)]).unwrap();
    let sent_at = hit.header("webhook-timestamp").parse().unwrap();
    let signature = signer.sign(hit.header("webhook-id"), sent_at, &hit.body).unwrap();
    assert_eq!(hit.header("webhook-signature"), signature);
    // One alone has the same format.
    assert_eq!(sink.deliver(&sent[..1]).await, [Verdict::Accepted]);
    let alone = hook.hits().pop().unwrap();
    assert_eq!((ids(&alone), alone.header("webhook-id")), (vec!["a".to_owned()], &*sent[0].delivery_id()));
}

#[tokio::test]
async fn only_the_message_that_is_to_blame_is_refused_with_its_batch() {
    let hook = Webhook::start();
    hook.answer(|hit| Answer::status(if is_refused(hit) { 422 } else { 200 }));
    let sink = sink(&hook, "batch = 100");
    let payloads: Vec<&str> = (0..40).map(|n| if n == 7 { "refuse me" } else { "fine" }).collect();
    let sent: Vec<Delivery> = (0..40).map(|n| message(&format!("m{n}"), payloads[n])).collect();
    let verdicts = sink.deliver(&sent).await;
    let refused = |verdict: &Verdict| matches!(verdict, Verdict::Refused { .. });
    let taken = verdicts.iter().filter(|verdict| **verdict == Verdict::Accepted).count();
    assert!(refused(&verdicts[7]) && taken == 39, "{verdicts:?}");
    assert_eq!(hook.hits().len(), 41);
    // A message that was tried before goes by itself.
    hook.forget();
    let again: Vec<Delivery> =
        (0..4).map(|n| Delivery { attempt: 1 + n % 2, ..message(&format!("m{n}"), "fine") }).collect();
    sink.deliver(&again).await;
    assert_eq!(hook.hits().len(), 4);
}

#[tokio::test]
async fn at_most_once_each_message_is_sent_alone_and_a_refusal_loses_no_other() {
    let hook = Webhook::start();
    hook.answer(|hit| Answer::status(if is_refused(hit) { 422 } else { 200 }));
    let sink = sink(&hook, "batch = 100");
    let payload = |n: usize| if n == 7 { "refuse me" } else { "fine" };
    let sent: Vec<Delivery> =
        (0..40).map(|n| Delivery { at_most_once: true, ..message(&format!("m{n}"), payload(n)) }).collect();
    let verdicts = sink.deliver(&sent).await;
    let taken = verdicts.iter().filter(|verdict| **verdict == Verdict::Accepted).count();
    assert!(matches!(&verdicts[7], Verdict::Refused { .. }) && taken == 39, "{verdicts:?}");
    let mut had: Vec<String> = hook.hits().iter().flat_map(ids).collect();
    assert_eq!((hook.hits().len(), had.len()), (40, 40), "in the format of a batch, and none a second time");
    had.sort();
    had.dedup();
    assert_eq!(had.len(), 40);
}

#[tokio::test]
async fn an_answer_judges_each_message_by_itself() {
    let hook = Webhook::start();
    let sink = sink(&hook, "batch = 100\nmax_response = \"1KiB\"");
    let sent = ["a", "b", "c", "d"].map(|id| message(id, ""));
    let results = json!({"results": [
        {"id": "a", "status": "ack"}, {"id": "b", "status": "retry", "retry_after": 5}, {"id": "c", "status": "dead"},
    ]});
    let word = |verdict: &Verdict| match verdict {
        Verdict::Accepted => "accepted",
        Verdict::Rejected { .. } => "rejected",
        Verdict::Retry { after: Some(after), .. } if after.as_secs() == 5 => "later",
        Verdict::Retry { .. } => "retry",
        other => panic!("{other:?}"),
    };
    let mut said = BTreeMap::new();
    let too_long = json!({"results": [], "text": "x".repeat(2000)}).to_string();
    for (name, status, body) in [
        ("200", 200, results.to_string()),
        ("207", 207, results.to_string()),
        ("202", 202, results.to_string()),
        ("none", 200, json!({"ok": true}).to_string()),
        ("text", 200, "thanks".to_owned()),
        ("207 none", 207, "thanks".to_owned()),
        ("too long", 200, too_long),
        ("wrong", 200, json!({"results": [{"id": "a", "status": "done"}]}).to_string()),
    ] {
        hook.answer(move |_| Answer::status(status).body(body.clone()));
        said.insert(name, sink.deliver(&sent).await.iter().map(word).collect::<Vec<_>>());
    }
    let each = vec!["accepted", "later", "rejected", "retry"];
    let (all, none) = (vec!["accepted"; 4], vec!["retry"; 4]);
    let expected = [
        ("200", each.clone()),
        ("207", each),
        ("202", all.clone()),
        ("none", all.clone()),
        ("text", all),
        ("207 none", none.clone()),
        ("too long", none.clone()),
        ("wrong", none),
    ];
    assert_eq!(said, BTreeMap::from(expected));
}

#[tokio::test]
async fn settings_that_mean_nothing_beside_a_batch_are_refused() {
    let hook = Webhook::start();
    let refused = |more: &str, topic: Value| sink_with(&hook, more, topic).unwrap_err();
    for wrong in ["batch = 0", "batch = 101"] {
        assert!(refused(wrong, json!({})).contains("batch must be 1 to 100"), "{wrong}");
    }
    for wrong in ["content_type = \"text/plain\"", "header_prefix = \"x-\""] {
        assert!(refused(&format!("batch = 2\n{wrong}"), json!({})).contains("leave content_type"), "{wrong}");
    }
    assert!(refused("batch = 2", json!({"content_type": "text/plain"})).contains("leave it out"));
}
