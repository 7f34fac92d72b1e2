//! What an operator sets: one TOML file, overlaid by variables and flags.
//!
//! Each section's struct lies beside its component where there is one; this file puts them together.

mod check;
mod declared;
mod file;
mod first_message;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod read;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use duetime_core::TopicConfig;
use duetime_http::{AuditTarget, AuthConfig, TlsFiles};
use duetime_ownership::EtcdConfig;
use duetime_resize::ResizeConfig;
use duetime_settings::ClientTls;
use duetime_sinks::{SinkConfig, SinksByApiConfig};
use serde::Deserialize;

pub use declared::{Declared, DeclaredSink, DeclaredTopic, read_declared};
pub use file::{ConfigLines, Overlay, ReadConfig, check_text, load};
pub use first_message::{TopicPattern, TopicsDefault};
pub use store::StoreConfig;

use crate::logs::LogFormat;

/// The section `[node]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// This node's name in lists and logs. Default: the machine's name, or `node` where it has none.
    pub id: Option<String>,
    /// Where it listens. Default `127.0.0.1:3830`; other than loopback only with tokens.
    pub listen: String,
    /// Where the other nodes ask this one for figures of its own: `http://HOST:PORT` or `https://HOST:PORT`, or an IP
    /// address alone, with the port of `listen`. Default: `listen`, unless that is all addresses of the machine
    /// (`0.0.0.0`): then it publishes none.
    ///
    /// Set it where several nodes share shards and listen on all addresses.
    pub advertise: Option<String>,
    /// `{ ca_file = "PATH", cert_file = "PATH", key_file = "PATH" }`: how this node asks the others where they have TLS.
    /// Default: it trusts the public authorities, and shows no certificate.
    pub peer_tls: ClientTls,
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
            advertise: None,
            peer_tls: ClientTls::default(),
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
#[derive(Clone, Debug, Default)]
pub struct OwnershipConfig {
    /// `solo`, `round-robin` or `etcd`. Default `solo`.
    pub mode: OwnershipMode,
    /// All other keys.
    pub etcd: EtcdConfig,
}

impl OwnershipMode {
    /// As the file has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Solo => "solo",
            Self::RoundRobin => "round-robin",
            Self::Etcd => "etcd",
        }
    }
}

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
    /// `[console]`
    pub console: ConsoleConfig,
    /// `[sinks.NAME]`
    pub sinks: BTreeMap<String, SinkConfig>,
    /// `[sinks_by_api]`
    pub sinks_by_api: SinksByApiConfig,
    /// `[topics.NAME]`
    pub topics: BTreeMap<String, TopicConfig>,
    /// `[topics."BEGINNING*"]`
    pub topic_patterns: BTreeMap<String, TopicPattern>,
    /// `[topics_default]`
    pub topics_default: TopicsDefault,
}

/// `[console]`
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleConfig {
    /// What the web page of the node lets people do: `"full"`, `"read-only"` or `"off"`. What a token may do is another matter.
    pub mode: ConsoleMode,
    /// An address of its own: the page is served there and not at that of the node; the API answers at both.
    /// Default: none.
    pub listen: Option<String>,
    /// What the page calls this cluster, 40 characters at most: `production`. Default: nothing.
    ///
    /// Give each cluster its name where people have the pages of several open.
    pub name: Option<String>,
    /// The colour of the page's upper edge: `grey`, `red`, `orange`, `green`, `blue` or `purple`. Default: none.
    pub colour: Option<ConsoleColour>,
    /// The page has "Try it", where messages are enqueued and claimed by hand. Default `true`.
    ///
    /// Set it to `false` in production, where a claim by hand takes messages from those whose work they are. What a
    /// token may do is another matter.
    #[serde(rename = "try")]
    pub has_try: bool,
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        Self { mode: ConsoleMode::default(), listen: None, name: None, colour: None, has_try: true }
    }
}

/// The colour of the upper edge of the console's pages, by which people tell clusters apart. It means nothing to the
/// program: which cluster has which is agreed among those who operate them, such as red for production. Each is
/// legible beside light and dark pages.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConsoleColour {
    /// `grey`, `#808a96`.
    Grey,
    /// `red`, `#d1242f`.
    Red,
    /// `orange`, `#d9730d`.
    Orange,
    /// `green`, `#1f883d`.
    Green,
    /// `blue`, `#1f6feb`.
    Blue,
    /// `purple`, `#8250df`.
    Purple,
}

/// See [`ConsoleConfig::mode`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConsoleMode {
    /// Everything.
    #[default]
    Full,
    /// Look, and change nothing.
    ReadOnly,
    /// There is no page.
    Off,
}

impl ConsoleConfig {
    /// Its own address, where it is to have one.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        self.listen.as_deref().filter(|_| !matches!(self.mode, ConsoleMode::Off)).map(address)
    }

    /// As the console takes it.
    #[must_use]
    pub fn pages(&self) -> duetime_console::Pages {
        duetime_console::Pages { mode: self.mode(), label: self.label(), without_try: !self.has_try }
    }

    fn label(&self) -> duetime_console::Label {
        let colour = self.colour.map_or("", |colour| match colour {
            ConsoleColour::Grey => "grey",
            ConsoleColour::Red => "red",
            ConsoleColour::Orange => "orange",
            ConsoleColour::Green => "green",
            ConsoleColour::Blue => "blue",
            ConsoleColour::Purple => "purple",
        });
        duetime_console::Label { name: self.name.clone().unwrap_or_default(), colour }
    }

    fn mode(&self) -> duetime_console::Mode {
        match self.mode {
            ConsoleMode::Full => duetime_console::Mode::Full,
            ConsoleMode::ReadOnly => duetime_console::Mode::ReadOnly,
            ConsoleMode::Off => duetime_console::Mode::Off,
        }
    }
}

impl NodeConfig {
    /// Where it listens, as an address.
    #[must_use]
    pub fn address(&self) -> String {
        address(&self.listen)
    }
}

/// `localhost:PORT` as an address.
fn address(listen: &str) -> String {
    match listen.strip_prefix("localhost:") {
        Some(port) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        None => listen.to_owned(),
    }
}

impl Config {
    /// What is secret of it, besides what is written as a [`Secret`] as a whole. Of tokens there are hashes only.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        self.store.secrets()
    }

    /// The node's name.
    #[must_use]
    pub fn node_id(&self) -> String {
        let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
        self.node.id.clone().or_else(machine).filter(|name| !name.is_empty()).unwrap_or_else(|| "node".to_owned())
    }
}
