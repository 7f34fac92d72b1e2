//! Texts of properties that mean the same wherever they are.

use utoipa::openapi::schema::AnyOf;
use utoipa::openapi::{AllOf, Array, Object, OneOf, OpenApi, RefOr, Schema};

/// What a property of that name is, where its struct says no more.
const TEXTS: [(&str, &str); 45] = [
    ("action", "What is done to each message."),
    ("all", "All of them; give either this or `ids`."),
    ("cancelled", "How many were cancelled."),
    ("count", "How many there are."),
    ("counts", "What became of the messages so far."),
    ("created_at", "When it was made, in milliseconds since the Unix epoch."),
    ("dead", "Dead letters."),
    ("death", "When and why it became a dead letter; only of a dead letter."),
    ("delay", "How long from now, instead of `due_at`."),
    ("deliveries", "How many were delivered."),
    ("detail", "What is wrong and what to do, for people."),
    ("due_at", "When it is due, in milliseconds since the Unix epoch."),
    ("due_from", "Only messages that are due then or later, in milliseconds since the Unix epoch."),
    ("due_to", "Only messages that are due earlier than that, in milliseconds since the Unix epoch."),
    ("ended_at", "When it ended, in milliseconds since the Unix epoch; absent: it has not."),
    ("error", "Why it was refused or failed."),
    ("found", "What was found, for each thing the node depends on."),
    ("from", "Number of shards before."),
    ("headers", "Headers of the message: names in lower case, texts."),
    ("id", "The id."),
    ("ids", "Ids of messages."),
    ("index", "Number of the shard, from 0."),
    ("max_attempts", "After how many attempts it is a dead letter."),
    ("messages", "The messages, in the order in which they are due."),
    ("mode", "How nodes share the shards."),
    ("name", "The name."),
    ("nodes", "The nodes that are known, this one among them."),
    ("on_conflict", "What is done where a message has this id already."),
    ("only_state", "Only messages in this state."),
    ("outcome", "What became of it."),
    ("per_second", "At most so many messages a second."),
    ("prefix", "Only messages whose ids begin so."),
    ("reason", "Why, for people."),
    ("receipt", "The receipt of this claim, for its ack, nack, release or extension."),
    ("receipts", "Receipts of claims, as they were answered."),
    ("refused", "Messages that it refused, by reason."),
    ("results", "One for each item of the request, in its order."),
    ("retried", "Attempts that failed and are tried again."),
    ("shard", "Number of its shard, from 0."),
    ("shards", "The shards, by their numbers."),
    ("sink", "Name of the sink."),
    ("started_at", "When it was started, in milliseconds since the Unix epoch; absent: it was not."),
    ("state", "Where it is in its life."),
    ("status", "The status."),
    ("to", "Number of shards after."),
];
const MORE: [(&str, &str); 4] = [
    ("consumer", "The name that the consumer gave itself."),
    ("topic", "Name of the topic."),
    ("type", "The kind of sink."),
    ("version", "The version of its program."),
];

fn text_of(name: &str) -> Option<&'static str> {
    TEXTS.iter().chain(&MORE).find(|(known, _)| *known == name).map(|(_, text)| *text)
}

fn describe(property: &mut RefOr<Schema>, text: &str) {
    let description = match property {
        RefOr::Ref(part) => {
            if part.description.is_empty() {
                text.clone_into(&mut part.description);
            }
            return;
        }
        RefOr::T(
            Schema::Object(Object { description, .. })
            | Schema::Array(Array { description, .. })
            | Schema::OneOf(OneOf { description, .. })
            | Schema::AllOf(AllOf { description, .. })
            | Schema::AnyOf(AnyOf { description, .. }),
        ) => description,
        RefOr::T(_) => return,
    };
    description.get_or_insert_with(|| text.to_owned());
}

fn in_schema(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(object)) => {
            for (name, property) in &mut object.properties {
                if let Some(text) = text_of(name) {
                    describe(property, text);
                }
            }
        }
        RefOr::T(Schema::OneOf(either)) => either.items.iter_mut().for_each(in_schema),
        RefOr::T(Schema::AllOf(parts)) => parts.items.iter_mut().for_each(in_schema),
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
}

/// Gives each property without a text that of its name.
pub(super) fn add(api: &mut OpenApi) {
    api.components.iter_mut().flat_map(|parts| parts.schemas.values_mut()).for_each(in_schema);
}
