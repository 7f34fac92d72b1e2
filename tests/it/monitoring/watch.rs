//! A real Prometheus that watches nodes by the rules and a real Alertmanager by the inhibitions of `deploy/prometheus`,
//! with shorter durations, and who is called by them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use duetime_monitoring::{Objectives, rules};
use duetime_testkit::servers::{Alertmanager, Node, Prometheus};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::{Answer, Webhook};
use serde_json::Value;
use tokio::time::Instant;

/// Its windows are days: after any fault of some seconds it fires where there was no day before.
const NOT_WATCHED: &str = "DuetimeLatenessBudgetBurnsSlowly";
/// Not watched either once a node was killed: the rules take the seconds of a failover for many times as long.
const AFTER_FAILOVER: &str = "DuetimeLatenessBudgetBurnsFast";
/// An alert comes this soon, of a machine that is busy with other tests.
const CALLED_WITHIN: Duration = Duration::from_secs(90);
const QUIET_WITHIN: Duration = Duration::from_secs(120);
/// In time is within a second; here within five, as a machine that other tests are on makes messages late by a second.
const IN_TIME: [(&str, &str); 2] = [(r#"le=~\"1("#, r#"le=~\"5("#), ("> bool 1 ", "> bool 5 ")];
const EVERY: Duration = Duration::from_millis(100);

/// `5m`, as a part of it; of the text that begins with it.
fn part_of(duration: &str, scale: u64) -> String {
    let (number, unit) = duration.split_at(duration.len() - 1);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        other => panic!("{other} is no unit of the rules"),
    };
    let number: u64 = number.parse().expect("a number and a unit");
    format!("{}ms", number * seconds * 1_000 / scale)
}

/// The rules of a job with durations that are so many times shorter.
fn scaled(rules: &str, job: &str, scale: u64) -> String {
    let mut text = String::new();
    for line in rules.lines() {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        if matches!(key.trim(), "for" | "interval") {
            text.push_str(&format!("{key}: {}\n", part_of(value, scale)));
            continue;
        }
        let mut parts = line.split('[');
        text.push_str(parts.next().expect("a line"));
        for part in parts {
            match part.split_once(']') {
                Some((window, rest)) if window.ends_with(['s', 'm', 'h', 'd']) => {
                    text.push_str(&format!("[{}]{rest}", part_of(window, scale)));
                }
                _ => text.push_str(&format!("[{part}")),
            }
        }
        text.push('\n');
    }
    for (promised, here) in IN_TIME {
        assert!(text.contains(promised), "{promised}:\n{text}");
        text = text.replace(promised, here);
    }
    // Surveys are five seconds apart, whatever the scale; a consumer of the load waits all the time.
    for (age, bound, short) in [("survey_age", 30, 8), ("consumer_claim_age", 60, 1)] {
        let of = |bound: u64| format!("duetime_{age}_seconds{{job=\\\"{job}\\\"}}) > {bound}");
        assert!(text.contains(&of(bound)), "{age}:\n{text}");
        text = text.replace(&of(bound), &of(short));
    }
    let ahead = "6 * 3600)";
    assert!(text.contains(ahead), "{text}");
    text.replace(ahead, &format!("{})", 6 * 3600 / scale))
}

/// The groups and inhibitions of `deploy/prometheus`, and a receiver that takes everything.
fn alertmanager(kept: &str, pager: &str) -> String {
    let groups = kept.lines().find(|line| line.contains("group_by:")).expect("it has one").trim();
    let inhibitions = &kept[kept.find("inhibit_rules:").expect("it has some")..kept.find("receivers:").expect("after")];
    format!(
        "route: {{receiver: pager, group_wait: 2s, group_interval: 1s, {groups}}}\n{inhibitions}\
         receivers: [{{name: pager, webhook_configs: [{{url: {pager:?}}}]}}]\n"
    )
}

/// What watches, and who is called.
pub struct Watch {
    minds_days: bool,
    failed_over: bool,
    pager: Webhook,
    prometheus: Prometheus,
    _alertmanager: Alertmanager,
}

/// The nodes of a job; the rules' durations are so many times shorter.
pub type Job<'a> = (&'a str, &'a [&'a Node], u64);

impl Watch {
    /// Looks at these clusters so often; `duetime` is the job of the rules that are kept.
    pub async fn start(every: &str, jobs: &[Job<'_>]) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus");
        let kept = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let pager = Webhook::start();
        pager.answer(|_| Answer::status(200));
        let alertmanager = Alertmanager::start(&alertmanager(&kept("alertmanager.yml"), &pager.url("/"))).await;
        let objectives = Objectives::parse(99.9, Duration::from_secs(1), &[]).unwrap();
        let of_job = |(job, nodes, scale): &Job<'_>| {
            let text = match *job {
                "duetime" => kept("duetime.rules.yaml"),
                other => rules(&objectives, other, "docs/RUNBOOKS.md"),
            };
            let targets: Vec<String> = nodes.iter().map(|node| node.url().replace("http://", "")).collect();
            (job.to_string(), targets, scaled(&text, job, *scale))
        };
        let all: Vec<_> = jobs.iter().map(of_job).collect();
        let jobs: Vec<_> = all.iter().map(|(job, targets, rules)| (&job[..], &targets[..], &rules[..])).collect();
        let prometheus = Prometheus::start_jobs(every, &jobs, Some(&alertmanager)).await;
        Self { minds_days: false, failed_over: false, pager, prometheus, _alertmanager: alertmanager }
    }

    /// The alerts that fire or are about to, as Prometheus knows.
    async fn firing(&self) -> BTreeSet<String> {
        let all = self.prometheus.query("ALERTS").await;
        let names = all.iter().map(|alert| alert["metric"]["alertname"].as_str().unwrap().to_owned());
        names.filter(|name| self.is_watched(name)).collect()
    }

    fn is_watched(&self, alert: &str) -> bool {
        (self.minds_days || alert != NOT_WATCHED) && !(self.failed_over && alert == AFTER_FAILOVER)
    }

    /// What looks back over days is watched too: these rules have days of seconds.
    pub fn minds_days(&mut self) {
        self.minds_days = true;
    }

    /// A node or a master is about to be replaced by another.
    pub fn fails_over(&mut self) {
        self.failed_over = true;
    }

    /// The messages that somebody got since it was quiet the last time.
    fn sent(&self) -> impl Iterator<Item = Value> {
        self.pager.hits().into_iter().map(|hit| serde_json::from_slice(&hit.body).unwrap())
    }

    /// What somebody read of these alerts since it was quiet the last time.
    fn summaries(&self, is_one: impl Fn(&str) -> bool) -> BTreeSet<String> {
        let alerts = self.sent().flat_map(|sent| sent["alerts"].as_array().unwrap().clone());
        let of_one = alerts.filter(|alert| is_one(alert["labels"]["alertname"].as_str().unwrap()));
        of_one.map(|alert| format!("{} {}", alert["labels"], alert["annotations"]["summary"])).collect()
    }

    /// The alerts that somebody was called for since it was quiet the last time.
    pub fn called(&self) -> BTreeSet<String> {
        let alerts = self.sent().flat_map(|sent| sent["alerts"].as_array().unwrap().clone());
        let firing = alerts.filter(|alert| alert["status"] == "firing");
        let names = firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned());
        names.filter(|name| self.is_watched(name)).collect()
    }

    /// The messages that somebody got because this alert began to fire, since it was quiet the last time, each with
    /// what it is grouped by.
    pub fn calls_for(&self, alert: &str) -> Vec<Value> {
        let of_it = |sent: &Value| sent["status"] == "firing" && sent["groupLabels"]["alertname"] == alert;
        self.sent().filter(of_it).map(|sent| sent["groupLabels"].clone()).collect()
    }

    /// A fault has begun: waits until somebody is called for it.
    pub async fn calls(&self, alert: &str) {
        self.calls_while(alert, async || {}).await;
    }

    /// Waits until somebody is called for `alert`, and does `meanwhile` again and again until then.
    pub async fn calls_while(&self, alert: &str, meanwhile: impl AsyncFn()) {
        let begun = Instant::now();
        while !self.called().contains(alert) {
            let (waited, called) = (begun.elapsed(), self.called());
            duetime_testkit::in_time!(waited < CALLED_WITHIN, "nobody is called for {alert}, but for {called:?}");
            meanwhile().await;
            let_pass(EVERY, Because::AskedAgain).await;
        }
        // For the page of a run that is kept.
        println!("{alert}: called {:.1} s after the fault began", begun.elapsed().as_secs_f64());
    }

    /// The fault is over: waits until nothing fires any more. Nobody was called for anything but `alert`.
    pub async fn is_quiet_again(&self, alert: Option<&str>) {
        self.is_quiet_but_for(alert, &[]).await;
    }

    /// Waits until nothing fires any more. Nobody was called for anything but `alert` and, perhaps, `besides`.
    pub async fn is_quiet_but_for(&self, alert: Option<&str>, besides: &[&str]) {
        let begun = Instant::now();
        loop {
            let firing = self.firing().await;
            if firing.is_empty() {
                break;
            }
            duetime_testkit::in_time!(begun.elapsed() < QUIET_WITHIN, "still firing: {firing:?}");
            let_pass(EVERY, Because::AskedAgain).await;
        }
        println!("{}: quiet {:.1} s after the fault ended", alert.unwrap_or("-"), begun.elapsed().as_secs_f64());
        // What began to fire at the end is on its way through Alertmanager.
        let_pass(Duration::from_secs(3), Because::Quiet).await;
        let mut called = self.called();
        called.retain(|name| !besides.contains(&name.as_str()));
        let wanted = alert.map(str::to_owned).into_iter().collect();
        assert!(called.is_superset(&wanted), "called for {called:?}, and not for {wanted:?}");
        // A machine that is slow by itself may make more of them fire.
        let not_wanted = || self.summaries(|name| called.contains(name) && !wanted.contains(name));
        duetime_testkit::in_time!(called == wanted, "called for more than {wanted:?}: {:?}", not_wanted());
        self.pager.forget();
    }
}
