//! Nodes of the release before and of this one on one store, through upgrade, resize and downgrade.
//!
//! Where the program of the release before comes from is in `tests/it/versions.rs`.

use std::time::Duration;

use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::{Value, json};

use super::load::Load;
use super::nodes::{TestCluster, config};
use super::{KEPT, PATIENCE, PROGRAM, SETTINGS, SHARED};
use crate::test_node::done;
use crate::versions::{claim, older, settle};

/// Under load by nodes of both versions.
const MIXED: Duration = Duration::from_secs(3);
const MESSAGES: usize = 100;

/// What `writer` schedules is seen, changed, claimed and settled by `reader`, and the other way round.
async fn understand_each_other(writer: &Node, reader: &Node, tag: &str) {
    let items = |from: usize, delay: &str| -> Vec<Value> {
        let ids = (from..from + MESSAGES).map(|n| format!("{tag}-{n}"));
        ids.map(|id| json!({"id": id, "delay": delay, "payload": {"of": id}, "headers": {"of": id}})).collect()
    };
    done(writer, Method::POST, "orders/messages", &json!(items(0, "0s"))).await;
    done(writer, Method::POST, "orders/messages", &json!(items(MESSAGES, "1h"))).await;
    let (put_off, cancelled) = (MESSAGES..MESSAGES + MESSAGES / 2, MESSAGES + MESSAGES / 2..2 * MESSAGES);
    for n in put_off {
        done(reader, Method::PATCH, &format!("orders/messages/{tag}-{n}"), &json!({"delay": 0})).await;
    }
    for n in cancelled {
        let gone = done(reader, Method::DELETE, &format!("orders/messages/{tag}-{n}"), &json!({})).await;
        assert_eq!(gone["outcome"], "cancelled", "{gone}");
    }
    let claimed = claim(reader, "orders", MESSAGES + MESSAGES / 2).await;
    for message in &claimed {
        let (id, payload) = (message["id"].as_str().unwrap(), message["payload"].as_str().unwrap());
        assert_eq!((payload, &message["headers"]["of"]), (json!({"of": id}).to_string().as_str(), &json!(id)));
    }
    let (by_writer, by_reader) = claimed.split_at(MESSAGES / 2);
    let (dead, acked) = by_writer.split_at(MESSAGES / 4);
    settle(writer, "orders", "ack", acked).await;
    settle(reader, "orders", "ack", by_reader).await;
    // One attempt was all they had.
    settle(writer, "orders", "nack", dead).await;
    let listed = done(reader, Method::GET, "orders/dead?limit=500", &json!({})).await;
    assert_eq!(listed["messages"].as_array().unwrap().len(), dead.len(), "{listed}");
    done(reader, Method::POST, "orders/dead/redrive", &json!({"all": true})).await;
    // They die again at the other, are counted by who knows the count, and their headers are theirs for both.
    let again = claim(writer, "orders", dead.len()).await;
    settle(writer, "orders", "nack", &again).await;
    done(writer, Method::POST, "orders/dead/redrive", &json!({"all": true})).await;
    let again = claim(reader, "orders", dead.len()).await;
    assert!(again.iter().all(|message| message["headers"]["of"] == message["id"]), "{again:?}");
    let seen = async |node: &Node| {
        let id = again[0]["id"].as_str().unwrap();
        done(node, Method::GET, &format!("orders/messages/{id}"), &json!({})).await
    };
    let counts: Vec<Value> = vec![seen(writer).await["redrives"].clone(), seen(reader).await["redrives"].clone()];
    assert!(counts.contains(&json!(1)), "one of the two redrives was by the node that counts: {counts:?}");
    settle(reader, "orders", "ack", &again).await;
    for node in [writer, reader] {
        let topic = done(node, Method::GET, "orders", &json!({})).await;
        assert_eq!([&topic["scheduled"], &topic["in_flight"], &topic["dead"]], [&json!(0), &json!(0), &json!(0)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_version_writes_the_other_reads_changes_and_settles() {
    let Some(older) = older() else { return };
    let redis = RedisServer::start().await;
    let settings = "[ownership]\nmode = \"round-robin\"\n[topics.orders]\nshards = 8\nretry = { max_attempts = 1 }\n";
    let old = Node::start(older, &redis.url(), &config(0, settings)).await;
    let new = Node::start(PROGRAM, &redis.url(), &config(1, settings)).await;
    understand_each_other(&old, &new, "by-old").await;
    understand_each_other(&new, &old, "by-new").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_upgraded_and_downgraded_one_after_the_other_under_load_and_shards_change_meanwhile() {
    let Some(older) = older() else { return };
    let redis = RedisServer::start().await;
    let mut cluster = TestCluster::start_of(&older, &redis.url(), SHARED, SETTINGS, KEPT).await;
    cluster.becomes(0, PROGRAM).await;
    let_pass(MIXED, Because::Rate).await;
    resized(&cluster.load, 13).await;
    cluster.becomes(1, PROGRAM).await;
    resized(&cluster.load, 5).await;
    cluster.becomes(0, &older).await;
    let_pass(MIXED, Because::Rate).await;
    resized(&cluster.load, 9).await;
    cluster.becomes(1, &older).await;
    let_pass(MIXED, Because::Rate).await;
    cluster.finish().await;
}

async fn resized(load: &Load, shards: u32) {
    load.insist(shards).await;
    load.until_resized(shards, PATIENCE).await;
}
