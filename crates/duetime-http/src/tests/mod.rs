//! The API over a store on a small Redis, called without a socket. Every answer that any test sees must
//! be in the OpenAPI document.

mod audit;
mod audit_strangers;
mod auth;
mod auth_matrix;
mod backup;
mod bounds;
mod bulk;
mod claim_and_ack;
mod claim_any;
mod claims;
mod cluster;
mod connections;
mod consumers;
mod dead_redrive;
mod documented;
mod drain;
mod ends;
mod events;
mod find;
mod first_message;
mod foreign;
mod list;
mod messages;
mod named_sinks;
mod operations;
mod packed;
mod pauses;
mod plans;
mod series;
mod shares;
mod sink_access;
mod sinks;
mod test_clock;
mod topics;
mod trace;
mod undo;
mod watermark;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use duetime_core::Draw;
use duetime_core::layer::{Call, Layered, StoreLayer};
use duetime_core::store::ClaimRequest;
use duetime_core::{
    ClaimAsk, ClaimedBatch, Clock as _, ClusterNodes, Consumers, HeldBudget, LeaseClass, Member, OwnedShards,
    ReleaseAction, Store, StoreError, Timestamp, TopicName,
};
use duetime_metrics::Meters;
use duetime_resize::{MoveDeps, ResizeConfig, ResizeDeps, Resizer};
use duetime_router::{Catalog, Metering, PlanDeps, Plans, PutSinks, Router};
use duetime_small_store::SmallStore;
use duetime_testkit::{ManualClock, claim_request};
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{Auth, Feed, HttpOptions, HttpParts, NodeInfo};

/// 2025-11-21T00:00:00Z.
pub const NOW_MS: i64 = 1_763_683_200_000;

/// Claims what is due at once and never waits.
#[derive(Debug)]
struct EagerConsumers {
    store: Arc<dyn Store>,
    catalog: Arc<Catalog>,
    clock: Arc<ManualClock>,
}

#[async_trait]
impl Consumers for EagerConsumers {
    async fn claim(&self, topic: &TopicName, ask: ClaimAsk) -> Result<Vec<ClaimedBatch>, StoreError> {
        let record = self.catalog.get(topic).ok_or_else(|| StoreError::UnknownShard(topic.to_string()))?;
        let visibility = ask.visibility.unwrap_or(record.config.visibility_timeout);
        let mut handed = Vec::new();
        let mut left = ask.max;
        for shard in record.routing.all(topic) {
            let request =
                ClaimRequest { visibility, class: LeaseClass::for_visibility(visibility), ..claim_request(left) };
            let claim = self.store.claim(&shard, self.clock.now(), &request).await?;
            left -= claim.messages.len();
            let (messages, held) = (Arc::new(claim.messages), HeldBudget::default());
            handed.push(ClaimedBatch { shard, messages, held, release: ReleaseAction::default() });
            if left == 0 {
                break;
            }
        }
        if left == ask.max && !ask.wait.is_zero() {
            std::future::pending::<()>().await;
        }
        Ok(handed)
    }

    fn has_due(&self, _: &TopicName) -> bool {
        false
    }
}

type Fault = Box<dyn FnMut(&Call<'_>) -> Option<StoreError> + Send>;

/// A layer around a store in which calls fail as a test has it.
pub struct Faulty(Mutex<Fault>);

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    /// None fails so far.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Box::new(|_| None))))
    }

    pub fn set(&self, fault: impl FnMut(&Call<'_>) -> Option<StoreError> + Send + 'static) {
        *self.0.lock() = Box::new(fault);
    }
}

impl StoreLayer for Faulty {
    async fn around<T: Send>(
        &self,
        call: Call<'_>,
        made: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let fault = (self.0.lock())(&call);
        if let Some(error) = fault { Err(error) } else { made.await }
    }
}

pub fn away(doing: &'static str) -> StoreError {
    StoreError::Unavailable { doing, source: "connection refused".into() }
}

pub struct TestApi {
    pub parts: HttpParts,
    pub store: Arc<dyn Store>,
    pub clock: Arc<ManualClock>,
    api: axum::Router,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn lines(&self) -> Vec<Value> {
        self.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The code of a problem that is put together as RFC 9457 has it.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json", "{}", self.text);
        let body = self.json();
        assert_eq!(body["status"], self.status.as_u16());
        assert_eq!(body["type"], "about:blank");
        assert!(body["title"].is_string() && !body["detail"].as_str().unwrap().is_empty());
        assert!(body["retryable"].is_boolean(), "{body}");
        (self.status.as_u16(), body["code"].as_str().unwrap().to_owned())
    }
}

impl TestApi {
    pub async fn new() -> Self {
        Self::with(Auth::open()).await
    }

    pub async fn with(auth: Auth) -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(NOW_MS));
        let small = SmallStore::new(clock.clone()).await;
        Self::on(&small, small.shared(), clock, auth).await
    }

    /// With a layer around each call of the store, in which it may fail.
    pub async fn over(layer: impl StoreLayer, auth: Auth) -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(NOW_MS));
        let small = SmallStore::new(clock.clone()).await;
        Self::on(&small, Layered::new(small.shared(), layer), clock, auth).await
    }

    async fn on<S: Store>(small: &SmallStore, store: Arc<S>, clock: Arc<ManualClock>, auth: Auth) -> Self {
        let meters = Arc::new(Meters::new());
        let store: Arc<dyn Store> = Metering::of(store, meters.clone());
        let deps = MoveDeps::new(store.clone());
        let catalog = Catalog::open(store.clone(), clock.clone(), Draw::new(rand::random::<u64>)).await.unwrap();
        let router = Router::new(store.clone(), Arc::new(deps.clone()), catalog.clone(), clock.clone(), meters.clone());
        let consumers = EagerConsumers { store: store.clone(), catalog: catalog.clone(), clock: clock.clone() };
        let member = Member { id: "n1".to_owned(), version: "0.1.0".to_owned(), since_ms: NOW_MS, ..Member::default() };
        let cluster = ClusterNodes {
            members: [("n1~1".into(), member)].into(),
            owners: [((TopicName::new("orders").unwrap(), 0), "n1~1".into())].into(),
        };
        let owned = BTreeSet::from([(TopicName::new("orders").unwrap(), 0)]);
        let owned = watch::channel(Arc::new(OwnedShards(owned))).1;
        let resizer = Resizer::new(ResizeDeps {
            deps,
            authority: store.clone(),
            records: store.clone(),
            counts: store.clone(),
            topics: catalog.watch(),
            owned: owned.clone(),
            nodes: catalog.nodes(),
            clock: clock.clone(),
            meters: meters.clone(),
            config: ResizeConfig::default(),
        });
        let watcher = crate::PlanAudit::new(crate::Audit::default(), clock.clone());
        let plans = Plans::new(PlanDeps::new(router.clone(), store.clone(), clock.clone(), watcher, "n1"));
        let put_sinks = PutSinks::new(store.clone(), Arc::new(named_sinks::KnownSinks::default()), clock.clone());
        catalog.read_sinks_too(put_sinks.clone());
        let kept = store.clone();
        let sinks: Arc<dyn duetime_core::SinkStates> = Arc::new(sinks::FixedSinks::default());
        let draining = CancellationToken::new();
        let feed = Feed::new(router.clone(), catalog.clone(), meters.clone(), sinks.clone(), clock.clone());
        tokio::spawn(feed.clone().run(draining.clone()));
        let parts = HttpParts {
            feed,
            plans,
            put_sinks,
            router,
            resizing: Arc::new(resizer),
            catalog,
            backups: small.shared(),
            store,
            consumers: Arc::new(consumers),
            sinks,
            clock: clock.clone(),
            test_clock: None,
            meters,
            auth,
            options: HttpOptions::default(),
            node: NodeInfo { id: "n1".to_owned(), address: String::new() },
            cluster: watch::channel(Arc::new(cluster)).1,
            gone: watch::Sender::default().subscribe(),
            draining,
            ownership: Arc::new(drain::Asked::default()),
        };
        Self { api: crate::router(parts.clone(), axum::Router::new()), parts, clock, store: kept }
    }

    /// The same with other parts.
    pub fn again(&self, parts: HttpParts) -> Self {
        Self {
            api: crate::router(parts.clone(), axum::Router::new()),
            parts,
            clock: self.clock.clone(),
            store: self.store.clone(),
        }
    }

    pub fn clone_api(&self) -> axum::Router {
        self.api.clone()
    }

    /// A node with the topic `orders` of 4 shards.
    pub async fn with_orders() -> Self {
        let api = Self::new().await;
        assert_eq!(api.put("/v1/topics/orders", r#"{"shards":4}"#).await.status, 201);
        api
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = self.api.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        documented(&method, &path, parts.status, &parts.headers);
        assert!(parts.headers.contains_key("x-request-id"), "{method} {path}");
        let mut text = Vec::new();
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            text.extend_from_slice(&chunk.unwrap());
            // A stream of events has no end.
            if parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
                break;
            }
        }
        Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(text).unwrap() }
    }

    pub async fn call(&self, method: &str, path: &str, content_type: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type);
        self.send(request.body(body.into()).unwrap()).await
    }

    /// The same, in JSON, with the token of this secret.
    pub async fn call_as(&self, secret: &str, method: &str, path: &str, body: &str) -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {secret}"));
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub async fn put(&self, path: &str, body: &str) -> Answer {
        self.call("PUT", path, "application/json", body.to_owned()).await
    }

    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.call("POST", path, "application/json", body.to_owned()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Request::delete(path).body(Body::empty()).unwrap()).await
    }

    pub async fn enqueue(&self, message: &str) -> Answer {
        self.post("/v1/topics/orders/messages", message).await
    }

    pub fn advance(&self, by: &str) {
        self.clock.advance(duetime_core::units::parse_duration(by).unwrap());
    }

    /// Everything that is due, claimed and acked: payload by id, in order.
    pub async fn drain(&self) -> Vec<(String, Value)> {
        let mut drained = Vec::new();
        loop {
            let claim = self.post("/v1/topics/orders/claim", r#"{"max":256}"#).await.json();
            let messages = claim["messages"].as_array().unwrap().clone();
            if messages.is_empty() {
                return drained;
            }
            let receipts: Vec<&Value> = messages.iter().map(|m| &m["receipt"]).collect();
            let acked =
                self.post("/v1/topics/orders/ack", &serde_json::json!({"receipts": receipts}).to_string()).await;
            assert_eq!(acked.status, 200);
            drained.extend(messages.iter().map(|m| (m["id"].as_str().unwrap().to_owned(), m["payload"].clone())));
        }
    }
}

/// Panics unless the OpenAPI document has this answer.
fn documented(method: &Method, path: &str, status: StatusCode, headers: &HeaderMap) {
    let document: Value = serde_json::from_str(crate::openapi::text()).unwrap();
    let matches = |template: &str| {
        let (a, b): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
        a.len() == b.len() && a.iter().zip(&b).all(|(t, p)| t == p || (t.starts_with('{') && !p.is_empty()))
    };
    let Some((template, item)) = document["paths"].as_object().unwrap().iter().find(|(t, _)| matches(t)) else {
        assert_eq!(status, 404, "{path} is not documented");
        return;
    };
    let Some(operation) = item.get(method.as_str().to_lowercase()) else {
        assert_eq!(status, 405, "{method} {template} is not documented");
        return;
    };
    let answer = &operation["responses"][status.as_str()];
    assert!(answer.is_object(), "{method} {template} does not document {status}");
    let content_type = headers[header::CONTENT_TYPE].to_str().unwrap().split(';').next().unwrap();
    // Answers line by line are in words there: as a second type they would make the first a union.
    let in_words =
        operation["description"].as_str().is_some_and(|words| words.contains(&format!("`Accept: {content_type}`")));
    assert!(
        in_words || answer["content"][content_type].is_object(),
        "{method} {template} {status} has no {content_type}"
    );
}

pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, work).await.expect("in time")
}
