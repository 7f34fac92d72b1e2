//! Shows nodes to each other where nothing depends on it: in round-robin, for `GET /v1/nodes`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Member, Namespace};
use duetime_redis::Link;
use redis::Value;
use serde::{Deserialize, Serialize};

/// Not heard of for so long, a node is shown no more.
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(10);
/// Longest wait for one answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(800);

/// Where nodes leave word of themselves.
#[async_trait]
pub trait Presence: Send + Sync + std::fmt::Debug + 'static {
    /// Says `me`, and answers who was heard of lately, this node too; `None`: nobody answered.
    async fn say(&self, name: &str, me: &Member) -> Option<BTreeMap<Arc<str>, Member>>;

    /// Takes the word back.
    async fn forget(&self, name: &str);
}

/// Knows of nobody.
#[derive(Debug)]
pub struct NoPresence;

#[async_trait]
impl Presence for NoPresence {
    async fn say(&self, _: &str, _: &Member) -> Option<BTreeMap<Arc<str>, Member>> {
        None
    }

    async fn forget(&self, _: &str) {}
}

#[derive(Serialize, Deserialize)]
struct Word {
    seen_ms: i64,
    #[serde(flatten)]
    member: Member,
}

/// The hash `NAMESPACE:{nodes}` in Redis.
#[derive(Debug)]
pub struct RedisPresence {
    link: Arc<Link>,
    key: String,
}

impl RedisPresence {
    /// Beside the shards of `namespace`.
    #[must_use]
    pub fn new(link: Arc<Link>, namespace: &Namespace) -> Arc<Self> {
        Arc::new(Self { link, key: format!("{namespace}:{{nodes}}") })
    }

    async fn ask(&self, name: &'static str, cmd: redis::Cmd) -> Option<Value> {
        tokio::time::timeout(ANSWER_WITHIN, self.link.command(name, &cmd)).await.ok()?.ok()
    }

    fn cmd(&self, verb: &'static str) -> redis::Cmd {
        let mut cmd = redis::cmd(verb);
        cmd.arg(&self.key);
        cmd
    }
}

#[async_trait]
impl Presence for RedisPresence {
    async fn say(&self, name: &str, me: &Member) -> Option<BTreeMap<Arc<str>, Member>> {
        // By redis's clock: a node whose own is wrong must not forget the others.
        let now_ms = tokio::time::timeout(ANSWER_WITHIN, self.link.clock()).await.ok()?.ok()?;
        let word = serde_json::to_string(&Word { seen_ms: now_ms, member: me.clone() }).expect("words are plain");
        let mut set = self.cmd("HSET");
        set.arg(name).arg(word);
        self.ask("hset", set).await?;
        let all = self.ask("hgetall", self.cmd("HGETALL")).await?;
        let all: BTreeMap<String, String> = redis::from_redis_value(all).ok()?;
        let (mut members, mut stale) = (BTreeMap::new(), Vec::new());
        for (name, text) in all {
            match serde_json::from_str::<Word>(&text) {
                Ok(word) if now_ms - word.seen_ms <= FORGET_AFTER.as_millis() as i64 => {
                    members.insert(name.into(), word.member);
                }
                _ => stale.push(name),
            }
        }
        if !stale.is_empty() {
            let mut del = self.cmd("HDEL");
            del.arg(stale);
            self.ask("hdel", del).await;
        }
        Some(members)
    }

    async fn forget(&self, name: &str) {
        let mut del = self.cmd("HDEL");
        del.arg(name);
        self.ask("hdel", del).await;
    }
}
