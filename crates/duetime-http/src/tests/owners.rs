//! Who had a shard before.

use serde_json::json;

use super::{NOW_MS, TestApi};

#[tokio::test]
async fn who_had_a_shard_since_when_and_why_is_shown_with_what_is_not_known() {
    let api = TestApi::with_orders().await;
    let past = api.get("/v1/topics/orders/shards/0/owners").await.json();
    let changes = json!([
        {"at": NOW_MS + 6_000, "owner": "n1", "reason": "lease_ended"},
        {"at": NOW_MS + 5_000, "reason": "lease_ended"},
        {"at": NOW_MS, "owner": "n2", "reason": "found"},
    ]);
    let all = json!({"index": 0, "node": "n1", "mode": "solo", "since": NOW_MS, "changes": changes, "forgotten": true});
    assert_eq!(past, all);
    let none = api.get("/v1/topics/orders/shards/1/owners").await.json();
    assert_eq!(none, json!({"index": 1, "node": "n1", "mode": "solo", "since": NOW_MS, "changes": []}));
}

#[tokio::test]
async fn a_shard_that_there_is_not_is_no_shard_without_a_past() {
    let api = TestApi::with_orders().await;
    let asked = async |path: &str| api.get(path).await.problem();
    assert_eq!(asked("/v1/topics/orders/shards/4096/owners").await, (404, "unknown_shard".to_owned()));
    assert_eq!(asked("/v1/topics/orders/shards/first/owners").await, (400, "invalid_path".to_owned()));
    assert_eq!(asked("/v1/topics/nope/shards/0/owners").await, (404, "unknown_topic".to_owned()));
}
