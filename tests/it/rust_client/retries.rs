//! What the client for Rust sends again, through a network that cuts, loses, delays and repeats.

use std::time::Duration;

use duetime_client::{Answer, Claim, Client, ClientError, Due, NewMessage, Placed};
use duetime_testkit::servers::Fault;
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::rig::{LATER, List, Rig, TOPIC, answer, busy, message, quick};
use super::seen;

const HTML: (&str, &str) = ("content-type", "text/html");
const JSON: (&str, &str) = ("content-type", "application/json");
const PROBLEM: (&str, &str) = ("content-type", "application/problem+json");
/// 2030-01-01T00:00:00Z
const IN_2030: i64 = 1_893_456_000_000;

fn told(placed: &Placed) -> (&str, bool) {
    (&placed.outcome, placed.repeated)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enqueue_whose_answer_is_lost_is_sent_again_and_stored_once() {
    let rig = Rig::made(0, json!({})).await;
    rig.fault("/messages", Fault::CutAnswer);
    let nameless = NewMessage::new("x").due(LATER);
    let placed = rig.client.enqueue(TOPIC, &nameless).await.unwrap();
    assert_eq!(told(&placed), ("scheduled", true), "nobody else has the id that was made for it");
    rig.fault("/messages", Fault::CutAnswer);
    let many = rig.client.enqueue_many(TOPIC, &[nameless.clone(), message("own").due(LATER)]).await.unwrap();
    let many: Vec<(&str, bool)> = many.iter().map(|one| told(one.done().unwrap())).collect();
    assert_eq!(many, [("scheduled", true), ("duplicate", true)]);
    assert_eq!(rig.requests("/messages").len(), 4);
    assert_eq!(rig.topic().await.scheduled, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_an_enqueue_with_an_own_id_is_a_duplicate_that_says_so() {
    let rig = Rig::made(0, json!({})).await;
    rig.fault("/messages", Fault::CutAnswer);
    let first = rig.client.enqueue(TOPIC, &message("order-1").due(LATER)).await.unwrap();
    assert_eq!(told(&first), ("duplicate", true));
    let second = rig.client.enqueue(TOPIC, &message("order-1").due(LATER)).await.unwrap();
    assert_eq!(told(&second), ("duplicate", false));
    rig.fault("/messages", busy());
    let third = rig.client.enqueue(TOPIC, &message("order-3").due(LATER)).await.unwrap();
    assert_eq!(told(&third), ("scheduled", false), "a node that is busy has done nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_network_repeats_is_stored_once() {
    let rig = Rig::made(0, json!({})).await;
    rig.proxy.fault(Method::POST, "/messages", Fault::Repeat, 2);
    rig.client.enqueue(TOPIC, &NewMessage::new("x").due(LATER)).await.unwrap();
    let many = vec![NewMessage::new("x").due(LATER); 10];
    rig.client.enqueue_many(TOPIC, &many).await.unwrap();
    assert_eq!(rig.topic().await.scheduled, 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_and_a_node_that_is_busy_are_tried_again() {
    let rig = Rig::made(0, json!({})).await;
    let of_a_balancer = [answer(502, &[HTML], json!({})), answer(503, &[JSON], json!({"message": "no upstream"}))];
    let slow_down = answer(429, &[PROBLEM, ("retry-after", "0")], json!({"code": "rate_limited", "detail": "x"}));
    for fault in [Fault::Cut, busy(), slow_down].into_iter().chain(of_a_balancer) {
        rig.fault("/messages", fault);
    }
    let placed = rig.client.enqueue(TOPIC, &message("a").due(LATER)).await.unwrap();
    assert_eq!(placed.outcome, "scheduled");
    let faulted: Vec<bool> = rig.requests("/messages").iter().map(|seen| seen.is_faulted).collect();
    assert_eq!(faulted, [true, true, true, true, true, false]);
    for fault in [Fault::Cut, busy()] {
        rig.proxy.fault(Method::PUT, "/v1/topics/new", fault, 1);
    }
    let (made, _) = rig.client.put_topic("new", &serde_json::Map::new()).await.unwrap();
    assert_eq!(made.name, "new");
    rig.proxy.fault(Method::GET, "/v1/topics", busy(), 2);
    assert_eq!((rig.client.topic("new").await.unwrap().name, rig.client.topics().await.unwrap().len()), (made.name, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_asked_to_come_back_after_its_time_for_retries_ends_at_once() {
    let rig = Rig::made(0, json!({})).await;
    let client = rig.client.clone().retrying(Duration::from_secs(30));
    for (kind, asked) in [(PROBLEM, "60"), (HTML, "61"), (HTML, "99999999999999999999999")] {
        let body = json!({"code": "busy", "detail": "come back", "status": 503});
        rig.fault("/messages", answer(503, &[kind, ("retry-after", asked)], body));
        let before = rig.requests("/messages").len();
        let error = client.enqueue(TOPIC, &message("a")).await.unwrap_err();
        assert_eq!(error.problem().unwrap().retry_after, Some(asked.parse().unwrap_or(86_400)), "{error}");
        assert_eq!(rig.requests("/messages").len(), before + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_word_of_the_node_decides_whether_a_request_is_sent_again() {
    let rig = Rig::made(0, json!({})).await;
    let problem = |status: u16, code: &str, retryable: bool| {
        answer(status, &[PROBLEM], json!({"code": code, "detail": "x", "status": status, "retryable": retryable}))
    };
    rig.fault("/messages", problem(503, "shard_lost", false));
    let refused = rig.client.enqueue(TOPIC, &message("a").due(LATER)).await.unwrap_err();
    assert_eq!((refused.is_retryable(), refused.problem().unwrap().retryable), (false, false), "{refused:?}");
    assert!(refused.is_passing(), "a consumer goes on, for an operator may cure it");
    assert_eq!(rig.requests("/messages").len(), 1);
    rig.fault("/messages", problem(507, "of_a_newer_node", true));
    let placed = rig.client.enqueue(TOPIC, &message("a").due(LATER)).await.unwrap();
    assert_eq!((told(&placed), rig.requests("/messages").len()), (("scheduled", true), 3), "it may have been done");
    let client = rig.client.clone().retrying(Duration::ZERO);
    for (status, kind) in [(429, HTML), (503, JSON)] {
        rig.fault("/messages", answer(status, &[kind], json!({"message": "slow down"})));
        let of_a_balancer = client.enqueue(TOPIC, &message("b")).await.unwrap_err();
        assert!(of_a_balancer.problem().unwrap().retryable, "{of_a_balancer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_waits_out_each_503_whoever_cures_it() {
    let rig = Rig::made(0, json!({})).await;
    let lost = json!({"code": "shard_lost", "detail": "x", "status": 503, "retryable": false});
    rig.fault("/claim", answer(503, &[PROBLEM], lost));
    rig.fault("/claim", answer(403, &[PROBLEM], json!({"code": "forbidden", "detail": "x", "retryable": false})));
    let ended = rig.consume(quick(), |_| async {}).task.await.unwrap().unwrap_err();
    assert_eq!((&*ended.problem().unwrap().code, rig.requests("/claim").len()), ("forbidden", 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balancer_that_is_asked_too_often_says_when_to_come_back_also_by_a_date() {
    let rig = Rig::made(0, json!({})).await;
    // By the clock of the balancer, whatever this machine's is.
    let dates = [("date", "Tue, 01 Jan 2030 00:00:00 GMT"), ("retry-after", "Tue, 01 Jan 2030 00:00:02 GMT")];
    for headers in [&[HTML, ("retry-after", "2")][..], &[HTML, dates[0], dates[1]]] {
        rig.fault("/messages", answer(429, headers, json!("slow down")));
        let begun = tokio::time::Instant::now();
        rig.client.enqueue(TOPIC, &NewMessage::new("x").due(LATER)).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    assert_eq!(rig.requests("/messages").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_failed_after_its_acks_says_when_to_come_back() {
    let rig = Rig::made(0, json!({})).await;
    let busy = json!({"code": "busy", "detail": "come back", "status": 503, "retryable": true});
    let body = json!({"messages": [], "results": [{"outcome": "ok", "id": "a"}], "error": busy});
    rig.fault("/claim", answer(200, &[JSON, ("retry-after", "7")], body));
    let claimed = rig.client.claim(TOPIC, &Claim { ack: vec!["a".to_owned()], ..Claim::default() }).await.unwrap();
    assert_eq!(claimed.error.unwrap().retry_after, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn items_and_then_requests_that_fail_are_sent_again_for_the_time_of_one_call() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Most of the time is over when the item fails, and then the requests fail.
    let serve = tokio::spawn(async move {
        let item = json!({"results": [{"error": {"code": "busy", "detail": "x", "retryable": true, "index": 0}}]});
        let busy = json!({"code": "busy", "detail": "come back", "status": 503, "retryable": true});
        for at in 0.. {
            let (mut socket, _) = listener.accept().await.unwrap();
            assert!(socket.read(&mut [0; 4096]).await.unwrap() > 0);
            if at == 0 {
                let_pass(Duration::from_millis(4_500), Because::Fault).await;
            }
            let (status, kind, body) = if at == 0 { ("200", JSON.1, &item) } else { ("503", PROBLEM.1, &busy) };
            let body = body.to_string();
            let length = body.len();
            let head =
                format!("content-type: {kind}\r\ncontent-length: {length}\r\nretry-after: 1\r\nconnection: close");
            socket.write_all(format!("HTTP/1.1 {status} x\r\n{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
        }
    });
    let client = Client::new(&url, None).unwrap().retrying(Duration::from_millis(7_500));
    let begun = tokio::time::Instant::now();
    let error = client.ack(TOPIC, &["a".to_owned()]).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, "busy");
    duetime_testkit::in_time!(begun.elapsed() < Duration::from_millis(10_500), "{:?}", begun.elapsed());
    serve.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_error_is_returned_when_the_time_for_retries_is_over() {
    let rig = Rig::made(0, json!({})).await;
    let client = rig.client.clone().retrying(Duration::ZERO);
    rig.fault("/messages", busy());
    let error = client.enqueue(TOPIC, &message("a")).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, "busy");
    rig.fault("/messages", Fault::CutAnswer);
    let error = client.enqueue(TOPIC, &message("a")).await.unwrap_err();
    assert!(matches!(error, ClientError::Lost { changes: true, .. }), "{error:?}");
    let nobody = Client::new("http://127.0.0.1:1", None).unwrap();
    let error = nobody.enqueue(TOPIC, &message("a")).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_id_of_a_request_is_the_same_for_all_tries_and_its_errors_name_it() {
    let rig = Rig::made(0, json!({})).await;
    let client = rig.client.clone().request_id("shop-1");
    rig.fault("/messages", busy());
    client.enqueue(TOPIC, &message("a").due(LATER)).await.unwrap();
    let sent = rig.requests("/messages");
    assert_eq!(sent.iter().map(|request| request.header("x-request-id")).collect::<Vec<_>>(), ["shop-1"; 2]);
    let refused = client.enqueue("nowhere", &message("a")).await.unwrap_err();
    assert_eq!(refused.request_id(), Some("shop-1"));
    assert!(refused.to_string().ends_with(" (unknown_topic, request shop-1)"), "{refused}");
    rig.fault("/messages", Fault::CutAnswer);
    let lost = client.clone().retrying(Duration::ZERO).enqueue(TOPIC, &message("b")).await.unwrap_err();
    assert!(lost.request_id() == Some("shop-1") && lost.to_string().ends_with("; request shop-1"), "{lost}");
    let Answer::Refused(item) = client.cancel_many(TOPIC, &[String::new()]).await.unwrap().remove(0) else {
        panic!("an empty id is refused");
    };
    assert!(item.error.to_string().ends_with(", request shop-1)"), "{}", item.error);
    for strange in ["", "shop 1", "a\nb", "\u{e9}", &"x".repeat(65)] {
        rig.client.clone().request_id(strange).message(TOPIC, "a").await.unwrap();
        assert_eq!(rig.requests("/messages/a").last().unwrap().header("x-request-id"), "", "{strange:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_lost_once_leaves_open_whether_it_was_done_and_the_error_says_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Reads one request and is gone.
    let once = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        drop(listener);
        socket.read(&mut [0; 4096]).await.unwrap()
    });
    let client = Client::new(&url, None).unwrap().retrying(Duration::from_secs(1));
    let error = client.enqueue(TOPIC, &message("a")).await.unwrap_err();
    assert!(once.await.unwrap() > 0);
    assert!(matches!(error, ClientError::Lost { changes: true, .. }), "{error:?}");
    assert!(error.to_string().contains("whether it was done is not known"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_returned_at_once() {
    let rig = Rig::new().await;
    let error = rig.client.enqueue(TOPIC, &message("a")).await.unwrap_err();
    assert_eq!(error.problem().unwrap().code, "unknown_topic");
    assert_eq!(rig.requests("/messages").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_whose_answer_is_lost_says_that_it_may_have_been_done() {
    let rig = Rig::made(0, json!({})).await;
    for id in ["order-1", "order-2", "order-3"] {
        rig.client.enqueue(TOPIC, &message(id).due(LATER)).await.unwrap();
    }
    let version = rig.client.message(TOPIC, "order-3").await.unwrap().version.unwrap();
    rig.proxy.fault(Method::DELETE, "/messages/order-1", Fault::CutAnswer, 1);
    rig.proxy.fault(Method::DELETE, "/messages/order-3", Fault::CutAnswer, 1);
    rig.fault("/cancel", Fault::CutAnswer);
    let one = rig.client.cancel(TOPIC, "order-1").await.unwrap();
    let three = rig.client.cancel_if(TOPIC, "order-3", &version).await.unwrap();
    let nobody = rig.client.cancel(TOPIC, "nobody").await.unwrap();
    let many = rig.client.cancel_many(TOPIC, &["order-2".to_owned()]).await.unwrap();
    let told = [&one, &three, many[0].done().unwrap(), &nobody].map(|found| (&*found.outcome, found.repeated));
    assert_eq!(told, [("unknown", true), ("unknown", true), ("unknown", true), ("unknown", false)]);
    assert_eq!(rig.topic().await.scheduled, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_whose_answer_is_lost_is_sent_again_and_gives_the_receipt_that_settles() {
    let rig = Rig::made(1, json!({})).await;
    rig.fault("/claim", busy());
    let ask = Claim { wait: Duration::from_secs(5), ..Claim::default() };
    let claimed = rig.client.claim(TOPIC, &ask).await.unwrap();
    let receipts = vec![claimed.messages[0].receipt.clone()];
    rig.fault("/extend", Fault::CutAnswer);
    let extended = rig.client.extend(TOPIC, &receipts, None).await.unwrap().remove(0).into_result().unwrap();
    assert_eq!((&*extended.outcome, extended.repeated), ("ok", false));
    let acked = rig.client.ack(TOPIC, &[extended.receipt.unwrap()]).await.unwrap().remove(0).into_result().unwrap();
    assert_eq!(acked.outcome, "ok");
    assert_eq!(rig.requests("/extend").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_failed_for_a_passing_reason_are_sent_again_alone() {
    let rig = Rig::made(0, json!({})).await;
    let failed =
        json!({"id": "b", "error": {"code": "store_unavailable", "detail": "x", "retryable": true, "index": 1}});
    let refused = json!({"id": "c", "error": {"code": "invalid_id", "detail": "x", "retryable": false, "index": 2}});
    let stored = json!({"id": "a", "outcome": "scheduled", "shard": 0});
    rig.fault("/messages", answer(200, &[JSON], json!({"results": [stored, failed, refused]})));
    let messages = ["a", "b", "c"].map(|id| message(id).due(LATER));
    let mut results = rig.client.enqueue_many(TOPIC, &messages).await.unwrap();
    let refused = results.pop().unwrap().into_result().unwrap_err();
    assert_eq!((&*refused.code, refused.index), ("invalid_id", 2));
    let told: Vec<(&str, bool)> = results.iter().map(|one| told(one.done().unwrap())).collect();
    assert_eq!(told, [("scheduled", false), ("scheduled", true)], "the failed one may have been stored before");
    let again = rig.requests("/messages")[1].json();
    assert_eq!((again.as_array().unwrap().len(), &again[0]["id"]), (1, &json!("b")));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_that_changes_something_says_until_when_it_is_waited_for() {
    let rig = Rig::made(0, json!({})).await;
    let client = &rig.client;
    client.put_topic(TOPIC, &serde_json::Map::new()).await.unwrap();
    client.enqueue(TOPIC, &message("a").due(LATER)).await.unwrap();
    client.enqueue_many(TOPIC, &[message("b").due(LATER)]).await.unwrap();
    client.reschedule(TOPIC, "a", LATER).await.unwrap();
    client.message(TOPIC, "a").await.unwrap();
    client.cancel(TOPIC, "a").await.unwrap();
    client.cancel_many(TOPIC, &["b".to_owned()]).await.unwrap();
    client.claim(TOPIC, &Claim::default()).await.unwrap();
    client.pause_topic(TOPIC, None).await.unwrap();
    let ask = duetime_client::BulkAsk { action: "cancel".to_owned(), ..duetime_client::BulkAsk::default() };
    let plan = client.plan_bulk(TOPIC, &ask).await.unwrap();
    let _ = client.start_bulk(TOPIC, &plan.id, duetime_client::BulkStart::default()).await;
    let _ = client.stop_bulk(TOPIC, &plan.id).await;
    let _ = client.forget_bulk(TOPIC, &plan.id).await;
    client.delete_topic(TOPIC, true).await.unwrap();
    let all = rig.requests("");
    assert!(all.len() >= 14, "{}", all.len());
    for request in all {
        let says = !request.header("duetime-not-after").is_empty();
        assert_eq!(says, request.method != Method::GET, "{} {}", request.method, request.path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_its_time_is_not_carried_out() {
    let rig = Rig::made(0, json!({})).await;
    let client = rig.client.clone().retrying(Duration::ZERO).timeout(Duration::from_millis(400));
    rig.fault("/messages", Fault::Late(Duration::from_secs(1)));
    let error = client.enqueue(TOPIC, &message("a").due(LATER)).await.unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error:?}");
    seen("the late request is answered", async || rig.requests("/messages")[0].status.is_some()).await;
    assert_eq!(rig.requests("/messages")[0].status, Some(412));
    assert!(rig.find("a").await.is_none());
    rig.fault("/messages", Fault::Delay(Duration::from_secs(30)));
    let error = client.enqueue(TOPIC, &message("b").due(LATER)).await.unwrap_err();
    assert!(error.to_string().contains("time is up"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_none_of_a_node_is_named() {
    let rig = Rig::made(0, json!({})).await;
    let looks_like_one = json!({"id": "a", "outcome": "scheduled", "shard": 0});
    rig.fault("/messages", answer(200, &[HTML], looks_like_one));
    let error = rig.client.enqueue(TOPIC, &message("a")).await.unwrap_err();
    assert!(matches!(error, ClientError::Foreign { .. }), "{error:?}");
    assert_eq!(rig.requests("/messages").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_json_that_is_no_nodes_is_no_success() {
    let rig = Rig::made(0, json!({})).await;
    let refusals = [401, 404, 500].map(|status| (status, json!({"message": "Unauthorized"})));
    let successes =
        [json!({"status": "ok"}), json!({"results": [null]}), json!([]), json!(null)].map(|body| (200, body));
    let ids = ["a".to_owned()];
    for (status, body) in refusals.into_iter().chain(successes) {
        let before = rig.requests("").len();
        for path in ["/messages", "/claim", "/ack", "/cancel"] {
            rig.fault(path, answer(status, &[JSON], body.clone()));
        }
        rig.proxy.fault(Method::GET, "/messages/a", answer(status, &[JSON], body.clone()), 1);
        rig.proxy.fault(Method::PUT, "/v1/topics/new", answer(status, &[JSON], body.clone()), 1);
        let errors = [
            rig.client.enqueue(TOPIC, &message("a")).await.unwrap_err(),
            rig.client.claim(TOPIC, &Claim::default()).await.unwrap_err(),
            rig.client.ack(TOPIC, &ids).await.unwrap_err(),
            rig.client.cancel_many(TOPIC, &ids).await.unwrap_err(),
            rig.client.message(TOPIC, "a").await.unwrap_err(),
            rig.client.put_topic("new", &serde_json::Map::new()).await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, ClientError::Foreign { .. }), "{status}, {body}: {error:?}");
        }
        assert_eq!(rig.requests("").len(), before + 6, "none is sent again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_is_made_up_for_by_the_date_of_the_node() {
    let rig = Rig::made(0, json!({})).await;
    let late = answer(412, &[PROBLEM, ("date", "Tue, 01 Jan 2030 00:00:00 GMT")], json!({"code": "x", "detail": "x"}));
    rig.proxy.fault(Method::POST, "/messages", late, 2);
    let client = rig.client.clone().timeout(Duration::from_secs(10));
    let error = client.enqueue(TOPIC, &message("a")).await.unwrap_err();
    assert_eq!(error.problem().unwrap().status, 412, "a second one is an error");
    let all = rig.requests("/messages");
    assert_eq!(all.len(), 2);
    let end: i64 = all[1].header("duetime-not-after").parse().unwrap();
    assert!((end - IN_2030 - 10_000).abs() < 5_000, "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_answered_line_by_line_and_one_bad_message_takes_no_other_along() {
    let rig = Rig::made(0, json!({})).await;
    let line = |n: usize| {
        let id = if n == 700 { "a\u{1}".to_owned() } else { format!("m-{n}") };
        Ok::<_, std::io::Error>(format!("{}\n", json!({"id": id, "payload": n, "delay": "1h"})))
    };
    let lines = futures::stream::iter((0..1_200).map(line));
    let mut placements = rig.client.enqueue_ndjson(TOPIC, lines).await.unwrap();
    let mut got = 0;
    while let Some(answer) = placements.next().await.unwrap() {
        match answer {
            Answer::Done(placed) => assert_eq!(placed.id, format!("m-{got}")),
            Answer::Refused(refused) => {
                assert_eq!((refused.error.line, &*refused.error.code), (Some(701), "invalid_id"))
            }
        }
        got += 1;
    }
    assert_eq!((got, rig.topic().await.scheduled), (1_200, 1_199));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_is_lost_or_stored_twice_while_the_node_restarts() {
    let mut rig = Rig::made(0, json!({})).await;
    let outcomes: List<String> = List::default();
    let producers: Vec<_> = (0..3)
        .map(|_| {
            let (client, outcomes) = (rig.client.clone(), outcomes.clone());
            tokio::spawn(async move {
                for _ in 0..100 {
                    let due = Due::In(Duration::from_secs(3600));
                    let placed = client.enqueue(TOPIC, &NewMessage::new("x").due(due)).await.unwrap();
                    outcomes.lock().push(placed.outcome);
                }
            })
        })
        .collect();
    seen("some are stored", async || outcomes.lock().len() > 60).await;
    rig.node.kill();
    rig.node.start_again().await;
    for producer in producers {
        producer.await.unwrap();
    }
    assert!(outcomes.lock().iter().all(|outcome| outcome == "scheduled"), "{:?}", outcomes.lock());
    assert_eq!(rig.topic().await.scheduled, 300);
}
