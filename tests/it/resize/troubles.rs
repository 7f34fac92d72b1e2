//! What cannot be done is refused with a remedy; what cannot go on says why, and goes on when it can.

use std::time::Duration;

use duetime_testkit::history::FaultKind::StoreStalled;
use duetime_testkit::in_time;
use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::load::Load;
use super::nodes::TestCluster;
use super::{SETTINGS, SHARED};

/// Longest wait for a thing that takes a moment.
const MOMENTS: Duration = Duration::from_secs(60);

async fn refused(load: &Load, shards: Value) -> (StatusCode, String) {
    let answer = load.api.told(Method::PUT, "/shards", json!({ "shards": shards })).await;
    let (status, body) = answer.expect("answered");
    (status, body.to_string())
}

/// Waits until the change says why it does not go on.
pub async fn until_blocked(load: &Load, why: &str) {
    let mut last = Value::Null;
    let blocked = async {
        loop {
            if let Some((_, now)) = load.api.told(Method::GET, "/shards", json!({})).await {
                // Where shards cannot be counted, the refusal says it.
                let told = now["resize"]["blocked"].as_str().or(now["detail"].as_str());
                if told.is_some_and(|told| told.contains(why)) {
                    return;
                }
                last = now;
            }
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
    };
    let in_time = tokio::time::timeout(MOMENTS, blocked).await;
    in_time!(in_time.is_ok(), "it does not say {why:?}: {last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_destination_is_full_says_so_and_goes_on_when_there_is_room() {
    let redis = RedisServer::start().await;
    let settings = format!("{SETTINGS}messages_per_second = 300\n");
    let cluster = TestCluster::start(&redis.url(), SHARED, 2, "8", &settings, 600, 0).await;
    cluster.load.insist(12).await;
    cluster.load.history.fault_begins(StoreStalled);
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    until_blocked(&cluster.load, "full").await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    cluster.load.history.fault_ends(StoreStalled);
    cluster.load.until_resized(12, MOMENTS).await;
    cluster.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_deleted_in_the_middle_of_a_change_is_gone_with_every_shard() {
    let redis = RedisServer::start().await;
    let settings = format!("{SETTINGS}messages_per_second = 100\n");
    let cluster = TestCluster::start(&redis.url(), SHARED, 2, "8", &settings, 300, 0).await;
    cluster.load.insist(31).await;
    let deleting = cluster.load.api.told(Method::DELETE, "?force=true", json!({}));
    let asking = refused(&cluster.load, json!(5));
    let (deleted, (status, told)) = tokio::join!(deleting, asking);
    let (gone, text) = deleted.unwrap_or((StatusCode::NO_CONTENT, Value::Null));
    assert!(gone.is_success(), "{text}");
    assert!(matches!(status.as_u16(), 202 | 404), "{status} {told}");
    let (status, told) = refused(&cluster.load, json!(12)).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{told}");
    let empty = async {
        // For a day each place remembers which life was deleted there.
        while redis.cli(&["KEYS", "duetime:*:orders:*"]).lines().any(|key| !key.ends_with(":meta")) {
            let_pass(Duration::from_millis(100), Because::AskedAgain).await;
        }
    };
    let in_time = tokio::time::timeout(MOMENTS, empty).await;
    in_time!(in_time.is_ok(), "{}", redis.cli(&["KEYS", "duetime:*:orders:*"]));
}
