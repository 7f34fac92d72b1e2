//! Is anything late, and why?

use duetime_metrics::table::{
    BREAKER_OPEN, CAPACITY, DEAD, DUE, FORECAST, FORECAST_LATE, IN_FLIGHT, LATENESS, MESSAGES, OLDEST_DUE_AGE, PAUSED,
    SCHEDULED,
};

use crate::board::Board;
use crate::expr::{TOPICS, WINDOW, heat, increase, max, quantile, rate, sum};
use crate::panel::{Panel, Shape};

pub(super) fn board() -> Board {
    let cancelled = format!(r#"{TOPICS},event="cancelled""#);
    let scheduled = format!(r#"{TOPICS},event="scheduled""#);
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
                Panel::new(Shape::Lines, "Oldest due message", "s",
                    "How long the oldest message that is due has waited. It grows without end while nothing is delivered.")
                    .query(max(&OLDEST_DUE_AGE, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "Latest topics, p99", "s", "The five topics that deliver latest.")
                    .query(format!("topk(5, {})", quantile(0.99, &LATENESS, "topic", TOPICS, WINDOW)), "{{topic}}"),
            ],
        )
        .row(
            "Flow",
            vec![
                Panel::new(Shape::Stacked, "Messages a second, by event", "cps",
                    "What happens to messages. Claimed above delivered for long: consumers do not settle what they take.")
                    .query(rate(&MESSAGES, "event", TOPICS, WINDOW), "{{event}}"),
                Panel::new(Shape::Lines, "Cancelled of what is scheduled", "percentunit",
                    "Of order timeouts most are cancelled, because the order is paid. A drop means that cancels do not arrive.")
                    .query(
                        format!(
                            "{} / ({} > 0)",
                            rate(&MESSAGES, "topic", &cancelled, WINDOW),
                            rate(&MESSAGES, "topic", &scheduled, WINDOW)
                        ),
                        "{{topic}}",
                    ),
                Panel::new(Shape::Lines, "Scheduled", "short", "Messages that nobody holds, due or not, by topic.")
                    .query(sum(&SCHEDULED, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::States, "Sinks taken to be down", "short",
                    "Red while the circuit breaker of a topic is open: claims are stopped, and no attempt is used up.")
                    .warn(0.5, 1.0)
                    .query(max(&BREAKER_OPEN, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::States, "Paused topics", "short", "Nothing is claimed, what falls due waits, until `duetime resume TOPIC`.")
                    .warn(0.5, 2.0)
                    .query(max(&PAUSED, "topic", TOPICS), "{{topic}}"),
            ],
        )
        .row(
            "What is coming",
            vec![
                Panel::new(Shape::Lines, "Fall due within the hour", "short", "Messages by topic. `duetime forecast TOPIC` has them minute by minute.")
                    .query(sum(&FORECAST, "topic", &format!(r#"{TOPICS},within="1h""#)), "{{topic}}"),
                Panel::new(Shape::Lines, "Capacity, messages a second", "cps", "The best that the nodes were able to deliver in the last day. 0: they never had enough to do.")
                    .query(sum(&CAPACITY, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "How late the last of a herd will be", "s", "Of what falls due within the hour, at the capacity that was measured.")
                    .query(max(&FORECAST_LATE, "topic", TOPICS), "{{topic}}"),
            ],
        )
}

fn numbers() -> Vec<Panel> {
    let dead = format!(r#"{TOPICS},event="dead""#);
    let all = |row, title, description| {
        Panel::new(Shape::Number, title, "short", description)
            .query(format!("sum({})", crate::expr::series(row, TOPICS)), "")
    };
    vec![
        Panel::new(Shape::Number, "Oldest due message", "s", "The longest that a due message has waited by now.")
            .warn(1.0, 10.0)
            .query(format!("max({})", crate::expr::series(&OLDEST_DUE_AGE, TOPICS)), ""),
        all(&DUE, "Due", "Messages whose time has come and that are not delivered: the backlog."),
        all(&SCHEDULED, "Scheduled", "Messages that nobody holds, due or not."),
        all(&IN_FLIGHT, "In flight", "Messages that are claimed and not settled."),
        all(&DEAD, "Dead letters", "Messages that were given up. `duetime dead list TOPIC` has the reasons.")
            .warn(1.0, 1000.0),
        Panel::new(Shape::Number, "Dead letters of 24 hours", "short", "Messages that were given up within a day.")
            .warn(1.0, 1000.0)
            .query(format!("sum({})", increase(&MESSAGES, "topic", &dead, "24h")), ""),
    ]
}
