//! Tokens and certificates that change while a node serves.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use duetime_testkit::servers::{Node, RedisOptions, RedisServer, free_port, write_certificates};
use duetime_testkit::wait::{Because, let_pass};
use tokio::time::Instant;

use super::PROGRAM;
use crate::test_node::client;

/// How long a node may take to notice.
const PATIENCE: Duration = Duration::from_secs(30);

async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        duetime_testkit::in_time!(Instant::now() < end, "{what}");
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
}

async fn status(node: &Node, token: &str) -> u16 {
    let request = client().get(format!("{}/v1/topics", node.url())).bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn sighup_and_a_changed_file_bring_new_tokens_and_never_end_a_node() {
    let secrets = tempfile::tempdir().unwrap();
    let file = secrets.path().join("token");
    std::fs::write(&file, "the-first-secret-0").unwrap();
    let audit = secrets.path().join("audit.jsonl");
    let config = |hosts: &str| {
        format!(
            "[node]\nhosts = [{hosts}]\naudit = {{ file = {audit:?} }}\n[[auth.tokens]]\nname = \"ops\"\n\
             secret = {{ file = {file:?} }}\nscopes = [\"admin\"]\n"
        )
    };
    let mut node = Node::start_embedded(PROGRAM, &config("")).await;
    assert_eq!([status(&node, "the-first-secret-0").await, status(&node, "the-second-secret").await], [200, 401]);
    // The file of the secret alone changes.
    std::fs::write(&file, "the-second-secret\n").unwrap();
    until("the new secret is taken", || async { status(&node, "the-second-secret").await == 200 }).await;
    assert_eq!(status(&node, "the-first-secret-0").await, 401);
    // The configuration changes, and the node gets the signal.
    let named = async |host: &str| {
        let request = client().get(format!("{}/v1/topics", node.url())).bearer_auth("the-second-secret");
        request.header("host", host).send().await.unwrap().status().as_u16()
    };
    assert_eq!(named("duetime.example").await, 421);
    node.configure(&config("\"duetime.example\""));
    node.sighup();
    until("the new name is taken", || async { named("duetime.example").await == 200 }).await;
    // A file that cannot be read changes nothing.
    node.configure("[node]\nhosts = [\"http://x\"]\n");
    node.sighup();
    until("it is said", || async { node.output().contains("could not be read anew") }).await;
    assert_eq!([status(&node, "the-second-secret").await, named("duetime.example").await], [200, 200]);
    // The audit log was moved away: the next line is in a new one.
    let put = client().put(format!("{}/v1/topics/a", node.url())).bearer_auth("the-second-secret");
    assert_eq!(put.send().await.unwrap().status(), 201);
    let lines = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&audit).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    until("it is written", || async { lines().iter().any(|line| line["operation"] == "put_topic") }).await;
    let lines = lines();
    // That a token changed is there too, with its name.
    let reloads: Vec<_> = lines.iter().filter(|line| line["operation"] == "reload").collect();
    assert!(reloads.len() == 1 && reloads[0]["reason"] == "tokens that changed: ops", "{reloads:?}");
    let line = lines.iter().find(|line| line["operation"] == "put_topic").unwrap();
    assert_eq!((&line["who"], &line["action"]), (&"ops".into(), &"PUT /v1/topics/{topic}".into()));
    assert!(line["from"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    std::fs::rename(&audit, secrets.path().join("audit.1")).unwrap();
    node.sighup();
    until("the file is made anew", || async { audit.exists() }).await;
    assert!(node.sigterm(PATIENCE).await.success());
    assert!(!node.output().contains("the-second-secret"));
}

#[tokio::test]
async fn a_node_that_asks_for_tokens_is_not_opened_by_an_empty_file() {
    let tokens = "[[auth.tokens]]\nname = \"ops\"\nsecret = \"a-secret-of-ops-0\"\nscopes = [\"admin\"]\n";
    let node = Node::start_embedded(PROGRAM, tokens).await;
    for text in ["", "# nothing\n", "[auth]\ntokens = []\n"] {
        let told = node.output().matches("auth.tokens: there is none any more").count();
        node.configure(text);
        node.sighup();
        until("it is said", || async { node.output().matches("auth.tokens: there is none any more").count() > told })
            .await;
        assert_eq!([status(&node, "a-secret-of-ops-0").await, status(&node, "").await], [200, 401], "{text:?}");
    }
}

#[tokio::test]
async fn a_secret_whose_file_does_not_answer_stops_nothing() {
    let secrets = tempfile::tempdir().unwrap();
    let file = secrets.path().join("token");
    std::fs::write(&file, "the-first-secret-0").unwrap();
    let config = format!("[[auth.tokens]]\nname = \"ops\"\nsecret = {{ file = {file:?} }}\nscopes = [\"admin\"]\n");
    let mut node = Node::start_embedded(PROGRAM, &config).await;
    assert_eq!(status(&node, "the-first-secret-0").await, 200);
    // Whoever opens it waits for somebody who writes.
    std::fs::remove_file(&file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
    node.sighup();
    until("it is said", || async { node.output().contains("do not answer") }).await;
    node.sighup();
    for _ in 0..20 {
        assert_eq!(status(&node, "the-first-secret-0").await, 200);
    }
    assert!(node.sigterm(PATIENCE).await.success());
}

/// The one metric that says how a reload went.
async fn is_taken(node: &Node) -> bool {
    let text = client().get(format!("{}/metrics", node.url())).send().await.unwrap().text().await.unwrap();
    text.lines().any(|line| line == "duetime_config_last_reload_successful 1")
}

#[tokio::test]
async fn the_certificates_that_a_node_shows_to_redis_are_read_anew_and_a_bad_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write_certificates(folder.path());
    let path = |name: &str| folder.path().join(name);
    let mut redis = RedisServer::start_with(RedisOptions {
        tls: true,
        append_only: true,
        certificates: Some(folder.path().to_owned()),
        // Whose certificate is not of the authority is refused.
        lines: vec!["tls-auth-clients optional".to_owned()],
        ..RedisOptions::default()
    })
    .await;
    let tls = [path("ca.pem"), path("server.pem"), path("server.key")];
    let config = format!("[store.tls]\nca_file = {:?}\ncert_file = {:?}\nkey_file = {:?}\n", tls[0], tls[1], tls[2]);
    let node = Node::start(PROGRAM, &redis.url(), &config).await;
    let put = async |topic: &str| {
        let request = client().put(format!("{}/v1/topics/{topic}", node.url())).send().await;
        request.is_ok_and(|answer| answer.status() == 201)
    };
    assert!(put("a").await && is_taken(&node).await);
    std::fs::write(&tls[2], "rubbish").unwrap();
    until("it is said", || async { !is_taken(&node).await }).await;
    assert!(node.output().contains("certificates could not be read anew"), "{}", node.output());
    // A new connection is made with those of before.
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    until("it goes on", || put("b")).await;
    // All new, and of another authority: connections that are open go on, and Redis begins with them.
    write_certificates(folder.path());
    until("they are taken", || is_taken(&node)).await;
    assert!(put("c").await, "connections that are open go on");
    redis.restart().await;
    until("the new ones are shown", || put("d")).await;
}

/// An authority, and certificates of it for 127.0.0.1 in `folder`, until the end of `year`.
fn certify(folder: &Path, year: i32) -> reqwest::Certificate {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
    let make = |name: &str, purpose| {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let certificate = params.signed_by(&key, &authority).unwrap();
        std::fs::write(folder.join(format!("{name}-key.pem")), key.serialize_pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    };
    make("node", rcgen::ExtendedKeyUsagePurpose::ServerAuth);
    make("client", rcgen::ExtendedKeyUsagePurpose::ClientAuth);
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    reqwest::Certificate::from_pem(authority.pem().as_bytes()).unwrap()
}

#[tokio::test]
async fn a_listener_with_tls_takes_new_certificates_and_only_clients_of_its_authority() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let first = certify(folder.path(), 2090);
    let path = |name: &str| folder.path().join(name);
    let config = format!(
        "[node]\ntls = {{ cert = {:?}, key = {:?}, client_ca = {:?} }}\n",
        path("node.pem"),
        path("node-key.pem"),
        path("ca.pem")
    );
    std::fs::write(path("duetime.toml"), config).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let _node = tokio::process::Command::new(PROGRAM)
        .current_dir(folder.path())
        .args(["serve", "--config", "duetime.toml", "--listen", &address, "--store", "embedded:data"])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(path("log")).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let url = format!("https://{address}/v1/topics");
    let with = |authority: &reqwest::Certificate, known: bool| {
        let builder = reqwest::Client::builder().tls_certs_only([authority.clone()]);
        let text = ["client.pem", "client-key.pem"].map(|name| std::fs::read_to_string(path(name)).unwrap()).concat();
        let identity = reqwest::Identity::from_pem(text.as_bytes()).unwrap();
        if known { builder.identity(identity) } else { builder }.build().unwrap()
    };
    let answers = async |client: reqwest::Client| client.get(&url).send().await.is_ok_and(|a| a.status() == 200);
    until("it serves over TLS", || async { answers(with(&first, true)).await }).await;
    assert!(!answers(with(&first, false)).await, "a client without a certificate");
    assert!(client().get(url.replace("https", "http")).send().await.is_err(), "and none in clear");
    let second = certify(folder.path(), 2090);
    until("the new certificate is shown", || async { answers(with(&second, true)).await }).await;
    assert!(!answers(with(&first, true)).await, "the old authority is not that of the new certificate");
    // One that has expired is not shown instead of a good one.
    let good = with(&second, true);
    certify(folder.path(), 2020);
    until("it is refused", || async { std::fs::read_to_string(path("log")).unwrap().contains("expired on") }).await;
    assert!(answers(good).await, "the certificate of before is kept");
    let checked = std::process::Command::new(PROGRAM)
        .current_dir(folder.path())
        .args(["check-config", "duetime.toml", "--store", "embedded:other"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success() && said.contains("expired on") && said.contains("node.tls"), "{said}");
}
