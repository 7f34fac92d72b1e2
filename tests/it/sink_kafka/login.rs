//! TLS and logins, and what `duetime check-config` says of a cluster that cannot be used.

use std::time::Duration;

use duetime_core::Verdict;
use duetime_testkit::conformance::sink::{CANARY, message};
use duetime_testkit::servers::{TansuOptions, TansuServer, free_port, write_certificates};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::gate::{Gate, Login};
use super::{PARTITIONS, bind};
use crate::sink_check::check;

/// The checks wait for four seconds, all at once; a slow machine may add to that.
const CHECK_MAX: Duration = Duration::from_secs(30);
const LOGIN: Login = Login { user: "duetime", password: CANARY };

/// A broker, its gates, and a folder with certificates.
struct GuardedBroker {
    broker: TansuServer,
    _gate: Gate,
    certificates: TempDir,
}

impl GuardedBroker {
    /// The broker gives the gate's address as its own, so clients cannot get round it.
    async fn with(tls: bool, login: Option<Login>) -> Self {
        let certificates = tempfile::tempdir().unwrap();
        write_certificates(certificates.path());
        let port = free_port();
        let gate = Gate::before(port, tls.then_some(certificates.path()), login).await;
        let topics = vec![("due", PARTITIONS as u32)];
        let options = TansuOptions { topics, port: Some(port), advertised: Some(gate.port) };
        Self { broker: TansuServer::start_with(options).await, _gate: gate, certificates }
    }

    fn config(&self, more: &str) -> String {
        let brokers = self.broker.address();
        format!("type = \"kafka\"\nbrokers = {brokers:?}\ntimeout = \"10s\"\nconnect_timeout = \"4s\"\n{more}")
    }

    fn ca_file(&self) -> String {
        format!("ca_file = {:?}\n", self.certificates.path().join("ca.pem"))
    }
}

fn sasl(mechanism: &str, password: &str) -> String {
    format!("sasl = {{ mechanism = {mechanism:?}, user = \"duetime\", password = {password:?} }}\n")
}

/// Hands over, or says why not.
async fn hands_over(config: &str) -> Result<(), String> {
    let sink = bind(config, json!({"name": "k", "topic": "due"})).unwrap();
    sink.check().await?;
    match sink.deliver(&[message("x", "x")]).await.remove(0) {
        Verdict::Accepted => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_taken_with_plain_and_scram_and_a_wrong_one_is_refused_by_name() {
    let broker = GuardedBroker::with(false, Some(LOGIN)).await;
    for mechanism in ["PLAIN", "SCRAM-SHA-256"] {
        assert_eq!(hands_over(&broker.config(&sasl(mechanism, CANARY))).await, Ok(()), "{mechanism}");
        let wrong = format!("{CANARY}-wrong");
        let said = hands_over(&broker.config(&sasl(mechanism, &wrong))).await.unwrap_err();
        assert!(said.contains("Go away") && said.contains("check `sasl`") && !said.contains(CANARY), "{said}");
    }
    let said = hands_over(&broker.config(&sasl("SCRAM-SHA-512", CANARY))).await.unwrap_err();
    assert!(said.contains("SCRAM-SHA-512") && said.contains("SCRAM-SHA-256") && !said.contains(CANARY), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_known_authority_is_trusted_and_a_login_goes_over_tls_too() {
    let broker = GuardedBroker::with(true, Some(LOGIN)).await;
    let login = format!("tls = true\n{}", sasl("SCRAM-SHA-256", CANARY));
    let said = hands_over(&broker.config(&login)).await.unwrap_err();
    assert!(said.contains("certificate verify failed") && said.contains("`ca_file`"), "{said}");
    assert_eq!(hands_over(&broker.config(&format!("{login}{}", broker.ca_file()))).await, Ok(()));
    let said = hands_over(&broker.config(&sasl("PLAIN", CANARY))).await.unwrap_err();
    assert!(!said.contains(CANARY) && said.contains("does not answer as a Kafka cluster"), "{said}");

    let broker = GuardedBroker::with(true, None).await;
    let mine = format!("tls = true\n{}", broker.ca_file());
    assert_eq!(hands_over(&broker.config(&mine)).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_kafka_is_said_with_its_remedy_before_a_node_starts() {
    let (open, secure) = (GuardedBroker::with(false, Some(LOGIN)).await, GuardedBroker::with(true, None).await);
    // Takes connections and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let at = |brokers: &str| {
        format!("type = \"kafka\"\nbrokers = {brokers:?}\nconnect_timeout = \"4s\"\n{}", sasl("PLAIN", CANARY))
    };
    let table = [
        ("k-away", at("127.0.0.1:1"), ["Connection refused", "fix host and port"]),
        ("k-name", at("no-such-host.invalid:9092"), ["no-such-host.invalid", "; fix "]),
        ("k-silent", at(&silent), [silent.as_str(), "; fix "]),
        ("k-password", open.config(&sasl("SCRAM-SHA-256", "canary-7f3a9c-wrong")), ["Go away", "check `sasl`"]),
        ("k-plain", open.config(""), ["does not answer", "`sasl`"]),
        ("k-tls", secure.config("tls = true\n"), ["certificate verify failed", "set `ca_file`"]),
    ];
    let mut config = String::new();
    for (name, lines, _) in &table {
        config.push_str(&format!("[sinks.{name}]\n{lines}\n"));
    }
    let good = format!("[sinks.k]\n{}", open.config(&sasl("PLAIN", CANARY)));
    config.push_str(&good);
    let topics = "[topics.missing]\nsink = { name = \"k\", topic = \"no-{topic}\" }\n\
                  [topics.routed]\nsink = { name = \"k\", topic = \"{header.to}\" }\n\
                  [topics.there]\nsink = { name = \"k\", topic = \"due\" }\n";
    let began = Instant::now();
    let (all_well, said) = tokio::task::block_in_place(|| check(&format!("{config}\n{topics}")));
    duetime_testkit::in_time!(began.elapsed() < CHECK_MAX, "{:?}", began.elapsed());
    assert!(!all_well && !said.contains(CANARY), "{said}");
    let line = |part: &str| said.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}\n{said}"));
    for (name, _, says) in &table {
        let line = line(&format!(": sinks.{name}: "));
        assert!(says.iter().all(|part| line.contains(part)), "{says:?}: {line}");
    }
    line("sink k: answers");
    let missing = line(": topics.missing.sink: ");
    assert!(missing.contains("\"no-missing\"") && missing.contains("; create it, or fix `topic`"), "{missing}");
    assert!(!said.contains("topics.routed") && !said.contains("topics.there"), "{said}");

    let (all_well, said) = tokio::task::block_in_place(|| {
        check(&format!("{good}\n[topics.there]\nsink = {{ name = \"k\", topic = \"due\" }}\n"))
    });
    assert!(all_well, "{said}");
}
