//! Is the other side up, and how do deliveries go?

use duetime_metrics::table::{
    BREAKER_OPEN, BREAKER_OPENS, CLAIM_BATCH_SIZE, CLAIM_DELAY, CLAIMS_EXPIRED, CLAIMS_UNANSWERED, CONSUMER_CLAIM_AGE,
    DELIVERY, FAILURES_UNDECIDED, MESSAGES, RETRIES_WAITING, SETTLEMENTS_EXPIRED, SHARDS_FULL, SINK_CALL, SINK_ERRORS,
};

use crate::board::Board;
use crate::expr::{NODES, TOPICS, WINDOW, count_rate, increase, max, quantile, rate, series, sum};
use crate::panel::{Panel, Shape};

pub(super) fn board() -> Board {
    let of = |event: &str| rate(&MESSAGES, "topic", &format!(r#"{TOPICS},event="{event}""#), WINDOW);
    Board::new("delivery", "Delivery", "Is the other side up, and how do deliveries go?")
        .row(
            "Where lateness comes from",
            vec![
                Panel::new(Shape::Lines, "From the due time to the claim, p99", "s",
                    "The store, the node, a rate limit, or a sink that was down.")
                    .query(quantile(0.99, &CLAIM_DELAY, "topic", TOPICS, WINDOW), "{{topic}}"),
                Panel::new(Shape::Lines, "From the claim to the delivery, p99", "s", "The sink; for a consumer, the answer to its claim.")
                    .query(quantile(0.99, &DELIVERY, "topic", TOPICS, WINDOW), "{{topic}}"),
                Panel::new(Shape::Lines, "Since a consumer asked last", "s",
                    "At the node that was asked last. It grows while no consumer of the topic claims; 0 where a sink is delivered to.")
                    .runbook("ConsumersGone")
                    .query(format!("min by (topic) ({})", series(&CONSUMER_CLAIM_AGE, TOPICS)), "{{topic}}"),
                Panel::new(Shape::Lines, "Messages of a claim, p50", "short",
                    "Near 1 the work is a trickle; near 256 there is a backlog.")
                    .query(quantile(0.5, &CLAIM_BATCH_SIZE, "topic", TOPICS, WINDOW), "{{topic}}"),
                Panel::new(Shape::Lines, "Shards with as many in flight as may be", "short",
                    "What is due in them waits for a place: deliveries are slow, or `max_in_flight` of the topic is low.")
                    .wide(24)
                    .query(sum(&SHARDS_FULL, "topic", TOPICS), "{{topic}}"),
            ],
        )
        .row(
            "Sinks",
            vec![
                Panel::new(Shape::States, "Sinks taken to be down", "short", "Red while the circuit breaker of a topic is open: claims are stopped, and no attempt is used up.")
                    .wide(24)
                    .red_from(1.0)
                    .runbook("SinkDown")
                    .query(max(&BREAKER_OPEN, "sink, topic", TOPICS), "{{sink}} {{topic}}"),
                Panel::new(Shape::Lines, "Time of a delivery, p50", "s", "Half of the deliveries of a batch take no longer.")
                    .query(quantile(0.5, &SINK_CALL, "sink", NODES, WINDOW), "{{sink}}"),
                Panel::new(Shape::Lines, "Time of a delivery, p99", "s",
                    "Above the sink's time-out nothing gets through. Near the visibility timeout duplicates are likely.")
                    .query(quantile(0.99, &SINK_CALL, "sink", NODES, WINDOW), "{{sink}}"),
                Panel::new(Shape::Lines, "Batches given to sinks a second", "cps", "Of up to 256 messages each.")
                    .query(count_rate(&SINK_CALL, "sink", NODES, WINDOW), "{{sink}}"),
                Panel::new(Shape::Stacked, "Messages not accepted, by kind", "cps",
                    "retry, refused and rejected are about a message; unavailable and no_answer are about the target.")
                    .query(rate(&SINK_ERRORS, "sink, kind", NODES, WINDOW), "{{sink}} {{kind}}"),
                Panel::new(Shape::Lines, "Breakers opened within an hour", "short",
                    "More than a few: the sink goes and comes. `duetime sink outages` has when and why.")
                    .query(increase(&BREAKER_OPENS, "topic", TOPICS, "1h"), "{{topic}}"),
                Panel::new(Shape::Lines, "Failures not decided yet", "cps",
                    "Whether they are the message's or the sink's takes longer to tell than two seconds: the sink is slow.")
                    .query(rate(&FAILURES_UNDECIDED, "topic", TOPICS, WINDOW), "{{topic}}"),
            ],
        )
        .row(
            "Attempts",
            vec![
                Panel::new(Shape::Lines, "Messages delivered a second", "cps", "Accepted by a sink, or acknowledged by a consumer.")
                    .query(of("delivered"), "{{topic}}"),
                Panel::new(Shape::Lines, "Retries for each delivery", "short",
                    "Above 0.1 for long: many messages need more than one attempt.")
                    .query(format!("{} / ({} > 0)", of("retried"), of("delivered")), "{{topic}}"),
                Panel::new(Shape::Lines, "Retries waiting", "short",
                    "Given back for another attempt whose time has not come. It grows while a sink refuses messages.")
                    .query(sum(&RETRIES_WAITING, "topic", TOPICS), "{{topic}}"),
                Panel::new(Shape::Lines, "Dead letters a second", "cps", "Messages that were given up.")
                    .runbook("DeadLettersGrow")
                    .query(of("dead"), "{{topic}}"),
                Panel::new(Shape::Lines, "Claims that ended before their verdict", "cps",
                    "A holder crashed, or the visibility timeout is shorter than a slow delivery: duplicates are likely. At most once, what was claimed is gone instead.")
                    .wide(24)
                    .runbook("ClaimsExpire")
                    .query(rate(&CLAIMS_EXPIRED, "topic", TOPICS, WINDOW), "{{topic}}, without a verdict")
                    .query(rate(&SETTLEMENTS_EXPIRED, "topic", TOPICS, WINDOW), "{{topic}}, the verdict came later")
                    .query(rate(&CLAIMS_UNANSWERED, "topic", TOPICS, WINDOW), "{{topic}}, at most once and unanswered"),
            ],
        )
}
