//! The stream of events.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{Request, header};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::{TestApi, within};
use crate::auth::listeners::LISTENERS_MAX;
use crate::{Auth, AuthConfig};

/// The next event: its name, its id and its data.
async fn next(stream: &mut BodyDataStream) -> (String, String, Value) {
    loop {
        let chunk = within(Duration::from_secs(60), stream.next()).await.expect("the stream goes on").unwrap();
        let text = String::from_utf8(chunk.to_vec()).unwrap();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        if text.starts_with("event: ") {
            return (field("event: "), field("id: "), serde_json::from_str(&field("data: ")).unwrap());
        }
    }
}

async fn listen(api: &TestApi, seen: Option<&str>, token: Option<&str>) -> (u16, BodyDataStream) {
    let mut request = Request::get("/v1/events");
    if let Some(seen) = seen {
        request = request.header("last-event-id", seen);
    }
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let answer = api.clone_api().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    (answer.status().as_u16(), answer.into_body().into_data_stream())
}

fn counted(api: &TestApi) -> u64 {
    let text = api.parts.meters.render();
    let line = text.lines().find(|line| line.starts_with("duetime_store_call_seconds_count{op=\"counts\"}"));
    line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn listeners_hear_of_changes_and_cost_the_store_next_to_nothing() {
    let api = TestApi::with_orders().await;
    let (status, mut first) = listen(&api, None, None).await;
    assert_eq!(status, 200);
    let (name, id, all) = next(&mut first).await;
    assert_eq!(
        (name.as_str(), &all["topics"][0]["name"], all["gone"].clone()),
        ("topics", &json!("orders"), json!([]))
    );
    assert!(id.starts_with(&format!("{}.", all["at"])), "{id}");
    let mut others = Vec::new();
    for _ in 0..50 {
        others.push(listen(&api, None, None).await.1);
    }
    let before = counted(&api);
    for _ in 0..10 {
        api.advance("1s");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let counts = counted(&api) - before;
    assert!((1..=2).contains(&counts), "{counts} counts in ten seconds in which nothing happened");
    // What a node counts for its gauges is not counted again.
    let orders = api.parts.catalog.get(&duetime_core::TopicName::new("orders").unwrap()).unwrap();
    let shards: Vec<_> = orders.routing.all(&orders.name).collect();
    let before = counted(&api);
    for _ in 0..10 {
        let counts = vec![duetime_core::store::ShardCounts::default(); shards.len()];
        api.advance("1s");
        api.parts.meters.surveys.keep(api.parts.clock.now(), shards.iter().zip(&counts));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(counted(&api), before, "the gauges know it");

    api.enqueue(r#"{"id":"a"}"#).await;
    api.advance("1s");
    let (name, changed, change) = next(&mut first).await;
    assert_eq!((name.as_str(), &change["topics"][0]["scheduled"]), ("change", &json!(1)));
    assert_ne!(id, changed);
    assert_eq!(api.delete("/v1/topics/orders?force=true").await.status, 200);
    assert_eq!(next(&mut first).await.2["gone"], json!(["orders"]));
    // Who comes back is sent what it missed, and who has seen nothing all there is.
    let (_, mut again) = listen(&api, Some(&changed), None).await;
    let (name, _, missed) = next(&mut again).await;
    assert_eq!((name.as_str(), &missed["gone"]), ("change", &json!(["orders"])));
    // The id of another node may be later than a change that only this one has counted.
    let elsewhere = changed.split_once('.').unwrap().0.to_owned() + ".7";
    for unknown in ["not ours", &elsewhere] {
        let (_, mut fresh) = listen(&api, Some(unknown), None).await;
        let (name, _, all) = next(&mut fresh).await;
        assert_eq!((name.as_str(), &all["topics"], &all["gone"]), ("topics", &json!([]), &json!([])));
    }

    drop((first, others, again));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = counted(&api);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(counted(&api), before, "nobody listens");
}

#[tokio::test(start_paused = true)]
async fn there_are_only_so_many_listeners_and_a_node_that_drains_ends_them() {
    let api = TestApi::with_orders().await;
    let mut streams = Vec::new();
    for _ in 0..LISTENERS_MAX {
        streams.push(listen(&api, None, None).await);
    }
    assert!(streams.iter().all(|(status, _)| *status == 200));
    assert_eq!(listen(&api, None, None).await.0, 503);
    let (_, mut last) = streams.pop().unwrap();
    next(&mut last).await;
    api.parts.draining.cancel();
    while let Some(chunk) = within(Duration::from_secs(60), last.next()).await {
        chunk.unwrap();
    }
    drop(last);
    assert_eq!(listen(&api, None, None).await.0, 200, "there is a place again");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_has_all_places_makes_way_for_another_one() {
    let tokens = json!({"tokens": [
        {"name": "greedy", "secret": "a-secret-of-greedy-01", "scopes": ["view"]},
        {"name": "shop", "secret": "a-secret-of-shop-0123", "scopes": ["view"]}]});
    let api = TestApi::with(Auth::load(&serde_json::from_value(tokens).unwrap()).unwrap()).await;
    let (mut greedy, secret) = (Vec::new(), Some("a-secret-of-greedy-01"));
    for _ in 0..LISTENERS_MAX {
        greedy.push(listen(&api, None, secret).await);
    }
    assert_eq!(listen(&api, None, secret).await.0, 503);
    let (status, mut stream) = listen(&api, None, Some("a-secret-of-shop-0123")).await;
    assert_eq!((status, next(&mut stream).await.0.as_str()), (200, "topics"));
    let (_, mut oldest) = greedy.remove(0);
    while let Some(chunk) = within(Duration::from_secs(60), oldest.next()).await {
        chunk.unwrap();
    }
    assert_eq!(next(&mut greedy.last_mut().unwrap().1).await.0, "topics", "the others listen on");
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_of_its_own_topics_only_until_its_token_is_taken_back() {
    let token = |secret: &str| -> AuthConfig {
        serde_json::from_value(json!({"tokens": [
            {"name": "root", "secret": "a-secret-of-root-0123", "scopes": ["admin"]},
            {"name": "shop", "secret": secret, "scopes": ["view"], "topics": ["shop"]}]}))
        .unwrap()
    };
    let auth = Auth::load(&token("a-secret-of-shop-0123")).unwrap();
    let api = TestApi::with(auth.clone()).await;
    let put = async |topic: &str| {
        let path = format!("/v1/topics/{topic}");
        assert_eq!(api.call_as("a-secret-of-root-0123", "PUT", &path, "{}").await.status, 201);
    };
    put("orders").await;
    let (_, mut stream) = listen(&api, None, Some("a-secret-of-shop-0123")).await;
    assert_eq!(next(&mut stream).await.2["topics"], json!([]));
    put("mails").await;
    put("shop").await;
    api.advance("1s");
    let (_, _, change) = next(&mut stream).await;
    assert_eq!((change["topics"].as_array().unwrap().len(), &change["topics"][0]["name"]), (1, &json!("shop")));
    auth.reload(&token("another-secret-0123456")).unwrap();
    put("shop-2").await;
    while let Some(chunk) = within(Duration::from_secs(60), stream.next()).await {
        assert!(!String::from_utf8_lossy(&chunk.unwrap()).contains("event:"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_gets_a_sign_in_time_however_much_happens_that_it_may_not_see() {
    let config = json!({"tokens": [
        {"name": "root", "secret": "a-secret-of-root-0123", "scopes": ["admin"]},
        {"name": "shop", "secret": "a-secret-of-shop-0123", "scopes": ["view"], "topics": ["shop"]}]});
    let api = TestApi::with(Auth::load(&serde_json::from_value(config).unwrap()).unwrap()).await;
    let (_, mut stream) = listen(&api, None, Some("a-secret-of-shop-0123")).await;
    assert_eq!(next(&mut stream).await.2["topics"], json!([]));
    let node = api.clone_api();
    let busy = tokio::spawn(async move {
        for n in 0.. {
            let request = Request::put(format!("/v1/topics/other-{n}"))
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::AUTHORIZATION, "Bearer a-secret-of-root-0123");
            let made = node.clone().oneshot(request.body(Body::from(r#"{"shards":1}"#)).unwrap()).await.unwrap();
            assert_eq!(made.status(), 201);
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
    });
    let mut since = tokio::time::Instant::now();
    for _ in 0..3 {
        let sign = within(Duration::from_secs(60), stream.next()).await.expect("the stream goes on").unwrap();
        assert_eq!(sign, ":\n\n");
        let waited = since.elapsed().as_secs();
        assert!((14..=16).contains(&waited), "{waited} s");
        since = tokio::time::Instant::now();
    }
    busy.abort();
}
