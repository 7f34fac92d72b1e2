//! Faults that show only after a while: what is late, what nobody acks, what is refused, nodes that do not agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_testkit::servers::{EtcdServers, Node};
use duetime_testkit::violation::{is_long, only_in_long};
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::{Answer, Webhook};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::lab::Lab;
use super::runbook::walk;
use super::watch::Watch;
use crate::test_node::client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// The rules' durations are so many times shorter; where they look back over days, by more.
const SCALE: u64 = 30;
const SCALE_OF_DAYS: u64 = 600;
const LOOKS: &str = "250ms";
/// How long a slow target takes for a message: later than promised, and within what a node waits.
const SLOW: Duration = Duration::from_secs(6);
/// Of these messages one is late: more than a promise of 99.9 % allows, and less than what pages.
const ONE_OF: usize = 200;
const HERD: usize = 500;
const EVERY: Duration = Duration::from_millis(400);
const ENDS_WITHIN: Duration = Duration::from_secs(20);

async fn enqueue(node: &Node, topic: &str, messages: &[Value]) {
    let url = format!("{}/v1/topics/{topic}/messages", node.url());
    assert_eq!(client().post(url).json(&messages).send().await.unwrap().status(), 200, "{topic}");
}

/// Messages that are due at once, for ever; while some are to be late, the first of each batch has an id that says so.
async fn some_are_late(url: String, are_late: Arc<AtomicBool>) {
    for round in 0.. {
        let first = if are_late.load(Ordering::SeqCst) { "late" } else { "good" };
        let one = |n| json!({"id": format!("{}-{round}-{n}", if n == 0 { first } else { "good" })});
        let batch: Vec<Value> = (0..ONE_OF).map(one).collect();
        let _ = client().post(&url).json(&batch).send().await;
        let_pass(EVERY, Because::Rate).await;
    }
}

/// A consumer takes messages of the other cluster and gives no verdict, until its topic is gone.
async fn claims_expire(lab: &Lab) {
    let url = format!("{}/v1/topics/slow", lab.second.url());
    let settings = json!({"shards": 1, "visibility_timeout": "500ms", "retry": {"max_attempts": 99}});
    assert_eq!(client().put(&url).json(&settings).send().await.unwrap().status(), 201);
    let takes = async || {
        enqueue(&lab.second, "slow", &[json!({})]).await;
        let asked = client().post(format!("{url}/claim")).json(&json!({"max": 10, "wait": "100ms"}));
        assert_eq!(asked.send().await.unwrap().status(), 200);
    };
    lab.watch.calls_while("DuetimeClaimsExpire", takes).await;
    walk("DuetimeClaimsExpire", &lab.second, None, &[("TOPIC", "slow")], "127.0.0.1").await;
    let deleted = client().delete(format!("{url}?force=true")).send().await.unwrap();
    assert!(deleted.status().is_success(), "{}", deleted.status());
    lab.watch.is_quiet_again(Some("DuetimeClaimsExpire")).await;
}

/// A node goes by another etcd than the others, as after a slip in its file.
async fn a_node_knows_none_of_the_others(lab: &mut Lab) {
    let elsewhere = EtcdServers::start_small().await;
    let etcd = |servers: &EtcdServers| format!("etcd = {:?}", servers.urls());
    let other = lab.config.replace(&etcd(&lab.etcd), &etcd(&elsewhere));
    assert_ne!(other, lab.config);
    let config = lab.config.clone();
    for (config, is_fault) in [(&other, true), (&config, false)] {
        let node = &mut lab.nodes[1];
        node.configure(config);
        node.sigterm(ENDS_WITHIN).await;
        node.start_again().await;
        if is_fault {
            lab.watch.calls("DuetimeOwnersDisagree").await;
            lab.walk("DuetimeOwnersDisagree", 1, &[], "127.0.0.1").await;
        }
    }
    lab.watch.is_quiet_but_for(Some("DuetimeOwnersDisagree"), &["DuetimeNodeDown"]).await;
}

/// A target takes what it is sent, but only after seconds.
async fn a_sink_is_slow(lab: &Lab) {
    lab.hook.answer(|_| Answer::status(200).after(SLOW));
    lab.watch.calls("DuetimeLatenessBudgetBurnsFast").await;
    // What `duetime rates` says of calls between 5 and 10 seconds.
    lab.walk("DuetimeLatenessBudgetBurnsFast", 0, &[("TOPIC", "hooks")], "7500").await;
    lab.hook.answer(|_| Answer::status(200));
    // At the pace of such a target what is ahead will be late too: a ticket may say so.
    lab.watch.is_quiet_but_for(Some("DuetimeLatenessBudgetBurnsFast"), &["DuetimeHerdAhead"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_that_shows_after_a_while_calls_somebody_for_itself_alone() {
    if !is_long() {
        return only_in_long("what was late stays in the windows of the rules for minutes");
    }
    let mut lab = Lab::start(SCALE, SCALE, LOOKS, "").await;
    let_pass(Duration::from_secs(5), Because::Quiet).await;
    lab.watch.is_quiet_again(None).await;
    claims_expire(&lab).await;
    a_node_knows_none_of_the_others(&mut lab).await;
    a_sink_is_slow(&lab).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_that_are_late_for_days_are_a_ticket() {
    if !is_long() {
        return only_in_long("days of the rules pass, each in minutes");
    }
    let hook = Webhook::start();
    hook.answer(|hit| {
        let is_late = hit.header("duetime-id").starts_with("late-");
        Answer::status(200).after(if is_late { SLOW } else { Duration::ZERO })
    });
    let url = hook.url("/");
    let config = format!("[sinks.out]\ntype = \"http\"\nurl = \"{url}\"\nallow = [\"127.0.0.1\"]\n");
    let node = Node::start_embedded(PROGRAM, &config).await;
    let made = client().put(format!("{}/v1/topics/orders", node.url())).json(&json!({"sink": {"name": "out"}}));
    assert_eq!(made.send().await.unwrap().status(), 201);
    enqueue(&node, "orders", &(0..HERD).map(|_| json!({"delay": "2h"})).collect::<Vec<_>>()).await;
    let are_late = Arc::new(AtomicBool::new(true));
    let mut load = JoinSet::new();
    load.spawn(some_are_late(format!("{}/v1/topics/orders/messages", node.url()), are_late.clone()));
    let mut watch = Watch::start(LOOKS, &[("duetime", &[&node], SCALE_OF_DAYS)]).await;
    watch.minds_days();
    watch.calls("DuetimeLatenessBudgetBurnsSlowly").await;
    walk("DuetimeLatenessBudgetBurnsSlowly", &node, None, &[("TOPIC", "orders")], &HERD.to_string()).await;
    are_late.store(false, Ordering::SeqCst);
    watch.is_quiet_again(Some("DuetimeLatenessBudgetBurnsSlowly")).await;
}
