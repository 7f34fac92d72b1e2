//! Messages from the command line: scheduled, looked at, moved, cancelled.

use duetime_testkit::servers::{Node, RedisServer};

use super::{PROGRAM, node, to, to_with_input};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_scheduled_looked_at_moved_and_cancelled() {
    let node = node().await;
    to(&node, &["topic", "create", "orders"]).done();
    let args = ["enqueue", "orders", "--id", "o 1/ä", "--delay", "1h", "--payload", "close", "--header", "k=v"];
    assert!(to(&node, &args).done().out.contains("scheduled, due"));
    to(&node, &args).refused(1, &["there already", "--replace"]);
    let again = to(&node, &[&args[..], &["--replace", "--json"]].concat()).done().json();
    assert_eq!(again["outcome"], "replaced");
    let kept = to(&node, &[&args[..], &["--keep", "earliest"]].concat()).done().out;
    assert!(kept.contains("kept, due"), "{kept}");
    let got = to(&node, &["get", "orders", "o 1/ä", "--json"]).done().json();
    assert_eq!((&got["payload"], &got["headers"]["k"]), (&"close".into(), &"v".into()));
    assert!(to(&node, &["get", "orders", "o 1/ä"]).done().out.contains("k: v"));
    to(&node, &["get", "orders", "nope"]).refused(1, &["nope"]);
    to(&node, &[&args[..], &["--replace", "--max-attempts", "2"]].concat()).done();
    let got = to(&node, &["get", "orders", "o 1/ä"]).done().out;
    assert!(got.contains("0 of 2, its own number"), "{got}");
    assert!(to(&node, &["explain", "orders", "o 1/ä"]).done().out.contains("0 of 2"));
    to(&node, &[&args[..], &["--replace", "--visibility-timeout", "5m"]].concat()).done();
    let got = to(&node, &["get", "orders", "o 1/ä"]).done().out;
    assert!(got.contains("5m, its own"), "{got}");
    assert!(to(&node, &["explain", "orders", "o 1/ä"]).done().out.contains("5m, of the message"));
    to(&node, &[&args[..], &["--replace", "--visibility-timeout", "25h"]].concat()).refused(1, &["100ms to 24h"]);
    to(&node, &[&args[..], &["--max-attempts", "0"]].concat()).refused(2, &["--max-attempts", "1..=99"]);
    let found = to(&node, &["find", "o 1/ä", "--json"]).done().json();
    assert_eq!((&found["messages"][0]["topic"], &found["scanned"]), (&"orders".into(), &1.into()));
    let none = to(&node, &["find", "nope"]);
    assert!(none.status == 1 && none.out.contains("no message of this id"), "{}", none.out);
    assert!(to(&node, &["explain", "orders", "o 1/ä"]).done().out.contains("Due at"));
    let explained = to(&node, &["explain", "orders", "o 1/ä", "--json"]).done().json();
    assert!(
        explained["file"].as_str().unwrap().ends_with("duetime.db") && explained.get("key").is_none(),
        "{explained}"
    );
    let moved = to(&node, &["reschedule", "orders", "o 1/ä", "--at", "2030-01-31T12:00:00Z", "--json"]).done().json();
    assert_eq!(moved["due_at"], 1_896_091_200_000_i64);
    assert_eq!(to(&node, &["reschedule", "orders", "nope", "--delay", "1s"]).status, 1);
    let cancelled = to(&node, &["cancel", "orders", "o 1/ä", "nope", "--json"]);
    assert_eq!(cancelled.status, 1, "one of them was not there");
    assert_eq!(cancelled.json()["results"][0]["outcome"], "cancelled");
    assert_eq!(cancelled.json()["results"][1]["outcome"], "unknown");
    to(&node, &["enqueue", "nope", "--delay", "1s"]).refused(1, &["nope"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_looks_like_an_option_is_acted_on_and_never_obeyed() {
    let node = node().await;
    to(&node, &["topic", "create", "t"]).done();
    for id in ["--all", "-", "--node=http://127.0.0.1:1", "=", "plain"] {
        let id_is = format!("--id={id}");
        to(&node, &["enqueue", "t", &id_is, "--delay", "1h"]).done();
        let found = to(&node, &["get", "--json", "--", "t", id]).done().json();
        assert_eq!(found["id"], id);
    }
    let refused = to(&node, &["cancel", "--", "t", "\u{202e}nobody\u{1b}[2J"]);
    assert!(refused.status == 1 && !refused.err.contains(['\u{202e}', '\u{1b}']), "{:?}", refused.err);
    for id in ["--all", "-", "--node=http://127.0.0.1:1", "="] {
        to(&node, &["cancel", "--", "t", id]).done();
    }
    assert_eq!(to(&node, &["topic", "get", "t", "--json"]).done().json()["scheduled"], 1);
    // Seconds are not taken for milliseconds.
    to(&node, &["enqueue", "t", "--at", "1795492282"]).refused(2, &["is it in seconds?"]);
    to(&node, &["claim", "t", "--wait", "30"]).refused(2, &["30s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_come_from_text_files_and_standard_input() {
    let node = node().await;
    to(&node, &["topic", "create", "t"]).done();
    let file = node.folder().join("payload");
    std::fs::write(&file, [0xff, 0x00]).unwrap();
    to(&node, &["enqueue", "t", "--id", "f", "--delay", "1h", "--payload", &format!("@{}", file.display())]).done();
    assert_eq!(to(&node, &["get", "t", "f", "--json"]).done().json()["payload_base64"], "/wA=");
    to_with_input(&node, &["enqueue", "t", "--id", "i", "--delay", "1h", "--payload", "-"], "from input").done();
    assert_eq!(to(&node, &["get", "t", "i", "--json"]).done().json()["payload"], "from input");
    to(&node, &["enqueue", "t", "--payload", "@/does/not/exist"]).refused(1, &["/does/not/exist"]);
    to_with_input(&node, &["cancel", "t", "--stdin"], "f\ni\n").done();
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_names_the_key_and_slot_that_redis_has() {
    let redis = RedisServer::start().await;
    let node = Node::start(PROGRAM, &redis.url(), "").await;
    to(&node, &["topic", "create", "orders", "--shards", "4"]).done();
    to(&node, &["enqueue", "orders", "--id", "a", "--delay", "1h", "--payload", "x"]).done();
    let explained = to(&node, &["explain", "orders", "a", "--json"]).done().json();
    let key = explained["key"].as_str().expect("the store is Redis");
    assert!(redis.cli(&["ZSCORE", key, "a"]).trim().parse::<f64>().is_ok(), "{explained}");
    assert!(explained.get("file").is_none(), "{explained}");
    let shards = to(&node, &["shards", "get", "orders", "--json"]).done().json();
    let shard = &shards["shards"][explained["shard"].as_u64().unwrap() as usize];
    assert_eq!(shard["slot"], explained["slot"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_repeats_is_given_a_rule_and_shows_it() {
    let node = node().await;
    to(&node, &["topic", "create", "orders"]).done();
    let poll = ["enqueue", "orders", "--id", "poll", "--every", "1h", "--times", "24", "--missed", "once"];
    assert!(to(&node, &poll).done().out.contains("poll scheduled, due"));
    let read = to(&node, &["get", "orders", "poll", "--json"]).done().json();
    let rule = &read["repeat"];
    assert_eq!((&rule["every"], &rule["times"], &rule["missed"]), (&"1h".into(), &24.into(), &"once".into()), "{read}");
    let due = read["due_at"].as_i64().unwrap();
    assert_eq!(rule["next_at"], due + 3_600_000, "{read}");
    let cron = ["enqueue", "orders", "--id", "report", "--cron", "0 9 * * MON-FRI", "--time-zone", "Europe/Berlin"];
    let until = [&cron[..], &["--until", "2030-01-31T12:00:00Z", "--delay", "5m"]].concat();
    to(&node, &until).done();
    let read = to(&node, &["get", "orders", "report", "--json"]).done().json();
    let rule = &read["repeat"];
    assert_eq!((&rule["cron"], &rule["time_zone"]), (&"0 9 * * MON-FRI".into(), &"Europe/Berlin".into()), "{read}");
    assert_eq!(rule["until"], 1_896_091_200_000_i64, "{read}");
    let shown = to(&node, &["get", "orders", "report"]).done().out;
    assert!(shown.contains("0 9 * * MON-FRI") && shown.contains("Europe/Berlin"), "{shown}");
    let again = |args: &[&str]| to(&node, &[&["enqueue", "orders"], args].concat());
    again(&["--every", "1h", "--cron", "0 9 * * *"]).refused(2, &["--every", "--cron"]);
    again(&["--every", "1h", "--time-zone", "UTC"]).refused(1, &["repeat.time_zone", "leave it out"]);
    again(&["--times", "3"]).refused(1, &["--every or --cron"]);
    again(&["--every", "1ms"]).refused(1, &["repeat.every", "10 years"]);
    again(&["--cron", "0 0 30 2 *"]).refused(1, &["repeat.cron", "no time that will ever be"]);
    again(&["--cron", "0 9 * * *", "--time-zone", "Berlin"]).refused(1, &["repeat.time_zone", "Europe/Berlin"]);
    let cancelled = to(&node, &["cancel", "orders", "poll", "report", "--json"]).done().json();
    assert_eq!(cancelled["results"][1]["outcome"], "cancelled", "it ends the series: {cancelled}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watermark_of_a_topic_says_what_holds_it_back_and_is_waited_for() {
    let node = node().await;
    to(&node, &["topic", "create", "orders"]).done();
    to(&node, &["watermark", "orders"]).refused(1, &["has no watermark", "watermark = true"]);
    to(&node, &["topic", "create", "bills", "--watermark", "true"]).done();
    let free = to(&node, &["watermark", "bills", "--json"]).done().json();
    assert!(free["watermark"].as_i64().is_some() && free.get("held_by").is_none(), "{free}");
    let placed = to(&node, &["enqueue", "bills", "--id", "bill-1", "--json"]).done().json();
    let until = (placed["due_at"].as_i64().unwrap() + 1).to_string();
    let held = to(&node, &["watermark", "bills", "--until", &until, "--wait", "1s"]);
    assert_eq!(held.status, 1, "{}", held.out);
    assert!(held.out.contains("done before") && held.out.contains("bill-1 of shard"), "{}", held.out);
    assert!(held.out.contains("waits to be claimed; it was due at"), "{}", held.out);
    let claimed = to(&node, &["claim", "bills", "--wait", "20s", "--json"]).done().json();
    let held = to(&node, &["watermark", "bills"]).done().out;
    assert!(held.contains("is in flight until"), "{held}");
    to(&node, &["ack", "bills", claimed["messages"][0]["receipt"].as_str().unwrap()]).done();
    let reached = to(&node, &["watermark", "bills", "--until", &until, "--wait", "20s", "--json"]).done().json();
    assert_eq!(reached["reached"], true, "{reached}");
    to(&node, &["watermark", "bills", "--wait", "1s"]).refused(2, &["--until"]);
}
