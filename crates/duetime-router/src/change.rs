//! A partial change of a topic: what is absent stays, `null` goes back to the default.

use duetime_core::TopicConfig;
use serde_json::{Map, Value};

use crate::error::CatalogError;

/// Fields that are objects of their own and are merged field by field. A sink is not one of them:
/// its settings belong to its name and are replaced together.
const MERGED: [&str; 2] = ["retry", "rate_limit"];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicChange(Map<String, Value>);

impl TopicChange {
    /// A change written as the JSON object that users send.
    #[must_use]
    pub fn new(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// Every field of `config`: the change that makes any topic like it.
    #[must_use]
    pub fn whole(config: &TopicConfig) -> Self {
        let mut fields = to_map(&TopicConfig::default());
        fields.insert("sink".to_owned(), Value::Null);
        fields.insert("rate_limit".to_owned(), Value::Null);
        for absent in ["confirm_acks", "max_messages", "max_bytes", "paused", "smear"] {
            fields.insert(absent.to_owned(), Value::Null);
        }
        fields.extend(to_map(config));
        Self(fields)
    }

    /// Whether the change names `field`.
    #[must_use]
    pub fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    /// `present` with this change made to it.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Invalid`] with the field and the fix.
    pub fn apply(&self, present: &TopicConfig) -> Result<TopicConfig, CatalogError> {
        let mut merged = to_map(present);
        for (name, value) in &self.0 {
            match (merged.get_mut(name), value) {
                (_, Value::Null) => {
                    merged.remove(name);
                }
                (Some(Value::Object(old)), Value::Object(new)) if MERGED.contains(&name.as_str()) => {
                    for (key, value) in new {
                        if value.is_null() {
                            old.remove(key);
                        } else {
                            old.insert(key.clone(), value.clone());
                        }
                    }
                }
                _ => {
                    merged.insert(name.clone(), value.clone());
                }
            }
            if let Some(value) = merged.get(name) {
                read_alone(name, value)?;
            }
        }
        let config: TopicConfig =
            serde_json::from_value(Value::Object(merged)).map_err(|e| invalid(None, e.to_string()))?;
        config.check().map_err(|detail| {
            let named = detail.split([' ', '.']).next().filter(|word| self.has(word)).map(str::to_owned);
            CatalogError::Invalid { field: named, detail }
        })?;
        Ok(config)
    }
}

fn to_map(config: &TopicConfig) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(map)) => map,
        _ => unreachable!("a topic's settings are a JSON object"),
    }
}

/// Reads one field by itself, so that a refusal can name it.
fn read_alone(name: &str, value: &Value) -> Result<(), CatalogError> {
    let alone = Map::from_iter([(name.to_owned(), value.clone())]);
    serde_json::from_value::<TopicConfig>(Value::Object(alone))
        .map(|_| ())
        .map_err(|e| invalid(Some(name), e.to_string()))
}

fn invalid(field: Option<&str>, text: String) -> CatalogError {
    let detail = match field {
        Some(field) if !text.contains(field) => format!("{field}: {text}"),
        _ => text,
    };
    CatalogError::Invalid { field: field.map(str::to_owned), detail }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn change(text: &str) -> TopicChange {
        TopicChange::new(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn what_is_absent_stays_and_null_goes_back_to_the_default() {
        let first = change(r#"{"visibility_timeout":"5s","retry":{"max_attempts":3,"initial":"2s"},"max_payload":10}"#)
            .apply(&TopicConfig::default())
            .unwrap();
        let second = change(r#"{"retry":{"initial":null,"factor":3},"max_payload":null}"#).apply(&first).unwrap();
        assert_eq!(second.visibility_timeout, Duration::from_secs(5));
        assert_eq!(second.retry.max_attempts, 3);
        assert_eq!(second.retry.initial, Duration::from_secs(1));
        assert_eq!(second.retry.factor, 3.0);
        assert_eq!(second.max_payload, TopicConfig::default().max_payload);
        assert_eq!(TopicChange::whole(&TopicConfig::default()).apply(&second).unwrap(), TopicConfig::default());
    }

    #[test]
    fn a_sinks_settings_are_replaced_together() {
        let mq = change(r#"{"sink":{"name":"mq","exchange":"a"}}"#).apply(&TopicConfig::default()).unwrap();
        let log = change(r#"{"sink":{"name":"log"}}"#).apply(&mq).unwrap();
        assert!(log.sink.unwrap().settings.is_empty());
        assert!(change(r#"{"sink":null}"#).apply(&mq).unwrap().sink.is_none());
    }

    #[test]
    fn a_refusal_names_its_field() {
        for (text, field) in [
            (r#"{"max_payload":-5}"#, "max_payload"),
            (r#"{"visibility_timeout":"soon"}"#, "visibility_timeout"),
            (r#"{"visibility_timeout":"1ms"}"#, "visibility_timeout"),
            (r#"{"retry":{"factor":0}}"#, "retry"),
            (r#"{"retry":{"tries":1}}"#, "retry"),
            (r#"{"rate_limit":{"per_second":0}}"#, "rate_limit"),
            (r#"{"delivery":"twice"}"#, "delivery"),
            (r#"{"max_messages":0}"#, "max_messages"),
            (r#"{"max_bytes":"much"}"#, "max_bytes"),
        ] {
            let error = change(text).apply(&TopicConfig::default()).unwrap_err();
            let CatalogError::Invalid { field: named, detail } = error else { panic!("{text}: {error}") };
            assert_eq!(named.as_deref(), Some(field), "{text}: {detail}");
            assert!(detail.contains(field), "{text}: {detail}");
        }
    }
}
