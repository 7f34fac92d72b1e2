//! The OpenAPI document: generated from the handlers, with what they have in common added once.

use std::sync::OnceLock;

use serde_json::Value;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Response, ResponseBuilder, Schema,
};
use utoipa::{Modify, PartialSchema, ToSchema};

use crate::at_most::ARRAY_ITEMS_MAX;
use crate::problem::{CODES, PROBLEM_JSON, Problem};
use crate::results::ItemError;
use crate::view::OutcomeView;

macro_rules! one_of {
    ($(#[$doc:meta])* $name:ident, $($schema:tt)*) => {
        $(#[$doc])*
        pub(crate) struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<utoipa::openapi::Schema> {
                serde_json::from_value(serde_json::json!($($schema)*)).expect("a schema of JSON Schema 2020-12")
            }
        }

        impl ToSchema for $name {}
    };
}

one_of!(
    /// `"500ms"`, `"30m"`, `"1h 30m"` or whole milliseconds.
    DurationIn,
    {"oneOf": [
        {"type": "integer", "minimum": 0, "description": "Whole milliseconds"},
        {"type": "string", "description": "Like 500ms, 30m, 1h 30m"}
    ]}
);

one_of!(
    /// Milliseconds since the Unix epoch, or RFC 3339.
    TimeIn,
    {"oneOf": [
        {"type": "integer", "minimum": 0, "description": "Whole milliseconds since the Unix epoch"},
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
    PlacedOutcome: "scheduled" "replaced" "duplicate"
);
words!(
    /// What became of a cancel, a reschedule, a settlement or a deletion.
    Outcome: "cancelled" "rescheduled" "in_flight" "dead" "unknown" "ok" "expired" "gone" "deleted" "deleting"
);
words!(
    /// What became of a dead letter: `unknown` is none, `refused` is not an id.
    DeadLetterOutcome: "redriven" "purged" "unknown" "refused"
);
words!(
    /// Where a message is in its life.
    MessageState: "scheduled" "in_flight" "dead"
);
words!(
    /// What a node does. One that is `unfit` cannot claim and has given its shards away.
    NodeState: "serving" "draining" "unfit"
);
words!(
    /// How nodes share the shards.
    OwnershipMode: "solo" "round-robin" "etcd"
);
words!(
    /// Whether the node is able to serve; `degraded`: single topics are harmed.
    Readiness: "ready" "degraded"
);

/// One message, or an array of messages.
#[derive(ToSchema)]
#[schema(as = OneOrMany)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum OneOrManySchema {
    One(crate::message_in::MessageSchema),
    Many(Vec<crate::message_in::MessageSchema>),
}

/// What became of one message.
#[derive(ToSchema)]
#[schema(as = Placed)]
#[allow(dead_code)]
pub(crate) struct PlacedView {
    id: String,
    outcome: PlacedOutcome,
    /// Milliseconds since the Unix epoch; of a duplicate, where the store tells it.
    #[schema(nullable = false)]
    due_at: Option<i64>,
    shard: u32,
    /// Replicas of Redis that have it, where `store.durability` waits for them.
    #[schema(nullable = false)]
    replicas: Option<u32>,
}

/// One of many answers: an outcome or an error.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum EnqueueItem {
    Placed(PlacedView),
    Error(ItemError<'static>),
}

/// Answers in the order of the request.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct EnqueueItems {
    results: Vec<EnqueueItem>,
}

/// One message's outcome, or those of many.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum EnqueueAnswer {
    One(PlacedView),
    Many(EnqueueItems),
}

/// One of many answers: an outcome or an error.
#[derive(ToSchema)]
#[serde(untagged)]
#[allow(dead_code)]
pub(crate) enum OutcomeItem {
    Outcome(OutcomeView<'static>),
    Error(ItemError<'static>),
}

/// Answers in the order of the request.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct Outcomes {
    results: Vec<OutcomeItem>,
}

/// Another due time: give one of the two.
#[derive(ToSchema)]
#[schema(as = Reschedule)]
#[allow(dead_code)]
pub(crate) struct RescheduleSchema {
    #[schema(nullable = false)]
    delay: Option<DurationIn>,
    #[schema(nullable = false)]
    due_at: Option<TimeIn>,
}

/// Ids of messages.
#[derive(ToSchema)]
#[schema(as = Ids)]
#[allow(dead_code)]
pub(crate) struct IdsSchema {
    #[schema(max_items = 65536)]
    ids: Vec<String>,
}

/// Dead letters: some by id, or all.
#[derive(ToSchema)]
#[schema(as = DeadLetters)]
#[allow(dead_code)]
pub(crate) struct DeadSchema {
    #[schema(nullable = false)]
    #[schema(max_items = 65536)]
    ids: Option<Vec<String>>,
    #[schema(nullable = false)]
    all: Option<bool>,
}

/// What to claim.
#[derive(ToSchema)]
#[schema(as = Claim)]
#[allow(dead_code)]
pub(crate) struct ClaimSchema {
    /// Most messages; 1 if absent.
    #[schema(nullable = false, minimum = 1, maximum = 256)]
    max: Option<u64>,
    /// How long to wait for something due, 60 s at most; not at all if absent.
    #[schema(nullable = false)]
    wait: Option<DurationIn>,
    /// How long the messages stay hidden; the topic's own if absent.
    #[schema(nullable = false)]
    visibility_timeout: Option<DurationIn>,
}

/// Receipts of claimed messages.
#[derive(ToSchema)]
#[schema(as = Receipts)]
#[allow(dead_code)]
pub(crate) struct ReceiptsSchema {
    #[schema(max_items = 65536)]
    receipts: Vec<String>,
}

/// Receipts of claimed messages, to be tried again.
#[derive(ToSchema)]
#[schema(as = Nack)]
#[allow(dead_code)]
pub(crate) struct NackSchema {
    #[schema(max_items = 65536)]
    receipts: Vec<String>,
    /// Until the next attempt; the topic's backoff if absent.
    #[schema(nullable = false)]
    delay: Option<DurationIn>,
    /// Why, for people; kept with the dead letter if this makes it one.
    #[schema(nullable = false, max_length = 400)]
    reason: Option<String>,
    /// Whether it is a dead letter at once, whatever attempts are left; not together with `delay`.
    #[schema(nullable = false)]
    dead: Option<bool>,
}

/// Receipts of claimed messages that need more time.
#[derive(ToSchema)]
#[schema(as = Extend)]
#[allow(dead_code)]
pub(crate) struct ExtendSchema {
    #[schema(max_items = 65536)]
    receipts: Vec<String>,
    /// From now on; the topic's own if absent.
    #[schema(nullable = false)]
    visibility_timeout: Option<DurationIn>,
}

/// A wish for shards.
#[derive(ToSchema)]
#[schema(as = Shards)]
#[allow(dead_code)]
pub(crate) struct ShardsSchema {
    shards: ShardCountIn,
}

/// When failed messages are tried again.
#[derive(ToSchema)]
#[schema(as = Retry)]
#[allow(dead_code)]
pub(crate) struct RetrySchema {
    /// Attempts before a message is a dead letter. Default 10.
    #[schema(minimum = 1, maximum = 99)]
    max_attempts: Option<u8>,
    /// Wait after the first failure. Default `1s`.
    initial: Option<DurationIn>,
    /// Longest wait, at most 7 days. Default `10m`.
    max: Option<DurationIn>,
    /// Each wait is the one before times this. Default 2.
    #[schema(minimum = 1, maximum = 10)]
    factor: Option<f64>,
    /// Share of the wait that is drawn at random. Default 0.2.
    #[schema(minimum = 0, maximum = 1)]
    jitter: Option<f64>,
}

/// At most so many messages are handed over per second.
#[derive(ToSchema)]
#[schema(as = RateLimit)]
#[allow(dead_code)]
pub(crate) struct RateLimitSchema {
    per_second: f64,
    /// How many may go at once after a pause. Default 1.
    burst: Option<u32>,
}

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

/// What is promised about a hand-over.
#[derive(ToSchema)]
#[schema(as = Delivery)]
#[allow(dead_code)]
pub(crate) enum DeliverySchema {
    #[serde(rename = "at-least-once")]
    AtLeastOnce,
    #[serde(rename = "at-most-once")]
    AtMostOnce,
}

/// Settings of a topic to be made or changed. What is absent stays, `null` goes back to the default.
#[derive(ToSchema)]
#[schema(as = TopicChange)]
#[allow(dead_code)]
pub(crate) struct TopicChangeSchema {
    /// Default `"auto"`.
    shards: Option<ShardCountIn>,
    /// Default: none, consumers claim.
    sink: Option<SinkSchema>,
    /// How long a claimed message stays hidden from others, 100 ms to 24 h. Default `30s`.
    visibility_timeout: Option<DurationIn>,
    retry: Option<RetrySchema>,
    /// Default: no limit.
    rate_limit: Option<RateLimitSchema>,
    /// Default `at-least-once`.
    delivery: Option<DeliverySchema>,
    /// Largest payload, 16 MiB at most. Default 256 KiB.
    max_payload: Option<SizeIn>,
    /// Acks, nacks and extensions too wait for replicas, as `store.durability` asks for. Default `false`.
    confirm_acks: Option<bool>,
}

/// How a topic is put right.
#[derive(ToSchema)]
#[schema(as = Adopt)]
#[allow(dead_code)]
pub(crate) struct AdoptSchema {
    /// Makes lost shards anew, empty, and empties places that hold another life's messages. Default false.
    #[schema(nullable = false)]
    accept_loss: Option<bool>,
    /// The topic's settings, if no copy of them is left.
    #[schema(nullable = false)]
    settings: Option<TopicChangeSchema>,
}

/// Settings of a topic as they apply.
#[derive(ToSchema)]
#[allow(dead_code)]
pub(crate) struct TopicSettings {
    shards: ShardCountIn,
    #[schema(nullable = false)]
    sink: Option<SinkSchema>,
    visibility_timeout: String,
    retry: RetrySchema,
    #[schema(nullable = false)]
    rate_limit: Option<RateLimitSchema>,
    delivery: DeliverySchema,
    max_payload: u64,
    /// Acks, nacks and extensions too wait for replicas; absent: they do not.
    #[schema(nullable = false)]
    confirm_acks: Option<bool>,
}

/// The document before any route is in it.
pub(crate) fn base() -> OpenApi {
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Duetime")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some(
                    "Delayed messages: enqueue them with a due time, cancel most, get the rest handed over when the \
                     moment has come. Durations are strings (`500ms`, `30m`, `1h 30m`) or whole milliseconds; times \
                     are whole milliseconds since the Unix epoch or RFC 3339, answers give milliseconds. Errors are \
                     problem details (RFC 9457): `code` is stable, `detail` says what to do.",
                ))
                .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build())),
        )
        .build()
}

fn problem(description: &str) -> RefOr<Response> {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(description).content(PROBLEM_JSON, content).build().into()
}

/// Adds what every route can answer, and the token.
struct Common;

impl Modify for Common {
    fn modify(&self, api: &mut OpenApi) {
        let components = api.components.get_or_insert_default();
        if let Some(RefOr::T(Schema::OneOf(variants))) = components.schemas.get_mut("OneOrMany") {
            for variant in &mut variants.items {
                if let RefOr::T(Schema::Array(many)) = variant {
                    many.max_items = Some(ARRAY_ITEMS_MAX);
                }
            }
        }
        components.schemas.insert(Problem::name().into_owned(), Problem::schema());
        let token = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        components.add_security_scheme("token", token);
        for (path, item) in &mut api.paths.paths {
            let reads = [&mut item.get].map(|slot| (slot, false));
            let writes = [&mut item.put, &mut item.post, &mut item.patch, &mut item.delete].map(|slot| (slot, true));
            for (slot, writes) in reads.into_iter().chain(writes) {
                let Some(operation) = slot else { continue };
                let mut add = |status: &str, description: &str| {
                    let all = &mut operation.responses.responses;
                    all.entry(status.to_owned()).or_insert_with(|| problem(description));
                };
                add("500", "The node met a bug, or the store is damaged");
                add("421", "This node does not go by the name in `Host`");
                add("503", "The store does not answer, or the node is draining; try again after a pause");
                if !path.starts_with("/v1/") {
                    continue;
                }
                add("400", "Something in the request is refused; `detail` says what to do");
                add("401", "No token, or one that is not known");
                add(
                    "429",
                    "The token's requests or messages a second are used up; `Retry-After` says when to ask again",
                );
                add("403", "The token may not do this, or the request comes from a page of another site");
                if path.contains("{topic}") {
                    add("404", "No such topic, or no such message");
                }
                if writes {
                    add("415", "The request has no content type, or one that is not read here");
                }
                if operation.request_body.is_some() {
                    add("408", "The body came too slowly");
                    add("413", "The body or the payload is too large");
                }
                if path.ends_with("/messages") || path.contains("/dead") || path.contains("/{id}") {
                    add("507", "The store is full");
                }
                let security = utoipa::openapi::security::SecurityRequirement::new("token", [""; 0]);
                operation.security.get_or_insert_with(|| vec![Default::default(), security]);
            }
        }
    }
}

/// The OpenAPI 3.1 document of the API.
#[must_use]
pub fn openapi() -> OpenApi {
    let mut api = crate::app::documented().into_openapi();
    Common.modify(&mut api);
    api
}

/// The same, as served.
pub(crate) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| openapi().to_json().expect("the document is plain data"))
}
