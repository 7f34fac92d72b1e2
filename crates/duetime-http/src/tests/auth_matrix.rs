//! Every operation of the document, for every scope, on a topic that the token is for and on another.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::Value;

use super::TestApi;
use crate::{Auth, AuthConfig};

const SCOPES: [&str; 4] = ["view", "produce", "consume", "admin"];

/// The scopes that each operation takes beside `admin`; whoever adds an operation writes it down here.
const WANTED: &[(&str, &[&str])] = &[
    ("list_nodes", &["view", "produce", "consume"]),
    ("list_issues", &["view", "produce", "consume"]),
    ("get_events", &["view", "produce", "consume"]),
    ("get_me", &["view", "produce", "consume"]),
    ("get_rates", &["view", "produce", "consume"]),
    ("list_outages", &["view"]),
    ("get_audit", &[]),
    ("back_up", &[]),
    ("get_test_clock", &["view", "produce", "consume"]),
    ("move_test_clock", &[]),
    ("list_topics", &["view", "produce", "consume"]),
    ("get_topic", &["view", "produce", "consume"]),
    ("put_topic", &[]),
    ("delete_topic", &[]),
    ("adopt_topic", &[]),
    ("list_messages", &["view"]),
    ("find_messages", &["view", "produce"]),
    ("enqueue", &["produce"]),
    ("get_message", &["view", "produce"]),
    ("cancel_message", &["produce"]),
    ("reschedule_message", &["produce"]),
    ("explain_message", &["view", "produce"]),
    ("cancel_messages", &["produce"]),
    ("claim", &["consume"]),
    ("claim_any", &["consume"]),
    ("list_consumers", &["consume", "view"]),
    ("ack", &["consume"]),
    ("nack", &["consume"]),
    ("release", &["consume"]),
    ("extend", &["consume"]),
    ("list_dead", &["view"]),
    ("purge_dead", &[]),
    ("redrive_dead", &[]),
    ("group_dead", &["view"]),
    ("get_shards", &["view", "produce", "consume"]),
    ("put_shards", &[]),
    ("forecast", &["view", "produce", "consume"]),
    ("watermark", &["view", "consume"]),
    ("drain_node", &[]),
    ("undrain_node", &[]),
    ("pause_topic", &[]),
    ("resume_topic", &[]),
    ("create_plan", &[]),
    ("list_plans", &["view"]),
    ("get_plan", &["view"]),
    ("delete_plan", &[]),
    ("start_plan", &[]),
    ("stop_plan", &[]),
    ("undo_plan", &[]),
    ("get_sink", &["view"]),
    ("probe_sink", &[]),
    ("list_sinks", &["view"]),
    ("get_named_sink", &["view"]),
    ("put_sink", &[]),
    ("delete_sink", &[]),
    ("pause_sink", &[]),
    ("resume_sink", &[]),
    // Open to everybody.
    ("healthz", &["view", "produce", "consume"]),
    ("readyz", &["view", "produce", "consume"]),
    ("metrics", &["view", "produce", "consume"]),
    ("openapi", &["view", "produce", "consume"]),
];

fn secret(scope: &str) -> String {
    format!("a-secret-of-{scope}-0123")
}

async fn api() -> TestApi {
    let token = |scope: &&str| {
        let whose = r#""topics":["own"],"sinks":["shop"]"#;
        format!(r#"{{"name":"{scope}","secret":"{}","scopes":["{scope}"],{whose}}}"#, secret(scope))
    };
    let tokens: Vec<String> = SCOPES.iter().map(token).collect();
    let root = format!(r#"{{"name":"root","secret":"{}","scopes":["admin"]}}"#, secret("root"));
    let config = format!(r#"{{"tokens":[{},{root}]}}"#, tokens.join(","));
    let config: AuthConfig = serde_json::from_str(&config).unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    for topic in ["own", "other"] {
        assert_eq!(ask(&api, "root", "PUT", &format!("/v1/topics/{topic}"), "{}").await.0, 201);
    }
    api
}

async fn ask(api: &TestApi, scope: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let answer = api.call_as(&secret(scope), method, path, body).await;
    (answer.status.as_u16(), answer.text)
}

#[tokio::test]
async fn every_operation_takes_the_scopes_that_are_written_down_and_no_others() {
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    let (mut seen, mut api) = (0, api().await);
    for (template, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            let Some((_, wanted)) = WANTED.iter().find(|(operation, _)| *operation == name) else {
                panic!("{method} {template} ({name}) is new: write down which scopes it takes");
            };
            seen += 1;
            for topic in ["own", "other"] {
                let path = template
                    .replace("{topic}", topic)
                    .replace("{id}", "a")
                    .replace("{sink}", "shop")
                    .replace("{shard}", "0");
                let foreign = template.contains("{topic}") && topic == "other";
                // What concerns all topics is for a token without any.
                let foreign = foreign || template.starts_with("/v1/nodes/{id}/") || template == "/v1/backup";
                let foreign = foreign || template == "/v1/test-clock" && method == "post";
                let foreign = foreign || template == "/v1/sinks/{sink}" && method != "get";
                if topic == "other" && !template.contains("{topic}") {
                    continue;
                }
                for scope in SCOPES.into_iter().chain(foreign.then_some("root")) {
                    let (status, text) = ask(&api, scope, &method.to_uppercase(), &path, "{}").await;
                    let allowed = scope == "root" || (wanted.contains(&scope) || scope == "admin") && !foreign;
                    assert_ne!(status, 401, "{method} {template}");
                    assert_eq!(status != 403, allowed, "{method} {template}, {scope} on {topic}: {status} {text}");
                    // Each try meets the same state, whatever the one before did.
                    if status != 403 && method != "get" {
                        api = self::api().await;
                    }
                }
            }
        }
    }
    assert_eq!(seen, WANTED.len(), "an operation is gone: take it out of the list");
}

#[tokio::test]
async fn a_view_token_sees_no_payload_and_no_header() {
    let api = api().await;
    let message = r#"{"id":"a","payload":"CANARY","headers":{"authorization":"CANARY"}}"#;
    assert_eq!(ask(&api, "produce", "POST", "/v1/topics/own/messages", message).await.0, 201);
    for (scope, shown) in [("view", false), ("produce", true), ("admin", true)] {
        let (status, text) = ask(&api, scope, "GET", "/v1/topics/own/messages/a", "").await;
        assert_eq!((status, text.contains("CANARY")), (200, shown), "{scope}: {text}");
        assert!(text.contains("\"headers\":{"), "{text}");
    }
    assert_eq!(ask(&api, "root", "PUT", "/v1/topics/own", r#"{"retry":{"max_attempts":1}}"#).await.0, 200);
    let (_, claimed) = ask(&api, "consume", "POST", "/v1/topics/own/claim", "{}").await;
    let claimed: Value = serde_json::from_str(&claimed).unwrap();
    let receipts = serde_json::json!({"receipts": [claimed["messages"][0]["receipt"]]}).to_string();
    assert_eq!(ask(&api, "consume", "POST", "/v1/topics/own/nack", &receipts).await.0, 200);
    for (scope, shown) in [("view", false), ("admin", true)] {
        let (status, text) = ask(&api, scope, "GET", "/v1/topics/own/dead", "").await;
        assert!(text.contains("\"id\":\"a\""), "{text}");
        assert_eq!((status, text.contains("CANARY")), (200, shown), "{scope}: {text}");
    }
}

#[tokio::test]
async fn nodes_and_metrics_show_a_token_its_own_topics_only() {
    let config = |metrics: &str| -> AuthConfig {
        serde_json::from_str(&format!(
            r#"{{{metrics}"tokens":[
                {{"name":"shop","secret":"{}","scopes":["view"],"topics":["shop-*"]}},
                {{"name":"root","secret":"{}","scopes":["admin"]}}]}}"#,
            secret("shop"),
            secret("root")
        ))
        .unwrap()
    };
    let api = TestApi::with(Auth::load(&config("")).unwrap()).await;
    for topic in ["shop-1", "orders"] {
        ask(&api, "root", "PUT", &format!("/v1/topics/{topic}"), "{}").await;
        ask(&api, "root", "POST", &format!("/v1/topics/{topic}/messages"), "{}").await;
    }
    let nodes = |text: &str| serde_json::from_str::<Value>(text).unwrap()["nodes"][0].clone();
    let all = nodes(&ask(&api, "root", "GET", "/v1/nodes", "").await.1);
    assert_eq!((&all["topics"]["orders"], &all["shards_owned"]), (&1.into(), &1.into()));
    let own = nodes(&ask(&api, "shop", "GET", "/v1/nodes", "").await.1);
    assert_eq!((&own["topics"], &own["shards_owned"]), (&serde_json::json!({}), &0.into()));
    let (status, shown) = ask(&api, "shop", "GET", "/metrics", "").await;
    assert_eq!(status, 200);
    assert!(shown.contains("topic=\"shop-1\"") && !shown.contains("topic=\"orders\""), "{shown}");
    assert!(shown.contains("duetime_http_requests_total"), "what is of no topic stays");
    let (_, shown) = ask(&api, "root", "GET", "/metrics", "").await;
    assert!(shown.contains("topic=\"shop-1\"") && shown.contains("topic=\"orders\""));
    assert_eq!(api.get("/metrics").await.problem(), (401, "token_missing".to_owned()), "once there is a token");
    api.parts.auth.reload(&config(r#""metrics":false,"#)).unwrap();
    assert_eq!(api.get("/metrics").await.status, 200, "open where it is set so");
    api.parts.auth.reload(&config(r#""metrics":true,"#)).unwrap();
    assert_eq!(api.get("/metrics").await.problem(), (401, "token_missing".to_owned()));
    assert_eq!(ask(&api, "shop", "GET", "/metrics", "").await.0, 200);
}

#[tokio::test]
async fn the_seed_of_a_topic_is_shown_to_who_may_change_it_and_names_to_who_may_see_all() {
    let config: AuthConfig = serde_json::from_str(&format!(
        r#"{{"tokens":[
            {{"name":"shop","secret":"{}","scopes":["produce","consume","view"]}},
            {{"name":"own","secret":"{}","scopes":["admin"],"topics":["orders"]}},
            {{"name":"root","secret":"{}","scopes":["admin"]}}]}}"#,
        secret("shop"),
        secret("own"),
        secret("root")
    ))
    .unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    assert_eq!(ask(&api, "root", "PUT", "/v1/topics/orders", "{}").await.0, 201);
    let shards = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    for (name, sees) in [("shop", false), ("own", true), ("root", true)] {
        let seen = shards(&ask(&api, name, "GET", "/v1/topics/orders/shards", "").await.1);
        assert_eq!(seen.get("seed").is_some(), sees, "{name}: {seen}");
    }
    let catalog = api.parts.catalog.clone();
    catalog.issues().lose(&"secret-project".parse().unwrap(), [3].into());
    for (name, sees) in [("own", false), ("root", true)] {
        let (status, text) = ask(&api, name, "GET", "/readyz", "").await;
        assert!(status == 200 && text.contains("degraded"), "{text}");
        assert_eq!(text.contains("secret-project"), sees, "{name}: {text}");
    }
    assert!(!api.get("/readyz").await.text.contains("secret-project"));
    let missing = api.get("/v1/topics").await;
    assert_eq!(missing.problem().0, 401);
    let (_, text) = ask(&api, "root", "GET", "/metrics", "").await;
    assert!(text.contains("duetime_auth_refused_total{reason=\"token_missing\"} 1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_token_has_its_requests_messages_and_topics() {
    let config: AuthConfig = serde_json::from_str(&format!(
        r#"{{"tokens":[
            {{"name":"asks","secret":"{}","scopes":["admin"],"requests_per_second":2}},
            {{"name":"sends","secret":"{}","scopes":["produce"],"messages_per_second":10}},
            {{"name":"makes","secret":"{}","scopes":["admin"],"topics":["m-*"],"max_topics":2}}]}}"#,
        secret("asks"),
        secret("sends"),
        secret("makes")
    ))
    .unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    assert_eq!(ask(&api, "asks", "PUT", "/v1/topics/orders", "{}").await.0, 201);
    assert_eq!(ask(&api, "asks", "GET", "/v1/topics", "").await.0, 200);
    let refused = api.call_as(&secret("asks"), "GET", "/v1/topics", "").await;
    assert_eq!(refused.problem(), (429, "rate_limited".to_owned()));
    assert_eq!(refused.headers[header::RETRY_AFTER], "1");
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(ask(&api, "asks", "GET", "/v1/topics", "").await.0, 200);

    let many = format!("[{}]", vec!["{}"; 30].join(","));
    assert_eq!(ask(&api, "sends", "POST", "/v1/topics/orders/messages", &many).await.0, 200);
    assert_eq!(ask(&api, "sends", "POST", "/v1/topics/orders/messages", "{}").await.0, 429);
    assert_eq!(ask(&api, "sends", "GET", "/v1/topics/orders/messages/x", "").await.0, 404, "messages only");
    tokio::time::advance(std::time::Duration::from_millis(2200)).await;
    assert_eq!(ask(&api, "sends", "POST", "/v1/topics/orders/messages", "{}").await.0, 201);

    // A stream is not refused, it is read more slowly.
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    let began = tokio::time::Instant::now();
    let request = Request::post("/v1/topics/orders/messages")
        .header(header::CONTENT_TYPE, "application/x-ndjson")
        .header(header::AUTHORIZATION, format!("Bearer {}", secret("sends")));
    let answer = api.send(request.body(Body::from("{}\n".repeat(50))).unwrap()).await;
    assert_eq!(answer.json()["results"].as_array().unwrap().len(), 50);
    let took = began.elapsed().as_secs_f64();
    assert!((3.0..6.0).contains(&took), "{took}");

    for (topic, status) in [("m-1", 201), ("m-2", 201), ("m-2", 200), ("m-3", 403)] {
        let (answered, text) = ask(&api, "makes", "PUT", &format!("/v1/topics/{topic}"), "{}").await;
        assert_eq!(answered, status, "{topic}: {text}");
    }
    assert_eq!(ask(&api, "makes", "DELETE", "/v1/topics/m-1", "").await.0, 200);
    assert_eq!(ask(&api, "makes", "PUT", "/v1/topics/m-3", "{}").await.0, 201);
}

#[tokio::test]
async fn an_administrator_of_some_topics_gives_them_no_more_than_its_token_says() {
    let config: AuthConfig = serde_json::from_str(&format!(
        r#"{{"tokens":[{{"name":"root","secret":"{}","scopes":["admin"]}},
            {{"name":"some","secret":"{}","scopes":["admin"],"topics":["m-*"],"max_topic_messages":100,
              "max_topic_bytes":"1MiB","max_topic_shards":8}}]}}"#,
        secret("root"),
        secret("some")
    ))
    .unwrap();
    let api = TestApi::with(Auth::load(&config).unwrap()).await;
    let put = async |name: &str, path: &str, body: &str| {
        let (status, text) = ask(&api, name, "PUT", path, body).await;
        (status, serde_json::from_str::<serde_json::Value>(&text).unwrap())
    };
    // "auto" follows the number of nodes.
    let (status, refused) = put("some", "/v1/topics/m-1", "{}").await;
    assert_eq!((status, &refused["field"]), (403, &"shards".into()), "{refused}");
    let (status, made) = put("some", "/v1/topics/m-1", r#"{"shards":4}"#).await;
    assert_eq!((status, &made["max_messages"], &made["max_bytes"]), (201, &100.into(), &(1 << 20).into()), "{made}");
    for (body, field) in [
        (r#"{"max_messages":101}"#, "max_messages"),
        (r#"{"max_bytes":"2MiB"}"#, "max_bytes"),
        (r#"{"shards":16}"#, "shards"),
    ] {
        for topic in ["m-1", "m-2"] {
            let (status, refused) = put("some", &format!("/v1/topics/{topic}"), body).await;
            assert_eq!((status, &refused["code"], &refused["field"]), (403, &"forbidden".into(), &field.into()));
        }
    }
    assert_eq!(put("some", "/v1/topics/m-1/shards", r#"{"shards":16}"#).await.0, 403);
    let (status, changed) =
        put("some", "/v1/topics/m-1", r#"{"max_messages":null,"max_bytes":"512KiB","shards":8}"#).await;
    assert_eq!((status, &changed["max_messages"], &changed["max_bytes"]), (200, &100.into(), &(512 << 10).into()));
    // What others gave it stays.
    assert_eq!(put("root", "/v1/topics/m-1", r#"{"max_messages":1000}"#).await.0, 200);
    let (status, changed) = put("some", "/v1/topics/m-1", r#"{"visibility_timeout":"1m"}"#).await;
    assert_eq!((status, &changed["max_messages"]), (200, &1000.into()));
    // Another node deleted it, and this one does not know yet.
    let draw = duetime_core::Draw::new(rand::random::<u64>);
    let other = duetime_router::Catalog::open(api.store.clone(), api.clock.clone(), draw).await.unwrap();
    other.delete(&duetime_core::TopicName::new("m-1").unwrap(), duetime_core::Deletion::Force).await.unwrap();
    let (status, made) = put("some", "/v1/topics/m-1", r#"{"shards":4}"#).await;
    assert_eq!((status, &made["max_messages"]), (201, &100.into()));
    let (_, me) = ask(&api, "some", "GET", "/v1/me", "").await;
    assert!(me.contains(r#""max_topic_messages":100,"max_topic_bytes":1048576,"max_topic_shards":8"#), "{me}");
}

#[test]
fn a_hash_stands_for_its_secret_and_a_variable_holds_one() {
    let (secret, hash) = crate::new_token();
    assert!(secret.len() >= 43 && hash.starts_with("sha256:") && hash.len() == 7 + 64, "{secret} {hash}");
    let load = |token: &str| {
        let config = format!(r#"{{"tokens":[{{"name":"a","scopes":["admin"],{token}}}]}}"#);
        Auth::load(&serde_json::from_str(&config).map_err(|error| error.to_string())?)
    };
    let auth = load(&format!(r#""hash":"{hash}""#)).unwrap();
    let headers = |secret: &str| [(header::AUTHORIZATION, format!("Bearer {secret}").parse().unwrap())];
    assert!(auth.caller(&headers(&secret).into_iter().collect()).is_ok());
    assert!(auth.caller(&headers(&hash).into_iter().collect()).is_err(), "the hash opens nothing");
    assert!(!format!("{auth:?}").contains(&hash[7..]));
    assert!(load(r#""hash":"sha256:12""#).unwrap_err().contains("duetime token new"));
    assert!(load(&format!(r#""hash":"{hash}","secret":"{secret}""#)).unwrap_err().contains("give one of"));
    // Cargo sets this one for every test.
    assert!(load(r#""secret":{"env":"CARGO_MANIFEST_DIR"}"#).is_ok());
    assert!(
        load(r#""secret":{"env":"NO_SUCH_VARIABLE"}"#).unwrap_err().contains("NO_SUCH_VARIABLE of a secret is not set")
    );
    assert!(load(r#""secret":{"file":"/no/such"}"#).unwrap_err().contains("cannot read the secret"));
    assert!(load(r#""secret":{"path":"/no/such"}"#).unwrap_err().contains("{ env = \"NAME\" }"));
    assert!(
        load(r#""secret":"0123456789abcdef","requests_per_second":0"#).unwrap_err().contains("requests_per_second")
    );
    for (ceiling, says) in [
        (r#""max_topic_messages":0"#, "max_topic_messages must be 1 or more"),
        (r#""max_topic_bytes":"255KiB""#, "max_topic_bytes must be 256 KiB or more"),
    ] {
        let refused = load(&format!(r#""secret":"0123456789abcdef",{ceiling}"#)).unwrap_err();
        assert!(refused.contains(says), "{refused}");
    }
}
