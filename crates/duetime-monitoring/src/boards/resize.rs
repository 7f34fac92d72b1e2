//! How far is a change of the shard count?

use duetime_metrics::table::{LATENESS, MESSAGES, RESIZE_REMAINING, SHARDS, SHARDS_OWNED};

use crate::board::Board;
use crate::expr::{TOPICS, WINDOW, max, quantile, rate, sum};
use crate::panel::{Panel, Shape};

pub(super) fn board() -> Board {
    let moved = format!(r#"{TOPICS},event="moved""#);
    let remaining = || max(&RESIZE_REMAINING, "topic", TOPICS);
    Board::new("resize", "Resize", "How far is a change of the shard count?")
        .row(
            "Progress",
            vec![
                Panel::new(
                    Shape::Lines,
                    "Messages still to be moved",
                    "short",
                    "0 when nothing moves. Flat above 0: `duetime shards get TOPIC` says what blocks it.",
                )
                .runbook("ResizeStuck")
                .query(remaining(), "{{topic}}"),
                Panel::new(
                    Shape::Lines,
                    "Time that is left",
                    "s",
                    "At the rate at which messages were moved lately. No line while nothing moves.",
                )
                .query(format!("{} / ({} > 0)", remaining(), rate(&MESSAGES, "topic", &moved, WINDOW)), "{{topic}}"),
                Panel::new(
                    Shape::Lines,
                    "Messages moved a second",
                    "cps",
                    "Bounded by `resize.messages_per_second` of each node.",
                )
                .query(rate(&MESSAGES, "topic", &moved, WINDOW), "{{topic}}"),
                Panel::new(
                    Shape::Lines,
                    "Lateness while it moves, p99",
                    "s",
                    "What the move costs those whose time comes meanwhile.",
                )
                .query(quantile(0.99, &LATENESS, "topic", TOPICS, WINDOW), "{{topic}}"),
            ],
        )
        .row(
            "Shards",
            vec![
                Panel::new(
                    Shape::Lines,
                    "Shards of a topic, and those that are scanned",
                    "short",
                    "New messages are spread over the first number. Fewer scanned by all nodes together: some shard has no owner.",
                )
                .wide(24)
                .query(max(&SHARDS, "topic", TOPICS), "{{topic}}")
                .query(sum(&SHARDS_OWNED, "topic", TOPICS), "{{topic}}, scanned"),
            ],
        )
}
