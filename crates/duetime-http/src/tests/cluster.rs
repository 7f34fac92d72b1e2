//! Figures of the cluster: a node asks the others, says which have not answered, and asks nobody else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duetime_core::{ClusterNodes, Member, SinkDown, SinkOutage, Timestamp, TopicName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::sinks::FixedSinks;
use super::{Answer, NOW_MS, TestApi, within};
use crate::{Auth, HttpParts, NodeInfo};

/// What is said of a node that does not answer, and of one that has no time to.
const SILENT: &str = "did not answer within 2 s";
/// For so long an answer is the same for all who ask.
const CACHED_FOR: Duration = Duration::from_secs(1);

const TOKEN: &str = "a-secret-of-view-0123";
const ROOT: &str = "a-secret-of-root-0123";

fn auth() -> Auth {
    let token = format!(r#"{{"name":"looks","secret":"{TOKEN}","scopes":["view"],"topics":["orders"]}}"#);
    let root = r#"{"name":"root","secret":"a-secret-of-root-0123","scopes":["admin"]}"#;
    Auth::load(&serde_json::from_str(&format!(r#"{{"tokens":[{token},{root}]}}"#)).unwrap()).unwrap()
}

fn member(id: &str, advertise: Option<SocketAddr>) -> Member {
    let advertise = advertise.map(|address| format!("http://{address}"));
    Member { id: id.to_owned(), address: format!("of-{id}"), advertise, ..Member::default() }
}

/// A node with the topics `orders` and `mails`, whose clock and meters are its own.
async fn node(id: &str, sinks: FixedSinks) -> TestApi {
    let api = TestApi::with(auth()).await;
    let node = NodeInfo { id: id.to_owned(), address: "127.0.0.1:1".to_owned() };
    let api = api.again(HttpParts { node, sinks: Arc::new(sinks), ..api.parts.clone() });
    for topic in ["orders", "mails"] {
        let path = format!("/v1/topics/{topic}");
        let made = api.call_as(ROOT, "PUT", &path, r#"{"sink":{"name":"shop"}}"#).await;
        assert_eq!(made.status, 201, "{}", made.text);
    }
    api
}

/// So many deliveries of `orders` in half a minute, each so late.
fn delivered(api: &TestApi, count: u64, late: f64) {
    let meters = &api.parts.meters;
    let topic = meters.topic(&TopicName::new("orders").unwrap());
    meters.sample(Duration::ZERO);
    topic.count(duetime_metrics::Event::Delivered, count);
    (0..count).for_each(|_| topic.lateness.observe(late));
    meters.sink("shop", "http").call(Duration::from_millis(3));
    meters.sample(Duration::from_secs(30));
}

/// Serves it at an address that is as good as of another machine.
async fn served(api: &TestApi) -> (SocketAddr, DropGuard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, end) = (listener.local_addr().unwrap(), CancellationToken::new());
    let parts = api.parts.clone();
    let listening = crate::Listening::of(&parts);
    tokio::spawn(crate::serve(listener, crate::router(parts, axum::Router::new()), listening, end.clone()));
    (address, end.drop_guard())
}

/// Answers `answer` to whatever comes, and counts it.
async fn answering(answer: String) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (address, asked)
}

/// The same node among `others`.
fn among(api: &TestApi, others: impl IntoIterator<Item = Member>) -> TestApi {
    let own = Member { address: "127.0.0.1:1".to_owned(), ..member("n1", None) };
    let all = [own].into_iter().chain(others).enumerate();
    let members = all.map(|(at, member)| (format!("{}~{at}", member.id).into(), member)).collect();
    let cluster = ClusterNodes { members, ..ClusterNodes::default() };
    let options = crate::HttpOptions::default();
    api.again(HttpParts { cluster: watch::channel(Arc::new(cluster)).1, options, ..api.parts.clone() })
}

async fn get(api: &TestApi, path: &str) -> Answer {
    api.call_as(TOKEN, "GET", path, "").await
}

/// What a node answers; asked again while a node that serves was not fast enough on a busy machine, with how often.
async fn complete(api: &TestApi, path: &str, silent: usize) -> (Value, usize) {
    let asking = async {
        for tries in 1.. {
            let answer = get(api, path).await.json();
            if nodes(&answer).iter().filter(|(_, _, reason)| *reason == SILENT).count() == silent {
                return (answer, tries);
            }
            // Until the answer is made anew.
            let until = Instant::now() + CACHED_FOR;
            while Instant::now() < until {
                tokio::task::yield_now().await;
            }
        }
        unreachable!("it is asked again")
    };
    within(Duration::from_secs(120), asking).await
}

/// Each node's name, whether it answered, and why not.
fn nodes(answer: &Value) -> Vec<(&str, bool, &str)> {
    let each = answer["nodes"].as_array().unwrap().iter();
    each.map(|node| {
        let reason = node["reason"].as_str().unwrap_or_default();
        (node["name"].as_str().unwrap(), node["answered"].as_bool().unwrap(), reason)
    })
    .collect()
}

fn down() -> FixedSinks {
    let at = Timestamp::from_millis(NOW_MS - 60_000);
    let down = SinkDown { since: at, deferred_until: at, reason: "connection refused".to_owned(), next_try: None };
    let outage = SinkOutage {
        topic: TopicName::new("orders").unwrap(),
        sink: "shop".to_owned(),
        since: at,
        ended: None,
        reason: "connection refused".to_owned(),
        last_reason: None,
        probes: 3,
    };
    FixedSinks { down: Some(down), outages: vec![outage], ..FixedSinks::default() }
}

#[tokio::test]
async fn the_figures_of_all_nodes_are_added_and_one_that_is_silent_is_said_to_be_missing() {
    let (asked, other) = (node("n1", FixedSinks::default()).await, node("n2", down()).await);
    delivered(&asked, 90, 0.004);
    delivered(&other, 30, 1.5);
    let (address, _serves) = served(&other).await;
    // Connections to it are opened by the system, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = member("n3", Some(silent.local_addr().unwrap()));
    let asked = among(&asked, [member("n2", Some(address)), nobody, member("n4", None)]);
    let (rates, _) = complete(&asked, "/v1/rates?scope=cluster", 1).await;
    assert_eq!(
        nodes(&rates),
        [
            ("n1", true, ""),
            ("n2", true, ""),
            ("n3", false, SILENT),
            ("n4", false, "publishes no address: set node.advertise there"),
        ]
    );
    let orders = &rates["topics"][0];
    assert_eq!((&orders["topic"], rates["topics"].as_array().unwrap().len()), (&json!("orders"), 1), "its token's");
    assert_eq!((&orders["delivered"], &orders["deliveries"], &orders["late"]), (&json!(4.0), &json!(120), &json!(30)));
    let (p50, p99) = (orders["late_p50_ms"].as_f64().unwrap(), orders["late_p99_ms"].as_f64().unwrap());
    assert!(p50 < 10.0 && p99 > 1000.0, "of all deliveries together: {p50} {p99}");
    assert_eq!((&orders["sink_issues"][0]["node"], &orders["sink_issues"][0]["state"]), (&json!("n2"), &json!("down")));
    assert_eq!(orders["sink_issues"][0]["reason"], "connection refused");
    assert_eq!(orders["sink_issues"].as_array().unwrap().len(), 1, "n1 sees nothing wrong");

    let (detail, _) = complete(&asked, "/v1/rates?topic=orders&node=n2", 0).await;
    assert_eq!((nodes(&detail), &detail["node"]), (vec![("n2", true, "")], &json!("n1")));
    let orders = &detail["topics"][0];
    assert_eq!((&orders["deliveries"], &orders["detail"]["flow"]["delivered"]), (&json!(30), &json!(30)));
    let own = get(&asked, "/v1/rates").await.json();
    assert_eq!((&own["topics"][0]["deliveries"], own.get("nodes")), (&json!(90), None));
    let own = get(&asked, "/v1/rates?node=n1").await.json();
    assert_eq!((&own["topics"][0]["deliveries"], nodes(&own)), (&json!(90), vec![("n1", true, "")]));

    let (outages, _) = complete(&asked, "/v1/outages?node=n2", 0).await;
    assert_eq!((&outages["outages"][0]["node"], &outages["outages"][0]["sink"]), (&json!("n2"), &json!("shop")));
    assert_eq!(get(&asked, "/v1/audit?scope=cluster").await.problem(), (403, "forbidden".to_owned()));
    let audit = asked.call_as(ROOT, "GET", "/v1/audit?node=n2&limit=5", "").await.json();
    let entries = audit["entries"].as_array().unwrap();
    let lines: Vec<&str> = entries.iter().map(|line| line["node"].as_str().unwrap()).collect();
    assert_eq!((lines, nodes(&audit)), (vec!["n2"; 2], vec![("n2", true, "")]), "{audit}");
}

#[tokio::test]
async fn a_sink_consumers_and_issues_are_those_of_all_nodes() {
    let (asked, other) = (node("n1", FixedSinks::default()).await, node("n2", down()).await);
    let (address, _serves) = served(&other).await;
    let topic = TopicName::new("orders").unwrap();
    let asked = among(&asked, [member("n2", Some(address))]);
    for (api, name, at) in [(&asked, "both", 0), (&other, "both", 5_000), (&other, "there", 1_000)] {
        let now = Timestamp::from_millis(NOW_MS - at);
        api.parts.options.named_consumers.asks(&topic, &name.into(), now);
    }
    other.parts.catalog.issues().lose(&topic, [3].into());

    let (sink, _) = complete(&asked, "/v1/topics/orders/sink?scope=cluster", 0).await;
    assert_eq!((&sink["node"], nodes(&sink)), (&json!("n1"), vec![("n1", true, ""), ("n2", true, "")]), "{sink}");
    assert_eq!((&sink["issue"]["state"], &sink["issues"][0]["node"]), (&json!("down"), &json!("n2")), "{sink}");
    assert_eq!(sink["issues"].as_array().unwrap().len(), 1, "n1 sees nothing wrong");
    let own = get(&asked, "/v1/topics/orders/sink").await.json();
    assert_eq!((own.get("issue"), own.get("nodes")), (None, None));
    let gone = get(&asked, "/v1/topics/orders/sink?node=n9").await;
    assert_eq!(gone.problem(), (404, "unknown_node".to_owned()));

    let (all, _) = complete(&asked, "/v1/topics/orders/consumers?scope=cluster", 0).await;
    assert_eq!((&all["scope"], nodes(&all).len()), (&json!("cluster"), 2));
    let each = all["consumers"].as_array().unwrap().iter();
    let each = each.map(|one| (one["consumer"].as_str().unwrap(), one["last_claim_at"].as_i64().unwrap() - NOW_MS));
    assert_eq!(each.collect::<Vec<_>>(), [("both", 0), ("there", -1_000)], "the last claim anywhere");
    assert_eq!(all["consumers"][0]["claims_per_minute"], 2);
    let own = get(&asked, "/v1/topics/orders/consumers").await.json();
    assert_eq!((&own["scope"], own["consumers"].as_array().unwrap().len()), (&json!("node"), 1));

    let as_root = async |path: &str| asked.call_as(ROOT, "GET", path, "").await.json();
    let issues = as_root("/v1/issues?scope=cluster").await;
    assert_eq!((&issues["issues"][0]["node"], nodes(&issues).len()), (&json!("n2"), 2), "{issues}");
    assert!(issues["issues"][0]["issue"].as_str().unwrap().contains("orders"), "{issues}");
    assert_eq!(as_root("/v1/issues").await["issues"], json!([]));
    let hidden = get(&asked, "/v1/issues?scope=cluster").await.json();
    assert_eq!(hidden["issues"], json!([]), "not for a token of one topic");
}

#[tokio::test]
async fn many_silent_nodes_hide_none_that_answers() {
    const SILENT_NODES: usize = 200;
    let (asked, well) = (node("n1", FixedSinks::default()).await, node("well", FixedSinks::default()).await);
    let (address, _serves) = served(&well).await;
    // Nobody accepts here.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nowhere = listener.local_addr().unwrap();
    let silent = (0..SILENT_NODES).map(|n| member(&format!("silent-{n}"), Some(nowhere)));
    let asked = among(&asked, silent.chain([member("well", Some(address))]));
    let (issues, _) = complete(&asked, "/v1/issues?scope=cluster", SILENT_NODES).await;
    let answered: Vec<_> = nodes(&issues).into_iter().filter(|(_, answered, _)| *answered).collect();
    assert_eq!(answered, [("n1", true, ""), ("well", true, "")]);
}

#[tokio::test]
async fn no_address_is_asked_but_those_that_nodes_published_and_the_token_goes_to_no_other() {
    let asked = node("n1", FixedSinks::default()).await;
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_owned();
    let (foreign, foreign_asked) = answering(ok).await;
    let moved = format!("HTTP/1.1 302 Found\r\nlocation: http://{foreign}/\r\ncontent-length: 0\r\n\r\n");
    let (moving, moving_asked) = answering(moved).await;
    let named = r#"{"node":"somebody","topics":[],"sinks":[]}"#;
    let (other, _) = answering(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{named}", named.len())).await;
    let endless = format!("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n{}", " ".repeat(9 << 20));
    let (endless, _) = answering(endless).await;
    let asked = among(
        &asked,
        [
            member("n2", Some(moving)),
            member("n3", Some(other)),
            member("n4", Some(endless)),
            // The port of this node, at a loopback address: of whichever machine.
            member("n5", Some("127.0.0.1:1".parse().unwrap())),
        ],
    );
    let began = Instant::now();
    let (rates, tries) = complete(&asked, "/v1/rates?scope=cluster", 0).await;
    assert_eq!(
        nodes(&rates),
        [
            ("n1", true, ""),
            ("n2", false, "answered 302"),
            ("n3", false, "publishes an address at which another node answers: correct node.advertise there"),
            ("n4", false, "answered more than 8 MiB"),
            ("n5", false, "publishes the address of this node: set node.advertise there"),
        ]
    );
    for name in [format!("http://{foreign}"), foreign.to_string(), "n9".to_owned()] {
        let answer = get(&asked, &format!("/v1/rates?node={name}")).await;
        assert_eq!(answer.problem(), (404, "unknown_node".to_owned()), "{name}");
    }
    assert_eq!(get(&asked, "/v1/rates?scope=elsewhere").await.problem(), (400, "invalid_query".to_owned()));
    let times = moving_asked.load(Ordering::Relaxed);
    assert!(foreign_asked.load(Ordering::Relaxed) == 0 && (1..=tries).contains(&times), "{times} of {tries}");
    // All who ask the same within a second have one answer.
    for _ in 0..20 {
        get(&asked, "/v1/rates?scope=cluster").await;
    }
    let times = moving_asked.load(Ordering::Relaxed);
    let most = 1 + began.elapsed().as_secs();
    assert!(times as u64 <= most, "asked {times} times for 21 windows, instead of {most} at most");
}
