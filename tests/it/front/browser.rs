//! A real Chromium shows a page of another origin, and that page tries to write to a node.

use std::process::Stdio;
use std::time::Duration;

use duetime_testkit::servers::Node;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::PROGRAM;
use crate::test_node::client;

/// What a browser may need to start and to show a page, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Tries what needs no leave of the browser, and what does; then says that it has ended.
const PAGE: &str = r#"<!doctype html><title>foreign</title><body>asking<script>
const node = "NODE", tried = [];
async function attempt(name, path, options) {
  try { const answer = await fetch(node + path, options); tried.push(name + "=" + (answer.type === "opaque" ? "opaque" : answer.status)); }
  catch (error) { tried.push(name + "=blocked"); }
}
(async () => {
  const post = body => ({ method: "POST", mode: "no-cors", body });
  await attempt("blob", "/v1/topics/orders/messages", post(new Blob(['{"id":"forged-blob"}'])));
  await attempt("bytes", "/v1/topics/orders/messages", post(new TextEncoder().encode('{"id":"forged-bytes"}')));
  await attempt("text", "/v1/topics/orders/messages", post('{"id":"forged-text"}'));
  await attempt("form", "/v1/topics/orders/messages", post(new URLSearchParams({ '{"id":"forged-form","payload":"': '"}' })));
  await attempt("cancel", "/v1/topics/orders/cancel", post(new Blob(['{"ids":["kept"]}'])));
  await attempt("claim", "/v1/topics/orders/claim", { method: "POST", mode: "no-cors" });
  await attempt("json", "/v1/topics/orders/messages", { method: "POST", headers: { "content-type": "application/json" }, body: '{"id":"forged-json"}' });
  await attempt("delete", "/v1/topics/orders", { method: "DELETE" });
  await attempt("put", "/v1/topics/forged", { method: "PUT", mode: "cors" });
  await attempt("read", "/v1/topics", {});
  await fetch("/ended?" + tried.join("&"));
})();
</script>"#;

/// Serves `page` on an address of its own until the browser has asked for `/ended`.
async fn serve(listener: TcpListener, page: String) -> String {
    loop {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut piece = [0; 4096];
            match socket.read(&mut piece).await {
                Ok(length @ 1..) => head.extend_from_slice(&piece[..length]),
                _ => break,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let body = if path == "/" { page.as_str() } else { "" };
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let _ = socket.write_all(answer.as_bytes()).await;
        if let Some(tried) = path.strip_prefix("/ended?") {
            return tried.to_owned();
        }
    }
}

/// Shows `url` in a browser of its own until the value is dropped.
fn browse(url: &str, profile: &std::path::Path) -> tokio::process::Child {
    tokio::process::Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg("--remote-debugging-port=0")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("chromium is installed; ./test --tools brings it")
}

async fn state(node: &Node, id: &str) -> Value {
    let url = format!("{}/v1/topics/orders/messages/{id}", node.url());
    client().get(url).send().await.unwrap().json().await.unwrap()
}

#[tokio::test]
async fn a_foreign_page_in_a_browser_writes_nothing_and_reads_nothing() {
    let node = Node::start_embedded(PROGRAM, "").await;
    let topic = format!("{}/v1/topics/orders", node.url());
    let json = |request: reqwest::RequestBuilder, body: &'static str| {
        request.header("content-type", "application/json").body(body).send()
    };
    assert_eq!(json(client().put(&topic), "{}").await.unwrap().status(), 201);
    let messages = format!("{topic}/messages");
    assert_eq!(json(client().post(&messages), r#"{"id":"kept","delay":"1h"}"#).await.unwrap().status(), 201);
    assert_eq!(json(client().post(&messages), r#"{"id":"due"}"#).await.unwrap().status(), 201);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let page = format!("http://{}/", listener.local_addr().unwrap());
    let served = tokio::spawn(serve(listener, PAGE.replace("NODE", &node.url())));
    let profile = tempfile::tempdir().unwrap();
    let browser = browse(&page, profile.path());
    let tried = tokio::time::timeout(PATIENCE, served).await.expect("the page was shown").unwrap();
    drop(browser);
    // The browser did send what needs no leave, or the test would show nothing.
    for sent in ["blob=opaque", "bytes=opaque", "text=opaque", "form=opaque", "cancel=opaque", "claim=opaque"] {
        assert!(tried.contains(sent), "{tried}");
    }
    for blocked in ["json=blocked", "delete=blocked", "put=blocked", "read=blocked"] {
        assert!(tried.contains(blocked), "{tried}");
    }
    for forged in ["forged-blob", "forged-bytes", "forged-text", "forged-form", "forged-json"] {
        assert_eq!(state(&node, forged).await["code"], "unknown_message", "{forged}");
    }
    assert_eq!(state(&node, "kept").await["state"], "scheduled");
    assert_eq!(state(&node, "due").await["attempts"], 0, "nothing was claimed");
    let topics: Value = client().get(format!("{}/v1/topics", node.url())).send().await.unwrap().json().await.unwrap();
    assert_eq!(topics["topics"].as_array().unwrap().len(), 1, "{topics}");
}
