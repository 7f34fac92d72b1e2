//! A herd at a full minute, as the forecast shows it before it is there: on the command line and in the metrics, on a
//! real Redis and with several shards.

use std::process::Command;
use std::time::{Duration, SystemTime};

use duetime_testkit::in_time;
use duetime_testkit::servers::RedisServer;
use duetime_testkit::wait::{Because, let_pass};
use reqwest::StatusCode;
use serde_json::json;
use tokio::time::Instant;

use crate::test_node::TestNode;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// The metrics of a forecast are counted each half minute.
const PATIENCE: Duration = Duration::from_secs(75);
const HERD: usize = 2_000;
const PAYLOAD_BYTES: usize = 100;
const MINUTE_MS: i64 = 60_000;

#[tokio::test]
async fn a_herd_is_foreseen_with_how_late_its_last_message_will_be() {
    let redis = RedisServer::start().await;
    let node = TestNode::on(&redis.url(), "").await;
    let limit = json!({"shards": 8, "rate_limit": {"per_second": 100.0}});
    assert_eq!(node.topic("orders", limit).await.0, StatusCode::CREATED);
    let present = i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let at = (present / MINUTE_MS + 5) * MINUTE_MS;
    let payload = "x".repeat(PAYLOAD_BYTES);
    let herd = (0..HERD).map(|n| json!({"id": format!("order-{n}"), "due_at": at, "payload": &payload}));
    let others =
        (0..10).map(|n| json!({"id": format!("other-{n}"), "due_at": at + 7 * MINUTE_MS, "payload": &payload}));
    node.enqueue_all("orders", herd.chain(others).collect()).await;

    let forecast = node.get("/v1/topics/orders/forecast?bucket=1m&buckets=60").await.1;
    let summary = forecast["herd"]["summary"].as_str().expect("a herd");
    let mut typed = Command::new(PROGRAM);
    typed.args(["forecast", "orders", "--bucket", "1m", "--horizon", "1h", "--node", &node.url()]);
    let typed = typed.output().unwrap();
    let text = String::from_utf8(typed.stdout).unwrap();
    assert!(typed.status.success() && text.starts_with("0 are due, 2010 fall due within 1h, by 1m"), "{text}");
    assert!(text.contains("2000 ! ") && text.contains(" late"), "{text}");
    assert!(text.trim_end().ends_with(summary), "{text}");

    let (end, mut ahead) = (Instant::now() + PATIENCE, 0.0);
    while ahead < 19.0 {
        in_time!(Instant::now() < end, "HerdAhead would look at {ahead} s");
        let_pass(Duration::from_millis(500), Because::AskedAgain).await;
        ahead = node.line("duetime_forecast_late_seconds{topic=\"orders\"}").await.unwrap_or_default();
    }
    assert!(ahead <= 20.0, "{ahead}");
    let rates = node.get("/v1/rates?topic=orders&scope=cluster").await.1;
    let known = rates["topics"][0]["herd_late_ms"].as_f64().expect("the console warns by it");
    assert!((19_000.0..=20_000.0).contains(&known), "{rates}");
    assert_eq!(node.line("duetime_forecast{topic=\"orders\",within=\"1h\"}").await.unwrap_or_default(), 2_010.0);
    let payloads = 2_010.0 * PAYLOAD_BYTES as f64;
    let bytes = node.line("duetime_pending_bytes{topic=\"orders\"}").await.unwrap_or_default();
    assert!((payloads..1.5 * payloads).contains(&bytes), "{bytes} bytes of messages");
}
