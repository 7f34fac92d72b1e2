//! Traces of deliveries, as a collector gets them by OTLP: a receiver of our own takes what a real node sends.

mod brokers;
mod grpc;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::wait::{Because, let_pass, until};
use duetime_testkit::webhook::{Answer, Hit};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::test_node::TestNode;

const PATIENCE: Duration = Duration::from_secs(20);
const PRODUCER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

/// A node that records, its collector, and the target of its sink.
struct World {
    node: TestNode,
    collector: Webhook,
    hook: Webhook,
}

impl World {
    async fn new(variables: &[(&'static str, &str)]) -> Self {
        let collector = Webhook::start();
        Self::before(collector, variables, "").await
    }

    async fn before(collector: Webhook, variables: &[(&'static str, &str)], lines: &str) -> Self {
        let hook = Webhook::start();
        let url = format!("http://{}", collector.address());
        let mut env = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", url), ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned())];
        env.extend(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let shop = format!("[sinks.shop]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]", hook.url("/due"));
        let config = format!("{shop}\n{lines}");
        let node = TestNode::with(env, &config).await;
        let world = Self { node, collector, hook };
        world
            .put("orders", json!({"shards": 2, "sink": {"name": "shop"}, "retry": {"initial": "10ms", "jitter": 0}}))
            .await;
        world.put("tasks", json!({"shards": 1})).await;
        world
    }

    async fn put(&self, topic: &str, settings: Value) {
        let (status, body) = self.node.topic(topic, settings).await;
        assert!(status.is_success(), "{body}");
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.post_of(Some(PRODUCER), path, body).await
    }

    /// The same of a producer with this span.
    async fn post_of(&self, producer: Option<&str>, path: &str, body: Value) -> Value {
        let request = self.node.request(Method::POST, &format!("/v1/topics/{path}")).json(&body);
        let request = producer.into_iter().fold(request, |request, span| request.header("traceparent", span));
        request.send().await.unwrap().json().await.unwrap()
    }

    /// What the collector got, in the order in which it ended.
    fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for hit in self.collector.hits() {
            assert_eq!((hit.path.as_str(), hit.header("content-type")), ("/v1/traces", "application/x-protobuf"));
            let request = ExportTraceServiceRequest::decode(hit.body).expect("OTLP");
            for of_resource in request.resource_spans {
                let attributes = of_resource.resource.unwrap().attributes;
                let named = attributes.iter().find(|pair| pair.key == "service.name").expect("a name of the service");
                assert_eq!(text(&named.value.as_ref().unwrap().value), "duetime");
                spans.extend(of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans));
            }
        }
        spans.sort_by_key(|span| span.end_time_unix_nano);
        spans
    }

    /// How many spans came to this end.
    async fn counted(&self, outcome: &str) -> f64 {
        self.node.line(&format!("duetime_spans_total{{outcome=\"{outcome}\"}}")).await.unwrap()
    }

    /// Waits for so many spans.
    async fn spans_of(&self, many: usize) -> Vec<Span> {
        let end = Instant::now() + PATIENCE;
        loop {
            let spans = self.spans();
            if spans.len() >= many {
                return spans;
            }
            duetime_testkit::in_time!(Instant::now() < end, "{} of {many} spans\n{}", spans.len(), self.node.output());
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
    }

    async fn delivered(&self, many: usize) -> Vec<Hit> {
        let end = Instant::now() + PATIENCE;
        while self.hook.hits().len() < many {
            duetime_testkit::in_time!(Instant::now() < end, "{} of {many} came", self.hook.hits().len());
            let_pass(Duration::from_millis(20), Because::AskedAgain).await;
        }
        self.hook.hits()
    }
}

fn text(value: &Option<Any>) -> String {
    match value {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn attribute(span: &Span, name: &str) -> String {
    let pair = span.attributes.iter().find(|pair| pair.key == name).unwrap_or_else(|| panic!("{name}: {span:?}"));
    text(&pair.value.as_ref().unwrap().value)
}

fn ids(trace_id: &[u8], span_id: &[u8]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{}-{}", hex(trace_id), hex(span_id))
}

/// Trace and span, as in the middle of a `traceparent`.
fn own(span: &Span) -> String {
    ids(&span.trace_id, &span.span_id)
}

fn links(span: &Span) -> Vec<(String, String)> {
    let one = |link: &opentelemetry_proto::tonic::trace::v1::span::Link| {
        (text(&link.attributes[0].value.as_ref().unwrap().value), ids(&link.trace_id, &link.span_id))
    };
    span.links.iter().map(one).collect()
}

fn creation() -> (String, String) {
    ("created_by".to_owned(), PRODUCER[3..52].to_owned())
}

#[tokio::test]
async fn each_attempt_is_a_trace_that_links_to_the_message_and_to_the_attempt_before() {
    let world = World::new(&[("DUETIME_LOG", "info,duetime_dispatch=debug")]).await;
    let is_it = |hit: &Hit| hit.header("duetime-id") == "order-1";
    world
        .hook
        .answer(move |hit| Answer::status(if !is_it(hit) || hit.header("duetime-attempt") == "3" { 202 } else { 425 }));
    world.post("orders/messages", json!({"id": "order-1", "delay": "100ms", "headers": {"shop": "7"}})).await;
    // It pays for a failure once others are accepted.
    let (mut others, end) = (0, Instant::now() + PATIENCE);
    while world.hook.hits().iter().filter(|hit| is_it(hit)).count() < 3 {
        duetime_testkit::in_time!(Instant::now() < end, "it did not come three times:\n{}", world.node.output());
        world.post("orders/messages", json!({"id": format!("other-{others}"), "delay": 0})).await;
        others += 1;
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
    let mut spans = world.spans_of(3 + others).await;
    spans.retain(|span| attribute(span, "messaging.message.id") == "order-1");
    let mut hits = world.delivered(3 + others).await;
    hits.retain(is_it);
    for (n, (span, hit)) in spans.iter().zip(&hits).enumerate() {
        assert_eq!(hit.header("traceparent"), format!("00-{}-01", own(span)), "the target continues this very span");
        assert_eq!((hit.header("duetime-created-by"), hit.header("shop")), (PRODUCER, "7"));
        assert_eq!((span.name.as_str(), span.kind), ("send orders", 3), "a call of a client");
        assert!(span.parent_span_id.is_empty(), "nothing stayed open over the delay");
        let mut expected = vec![creation()];
        expected.extend(n.checked_sub(1).map(|before| ("attempt_before".to_owned(), own(&spans[before]))));
        assert_eq!(links(span), expected);
        let said =
            ["messaging.system", "messaging.message.id", "duetime.attempt", "duetime.sink", "duetime.delivery_id"];
        let attempt = (n + 1).to_string();
        let told = ["duetime", "order-1", &attempt, "shop", hit.header("duetime-delivery-id")];
        assert_eq!(said.map(|name| attribute(span, name)), told);
        let (verdict, status) = if n == 2 { ("accepted", 0) } else { ("retry", 2) };
        assert_eq!(
            (attribute(span, "duetime.verdict").as_str(), span.status.as_ref().unwrap().code),
            (verdict, status)
        );
        assert!(span.end_time_unix_nano - span.start_time_unix_nano < 10_000_000_000);
    }
    let traces: std::collections::BTreeSet<_> = spans.iter().map(|span| &span.trace_id).collect();
    assert_eq!(traces.len(), 3, "each attempt is a trace of its own");
    let output = world.node.until_said("message is not accepted", 2).await;
    let failed: Vec<&str> = output.lines().filter(|line| line.contains("message is not accepted")).collect();
    let named = |(line, span): (&&str, &Span)| line.contains(&format!("trace_id=\"{}\"", &own(span)[..32]));
    assert!(failed.len() == 2 && failed.iter().zip(&spans).all(named), "{output}");
    let wanted = 3.0 + others as f64;
    let exported = async || Some(world.counted("exported").await).filter(|exported| *exported >= wanted);
    assert_eq!(until(PATIENCE, "all spans are counted", exported).await, wanted);
}

#[tokio::test]
async fn a_consumer_gets_the_span_of_its_claim_which_links_to_that_of_the_producer() {
    let world = World::new(&[]).await;
    let messages: Value = (0..256).map(|n| json!({"id": n.to_string(), "delay": 0})).collect();
    world.post("tasks/messages", messages).await;
    let claimed = world.post("tasks/claim", json!({"max": 256, "wait": "10s"})).await;
    let claimed = claimed["messages"].as_array().unwrap();
    let spans = world.spans_of(claimed.len()).await;
    for message in claimed {
        let id = message["id"].as_str().unwrap();
        let span = spans.iter().find(|span| attribute(span, "messaging.message.id") == id).expect("a span for each");
        assert_eq!(message["traceparent"], format!("00-{}-01", own(span)));
        assert_eq!((span.name.as_str(), span.kind, links(span)), ("receive tasks", 5, vec![creation()]));
    }
    let receipts: Vec<&Value> = claimed.iter().take(1).map(|message| &message["receipt"]).collect();
    world.post("tasks/nack", json!({"receipts": receipts, "delay": "1ms"})).await;
    let again = world.post("tasks/claim", json!({"max": 1, "wait": "10s"})).await;
    let spans = world.spans_of(claimed.len() + 1).await;
    let second = spans.iter().find(|span| attribute(span, "duetime.attempt") == "2").expect("the second attempt");
    assert_eq!(again["messages"][0]["traceparent"], format!("00-{}-01", own(second)));
    let before = claimed[0]["traceparent"].as_str().unwrap()[3..52].to_owned();
    assert_eq!(links(second), [creation(), ("attempt_before".to_owned(), before)]);
}

#[tokio::test]
async fn what_is_late_or_fails_is_recorded_whatever_the_share() {
    let world = World::new(&[("OTEL_TRACES_SAMPLER", "parentbased_always_off")]).await;
    let has_failed = AtomicBool::new(false);
    let fails = move |hit: &Hit| hit.header("duetime-id") == "fails" && !has_failed.swap(true, Ordering::Relaxed);
    world.hook.answer(move |hit| Answer::status(if fails(hit) { 425 } else { 202 }));
    let long_ago = "2020-01-01T00:00:00Z";
    world.post("orders/messages", json!([{"id": "plain", "delay": 0}, {"id": "fails", "delay": 0}])).await;
    world.delivered(3).await;
    world.post("orders/messages", json!({"id": "late", "due_at": long_ago})).await;
    let spans = world.spans_of(2).await;
    let ids: Vec<String> = spans.iter().map(|span| attribute(span, "messaging.message.id")).collect();
    // On a machine that stands still the others may be late too.
    assert!(ids.contains(&"fails".to_owned()) && ids.contains(&"late".to_owned()), "{ids:?}");
    let hits = world.delivered(4).await;
    let sampled = |id: &str| hits.iter().find(|hit| hit.header("duetime-id") == id).unwrap().header("traceparent");
    assert!(sampled("late").ends_with("-01"), "it is decided before it is sent");
    assert!(sampled("plain").ends_with("-00") || ids.contains(&"plain".to_owned()), "{ids:?}");
}

#[tokio::test]
async fn a_claim_that_is_not_recorded_goes_on_in_a_trace_only_where_its_producer_has_one() {
    let world = World::new(&[("OTEL_TRACES_SAMPLER", "always_off")]).await;
    for (id, producer) in [("of a trace", Some(PRODUCER)), ("of none", None)] {
        world.post_of(producer, "tasks/messages", json!({"id": id, "delay": 0})).await;
        let claimed = world.post_of(None, "tasks/claim", json!({"wait": "10s"})).await;
        let message = &claimed["messages"][0];
        assert_eq!(message["id"], id);
        let Some(span) = message["traceparent"].as_str() else {
            assert_eq!(producer, None, "{message}");
            continue;
        };
        // On a machine that stands still the claim may be late, and recorded.
        assert!(producer.is_some() || span.ends_with("-01"), "{message}");
        assert!(span != PRODUCER && span.len() == PRODUCER.len(), "each delivery is a trace of its own: {span}");
    }
}

#[tokio::test]
async fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    let mut collector = Webhook::start();
    collector.stop();
    let world =
        World::before(collector, &[("OTEL_BSP_MAX_QUEUE_SIZE", "100"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "300")], "")
            .await;
    let messages: Value = (0..1_000).map(|n| json!({"id": n.to_string(), "delay": 0})).collect();
    world.post("orders/messages", messages).await;
    world.delivered(1_000).await;
    let end = Instant::now() + PATIENCE;
    loop {
        let exported = world.counted("exported").await;
        let (failed, full) = (world.counted("failed").await, world.counted("queue_full").await);
        assert_eq!(exported, 0.0);
        if failed + full == 1_000.0 {
            assert!(failed > 0.0, "{failed} failed, {full} did not fit");
            break;
        }
        duetime_testkit::in_time!(Instant::now() < end, "{failed} failed, {full} did not fit");
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    let output = world.node.until_said("the collector did not take spans", 1).await;
    assert_eq!(output.matches("the collector did not take spans").count(), 1, "once a minute at most: {output}");
}

#[tokio::test]
async fn spans_that_wait_are_sent_before_the_node_ends() {
    let mut world = World::new(&[("OTEL_BSP_SCHEDULE_DELAY", "60000")]).await;
    world.post("orders/messages", json!({"id": "order-1", "delay": 0})).await;
    world.delivered(1).await;
    assert!(world.spans().is_empty());
    world.node.process.sigterm(PATIENCE).await;
    assert_eq!(world.spans().len(), 1, "{}", world.node.output());
}

#[tokio::test]
async fn without_a_collector_the_producers_own_trace_goes_on_and_nothing_is_counted() {
    let world = World::new(&[("OTEL_SDK_DISABLED", "true")]).await;
    world.post("orders/messages", json!({"id": "order-1", "delay": 0})).await;
    let hit = world.delivered(1).await.remove(0);
    assert_eq!(hit.header("traceparent"), PRODUCER);
    assert!(hit.headers.get("duetime-created-by").is_none());
    world.post("tasks/messages", json!({"id": "task-1", "delay": 0})).await;
    let claimed = world.post("tasks/claim", json!({"wait": "10s"})).await;
    assert_eq!(claimed["messages"][0]["traceparent"], PRODUCER);
    for outcome in ["exported", "failed", "queue_full"] {
        assert_eq!(world.counted(outcome).await, 0.0);
    }
}
