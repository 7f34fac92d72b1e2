//! The sink `http` against a webhook that answers as each test wants.

mod at_most_once;
mod batch;
mod path;
mod slow;
mod urls;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use duetime_core::{Clock, Delivery, Headers, Namespace, Sink, SinkBinder, Timestamp, Verdict};
use duetime_testkit::conformance::sink::{CANARY, Received, SinkWorld, message, run_all};
use duetime_testkit::servers::Proxy;
use duetime_testkit::webhook::{Answer, Hit, localhost_tls};
use duetime_testkit::{ManualClock, WallClock, Webhook};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::target::is_unprocessed;
use crate::registry::SinkRegistry;

fn registry(text: &str, clock: Arc<dyn Clock>) -> Result<Arc<SinkRegistry>, String> {
    SinkRegistry::new(toml::from_str(text).map_err(|error| error.to_string())?, clock, &Namespace::default())
}

/// A sink on `hook` with these further settings of the configuration, and of the topic.
fn sink_with(hook: &Webhook, more: &str, topic: serde_json::Value) -> Result<Arc<dyn Sink>, String> {
    let text = format!("[hook]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.1\"]\n{more}", hook.url("/in"));
    let mut named = serde_json::json!({"name": "hook"});
    named.as_object_mut().unwrap().extend(topic.as_object().unwrap().clone());
    let topic = message("x", "").topic;
    registry(&text, Arc::new(WallClock))?
        .bind(&topic, &serde_json::from_value(named).unwrap())
        .map_err(|error| error.to_string())
}

fn sink(hook: &Webhook, more: &str) -> Arc<dyn Sink> {
    sink_with(hook, more, serde_json::json!({})).unwrap()
}

async fn verdict(sink: &Arc<dyn Sink>) -> Verdict {
    sink.deliver(&[message("one", "payload")]).await.remove(0)
}

struct World {
    hook: Webhook,
    sink: Arc<dyn Sink>,
    seen: usize,
}

fn received(hit: &Hit) -> Received {
    let id = percent_encoding::percent_decode_str(hit.header("duetime-id")).decode_utf8().unwrap().into_owned();
    Received {
        topic: hit.header("duetime-topic").to_owned(),
        id,
        delivery_id: hit.header("webhook-id").to_owned(),
        attempt: hit.header("duetime-attempt").to_owned(),
        due_at: hit.header("duetime-due-at").to_owned(),
        payload: hit.body.to_vec(),
    }
}

#[async_trait]
impl SinkWorld for World {
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink.clone()
    }

    async fn received(&mut self) -> Option<Vec<Received>> {
        let posts: Vec<Hit> = self.hook.hits().into_iter().filter(|hit| hit.method == "POST").collect();
        let new = posts[self.seen..].iter().filter(|hit| hit.body != "refuse me").map(received).collect();
        self.seen = posts.len();
        Some(new)
    }

    fn refused_message(&self) -> Option<Delivery> {
        Some(message("bad", "refuse me"))
    }

    /// Its time-out is 10 s, and a busy machine is late.
    fn verdict_within(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn behind_proxy(&mut self) -> Option<(Arc<dyn Sink>, Proxy)> {
        let proxy = Proxy::before(self.hook.port()).await;
        let url = format!("http://127.0.0.1:{}/in", proxy.port());
        let text = format!("[hook]\ntype = \"http\"\nurl = {url:?}\nallow = [\"127.0.0.1\"]\ntimeout = \"5m\"");
        let named = serde_json::from_value(serde_json::json!({"name": "hook"})).unwrap();
        let sink = registry(&text, Arc::new(WallClock)).unwrap().bind(&message("x", "").topic, &named).unwrap();
        Some((sink, proxy))
    }

    async fn take_down(&mut self) -> bool {
        self.hook.stop();
        true
    }

    async fn bring_back(&mut self) {
        self.hook.start_again();
    }
}

#[tokio::test]
async fn the_webhook_keeps_the_contract_of_a_sink() {
    let hook = Webhook::start();
    hook.answer(|hit| Answer::status(if hit.body == "refuse me" { 400 } else { 204 }));
    let secrets = format!("headers = {{ authorization = \"Bearer {CANARY}\" }}");
    let sink = sink(&hook, &secrets);
    run_all(&mut World { hook, sink, seen: 0 }).await;
}

#[tokio::test]
async fn a_request_says_what_it_is_about_and_nothing_can_be_forged() {
    let hook = Webhook::start();
    let more =
        "headers = { authorization = \"Bearer t\" }\nsigning_secrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]";
    let sink = sink_with(&hook, more, serde_json::json!({"path": "/orders", "content_type": "text/plain"})).unwrap();
    let pairs =
        [("Authorization", "forged"), ("webhook-id", "forged"), ("duetime-topic", "forged"), ("Host", "forged")];
    let pairs = pairs.into_iter().chain([("x-shop", "42"), ("transfer-encoding", "chunked"), ("x-shop", "43")]);
    let headers = Headers::new(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).collect()).unwrap();
    let sent = Delivery { headers, ..message("order 100% ü", "body") };
    let before_ms = WallClock.now().as_millis();
    assert_eq!(sink.deliver(std::slice::from_ref(&sent)).await, [Verdict::Accepted]);
    let sent_ms = before_ms..=WallClock.now().as_millis();
    let hit = hook.hits().remove(0);
    assert_eq!((hit.path.as_str(), hit.method.as_str()), ("/in/orders", "POST"));
    assert_eq!(hit.header("authorization"), "Bearer t");
    assert_eq!(hit.header("webhook-id"), sent.delivery_id());
    assert_eq!(hit.header("duetime-id"), "order%20100%25%20%C3%BC");
    assert_eq!(hit.header("duetime-topic"), "conformance");
    assert_eq!(hit.header("duetime-due-at"), "1800000000123");
    let began_ms = hit.header("duetime-not-after").parse::<i64>().unwrap() - 10_000;
    assert!(sent_ms.contains(&began_ms), "the time-out of the sink is less than the caller's: {began_ms}");
    assert_eq!(hit.header("host"), hook.address().to_string());
    assert_eq!(hit.header("content-type"), "text/plain");
    assert_eq!(hit.headers.get_all("x-shop").iter().count(), 2);
    assert!(hit.headers.get("transfer-encoding").is_none());
    assert!(hit.header("webhook-signature").starts_with("v1,"));
    let all = format!("{:?}", hit.headers);
    assert!(!all.contains("forged"), "{all}");
}

#[tokio::test]
async fn a_trace_goes_on_under_the_names_that_every_receiver_knows() {
    let hook = Webhook::start();
    let sink = sink_with(&hook, "header_prefix = \"x-message-\"", serde_json::json!({})).unwrap();
    let span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let pairs = [("Traceparent", span), ("tracestate", "vendor=1"), ("shop", "42")];
    let headers = Headers::new(pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec()).unwrap();
    let sent = Delivery { headers, ..message("a", "body") };
    assert_eq!(sink.deliver(std::slice::from_ref(&sent)).await, [Verdict::Accepted]);
    let hit = hook.hits().remove(0);
    assert_eq!((hit.header("traceparent"), hit.header("tracestate")), (span, "vendor=1"));
    assert_eq!(hit.header("x-message-shop"), "42");
}

#[tokio::test]
async fn a_request_says_what_its_body_is_and_that_there_is_none() {
    let hook = Webhook::start();
    hook.answer(|_| Answer::status(204));
    let (sink, named) = (sink(&hook, ""), Headers::new(vec![("content-type".to_owned(), "text/csv".to_owned())]));
    let told = Delivery { headers: named.unwrap(), ..message("c", "[1]") };
    let sent = [message("a", "{\"order\": 1}"), message("b", "plain"), told, message("d", "")];
    let expected = ["application/json", "application/octet-stream", "text/csv", "application/octet-stream"];
    for (one, kind) in sent.iter().zip(expected) {
        assert_eq!(sink.deliver(std::slice::from_ref(one)).await, [Verdict::Accepted]);
        let hit = hook.hits().pop().unwrap();
        assert_eq!(hit.header("content-type"), kind);
        assert_eq!(hit.header("content-length"), one.payload.len().to_string());
    }
}

#[tokio::test]
async fn a_pause_that_the_target_asks_for_is_passed_on_and_dates_count_from_the_clock() {
    let hook = Webhook::start();
    let clock = ManualClock::at(Timestamp::from_millis(784_111_747_000));
    let text = format!("[hook]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.0/8\"]", hook.url("/"));
    let named = serde_json::from_value(serde_json::json!({"name": "hook"})).unwrap();
    let sink = registry(&text, clock).unwrap().bind(&message("x", "").topic, &named).unwrap();
    for (status, value, expected) in
        [(429, "7", 7), (503, "Sun, 06 Nov 1994 08:49:37 GMT", 30), (500, "9", 9), (425, "3", 3)]
    {
        hook.answer(move |_| Answer::status(status).header("retry-after", value));
        let after = match verdict(&sink).await {
            Verdict::Retry { after, .. } => after,
            other => panic!("{status}: {other:?}"),
        };
        assert_eq!(after, Some(Duration::from_secs(expected)), "{status}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let hook = Webhook::start();
    let elsewhere = Webhook::start();
    let to = elsewhere.url("/secret");
    hook.answer(move |_| Answer::status(307).header("location", to.clone()));
    let Verdict::Retry { reason, .. } = verdict(&sink(&hook, "")).await else { panic!("307 is not this time") };
    assert!(reason.contains("redirects are not followed"), "{reason}");
    assert!(elsewhere.hits().is_empty());
}

#[tokio::test]
async fn what_a_target_says_of_our_secrets_is_not_repeated() {
    let hook = Webhook::start();
    hook.answer(|hit| Answer::status(422).body(format!("bad {}", hit.header("authorization"))));
    let sink = sink(&hook, &format!("headers = {{ authorization = \"Bearer {CANARY}\" }}"));
    let Verdict::Refused { reason } = verdict(&sink).await else { panic!("422 is a refusal") };
    assert_eq!(reason, "the target answered 422: Unprocessable Entity, bad ***");
}

#[tokio::test]
async fn an_inside_address_is_refused_whether_written_or_resolved() {
    let hook = Webhook::start();
    let port = hook.address().port();
    for written in ["127.0.0.1", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"] {
        let text = format!("[hook]\ntype = \"http\"\nurl = \"http://{written}:{port}/\"");
        let refused = registry(&text, Arc::new(WallClock)).unwrap_err();
        assert!(refused.contains("loopback") && refused.starts_with("sinks.hook: "), "{refused}");
    }
    let text = format!("[hook]\ntype = \"http\"\nurl = \"http://localhost:{port}/\"");
    let named = serde_json::from_value(serde_json::json!({"name": "hook"})).unwrap();
    let strict = registry(&text, Arc::new(WallClock)).unwrap().bind(&message("x", "").topic, &named).unwrap();
    let Verdict::Unavailable { reason } = verdict(&strict).await else { panic!("it must not be reached") };
    assert!(reason.contains("localhost is at") && reason.contains("`allow`"), "{reason}");
    assert!(strict.check().await.unwrap_err().contains("`allow`"));
    assert!(hook.hits().is_empty());
    let text = format!("{text}\nallow = [\"localhost\"]");
    let open = registry(&text, Arc::new(WallClock)).unwrap().bind(&message("x", "").topic, &named).unwrap();
    assert_eq!(verdict(&open).await, Verdict::Accepted);
}

#[tokio::test]
async fn tls_is_verified_against_the_given_authority_and_http_2_is_spoken() {
    let hook = Webhook::start_tls();
    let Verdict::Unavailable { reason } = verdict(&sink(&hook, "")).await else { panic!("it must not be trusted") };
    assert!(reason.contains("certificate"), "{reason}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), hook.authority_pem.as_ref().unwrap()).unwrap();
    let trusting = sink(&hook, &format!("ca_file = {:?}", file.path()));
    assert_eq!(verdict(&trusting).await, Verdict::Accepted);
    assert_eq!(format!("{:?}", hook.hits()[0].version), "HTTP/2.0");
    let missing = sink_with(&hook, "ca_file = \"/does/not/exist\"", serde_json::json!({})).unwrap_err();
    assert!(missing.contains("/does/not/exist"), "{missing}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_answer_and_nothing_is_posted_again() {
    for answer in ["garbage\r\n\r\n", "HTTP/1.1 000 what\r\n\r\n", "HTTP/1.1 200 OK\r\n\0: x\r\n\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/in", listener.local_addr().unwrap());
        let posts = Arc::new(AtomicUsize::new(0));
        let counted = posts.clone();
        let target = tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                if socket.read(&mut head).await.unwrap() > 0 {
                    counted.fetch_add(1, Ordering::Relaxed);
                    socket.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
        let text = format!("[hook]\ntype = \"http\"\nurl = {url:?}\nallow = [\"127.0.0.1\"]\n");
        let named = serde_json::from_value(serde_json::json!({"name": "hook"})).unwrap();
        let sink = registry(&text, Arc::new(WallClock)).unwrap().bind(&message("x", "").topic, &named).unwrap();
        let Verdict::NoAnswer { reason } = verdict(&sink).await else { panic!("nobody knows what it is") };
        assert!(reason.starts_with("cannot read the answer of"), "{reason}");
        assert_eq!(posts.load(Ordering::Relaxed), 1, "{answer:?}");
        target.abort();
    }
}

#[tokio::test]
async fn interim_answers_are_passed_over_and_a_flood_of_them_ends_the_request_at_once() {
    const INTERIM: &str = "HTTP/1.1 103 Early Hints\r\n\r\n";
    for is_flood in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/in", listener.local_addr().unwrap());
        let target = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            assert!(socket.read(&mut head).await.unwrap() > 0);
            let mut sent = 0;
            if !is_flood {
                let answer = INTERIM.repeat(8) + "HTTP/1.1 204 No Content\r\n\r\n";
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
            // Until the connection is closed.
            while is_flood && socket.write_all(INTERIM.repeat(1000).as_bytes()).await.is_ok() {
                sent += 1;
            }
            sent
        });
        // Longer than the test may take.
        let text = format!("[hook]\ntype = \"http\"\nurl = {url:?}\nallow = [\"127.0.0.1\"]\ntimeout = \"5m\"\n");
        let named = serde_json::from_value(serde_json::json!({"name": "hook"})).unwrap();
        let sink = registry(&text, Arc::new(WallClock)).unwrap().bind(&message("x", "").topic, &named).unwrap();
        match verdict(&sink).await {
            Verdict::NoAnswer { reason } if is_flood => assert!(reason.contains("more than 32 interim"), "{reason}"),
            Verdict::Accepted if !is_flood => {}
            other => panic!("{is_flood}: {other:?}"),
        }
        target.await.unwrap();
    }
}

#[tokio::test]
async fn over_http_2_too_interim_answers_are_passed_over_and_a_flood_of_them_ends_the_connection() {
    let (tls, authority_pem) = localhost_tls();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority_pem).unwrap();
    for is_flood in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tls = tls.clone();
        let target = tokio::spawn(async move {
            let socket = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
            let mut connection = h2::server::handshake(socket).await.unwrap();
            let (_, mut answer) = connection.accept().await.unwrap().unwrap();
            let interim = || hyper::Response::builder().status(103).body(()).unwrap();
            if !is_flood {
                (0..32).for_each(|_| answer.send_informational(interim()).unwrap());
                answer.send_response(hyper::Response::builder().status(204).body(()).unwrap(), true).unwrap();
            }
            // Until the connection is closed.
            loop {
                // One that was reset sends no more of them.
                let _ = (0..if is_flood { 100 } else { 0 }).try_for_each(|_| answer.send_informational(interim()));
                tokio::select! {
                    biased;
                    next = connection.accept() => if !matches!(next, Some(Ok(_))) { break },
                    () = tokio::task::yield_now() => {}
                }
            }
        });
        // Longer than the test may take.
        let text = format!(
            "[hook]\ntype = \"http\"\nurl = \"https://localhost:{port}/in\"\nallow = [\"localhost\"]\n\
             ca_file = {:?}\ntimeout = \"5m\"\n",
            file.path()
        );
        let named = serde_json::from_value(serde_json::json!({"name": "hook"})).unwrap();
        let sink = registry(&text, Arc::new(WallClock)).unwrap().bind(&message("x", "").topic, &named).unwrap();
        match verdict(&sink).await {
            Verdict::NoAnswer { reason } if is_flood => assert!(reason.contains("more frames of HTTP/2"), "{reason}"),
            Verdict::Accepted if !is_flood => {}
            other => panic!("{is_flood}: {other:?}"),
        }
        drop(sink);
        target.await.unwrap();
    }
}

#[tokio::test]
async fn over_http_2_a_connection_that_is_silent_or_refuses_takes_no_further_request() {
    let (tls, authority_pem) = localhost_tls();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), authority_pem).unwrap();
    for (is_silent, bad_ones) in [(true, 1), (false, 1), (false, usize::MAX)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tls, made) = (tls.clone(), Arc::new(AtomicUsize::new(0)));
        let connections = made.clone();
        let target = tokio::spawn(async move {
            loop {
                let socket = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
                let is_bad = connections.fetch_add(1, Ordering::Relaxed) < bad_ones;
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(socket).await.unwrap();
                    let mut unanswered = Vec::new();
                    while let Some(Ok((_, mut answer))) = connection.accept().await {
                        match (is_bad, is_silent) {
                            (true, true) => unanswered.push(answer),
                            (true, false) => answer.send_reset(h2::Reason::REFUSED_STREAM),
                            (false, _) => {
                                let accepted = hyper::Response::builder().status(204).body(()).unwrap();
                                answer.send_response(accepted, true).unwrap();
                            }
                        }
                    }
                });
            }
        });
        let text = format!(
            "[hook]\ntype = \"http\"\nurl = \"https://localhost:{port}/in\"\nallow = [\"localhost\"]\n\
             ca_file = {:?}\ntimeout = {:?}\n",
            file.path(),
            if is_silent { "10s" } else { "5m" }
        );
        let named = serde_json::from_value(serde_json::json!({"name": "hook"})).unwrap();
        let sink = registry(&text, Arc::new(WallClock)).unwrap().bind(&message("x", "").topic, &named).unwrap();
        if is_silent {
            assert!(matches!(verdict(&sink).await, Verdict::NoAnswer { .. }));
        }
        match verdict(&sink).await {
            Verdict::Accepted if bad_ones == 1 => {}
            // As an answer that says so, and not for nothing again and again.
            Verdict::Retry { .. } if bad_ones > 1 => {}
            other => panic!("{is_silent}, {bad_ones}: {other:?}"),
        }
        assert_eq!(made.load(Ordering::Relaxed), 2, "each was sent over a connection of its own");
        target.abort();
    }
}

#[tokio::test]
async fn a_stream_that_http_2_refuses_was_certainly_not_processed() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    for (reason, unprocessed) in [(h2::Reason::REFUSED_STREAM, true), (h2::Reason::INTERNAL_ERROR, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let target = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(socket).await.unwrap();
                    while let Some(Ok((_, mut answer))) = connection.accept().await {
                        answer.send_reset(reason);
                    }
                });
            }
        });
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Empty<Bytes>>();
        let error = client.get(url.parse().unwrap()).await.unwrap_err();
        assert_eq!(is_unprocessed(&error), unprocessed, "{error:?}");
        target.abort();
    }
}

#[tokio::test]
async fn connections_are_kept_and_no_more_requests_fly_than_allowed() {
    let hook = Webhook::start();
    let sink = sink(&hook, "concurrency = 3");
    hook.answer(|_| Answer::status(200).after(Duration::from_millis(20)).body("thanks"));
    assert_eq!(sink.calls_max(), 3);
    let calls = (0..30).map(async |n| sink.deliver(&[message(&format!("m{n}"), "x")]).await.remove(0));
    let started = Instant::now();
    let verdicts = futures::future::join_all(calls).await;
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted));
    assert!(started.elapsed() >= Duration::from_millis(200));
    let peers: std::collections::BTreeSet<_> = hook.hits().iter().map(|hit| hit.peer).collect();
    assert_eq!(peers.len(), 3, "{peers:?}");
}

#[test]
fn settings_that_make_no_sense_are_refused_with_the_fix() {
    for (text, says) in [
        ("url = \"ftp://hooks.example/\"", "https://host/path"),
        ("url = \"hooks.example\"", "https://host/path"),
        ("url = \"https://u:canary@hooks.example/\"", "headers"),
        ("url = \"https://hooks.example/\"\ntimeout = \"0s\"", "timeout must be"),
        ("url = \"https://hooks.example/\"\nconcurrency = 0", "concurrency must be"),
        ("url = \"https://hooks.example/\"\nper_second = 0.0", "per_second must be"),
        ("url = \"https://hooks.example/\"\nallow = [\"10.0.0.0/99\"]", "allow has"),
        ("url = \"https://hooks.example/\"\nheaders = { host = \"x\" }", "cannot be set"),
        ("url = \"https://hooks.example/\"\nheaders = { a = \"canary\\n\" }", "headers.a"),
        ("url = \"https://hooks.example/\"\ncontent_type = \"json\"", "application/json"),
        ("url = \"https://hooks.example/\"\ntimeot = \"1s\"", "timeot"),
        ("url = \"HTTP://hooks.example/\"\nca_file = \"/etc/ca.pem\"", "with an https:// url"),
        ("timeout = \"1s\"", "url"),
    ] {
        let error = registry(&format!("[hook]\ntype = \"http\"\n{text}"), Arc::new(WallClock)).unwrap_err();
        let shown = error.lines().filter(|line| !line.contains('|')).collect::<String>();
        assert!(shown.contains(says) && !shown.contains("canary"), "{error}");
    }
}
