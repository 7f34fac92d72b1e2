//! What an operator sets: one TOML file, overlaid by variables and flags.
//!
//! Each section's struct lies beside its component where there is one; this file puts them together.

mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod read;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use duetime_core::hand_over::IN_PLACE_NEEDS_STREAMS;
use duetime_core::{Namespace, TopicConfig};
use duetime_http::{AuditTarget, AuthConfig, TlsFiles};
use duetime_ownership::{EtcdConfig, EtcdTls};
use duetime_resize::ResizeConfig;
use duetime_sinks::{Secret, SinkConfig};
use duetime_store_redis::RedisStoreConfig;
use serde::Deserialize;

pub use file::{Overlay, load};

use crate::logs::LogFormat;
use crate::stores::StoreUrl;

/// The section `[node]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// This node's name in lists and logs. Default: the machine's name, or `node` where it has none.
    pub id: Option<String>,
    /// Where it listens. Default `127.0.0.1:3830`; other than loopback only with tokens.
    pub listen: String,
    /// Names that requests may call this node by, besides addresses and `localhost`: `duetime.example`,
    /// `*.duetime.svc`, or `*` for all, which only a node with tokens may have. Default: none.
    ///
    /// Add the name that clients, a proxy or a service of Kubernetes put into `Host`.
    pub hosts: Vec<String>,
    /// Connections that may be open at once. Default 8192.
    ///
    /// A new one takes the place of one that is idle. `LimitNOFILE` must be 512 above it.
    pub connections: usize,
    /// Connections that may be open from one address. Default 2048.
    ///
    /// Raise it where all clients come through one proxy.
    pub connections_per_address: usize,
    /// What all requests together may take of memory. Default `512MiB`.
    ///
    /// What comes on top is answered 503 `busy`. Set it well below what the machine has.
    #[serde(with = "duetime_core::units::size")]
    pub request_memory: u64,
    /// `{ cert = "PATH", key = "PATH", client_ca = "PATH" }`: TLS on the listener, and with `client_ca`
    /// only for clients with a certificate of that authority. Default: none.
    pub tls: Option<TlsFiles>,
    /// Where a line is written for every change: `"log"` or `{ file = "PATH" }`. Default: nowhere.
    pub audit: Option<AuditTarget>,
    /// How long a stop may take: what is in flight finishes or is given back. Default `10s`.
    ///
    /// Set it below the time after which your supervisor kills, 30 s in Kubernetes.
    #[serde(with = "duetime_core::units::duration")]
    pub shutdown_grace: Duration,
    /// `text` for people, `json` for programs. Default `text`.
    pub log_format: LogFormat,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            id: None,
            listen: "127.0.0.1:3830".to_owned(),
            hosts: Vec::new(),
            connections: 8192,
            connections_per_address: 2048,
            request_memory: 512 << 20,
            tls: None,
            audit: None,
            shutdown_grace: Duration::from_secs(10),
            log_format: LogFormat::Text,
        }
    }
}

/// The section `[store]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// `embedded:PATH`, `redis://[user:password@]host[:port][/db]`, `rediss://…` over TLS,
    /// `redis-cluster://h:p,h:p,…` or `redis-sentinel://h:p,…/MASTER`, with `rediss` over TLS; or
    /// `{ file = "PATH" }` that holds it. Default `embedded:./duetime-data`.
    pub url: Secret,
    /// What all keys begin with. Default `duetime`.
    pub namespace: Namespace,
    /// Certificates for `rediss…://`: `ca_file`, `cert_file`, `key_file`. Default: the public authorities.
    pub tls: toml::Table,
    /// User of the sentinels, where they ask for one; the servers' is in `url`.
    pub sentinel_user: Option<String>,
    /// Password of the sentinels, or `{ file = "PATH" }`.
    pub sentinel_password: Option<Secret>,
    /// What an acknowledged enqueue, cancel or reschedule survives. Default `memory`: on Redis, what
    /// its persistence keeps. `replicas:N`: a failover too, once N replicas have it.
    pub durability: String,
    /// Connections to Redis that calls are spread over, 1 to 64. Default 3.
    pub connections: Option<usize>,
    /// Longest wait for a connection to Redis. Default `2s`.
    pub connect_timeout: Option<toml::Value>,
    /// Longest wait for one answer of Redis. Default `5s`.
    pub response_timeout: Option<toml::Value>,
    /// How long a call is repeated while Redis cannot be reached. Default `15s`.
    pub retry_for: Option<toml::Value>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: Secret::new("embedded:./duetime-data"),
            namespace: Namespace::default(),
            tls: toml::Table::new(),
            sentinel_user: None,
            sentinel_password: None,
            durability: "memory".to_owned(),
            connections: None,
            connect_timeout: None,
            response_timeout: None,
            retry_for: None,
        }
    }
}

impl StoreConfig {
    /// What concerns Redis, as its own room reads it.
    ///
    /// # Errors
    ///
    /// A sentence that names the key.
    pub fn redis(&self) -> Result<RedisStoreConfig, String> {
        let mut table = toml::Table::new();
        table.insert("url".to_owned(), self.url.expose().into());
        table.insert("namespace".to_owned(), self.namespace.as_str().into());
        table.insert("tls".to_owned(), self.tls.clone().into());
        table.insert("durability".to_owned(), self.durability.clone().into());
        let numbers = [("connections", self.connections.map(|n| toml::Value::from(n as i64)))];
        let spans = [
            ("connect_timeout", self.connect_timeout.clone()),
            ("response_timeout", self.response_timeout.clone()),
            ("retry_for", self.retry_for.clone()),
        ];
        let password = self.sentinel_password.as_ref().map(|secret| secret.expose().into());
        let login = [("sentinel_user", self.sentinel_user.clone().map(Into::into)), ("sentinel_password", password)];
        for (name, value) in numbers.into_iter().chain(spans).chain(login) {
            if let Some(value) = value {
                table.insert(name.to_owned(), value);
            }
        }
        RedisStoreConfig::deserialize(table).map_err(|error| error.message().to_owned())
    }
}

/// Who shares the shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OwnershipMode {
    /// One node scans everything.
    #[default]
    Solo,
    /// Nodes take shards in turn, by a counter in Redis.
    RoundRobin,
    /// Nodes hold leases in etcd.
    Etcd,
}

/// The section `[ownership]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnershipConfig {
    /// `solo`, `round-robin` or `etcd`. Default `solo`.
    pub mode: OwnershipMode,
    /// Addresses of etcd.
    pub etcd: Vec<String>,
    /// User of etcd.
    pub etcd_user: Option<String>,
    /// Its password, or `{ file = "PATH" }`.
    pub etcd_password: Option<Secret>,
    /// For `https://` addresses: `ca_file`, `cert_file`, `key_file`, `server_name`. Default: the
    /// public authorities.
    pub etcd_tls: EtcdTls,
    /// How long a silent node keeps its shards, 1 s to 10 m, in whole seconds. Default `10s`.
    ///
    /// Set it above the longest stall of a healthy machine: too low means that shards wander, too
    /// high that a dead node's messages are late by that much.
    #[serde(with = "duetime_core::units::duration")]
    pub lease_ttl: Duration,
}

impl Default for OwnershipConfig {
    fn default() -> Self {
        Self {
            mode: OwnershipMode::Solo,
            etcd: Vec::new(),
            etcd_user: None,
            etcd_password: None,
            etcd_tls: EtcdTls::default(),
            lease_ttl: Duration::from_secs(10),
        }
    }
}

impl OwnershipConfig {
    /// How to reach etcd.
    ///
    /// # Errors
    ///
    /// A sentence that names the key and the fix.
    pub fn etcd(&self) -> Result<EtcdConfig, String> {
        if self.etcd.is_empty() {
            return Err("ownership.etcd: mode \"etcd\" needs its addresses; write etcd = [\"http://HOST:2379\"]".into());
        }
        let mut endpoints = Vec::with_capacity(self.etcd.len());
        for address in &self.etcd {
            let whole = if address.contains("://") { address.clone() } else { format!("http://{address}") };
            if !["http://", "https://"].iter().any(|scheme| whole.starts_with(scheme)) || whole.contains('@') {
                return Err("ownership.etcd: write addresses as http://HOST:2379 or https://HOST:2379, and the \
                            user in ownership.etcd_user"
                    .into());
            }
            endpoints.push(whole);
        }
        if self.etcd_user.is_some() != self.etcd_password.is_some() {
            return Err("ownership.etcd_user: give both etcd_user and etcd_password, or neither".into());
        }
        if self.etcd_tls.cert_file.is_some() != self.etcd_tls.key_file.is_some() {
            return Err("ownership.etcd_tls: give both cert_file and key_file, or neither".into());
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease_ttl) || self.lease_ttl.subsec_nanos() != 0 {
            return Err("ownership.lease_ttl: must be 1s to 10m, in whole seconds".into());
        }
        Ok(EtcdConfig {
            endpoints,
            user: self.etcd_user.clone(),
            password: self.etcd_password.as_ref().map(|secret| secret.expose().to_owned()),
            tls: self.etcd_tls.clone(),
            lease_ttl: self.lease_ttl,
        })
    }
}

/// Most connections that can be asked for.
const CONNECTIONS_MAX: usize = 1_000_000;

/// Least memory for requests: twice the largest body.
const REQUEST_MEMORY_MIN: u64 = 64 << 20;

/// Bounds of `ownership.lease_ttl`.
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(600);

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `[node]`
    pub node: NodeConfig,
    /// `[store]`
    pub store: StoreConfig,
    /// `[ownership]`
    pub ownership: OwnershipConfig,
    /// `[resize]`
    pub resize: ResizeConfig,
    /// `[auth]`
    pub auth: AuthConfig,
    /// `[sinks.NAME]`
    pub sinks: BTreeMap<String, SinkConfig>,
    /// `[topics.NAME]`
    pub topics: BTreeMap<String, TopicConfig>,
}

impl Config {
    /// What is right by itself and wrong together: refusals that name the keys.
    #[must_use]
    pub fn contradictions(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mode = self.ownership.mode;
        let embedded = matches!(StoreUrl::parse(self.store.url.expose()), Ok(StoreUrl::Embedded(_)));
        if mode != OwnershipMode::Solo && embedded {
            found.push(format!(
                "ownership.mode: {:?} shares shards among nodes, and an embedded store has one; use redis://",
                mode_word(mode)
            ));
        }
        if mode == OwnershipMode::Etcd
            && let Err(error) = self.ownership.etcd()
        {
            found.push(error);
        }
        if embedded && self.store.durability != "memory" {
            found.push(format!(
                "store.durability: {:?} is for Redis; an embedded store has everything on its disk before it answers, \
                 write \"memory\"",
                self.store.durability
            ));
        }
        let store = StoreUrl::parse(self.store.url.expose());
        if let Err(error) = &store {
            found.push(format!("store.url: {error}"));
        } else if let Err(error) = self.store.redis() {
            found.push(format!("store: {error}"));
        }
        if let Err(error) = self.resize.check() {
            let key = error.split(' ').next().unwrap_or_default();
            found.push(format!("resize.{key}: {error}"));
        }
        let hosts = duetime_http::Hosts::new(&self.node.hosts);
        if let Err(error) = &hosts {
            found.push(format!("node.hosts: {error}"));
        }
        for (key, value) in
            [("connections", self.node.connections), ("connections_per_address", self.node.connections_per_address)]
        {
            if !(1..=CONNECTIONS_MAX).contains(&value) {
                found.push(format!("node.{key}: must be 1 to {CONNECTIONS_MAX}"));
            }
        }
        if self.node.request_memory < REQUEST_MEMORY_MIN {
            found.push("node.request_memory: must be 64MiB or more, or the largest requests never fit".to_owned());
        }
        if let Some(Err(error)) = self.node.tls.as_ref().map(duetime_http::Tls::load) {
            found.push(format!("node.tls: {error}"));
        }
        match duetime_http::Auth::load(&self.auth) {
            Err(error) => found.push(error),
            Ok(auth) => match self.node.listen.parse::<SocketAddr>() {
                Ok(address) if auth.is_open() && !address.ip().is_loopback() => found.push(format!(
                    "node.listen: {address} can be reached from other machines, and no token is asked for; add \
                     [[auth.tokens]] to the configuration, or listen on 127.0.0.1"
                )),
                Ok(_) if auth.is_open() && hosts.is_ok_and(|hosts| hosts.allow_all()) => found.push(
                    "node.hosts: \"*\" lets any web page reach this node, and no token is asked for; name the hosts, \
                     or add [[auth.tokens]]"
                        .to_owned(),
                ),
                Ok(_) => {}
                Err(_) => found.push(format!(
                    "node.listen: {:?} is not an address; write it like \"127.0.0.1:3830\"",
                    self.node.listen
                )),
            },
        }
        for (name, topic) in &self.topics {
            if let Err(error) = topic.check() {
                found.push(format!("topics.{name}: {error}"));
            }
            if let Some(sink) = &topic.sink
                && !self.sinks.contains_key(&sink.name)
            {
                found.push(format!("topics.{name}.sink: no [sinks.{}] is configured", sink.name));
            }
            let in_place =
                topic.sink.as_ref().and_then(|sink| self.sinks.get(&sink.name)).is_some_and(SinkConfig::is_in_place);
            if in_place && matches!(store, Ok(StoreUrl::Embedded(_))) {
                found.push(format!("topics.{name}.sink: it {IN_PLACE_NEEDS_STREAMS}"));
            }
        }
        found
    }

    /// The node's name.
    #[must_use]
    pub fn node_id(&self) -> String {
        let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
        self.node.id.clone().or_else(machine).filter(|name| !name.is_empty()).unwrap_or_else(|| "node".to_owned())
    }
}

fn mode_word(mode: OwnershipMode) -> &'static str {
    match mode {
        OwnershipMode::Solo => "solo",
        OwnershipMode::RoundRobin => "round-robin",
        OwnershipMode::Etcd => "etcd",
    }
}
