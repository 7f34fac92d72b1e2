//! What needs no broker: settings and refusals.

use std::sync::Arc;

use duetime_core::{Namespace, Sink, SinkBinder, Verdict};
use duetime_testkit::WallClock;
use duetime_testkit::conformance::sink::{CANARY, message};

use crate::registry::SinkRegistry;

fn bind(config: &str, topic: serde_json::Value) -> Result<Arc<dyn Sink>, String> {
    let configs = toml::from_str(&format!("[mq]\ntype = \"rabbitmq\"\n{config}")).map_err(|error| error.to_string())?;
    let registry = SinkRegistry::new(configs, Arc::new(WallClock), &Namespace::default())?;
    let mut named = serde_json::json!({"name": "mq"});
    named.as_object_mut().unwrap().extend(topic.as_object().unwrap().clone());
    let bound = registry.bind(&message("x", "").topic, &serde_json::from_value(named).unwrap());
    bound.map_err(|error| error.to_string())
}

#[test]
fn settings_that_make_no_sense_are_refused_with_the_fix() {
    for (config, topic, says) in [
        ("url = \"http://u:canary@x/\"", serde_json::json!({}), "amqp://user:password@host"),
        ("url = \"amqp://x\"\nbatch = 0", serde_json::json!({}), "batch must be"),
        ("url = \"amqps://x\"\nca_file = \"/does/not/exist\"", serde_json::json!({}), "/does/not/exist"),
        ("url = \"amqp://x\"\nca_file = \"/etc/ca.pem\"", serde_json::json!({}), "with an amqps:// url"),
        ("url = \"amqp://x\"", serde_json::json!({"routing-key": "x"}), "did you mean \"routing_key\""),
        ("url = \"amqp://x\"", serde_json::json!({"routing_key": "{ids}"}), "{header.NAME}"),
        ("url = \"amqp://x\"", serde_json::json!({"exchange": "x".repeat(256)}), "exchange is longer"),
    ] {
        let error = bind(config, topic).unwrap_err();
        assert!(error.contains(says) && !error.contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_unavailable_for_all_and_its_password_is_not_shown() {
    // No other process is given this port meanwhile.
    let sink = bind(&format!("url = \"amqp://duetime:{CANARY}@127.0.0.1:1\""), serde_json::json!({})).unwrap();
    let verdicts = sink.deliver(&[message("a", ""), message("b", "")]).await;
    assert_eq!(verdicts.len(), 2);
    for verdict in verdicts {
        let Verdict::Unavailable { reason, .. } = verdict else { panic!("{verdict:?}") };
        assert!(reason.starts_with("could not connect to amqp://127.0.0.1") && !reason.contains(CANARY), "{reason}");
    }
    let shown = format!("{sink:?} {:?}", sink.check().await);
    assert!(!shown.contains(CANARY), "{shown}");
}
