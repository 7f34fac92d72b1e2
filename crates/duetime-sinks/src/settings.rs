//! Reads what a topic says about its sink, and refuses what is unknown by naming the nearest known.
//!
//! Upstream: the `bind` of every target.

use std::time::Duration;

use duetime_core::suggest::{listed, nearest};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The default of a setting that is a time: so many seconds.
pub const fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
}

/// The settings of a topic for a sink of type `kind`, whose settings are called `known`.
///
/// # Errors
///
/// A sentence that names the unknown or wrong setting and the nearest known one.
pub fn read<T: DeserializeOwned>(kind: &str, known: &[&str], settings: &Map<String, Value>) -> Result<T, String> {
    for name in settings.keys() {
        if !known.contains(&name.as_str()) {
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None if known.is_empty() => format!("a sink of type {kind:?} has none but \"name\""),
                None => format!("a sink of type {kind:?} knows {}", listed(known)),
            };
            return Err(format!("unknown sink setting {name:?}; {hint}"));
        }
    }
    serde_json::from_value(Value::Object(settings.clone()))
        .map_err(|error| format!("the settings for a sink of type {kind:?} are refused: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_setting_is_refused_with_the_nearest_known_one() {
        let settings = serde_json::json!({"exchnge": "orders"});
        let read = |known: &[&str]| {
            super::read::<Value>("rabbitmq", known, settings.as_object().unwrap()).expect_err("must be refused")
        };
        assert_eq!(read(&["exchange", "routing_key"]), "unknown sink setting \"exchnge\"; did you mean \"exchange\"?");
        assert!(read(&["path", "timeout"]).contains("knows path and timeout"));
        assert!(read(&[]).contains("has none"));
    }
}
