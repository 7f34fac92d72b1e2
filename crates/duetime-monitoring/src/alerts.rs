//! What an operator has to look at, and how soon.

use duetime_metrics::table::{
    BREAKER_OPEN, CLAIMS_EXPIRED, FORECAST_LATE, LATENESS, MESSAGES, NODES_SERVING, RESIZE_REMAINING, SHARDS,
    SHARDS_LOST, SHARDS_OWNED, STORE_CLOCK_SKEW, STORE_ERRORS, STORE_ISSUES, STORE_LIMIT, STORE_USED, TOPIC_ISSUES,
};

use crate::expr::{OVERDUE, increase, late_ratio, part, rate, series};
use crate::objective::{Objective, Objectives};

/// Fewer deliveries of an hour than this say nothing about a share: one late message of ten is 10 %.
const DELIVERIES_MIN: u32 = 20;

/// A condition that an operator has to look at.
#[derive(Clone, Debug)]
pub struct Alert {
    /// Its name, and that of its section in the runbook.
    pub name: &'static str,
    /// When it is met.
    pub expr: String,
    /// For how long it has to be met.
    pub lasts: &'static str,
    /// `page`: somebody is called. `ticket`: somebody looks at it in the next days.
    pub severity: &'static str,
    /// One sentence, with the labels and the value in it.
    pub summary: &'static str,
}

/// All alerts.
#[must_use]
pub fn all(objectives: &Objectives, job: &str) -> Vec<Alert> {
    let of_job = format!(r#"job="{job}""#);
    let mut all = budgets(objectives, &of_job);
    all.push(herd_ahead(objectives, &of_job));
    all.extend(coverage(&of_job));
    all.extend(delivery(&of_job));
    all.extend(store(&of_job));
    all
}

/// The budget of late messages goes faster than it may.
fn budgets(objectives: &Objectives, job: &str) -> Vec<Alert> {
    let budget = objectives.budget();
    // Late beyond `pace` times the budget over both windows; the short one ends the alert soon after the cause.
    let burns = |pace: f64, long: &str, short: &str| {
        // Floating point would print 0.014400000000000013.
        let bound = (pace * budget * 1e9).round() / 1e9;
        format!("({} > {bound} and {} > {bound})", late_ratio(long), late_ratio(short))
    };
    let enough = format!(
        "(sum by (topic) (increase({}[1h])) > {DELIVERIES_MIN} or max_over_time({OVERDUE}[5m]) > 0)",
        part(&LATENESS, "count", job)
    );
    let alert = |name, pairs: [String; 2], lasts, severity, summary| Alert {
        name,
        expr: format!("({} or {}) and on (topic) {enough}", pairs[0], pairs[1]),
        lasts,
        severity,
        summary,
    };
    vec![
        alert(
            "LatenessBudgetBurnsFast",
            [burns(14.4, "1h", "5m"), burns(6.0, "6h", "30m")],
            "2m",
            "page",
            "{{ $labels.topic }}: {{ $value | humanizePercentage }} of the messages are later than promised; at this pace the budget of a month is gone in days",
        ),
        alert(
            "LatenessBudgetBurnsSlowly",
            [burns(3.0, "1d", "2h"), burns(1.0, "3d", "6h")],
            "15m",
            "ticket",
            "{{ $labels.topic }}: {{ $value | humanizePercentage }} of the messages are later than promised",
        ),
    ]
}

/// More falls due at one moment of the coming hour than can be delivered in time.
fn herd_ahead(objectives: &Objectives, job: &str) -> Alert {
    let late = |(objective, matcher): (&Objective, String)| {
        let matchers = if matcher.is_empty() { job.to_owned() } else { format!("{job},{matcher}") };
        format!("max by (topic) ({}) > {}", series(&FORECAST_LATE, &matchers), objective.seconds())
    };
    Alert {
        name: "HerdAhead",
        expr: objectives.matchers().into_iter().map(late).collect::<Vec<_>>().join(" or "),
        lasts: "2m",
        severity: "ticket",
        summary: "{{ $labels.topic }}: a herd falls due within the hour, and at what was measured its last message will be {{ $value | humanizeDuration }} late",
    }
}

/// Nobody is there, or nobody scans.
fn coverage(job: &str) -> Vec<Alert> {
    vec![
        Alert {
            name: "NodeDown",
            expr: format!("up{{{job}}} == 0"),
            lasts: "1m",
            severity: "ticket",
            summary: "{{ $labels.instance }} does not answer; its shards go to other nodes, if there are any",
        },
        Alert {
            name: "NoNode",
            // A node that is gone takes its gauges along: nothing is late then, to look at it.
            expr: format!("absent({})", series(&NODES_SERVING, job)),
            lasts: "1m",
            severity: "page",
            summary: "no node of the cluster can be scraped: nothing is delivered, or nothing is seen of it",
        },
        Alert {
            name: "NothingScans",
            // Turns pass shards from node to node, so that for a moment both or neither count one.
            expr: format!(
                "sum by (topic) (avg_over_time({}[1m])) < 0.99 * max by (topic) ({})",
                series(&SHARDS_OWNED, job),
                series(&SHARDS, job)
            ),
            lasts: "2m",
            severity: "page",
            summary: "{{ $labels.topic }}: only {{ $value }} of its shards are scanned; what is in the others waits",
        },
        Alert {
            name: "OwnersDisagree",
            expr: format!("max({row}) != min({row})", row = series(&NODES_SERVING, job)),
            lasts: "5m",
            severity: "ticket",
            summary: "nodes do not agree on how many they are: some are cut off from etcd or Redis",
        },
        Alert {
            name: "ResizeStuck",
            expr: format!(
                "max by (topic) ({row}) > 0 and on (topic) max by (topic) ({row}) >= on (topic) max by (topic) ({row} offset 15m)",
                row = series(&RESIZE_REMAINING, job)
            ),
            lasts: "5m",
            severity: "ticket",
            summary: "{{ $labels.topic }}: {{ $value }} messages wait to be moved to other shards, and none was for 15 minutes",
        },
    ]
}

/// Deliveries fail.
fn delivery(job: &str) -> Vec<Alert> {
    let dead = format!(r#"{job},event="dead""#);
    vec![
        Alert {
            name: "SinkDown",
            expr: format!("max by (topic) ({}) == 1", series(&BREAKER_OPEN, job)),
            lasts: "10m",
            severity: "page",
            summary: "{{ $labels.topic }}: its sink has been down for ten minutes; nothing is lost, and no attempt is used up",
        },
        Alert {
            name: "DeadLettersGrow",
            expr: format!("{} > 0", increase(&MESSAGES, "topic", &dead, "15m")),
            lasts: "0m",
            severity: "ticket",
            summary: "{{ $labels.topic }}: {{ $value | humanize }} messages were given up within 15 minutes",
        },
        Alert {
            name: "ClaimsExpire",
            expr: format!("{} > 0", increase(&CLAIMS_EXPIRED, "topic", job, "15m")),
            lasts: "15m",
            severity: "ticket",
            summary: "{{ $labels.topic }}: {{ $value | humanize }} claims of 15 minutes ended without a verdict; duplicates are likely",
        },
    ]
}

/// The store fails, or what it holds is in danger.
fn store(job: &str) -> Vec<Alert> {
    let full = format!(r#"{job},kind="full""#);
    let other = format!(r#"{job},kind!="full""#);
    let danger = format!(r#"{job},kind=~"eviction|disk""#);
    let weak = format!(r#"{job},kind=~"replicas|unguarded""#);
    vec![
        Alert {
            name: "StoreFull",
            expr: format!("{} > 0", rate(&STORE_ERRORS, "kind", &full, "5m")),
            lasts: "1m",
            severity: "page",
            summary: "the store is full: new messages are refused, while claims, acks and cancels go on",
        },
        Alert {
            name: "StoreFullIn6h",
            // Small stores fluctuate: below half of the limit a trend of one hour says nothing.
            expr: format!(
                "max by (server) (predict_linear({used}[1h], 6 * 3600)) > max by (server) ({limit}) and on (server) max by (server) ({used}) > 0.5 * max by (server) ({limit})",
                used = series(&STORE_USED, job),
                limit = series(&STORE_LIMIT, job)
            ),
            lasts: "15m",
            severity: "page",
            summary: "{{ $labels.server }}: at the growth of the last hour the store is full within six hours and then refuses new messages",
        },
        Alert {
            name: "StoreErrors",
            expr: format!("{} > 0", rate(&STORE_ERRORS, "kind", &other, "5m")),
            lasts: "5m",
            severity: "ticket",
            summary: "calls to the store fail ({{ $labels.kind }}): {{ $value | humanize }} a second",
        },
        Alert {
            name: "ClockSkew",
            expr: format!("max by (instance) (abs({})) > 1", series(&STORE_CLOCK_SKEW, job)),
            lasts: "1m",
            severity: "page",
            summary: "{{ $labels.instance }}: its clock and the store's are {{ $value | humanizeDuration }} apart; beyond 2 s it takes nothing",
        },
        Alert {
            name: "MessagesInDanger",
            expr: format!("max by (kind) ({}) > 0", series(&STORE_ISSUES, &danger)),
            lasts: "0m",
            severity: "page",
            summary: "{{ $value }} masters of Redis may lose messages ({{ $labels.kind }}); the log of a node names them",
        },
        Alert {
            name: "TooFewReplicas",
            expr: format!("max by (kind) ({}) > 0", series(&STORE_ISSUES, &weak)),
            lasts: "5m",
            severity: "ticket",
            summary: "{{ $value }} masters of Redis would lose acknowledged messages in a failover ({{ $labels.kind }})",
        },
        Alert {
            name: "TopicIssue",
            expr: format!(
                "max by (kind) ({}) > 0 or max by (topic) ({}) > 0",
                series(&TOPIC_ISSUES, job),
                series(&SHARDS_LOST, job)
            ),
            lasts: "0m",
            severity: "page",
            summary: "a topic or its shards vanished or cannot be read ({{ $labels.kind }}{{ $labels.topic }}): a server came back without its data",
        },
    ]
}
