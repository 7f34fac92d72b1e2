//! What is refused in the configuration, and what an error means.

use duetime_core::Verdict;
use rdkafka::error::RDKafkaErrorCode as Code;

use super::config::KafkaConfig;
use super::target::KafkaTarget;
use super::verdict::{ends_producer, of_code};

fn refused(text: &str) -> String {
    let config = toml::from_str::<KafkaConfig>(&format!("brokers = \"a:9092\"\n{text}"));
    match config {
        Ok(config) => KafkaTarget::new(&config).map(|_| ()).expect_err(text),
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
        ("message_max = 10", "message_max"),
        ("compression = \"rar\"", "zstd"),
    ] {
        let error = refused(text);
        assert!(error.contains(says), "{text}: {error}");
        assert!(!text.contains("properties") || !error.contains("canary"), "{error}");
    }
    let url = toml::from_str::<KafkaConfig>("brokers = \"u:canary-1@a:9092\"").unwrap();
    let error = KafkaTarget::new(&url).map(|_| ()).unwrap_err();
    assert!(error.contains("brokers") && !error.contains("canary"), "{error}");
}

#[test]
fn each_error_has_the_verdict_of_whom_it_concerns() {
    let of = |code, varies| of_code(code, "said", "orders", varies);
    assert!(matches!(of(Code::MessageSizeTooLarge, false), Verdict::Rejected { .. }));
    assert!(
        matches!(of(Code::UnknownTopicOrPartition, false), Verdict::Retry { reason, .. } if reason.contains("orders"))
    );
    assert!(matches!(of(Code::TopicAuthorizationFailed, true), Verdict::Retry { .. }));
    assert!(matches!(of(Code::TopicAuthorizationFailed, false), Verdict::Unavailable { .. }));
    assert!(matches!(of(Code::NotEnoughReplicas, false), Verdict::Unavailable { .. }));
    assert!(matches!(of(Code::MessageTimedOut, false), Verdict::Unavailable { .. }));
    assert!(matches!(of(Code::NotImplemented, false), Verdict::Retry { .. }));
    for code in [Code::ProducerFenced, Code::UnknownProducerId, Code::OutOfOrderSequenceNumber, Code::Fatal] {
        assert!(ends_producer(code) && matches!(of(code, false), Verdict::Unavailable { .. }), "{code:?}");
    }
    assert!(!ends_producer(Code::MessageTimedOut) && !ends_producer(Code::MessageSizeTooLarge));
}
