//! Prometheus rules: recordings of lateness against its objective, and the alerts.
//!
//! The windows and burn rates are those of "multiwindow, multi-burn-rate alerts" in Google's SRE workbook,
//! chapter 5: a page at 14.4 times the budget's pace over an hour or 6 times over six, a ticket at 3 times over
//! a day or once over three.

use std::fmt::Write as _;

use duetime_metrics::table::{LATENESS, NODES_SERVING, OLDEST_DUE_AGE, PAUSED};

use crate::alerts;
use crate::expr::{BUDGET, OVERDUE, bucket, late_ratio, max, part, series};
use crate::objective::{Objective, Objectives};

/// The windows that lateness is recorded over.
pub(crate) const WINDOWS: [&str; 7] = ["5m", "30m", "1h", "2h", "6h", "1d", "3d"];

/// A series that Prometheus keeps beside those it scrapes.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Its name.
    pub record: String,
    /// What it is.
    pub expr: String,
}

/// What is recorded for these objectives.
#[must_use]
pub fn recordings(objectives: &Objectives, job: &str) -> Vec<Recording> {
    let joined = |matcher: &str| {
        let job = format!(r#"job="{job}""#);
        if matcher.is_empty() { job } else { format!("{job},{matcher}") }
    };
    // One rule a record, whatever objectives there are: of two with one name and no labels Prometheus warns.
    let of_all = |record: String, expr: &dyn Fn(&Objective, &str) -> String| {
        let each = objectives.matchers().into_iter().map(|(objective, matcher)| expr(objective, &matcher));
        Recording { record, expr: each.collect::<Vec<_>>().join(" or ") }
    };
    // What waits in a paused topic is meant to.
    let overdue = |objective: &Objective, matcher: &str| {
        format!(
            "max by (job, topic) ({}) > bool {} unless on (job, topic) max by (job, topic) ({}) == 1",
            series(&OLDEST_DUE_AGE, &joined(matcher)),
            objective.seconds(),
            series(&PAUSED, &joined(matcher))
        )
    };
    let late = |window: &str, objective: &Objective, matcher: &str| {
        let count = |end: &str, matcher: &str| {
            format!("sum by (job, topic) (rate({}[{window}]))", part(&LATENESS, end, &joined(matcher)))
        };
        let bound = bucket(objective.seconds());
        let in_bound = if matcher.is_empty() { bound } else { format!("{matcher},{bound}") };
        let (in_time, all_of_them) = (count("bucket", &in_bound), count("count", matcher));
        // The histogram counts what was delivered: while nothing is, it says nothing. So the time in which
        // a due message waited longer than the bound counts as late too, and the worse of both holds.
        let overdue = format!("{OVERDUE}{{{}}}", joined(matcher));
        format!(
            "max by (job, topic) (label_replace(1 - {in_time} / ({all_of_them} > 0), \"of\", \"delivered\", \"\", \"\") \
             or label_replace(avg_over_time({overdue}[{window}]), \"of\", \"waiting\", \"\", \"\"))"
        )
    };
    // A dashboard does not know what is promised.
    let budget = format!("{} * 0 + {}", max(&NODES_SERVING, "job", &joined("")), objectives.budget(1.0));
    let mut all = vec![Recording { record: BUDGET.to_owned(), expr: budget }, of_all(OVERDUE.to_owned(), &overdue)];
    all.extend(WINDOWS.map(|window| {
        of_all(late_ratio(window), &|objective: &Objective, matcher: &str| late(window, objective, matcher))
    }));
    all
}

/// The file of rules. `runbook` is the address under which the runbooks can be read; a name of an alert in small
/// letters is appended to it.
#[must_use]
pub fn rules(objectives: &Objectives, job: &str, runbook: &str) -> String {
    let mut text = String::from("# Written by `duetime alerts`; change its arguments, not this file.\ngroups:\n");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  - name: duetime-lateness\n    interval: 30s\n    rules:");
    for recording in recordings(objectives, job) {
        let _ = writeln!(text, "      - record: {}\n        expr: {}", recording.record, quoted(&recording.expr));
    }
    let _ = writeln!(text, "  - name: duetime-alerts\n    rules:");
    for alert in alerts::all(objectives, job) {
        let _ = writeln!(
            text,
            "      - alert: Duetime{}\n        expr: {}\n        for: {}\n        labels:\n          severity: {}\n        \
             annotations:\n          summary: {}\n          runbook_url: {}",
            alert.name,
            quoted(&alert.expr),
            alert.lasts,
            alert.severity,
            quoted(alert.summary),
            quoted(&format!("{runbook}#duetime{}", alert.name.to_lowercase())),
        );
    }
    text
}

/// A YAML scalar in double quotes, which are JSON's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
