//! What an operator sets about the Redis store.

use std::time::Duration;

use duetime_core::Namespace;
use duetime_redis::{LinkConfig, LinkError, RedisUrl, SentinelLogin, TlsConfig};
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

/// The `[store]` section, as far as it concerns Redis.
#[derive(Clone)]
pub struct RedisStoreConfig {
    /// `redis://[user:password@]host[:port][/db]`, or `rediss://` over TLS.
    pub url: String,
    /// What all keys begin with. Default `duetime`.
    pub namespace: Namespace,
    /// Certificates for `rediss…://`. Default: the public authorities.
    pub tls: TlsConfig,
    /// User of the sentinels, where they ask for one; the servers' is in `url`.
    pub sentinel_user: Option<String>,
    /// Password of the sentinels.
    pub sentinel_password: Option<String>,
    /// What an acknowledged enqueue, cancel or reschedule survives: `memory` (default), what the
    /// server's persistence keeps, or `replicas:N`, a failover to one of N replicas that have it.
    pub durability: Durability,
    /// Connections calls are spread over, 1 to 64. Default 3; more than a few gain nothing.
    pub connections: usize,
    /// Longest wait for a connection. Default `2s`.
    pub connect_timeout: Duration,
    /// Longest wait for one answer. Default `5s`; set it above the longest stall of the server that
    /// is to be sat out without a repetition.
    pub response_timeout: Duration,
    /// How long a call is repeated while the server cannot be reached or cannot act. Default `15s`.
    pub retry_for: Duration,
    /// Which slot of a shard's reply cache this session takes first, of 64. Default: any; two sessions that take the
    /// same one overwrite each other's answers, and a call whose answer is lost ends in an error then.
    pub first_reply_slot: Option<u32>,
}

impl Default for RedisStoreConfig {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".to_owned(),
            namespace: Namespace::default(),
            tls: TlsConfig::default(),
            sentinel_user: None,
            sentinel_password: None,
            durability: Durability::Memory,
            connections: 3,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(15),
            first_reply_slot: None,
        }
    }
}

/// Most replicas that are waited for.
const REPLICAS_MAX: u8 = 16;
/// Most connections one node may hold.
const CONNECTIONS_MAX: usize = 64;

impl RedisStoreConfig {
    /// All values that make no sense: the key of the section, and a sentence with the fix.
    #[must_use]
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            found.push(("connections", format!("store.connections must be 1 to {CONNECTIONS_MAX}")));
        }
        let url = match RedisUrl::parse(&self.url) {
            Ok(url) => Some(url),
            Err(error) => {
                found.push(("url", error.to_string()));
                None
            }
        };
        let has_sentinels = url.is_none_or(|url| matches!(url, RedisUrl::Sentinel { .. }));
        match (&self.sentinel_user, &self.sentinel_password) {
            (Some(_), None) => found.push((
                "sentinel_user",
                "store.sentinel_user has no password; give store.sentinel_password too".to_owned(),
            )),
            (_, Some(_)) if !has_sentinels => found.push((
                "sentinel_password",
                "store.sentinel_password is for sentinels; leave it out, or write redis-sentinel://h:p,h:p/MASTER"
                    .to_owned(),
            )),
            _ => {}
        }
        found
    }

    pub(crate) fn link(&self) -> Result<LinkConfig, LinkError> {
        if let Some((_, fault)) = self.faults().into_iter().next() {
            return Err(LinkError::Setup(fault));
        }
        let mut link = LinkConfig::new(RedisUrl::parse(&self.url)?);
        link.tls = self.tls.clone();
        link.sentinel = SentinelLogin { user: self.sentinel_user.clone(), password: self.sentinel_password.clone() };
        link.connections = self.connections;
        link.connect_timeout = self.connect_timeout;
        link.response_timeout = self.response_timeout;
        link.retry_for = self.retry_for;
        Ok(link)
    }
}

impl std::fmt::Debug for RedisStoreConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may carry a password.
        f.debug_struct("RedisStoreConfig").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
