//! Is the store well, and who scans what?

use duetime_metrics::table::{
    BUILD_INFO, CERTIFICATE_ENDS, CONFIG_RELOADED, IN_FLIGHT_BUDGET_HELD, IN_FLIGHT_BUDGET_SIZE, LEASE_CHANGES,
    LINES_LOST, LOOP_RESTARTS, NODES_SERVING, OWNERSHIP_UP, PENDING_BYTES, REPLICA_WAITS, SHARD_DUE,
    SHARD_OLDEST_DUE_AGE, SHARD_REFUSALS, SHARDS_LOST, SHARDS_OWNED, SHARDS_UNOWNED, SHARDS_UNREACHABLE, SPANS,
    STORE_CALL, STORE_CLOCK_SKEW, STORE_ERRORS, STORE_ISSUES, STORE_LIMIT, STORE_USED, SURVEY_AGE, TOPIC_ISSUES,
};

use crate::board::Board;
use crate::expr::{NODES, TOPICS, WINDOW, count_rate, increase, max, process, quantile, rate, series, sum};
use crate::panel::{Panel, Shape};

pub(super) fn board() -> Board {
    let of_nodes = |what: &str| {
        let nodes = series(&BUILD_INFO, NODES);
        format!("{what} * on (job, instance) group_left (version, commit) {nodes}")
    };
    Board::new("store", "Store and shards", "Is the store well, and who scans what?")
        .row(
            "Danger",
            vec![
                Panel::new(Shape::Number, "Topics with issues", "short",
                    "Vanished from the catalog while their shards hold messages, or with a record that cannot be read.")
                    .wide(4)
                    .red_from(1.0)
                    .runbook("TopicIssue")
                    .query(format!("sum({})", max(&TOPIC_ISSUES, "kind", NODES)), ""),
                Panel::new(Shape::Number, "Shards lost", "short", "Shards whose server came back without them. 0 where there is no such series.")
                    .wide(4)
                    .red_from(1.0)
                    .runbook("TopicIssue")
                    .query(format!("sum({}) or vector(0)", max(&SHARDS_LOST, "topic", TOPICS)), ""),
                Panel::new(Shape::Number, "Masters with issues", "short",
                    "Masters of Redis with a policy or a disk that puts messages in danger, or with too few replicas; damage of the embedded store.")
                    .wide(4)
                    .red_from(1.0)
                    .runbook("MessagesInDanger")
                    .runbook("TooFewReplicas")
                    .query(format!("sum({})", max(&STORE_ISSUES, "kind", NODES)), ""),
                Panel::new(Shape::Number, "Clock skew", "s", "The furthest that the store's clock is from a node's. Beyond 2 s relative times are refused.")
                    .wide(4)
                    .orange_from(0.5)
                    .red_from(1.0)
                    .runbook("ClockSkew")
                    .query(format!("max(abs({}))", series(&STORE_CLOCK_SKEW, NODES)), ""),
                Panel::new(Shape::Lines, "Shards that were not made", "cps", "Because messages are in their place, or their topic vanished.")
                    .wide(8)
                    .query(rate(&SHARD_REFUSALS, "kind", NODES, WINDOW), "{{kind}}"),
            ],
        )
        .row(
            "Calls",
            vec![
                Panel::new(Shape::Lines, "Time of a call, p99", "s", "By operation. Claims wait for nothing: they are as slow as the store.")
                    .query(quantile(0.99, &STORE_CALL, "op", NODES, WINDOW), "{{op}}"),
                Panel::new(Shape::Lines, "Calls a second", "cps", "By operation; a call carries up to 256 messages.")
                    .query(count_rate(&STORE_CALL, "op", NODES, WINDOW), "{{op}}"),
                Panel::new(Shape::Stacked, "Calls that failed", "cps", "By kind. `full` needs memory or disk, `unavailable` a server.")
                    .runbook("StoreErrors")
                    .query(format!("{} or vector(0)", rate(&STORE_ERRORS, "kind", NODES, WINDOW)), "{{kind}}"),
                Panel::new(Shape::Stacked, "Calls that waited for replicas", "cps",
                    "By whether as many have it as store.durability asks for; `no`: a failover now would lose what those that follow lack.")
                    .query(rate(&REPLICA_WAITS, "reached", NODES, WINDOW), "{{reached}}"),
                Panel::new(Shape::Lines, "Bytes used, and their limit", "bytes",
                    "Memory of each master of Redis, or the disk of the embedded store. A Redis without a line for its limit has none: set `maxmemory`.")
                    .runbook("StoreFull")
                    .runbook("StoreFullIn6h")
                    .runbook("NoMemoryLimit")
                    .query(max(&STORE_USED, "server", NODES), "{{server}}")
                    .query(max(&STORE_LIMIT, "server", NODES), "{{server}}, limit"),
                Panel::new(Shape::Stacked, "Bytes of messages", "bytes", "Payloads and headers of all that waits, dead letters too; estimated on Redis, which adds some 200 bytes a message.")
                    .query(sum(&PENDING_BYTES, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "Clock of the store against the nodes'", "s", "Above 0 the store is ahead, below 0 behind.")
                    .wide(24)
                    .signed()
                    .runbook("ClockSkew")
                    .query(series(&STORE_CLOCK_SKEW, NODES), "{{instance}}"),
            ],
        )
        .row(
            "Shards",
            vec![
                Panel::new(Shape::Lines, "Shards that cannot be reached", "short", "Their server does not answer: what falls due in them waits.")
                    .runbook("StoreAway")
                    .query(sum(&SHARDS_UNREACHABLE, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "Since the store answered a node", "s", "Surveys of its shards are five seconds apart; above 30 it is away from that node.")
                    .runbook("StoreAway")
                    .query(series(&SURVEY_AGE, NODES), "{{instance}}"),
                Panel::new(Shape::Lines, "Ten latest shards", "s", "How long the oldest due message of a shard has waited.")
                    .query(format!("topk(10, {})", max(&SHARD_OLDEST_DUE_AGE, "topic, shard", TOPICS)), "{{topic}} {{shard}}"),
                Panel::new(Shape::Lines, "Ten fullest shards", "short", "Due messages. One far above the others is a hot shard.")
                    .query(format!("topk(10, {})", sum(&SHARD_DUE, "topic, shard", TOPICS)), "{{topic}} {{shard}}"),
                Panel::new(Shape::Stacked, "Shards by the node that scans them", "short", "The sum is the number of shards; a dent is a change of owners.")
                    .query(format!("sum by (instance) ({})", series(&SHARDS_OWNED, TOPICS)), "{{instance}}"),
                Panel::new(Shape::Lines, "Shards that no node scans", "short",
                    "Above 0 for seconds while a node comes or goes; what is due in them waits. Always 0 in round-robin.")
                    .runbook("NothingScans")
                    .query(max(&SHARDS_UNOWNED, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "Nodes that share the shards", "short", "As each node sees them. Lines that differ for long: nodes do not see each other.")
                    .runbook("OwnersDisagree")
                    .query(series(&NODES_SERVING, NODES), "{{instance}}"),
                Panel::new(Shape::Lines, "Nodes that can share shards out", "short", "1 while etcd, or Redis in round-robin, answers the node and takes its writes.")
                    .runbook("OwnershipDown")
                    .query(series(&OWNERSHIP_UP, NODES), "{{instance}}"),
                Panel::new(Shape::Stacked, "Changes of owners", "cps", "By what became of shards at a node.")
                    .wide(24)
                    .query(format!("{} or vector(0)", rate(&LEASE_CHANGES, "kind", NODES, WINDOW)), "{{kind}}"),
            ],
        )
        .row(
            "Nodes",
            vec![
                Panel::new(Shape::Table, "Nodes", "s", "Which version each runs, for how long, and how often it was started again.")
                    .runbook("NodeDown")
                    .query(of_nodes(&format!("max by (job, instance) (time() - {})", process("start_time_seconds"))), "Runs for")
                    .plain_column(of_nodes(&format!("sum by (job, instance) (changes({}[1d]))", process("start_time_seconds"))), "Restarts within a day")
                    .plain_column(of_nodes(&format!("min by (job, instance) ({})", series(&CONFIG_RELOADED, NODES))), "Configuration taken"),
                Panel::new(Shape::Lines, "Share of the in-flight budget", "percentunit",
                    "Above 0.8 for long: slow sinks hold what the node may hold, and topics wait for one another.")
                    .runbook("InFlightBudgetFull")
                    .query(
                        format!("{} / {}", series(&IN_FLIGHT_BUDGET_HELD, NODES), series(&IN_FLIGHT_BUDGET_SIZE, NODES)),
                        "{{instance}} {{unit}}",
                    ),
                Panel::new(Shape::Lines, "Loops started again within an hour", "short", "Above 0: a fault of the program; report it with the log's `error` lines.")
                    .runbook("LoopRestarts")
                    .query(format!("topk(10, {})", increase(&LOOP_RESTARTS, "instance, loop", NODES, "1h")), "{{instance}} {{loop}}"),
                Panel::new(Shape::Lines, "Lines of the log lost within an hour", "short", "Above 0: what takes the log or the audit file stands still or is full.")
                    .query(increase(&LINES_LOST, "instance, log", NODES, "1h"), "{{instance}} {{log}}"),
                Panel::new(Shape::Stacked, "Spans a second, by outcome", "cps", "`queue_full` and `failed` are dropped: the collector is slow or away. 0 where no traces are exported.")
                    .query(rate(&SPANS, "outcome", NODES, WINDOW), "{{outcome}}"),
                Panel::new(Shape::Lines, "Until a certificate ends", "s", "Of those that nodes show. Nothing where nodes speak no TLS.")
                    .signed()
                    .runbook("CertificateEnds")
                    .query(format!("min by (instance, setting) ({}) - time()", series(&CERTIFICATE_ENDS, NODES)), "{{instance}} {{setting}}"),
                Panel::new(Shape::Lines, "Processor", "none", "Cores that are busy; a node with nothing due needs next to none.")
                    .wide(8)
                    .query(format!("rate({}[{WINDOW}])", process("cpu_seconds_total")), "{{instance}}"),
                Panel::new(Shape::Lines, "Memory", "bytes", "Resident. It grows with what is in flight, not with what is scheduled.")
                    .wide(8)
                    .query(process("resident_memory_bytes"), "{{instance}}"),
                Panel::new(Shape::Lines, "Open files", "percentunit", "Of what the system allows; at 1 no connection is taken any more.")
                    .wide(8)
                    .query(format!("{} / {}", process("open_fds"), process("max_fds")), "{{instance}}"),
            ],
        )
}
