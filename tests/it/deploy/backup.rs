//! `deploy/redis/backup` and `deploy/redis/restore`, on a server and on a cluster, while a node takes messages.

use std::path::{Path, PathBuf};

use duetime_testkit::servers::{Node, RedisCluster, RedisOptions, RedisServer};
use reqwest::Method;
use serde_json::{Value, json};

use super::{PROGRAM, command, done, ran};
use crate::test_node;

/// Messages of one request.
const MESSAGES: usize = 300;

async fn enqueue(node: &Node, prefix: &str) {
    let messages: Vec<Value> = (0..MESSAGES).map(|n| json!({"id": format!("{prefix}{n}"), "delay": "1h"})).collect();
    let answer = test_node::done(node, Method::POST, "orders/messages", &Value::from(messages)).await;
    assert!(answer["results"].as_array().unwrap().iter().all(|one| one["outcome"] == "scheduled"), "{answer}");
}

async fn scheduled(node: &Node) -> usize {
    let topic = test_node::done(node, Method::GET, "orders", &Value::Null).await;
    usize::try_from(topic["scheduled"].as_u64().unwrap()).unwrap()
}

/// Makes a topic with messages and copies `server` while more come; answers the copy, and how many came in all.
async fn copied_beside_a_load(node: &Node, server: &str, folder: &Path) -> (PathBuf, usize) {
    test_node::done(node, Method::PUT, "orders", &json!({"shards": 8})).await;
    enqueue(node, "before-").await;
    let copy = folder.join("copy");
    let mut script = command("deploy/redis/backup");
    script.arg(&copy).arg(server);
    let copying = tokio::task::spawn_blocking(move || done(&mut script));
    let mut came = MESSAGES;
    while !copying.is_finished() {
        enqueue(node, &format!("beside-{came}-")).await;
        came += MESSAGES;
    }
    let said = copying.await.unwrap();
    assert!(said.contains("keys") && copy.join("manifest").is_file(), "{said}");
    (copy, came)
}

/// What a copy holds is found, and what it holds can be cancelled.
async fn check_restored(node: &Node, came: usize) {
    let there = scheduled(node).await;
    assert!((MESSAGES..=came).contains(&there), "{there} of {came}, {MESSAGES} of them before the copy");
    let ids: Vec<String> = (0..MESSAGES).map(|n| format!("before-{n}")).collect();
    let answer = test_node::done(node, Method::POST, "orders/cancel", &json!({"ids": ids})).await;
    assert!(answer["results"].as_array().unwrap().iter().all(|one| one["outcome"] == "cancelled"), "{answer}");
}

fn lose_data(server: &RedisServer) {
    std::fs::remove_dir_all(server.folder().join("appendonlydir")).expect("the server had an append-only file");
}

fn restore(copy: &Path, server: &RedisServer) -> (bool, String) {
    ran(command("deploy/redis/restore").arg(copy).arg(server.folder()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_its_data_is_restored_from_a_copy_made_while_it_served() {
    let mut server = RedisServer::start_with(RedisOptions { append_only: true, ..RedisOptions::default() }).await;
    let mut node = Node::start(PROGRAM, &server.url(), "").await;
    let folder = tempfile::tempdir().unwrap();
    let (copy, came) = copied_beside_a_load(&node, &format!("127.0.0.1:{}", server.port()), folder.path()).await;
    let (well, said) = ran(command("deploy/redis/backup").arg(&copy).arg(format!("127.0.0.1:{}", server.port())));
    assert!(!well && said.contains("name a new folder"), "{said}");

    node.kill();
    server.stop().await;
    let file = copy.join("server.rdb");
    let (well, said) = restore(&file, &server);
    assert!(!well && said.contains("move its data away first"), "{said}");
    lose_data(&server);
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let (well, said) = restore(&file, &server);
    assert!(!well && said.contains("sha256"), "{said}");
    std::fs::write(&file, whole).unwrap();
    let (well, said) = restore(&file, &server);
    assert!(well, "{said}");

    server.start_again().await;
    node.start_again().await;
    check_restored(&node, came).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_lost_its_data_is_restored_master_by_master() {
    let mut cluster = RedisCluster::start(3, 0).await;
    let mut node = Node::start(PROGRAM, &cluster.url(), "").await;
    let folder = tempfile::tempdir().unwrap();
    let any = format!("127.0.0.1:{}", cluster.nodes[1].port());
    let (copy, came) = copied_beside_a_load(&node, &any, folder.path()).await;
    let ids: Vec<String> = (0..3).map(|at| cluster.id(at)).collect();
    node.kill();
    for (server, id) in cluster.nodes.iter_mut().zip(ids) {
        server.stop().await;
        lose_data(server);
        let (well, said) = restore(&copy.join(format!("{id}.rdb")), server);
        assert!(well, "{said}");
    }
    for server in &mut cluster.nodes {
        server.start_again().await;
    }
    cluster.settled().await;
    node.start_again().await;
    check_restored(&node, came).await;
}
