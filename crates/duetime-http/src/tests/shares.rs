//! What tenants share of one node: none takes what others need.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, header};
use futures::channel::mpsc::{UnboundedSender, unbounded};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::{Answer, TestApi, within};
use crate::auth::shares::{EXPENSIVE_AT_ONCE, Tenant};
use crate::server::body::BODY_IDLE_MAX;
use crate::{Auth, AuthConfig, HttpOptions, HttpParts, Shares};

const MESSAGES: &str = "/v1/topics/orders/messages";
const CLAIM: &str = "/v1/topics/orders/claim";

fn secret(name: &str) -> String {
    format!("a-secret-of-{name}-0123")
}

fn tokens(names: &[&str]) -> AuthConfig {
    let token = |name: &&str| json!({"name": name, "secret": secret(name), "scopes": ["admin"]});
    serde_json::from_value(json!({"tokens": names.iter().map(token).collect::<Vec<_>>()})).unwrap()
}

/// A node of the tenants `greedy` and `shop` with the topic `orders`, whose requests share `bytes`.
async fn api_with(bytes: u64) -> TestApi {
    let api = TestApi::with(Auth::load(&tokens(&["greedy", "shop"])).unwrap()).await;
    let options = HttpOptions { shares: Shares::new(bytes), ..HttpOptions::default() };
    let api = api.again(HttpParts { options, ..api.parts.clone() });
    assert_eq!(ask(&api, "shop", "PUT", "/v1/topics/orders", "{}").await.status, 201);
    api
}

fn request(name: &str, method: &str, path: &str, body: Body) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    request.header(header::AUTHORIZATION, format!("Bearer {}", secret(name))).body(body).unwrap()
}

async fn ask(api: &TestApi, name: &str, method: &str, path: &str, body: &str) -> Answer {
    api.send(request(name, method, path, Body::from(body.to_owned()))).await
}

type Pieces = UnboundedSender<Result<Bytes, std::io::Error>>;

/// A request whose body comes piece by piece; its status and body.
fn slow(api: &TestApi, name: &str, path: &str, kind: &str) -> (Pieces, JoinHandle<(u16, String)>) {
    let (to, from) = unbounded();
    let mut request = request(name, "POST", path, Body::from_stream(from));
    request.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
    (to, sent(api, request))
}

fn sent(api: &TestApi, request: Request<Body>) -> JoinHandle<(u16, String)> {
    let api = api.clone_api();
    tokio::spawn(async move {
        let answer = api.oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    })
}

async fn held(api: &TestApi, bytes: u64) {
    let total = 2 << 20;
    within(Duration::from_secs(60), async {
        while api.parts.options.shares.memory_left() > total - bytes {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_that_holds_its_share_of_the_memory_is_refused_and_no_one_else_is() {
    let api = api_with(2 << 20).await;
    // Blanks, which a request for receipts may have any number of.
    let (to, held_open) = slow(&api, "greedy", "/v1/topics/orders/ack", "application/json");
    to.unbounded_send(Ok(Bytes::from(vec![b' '; 1_600_000]))).unwrap();
    held(&api, 1_600_000).await;
    let large = format!(r#"{{"payload":"{}"}}"#, "x".repeat(20_000));
    let refused = ask(&api, "greedy", "POST", MESSAGES, &format!(r#"{{"payload":"{}"}}"#, "x".repeat(100_000))).await;
    assert_eq!(refused.problem(), (503, "busy".to_owned()));
    assert!(refused.json()["detail"].as_str().unwrap().contains("token \"greedy\" hold its share"), "{}", refused.text);
    for _ in 0..10 {
        assert_eq!(ask(&api, "shop", "POST", MESSAGES, &large).await.status, 201);
    }
    drop(to);
    assert_eq!(within(Duration::from_secs(60), held_open).await.unwrap().0, 400, "it ended early");
    assert_eq!(api.parts.options.shares.memory_left(), 2 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_brings_next_to_nothing_is_given_up() {
    let api = api_with(512 << 20).await;
    let (to, given_up) = slow(&api, "greedy", "/v1/topics/orders/ack", "application/json");
    let drips = tokio::spawn(async move {
        while to.unbounded_send(Ok(Bytes::from_static(b" "))).is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let began = Instant::now();
    let (status, text) = within(Duration::from_secs(600), given_up).await.unwrap();
    assert!(status == 408 && text.contains("body_timeout"), "{status} {text}");
    assert!(began.elapsed() <= BODY_IDLE_MAX + Duration::from_secs(1), "{:?}", began.elapsed());
    drips.abort();
    // One that is slow, and brings enough, is read to its end.
    let (to, read) = slow(&api, "greedy", MESSAGES, "application/json");
    tokio::spawn(async move {
        to.unbounded_send(Ok(Bytes::from_static(b"{\"payload\":\""))).unwrap();
        for _ in 0..2 {
            tokio::time::sleep(BODY_IDLE_MAX - Duration::from_secs(5)).await;
            to.unbounded_send(Ok(Bytes::from(vec![b'x'; 65 << 10]))).unwrap();
        }
        to.unbounded_send(Ok(Bytes::from_static(b"\"}"))).unwrap();
    });
    assert_eq!(within(Duration::from_secs(600), read).await.unwrap().0, 201);
}

#[tokio::test]
async fn a_body_of_receipts_or_ids_has_a_bound_of_its_own() {
    let api = api_with(512 << 20).await;
    let blanks = " ".repeat(8 << 20);
    for (path, body) in [
        ("/v1/topics/orders/ack", r#"{"receipts":[]}"#),
        ("/v1/topics/orders/claim", r#"{"ack":[]}"#),
        ("/v1/topics/orders/cancel", r#"{"ids":[]}"#),
    ] {
        let refused = ask(&api, "shop", "POST", path, &format!("{blanks}{body}")).await;
        assert_eq!(refused.problem(), (413, "body_too_large".to_owned()), "{path}");
    }
    let receipt = "x".repeat(120);
    let most = format!(r#"{{"receipts":{}}}"#, json!(vec![receipt; 65_536]));
    assert_eq!(ask(&api, "shop", "POST", "/v1/topics/orders/ack", &most).await.status, 200, "as many as may be fit");
}

#[tokio::test(start_paused = true)]
async fn claims_that_wait_have_a_price_and_a_bound_by_token() {
    let api = api_with(2 << 20).await;
    let wait = |name: &str| sent(&api, request(name, "POST", CLAIM, Body::from(r#"{"wait":"60s"}"#)));
    let claims: Vec<_> = (0..150).map(|_| wait("greedy")).collect();
    // Each has begun to wait by then.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let refused = ask(&api, "greedy", "POST", MESSAGES, "{}").await;
    assert_eq!(refused.problem(), (503, "busy".to_owned()));
    assert!(refused.text.contains("hold its share"), "{}", refused.text);
    assert_eq!(ask(&api, "shop", "POST", "/v1/topics/orders/cancel", r#"{"ids":["a"]}"#).await.status, 200);
    claims.iter().for_each(JoinHandle::abort);
    for claim in claims {
        drop(claim.await);
    }
    assert_eq!(api.parts.options.shares.memory_left(), 2 << 20);
    // However much memory there is.
    let greedy = Tenant::Token("greedy".into());
    let places: Vec<_> = std::iter::from_fn(|| api.parts.options.shares.wait(&greedy).ok()).collect();
    let api = api_of(&api);
    ask(&api, "shop", "POST", CLAIM, r#"{"max":256}"#).await;
    let refused = ask(&api, "greedy", "POST", CLAIM, r#"{"wait":"1s"}"#).await;
    assert_eq!(refused.problem(), (503, "busy".to_owned()));
    assert!(refused.text.contains("fewer consumers"), "{}", refused.text);
    assert_eq!(ask(&api, "greedy", "POST", CLAIM, "{}").await.status, 200, "without waiting it has its turn");
    let claim = sent(&api, request("shop", "POST", CLAIM, Body::from(r#"{"wait":"60s"}"#)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!claim.is_finished(), "that of another token waits");
    claim.abort();
    drop(places);
}

/// The same parts, called anew.
fn api_of(api: &TestApi) -> TestApi {
    api.again(api.parts.clone())
}

#[tokio::test]
async fn expensive_requests_of_a_token_take_turns_and_those_of_others_do_not_wait() {
    let api = api_with(512 << 20).await;
    let greedy = Tenant::Token("greedy".into());
    let mut turns = Vec::new();
    for _ in 0..EXPENSIVE_AT_ONCE {
        turns.push(api.parts.options.shares.turn(&greedy).await);
    }
    let many = format!("[{}]", vec!["{}"; 1500].join(","));
    let ids = json!({"ids": vec!["a"; 1500]}).to_string();
    let expensive = [
        ("GET", MESSAGES, String::new()),
        ("GET", "/v1/topics/orders/dead?reason=none", String::new()),
        ("GET", "/v1/topics/orders/dead/groups", String::new()),
        ("GET", "/v1/topics/orders/forecast", String::new()),
        ("GET", "/v1/topics", String::new()),
        ("GET", "/v1/find?id=a", String::new()),
        ("POST", "/v1/topics/orders/plans", r#"{"action":"cancel"}"#.to_owned()),
        ("POST", MESSAGES, many),
        ("POST", "/v1/topics/orders/cancel", ids),
    ];
    let one = |name: &str, (method, path, body): &(&str, &str, String)| {
        sent(&api, request(name, method, path, Body::from(body.clone())))
    };
    let waiting: Vec<_> = expensive.iter().map(|asked| one("greedy", asked)).collect();
    for asked in &expensive {
        let (status, text) = within(Duration::from_secs(60), one("shop", asked)).await.unwrap();
        assert!(status < 300, "{asked:?}: {status} {text}");
    }
    assert_eq!(ask(&api, "greedy", "POST", MESSAGES, "{}").await.status, 201, "a small one has no need to wait");
    for (claim, asked) in waiting.iter().zip(&expensive) {
        assert!(!claim.is_finished(), "{asked:?}");
    }
    drop(turns);
    for claim in waiting {
        assert!(within(Duration::from_secs(60), claim).await.unwrap().0 < 300);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_taken_back_ends_its_open_stream_and_its_waiting_claim() {
    let auth = Auth::load(&tokens(&["root", "shop"])).unwrap();
    let api = TestApi::with(auth.clone()).await;
    assert_eq!(ask(&api, "root", "PUT", "/v1/topics/orders", "{}").await.status, 201);
    let (to, stream) = slow(&api, "shop", MESSAGES, "application/x-ndjson");
    let idle = slow(&api, "shop", MESSAGES, "application/x-ndjson");
    let line = |id: &str| Ok(Bytes::from(format!("{{\"id\":\"{id}\",\"delay\":\"1h\"}}\n")));
    to.unbounded_send(line("before")).unwrap();
    idle.0.unbounded_send(line("idle")).unwrap();
    within(Duration::from_secs(10), async {
        for id in ["before", "idle"] {
            while ask(&api, "root", "GET", &format!("{MESSAGES}/{id}"), "").await.status != 200 {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let claim = sent(&api, request("shop", "POST", CLAIM, Body::from(r#"{"wait":"60s"}"#)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    auth.reload(&tokens(&["root"])).unwrap();
    let _ = to.unbounded_send(line("after"));
    assert_eq!(ask(&api, "root", "POST", MESSAGES, r#"{"id":"due"}"#).await.status, 201);
    let (status, text) = within(Duration::from_secs(10), claim).await.unwrap();
    assert!(status == 401 && text.contains("token_unknown"), "{status} {text}");
    for stream in [stream, idle.1] {
        let (_, text) = within(Duration::from_secs(10), stream).await.unwrap();
        let results = serde_json::from_str::<Value>(&text).unwrap()["results"].clone();
        assert_eq!(
            (&results[0]["outcome"], &results[1]["error"]["code"]),
            (&json!("scheduled"), &json!("token_unknown"))
        );
    }
    assert_eq!(ask(&api, "root", "GET", &format!("{MESSAGES}/after"), "").await.status, 404);
    assert_eq!(ask(&api, "root", "GET", &format!("{MESSAGES}/due"), "").await.json()["attempts"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_at_the_rate_that_its_token_has_by_then() {
    let token = |rate: Value| -> AuthConfig {
        let shop = json!({"name": "shop", "secret": secret("shop"), "scopes": ["admin"], "messages_per_second": rate});
        serde_json::from_value(json!({ "tokens": [shop] })).unwrap()
    };
    let auth = Auth::load(&token(json!(1000))).unwrap();
    let api = TestApi::with(auth.clone()).await;
    assert_eq!(ask(&api, "shop", "PUT", "/v1/topics/orders", "{}").await.status, 201);
    let (to, stream) = slow(&api, "shop", MESSAGES, "application/x-ndjson");
    to.unbounded_send(Ok(Bytes::from_static(b"{}\n"))).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    auth.reload(&token(json!(1))).unwrap();
    let began = Instant::now();
    // More than a second is worth passes, and what follows waits until it is paid for.
    for lines in [&b"{}\n{}\n{}\n{}\n{}\n"[..], b"{}\n"] {
        to.unbounded_send(Ok(Bytes::from_static(lines))).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(to);
    assert_eq!(within(Duration::from_secs(60), stream).await.unwrap().0, 200);
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_reload_gives_a_token_no_rates_anew() {
    let token = |rate: f64| -> AuthConfig {
        let shop = json!({"name": "shop", "secret": secret("shop"), "scopes": ["admin"], "requests_per_second": rate});
        serde_json::from_value(json!({ "tokens": [shop] })).unwrap()
    };
    let auth = Auth::load(&token(0.1)).unwrap();
    let api = TestApi::with(auth.clone()).await;
    assert_eq!(ask(&api, "shop", "GET", "/v1/me", "").await.status, 200);
    assert_eq!(ask(&api, "shop", "GET", "/v1/me", "").await.status, 429);
    for rate in [0.1, 0.2, 0.1] {
        auth.reload(&token(rate)).unwrap();
        assert_eq!(ask(&api, "shop", "GET", "/v1/me", "").await.status, 429, "{rate}");
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(ask(&api, "shop", "GET", "/v1/me", "").await.status, 200);
}

#[tokio::test]
async fn answers_of_the_api_are_not_stored_on_the_way_and_are_what_their_type_says() {
    let api = api_with(512 << 20).await;
    let late = Request::delete("/v1/topics/orders").header("duetime-not-after", "1").body(Body::empty()).unwrap();
    let foreign = Request::get("/v1/me").header(header::HOST, "evil.example").body(Body::empty()).unwrap();
    let (known, unknown) = (ask(&api, "shop", "GET", "/v1/me", "").await, api.get("/v1/nothing").await);
    for answer in [known, api.get("/v1/me").await, unknown, api.send(late).await, api.send(foreign).await] {
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store", "{}", answer.status);
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{}", answer.status);
    }
}

#[tokio::test]
async fn a_tenant_that_has_its_share_of_the_plans_leaves_those_of_others_alone() {
    let token = |name: &str, topics: &str| json!({"name": name, "secret": secret(name), "scopes": ["admin"], "topics": [topics]});
    let viewer = json!({"name": "viewer", "secret": secret("viewer"), "scopes": ["view"]});
    let tokens = json!({"tokens": [token("greedy", "a-*"), token("shop", "b-*"), viewer]});
    let api = TestApi::with(Auth::load(&serde_json::from_value(tokens).unwrap()).unwrap()).await;
    let plans = |topic: &str| format!("/v1/topics/{topic}/plans");
    let plan = async |name: &str, topic: &str| ask(&api, name, "POST", &plans(topic), r#"{"action":"cancel"}"#).await;
    assert_eq!(ask(&api, "shop", "PUT", "/v1/topics/b-1", r#"{"shards":1}"#).await.status, 201);
    let own = plan("shop", "b-1").await.json();
    let own = format!("{}/{}", plans("b-1"), own["id"].as_str().unwrap());
    api.advance("1s");
    let mut running = 0;
    let refused = 'greedy: loop {
        let topic = format!("a-{}", running / 16);
        let made = ask(&api, "greedy", "PUT", &format!("/v1/topics/{topic}"), r#"{"shards":1}"#).await;
        assert!(made.status.is_success());
        for _ in 0..16 {
            let planned = plan("greedy", &topic).await;
            if planned.status != 201 {
                break 'greedy planned;
            }
            let start = format!("{}/{}/start", plans(&topic), planned.json()["id"].as_str().unwrap());
            assert_eq!(ask(&api, "greedy", "POST", &start, r#"{"at_most":1}"#).await.status, 200);
            running += 1;
        }
    };
    assert_eq!((refused.problem(), running), ((409, "too_many_plans".to_owned()), 63));
    assert!(refused.text.contains("wait for one, or stop it"), "{}", refused.text);
    assert_eq!(ask(&api, "shop", "GET", &own, "").await.json()["by"], "shop");
    assert_eq!(ask(&api, "viewer", "GET", &own, "").await.json().get("by"), None, "names are for administrators");
    assert_eq!(ask(&api, "shop", "POST", &format!("{own}/start"), r#"{"at_most":1}"#).await.status, 200);
    assert_eq!(ask(&api, "shop", "POST", &format!("{own}/stop"), "{}").await.status, 200);
    let listed = ask(&api, "viewer", "GET", &plans("b-1"), "").await.json();
    assert_eq!((listed["plans"].as_array().unwrap().len(), listed["plans"][0].get("by")), (1, None));
    // Of more than its places the topic's own oldest makes way, as ever.
    for _ in 0..16 {
        assert_eq!(plan("shop", "b-1").await.status, 201);
    }
    assert_eq!(ask(&api, "shop", "GET", &own, "").await.status, 404);
}
