//! A JSON object as it is, but that each name is given once, at any depth: a plain map keeps the last of two, and nobody
//! knows which was meant.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Most bytes of a name that are repeated in the refusal.
const NAME_BYTES_MAX: usize = 100;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OnceMap(pub(crate) Map<String, Value>);

struct OnceValue(Value);

struct OnceVisitor;

impl<'de> Deserialize<'de> for OnceMap {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match OnceValue::deserialize(from)?.0 {
            Value::Object(map) => Ok(Self(map)),
            _ => Err(D::Error::custom("a JSON object is wanted")),
        }
    }
}

impl<'de> Deserialize<'de> for OnceValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OnceVisitor).map(Self)
    }
}

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(OnceValue(value)) = seq.next_element()? {
            all.push(value);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((name, OnceValue(value))) = map.next_entry::<String, _>()? {
            if all.contains_key(&name) {
                let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
                // As the reader says it of a struct.
                return Err(A::Error::custom(format_args!("duplicate field `{name}`")));
            }
            all.insert(name, value);
        }
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::fields;

    #[test]
    fn an_object_is_read_as_it_is_and_a_name_that_is_given_twice_is_refused_at_any_depth() {
        let text = r#"{"a": [1, -2, 2.5, null, true, "x", {"b": {}}], "c": 18446744073709551615}"#;
        let read: OnceMap = fields::read(text.as_bytes()).unwrap();
        assert_eq!(Value::Object(read.0), serde_json::from_str::<Value>(text).unwrap());
        assert!(fields::read::<OnceMap>(b"").unwrap().0.is_empty());
        for (text, field) in [
            (r#"{"accept_loss": true, "accept_loss": false}"#, "accept_loss"),
            (r#"{"retry": {"factor": 2, "max": "1s", "factor": 3}}"#, "factor"),
            (r#"{"a": [{"b": 1, "b": 1}]}"#, "b"),
        ] {
            let refusal = fields::read::<OnceMap>(text.as_bytes()).unwrap_err();
            assert_eq!((refusal.code, refusal.field.as_deref()), ("invalid_value", Some(field)));
            assert!(refusal.detail.contains("given twice"), "{}", refusal.detail);
        }
    }
}
