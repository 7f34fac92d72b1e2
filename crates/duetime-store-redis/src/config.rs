//! What an operator sets about the Redis store.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::{Clock, Draw, Namespace};
use duetime_redis::{Dial, LinkConfig, LinkError, RedisUrl, SentinelLogin};
use duetime_settings::{ClientTls, Secret};
use serde::Deserialize;

/// How many replicas have a change when it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Durability {
    /// None are waited for.
    #[default]
    Memory,
    /// So many are waited for, a moment long; an enqueue's answer says how many it were.
    Replicas(u8),
}

impl Durability {
    pub(crate) fn replicas(self) -> u8 {
        match self {
            Self::Memory => 0,
            Self::Replicas(count) => count,
        }
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Replicas(count) => write!(f, "replicas:{count}"),
        }
    }
}

impl TryFrom<String> for Durability {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let count = text.strip_prefix("replicas:").and_then(|count| count.parse().ok());
        match count.filter(|count| (1..=REPLICAS_MAX).contains(count)) {
            Some(count) => Ok(Self::Replicas(count)),
            None if text == "memory" => Ok(Self::Memory),
            None => Err(format!("{text:?} is not known; write \"memory\" or \"replicas:1\"")),
        }
    }
}

/// The section `[store]` of a configuration where `url` is one of Redis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisStoreConfig {
    /// `redis://[user:password@]host[:port][/db]`, `rediss://…` over TLS, `redis-cluster://h:p,h:p,…` or
    /// `redis-sentinel://h:p,…/MASTER`, with `rediss` over TLS; or `{ file = "PATH" }` that holds it.
    pub url: Secret,
    /// What all keys begin with. Default `duetime`.
    pub namespace: Namespace,
    /// Certificates for `rediss…://`: `ca_file`, `cert_file`, `key_file`. Default: the public authorities.
    pub tls: ClientTls,
    /// User of the sentinels, where they ask for one; the servers' is in `url`.
    pub sentinel_user: Option<String>,
    /// Password of the sentinels: a string, `{ file = "PATH" }` or `{ env = "NAME" }`.
    pub sentinel_password: Option<Secret>,
    /// What an acknowledged enqueue, cancel or reschedule survives. Default `memory`: what the persistence of the
    /// server keeps. `replicas:N`: a failover too, once N replicas have it.
    pub durability: Durability,
    /// Connections to Redis, 1 to 64: a call goes over the first that has few calls in progress. Default 3; more than a
    /// few gain nothing.
    pub connections: usize,
    /// Longest wait for a connection to Redis. Default `2s`.
    #[serde(with = "duetime_core::units::duration")]
    pub connect_timeout: Duration,
    /// Longest wait for one answer of Redis. Default `5s`; set it above the longest stall of the server that
    /// is to be sat out without a repetition.
    #[serde(with = "duetime_core::units::duration")]
    pub response_timeout: Duration,
    /// How long a call is repeated while Redis cannot be reached or cannot act. Default `15s`.
    #[serde(with = "duetime_core::units::duration")]
    pub retry_for: Duration,
    /// Which slot of a shard's reply cache this session takes first, of 64. Default: any; two sessions that take the
    /// same one overwrite each other's answers, and a call whose answer is lost ends in an error then. No key of the
    /// section.
    #[serde(skip)]
    pub first_reply_slot: Option<u32>,
    /// Default: those of this machine. No key of the section.
    #[serde(skip)]
    pub surroundings: Surroundings,
}

/// What the store takes from the machine that it runs on, and a simulation brings itself.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Makes connections; none: TCP and TLS do.
    pub dial: Option<Arc<dyn Dial>>,
    /// Where random numbers come from; none: the machine.
    pub draw: Option<Draw>,
    /// The machine's clock, which is compared with the servers' at the start; none: its own. Calls are given the time.
    pub clock: Option<Arc<dyn Clock>>,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("dial", &self.dial).finish_non_exhaustive()
    }
}

impl Default for RedisStoreConfig {
    fn default() -> Self {
        Self {
            url: Secret::new("redis://127.0.0.1:6379"),
            namespace: Namespace::default(),
            tls: ClientTls::default(),
            sentinel_user: None,
            sentinel_password: None,
            durability: Durability::Memory,
            connections: 3,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(15),
            first_reply_slot: None,
            surroundings: Surroundings::default(),
        }
    }
}

/// What its URLs begin with.
const SCHEMES: [&str; 6] = ["redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel"];
/// Most replicas that are waited for.
const REPLICAS_MAX: u8 = 16;
/// Shortest wait for a connection or an answer.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// Most connections one node may hold.
const CONNECTIONS_MAX: usize = 64;

impl RedisStoreConfig {
    /// All values that make no sense: the key of the section, and a sentence with the fix.
    #[must_use]
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        self.read().err().unwrap_or_default()
    }

    /// The URL taken apart, if no value is at fault; this is the one place that reads it.
    fn read(&self) -> Result<RedisUrl, Vec<(&'static str, String)>> {
        let mut found = Vec::new();
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            found.push(("connections", format!("must be 1 to {CONNECTIONS_MAX}")));
        }
        for (key, wait) in [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("retry_for", self.retry_for),
        ] {
            if wait < WAIT_MIN {
                found.push((key, "must be 1ms or more, or no call is ever answered in time".to_owned()));
            }
        }
        let url = match RedisUrl::parse(self.url.expose()) {
            Ok(url) => Some(url),
            Err(error) => {
                found.push(("url", error.to_string()));
                None
            }
        };
        if let Some(fault) = self.tls.fault() {
            found.push(("tls", fault.to_owned()));
        }
        if self.tls.server_name.is_some() {
            let fault =
                "server_name is for etcd and other nodes; Redis's certificate must have the name that is in url";
            found.push(("tls", fault.to_owned()));
        }
        let has_sentinels = url.as_ref().is_none_or(|url| matches!(url, RedisUrl::Sentinel { .. }));
        match (&self.sentinel_user, &self.sentinel_password) {
            (Some(_), None) => found.push(("sentinel_user", "has no password; give sentinel_password too".to_owned())),
            (_, Some(_)) if !has_sentinels => found.push((
                "sentinel_password",
                "is for sentinels; leave it out, or write redis-sentinel://h:p,h:p/MASTER".to_owned(),
            )),
            _ => {}
        }
        match url {
            Some(url) if found.is_empty() => Ok(url),
            _ => Err(found),
        }
    }

    /// Where random numbers come from.
    pub(crate) fn draw(&self) -> Draw {
        self.surroundings.draw.clone().unwrap_or_else(|| Draw::new(rand::random::<u64>))
    }

    /// Whether `url` has a scheme of this store.
    #[must_use]
    pub fn is_url(url: &str) -> bool {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        SCHEMES.contains(&scheme)
    }

    pub(crate) fn link(&self) -> Result<LinkConfig, LinkError> {
        let url = self.read().map_err(|faults| {
            let (key, fault) = faults.into_iter().next().expect("what is refused has a fault");
            LinkError::Setup(format!("store.{key}: {fault}"))
        })?;
        let mut link = LinkConfig::new(url);
        link.tls = self.tls.clone();
        link.sentinel = SentinelLogin { user: self.sentinel_user.clone(), password: self.sentinel_password.clone() };
        link.connections = self.connections;
        link.connect_timeout = self.connect_timeout;
        link.response_timeout = self.response_timeout;
        link.retry_for = self.retry_for;
        link.dial = self.surroundings.dial.clone();
        if link.dial.is_some() {
            // Who simulates the network wants to see calls overtake each other.
            link.calls_shared = 0;
        }
        link.draw = self.draw();
        Ok(link)
    }
}
