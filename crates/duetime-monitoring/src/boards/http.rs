//! What do clients ask, and what are they answered?

use duetime_metrics::table::{AUTH_REFUSED, REQUEST_SECONDS, REQUESTS};

use crate::board::Board;
use crate::expr::{NODES, WINDOW, increase, quantile, rate};
use crate::panel::{Panel, Shape};

pub(super) fn board() -> Board {
    let of = |status: &str| format!(r#"{NODES},status=~"{status}""#);
    Board::new("http", "HTTP API", "What do clients ask, and what are they answered?").row(
        "Requests",
        vec![
            Panel::new(Shape::Stacked, "Requests a second, by route", "reqps", "Probes and scrapes are among them.")
                .query(rate(&REQUESTS, "route", NODES, WINDOW), "{{route}}"),
            Panel::new(
                Shape::Stacked,
                "Requests a second, by status",
                "reqps",
                "409 and 404 are verdicts, not failures.",
            )
            .query(rate(&REQUESTS, "status", NODES, WINDOW), "{{status}}"),
            Panel::new(
                Shape::Lines,
                "Time of a request, p50",
                "s",
                "By route. A claim waits as long as it asks to; of a stream it is the time to its head.",
            )
            .query(quantile(0.5, &REQUEST_SECONDS, "route", NODES, WINDOW), "{{route}}"),
            Panel::new(
                Shape::Lines,
                "Time of a request, p99",
                "s",
                "By route. Above what the store takes for a call: the node is busy, or a batch waits for a server that is away.",
            )
            .query(quantile(0.99, &REQUEST_SECONDS, "route", NODES, WINDOW), "{{route}}"),
            Panel::new(
                Shape::Lines,
                "Requests that a node could not serve",
                "reqps",
                "503: the store is away or the node is busy. 507: the store is full.",
            )
            .query(
                format!("{} or vector(0)", rate(&REQUESTS, "route, status", &of("5.."), WINDOW)),
                "{{status}} {{route}}",
            ),
            Panel::new(
                Shape::Lines,
                "Requests that were refused",
                "reqps",
                "401 and 403: tokens. 429: a token's limit.",
            )
            .query(format!("{} or vector(0)", rate(&REQUESTS, "status", &of("401|403|421|429"), WINDOW)), "{{status}}"),
            Panel::new(Shape::Lines, "Tokens refused", "reqps", "By why: none, unknown, without the right, over its rate or its topics.")
                .wide(24)
                .query(rate(&AUTH_REFUSED, "reason", NODES, WINDOW), "{{reason}}"),
            Panel::new(Shape::Table, "Requests of an hour", "short", "By route and status.")
                .wide(24)
                .query(increase(&REQUESTS, "route, status", NODES, "1h"), ""),
        ],
    )
}
