//! Shows nodes to each other where nothing depends on it: in round-robin, for `GET /v1/nodes`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::{Drain, Member, Namespace};
use duetime_redis::{Link, NOT_AFTER, Script};
use redis::Value;
use serde::{Deserialize, Serialize};

/// A node that was not heard of for this long is shown no more.
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(10);
/// A drained node that was not heard of for this long is drained no more: it is gone, or the store did not answer it.
const DRAIN_KEPT_MS: i64 = 24 * 3600 * 1000;
/// Longest wait for one answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(800);

/// What was heard of the nodes.
#[derive(Clone, Debug, Default)]
pub struct NodesSeen {
    /// Nodes that were heard of lately, this one too.
    pub members: BTreeMap<Arc<str>, Member>,
    /// Those of them that an operator drains.
    pub drains: BTreeMap<Arc<str>, Drain>,
}

/// Where nodes leave word of themselves.
#[async_trait]
pub trait Presence: Send + Sync + std::fmt::Debug + 'static {
    /// Says `me`, and answers what was heard lately; `None`: nobody answered.
    async fn say(&self, name: &str, me: &Member) -> Option<NodesSeen>;

    /// Leaves word that the node `name` is to leave its shards to others, or takes it back; false: nobody answered.
    async fn drain(&self, name: &str, drain: Option<&Drain>) -> bool;

    /// Takes the word back.
    async fn forget(&self, name: &str);
}

/// Knows of nobody.
#[derive(Debug)]
pub struct NoPresence;

#[async_trait]
impl Presence for NoPresence {
    async fn say(&self, _: &str, _: &Member) -> Option<NodesSeen> {
        None
    }

    async fn drain(&self, _: &str, _: Option<&Drain>) -> bool {
        false
    }

    async fn forget(&self, _: &str) {}
}

/// What the field of a node begins with that an operator drains, beside the node's own.
const DRAINED: &str = "drain:";

/// Has a node drained, or no longer. A sending that comes late must not undo what was asked of another node meanwhile, so
/// it says until when, by the server's clock, it may be carried out.
///
/// KEYS: the hash. ARGV: the field, its value or "", see [`NOT_AFTER`].
const SET_DRAIN: &str = "
if ARGV[2] == '' then return redis.call('HDEL', KEYS[1], ARGV[1]) end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
";

/// The time of the server that has the hash: any other one may be silent.
///
/// KEYS: the hash.
const CLOCK: &str = "
local time = redis.call('TIME')
return time[1] * 1000 + math.floor(time[2] / 1000)
";

#[derive(Serialize, Deserialize)]
struct Heartbeat {
    seen_ms: i64,
    #[serde(flatten)]
    member: Member,
}

/// The hash `NAMESPACE:{nodes}` in Redis.
#[derive(Debug)]
pub struct RedisPresence {
    link: Arc<Link>,
    key: String,
    set_drain: Script,
    clock: Script,
}

impl RedisPresence {
    /// Beside the shards of `namespace`.
    #[must_use]
    pub fn new(link: Arc<Link>, namespace: &Namespace) -> Arc<Self> {
        let set_drain = Script::new("set_drain", true, &[NOT_AFTER, SET_DRAIN]);
        let clock = Script::new("presence_clock", true, &[CLOCK]);
        Arc::new(Self { link, key: format!("{namespace}:{{nodes}}"), set_drain, clock })
    }

    /// By redis's clock: a node whose own is wrong must not forget the others.
    async fn now_ms(&self) -> Option<i64> {
        let asked = self.link.script(&self.clock, &self.key, |cmd, _| {
            cmd.arg(1).arg(&self.key);
        });
        match tokio::time::timeout(ANSWER_WITHIN, asked).await {
            Ok(Ok(Value::Int(now_ms))) => Some(now_ms),
            _ => None,
        }
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
    async fn say(&self, name: &str, me: &Member) -> Option<NodesSeen> {
        let now_ms = self.now_ms().await?;
        let heartbeat =
            serde_json::to_string(&Heartbeat { seen_ms: now_ms, member: me.clone() }).expect("words are plain");
        let mut set = self.cmd("HSET");
        set.arg(name).arg(heartbeat);
        self.ask("hset", set).await?;
        let all = self.ask("hgetall", self.cmd("HGETALL")).await?;
        let all: BTreeMap<String, String> = redis::from_redis_value(all).ok()?;
        let (mut seen, mut stale, mut drains) = (NodesSeen::default(), Vec::new(), Vec::new());
        for (name, text) in &all {
            if let Some(drained) = name.strip_prefix(DRAINED) {
                drains.push((drained.to_owned(), text));
                continue;
            }
            let heard = serde_json::from_str::<Heartbeat>(text).map(|one| (now_ms - one.seen_ms, one.member));
            match heard {
                Ok((age_ms, member)) if age_ms <= FORGET_AFTER.as_millis() as i64 => {
                    seen.members.insert(name.as_str().into(), member);
                }
                // When it is heard of again it is still drained.
                Ok((age_ms, _)) if age_ms <= DRAIN_KEPT_MS && all.contains_key(&format!("{DRAINED}{name}")) => {}
                _ => stale.push(name.clone()),
            }
        }
        for (name, text) in drains {
            match serde_json::from_str(text) {
                Ok(drain) if seen.members.contains_key(&*name) => drop(seen.drains.insert(name.into(), drain)),
                Ok(_) if all.contains_key(&name) && !stale.contains(&name) => {}
                // The node is gone, and nobody else's start has its name.
                _ => stale.push(format!("{DRAINED}{name}")),
            }
        }
        if !stale.is_empty() {
            let mut del = self.cmd("HDEL");
            del.arg(stale);
            self.ask("hdel", del).await;
        }
        Some(seen)
    }

    async fn drain(&self, name: &str, drain: Option<&Drain>) -> bool {
        let field = format!("{DRAINED}{name}");
        let value = drain.map(|drain| serde_json::to_string(drain).expect("words are plain")).unwrap_or_default();
        let set = self.link.script(&self.set_drain, &self.key, |cmd, sending| {
            cmd.arg(1).arg(&self.key).arg(&field).arg(&value).arg(sending.not_after_ms);
        });
        matches!(tokio::time::timeout(ANSWER_WITHIN, set).await, Ok(Ok(_)))
    }

    async fn forget(&self, name: &str) {
        let mut del = self.cmd("HDEL");
        del.arg(name).arg(format!("{DRAINED}{name}"));
        self.ask("hdel", del).await;
    }
}
