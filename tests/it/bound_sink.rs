//! A sink as a node makes it: from the lines of its configuration and what a topic says of it.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Delivery, Namespace, Sink, SinkBinder as _, Verdict};
use duetime_sinks::SinkRegistry;
use duetime_testkit::WallClock;
use duetime_testkit::conformance::sink::message;
use duetime_testkit::wait::until;
use serde_json::Value;

/// Longest wait until a sink uses a target again.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// Hands messages over again and again until all are accepted: a target that was away needs a moment.
pub async fn until_taken(sink: &dyn Sink, batch: &[Delivery]) {
    let taken = async || sink.deliver(batch).await.iter().all(|verdict| *verdict == Verdict::Accepted).then_some(());
    until(RECOVERY_MAX, "the target is used again", taken).await;
}

/// The sink that `topic` names, with these lines.
pub fn bind(config: &str, topic: Value) -> Result<Arc<dyn Sink>, String> {
    let configs = toml::from_str(&format!("[{}]\n{config}", topic["name"].as_str().expect("a topic names its sink")));
    let registry = SinkRegistry::new(configs.unwrap(), Arc::new(WallClock), &Namespace::default())?;
    let bound = registry.bind(&message("x", "").topic, &serde_json::from_value(topic).unwrap());
    bound.map_err(|error| error.to_string())
}
