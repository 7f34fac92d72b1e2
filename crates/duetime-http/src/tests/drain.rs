//! Nodes that an operator drains.

use std::sync::Arc;

use async_trait::async_trait;
use duetime_core::ownership::Demand;
use duetime_core::{ClusterNodes, Drain, Member, MemberState, OwnedShards, Ownership, TopicName};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use super::{NOW_MS, TestApi};
use crate::HttpParts;

/// Keeps what it is asked, and has this issue.
#[derive(Debug, Default)]
pub struct Asked {
    pub drains: Mutex<Vec<(String, Option<Drain>)>>,
    pub issue: Mutex<Option<String>>,
    pub takes_turns: bool,
}

#[async_trait]
impl Ownership for Asked {
    fn mode(&self) -> &'static str {
        "etcd"
    }
    fn takes_turns(&self) -> bool {
        self.takes_turns
    }
    async fn demand(&self, _: Demand) {}
    fn owned(&self) -> watch::Receiver<Arc<OwnedShards>> {
        watch::Sender::default().subscribe()
    }
    fn cluster(&self) -> watch::Receiver<Arc<ClusterNodes>> {
        watch::Sender::default().subscribe()
    }
    fn issue(&self) -> Option<String> {
        self.issue.lock().clone()
    }
    async fn settled(&self, _: &TopicName, _: u32) {}
    async fn set_unhealthy(&self, _: Option<String>) {}
    async fn drain(&self, member: &str, drain: Option<Drain>) -> Result<(), String> {
        if member == "n9~1" {
            return Err("etcd is away".to_owned());
        }
        self.drains.lock().push((member.to_owned(), drain));
        Ok(())
    }
    async fn leave(&self) {}
}

fn member(id: &str) -> Member {
    Member { id: id.to_owned(), ..Member::default() }
}

#[tokio::test]
async fn a_node_is_drained_through_any_other_unless_it_is_the_last_one() {
    let api = TestApi::with_orders().await;
    assert_eq!(api.post("/v1/nodes/n1/drain", "{}").await.problem(), (409, "last_node".to_owned()));
    let asked = Arc::new(Asked::default());
    let members = [("n1~1", member("n1")), ("n2~1", member("n2")), ("n2~2", member("n2")), ("n9~1", member("n9"))];
    let cluster = ClusterNodes {
        members: members.into_iter().map(|(name, one)| (name.into(), one)).collect(),
        ..ClusterNodes::default()
    };
    let (_keep, cluster) = watch::channel(Arc::new(cluster));
    let api = api.again(HttpParts { ownership: asked.clone(), cluster, ..api.parts.clone() });
    let answer = api.post("/v1/nodes/n2/drain", "{}").await;
    assert_eq!(answer.json(), json!({"id": "n2", "draining": true, "nodes": 2}));
    assert_eq!(api.post("/v1/nodes/n2/undrain", "{}").await.json()["draining"], false);
    let drain = Some(Drain { by: None, at_ms: NOW_MS });
    let told = |name: &str, drain: &Option<Drain>| (name.to_owned(), drain.clone());
    let all = [told("n2~1", &drain), told("n2~2", &drain), told("n2~1", &None), told("n2~2", &None)];
    assert_eq!(*asked.drains.lock(), all);
    assert_eq!(api.post("/v1/nodes/nobody/drain", "{}").await.problem(), (404, "unknown_node".to_owned()));
    assert_eq!(api.post("/v1/nodes/n9/drain", "{}").await.problem(), (503, "authority_unavailable".to_owned()));
    let audit = api.get("/v1/audit").await.json();
    assert!(audit["entries"].to_string().contains("/v1/nodes/{id}/drain"), "{audit}");
}

#[tokio::test]
async fn a_drained_node_says_so_and_is_not_ready() {
    let api = TestApi::with_orders().await;
    let drain = Some(Drain { by: Some("ops".to_owned()), at_ms: 7 });
    let drained = Member { state: MemberState::Draining, drain, ..member("n1") };
    let cluster = ClusterNodes { members: [("n1~1".into(), drained)].into(), ..ClusterNodes::default() };
    let (_keep, cluster) = watch::channel(Arc::new(cluster));
    let api = api.again(HttpParts { cluster, ..api.parts.clone() });
    assert_eq!(api.get("/readyz").await.problem(), (503, "draining".to_owned()));
    let node = api.get("/v1/nodes").await.json()["nodes"][0].clone();
    assert_eq!((&node["state"], &node["drain"]), (&json!("draining"), &json!({"by": "ops", "at": 7})));
    assert_eq!(api.enqueue(r#"{"id":"a"}"#).await.status, 201);
}

#[tokio::test]
async fn a_node_that_cannot_share_shards_out_as_it_should_is_degraded_and_says_why() {
    let asked = Arc::new(Asked::default());
    let api = TestApi::with_orders().await;
    let api = api.again(HttpParts { ownership: asked.clone(), ..api.parts.clone() });
    let ready = api.get("/readyz").await.json();
    assert_eq!((&ready["status"], ready.get("issues")), (&json!("ready"), None));
    *asked.issue.lock() = Some("etcd takes no writes of this node".to_owned());
    let degraded = api.get("/readyz").await.json();
    assert_eq!(
        (&degraded["status"], &degraded["issues"][0]),
        (&json!("degraded"), &json!("etcd takes no writes of this node"))
    );
    assert!(degraded["found"]["sharing"].as_str().unwrap().contains("does not work"), "{degraded}");
}
