//! The keys of the configuration are promised (docs/COMPATIBILITY.md): none goes unseen.
//!
//! Each type is asked for the names of its fields, and for those of each field's own type.

use std::collections::BTreeSet;

use duetime_core::TopicConfig;
use duetime_http::AuthConfig;
use duetime_ownership::EtcdConfig;
use duetime_resize::ResizeConfig;
use duetime_sinks::{SinkConfig, SinksByApiConfig};
use duetime_store_redis::RedisStoreConfig;
use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::complaints;
use crate::config::file::SECTIONS;
use crate::config::read::FieldNames;
use crate::config::{ConsoleConfig, NodeConfig};
use crate::kept;

/// Tables within tables.
const DEPTH_MAX: usize = 4;

/// Goes down one path of keys, and asks the type that is there for the names of its fields.
struct Below<'a> {
    path: &'a [&'static str],
    found: &'a mut Vec<&'static str>,
}

impl<'de> serde::Deserializer<'de> for Below<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        FieldNames(self.found).deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.path.split_first() {
            Some((key, path)) => {
                visitor.visit_map(Only { key: Some(key), value: Some(Below { path, found: self.found }) })
            }
            None => FieldNames(self.found).deserialize_struct(name, fields, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_seq(Only { key: None, value: Some(self) })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct map enum identifier ignored_any
    }
}

/// A table with one key, or a list of one item.
struct Only<'a> {
    key: Option<&'static str>,
    value: Option<Below<'a>>,
}

impl<'de> MapAccess<'de> for Only<'_> {
    type Error = ValueError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ValueError> {
        let key = self.key.take().map(StrDeserializer::<ValueError>::new);
        key.map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ValueError> {
        seed.deserialize(self.value.take().expect("one value for one key"))
    }
}

impl<'de> SeqAccess<'de> for Only<'_> {
    type Error = ValueError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ValueError> {
        self.value.take().map(|value| seed.deserialize(value)).transpose()
    }
}

/// Every path of keys below `section`.
fn keys_below(section: &str, read: impl Fn(Below<'_>)) -> BTreeSet<String> {
    let (mut all, mut open) = (BTreeSet::new(), vec![Vec::new()]);
    while let Some(path) = open.pop() {
        let mut found = Vec::new();
        read(Below { path: &path, found: &mut found });
        for key in found {
            let below = [&path[..], &[key]].concat();
            all.insert(format!("{section}.{}", below.join(".")));
            if below.len() < DEPTH_MAX {
                open.push(below);
            }
        }
    }
    all
}

fn keys_of<T: DeserializeOwned>(section: &str) -> BTreeSet<String> {
    keys_below(section, |below| {
        let _ = T::deserialize(below);
    })
}

/// A section of each type of sink that needs no more.
const SINKS: [(&str, &str); 7] = [
    ("log", ""),
    ("http", "url = \"http://h\""),
    ("rabbitmq", "url = \"amqp://h\""),
    ("nats", "url = \"nats://h\""),
    ("kafka", "brokers = \"h:9092\""),
    ("redis-stream", "url = \"redis://h\""),
    ("redis-stream", "in_place = true"),
];

/// What a topic may set for its sink: the sentence about one that is unknown lists all.
fn topic_settings(kind: &str, section: &str) -> BTreeSet<String> {
    let topic = "[topics.a]\nsink = { name = \"a\", qqqqqqqqqqqqqqqq = 1 }\n";
    let found = complaints(&format!("[sinks.a]\ntype = {kind:?}\n{section}\n{topic}"));
    let sentence = found.iter().find(|text| text.contains("unknown sink setting"));
    let sentence = sentence.unwrap_or_else(|| panic!("{kind}: {found:?}"));
    let known = sentence.split_once(" knows ").map_or("", |(_, known)| known);
    assert!(sentence.contains(" has none but ") || !known.is_empty(), "{sentence}");
    let names = known.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and");
    names.map(|name| format!("topics.NAME.sink.{name} ({kind})")).collect()
}

#[test]
fn no_key_of_the_configuration_goes_unseen() {
    let mut all: BTreeSet<String> = [
        keys_of::<NodeConfig>("node"),
        keys_of::<RedisStoreConfig>("store"),
        keys_of::<EtcdConfig>("ownership"),
        keys_of::<ResizeConfig>("resize"),
        keys_of::<AuthConfig>("auth"),
        keys_of::<ConsoleConfig>("console"),
        keys_of::<SinksByApiConfig>("sinks_by_api"),
        keys_of::<TopicConfig>("topics.NAME"),
        ["ownership.mode", "sinks.NAME.type", "topics.NAME.sink.name"].map(str::to_owned).into(),
        // Besides those of `topics.NAME`.
        ["topics.BEGINNING*.create", "topics_default.create", "topics_default.topics_max"].map(str::to_owned).into(),
    ]
    .into_iter()
    .flatten()
    .collect();
    for kind in SinkConfig::TYPES {
        all.insert(format!("sinks.NAME.type = {kind:?}"));
        assert!(SINKS.iter().any(|(known, _)| known == kind), "{kind} has no section above");
        let keys = keys_below("sinks.NAME", |below| {
            let _ = SinkConfig::read(kind, below).expect("a type that is listed is known");
        });
        all.extend(keys.into_iter().map(|key| format!("{key} ({kind})")));
    }
    let is_built = |kind: &str| kind != "kafka" || cfg!(any(feature = "kafka", feature = "kafka-tls"));
    for (kind, section) in SINKS.iter().filter(|(kind, _)| is_built(kind)) {
        all.extend(topic_settings(kind, section));
    }
    for section in SECTIONS {
        assert!(all.iter().any(|key| key.starts_with(&format!("{section}."))), "[{section}] is not looked into");
    }
    if !is_built("kafka") {
        let of_kafka = |line: &&str| line.ends_with("(kafka)");
        all.extend(kept::list("config.txt").lines().filter(of_kafka).map(str::to_owned));
    }
    kept::holds("config.txt", &all);
}

#[test]
fn the_keys_of_tables_within_tables_and_lists_are_found() {
    let (node, auth, topic) =
        (keys_of::<NodeConfig>("node"), keys_of::<AuthConfig>("auth"), keys_of::<TopicConfig>("topics.NAME"));
    for (keys, key) in
        [(&node, "node.tls.client_ca"), (&auth, "auth.tokens.scopes"), (&topic, "topics.NAME.retry.max_attempts")]
    {
        assert!(keys.contains(key), "{keys:?}");
    }
}
