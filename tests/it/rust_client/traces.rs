//! The trace of a caller goes with its requests, and that of a message to its handler, by OpenTelemetry.

use std::collections::BTreeMap;
use std::sync::Arc;

use duetime_client::{ClaimedMessage, ConsumeOptions};
use opentelemetry::Context;
use opentelemetry::context::FutureExt as _;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use reqwest::header::HeaderMap;
use serde_json::json;

use super::rig::{List, Rig, TOPIC, message, quick};
use super::seen;

const PRODUCER: &str = "00-11111111111111111111111111111111-2222222222222222-01";
const STATE: &str = "shop=7";

/// The span and the state in headers; empty where they are not.
fn span_of(headers: &HeaderMap) -> (String, String) {
    let text = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    (text("traceparent"), text("tracestate"))
}

fn span(traceparent: &str, tracestate: &str) -> (String, String) {
    (traceparent.to_owned(), tracestate.to_owned())
}

fn producer() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", PRODUCER.parse().unwrap());
    headers.insert("tracestate", STATE.parse().unwrap());
    headers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_carries_the_trace_of_its_caller_and_a_handler_is_in_the_trace_of_its_message() {
    let mut rig = Rig::made(0, json!({})).await;
    let propagator = Arc::new(TraceContextPropagator::new());
    let inject = propagator.clone();
    rig.client = rig.client.clone().tracing(move |headers| inject.inject(&mut HeaderInjector(headers)));
    rig.fault("/messages", super::rig::busy());
    let caller = propagator.extract_with_context(&Context::new(), &HeaderExtractor(&producer()));
    rig.client.enqueue(TOPIC, &message("traced")).with_context(caller).await.unwrap();
    rig.client.enqueue(TOPIC, &message("alone")).await.unwrap();
    let sent: Vec<_> = rig.requests("/messages").iter().map(|one| span_of(&one.headers)).collect();
    assert_eq!(sent, [span(PRODUCER, STATE), span(PRODUCER, STATE), span("", "")], "each try carries it");

    let (found, client) = (List::default(), rig.client.clone());
    let handle = {
        let found = found.clone();
        move |message: ClaimedMessage| {
            let (found, client, current) = (found.clone(), client.clone(), propagator.clone());
            let context = propagator.extract(&HeaderExtractor(&message.trace_headers()));
            let work = async move {
                client.topic(TOPIC).await.unwrap();
                let mut headers = HeaderMap::new();
                current.inject(&mut HeaderInjector(&mut headers));
                found.lock().push((message.id, span_of(&headers)));
            };
            work.with_context(context)
        }
    };
    let worker = rig.consume(ConsumeOptions { concurrency: 1, ..quick() }, handle);
    seen("both are handled", async || found.lock().len() == 2).await;
    worker.stop().await;
    let wanted = [("traced".to_owned(), span(PRODUCER, STATE)), ("alone".to_owned(), span("", ""))];
    assert_eq!(found.lock().iter().cloned().collect::<BTreeMap<_, _>>(), BTreeMap::from(wanted));
    let looks = rig.requests(TOPIC).into_iter().filter(|one| one.path.ends_with(TOPIC));
    let mut looks: Vec<_> = looks.map(|one| span_of(&one.headers).0).collect();
    looks.sort();
    assert_eq!(looks, ["", PRODUCER], "what a handler asks is in the trace of its message");
    assert!(rig.requests("/claim").iter().all(|claim| claim.header("traceparent").is_empty()));
}

#[test]
fn a_tracestate_goes_only_with_the_span_that_it_belongs_to() {
    let own = "00-33333333333333333333333333333333-4444444444444444-01";
    let other_flags = PRODUCER.replace("-01", "-00");
    for (given, kept) in [(Some(&*other_flags), STATE), (Some(own), ""), (None, "")] {
        let headers = json!({"traceparent": PRODUCER, "tracestate": STATE});
        let mut claimed = json!({"id": "a", "headers": headers, "due_at": 0, "attempt": 1, "receipt": "r"});
        if let Some(given) = given {
            claimed["traceparent"] = given.into();
        }
        let message: ClaimedMessage = serde_json::from_value(claimed).unwrap();
        assert_eq!(span_of(&message.trace_headers()), span(given.unwrap_or_default(), kept));
    }
}
