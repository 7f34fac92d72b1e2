//! A producer that writes straight to Redis, beside nodes and without them.

use std::time::Duration;

use duetime_core::{Timestamp, max_attempts};
use duetime_direct::{
    Direct, DirectError, Due, Edited, EnqueueOutcome, Expiry, NewMessage, RedisStoreConfig, RouteError,
};
use duetime_testkit::servers::{Node, RedisServer};
use duetime_testkit::wait::{Because, let_pass};
use reqwest::Method;
use serde_json::{Value, json};

use crate::test_node::{ask, done};

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
const HALF_AN_HOUR: Duration = Duration::from_secs(1800);
/// Messages that are enqueued while the shard count changes, in batches.
const BATCHES: usize = 120;
const BATCH: usize = 25;
const PATIENCE: Duration = Duration::from_secs(30);

async fn beside(redis: &RedisServer) -> Direct {
    let config = RedisStoreConfig { url: redis.url().into(), ..RedisStoreConfig::default() };
    Direct::connect(config).await.unwrap()
}

fn check(id: &str) -> NewMessage {
    NewMessage::new("check").id(id).due(Due::In(HALF_AN_HOUR))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_on_redis_and_one_at_a_node_see_the_same_messages() {
    let redis = RedisServer::start().await;
    let mut node = Node::start(PROGRAM, &redis.url(), "").await;
    done(&node, Method::PUT, "orders", &json!({"shards": 8, "max_payload": 1000, "remember": "1h"})).await;
    let direct = beside(&redis).await;

    let with_header = NewMessage { headers: vec![("shop".to_owned(), "7".to_owned())], ..check("a") };
    let large = NewMessage { payload: vec![b'x'; 1001].into(), ..check("large") };
    let placed = direct.enqueue("orders", &[with_header, check(""), large, check("b"), check("a")]).await;
    let [Ok(a), Err(no_id), Err(too_large), Ok(b), Ok(again)] = &placed[..] else { panic!("{placed:?}") };
    let scheduled = (EnqueueOutcome::Scheduled, EnqueueOutcome::Scheduled, EnqueueOutcome::Duplicate);
    assert_eq!((a.outcome, b.outcome, again.outcome), scheduled);
    assert!(no_id.to_string().starts_with("id: "), "{no_id}");
    assert_eq!(too_large.to_string(), "payload: 1001 bytes; max_payload of the topic is 1000");
    let seen = done(&node, Method::GET, "orders/messages/a", &Value::Null).await;
    assert_eq!((seen["payload"].as_str(), seen["due_at"].as_i64()), (Some("check"), Some(a.due_at.as_millis())));
    assert_eq!((&seen["headers"], seen["shard"].as_u64()), (&json!({"shop": "7"}), Some(u64::from(a.shard))));
    done(&node, Method::POST, "orders/messages", &json!({"id": "c", "delay": "30m", "payload": "of the node"})).await;
    assert_eq!(direct.message("orders", "c").await.unwrap().unwrap().payload, "of the node");

    let cancelled = direct.cancel("orders", &["c", "nobody", "../"]).await;
    let edits: Vec<Edited> = cancelled.into_iter().map(|changed| changed.unwrap().edited).collect();
    assert_eq!(edits, [Edited::Cancelled, Edited::Unknown, Edited::Unknown]);
    assert_eq!(ask(&node, Method::DELETE, "/v1/topics/orders/messages/b", &Value::Null).await.0, 200);
    let gone = direct.cancel("orders", &["b"]).await.remove(0).unwrap().edited;
    assert!(matches!(gone, Edited::Gone(_)), "it is remembered: {gone:?}");
    let before = direct.enqueue("orders", &[check("nobody")]).await.remove(0).unwrap();
    assert_eq!(before.outcome, EnqueueOutcome::CancelledBefore);
    let unknown = direct.enqueue("nope", &[check("a")]).await.remove(0).unwrap_err();
    assert!(matches!(unknown, DirectError::Route(RouteError::UnknownTopic(_))), "{unknown}");

    // While no node is there.
    node.kill();
    let due_now = direct.reschedule("orders", "a", Due::In(Duration::ZERO)).await.unwrap();
    assert!(matches!(due_now.edited, Edited::Rescheduled(_)), "{due_now:?}");
    assert!(direct.enqueue("orders", &[check("d")]).await.remove(0).is_ok());
    node.start_again().await;
    let claim = done(&node, Method::POST, "orders/claim", &json!({"wait": "20s"})).await;
    let claimed = &claim["messages"][0];
    assert_eq!(
        (&claimed["id"], &claimed["payload"], &claimed["headers"]["shop"]),
        (&json!("a"), &json!("check"), &json!("7"))
    );
    assert_eq!(done(&node, Method::GET, "orders", &Value::Null).await["scheduled"], 1, "d is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_on_redis_stores_nothing_that_a_node_refuses() {
    let redis = RedisServer::start().await;
    let node = Node::start(PROGRAM, &redis.url(), "").await;
    done(&node, Method::PUT, "orders", &json!({"shards": 2})).await;
    let direct = beside(&redis).await;
    let expires = |id: &str, expiry| NewMessage { expires: Some(expiry), ..check(id) };
    let century = HALF_AN_HOUR * 48 * 365 * 100;
    let due_at = direct.enqueue("orders", &[check("a")]).await.remove(0).unwrap().due_at;
    let soon = Timestamp::from_millis(due_at.as_millis() - 60_000);
    let refused = [
        (check("."), "id", "\".\""),
        (check(".."), "id", "\"..\""),
        (expires("b", Expiry::At(soon)), "expires_at", "before it falls due"),
        (expires("c", Expiry::After(century)), "expires", "10 years"),
        (
            NewMessage { headers: vec![("duetime-repeat".to_owned(), "1h".to_owned())], ..check("c") },
            "headers",
            "give \"repeat\"",
        ),
        (check("c").max_attempts(0), "max_attempts", "1 to 99"),
        (check("c").max_attempts(100), "max_attempts", "1 to 99"),
        (check("c").visibility_timeout(Duration::from_millis(99)), "visibility_timeout", "100ms to 24h"),
    ];
    for (message, blamed, why) in refused {
        let error = direct.enqueue("orders", &[message]).await.remove(0).unwrap_err();
        let DirectError::Invalid { field, detail } = &error else { panic!("{error}") };
        assert!(*field == blamed && detail.contains(why), "{error}");
    }
    let rounded = expires("d", Expiry::After(Duration::from_nanos(1))).max_attempts(7);
    let rounded = rounded.visibility_timeout(Duration::from_micros(1_500_500));
    direct.enqueue("orders", &[rounded]).await.remove(0).unwrap();
    let stored = direct.message("orders", "d").await.unwrap().unwrap();
    assert_eq!(Expiry::of(&stored.headers), Some(Expiry::After(Duration::from_millis(1))));
    assert_eq!(max_attempts::of(&stored.headers), Some(7));
    let read = done(&node, Method::GET, "orders/messages/d", &Value::Null).await;
    assert_eq!((&read["max_attempts"], &read["visibility_timeout"]), (&json!(7), &json!("1s 501ms")), "{read}");
    assert_eq!(done(&node, Method::GET, "orders", &Value::Null).await["scheduled"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_on_redis_follows_changes_of_the_shard_count() {
    let redis = RedisServer::start().await;
    let node = Node::start(PROGRAM, &redis.url(), "").await;
    done(&node, Method::PUT, "orders", &json!({"shards": 4})).await;
    let direct = beside(&redis).await;
    let id = |batch: usize, at: usize| format!("order-{batch}-{at}");
    for batch in 0..BATCHES {
        if batch % 40 == 0 {
            let shards = [9, 3, 16][batch / 40];
            done(&node, Method::PUT, "orders", &json!({ "shards": shards })).await;
        }
        let messages: Vec<NewMessage> = (0..BATCH).map(|at| check(&id(batch, at))).collect();
        for placed in direct.enqueue("orders", &messages).await {
            assert_eq!(placed.unwrap().outcome, EnqueueOutcome::Scheduled);
        }
        // Every second one, of a batch that may have moved since.
        let cancelled = direct.cancel("orders", &[id(batch / 2, 2 * (batch % 2))]).await.remove(0).unwrap().edited;
        assert_eq!(cancelled, Edited::Cancelled, "batch {batch}");
    }
    let left = u64::try_from(BATCHES * (BATCH - 1)).unwrap();
    let settled = async {
        loop {
            let shards = done(&node, Method::GET, "orders/shards", &Value::Null).await;
            if shards.get("resize").is_none() {
                return shards["shard_count"].clone();
            }
            let_pass(Duration::from_millis(100), Because::AskedAgain).await;
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, settled).await.expect("the change ends"), 16);
    assert_eq!(done(&node, Method::GET, "orders", &Value::Null).await["scheduled"], left);
    let ids: Vec<String> = (0..BATCHES).map(|batch| id(batch, 24)).collect();
    for changed in direct.cancel("orders", &ids).await {
        assert_eq!(changed.unwrap().edited, Edited::Cancelled);
    }
}
