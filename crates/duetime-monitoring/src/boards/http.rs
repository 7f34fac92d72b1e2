//! What do clients ask, and what are they answered?

use duetime_metrics::table::{AUTH_REFUSED, REQUEST_SECONDS, REQUESTS};

use crate::board::Board;
use crate::expr::{NODES, WINDOW, quantile, rate};
use crate::panel::{Panel, Shape};

pub(super) fn board() -> Board {
    let not_served = format!(r#"{NODES},status=~"5..""#);
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
                Shape::Stacked,
                "Requests that a node could not serve",
                "reqps",
                "503: the store is away or the node is busy. 507: the store is full.",
            )
            .runbook("RequestsFail")
            .query(
                format!("{} or vector(0)", rate(&REQUESTS, "route, status", &not_served, WINDOW)),
                "{{status}} {{route}}",
            ),
            Panel::new(
                Shape::Stacked,
                "Requests that were refused",
                "reqps",
                "For their token. 401: none, or unknown. 403: without the right. 429: over its rate or its topics.",
            )
            .query(rate(&AUTH_REFUSED, "reason", NODES, WINDOW), "{{reason}}"),
        ],
    )
}
