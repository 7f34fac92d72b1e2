//! Dashboards, rules and alerts against a real Prometheus that scraped a real node.

mod lab;
mod matrix;
mod one_node;
mod runbook;
mod slow;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use duetime_monitoring::{JOB, Objectives, Panel, annotations, boards, rules};
use duetime_testkit::servers::{Alertmanager, Prometheus};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::{Answer, Webhook};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::TestNode;

/// Surveys come every few seconds, and a rate needs two scrapes.
const SEEN_WITHIN: Duration = Duration::from_secs(90);
/// Between two rounds of everything that can happen to messages.
const ROUND: Duration = Duration::from_millis(500);

fn config(webhook: &str) -> String {
    format!(
        "[resize]\nmessages_per_second = 20\n[sinks.out]\ntype = \"log\"\n\
         [sinks.away]\ntype = \"http\"\nurl = \"{webhook}\"\nallow = [\"127.0.0.1\"]\n"
    )
}

async fn post(node: &TestNode, path: &str, body: Value) -> Value {
    node.post(&format!("/v1/topics/{path}"), body).await.1
}

/// A node with topics that are claimed, logged, and sent to a target that is away; one of them is being resized.
async fn node(webhook: &str) -> TestNode {
    let node = TestNode::new(&config(webhook)).await;
    let settings = [
        ("orders", json!({"shards": 2, "retry": {"max_attempts": 1}, "visibility_timeout": "1s"})),
        ("logged", json!({"sink": {"name": "out"}})),
        ("away", json!({"sink": {"name": "away"}})),
        ("moving", json!({"shards": 2})),
    ];
    for (topic, settings) in settings {
        node.topic(topic, settings).await;
    }
    let many: Vec<Value> = (0..2_000).map(|n| json!({"id": n.to_string(), "delay": "1h"})).collect();
    for part in many.chunks(500) {
        post(&node, "moving/messages", json!(part)).await;
    }
    node.topic("moving/shards", json!({"shards": 8})).await;
    node
}

/// Everything that can happen to messages: `round` makes their ids new.
async fn live(node: &TestNode, round: usize) {
    let ids: Vec<String> = (0..6).map(|n| format!("{round}-{n}")).collect();
    let messages: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
    post(node, "logged/messages", json!(messages)).await;
    post(node, "away/messages", json!([{"id": ids[0]}])).await;
    post(node, "orders/messages", json!(messages)).await;
    post(node, "orders/messages", json!([{"id": ids[0]}, {"id": format!("{round}-later"), "delay": "1h"}])).await;
    post(node, "orders/cancel", json!({"ids": [format!("{round}-later")]})).await;
    let claim = post(node, "orders/claim", json!({"max": 6, "wait": "1s"})).await;
    let receipts: Vec<Value> =
        claim["messages"].as_array().into_iter().flatten().map(|message| message["receipt"].clone()).collect();
    let part = |range: std::ops::Range<usize>| json!({"receipts": receipts.get(range).unwrap_or_default()});
    post(node, "orders/ack", part(0..3)).await;
    post(node, "orders/nack", part(3..5)).await;
}

/// An expression of a dashboard as Grafana sends it.
fn chosen(expr: &str) -> String {
    let all = ["$job", "$instance", "$topic"].iter().fold(expr.to_owned(), |text, name| text.replace(name, ".*"));
    all.replace("$__rate_interval", "5s")
}

/// Every selector of ours in an expression: a metric's name with its matchers.
fn selectors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("duetime_") {
        let rest = &text[at..];
        let Some(open) = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) else { continue };
        if rest[open..].starts_with('{') {
            let close = rest.find('}').expect("a brace that is opened is closed");
            found.insert(rest[..=close].to_owned());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_expression_of_every_panel_and_rule_has_a_sample() {
    let mut receiver = Webhook::start();
    let node = node(&receiver.url("/")).await;
    receiver.stop();
    let objectives = Objectives::parse(99.9, Duration::from_secs(1), &["orders=500ms".to_owned()]).unwrap();
    let rules = rules(&objectives, JOB, "docs/RUNBOOKS.md");
    let target = node.url().trim_start_matches("http://").to_owned();
    let prometheus = Prometheus::start(&[target], &rules, None).await;
    let boards = boards();
    let of_panels = boards.iter().flat_map(|board| board.panels().flat_map(Panel::expressions)).map(chosen);
    let of_annotations = annotations().into_iter().map(|annotation| chosen(&annotation.expr));
    // An alert has a sample only where something is wrong; what it looks at has one always.
    let read: Value = serde_json::from_str(&yaml_to_json(&rules)).unwrap();
    let all_rules: Vec<&Value> =
        read["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    let recorded = all_rules.iter().filter_map(|rule| rule["record"].as_str().map(str::to_owned));
    let of_alerts = all_rules.iter().flat_map(|rule| selectors(rule["expr"].as_str().unwrap()));
    let mut wanted: BTreeSet<String> = of_panels.chain(of_annotations).chain(recorded).chain(of_alerts).collect();
    // There is no such series until a shard is lost or requests fail, without a certificate, or without turns.
    let seldom = [
        "duetime_shards_lost{",
        "status=~\"500|503\"",
        "duetime_certificate_ends_timestamp_seconds{",
        "mode=\"round-robin\"",
    ];
    wanted.retain(|expr| !seldom.iter().any(|text| expr.contains(text)));
    assert!(wanted.len() > 60, "{wanted:?}");
    let scales = scales();
    let begun = Instant::now();
    let mut round = 0;
    while !wanted.is_empty() {
        duetime_testkit::in_time!(begun.elapsed() < SEEN_WITHIN, "nothing is seen of:\n{}", lines(&wanted));
        live(&node, round).await;
        round += 1;
        let_pass(ROUND, Because::AskedAgain).await;
        let mut seen = BTreeSet::new();
        for expr in &wanted {
            let samples = prometheus.query(expr).await;
            let (least, most) = scales.get(expr).copied().unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
            for sample in &samples {
                let value: f64 = sample["value"][1].as_str().unwrap_or("NaN").parse().unwrap();
                assert!(
                    value.is_nan() || (least..=most).contains(&value),
                    "{expr}: {value} is off the axis of its panel"
                );
            }
            if !samples.is_empty() {
                seen.insert(expr.clone());
            }
        }
        wanted.retain(|expr| !seen.contains(expr));
    }
}

/// By expression, what the axis of its panel shows: no share is over 1, and nothing is below 0 unless the axis goes there.
fn scales() -> HashMap<String, (f64, f64)> {
    let mut scales = HashMap::new();
    for board in boards() {
        for panel in board.json("docs/RUNBOOKS.md")["panels"].as_array().unwrap() {
            let shown = &panel["fieldConfig"]["defaults"];
            let least = shown["min"].as_f64().filter(|_| panel["type"] == "timeseries").unwrap_or(f64::NEG_INFINITY);
            let most = if shown["unit"] == "percentunit" { 1.000_001 } else { f64::INFINITY };
            for target in panel["targets"].as_array().into_iter().flatten() {
                scales.insert(chosen(target["expr"].as_str().unwrap()), (least, most));
            }
        }
    }
    scales
}

fn lines(wanted: &BTreeSet<String>) -> String {
    wanted.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// Our own rules are YAML whose texts are JSON's: this reads no other.
fn yaml_to_json(rules: &str) -> String {
    let mut groups: Vec<Value> = Vec::new();
    for line in rules.lines() {
        let line = line.trim_start();
        let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        if let Some(name) = line.strip_prefix("- name: ") {
            groups.push(json!({"name": name, "rules": []}));
        } else if let Some((key, text)) = line.split_once(": ") {
            let rules = groups.last_mut().map(|group| group["rules"].as_array_mut().expect("made so"));
            let Some(rules) = rules else { continue };
            if let Some(key) = key.strip_prefix("- ") {
                rules.push(json!({key: value(text)}));
            } else if let Some(rule) = rules.last_mut() {
                rule[key] = value(text);
            }
        }
    }
    json!({ "groups": groups }).to_string()
}

#[test]
fn the_rules_fire_and_stay_silent_as_their_cases_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus");
    for arguments in [["check", "rules", "duetime.rules.yaml"], ["test", "rules", "duetime.rules.test.yaml"]] {
        let output = Command::new("promtool").args(arguments).current_dir(&folder).output().unwrap_or_else(|error| {
            panic!("promtool does not start ({error}); `./test --tools` installs what the tests need")
        });
        let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {arguments:?}:\n{printed}");
    }
    let cases = std::fs::read_to_string(folder.join("duetime.rules.test.yaml")).unwrap();
    let rules = std::fs::read_to_string(folder.join("duetime.rules.yaml")).unwrap();
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let name = format!("alertname: {alert}");
        let of_this = cases.match_indices(&name).map(|(at, _)| &cases[at..]);
        let silent = of_this.clone().filter(|rest| rest.lines().next().unwrap().contains("exp_alerts: []")).count();
        let fires = of_this.filter(|rest| rest.lines().nth(1).unwrap_or_default().contains("exp_alerts:")).count();
        assert!(fires > 0, "{alert}: no case in which it fires");
        assert!(silent > 0, "{alert}: no case in which it stays silent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_reaches_its_receiver_through_alertmanager() {
    let pager = Webhook::start();
    pager.answer(|_| Answer::status(200));
    let alertmanager = Alertmanager::start(&format!(
        "route: {{receiver: pager, group_wait: 100ms, group_interval: 1s, group_by: [alertname, topic]}}\n\
         receivers: [{{name: pager, webhook_configs: [{{url: {:?}}}]}}]\n",
        pager.url("/")
    ))
    .await;
    let node = node("http://127.0.0.1:1/").await;
    let objectives = Objectives::parse(99.9, Duration::from_secs(1), &[]).unwrap();
    let rules = rules(&objectives, JOB, "https://docs.example/RUNBOOKS.md");
    let target = node.url().trim_start_matches("http://").to_owned();
    let _prometheus = Prometheus::start(&[target], &rules, Some(&alertmanager)).await;
    let begun = Instant::now();
    let mut round = 0;
    // Dead letters raise an alert at once: those that are nacked have had their one attempt.
    let told = loop {
        duetime_testkit::in_time!(begun.elapsed() < SEEN_WITHIN, "the receiver was sent nothing");
        live(&node, round).await;
        round += 1;
        let alerts = pager.hits().into_iter().map(|hit| serde_json::from_slice::<Value>(&hit.body).unwrap());
        let wanted = |sent: &Value| sent["commonLabels"]["alertname"] == "DuetimeDeadLettersGrow";
        if let Some(sent) = alerts.into_iter().find(wanted) {
            break sent;
        }
        let_pass(ROUND, Because::AskedAgain).await;
    };
    assert_eq!(told["commonLabels"]["topic"], "orders");
    assert_eq!(told["commonAnnotations"]["runbook_url"], "https://docs.example/RUNBOOKS.md#duetimedeadlettersgrow");
}
