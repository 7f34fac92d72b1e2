//! A sink as a node makes it: from the lines of its configuration and what a topic says of it.

use std::sync::Arc;

use duetime_core::{Namespace, Sink, SinkBinder as _};
use duetime_sinks::SinkRegistry;
use duetime_testkit::WallClock;
use duetime_testkit::conformance::sink::message;
use serde_json::Value;

/// The sink that `topic` names, with these lines.
pub fn bind(config: &str, topic: Value) -> Result<Arc<dyn Sink>, String> {
    let configs = toml::from_str(&format!("[{}]\n{config}", topic["name"].as_str().expect("a topic names its sink")));
    let registry = SinkRegistry::new(configs.unwrap(), Arc::new(WallClock), &Namespace::default())?;
    let bound = registry.bind(&message("x", "").topic, &serde_json::from_value(topic).unwrap());
    bound.map_err(|error| error.to_string())
}
