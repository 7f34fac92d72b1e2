//! Every metric's name, kind, labels and help, in one table. Base units; never an id in a label.

/// What sort of metric it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size, with these buckets.
    Histogram(&'static [f64]),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Full name.
    pub name: &'static str,
    /// Sort and buckets.
    pub kind: Kind,
    /// Label names.
    pub labels: &'static [&'static str],
    /// One line for people.
    pub help: &'static str,
}

/// From 1 ms, below which nobody cares, to an hour.
const LATENESS_S: &[f64] = &[
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
    900.0, 3600.0,
];
const CALL_S: &[f64] =
    &[0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const BATCH: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

macro_rules! table {
    ($($konst:ident = $name:literal, $kind:expr, $labels:expr, $help:literal;)*) => {
        $(#[doc = $help] pub const $konst: Metric = Metric { name: $name, kind: $kind, labels: &$labels, help: $help };)*
        /// All rows.
        pub const TABLE: &[Metric] = &[$($konst),*];
    };
}

table! {
    LATENESS = "duetime_lateness_seconds", Kind::Histogram(LATENESS_S), ["topic"],
        "From the due time of a message to the moment its sink accepted it or a consumer was given it.";
    CLAIM_DELAY = "duetime_claim_delay_seconds", Kind::Histogram(LATENESS_S), ["topic"],
        "The first part of the lateness: from the due time of a message to its claim.";
    DELIVERY = "duetime_delivery_seconds", Kind::Histogram(LATENESS_S), ["topic"],
        "The rest of the lateness: from the claim of a message to the moment its sink accepted it or a consumer was given it.";
    MESSAGES = "duetime_messages_total", Kind::Counter, ["topic", "event"],
        "Messages by what happened to them.";
    SCHEDULED = "duetime_scheduled", Kind::Gauge, ["topic"],
        "Messages nobody holds, due or not, in the shards this node scans: sum over nodes. With duetime_in_flight and duetime_dead it is every message.";
    DUE = "duetime_due", Kind::Gauge, ["topic"],
        "Messages that can be claimed now, in the shards this node scans: sum over nodes. A part of duetime_scheduled (their time has come) and of duetime_in_flight (their claim ran out).";
    IN_FLIGHT = "duetime_in_flight", Kind::Gauge, ["topic"],
        "Messages claimed and not settled, also those whose claim ran out, in the shards this node scans: sum over nodes.";
    DEAD = "duetime_dead", Kind::Gauge, ["topic"],
        "Dead letters in the shards this node scans: sum over nodes.";
    OLDEST_DUE_AGE = "duetime_oldest_due_age_seconds", Kind::Gauge, ["topic"],
        "How long the oldest due message of the shards this node scans has been waiting, and while the sink is down how long it is; of shards that cannot be reached, going by what was last known of them; 0 when nothing waits: max over nodes.";
    SHARDS = "duetime_shards", Kind::Gauge, ["topic"],
        "Shards the topic has; the same at each node: max over nodes.";
    SHARDS_OWNED = "duetime_shards_owned", Kind::Gauge, ["topic"],
        "Shards of the topic this node scans: sum over nodes.";
    SHARDS_UNOWNED = "duetime_shards_unowned", Kind::Gauge, ["topic"],
        "Shards of the topic that no node scans, as this node sees it; 0 in round-robin, where none sees who scans the others': max over nodes.";
    SHARDS_UNREACHABLE = "duetime_shards_unreachable", Kind::Gauge, ["topic"],
        "Shards of the topic this node scans whose server did not answer the last survey: what falls due in them waits. Sum over nodes.";
    SHARDS_FULL = "duetime_shards_full", Kind::Gauge, ["topic"],
        "Shards of the topic this node scans in which something is due and as many messages are in flight as its max_in_flight allows, as they answered while a sink or a consumer asked: sum over nodes.";
    SURVEY_AGE = "duetime_survey_age_seconds", Kind::Gauge, [],
        "How long ago a server of the store last answered this node's survey of its shards; surveys are some seconds apart. Look at each node.";
    CONSUMER_CLAIM_AGE = "duetime_consumer_claim_age_seconds", Kind::Gauge, ["topic"],
        "How long no consumer has asked this node to claim from the topic; 0 while one waits, and where a sink is delivered to: min over nodes.";
    RETRIES_WAITING = "duetime_retries_waiting", Kind::Gauge, ["topic"],
        "Messages that this node gave back for another attempt and whose time for it has not come; one that is cancelled meanwhile is still counted, and a restart forgets: sum over nodes. A part of duetime_scheduled.";
    PENDING_BYTES = "duetime_pending_bytes", Kind::Gauge, ["topic"],
        "Bytes of payloads and headers of all messages in the shards this node scans, dead letters too; on Redis an estimate from some messages of each shard, without what Redis adds. Counted every half minute at most: sum over nodes.";
    RESIZE_REMAINING = "duetime_resize_remaining", Kind::Gauge, ["topic"],
        "Messages still to be moved by the resize under way, as far as this node knows; 0 when none is: max over nodes.";
    CLAIM_BATCH_SIZE = "duetime_claim_batch_size", Kind::Histogram(BATCH), ["topic"],
        "Messages brought by one claim that brought any.";
    CLAIMS_EXPIRED = "duetime_claims_expired_total", Kind::Counter, ["topic"],
        "Claims that ended without a verdict: a holder crashed, or its visibility timeout is too short. Counted when the message is claimed again: while nobody claims, duetime_due and duetime_oldest_due_age_seconds grow.";
    SETTLEMENTS_EXPIRED = "duetime_settlements_expired_total", Kind::Counter, ["topic"],
        "Verdicts that came after their claim had ended: the message is delivered again, unless it was cancelled.";
    CLAIMS_UNANSWERED = "duetime_at_most_once_claims_unanswered_total", Kind::Counter, ["topic"],
        "Claims for the sink of an at-most-once topic whose answer was lost: what they had removed, up to 256 messages each, is gone.";
    BREAKER_OPEN = "duetime_breaker_open", Kind::Gauge, ["topic", "sink"],
        "1 while this node takes the topic's sink to be down and has stopped claims, else 0: max over nodes. Topics without a sink have none.";
    BREAKER_OPENS = "duetime_breaker_opens_total", Kind::Counter, ["topic"],
        "How often the topic's sink was taken to be down by this node.";
    BREAKER_OPEN_SECONDS = "duetime_breaker_open_seconds_total", Kind::Counter, ["topic"],
        "How long claims were stopped because the topic's sink was taken to be down.";
    FAILURES_UNDECIDED = "duetime_failures_undecided_total", Kind::Counter, ["topic"],
        "Failed deliveries that cost no attempt for the moment, because the sink accepted nothing that was sent after them for two seconds, and was not down either.";
    PAUSED = "duetime_paused", Kind::Gauge, ["topic"],
        "1 while the topic is paused: nothing is claimed, what falls due waits. The same at each node: max over nodes.";
    FORECAST = "duetime_forecast", Kind::Gauge, ["topic", "within"],
        "Messages that fall due from now on within 1m, 5m, 1h and 24h, in the shards this node scans, counted every half minute at most: sum over nodes.";
    CAPACITY = "duetime_capacity", Kind::Gauge, ["topic"],
        "Messages a second this node was able to deliver, as measured: the best five seconds of the last 24 hours in which it delivered 500, or fewer while messages had waited for 15 seconds and more though nothing was down; 0 while there were none. What is possible may be more: sum over nodes.";
    FORECAST_LATE = "duetime_forecast_late_seconds", Kind::Gauge, ["topic"],
        "How late the last message of a herd within the coming hour will be in the shards this node scans, beside what is due already, at duetime_capacity or the topic's rate limit; 0 where all are in time or neither is known: max over nodes.";
    STORE_USED = "duetime_store_used_bytes", Kind::Gauge, ["server"],
        "Memory that a master of Redis uses, or bytes of the embedded store's folder, as this node sees it: max over nodes.";
    STORE_LIMIT = "duetime_store_limit_bytes", Kind::Gauge, ["server"],
        "Most that a master of Redis may use (maxmemory; absent without one), or bytes of the embedded store's folder and what is free on its disk: max over nodes.";
    STORE_CALL = "duetime_store_call_seconds", Kind::Histogram(CALL_S), ["op"],
        "Time of one call to the store, by operation of the contract; resize_… and …_at_source are of a change of the shard count.";
    STORE_ERRORS = "duetime_store_errors_total", Kind::Counter, ["kind"],
        "Store calls that failed, by kind.";
    REPLICA_WAITS = "duetime_replica_waits_total", Kind::Counter, ["reached"],
        "Calls to the store that waited for replicas, by whether as many have the change as store.durability asks for: yes, no. Only with replicas:N.";
    STORE_CLOCK_SKEW = "duetime_store_clock_skew_seconds", Kind::Gauge, [],
        "By how much the store's clock is ahead of this node's, negative: behind; of several masters, the one that is furthest away; of an embedded store, by how much the machine's clock was set back, negative: ahead, until it has held for ten minutes. Look at each node.";
    SHARD_REFUSALS = "duetime_shard_refusals_total", Kind::Counter, ["kind"],
        "Shards that were not made: vanished (a topic's record is gone, its messages are not), occupied (by messages of another incarnation), lost.";
    SHARDS_LOST = "duetime_shards_lost", Kind::Gauge, ["topic"],
        "Shards that should be there and are not: their server came back without them. The same at each node: max over nodes.";
    TOPIC_ISSUES = "duetime_topic_issues", Kind::Gauge, ["kind"],
        "Topics that vanished from the catalog while their shards hold messages, whose record is outdated (older than their shards) or unreadable, or with messages stranded on their way to a shard that they do not have. The same at each node: max over nodes.";
    STORE_ISSUES = "duetime_store_issues", Kind::Gauge, ["kind"],
        "Masters of Redis that have an issue, by kind: eviction and disk put messages in danger; replicas: fewer than store.durability asks for; unguarded: behind Sentinel without min-replicas-to-write. Of an embedded store: disk_full, 1 while its disk is full and it refuses new messages; damage, its damaged shards and one if acknowledged transactions are missing; checkpoint, 1 while its log cannot be copied into the database. As this node sees them: max over nodes.";
    SINK_CALL = "duetime_sink_call_seconds", Kind::Histogram(CALL_S), ["sink", "type"],
        "Time of one delivery of a batch, by the sink's name and type.";
    SINK_ERRORS = "duetime_sink_errors_total", Kind::Counter, ["sink", "type", "kind"],
        "Messages a sink did not accept, by its name and type and by kind: retry (the target answered: not now), refused (the target answered: never), rejected (it cannot be sent), no_answer (it may have arrived), unavailable (the target as a whole), limit (its own limit, not sent).";
    SHARD_DUE = "duetime_shard_due", Kind::Gauge, ["topic", "shard"],
        "Messages whose time has come in a shard this node scans; beyond 32 shards of a topic the least late are summed up as rest. Sum over nodes.";
    SHARD_OLDEST_DUE_AGE = "duetime_shard_oldest_due_age_seconds", Kind::Gauge, ["topic", "shard"],
        "How long the oldest due message of a shard this node scans has been waiting; 0 when none is due: max over nodes.";
    LEASE_CHANGES = "duetime_lease_changes_total", Kind::Counter, ["kind"],
        "Shards by what became of them at this node: taken, released, lost with its lease, taken_over from a node that is gone, late and taken out of turn.";
    OWNERSHIP_UP = "duetime_ownership_up", Kind::Gauge, ["mode"],
        "1 while what nodes share the shards by (etcd, or the counter of turns in Redis) answers this node and takes its writes, else 0; always 1 in solo. Look at each node.";
    NODES_SERVING = "duetime_nodes_serving", Kind::Gauge, ["mode"],
        "Nodes that serve and share the shards, as this node sees them: max over nodes.";
    IN_FLIGHT_BUDGET_HELD = "duetime_in_flight_budget_held", Kind::Gauge, ["unit"],
        "What this node holds of its in-flight budget, by unit: messages, or bytes of ids, headers and payloads: sum over nodes.";
    IN_FLIGHT_BUDGET_SIZE = "duetime_in_flight_budget_size", Kind::Gauge, ["unit"],
        "The size of this node's in-flight budget, by unit: messages, bytes: sum over nodes.";
    LOOP_RESTARTS = "duetime_loop_restarts_total", Kind::Counter, ["loop"],
        "Background loops that ended or panicked and were started again: a fault of the program, the log says which.";
    CANCELS = "duetime_cancels_total", Kind::Counter, ["topic", "verdict"],
        "Cancels by what was answered: cancelled, in_flight (perhaps delivered, will not be tried again), unknown.";
    REQUESTS = "duetime_http_requests_total", Kind::Counter, ["route", "method", "status"],
        "HTTP requests by route, method and status.";
    REQUEST_SECONDS = "duetime_http_request_seconds", Kind::Histogram(CALL_S), ["route", "method"],
        "From the head of an HTTP request to the head of its answer. A claim waits as long as it asks to; of a stream it is the first part only.";
    AUTH_REFUSED = "duetime_auth_refused_total", Kind::Counter, ["reason"],
        "Requests refused because of their token: token_missing, token_unknown, forbidden (its scopes or topics), rate_limited, too_many_topics.";
    CERTIFICATE_ENDS = "duetime_certificate_ends_timestamp_seconds", Kind::Gauge, ["setting"],
        "When a certificate that this node shows ends, in seconds since the Unix epoch, by the key of the configuration that names its file. Look at each node.";
    CONFIG_RELOADED = "duetime_config_last_reload_successful", Kind::Gauge, [],
        "1 if the configuration, tokens and certificates were taken when they were last read, at the start, on SIGHUP or because a file changed; 0: a file is wrong, the log says which, and the node goes on with what it had. Look at each node.";
    SPANS = "duetime_spans_total", Kind::Counter, ["outcome"],
        "Spans of deliveries by what became of them: exported, queue_full (more at once than OTEL_BSP_MAX_QUEUE_SIZE, dropped), failed (the collector did not take them, dropped). 0 where no traces are exported.";
    LINES_LOST = "duetime_log_lines_lost_total", Kind::Counter, ["log"],
        "Lines that were not written, because what takes them stood still or was full for longer than a bounded queue lasts, by log: log (the node's own), audit (node.audit as a file; what administrators do is never among them).";
    BUILD_INFO = "duetime_build_info", Kind::Gauge, ["version", "commit", "features", "store", "mode"],
        "1, with the version of the program, the commit it is built from, what is built in beyond a plain build, the kind of its store (embedded, redis, redis-cluster, redis-sentinel) and how nodes share the shards.";
}
