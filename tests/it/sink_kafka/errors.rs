//! Errors that a broker answers with: what passes, what is one message's matter, what is everybody's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Delivery, Headers, Sink, Verdict};
use duetime_testkit::conformance::sink::message;
use duetime_testkit::wait::{Because, let_pass};
use rdkafka::types::RDKafkaApiKey::{InitProducerId, Produce};
use rdkafka::types::RDKafkaRespErr::{self, *};
use serde_json::json;
use tokio::time::Instant;

use super::{Cluster, Kafka, bind};

/// Longest wait until what was fixed is seen.
const FIXED_WITHIN: Duration = Duration::from_secs(60);

fn batch(prefix: &str, count: usize) -> Vec<Delivery> {
    (0..count).map(|n| message(&format!("{prefix}-{n}"), "x")).collect()
}

/// Tries until the message is accepted.
async fn fixed(sink: &Arc<dyn Sink>, one: Delivery) {
    let end = Instant::now() + FIXED_WITHIN;
    loop {
        let verdict = sink.deliver(std::slice::from_ref(&one)).await.remove(0);
        if verdict == Verdict::Accepted {
            return;
        }
        duetime_testkit::in_time!(Instant::now() < end, "it is not seen that all is well again: {verdict:?}");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
}

/// All ids that arrived, each once.
fn arrived(kafka: &mut Kafka) -> BTreeSet<String> {
    let received = kafka.reader.fetch();
    let ids: BTreeSet<String> = received.iter().map(|one| one.id.clone()).collect();
    assert_eq!(ids.len(), received.len(), "what was repeated is there once");
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_that_pass_and_a_producer_that_the_broker_no_longer_knows_are_not_seen() {
    let mut kafka = Kafka::with("conformance");
    let sink = bind(&kafka.config(), json!({"name": "k"})).unwrap();
    assert_eq!(sink.deliver(&[message("first", "x")]).await, [Verdict::Accepted]);
    const PASS: [RDKafkaRespErr; 6] = [
        RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
        RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
        RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
    ];
    const FORGOTTEN: [RDKafkaRespErr; 5] = [
        RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
        RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,
        RD_KAFKA_RESP_ERR_PRODUCER_FENCED,
        RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING,
    ];
    for error in PASS.into_iter().chain(FORGOTTEN) {
        kafka.cluster.errors(Produce, &[error]);
        let verdicts = sink.deliver(&batch(&format!("{error:?}"), 30)).await;
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{error:?}: {verdicts:?}");
    }
    assert_eq!(arrived(&mut kafka).len(), 1 + 30 * (PASS.len() + FORGOTTEN.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_record_does_not_take_along_those_that_travel_with_it() {
    let mut kafka = Kafka::with("conformance");
    let sink = bind(&kafka.config(), json!({"name": "k", "key": "same"})).unwrap();
    let refusals = [
        (RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, "max_message"),
        (RD_KAFKA_RESP_ERR_INVALID_RECORD, "refuses it"),
        (RD_KAFKA_RESP_ERR_POLICY_VIOLATION, "refuses it"),
    ];
    let mut accepted = BTreeSet::new();
    for (error, says) in refusals {
        // A broker refuses a batch as a whole. One of its records is refused again when it comes alone.
        kafka.cluster.errors(Produce, &[error, error]);
        let messages = batch(&format!("{error:?}"), 40);
        let verdicts = sink.deliver(&messages).await;
        let mut refused = 0;
        for (message, verdict) in messages.iter().zip(&verdicts) {
            match verdict {
                Verdict::Accepted => _ = accepted.insert(message.id.to_string()),
                Verdict::Rejected { reason } if reason.contains(says) => refused += 1,
                other => panic!("{error:?}: {other:?}"),
            }
        }
        // None if the library made two batches of them.
        assert!(refused <= 1, "{error:?}: {refused} refused");
        kafka.cluster.errors(Produce, &[error, error]);
        let verdict = sink.deliver(&[message("refused", "x")]).await.remove(0);
        assert!(matches!(&verdict, Verdict::Rejected { reason } if reason.contains(says)), "{error:?}: {verdict:?}");
    }
    assert_eq!(arrived(&mut kafka), accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_missing_or_forbidden_is_that_topics_matter_until_it_is_fixed() {
    let kafka = Kafka::with("conformance");
    let routed = bind(&kafka.config(), json!({"name": "k", "topic": "{header.to|conformance}"})).unwrap();
    kafka.cluster.order(|cluster| cluster.topic_error("nowhere", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART));
    let to = |to: &str, id: &str| {
        let headers = Headers::new(vec![("to".to_owned(), to.to_owned())]).unwrap();
        Delivery { headers, ..message(id, "x") }
    };
    let mut messages = batch("routed", 20);
    messages[7] = to("nowhere", "routed-7");
    messages[9] = to("", "routed-9");
    for (n, verdict) in routed.deliver(&messages).await.iter().enumerate() {
        match n {
            7 => assert!(matches!(verdict, Verdict::Retry { reason, .. } if reason.contains("nowhere")), "{verdict:?}"),
            9 => assert!(matches!(verdict, Verdict::Rejected { reason } if reason.contains("no topic")), "{verdict:?}"),
            _ => assert_eq!(*verdict, Verdict::Accepted, "{n}"),
        }
    }
    kafka.cluster.order(|cluster| cluster.topic_error("nowhere", RD_KAFKA_RESP_ERR_NO_ERROR));
    fixed(&routed, to("nowhere", "created")).await;

    let sink = bind(&kafka.config(), json!({"name": "k"})).unwrap();
    kafka.cluster.errors(Produce, &[RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    let verdict = sink.deliver(&[message("forbidden", "x")]).await.remove(0);
    assert!(matches!(&verdict, Verdict::Retry { reason, .. } if reason.contains("right")), "{verdict:?}");
    fixed(&sink, message("allowed", "x")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_may_not_begin_says_why_and_begins_when_it_may() {
    let cluster = Cluster::start();
    cluster.order(|cluster| cluster.create_topic("conformance", 3, 1));
    cluster.errors(InitProducerId, &[RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED; 20]);
    let sink = bind(&super::config(&cluster.brokers), json!({"name": "k"})).unwrap();
    let verdict = sink.deliver(&[message("first", "x")]).await.remove(0);
    assert!(
        matches!(&verdict, Verdict::NoAnswer { reason } if reason.to_lowercase().contains("authoriz")),
        "{verdict:?}"
    );
    cluster.order(|cluster| {
        cluster.clear_request_errors(InitProducerId);
        Ok(())
    });
    fixed(&sink, message("first", "x")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_come_too_late_are_an_absence() {
    let mut kafka = Kafka::with("conformance");
    let sink = bind(&kafka.config(), json!({"name": "k"})).unwrap();
    assert_eq!(sink.deliver(&[message("first", "x")]).await, [Verdict::Accepted]);
    kafka.cluster.order(|cluster| cluster.broker_round_trip_time(1, Duration::from_secs(20)));
    let began = Instant::now();
    let verdict = sink.deliver(&[message("late", "x")]).await.remove(0);
    let says = "within 4000 ms";
    assert!(
        matches!(&verdict, Verdict::Unavailable { reason } | Verdict::NoAnswer { reason } if reason.contains(says)),
        "{verdict:?}"
    );
    duetime_testkit::in_time!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    kafka.cluster.order(|cluster| cluster.broker_round_trip_time(1, Duration::ZERO));
    fixed(&sink, message("late", "x")).await;
    let received = kafka.reader.fetch();
    assert_eq!(received.iter().map(|one| one.id.as_str()).collect::<BTreeSet<_>>(), BTreeSet::from(["first", "late"]));
}
