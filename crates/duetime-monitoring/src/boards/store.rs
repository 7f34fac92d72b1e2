//! Is the store well, and who scans what?

use duetime_metrics::table::{
    BUILD_INFO, IN_FLIGHT_BUDGET_HELD, IN_FLIGHT_BUDGET_SIZE, LEASE_CHANGES, LOOP_RESTARTS, NODES_SERVING,
    OWNERSHIP_UP, PENDING_BYTES, REPLICA_WAITS, SHARD_DUE, SHARD_OLDEST_DUE_AGE, SHARD_REFUSALS, SHARDS_LOST,
    SHARDS_OWNED, SHARDS_UNOWNED, SHARDS_UNREACHABLE, STORE_CALL, STORE_CLOCK_SKEW, STORE_ERRORS, STORE_ISSUES,
    STORE_LIMIT, STORE_USED, SURVEY_AGE, TOPIC_ISSUES,
};

use crate::board::Board;
use crate::expr::{NODES, TOPICS, WINDOW, count_rate, increase, max, quantile, rate, series, sum};
use crate::panel::{Panel, Shape};

pub(super) fn board() -> Board {
    let process = |name: &str| format!("process_{name}{{{NODES}}}");
    Board::new("store", "Store and shards", "Is the store well, and who scans what?")
        .row(
            "Danger",
            vec![
                Panel::new(Shape::Number, "Topics with issues", "short",
                    "Vanished from the catalog while their shards hold messages, or with a record that cannot be read.")
                    .warn(1.0, 1.0)
                    .query(format!("sum({})", max(&TOPIC_ISSUES, "kind", NODES)), ""),
                Panel::new(Shape::Number, "Shards lost", "short", "Shards whose server came back without them. 0 where there is no such series.")
                    .warn(1.0, 1.0)
                    .query(format!("sum({}) or vector(0)", max(&SHARDS_LOST, "topic", TOPICS)), ""),
                Panel::new(Shape::Number, "Masters with issues", "short", "Masters of Redis with a policy or a disk that puts messages in danger, or with too few replicas.")
                    .warn(1.0, 1.0)
                    .query(format!("sum({})", max(&STORE_ISSUES, "kind", NODES)), ""),
                Panel::new(Shape::Number, "Clock skew", "s", "The furthest that the store's clock is from a node's. Beyond 2 s relative times are refused.")
                    .warn(0.5, 1.5)
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
                    .query(format!("{} or vector(0)", rate(&STORE_ERRORS, "kind", NODES, WINDOW)), "{{kind}}"),
                Panel::new(Shape::Stacked, "Calls that waited for replicas", "cps",
                    "By whether as many have it as store.durability asks for; `no`: a failover now would lose what those that follow lack.")
                    .query(rate(&REPLICA_WAITS, "reached", NODES, WINDOW), "{{reached}}"),
                Panel::new(Shape::Lines, "Bytes used, share of the limit", "percentunit", "Memory of each master of Redis, or the disk of the embedded store. Nothing where Redis has no limit.")
                    .query(format!("{} / {}", max(&STORE_USED, "server", NODES), max(&STORE_LIMIT, "server", NODES)), "{{server}}"),
                Panel::new(Shape::Stacked, "Bytes of messages", "bytes", "Payloads and headers of all that waits, dead letters too; estimated on Redis, which adds some 200 bytes a message.")
                    .query(sum(&PENDING_BYTES, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "Clock of the store against the nodes'", "s", "Above 0 the store is ahead, below 0 behind.")
                    .signed()
                    .query(series(&STORE_CLOCK_SKEW, NODES), "{{instance}}"),
            ],
        )
        .row(
            "Shards",
            vec![
                Panel::new(Shape::Lines, "Shards that cannot be reached", "short", "Their server does not answer: what falls due in them waits.")
                    .query(sum(&SHARDS_UNREACHABLE, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "Since the store answered a node", "s", "Surveys of its shards are five seconds apart; above 30 it is away from that node.")
                    .query(series(&SURVEY_AGE, NODES), "{{instance}}"),
                Panel::new(Shape::Lines, "Ten latest shards", "s", "How long the oldest due message of a shard has waited.")
                    .query(format!("topk(10, {})", max(&SHARD_OLDEST_DUE_AGE, "topic, shard", TOPICS)), "{{topic}} {{shard}}"),
                Panel::new(Shape::Lines, "Ten fullest shards", "short", "Due messages. One far above the others is a hot shard.")
                    .query(format!("topk(10, {})", sum(&SHARD_DUE, "topic, shard", TOPICS)), "{{topic}} {{shard}}"),
                Panel::new(Shape::Stacked, "Shards by the node that scans them", "short", "The sum is the number of shards; a dent is a change of owners.")
                    .query(format!("sum by (instance) ({})", series(&SHARDS_OWNED, TOPICS)), "{{instance}}"),
                Panel::new(Shape::Lines, "Shards that no node scans", "short",
                    "Above 0 for seconds while a node comes or goes; what is due in them waits. Always 0 in round-robin.")
                    .query(max(&SHARDS_UNOWNED, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "Nodes that share the shards", "short", "As each node sees them. Lines that differ for long: nodes do not see each other.")
                    .query(series(&NODES_SERVING, NODES), "{{instance}}"),
                Panel::new(Shape::Lines, "Nodes that can share shards out", "short", "1 while etcd, or Redis in round-robin, answers the node and takes its writes.")
                    .query(series(&OWNERSHIP_UP, NODES), "{{instance}}"),
                Panel::new(Shape::Stacked, "Changes of owners", "cps", "By what became of shards at a node.")
                    .query(format!("{} or vector(0)", rate(&LEASE_CHANGES, "kind", NODES, WINDOW)), "{{kind}}"),
            ],
        )
        .row(
            "Nodes",
            vec![
                Panel::new(Shape::Table, "Nodes", "s", "Since when each runs, and which version.")
                    .query(
                        format!(
                            "(time() - {}) * on (job, instance) group_left (version, commit) {}",
                            process("start_time_seconds"),
                            series(&BUILD_INFO, NODES)
                        ),
                        "",
                    ),
                Panel::new(Shape::Lines, "Share of the in-flight budget", "percentunit",
                    "Near 1 for long: slow sinks or consumers hold what the node may hold.")
                    .query(
                        format!("{} / {}", series(&IN_FLIGHT_BUDGET_HELD, NODES), series(&IN_FLIGHT_BUDGET_SIZE, NODES)),
                        "{{instance}} {{unit}}",
                    ),
                Panel::new(Shape::Lines, "Loops started again within an hour", "short", "Above 0: a fault of the program; report it with the log's `error` lines.")
                    .wide(24)
                    .query(increase(&LOOP_RESTARTS, "instance, loop", NODES, "1h"), "{{instance}} {{loop}}"),
                Panel::new(Shape::Lines, "Processor", "percentunit", "Of one core; a node with nothing due needs next to none.")
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
