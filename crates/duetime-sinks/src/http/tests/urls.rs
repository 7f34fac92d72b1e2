//! URLs and methods that a topic sets, also a URL for each message.

use duetime_testkit::servers::free_port;
use hyper::Method;
use hyper::header::HeaderMap;

use super::*;
use crate::http::client::{KEPT_MAX, WebhookClient};
use crate::http::config::HttpConfig;
use crate::http::guard::{Guard, GuardedResolver, LookupsBusy};
use crate::http::target::causes;

/// What a sink has whose messages may go to any port of this machine, below `/in/`.
const TARGETS: &str = "targets = [\"http://127.0.0.1:*/in/*\"]";

fn with_header(name: &str, value: &str) -> Delivery {
    let headers = Headers::new(vec![(name.to_owned(), value.to_owned())]).unwrap();
    Delivery { headers, ..message("one", "payload") }
}

async fn deliver(sink: &Arc<dyn Sink>, message: Delivery) -> Verdict {
    sink.deliver(&[message]).await.remove(0)
}

#[tokio::test]
async fn a_message_goes_where_its_header_says_by_the_method_of_its_topic() {
    let (main, other) = (Webhook::start(), Webhook::start());
    let more = format!("{TARGETS}\nmethods = [\"PUT\"]\nheaders = {{ authorization = \"Bearer t\" }}");
    let topic = serde_json::json!({"url": "{header.callback}", "method": "PUT"});
    let sink = sink_with(&main, &more, topic).unwrap();
    let to = other.url("/in/b/c?shop=7&x=%2F..");
    assert_eq!(deliver(&sink, with_header("Callback", &to)).await, Verdict::Accepted);
    let hit = other.hits().remove(0);
    assert_eq!((hit.path.as_str(), hit.method.as_str()), ("/in/b/c?shop=7&x=%2F..", "PUT"));
    assert_eq!((hit.header("authorization"), &hit.body[..]), ("Bearer t", &b"payload"[..]));
    assert_eq!(hit.header("host"), other.address().to_string());
    assert!(main.hits().is_empty());
}

#[tokio::test]
async fn each_method_that_the_sink_lists_is_sent_and_an_empty_body_says_so() {
    let hook = Webhook::start();
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let sink =
            sink_with(&hook, "methods = [\"PUT\", \"PATCH\", \"DELETE\"]", serde_json::json!({"method": method}));
        assert_eq!(deliver(&sink.unwrap(), message("one", "")).await, Verdict::Accepted);
        let hit = hook.hits().pop().unwrap();
        assert_eq!((hit.method.as_str(), hit.path.as_str()), (method, "/in"));
        assert!(method == "DELETE" || hit.header("content-length") == "0", "{method}");
    }
}

#[tokio::test]
async fn a_value_stays_within_its_part_of_the_url() {
    let hook = Webhook::start();
    let url = hook.url("/in/{header.shop}/{id}?of={header.shop}&in={topic}");
    let sink = sink_with(&hook, TARGETS, serde_json::json!({ "url": url })).unwrap();
    assert_eq!(deliver(&sink, with_header("shop", "a/b ü?&%2e#")).await, Verdict::Accepted);
    let shop = "a%2Fb%20%C3%BC%3F%26%252e%23";
    assert_eq!(hook.hits().remove(0).path, format!("/in/{shop}/one?of={shop}&in=conformance"));
    for climbing in ["..", ".", "../x", "x/..", "%2e%2E", "..;x", "%c0%ae."] {
        let Verdict::Rejected { reason } = deliver(&sink, with_header("shop", climbing)).await else {
            panic!("{climbing} must not be sent")
        };
        assert!(reason.contains("{header.shop}") && reason.contains("\"..\""), "{climbing}: {reason}");
    }
    assert_eq!(hook.hits().len(), 1);
}

#[tokio::test]
async fn a_url_that_is_missing_not_allowed_or_read_in_two_ways_is_never_called() {
    let hook = Webhook::start();
    let port = hook.port();
    // The guard decides about addresses that `targets` allows.
    let more = format!("targets = [\"http://*:{port}/in/*\", \"https://*.shop.example\"]");
    let sink = sink_with(&hook, &more, serde_json::json!({"url": "{header.callback}"})).unwrap();
    let missing = deliver(&sink, message("one", "")).await;
    let Verdict::Rejected { reason } = missing else { panic!("{missing:?}") };
    assert!(reason.contains("no header \"callback\"") && reason.contains("{header.NAME|DEFAULT}"), "{reason}");
    let long = format!("http://127.0.0.1:{port}/in/{}", "x".repeat(4096));
    for (url, says) in [
        (format!("http://127.0.0.1:{port}/in"), "not with this path"),
        (format!("http://127.0.0.1:{port}/IN/x"), "not with this path"),
        (format!("http://127.0.0.1:{port}/%69n/x"), "not with this path"),
        (format!("https://127.0.0.1:{port}/in/x"), "leads to https://127.0.0.1"),
        ("https://shop.example/".to_owned(), "leads to https://shop.example:443, which `targets`"),
        ("https://a.shop.example.evil.example/".to_owned(), "leads to https://a.shop.example.evil.example:443"),
        ("https://a.shop.example:444/".to_owned(), "leads to https://a.shop.example:444"),
        (format!("http://169.254.169.254:{port}/in/x"), "`allow`"),
        (format!("http://[::1]:{port}/in/x"), "`allow`"),
        (format!("http://2130706433:{port}/in/x"), "two ways"),
        (format!("http://0x7f.1:{port}/in/x"), "two ways"),
        (format!("http://[0:0::1]:{port}/in/x"), "two ways"),
        ("https://a.shop.example./".to_owned(), "two ways"),
        (format!("http://127.0.0.1:{port}/in/../x"), "two ways"),
        (format!("http://127.0.0.1:{port}/in/..%2fx"), "two ways"),
        (format!("http://127.0.0.1:{port}/in/..%3fx"), "two ways"),
        (format!("http://127.0.0.1:{port}/in/..%00/x"), "two ways"),
        (format!("http://127.0.0.1:{port}/in/%252e%252e/x"), "two ways"),
        (format!("http://127.0.0.1:{port}/in/%{}78", "25".repeat(9)), "two ways"),
        (format!("http://127.0.0.1:{port}/in/%c0%ae%c0%ae/x"), "two ways"),
        (format!("http://127.0.0.1:{port}/in/%u002e%u002e/x"), "two ways"),
        (format!("http://u:secret@127.0.0.1:{port}/in/x"), "a user or a password"),
        (format!("http://evil.example\\@127.0.0.1:{port}/in/x"), "no backslash"),
        (format!("http://127.0.0.1:{port}/in/x#y"), "no fragment"),
        (format!("http://127.0.0.1:{port}/in/ x"), "visible ASCII"),
        ("https://ä.shop.example/".to_owned(), "visible ASCII"),
        ("https://%61.shop.example/".to_owned(), "no address can be read"),
        ("https:///a.shop.example/".to_owned(), "no address can be read"),
        ("https:a.shop.example/".to_owned(), "begins with"),
        ("ftp://a.shop.example/".to_owned(), "begins with"),
        (String::new(), "begins with"),
        (long, "longer than"),
    ] {
        let verdict = deliver(&sink, with_header("callback", &url)).await;
        let Verdict::Rejected { reason } = verdict else { panic!("{url}: {verdict:?}") };
        assert!(reason.contains(says) && reason.contains("{header.callback}"), "{url}: {reason}");
        assert!(!reason.contains("secret"), "{reason}");
    }
    assert!(hook.hits().is_empty());
}

#[tokio::test]
async fn what_a_topic_may_not_set_is_refused_with_the_fix() {
    let hook = Webhook::start();
    let port = hook.port();
    let fixed = hook.url("/in/{id}");
    for (more, topic, says) in [
        ("", serde_json::json!({ "url": fixed }), "targets of the sink"),
        (TARGETS, serde_json::json!({"url": fixed, "path": "/x"}), "leave url out"),
        (TARGETS, serde_json::json!({"url": "https://hooks.example/{id}"}), "add it there"),
        (TARGETS, serde_json::json!({"url": hook.url("/other")}), "not with this path"),
        (TARGETS, serde_json::json!({"url": format!("http://127.0.0.2:{port}/in/{{id}}")}), "add it there"),
        (TARGETS, serde_json::json!({"url": "{header.host}/in"}), "begins with"),
        (TARGETS, serde_json::json!({"url": "{header.x|/in/x}"}), "the default in url is refused: a URL begins with"),
        (TARGETS, serde_json::json!({"url": "{header.x|http://u:canary@127.0.0.1/in/x}"}), "a user or a password"),
        (TARGETS, serde_json::json!({"url": "{header.x|https://hooks.example/in}"}), "add it there"),
        (TARGETS, serde_json::json!({"url": format!("{{header.x|{}}}", hook.url("/other"))}), "not with this path"),
        (TARGETS, serde_json::json!({"url": "http://127.0.0.1/in/{id"}), "{header.NAME|DEFAULT}"),
        ("batch = 10\ntargets = [\"http://*\"]", serde_json::json!({"url": "{header.x}"}), "sink without batch"),
        ("batch = 10\nmethods = [\"PUT\"]", serde_json::json!({"method": "PUT"}), "sink without batch"),
        ("methods = [\"PUT\"]", serde_json::json!({"method": "DELETE"}), "methods of the sink"),
        ("", serde_json::json!({"method": "GET"}), "unknown variant `GET`"),
        ("targets = [\"127.0.0.1\"]", serde_json::json!({}), "no pattern of URLs"),
        ("targets = [\"http://u:canary@127.0.0.1\"]", serde_json::json!({}), "without a user or a password"),
        ("targets = [\"amqp://127.0.0.1\"]", serde_json::json!({}), "no pattern of URLs"),
        ("targets = [\"http://127.0.0.1/in*\"]", serde_json::json!({}), "no pattern of URLs"),
        ("targets = [\"http://127.0.0.1/a/../*\"]", serde_json::json!({}), "no pattern of URLs"),
    ] {
        let refused = sink_with(&hook, more, topic.clone()).unwrap_err();
        assert!(refused.contains(says) && !refused.contains("canary"), "{more} {topic}: {refused}");
    }
    let allowed = serde_json::json!({"url": format!("{{header.x|{}}}", hook.url("/in/x"))});
    assert!(sink_with(&hook, TARGETS, allowed).is_ok());
    // A guard refuses the address, though the operator lists it among the targets.
    let inside = serde_json::json!({"url": "http://10.0.0.1/in/{id}"});
    let refused = sink_with(&hook, "targets = [\"http://10.0.0.1\"]", inside).unwrap_err();
    assert!(refused.contains("a private address") && refused.contains("`allow`"), "{refused}");
}

#[tokio::test]
async fn a_host_that_is_down_is_a_failure_of_its_messages_where_others_go_elsewhere() {
    let hook = Webhook::start();
    let gone = format!("http://127.0.0.1:{}/in/x?token=canary", free_port());
    let own = sink_with(&hook, TARGETS, serde_json::json!({"url": "{header.callback}"})).unwrap();
    let to = |url: &str| with_header("callback", url);
    let verdicts = [deliver(&own, to(&gone)).await, deliver(&own, to(&hook.url("/in/y"))).await];
    let Verdict::Retry { reason, after: None } = &verdicts[0] else { panic!("{verdicts:?}") };
    assert!(reason.starts_with("could not connect to http://127.0.0.1:") && !reason.contains("canary"), "{reason}");
    assert_eq!(verdicts[1], Verdict::Accepted);
    // One host for all is the target as a whole.
    let one = serde_json::json!({"url": gone.replace("/x?", "/{id}?")});
    let verdict = deliver(&sink_with(&hook, TARGETS, one).unwrap(), message("one", "")).await;
    assert!(matches!(verdict, Verdict::Unavailable { .. }), "{verdict:?}");
}

#[tokio::test]
async fn messages_have_many_targets_where_they_name_the_host_and_one_where_it_is_the_same_for_all() {
    let hook = Webhook::start();
    let targets = "targets = [\"https://*.shop.example\"]";
    let has_many = |topic| sink_with(&hook, targets, topic).unwrap().has_many_targets();
    for url in ["{header.callback}", "https://{header.shop}.shop.example/in", "https://a.shop.example{header.path}"] {
        assert!(has_many(serde_json::json!({ "url": url })), "{url}");
    }
    for url in ["https://a.shop.example/{id}", "https://{topic}.shop.example/{id}", "https://a.shop.example?x={id}"] {
        assert!(!has_many(serde_json::json!({ "url": url })), "{url}");
    }
    assert!(!has_many(serde_json::json!({"path": "/x"})));
}

#[tokio::test]
async fn a_name_that_has_no_turn_to_be_resolved_is_known_from_one_that_is_not_found() {
    let config: HttpConfig = serde_json::from_value(serde_json::json!({"url": "http://localhost:9"})).unwrap();
    let guard = Arc::new(Guard::new(&["localhost".to_owned()], None).unwrap());
    for (lookups_max, is_busy) in [(0, true), (1, false)] {
        let resolver = GuardedResolver::new(guard.clone(), lookups_max, Duration::from_secs(1));
        let client = WebhookClient::new(&config, false, resolver).unwrap();
        let (to, within) = ("http://none.localhost.invalid:9/", Duration::from_secs(60));
        let error = client.send(Method::POST, to, HeaderMap::new(), Bytes::new(), within).await.unwrap_err();
        assert_eq!(causes::<LookupsBusy>(&error).next().is_some(), is_busy, "{error:?}");
    }
}

#[tokio::test]
async fn what_a_target_says_is_shown_without_what_the_url_of_a_message_has() {
    let hook = Webhook::start();
    hook.answer(|hit| Answer::status(422).body(hit.path.clone()));
    let sink = sink_with(&hook, TARGETS, serde_json::json!({"url": "{header.callback}"})).unwrap();
    for (path, reason) in [
        ("/in/x?token=canary", "the target answered 422: Unprocessable Entity"),
        ("/in/x", "the target answered 422: Unprocessable Entity, /in/x"),
        ("/in/canary/x", "the target answered 422: Unprocessable Entity, ***"),
    ] {
        let refused = deliver(&sink, with_header("callback", &hook.url(path))).await;
        assert_eq!(refused, Verdict::Refused { reason: reason.to_owned() });
    }
}

#[tokio::test]
async fn connections_to_any_number_of_hosts_are_bounded() {
    let hook = Webhook::start();
    // All addresses of the loopback lead to it.
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, highest) = (open.clone(), most.clone());
    let target = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            highest.fetch_max(counted.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let open = counted.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                while socket.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let _ = socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
                }
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    let more = format!("concurrency = 1\ntargets = [\"http://*:{port}\"]");
    let text = format!("[hook]\ntype = \"http\"\nurl = {:?}\nallow = [\"127.0.0.0/8\"]\n{more}", hook.url("/in"));
    let named = serde_json::json!({"name": "hook", "url": "{header.callback}"});
    let named = serde_json::from_value(named).unwrap();
    let sink = registry(&text, Arc::new(WallClock)).unwrap().bind(&message("x", "").topic, &named).unwrap();
    for host in 0..2 * KEPT_MAX {
        let url = format!("http://127.0.{}.{}:{port}/", 1 + host / 200, 1 + host % 200);
        assert_eq!(deliver(&sink, with_header("callback", &url)).await, Verdict::Accepted, "{url}");
    }
    // One in flight, and what has not been seen to close yet.
    let most = most.load(Ordering::Relaxed);
    assert!(most > KEPT_MAX / 2 && most <= KEPT_MAX + 64, "{most} connections at once");
    target.abort();
}
