//! What an operator has to look at, and how soon.

use duetime_metrics::table::{
    BREAKER_OPEN, CERTIFICATE_ENDS, CLAIMS_EXPIRED, CONSUMER_CLAIM_AGE, FORECAST_LATE, IN_FLIGHT_BUDGET_HELD,
    IN_FLIGHT_BUDGET_SIZE, LATENESS, LOOP_RESTARTS, MESSAGES, NODES_SERVING, OWNERSHIP_UP, REQUESTS, RESIZE_REMAINING,
    SHARDS_LOST, SHARDS_UNOWNED, SHARDS_UNREACHABLE, STORE_CLOCK_SKEW, STORE_ERRORS, STORE_ISSUES, STORE_LIMIT,
    STORE_USED, SURVEY_AGE, TOPIC_ISSUES,
};

use crate::expr::{OVERDUE, increase, late_ratio, max, part, rate, series, sum};
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

/// Surveys are five seconds apart: a store that answered none for so many seconds is away.
const SURVEYED_WITHIN_S: u32 = 30;
/// Consumers wait for messages, or ask again at once: none did for so many seconds.
const ASKED_WITHIN_S: u32 = 60;
/// With the names of the first three topics.
const SINK_DOWN: &str = "the sink {{ $labels.sink }} is down; {{ $value }} of its topics wait: \
    {{ range $at, $open := printf `max by (topic) (duetime_breaker_open{job=%q,sink=%q}) == 1` $labels.job $labels.sink | query | sortByLabel `topic` }}\
    {{ if lt $at 3 }}{{ if $at }}, {{ end }}{{ $open.Labels.topic }}{{ end }}{{ end }}\
    {{ if gt $value 3.0 }} and others{{ end }}; nothing is lost, and no attempt is used up";
/// Answers of 500 and 503 call somebody beyond this share of all, and where they are more than so many in two minutes.
const FAILED_SHARE_MAX: f64 = 0.01;
/// See [`FAILED_SHARE_MAX`].
const FAILED_MAX: u32 = 10;
/// Beyond this share the in-flight budget of a node, and not that of one topic, holds claims back. All of it is never
/// held: topics leave a part to the next one.
const BUDGET_SHARE_MAX: f64 = 0.8;
/// A certificate is replaced by then.
const CERTIFICATE_LEFT_S: u32 = 14 * 24 * 3600;

/// All alerts. Each is about the nodes of one job, which is one cluster, and has that in its label `job`.
#[must_use]
pub fn all(objectives: &Objectives, job: &str) -> Vec<Alert> {
    let of_job = format!(r#"job="{job}""#);
    let mut all = coverage(&of_job);
    all.extend(delivery(&of_job));
    all.extend(store(&of_job));
    all.extend(refusals(&of_job));
    // Last: of the same look, they see who was called for what the others say.
    all.extend(budgets(objectives, &of_job));
    all.push(herd_ahead(objectives, &of_job));
    all
}

/// Not where somebody was called by one of these `alerts` within `window`: of one cause one call, also while the windows
/// of what follows from it end.
fn unless_called(job: &str, by: &str, alerts: &str, window: &str) -> String {
    format!("unless on ({by}) {}", called(job, by, alerts, window))
}

/// Where somebody was called by one of these `alerts` within `window`.
fn called(job: &str, by: &str, alerts: &str, window: &str) -> String {
    let firing = format!(r#"ALERTS{{{job},alertstate="firing",alertname=~"Duetime({alerts})"}}"#);
    format!("max by ({by}) (max_over_time({firing}[{window}]))")
}

/// Not the topics whose sink was down within `window` and called somebody, once for all of its topics.
fn unless_sink_called(job: &str, window: &str) -> String {
    let open = format!("max by (job, topic, sink) (max_over_time({}[{window}])) == 1", series(&BREAKER_OPEN, job));
    format!("unless on (job, topic) ({open} and on (job, sink) {})", called(job, "job, sink", "SinkDown", window))
}

/// The budget of late messages goes faster than it may.
fn budgets(objectives: &Objectives, job: &str) -> Vec<Alert> {
    // Late beyond `pace` times the budget over both windows; the short one ends the alert soon after the cause.
    let burns = |pace: f64, long: &str, short: &str| {
        let bound = objectives.budget(pace);
        let late = |window| format!("{}{{{job}}}", late_ratio(window));
        format!("({} > {bound} and {} > {bound})", late(long), late(short))
    };
    let enough = format!(
        "(sum by (job, topic) (increase({}[1h])) > {DELIVERIES_MIN} or max_over_time({OVERDUE}{{{job}}}[5m]) > 0)",
        part(&LATENESS, "count", job)
    );
    let called = [("job, topic", "ConsumersGone"), ("job", "StoreAway|NoNode")];
    // What fell due meanwhile is delivered late once the cause is gone: the short window of 30 minutes, and as long to catch up.
    let called = called.map(|(by, alerts)| unless_called(job, by, alerts, "1h")).join(" ");
    let called = format!("{} {called}", unless_sink_called(job, "1h"));
    let alert = |name, pairs: [String; 2], lasts, severity, summary| Alert {
        name,
        expr: format!("({} or {}) and on (job, topic) {enough} {called}", pairs[0], pairs[1]),
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
        format!("max by (job, topic) ({}) > {}", series(&FORECAST_LATE, &matchers), objective.seconds())
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
            summary: "{{ $labels.job }}: no node of the cluster can be scraped: nothing is delivered, or nothing is seen of it",
        },
        Alert {
            name: "NothingScans",
            // Not in round-robin, where nodes know only what they scan themselves: late shards are taken by any of them.
            expr: format!("{} > 0 unless on (job) {}", max(&SHARDS_UNOWNED, "job, topic", job), no_survey(job)),
            lasts: "2m",
            severity: "page",
            summary: "{{ $labels.topic }}: {{ $value | humanize }} of its shards are scanned by no node; what is in them waits",
        },
        Alert {
            name: "OwnershipDown",
            expr: format!("count by (job) ({} == 0) > 0", series(&OWNERSHIP_UP, job)),
            lasts: "5m",
            severity: "ticket",
            summary: "{{ $labels.job }}: {{ $value }} nodes cannot share shards out: etcd, or Redis in round-robin, does not answer or takes no writes; a node that dies now is noticed late",
        },
        Alert {
            name: "OwnersDisagree",
            expr: format!("max by (job) ({row}) != min by (job) ({row})", row = series(&NODES_SERVING, job)),
            lasts: "5m",
            severity: "ticket",
            summary: "{{ $labels.job }}: nodes do not agree on how many they are: some are cut off from etcd or Redis",
        },
        Alert {
            name: "ResizeStuck",
            expr: format!(
                "{} > 0 and on (job, topic) {} == 0",
                max(&RESIZE_REMAINING, "job, topic", job),
                increase(&MESSAGES, "job, topic", &format!(r#"{job},event="moved""#), "15m")
            ),
            lasts: "15m",
            severity: "ticket",
            summary: "{{ $labels.topic }}: {{ $value }} messages wait to be moved to other shards, and none was for 15 minutes",
        },
        Alert {
            name: "CertificateEnds",
            expr: format!(
                "min by (job, instance, setting) ({}) - time() < {CERTIFICATE_LEFT_S}",
                series(&CERTIFICATE_ENDS, job)
            ),
            lasts: "1m",
            severity: "ticket",
            summary: "{{ $labels.instance }}: the certificate of {{ $labels.setting }} ends in {{ $value | humanizeDuration }}",
        },
        Alert {
            name: "LoopRestarts",
            expr: format!("{} > 0", increase(&LOOP_RESTARTS, "job, instance, loop", job, "1h")),
            lasts: "0m",
            severity: "ticket",
            summary: "{{ $labels.instance }}: its loop {{ $labels.loop }} ended by a fault of the program and was started again",
        },
    ]
}

/// No node had an answer of the store for long.
fn no_survey(job: &str) -> String {
    format!("min by (job) ({}) > {SURVEYED_WITHIN_S}", series(&SURVEY_AGE, job))
}

/// Deliveries fail, or nobody takes them.
fn delivery(job: &str) -> Vec<Alert> {
    let dead = format!(r#"{job},event="dead""#);
    vec![
        Alert {
            name: "SinkDown",
            // One call for a sink, however many topics go there.
            expr: format!("count by (job, sink) ({} == 1)", max(&BREAKER_OPEN, "job, topic, sink", job)),
            // Before its messages use up the budget of lateness, so that this is the call that comes.
            lasts: "2m",
            severity: "page",
            summary: SINK_DOWN,
        },
        Alert {
            name: "ConsumersGone",
            expr: format!(
                "min by (job, topic) ({}) > {ASKED_WITHIN_S} and on (job, topic) {OVERDUE}{{{job}}} == 1",
                series(&CONSUMER_CLAIM_AGE, job)
            ),
            lasts: "1m",
            severity: "page",
            summary: "{{ $labels.topic }}: messages are due, and no consumer has asked for any for {{ $value | humanizeDuration }}",
        },
        Alert {
            name: "DeadLettersGrow",
            expr: format!("{} > 0", increase(&MESSAGES, "job, topic", &dead, "15m")),
            lasts: "0m",
            severity: "ticket",
            summary: "{{ $labels.topic }}: {{ $value | humanize }} messages were given up within 15 minutes",
        },
        Alert {
            name: "ClaimsExpire",
            // Again and again: a holder that died once is in sight for five minutes.
            expr: format!("{} > 0", increase(&CLAIMS_EXPIRED, "job, topic", job, "5m")),
            lasts: "15m",
            severity: "ticket",
            summary: "{{ $labels.topic }}: claims end without a verdict, {{ $value | humanize }} in the last five minutes; duplicates are likely",
        },
    ]
}

/// A node refuses work, or takes no more of it.
fn refusals(job: &str) -> Vec<Alert> {
    // Neither probes and scrapes, nor 507: what is full has alerts of its own, or is a bound that a topic was given.
    let of_clients = format!(r#"{job},route!~"/healthz|/readyz|/metrics""#);
    let all = increase(&REQUESTS, "job", &of_clients, "2m");
    let failed = increase(&REQUESTS, "job", &format!(r#"{of_clients},status=~"500|503""#), "2m");
    vec![
        Alert {
            name: "RequestsFail",
            // A failover, or a store that was away for less than calls somebody, is out of sight before this would fire.
            expr: format!(
                "{failed} / {all} > {FAILED_SHARE_MAX} and on (job) {failed} > {FAILED_MAX} {}",
                unless_called(job, "job", "StoreAway|ClockSkew|MessagesInDanger|TopicIssue", "10m")
            ),
            lasts: "5m",
            severity: "page",
            summary: "{{ $labels.job }}: {{ $value | humanizePercentage }} of the requests of clients are answered 500 or 503",
        },
        Alert {
            name: "InFlightBudgetFull",
            // While a sink is down, or the store does not take verdicts, what is held stays held.
            expr: format!(
                "max by (job, instance, unit) ({} / {}) > {BUDGET_SHARE_MAX} {}",
                series(&IN_FLIGHT_BUDGET_HELD, job),
                series(&IN_FLIGHT_BUDGET_SIZE, job),
                unless_called(job, "job", "StoreAway|SinkDown", "10m")
            ),
            lasts: "10m",
            severity: "ticket",
            summary: "{{ $labels.instance }}: {{ $value | humanizePercentage }} of the {{ $labels.unit }} that it may have in flight are; topics with slow sinks claim no more until some of it is settled",
        },
    ]
}

/// The store is away, fails, or what it holds is in danger.
fn store(job: &str) -> Vec<Alert> {
    let [full, disk] = ["full", "disk_full"].map(|kind| format!(r#"{job},kind="{kind}""#));
    let away = format!(r#"{job},kind=~"unavailable|setup|damaged""#);
    let weak = r#"kind=~"replicas|unguarded""#;
    let danger = weak.replace("=~", "!~");
    let [danger, weak] = [danger.as_str(), weak].map(|kinds| format!("{job},{kinds}"));
    vec![
        Alert {
            name: "StoreAway",
            expr: format!("{} > 0 or on (job) {}", sum(&SHARDS_UNREACHABLE, "job", job), no_survey(job)),
            lasts: "2m",
            severity: "page",
            summary: "{{ $labels.job }}: the store, or a server of it, does not answer; what falls due there waits, and what is sent to it is refused",
        },
        Alert {
            name: "StoreFull",
            // The full disk of an embedded store is in MessagesInDanger at once; what it refused stays in sight for five minutes.
            expr: format!(
                "{} > 0 unless on (job) max by (job) (max_over_time({}[10m])) > 0",
                rate(&STORE_ERRORS, "job", &full, "5m"),
                series(&STORE_ISSUES, &disk)
            ),
            lasts: "1m",
            severity: "page",
            summary: "{{ $labels.job }}: the store is full: new messages are refused, while claims, acks and cancels go on",
        },
        Alert {
            name: "StoreFullIn6h",
            // Small stores fluctuate: below half of the limit a trend of one hour says nothing.
            expr: format!(
                "max by (job, server) (predict_linear({}[1h], 6 * 3600)) > {limit} and on (job, server) {} > 0.5 * {limit}",
                series(&STORE_USED, job),
                max(&STORE_USED, "job, server", job),
                limit = max(&STORE_LIMIT, "job, server", job),
            ),
            lasts: "15m",
            severity: "page",
            summary: "{{ $labels.server }}: at the growth of the last hour the store is full within six hours and then refuses new messages",
        },
        Alert {
            name: "NoMemoryLimit",
            // The embedded store has the end of its disk.
            expr: format!(
                "{} unless on (job, server) {}",
                max(&STORE_USED, "job, server", job),
                max(&STORE_LIMIT, "job, server", job)
            ),
            lasts: "1h",
            severity: "ticket",
            summary: "{{ $labels.server }}: this Redis has no maxmemory and uses {{ $value | humanize1024 }}B; it takes messages until the kernel ends it",
        },
        Alert {
            name: "StoreErrors",
            // A failover fails calls for seconds: its errors are out of sight before the alert would fire.
            expr: format!(
                "{} > 0 {}",
                rate(&STORE_ERRORS, "job, kind", &away, "2m"),
                unless_called(job, "job", "StoreAway|MessagesInDanger|TopicIssue", "5m")
            ),
            lasts: "5m",
            severity: "ticket",
            summary: "calls to the store fail ({{ $labels.kind }}): {{ $value | humanize }} a second",
        },
        Alert {
            name: "ClockSkew",
            expr: format!("max by (job, instance) (abs({})) > 1", series(&STORE_CLOCK_SKEW, job)),
            lasts: "1m",
            severity: "page",
            summary: "{{ $labels.instance }}: its clock and the store's are {{ $value | humanizeDuration }} apart; beyond 2 s it takes nothing",
        },
        Alert {
            name: "MessagesInDanger",
            expr: format!("{} > 0", max(&STORE_ISSUES, "job, kind", &danger)),
            lasts: "0m",
            severity: "page",
            summary: "the store may lose messages or cannot keep them ({{ $labels.kind }}); the log of a node says which server, and what to do",
        },
        Alert {
            name: "TooFewReplicas",
            expr: format!("{} > 0", max(&STORE_ISSUES, "job, kind", &weak)),
            lasts: "5m",
            severity: "ticket",
            summary: "{{ $value }} masters of Redis would lose acknowledged messages in a failover ({{ $labels.kind }})",
        },
        Alert {
            name: "TopicIssue",
            expr: format!(
                "{} > 0 or {} > 0",
                max(&TOPIC_ISSUES, "job, kind", job),
                max(&SHARDS_LOST, "job, topic", job)
            ),
            lasts: "0m",
            severity: "page",
            summary: "a topic or its shards vanished or cannot be read ({{ $labels.kind }}{{ $labels.topic }}): a server came back without its data",
        },
    ]
}
