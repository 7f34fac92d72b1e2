//! Spans by gRPC: what the node sends is read frame by frame, and answered as a collector does.

use std::time::Duration;

use duetime_testkit::Webhook;
use duetime_testkit::wait::{Because, let_pass};
use duetime_testkit::webhook::{Answer, Hit};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::json;
use tokio::time::Instant;

use super::{PATIENCE, World, creation, links, own};

const BY_GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");

/// An answer with a message, which is empty, and this status.
fn status(status: &'static str) -> Answer {
    Answer::status(200).header("content-type", "application/grpc").body([0; 5]).trailer("grpc-status", status)
}

fn read(hit: &Hit) -> Vec<Span> {
    assert_eq!(hit.path, "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
    assert_eq!((hit.version, hit.header("content-type")), (reqwest::Version::HTTP_2, "application/grpc"));
    let (prefix, message) = hit.body.split_at(5);
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    assert_eq!((prefix[0], &prefix[1..]), (0, &length[..]), "one message, not compressed");
    let request = ExportTraceServiceRequest::decode(message).expect("OTLP");
    let scopes = request.resource_spans.into_iter().flat_map(|of_resource| of_resource.scope_spans);
    scopes.flat_map(|of_scope| of_scope.spans).collect()
}

/// Waits until one span came to this end.
async fn until_one(world: &World, outcome: &str) {
    let end = Instant::now() + PATIENCE;
    while world.counted(outcome).await != 1.0 {
        duetime_testkit::in_time!(Instant::now() < end, "{}", world.node.output());
        let_pass(Duration::from_millis(20), Because::AskedAgain).await;
    }
}

/// The span of the one message that is delivered in `world`.
async fn span_of_one(world: &World) -> Span {
    world.post("orders/messages", json!({"id": "order-1", "delay": 0})).await;
    world.delivered(1).await;
    until_one(world, "exported").await;
    let mut spans: Vec<Span> = world.collector.hits().iter().flat_map(read).collect();
    assert_eq!(spans.len(), 1);
    spans.remove(0)
}

#[tokio::test]
async fn spans_reach_a_collector_that_speaks_grpc_with_the_headers_that_were_asked_for() {
    let collector = Webhook::start();
    collector.answer(|_| status("0"));
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20of-a-test,x-tenant=shop");
    let world = World::before(collector, &[BY_GRPC, headers], "").await;
    let span = span_of_one(&world).await;
    assert_eq!((span.name.as_str(), links(&span)), ("send orders", vec![creation()]));
    assert_eq!(world.delivered(1).await[0].header("traceparent"), format!("00-{}-01", own(&span)));
    let call = world.collector.hits().remove(0);
    assert_eq!((call.header("authorization"), call.header("x-tenant")), ("Bearer of-a-test", "shop"));
}

#[tokio::test]
async fn a_collector_behind_tls_is_spoken_to_if_an_authority_vouches_for_it() {
    for protocol in ["grpc", "http/protobuf"] {
        let collector = Webhook::start_tls();
        collector.answer(|_| status("0"));
        let folder = tempfile::tempdir().unwrap();
        let authority = folder.path().join("authority.pem");
        std::fs::write(&authority, collector.authority_pem.as_ref().unwrap()).unwrap();
        let address = collector.url("");
        let known = ("SSL_CERT_FILE", authority.to_str().unwrap());
        let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol), ("OTEL_EXPORTER_OTLP_ENDPOINT", &address), known];
        let world = World::before(collector, &variables, "").await;
        if protocol == "grpc" {
            span_of_one(&world).await;
        } else {
            world.post("orders/messages", json!({"id": "order-1", "delay": 0})).await;
            world.spans_of(1).await;
        }
    }
    let unknown = Webhook::start_tls();
    let address = unknown.url("");
    let variables = [BY_GRPC, ("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str())];
    let world = World::before(unknown, &variables, "").await;
    world.post("orders/messages", json!({"id": "order-1", "delay": 0})).await;
    not_taken(&world, "certificate").await;
    assert!(world.collector.hits().is_empty());
}

#[tokio::test]
async fn a_collector_that_refuses_or_does_not_answer_by_grpc_costs_spans_and_nothing_else() {
    let refuses = Webhook::start();
    refuses.answer(|_| status("7"));
    let world = World::before(refuses, &[BY_GRPC], "").await;
    world.post("orders/messages", json!({"id": "order-1", "delay": 0})).await;
    not_taken(&world, "the collector did not take spans").await;

    let silent = Webhook::start();
    silent.answer(|_| status("0").after(Duration::from_secs(3_600)));
    let mut world = World::before(silent, &[BY_GRPC, ("OTEL_EXPORTER_OTLP_TIMEOUT", "300")], "").await;
    world.post("orders/messages", json!({"id": "order-1", "delay": 0})).await;
    not_taken(&world, "the collector did not take spans").await;
    world.post("orders/messages", json!({"id": "order-2", "delay": 0})).await;
    world.delivered(2).await;
    world.node.process.sigterm(PATIENCE).await;
}

/// The first span is dropped and counted, and the log says why.
async fn not_taken(world: &World, why: &str) {
    until_one(world, "failed").await;
    world.node.until_said(why, 1).await;
    assert_eq!(world.delivered(1).await.len(), 1);
}
