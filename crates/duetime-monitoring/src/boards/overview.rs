//! Is anything late, and why?

use duetime_metrics::table::{
    BREAKER_OPEN, CANCELS, CAPACITY, DEAD, DUE, FORECAST, FORECAST_LATE, IN_FLIGHT, LATENESS, MESSAGES, NODES_SERVING,
    OLDEST_DUE_AGE, PAUSED, SCHEDULED,
};

use crate::board::Board;
use crate::expr::{
    BUDGET, NODES, RECORDED, TOPICS, WINDOW, heat, increase, late_ratio, max, quantile, rate, series, sum,
};
use crate::panel::{Panel, Shape};

pub(super) fn board() -> Board {
    let ended = |events: &str| rate(&MESSAGES, "topic", &format!(r#"{TOPICS},event=~"{events}""#), WINDOW);
    // How many times as fast as promised the budget of late messages is used up.
    let pace = |window: &str| {
        let late = format!("max by (job, topic) ({}{{{RECORDED}}})", late_ratio(window));
        format!("{late} / on (job) group_left () max by (job) ({BUDGET}{{job=~\"$job\"}})")
    };
    Board::new("overview", "Overview", "Is anything late, and why?")
        .row("Now", numbers())
        .row(
            "Lateness",
            vec![
                Panel::new(Shape::Heat, "Lateness of deliveries", "s",
                    "Deliveries by how late they were. A bright line that climbs is a queue that grows.")
                    .query(heat(&LATENESS, TOPICS, WINDOW), "{{le}}"),
                Panel::new(Shape::Lines, "Lateness, quantiles", "s",
                    "Interpolated within the buckets of the histogram. Silent while nothing is delivered: see the oldest due message then.")
                    .query(quantile(0.5, &LATENESS, "", TOPICS, WINDOW), "p50")
                    .query(quantile(0.99, &LATENESS, "", TOPICS, WINDOW), "p99")
                    .query(quantile(0.999, &LATENESS, "", TOPICS, WINDOW), "p99.9"),
                Panel::new(Shape::Lines, "Oldest due message, by topic", "s",
                    "How long the oldest message that is due has waited. It grows without end while nothing is delivered.")
                    .runbook("LatenessBudgetBurnsFast")
                    .query(max(&OLDEST_DUE_AGE, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "Latest topics, p99", "s",
                    "The five topics that deliver latest. Dashboard Delivery has the parts of it.")
                    .query(format!("topk(5, {})", quantile(0.99, &LATENESS, "topic", TOPICS, WINDOW)), "{{topic}}"),
            ],
        )
        .row(
            "Budget of late messages",
            vec![
                Panel::new(Shape::Lines, "Pace over an hour", "none",
                    "At 1 as many messages are late as are promised to be at most. Above 14.4 somebody is called. As recorded by the rules, of all nodes.")
                    .runbook("LatenessBudgetBurnsFast")
                    .query(pace("1h"), "{{topic}}"),
                Panel::new(Shape::Lines, "Pace over three days", "none",
                    "Above 1 for long the promise of a month is not kept. As recorded by the rules, of all nodes.")
                    .runbook("LatenessBudgetBurnsSlowly")
                    .query(pace("3d"), "{{topic}}"),
            ],
        )
        .row(
            "Flow",
            vec![
                Panel::new(Shape::Stacked, "Messages a second, by event", "cps",
                    "What happens to messages. Claimed above delivered for long: consumers do not settle what they take.")
                    .query(rate(&MESSAGES, "event", TOPICS, WINDOW), "{{event}}"),
                Panel::new(Shape::Stacked, "Cancels a second, by answer", "cps",
                    "`in_flight`: too late, perhaps delivered. `unknown`: delivered, cancelled before, or never there.")
                    .query(rate(&CANCELS, "verdict", TOPICS, WINDOW), "{{verdict}}"),
                Panel::new(Shape::Lines, "Cancelled, of what ended", "percentunit",
                    "Of order timeouts most are cancelled, because the order is paid. A drop means that cancels do not arrive.")
                    .query(format!("{} / ({} > 0)", ended("cancelled"), ended("cancelled|delivered|dead")), "{{topic}}"),
                Panel::new(Shape::Lines, "Scheduled, by topic", "short", "Messages that nobody holds, due or not.")
                    .query(sum(&SCHEDULED, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::States, "Paused topics", "short", "Nothing is claimed, what falls due waits, until `duetime resume TOPIC`.")
                    .wide(24)
                    .orange_from(1.0)
                    .query(max(&PAUSED, "topic", TOPICS), "{{topic}}"),
            ],
        )
        .row(
            "What is coming",
            vec![
                Panel::new(Shape::Lines, "Fall due within the hour", "short", "Messages by topic. `duetime forecast TOPIC` has them minute by minute.")
                    .wide(8)
                    .query(sum(&FORECAST, "topic", &format!(r#"{TOPICS},within="1h""#)), "{{topic}}"),
                Panel::new(Shape::Lines, "Capacity, messages a second", "cps", "The best that the nodes were able to deliver in the last day. 0: they never had enough to do.")
                    .wide(8)
                    .query(sum(&CAPACITY, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "How late the last of a herd will be", "s", "Of what falls due within the hour, at the capacity that was measured.")
                    .wide(8)
                    .runbook("HerdAhead")
                    .query(max(&FORECAST_LATE, "topic", TOPICS), "{{topic}}"),
            ],
        )
}

fn numbers() -> Vec<Panel> {
    let all = |row, title, description| {
        Panel::new(Shape::Number, title, "short", description).query(format!("sum({})", series(row, TOPICS)), "")
    };
    let dead = format!(r#"{TOPICS},event="dead""#);
    vec![
        Panel::new(Shape::Number, "Oldest due message", "s", "The longest that a due message has waited by now.")
            .orange_from(1.0)
            .red_from(10.0)
            .query(format!("max({})", series(&OLDEST_DUE_AGE, TOPICS)), ""),
        all(&DUE, "Due", "Messages whose time has come and that are not delivered: the backlog."),
        all(&SCHEDULED, "Scheduled", "Messages that nobody holds, due or not."),
        all(&IN_FLIGHT, "In flight", "Messages that are claimed and not settled."),
        all(&DEAD, "Dead letters", "Messages that were given up. `duetime dead list TOPIC` has the reasons.")
            .orange_from(1.0)
            .red_from(1000.0),
        Panel::new(Shape::Number, "Dead letters of 24 hours", "short", "Messages that were given up within a day.")
            .orange_from(1.0)
            .red_from(1000.0)
            .query(format!("sum({})", increase(&MESSAGES, "topic", &dead, "24h")), ""),
        Panel::new(
            Shape::Number,
            "Sinks down",
            "short",
            "Sinks that are taken to be down by a topic or more. Dashboard Delivery says which.",
        )
        .red_from(1.0)
        .query(format!("sum({})", max(&BREAKER_OPEN, "job, sink", TOPICS)), ""),
        Panel::new(
            Shape::Number,
            "Nodes",
            "short",
            "Nodes that serve, as they see each other. Dashboard Store and shards lists them.",
        )
        .query(format!("sum({})", max(&NODES_SERVING, "job", NODES)), ""),
    ]
}
