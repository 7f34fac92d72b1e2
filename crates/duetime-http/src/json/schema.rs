//! Parts of the API's document that several requests and answers share: how scalars are written, and words.

use serde_json::Value;
use utoipa::ToSchema;

use crate::json::codes::CODES;

macro_rules! one_of {
    ($(#[$doc:meta])* $name:ident, $($schema:tt)*) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                serde_json::from_value(serde_json::json!($($schema)*)).expect("a schema of JSON Schema 2020-12")
            }
        }

        impl utoipa::ToSchema for $name {}
    };
}
pub(crate) use one_of;

one_of!(
    /// `"500ms"`, `"30m"`, `"1h 30m"`. A number without a unit is refused, but for 0.
    DurationIn,
    {"oneOf": [
        {"type": "integer", "minimum": 0, "maximum": 0, "description": "Nothing at all"},
        {"type": "string", "description": "Like 500ms, 30m, 1h 30m"}
    ]}
);

one_of!(
    /// Milliseconds since the Unix epoch, or RFC 3339.
    TimeIn,
    {"oneOf": [
        {"type": "integer", "minimum": 1_000_000_000_000_i64, "description": "Whole milliseconds since the Unix epoch, not before 2001"},
        {"type": "string", "description": "RFC 3339, like 2030-01-31T12:00:00Z"}
    ]}
);

one_of!(
    /// A number of bytes, or `"256KiB"`.
    SizeIn,
    {"oneOf": [
        {"type": "integer", "minimum": 1, "description": "Bytes"},
        {"type": "string", "description": "Like 256KiB"}
    ]}
);

one_of!(
    /// 1 to 4096, or `"auto"` to follow the number of nodes.
    ShardCountIn,
    {"oneOf": [
        {"type": "integer", "minimum": 1, "maximum": 4096},
        {"type": "string", "enum": ["auto"]}
    ]}
);

one_of!(
    /// Stable word for programs.
    Code,
    {"type": "string", "enum": CODES}
);

macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $($word:literal)*) => {
        one_of!($(#[$doc])* $name, {"type": "string", "enum": [$($word),*]});
    };
}

words!(
    /// What became of an enqueue.
    PlacedOutcome: "scheduled" "replaced" "kept" "duplicate" "cancelled_before"
);
words!(
    /// What became of a cancel, a reschedule, a settlement or a deletion.
    Outcome: "cancelled" "delivered" "rescheduled" "in_flight" "dead" "unknown" "ok" "already" "expired" "gone" "changed" "moved" "deleted" "deleting"
);
words!(
    /// Why a request about one message is refused: what the message is, or was.
    RefusedOutcome: "duplicate" "cancelled_before" "in_flight" "dead" "unknown" "delivered" "cancelled" "changed" "expired" "moved"
);
words!(
    /// How a message ended: `cancelled_in_flight` may have been delivered, of `cancelled_before` there was none,
    /// `moved` lives elsewhere.
    End: "delivered" "cancelled" "cancelled_in_flight" "dead" "cancelled_before" "expired" "moved"
);
words!(
    /// What became of a dead letter: `unknown` is none, `refused` is not an id, or is too long for another topic,
    /// `duplicate` is in the other topic already, `changed` died again.
    DeadLetterOutcome: "redriven" "purged" "unknown" "refused" "failed" "duplicate" "changed"
);
words!(
    /// Where a message is in its life.
    MessageState: "scheduled" "in_flight" "dead"
);
words!(
    /// Who says how long a claim hides a message.
    VisibilityFrom: "message" "topic"
);
one_of!(
    /// Where a live message is in its life, with the present time in view.
    ListedState,
    {"type": "string", "enum": duetime_router::ListedState::WORDS}
);
words!(
    /// What keeps a watermark from being later.
    HeldReason: "due" "in_flight" "retrying" "moving" "shard_unreachable" "resizing"
);
words!(
    /// What a bulk plan does to each message.
    BulkAction: "redrive" "purge" "cancel" "due_now" "reschedule"
);
words!(
    /// How far a bulk plan is.
    PlanState: "planned" "running" "stopping" "stopped" "done" "failed"
);
words!(
    /// How far taking a bulk plan back is.
    UndoState: "impossible" "keeping" "possible" "asked" "running" "done" "over" "lost"
);
words!(
    /// What a node does. One that is `unhealthy` cannot claim and has given its shards away.
    NodeState: "serving" "draining" "unhealthy"
);
words!(
    /// How nodes share the shards.
    OwnershipMode: "solo" "round-robin" "etcd"
);
words!(
    /// Whether the node is able to serve; `degraded`: single topics, or the sharing of shards, are harmed.
    Readiness: "ready" "degraded"
);

/// Which configured sink, with the topic's own settings for it.
#[derive(ToSchema)]
#[schema(as = Sink)]
#[allow(dead_code)]
pub(crate) struct SinkSchema {
    /// The name under `[sinks.NAME]` of the node's configuration.
    name: String,
    #[serde(flatten)]
    settings: std::collections::HashMap<String, Value>,
}
