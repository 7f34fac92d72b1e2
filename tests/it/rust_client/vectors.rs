//! The golden vectors: each request is the recorded one, and each recorded answer is read as recorded.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duetime_client::{
    Answer, Became, Claim, Claimed, ClaimedMessage, Client, ClientError, Death, Due, Expiry, ItemProblem, Message,
    MessageId, Nack, NewMessage, OnConflict, Outcome, Placed, Timestamp, Topic, shard_of,
};
use duetime_testkit::servers::HttpProxy;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::rig::answer;

const CALLS: &str = include_str!("../../../clients/vectors/calls.json");
const PROBLEMS: &str = include_str!("../../../clients/vectors/problems.json");
const ADDRESSES: &str = include_str!("../../../clients/vectors/addresses.json");
const HOMES: &str = include_str!("../../../clients/vectors/homes.json");
const SHAPES: &str = include_str!("../../../clients/vectors/shapes.json");

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap()
}

fn millis(args: &Value, name: &str) -> Option<Duration> {
    args[name].as_u64().map(Duration::from_millis)
}

fn moment(args: &Value, name: &str) -> Option<Timestamp> {
    args[name].as_i64().map(Timestamp::from_millis)
}

fn due(args: &Value) -> Option<Due> {
    millis(args, "delay_ms").map(Due::In).or(moment(args, "due_at").map(Due::At))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect()
}

fn message(args: &Value) -> NewMessage {
    let payload = match (&args["payload_base64"], &args["payload_text"], args.get("payload_json")) {
        (Value::String(base64), _, _) => STANDARD.decode(base64).unwrap(),
        (_, Value::String(text), _) => text.clone().into_bytes(),
        (_, _, Some(json)) => json.to_string().into_bytes(),
        _ => Vec::new(),
    };
    let headers = args["headers"].as_object().cloned().unwrap_or_default();
    NewMessage {
        id: args["id"].as_str().map(str::to_owned),
        due: due(args),
        headers: headers.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect(),
        on_conflict: serde_json::from_value(args["on_conflict"].clone()).unwrap_or(OnConflict::Reject),
        expires: millis(args, "expires_ms").map(Expiry::After).or(moment(args, "expires_at").map(Expiry::At)),
        max_attempts: args["max_attempts"].as_u64().map(|most| u8::try_from(most).unwrap()),
        visibility_timeout: millis(args, "own_visibility_ms"),
        repeat: args.get("repeat").map(|repeat| serde_json::from_value(repeat.clone()).unwrap()),
        ..NewMessage::new(payload)
    }
}

fn shown<T: Serialize>(found: T) -> Value {
    serde_json::to_value(found).unwrap()
}

/// Makes the call of a vector, and shows what it brought.
async fn ask(client: &Client, op: &str, args: &Value) -> Result<Value, ClientError> {
    let text = |name: &str| args[name].as_str().unwrap_or_default();
    let (topic, receipts) = (text("topic"), texts(&args["receipts"]));
    Ok(match op {
        "topics" => shown(client.topics().await?),
        "create" => shown(client.put_topic(topic, args["settings"].as_object().unwrap()).await?.0),
        "info" => shown(client.topic(topic).await?),
        "watermark" => {
            let wait = millis(args, "wait_ms").unwrap_or_default();
            shown(client.watermark(topic, args["until"].as_i64(), wait).await?)
        }
        "delete" => shown(client.delete_topic(topic, args["force"] == true).await?.outcome),
        "enqueue" => shown(client.enqueue(topic, &message(args)).await?),
        "enqueue_many" => {
            let messages: Vec<_> = args["messages"].as_array().unwrap().iter().map(message).collect();
            shown(client.enqueue_many(topic, &messages).await?)
        }
        "get" => shown(client.message(topic, text("id")).await?),
        "cancel_many" => shown(client.cancel_many(topic, &texts(&args["ids"])).await?),
        "reschedule" => shown(client.reschedule(topic, text("id"), due(args).unwrap()).await?),
        "claim" => {
            let ask = Claim {
                max: usize::try_from(args["max"].as_u64().unwrap()).unwrap(),
                wait: millis(args, "wait_ms").unwrap(),
                visibility: millis(args, "visibility_ms"),
                ack: texts(&args["ack"]),
                consumer: args["consumer"].as_str().map(str::to_owned),
            };
            shown(client.claim(topic, &ask).await?)
        }
        "ack" => shown(client.ack(topic, &receipts).await?),
        "release" => shown(client.release(topic, &receipts).await?),
        "extend" => shown(client.extend(topic, &receipts, millis(args, "visibility_ms")).await?),
        "nack" => {
            let reason = args["reason"].as_str().map(str::to_owned);
            let nack = Nack { delay: millis(args, "delay_ms"), reason, dead: args["dead"] == true };
            shown(client.nack(topic, &receipts, &nack).await?)
        }
        _ => panic!("no call {op}"),
    })
}

/// Only these fields of an object.
fn only(found: &Value, names: &[&str]) -> Value {
    let fields = found.as_object().unwrap().iter().filter(|(name, _)| names.contains(&name.as_str()));
    Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// What the vectors have of what was read: payloads as base64, of topics and problems the fields that all clients have.
fn as_recorded(op: &str, found: Result<Value, ClientError>, vector: &Value) -> Value {
    let wanted = &vector["result"];
    let mut found = match found {
        Ok(found) => found,
        // In Rust these two are refusals with a code.
        Err(error) => match (op, error.problem().map_or("", |problem| &problem.code)) {
            ("get", "unknown_message") => return Value::Null,
            ("delete", "unknown_topic") => return json!("unknown"),
            _ => {
                let problem = error.problem().expect("a refusal");
                let mut fields = only(&shown(problem), &["status", "code", "detail", "field"]);
                if let Some(seconds) = problem.retry_after {
                    fields["retry_after"] = seconds.into();
                }
                if let Some(id) = vector["request_id"].as_str().and(error.request_id()) {
                    fields["request_id"] = id.into();
                }
                return json!({ "error": fields });
            }
        },
    };
    let of_topic: Vec<&str> = match op {
        "create" | "info" => wanted.as_object().unwrap().keys().map(String::as_str).collect(),
        // A field that one of them has is one that each may have.
        "topics" => wanted
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|one| one.as_object().unwrap().keys())
            .map(String::as_str)
            .collect(),
        _ => Vec::new(),
    };
    match op {
        "create" | "info" => found = only(&found, &of_topic),
        "topics" => found.as_array_mut().unwrap().iter_mut().for_each(|topic| *topic = only(topic, &of_topic)),
        "get" => with_base64(&mut found),
        "claim" => {
            found["messages"].as_array_mut().unwrap().iter_mut().for_each(with_base64);
            match found.get_mut("results") {
                Some(results) => results.as_array_mut().unwrap().iter_mut().for_each(as_item),
                None => return found["messages"].take(),
            }
            if let Some(problem) = found.get_mut("error") {
                *problem = only(problem, &["status", "code", "detail", "field"]);
            }
        }
        _ => found.as_array_mut().into_iter().flatten().for_each(as_item),
    }
    found
}

fn with_base64(message: &mut Value) {
    if let Some(Value::String(text)) = message.as_object_mut().unwrap().remove("payload") {
        message["payload_base64"] = STANDARD.encode(text).into();
    }
}

fn as_item(item: &mut Value) {
    let Some(error) = item.get("error") else { return };
    let mut error = only(error, &["code", "detail", "field", "index"]);
    if let Some(id) = item.get("id") {
        error["id"] = id.clone();
    }
    *item = json!({ "error": error });
}

/// In Rust a payload is bytes: JSON goes as its text, and nothing as an empty one.
fn of_rust(message: &Value) -> Value {
    let mut message = message.clone();
    let payload = message.get("payload").map_or(String::new(), |payload| match payload {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    if message.get("payload_base64").is_none() {
        message["payload"] = payload.into();
    }
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_sends_and_reads_what_was_recorded() {
    // Nobody is behind it: each request meets the recorded answer.
    let proxy = HttpProxy::before("http://127.0.0.1:1").await;
    let client = Client::new(&proxy.url(), Some("secret".to_owned())).unwrap();
    let vectors = [read::<Vec<Value>>(CALLS), read(PROBLEMS)].concat();
    let mut ops = BTreeSet::new();
    for (at, vector) in vectors.iter().enumerate() {
        let (name, op, wanted) = (&vector["name"], vector["op"].as_str().unwrap(), &vector["request"]);
        let recorded = &vector["answer"];
        let headers: Vec<(&str, &str)> = recorded["headers"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (&**name, value.as_str().unwrap()))
            .collect();
        let status = u16::try_from(recorded["status"].as_u64().unwrap()).unwrap();
        let method: Method = wanted["method"].as_str().unwrap().parse().unwrap();
        proxy.fault(method.clone(), "/", answer(status, &headers, recorded["body"].clone()), 1);
        let given = vector["request_id"].as_str().unwrap_or_default();
        let found = ask(&client.clone().request_id(given), op, &vector["args"]).await;
        let sent = proxy.seen("");
        assert_eq!(sent.len(), at + 1, "{name}: one request");
        let sent = &sent[at];
        assert_eq!((&sent.method, &*sent.path), (&method, wanted["path"].as_str().unwrap()), "{name}");
        assert_eq!(sent.header("authorization"), "Bearer secret", "{name}");
        assert_eq!(sent.header("x-request-id"), given, "{name}");
        assert_eq!(sent.header("duetime-not-after").is_empty(), method == Method::GET, "{name}");
        let body = wanted.get("body").map(|body| match (op, body) {
            ("enqueue", message) => of_rust(message),
            ("enqueue_many", Value::Array(messages)) => messages.iter().map(of_rust).collect(),
            _ => body.clone(),
        });
        assert_eq!(sent.json(), body.unwrap_or_default(), "{name}");
        assert_eq!(as_recorded(op, found, vector), vector["result"], "{name}");
        ops.insert(op);
    }
    assert_eq!(ops.len(), 15, "{ops:?}");
}

#[test]
fn the_paths_of_the_api_are_below_what_is_given_as_the_address() {
    for vector in read::<Vec<Value>>(ADDRESSES) {
        let found = Client::new(vector["address"].as_str().unwrap(), None);
        let base = found.as_ref().ok().map(Client::base);
        assert_eq!(base, vector["base"].as_str(), "{}", vector["name"]);
    }
}

#[test]
fn an_id_is_at_home_where_the_node_has_it() {
    let topics: Vec<Value> = read(HOMES);
    assert!(topics.len() > 3);
    for topic in topics {
        let number = |name: &str| u32::try_from(topic[name].as_u64().unwrap()).unwrap();
        for (id, shard) in topic["homes"].as_object().unwrap() {
            let id = MessageId::new(id).unwrap();
            assert_eq!(u64::from(shard_of(&id, number("seed"), number("shards"))), shard.as_u64().unwrap(), "{id}");
        }
    }
}

/// A value that the field of this name may have.
fn sample(name: &str) -> Value {
    match name {
        "id" | "outcome" | "code" | "detail" | "field" | "name" | "state" | "reason" | "payload" | "payload_base64"
        | "receipt" | "delivery_id" | "visibility_timeout" | "traceparent" | "version" | "title" | "type" => {
            json!("text")
        }
        "headers" => json!({"a": "b"}),
        "became" => json!({"outcome": "delivered", "at": 1}),
        "death" => json!({"at": 1, "reason": "text"}),
        "repeat" => json!({"every": "1h", "missed": "skip"}),
        "previous" => json!({"edited_at": 1, "bytes": 1}),
        "error" => json!({"code": "text", "detail": "text", "index": 1, "retryable": true}),
        "results" | "messages" => json!([]),
        "in_flight" | "retryable" => json!(true),
        _ => json!(1),
    }
}

/// A type reads and keeps each field of a schema, and needs none that is not always there.
fn has_the_fields<T: Serialize + DeserializeOwned>(
    schemas: &Value,
    schema: &str,
    but: &[&str],
    samples: &Map<String, Value>,
) {
    let names = |kind: &str| texts(&schemas[schema][kind]).into_iter().filter(|name| !but.contains(&name.as_str()));
    let made = |names: &mut dyn Iterator<Item = String>| -> Map<String, Value> {
        names.map(|name| (name.clone(), samples.get(&name).cloned().unwrap_or_else(|| sample(&name)))).collect()
    };
    let whole = made(&mut names("fields"));
    let kept: T = serde_json::from_value(Value::Object(whole.clone())).unwrap();
    for (name, value) in whole {
        let found = shown(&kept);
        let is_kept = found.get(&name).is_some_and(|kept| *kept == value || kept.is_object());
        assert!(is_kept, "{schema}: {name} is lost in {found}");
    }
    let least = made(&mut names("required"));
    serde_json::from_value::<T>(Value::Object(least)).unwrap_or_else(|error| panic!("{schema}: {error}"));
}

#[test]
fn a_type_has_the_fields_of_the_document() {
    let shapes: Value = read(SHAPES);
    let (schemas, none) = (&shapes["schemas"], Map::new());
    let with = |name: &str, value: Value| Map::from_iter([(name.to_owned(), value)]);
    has_the_fields::<Placed>(schemas, "Placed", &[], &none);
    has_the_fields::<Outcome>(schemas, "OutcomeView", &[], &none);
    has_the_fields::<Became>(schemas, "Became", &[], &none);
    has_the_fields::<Message>(schemas, "MessageView", &[], &none);
    has_the_fields::<ClaimedMessage>(schemas, "ClaimedView", &[], &none);
    has_the_fields::<Death>(schemas, "DeathView", &[], &none);
    has_the_fields::<ItemProblem>(schemas, "ItemProblem", &[], &none);
    has_the_fields::<Answer<Placed>>(schemas, "ItemError", &[], &none);
    let results = json!([{"outcome": "ok"}]);
    has_the_fields::<Claimed>(schemas, "ClaimedViews", &[], &with("results", results));
    let topic = json!({"name": "a", "shards": 1, "created_at": 1, "oldest_due_at": 2, "version": 3});
    let topic: Topic = serde_json::from_value(topic).unwrap();
    let found = shown(&topic);
    for name in texts(&schemas["TopicView"]["fields"]) {
        assert!(found.get(&name).is_some(), "TopicView: {name}");
    }
    // What is said of a message that a refusal is about is read as its outcome; `found` is said of a node by /readyz.
    let read_elsewhere = ["type", "id", "outcome", "due_at", "shard", "replicas", "found"];
    has_the_fields::<duetime_client::Problem>(schemas, "Problem", &read_elsewhere, &with("status", json!(404)));
}
