//! What is refused in the configuration, and what an error means.

use std::time::Duration;

use duetime_core::Verdict;
use duetime_settings::Redactor;
use rdkafka::ClientConfig;
use rdkafka::error::RDKafkaErrorCode as Code;

use super::client::KafkaTarget;
use super::config::KafkaConfig;
use super::producer::Producer;
use super::verdict::{ends_producer, of_code};

fn refused(text: &str) -> String {
    let config = toml::from_str::<KafkaConfig>(&format!("brokers = \"a:9092\"\n{text}"));
    match config {
        Ok(config) => KafkaTarget::new(&config).map(|_| ()).expect_err(text).text,
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_would_break_the_promise_or_makes_no_sense_is_refused_without_its_value() {
    for (text, says) in [
        ("properties = { acks = \"canary-1\" }", "\"acks\""),
        ("properties = { \"enable.idempotence\" = \"canary-1\" }", "enable.idempotence"),
        ("properties = { \"linger.msx\" = \"canary-1\" }", "linger.msx"),
        ("properties = { \"linger.ms\" = \"canary-1\" }", "linger.ms"),
        ("sasl = { mechanism = \"GSSAPI\", user = \"u\", password = \"canary-1\" }", "SCRAM-SHA-512"),
        ("sasl = { mechansim = \"PLAIN\", user = \"u\", password = \"canary-1\" }", "mechanism"),
        ("ca_file = \"/nowhere.pem\"", "tls = true"),
        ("timeout = \"1ms\"", "timeout"),
        ("max_message = 10", "max_message"),
        ("compression = \"rar\"", "zstd"),
    ] {
        let error = refused(text);
        assert!(error.contains(says), "{text}: {error}");
        assert!(!text.contains("properties") || !error.contains("canary"), "{error}");
    }
    let url = toml::from_str::<KafkaConfig>("brokers = \"u:canary-1@a:9092\"").unwrap();
    let error = KafkaTarget::new(&url).map(|_| ()).unwrap_err().text;
    assert!(error.contains("brokers") && !error.contains("canary"), "{error}");
}

#[test]
fn each_error_has_the_verdict_of_whom_it_concerns() {
    let of = |code| of_code(code, "said", "orders");
    assert!(matches!(of(Code::MessageSizeTooLarge), Verdict::Rejected { .. }));
    assert!(matches!(of(Code::UnknownTopicOrPartition), Verdict::Retry { reason, .. } if reason.contains("orders")));
    for code in [Code::AllBrokersDown, Code::MessageTimedOut] {
        assert!(matches!(of(code), Verdict::NoAnswer { .. }), "{code:?}");
    }
    for code in [Code::TopicAuthorizationFailed, Code::NotEnoughReplicas, Code::LeaderNotAvailable] {
        assert!(matches!(of(code), Verdict::Retry { .. }), "{code:?}");
    }
    assert!(matches!(of(Code::NotImplemented), Verdict::Retry { .. }));
    for code in [Code::ProducerFenced, Code::UnknownProducerId, Code::OutOfOrderSequenceNumber, Code::Fatal] {
        assert!(ends_producer(code) && matches!(of(code), Verdict::NoAnswer { .. }), "{code:?}");
    }
    assert!(!ends_producer(Code::MessageTimedOut) && !ends_producer(Code::MessageSizeTooLarge));
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_brings_nothing_through_is_replaced_unless_it_may_still_be_on_its_way() {
    let patience = Duration::from_secs(5);
    let start = || Producer::start(&ClientConfig::new(), &Redactor::new(Vec::new()), patience).unwrap();
    let pass = async |seconds| tokio::time::advance(Duration::from_secs(seconds)).await;
    let now = tokio::time::Instant::now;

    let young = start();
    pass(4).await;
    young.timed_out(now());
    assert!(!young.is_spent(), "it may be about to connect");
    pass(2).await;
    young.timed_out(now());
    assert!(young.is_spent());

    let working = start();
    let given = now();
    pass(1).await;
    working.took();
    working.timed_out(given);
    assert!(!working.is_spent(), "others were taken in the meantime");
    let given = now() + Duration::from_millis(1);
    pass(1).await;
    working.timed_out(given);
    assert!(working.is_spent(), "nothing was taken since");

    let partly = start();
    let given = now();
    pass(61).await;
    partly.took();
    partly.timed_out(given);
    assert!(partly.is_spent(), "one broker may have forgotten it");
}
