//! The audit log beside strangers, streams, and a file that takes no lines.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, header};
use futures::SinkExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::TestApi;
use crate::audit::line::AuditLine;
use crate::audit::operation::ChangeKind;
use crate::{Audit, AuditFile, AuditTarget, Auth, AuthConfig, HttpOptions, HttpParts};

/// Long enough for the thread that writes.
const PATIENCE: Duration = Duration::from_secs(30);

const ROOT: &str = "a-secret-of-root-0123";
const VIEW: &str = "a-secret-of-view-0123";

fn tokens() -> AuthConfig {
    serde_json::from_value(json!({"tokens": [
        {"name": "root", "secret": ROOT, "scopes": ["admin"]},
        {"name": "b-view", "secret": VIEW, "scopes": ["view"]}]}))
    .unwrap()
}

async fn api_with(audit: &Audit) -> TestApi {
    let api = TestApi::with(Auth::load(&tokens()).unwrap()).await;
    let options = HttpOptions { audit: audit.clone(), ..HttpOptions::default() };
    api.again(HttpParts { options, ..api.parts.clone() })
}

fn audit_to(path: &Path) -> Audit {
    Audit::open(Some(&AuditTarget::File(AuditFile { file: path.to_owned() }))).unwrap()
}

fn lines(audit: &Audit, path: &Path) -> Vec<Value> {
    assert_eq!(audit.flush(PATIENCE), 0);
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn request(method: &str, path: &str, heads: &[(&str, &str)]) -> Request<Body> {
    let json = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    heads.iter().fold(json, |request, (name, value)| request.header(*name, *value)).body(Body::from("{}")).unwrap()
}

fn as_root(method: &str, path: &str) -> Request<Body> {
    request(method, path, &[("authorization", &format!("Bearer {ROOT}"))])
}

#[tokio::test]
async fn strangers_push_out_nothing_of_administrators_and_have_so_many_short_lines_a_minute_in_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let audit = audit_to(file.path());
    let api = api_with(&audit).await;
    assert_eq!(api.send(as_root("PUT", "/v1/topics/orders")).await.status, 201);
    let of_view = format!("Bearer {VIEW}");
    let long = format!("/v1/topics/{}/plans/{}/start", "t".repeat(400), "%F0%9F%98%80".repeat(400));
    type Heads<'a> = &'a [(&'a str, &'a str)];
    let strangers: [(&str, &str, Heads<'_>, u16); 7] = [
        ("POST", "/v1/topics/orders/pause", &[], 401),
        ("POST", &long, &[], 401),
        ("POST", "/v1/topics/orders/pause", &[("duetime-not-after", "1")], 412),
        ("POST", "/v1/topics/orders/pause", &[("host", "evil.example")], 421),
        ("POST", "/v1/topics/orders/pause", &[("host", "127.0.0.1"), ("origin", "http://evil.example")], 403),
        ("POST", "/v1/topics/orders/pause", &[("authorization", &of_view)], 403),
        ("POST", "/healthz", &[], 405),
    ];
    for _ in 0..60 {
        for (method, path, heads, status) in strangers {
            assert_eq!(api.send(request(method, path, heads)).await.status, status, "{path} {heads:?}");
        }
    }
    let found = async |query: &str| -> Vec<Value> {
        let answer = api.send(as_root("GET", &format!("/v1/audit?limit=1000{query}"))).await.json();
        answer["entries"].as_array().unwrap().clone()
    };
    let seen = found("").await;
    assert_eq!((seen.len(), &seen[0]["operation"]), (1, &json!("put_topic")), "refused ones are asked for by name");
    let refused = found("&kind=refused").await;
    assert_eq!(refused.len(), 256);
    assert!(refused.iter().any(|line| line["who"] == "b-view" && line["status"] == 403), "who is known is named");
    // In the file: the deed, 60 of them, and in the next minute how many have no line.
    let written = lines(&audit, file.path());
    assert_eq!(written.len(), 1 + 60);
    assert!(written.iter().all(|line| line.to_string().len() < 1_000), "names are cut");
    api.advance("61s");
    api.send(request("POST", "/v1/topics/orders/pause", &[])).await;
    let written = lines(&audit, file.path());
    let left_out: Vec<&Value> = written.iter().filter(|line| line["operation"] == "left_out").collect();
    assert_eq!((written.len(), left_out.len(), &left_out[0]["count"]), (1 + 60 + 2, 1, &json!(420 - 60)));
}

#[tokio::test]
async fn no_administrator_pushes_out_what_others_did() {
    let audit = Audit::default();
    let now = duetime_core::Timestamp::from_millis(1_700_000_000_000);
    let api = api_with(&audit).await;
    api.send(as_root("PUT", "/v1/topics/orders")).await;
    for n in 0..1_500 {
        audit.tokens_changed(now, "SIGHUP", format!("{n}"));
    }
    let answer = api.send(as_root("GET", "/v1/audit?limit=1000&operation=put_topic")).await.json();
    assert_eq!(answer["entries"].as_array().unwrap().len(), 1, "{answer}");
}

#[tokio::test]
async fn a_stream_leaves_a_line_when_it_begins_every_minute_and_when_it_ends() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let audit = audit_to(file.path());
    let api = api_with(&audit).await;
    api.send(as_root("PUT", "/v1/topics/orders")).await;
    let (mut to, chunks) = futures::channel::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let request = Request::post("/v1/topics/orders/messages")
        .header(header::CONTENT_TYPE, "application/x-ndjson")
        .header(header::AUTHORIZATION, format!("Bearer {ROOT}"))
        .body(Body::from_stream(chunks))
        .unwrap();
    to.send(Ok(Bytes::from_static(b"{\"delay\":\"1h\"}\n"))).await.unwrap();
    let mut answer = api.clone_api().oneshot(request).await.unwrap().into_body().into_data_stream();
    let mut next = async || futures::StreamExt::next(&mut answer).await.unwrap().unwrap();
    next().await;
    let of_stream = || -> Vec<(Value, Value, Value)> {
        let lines = lines(&audit, file.path()).into_iter().filter(|line| line["operation"] == "enqueue");
        lines.map(|line| (line["outcome"].clone(), line["count"].clone(), line["who"].clone())).collect()
    };
    let line = |outcome: &str, count: u64| (json!(outcome), json!(count), json!("root"));
    assert_eq!(of_stream(), [line("open", 1)]);
    for wait in ["1s", "61s"] {
        api.advance(wait);
        to.send(Ok(Bytes::from_static(b"{\"delay\":\"1h\"}\n"))).await.unwrap();
        next().await;
    }
    assert_eq!(of_stream(), [line("open", 1), line("open", 3)]);
    drop(to);
    while futures::StreamExt::next(&mut answer).await.is_some() {}
    drop(answer);
    assert_eq!(of_stream(), [line("open", 1), line("open", 3), line("done", 3)]);
}

#[tokio::test]
async fn a_file_that_takes_no_lines_stops_nobody_and_no_deed_is_done_whose_line_could_be_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Read and write: it opens at once, and nobody reads.
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let audit = audit_to(&path);
    let api = api_with(&audit).await;
    assert_eq!(api.send(as_root("PUT", "/v1/topics/orders")).await.status, 201);
    let now = duetime_core::Clock::now(&*api.parts.clock);
    let lost = async || {
        let text = api.send(as_root("GET", "/metrics")).await.text;
        let line = text.lines().find(|line| line.starts_with("duetime_log_lines_lost_total{log=\"audit\"}")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let ready = async || api.send(as_root("GET", "/readyz")).await;
    assert_eq!(ready().await.json()["status"], "ready");
    // Messages come and go for hours, each with a line.
    for _ in 0..80 {
        let line = AuditLine::of_node(now, "enqueue", ChangeKind::Messages, "m".repeat(64 << 10));
        audit.record(line);
    }
    assert!(lost().await > 0);
    let answer = ready().await;
    assert_eq!((answer.status.as_u16(), &answer.json()["status"]), (200, &json!("degraded")));
    assert!(answer.text.contains("the audit log") && answer.text.contains("were lost"), "{}", answer.text);
    // Administrators have room of their own, and are refused before that is full.
    assert_eq!(api.send(as_root("PUT", "/v1/topics/shop")).await.status, 201);
    for _ in 0..70 {
        audit.topic_made(now, &"t".repeat(64 << 10), "topic of the configuration");
    }
    assert_eq!(api.send(as_root("PUT", "/v1/topics/never")).await.problem(), (503, "audit_full".to_owned()));
    assert_eq!(api.send(as_root("GET", "/v1/topics/never")).await.status, 404, "it was not made");
    let message = request("POST", "/v1/topics/shop/messages", &[("authorization", &format!("Bearer {ROOT}"))]);
    assert_eq!(api.send(message).await.status, 201);
    // The reader goes on: all of them come, and how many others were lost.
    let read = Arc::new(Mutex::new(Vec::new()));
    std::thread::spawn({
        let (read, mut reader) = (read.clone(), reader);
        move || {
            let mut some = [0; 64 << 10];
            while let Ok(taken) = std::io::Read::read(&mut reader, &mut some) {
                read.lock().extend_from_slice(&some[..taken]);
            }
        }
    });
    assert_eq!(audit.flush(PATIENCE), 0);
    assert_eq!(api.send(as_root("PUT", "/v1/topics/later")).await.status, 201);
    assert_eq!(audit.flush(PATIENCE), 0);
    let has_all = || {
        let text = String::from_utf8_lossy(&read.lock()).into_owned();
        ["\"topic\":\"shop\"", "\"topic\":\"later\"", "\"lines_lost\""].iter().all(|part| text.contains(part))
    };
    while !has_all() {
        tokio::task::yield_now().await;
    }
    assert_eq!(String::from_utf8_lossy(&read.lock()).matches(&"t".repeat(64 << 10)).count(), 70);
}
