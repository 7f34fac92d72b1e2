//! Schemas of settings in the API's document, made of their declarations.

use duetime_core::setting::{Kind, Setting};
use duetime_core::{RateLimit, RetryPolicy, TopicConfig};
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::json::schema::{DurationIn, ShardCountIn, SinkSchema, SizeIn};

/// Who writes the values.
#[derive(Clone, Copy, PartialEq)]
enum Writer {
    /// A client: what is absent stays as it is, `null` is the default.
    Client,
    /// The node, in an answer.
    Node,
}

/// Returns the name of a component: `rate_limit` is `RateLimit`.
fn component(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(capital).collect()
}

/// True if a client writes the component's settings: each may be `null`, which gives it its default.
pub(crate) fn is_of_client(name: &str) -> bool {
    let is_nested = |setting: &Setting| !setting.kind.inner().is_empty() && component(setting.name) == name;
    name == TopicChangeSchema::name() || TopicConfig::SETTINGS.iter().any(is_nested)
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// Returns the schema of a setting's value that is of this kind.
fn value(setting: &Setting, kind: &Kind, writer: Writer) -> Value {
    match (kind, writer) {
        (Kind::Maybe(kind), _) => value(setting, kind, writer),
        (Kind::Duration, Writer::Client) => reference("DurationIn"),
        (Kind::Duration, Writer::Node) => json!({"type": "string"}),
        (Kind::Durations(most), writer) => {
            json!({"type": "array", "maxItems": most, "items": value(setting, &Kind::Duration, writer)})
        }
        (Kind::Size, Writer::Client) => reference("SizeIn"),
        (Kind::Size, Writer::Node) => json!({"type": "integer", "format": "int64", "minimum": 0}),
        (Kind::Count(least, u64::MAX), _) => json!({"type": "integer", "format": "int64", "minimum": least}),
        (Kind::Count(least, most), _) => {
            json!({"type": "integer", "format": "int32", "minimum": least, "maximum": most})
        }
        (Kind::Number(least, most), _) => {
            json!({"type": "number", "format": "double", "minimum": least, "maximum": most})
        }
        (Kind::Flag, _) => json!({"type": "boolean"}),
        (Kind::Shards, _) => reference("ShardCountIn"),
        (Kind::Sink, _) => reference("Sink"),
        (Kind::Topic, _) => json!({"type": "string"}),
        (Kind::Object(_), Writer::Client) if kind.list_form().is_some() => {
            let short = kind.list_form().map(|list| value(setting, list, writer));
            json!({"anyOf": [reference(&component(setting.name)), short]})
        }
        (Kind::Object(_) | Kind::Word(_), _) => reference(&component(setting.name)),
    }
}

/// Returns the schema of an object of settings; `defaults`: what is there if nothing is given.
fn object(settings: &[Setting], defaults: &Value, writer: Writer) -> RefOr<Schema> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for setting in settings {
        let mut schema = value(setting, &setting.kind, writer);
        let by_default = defaults.get(setting.name);
        let is_below = |least: f64| by_default.and_then(Value::as_f64).is_some_and(|number| number < least);
        match (writer, setting.kind) {
            (Writer::Node, _) if by_default.is_some() => required.push(setting.name),
            // It has no default that is allowed.
            (Writer::Client, Kind::Number(least, _)) if is_below(least) => required.push(setting.name),
            (Writer::Client, _) => schema = json!({"oneOf": [schema, {"type": "null"}]}),
            _ => {}
        }
        schema["description"] = setting.text().into();
        properties.insert(setting.name.to_owned(), schema);
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    serde_json::from_value(schema).expect("a schema of JSON Schema 2020-12")
}

fn defaults<T: Default + serde::Serialize>() -> Value {
    serde_json::to_value(T::default()).expect("plain data")
}

/// Adds the components that the settings of a topic refer to.
fn add_components(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    let nested = [
        ("retry", RetryPolicy::SETTINGS, defaults::<RetryPolicy>()),
        ("rate_limit", RateLimit::SETTINGS, defaults::<RateLimit>()),
    ];
    schemas.extend(
        nested.map(|(name, settings, defaults)| (component(name), object(settings, &defaults, Writer::Client))),
    );
    for setting in TopicConfig::SETTINGS {
        if let Kind::Word(words) = setting.kind {
            let schema = serde_json::from_value(json!({"type": "string", "enum": words})).expect("a schema");
            schemas.push((component(setting.name), schema));
        }
    }
    schemas.extend([
        ("DurationIn".to_owned(), DurationIn::schema()),
        ("SizeIn".to_owned(), SizeIn::schema()),
        ("ShardCountIn".to_owned(), ShardCountIn::schema()),
        ("Sink".to_owned(), SinkSchema::schema()),
    ]);
    SinkSchema::schemas(schemas);
}

macro_rules! schema_of_settings {
    ($(#[$meta:meta])* $type:ident, $name:literal, $writer:expr) => {
        $(#[$meta])*
        pub(crate) struct $type;

        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                object(TopicConfig::SETTINGS, &defaults::<TopicConfig>(), $writer)
            }
        }

        impl ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                add_components(schemas);
            }
        }
    };
}

schema_of_settings!(
    /// Settings of a topic to be created or changed.
    TopicChangeSchema,
    "TopicChange",
    Writer::Client
);
schema_of_settings!(
    /// Settings of a topic as they apply.
    TopicSettings,
    "TopicSettings",
    Writer::Node
);
