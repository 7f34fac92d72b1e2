//! What lies over the configuration file: flags, each with a variable. `serve` and `check-config` take the same, so that
//! a file is judged with what the node of these variables would have.

use toml::Value;

use crate::config::{Overlay, OwnershipMode};
use crate::logs::LogFormat;

/// What lies over the configuration file: each has a variable and a key in the file.
#[derive(Clone, Debug, clap::Args)]
pub struct ConfigFlags {
    /// Where messages are kept: embedded:PATH, redis://HOST:PORT/DB, redis-cluster://HOST:PORT,… or
    /// redis-sentinel://HOST:PORT,…/MASTER; over TLS rediss for redis [default: embedded:./duetime-data]
    #[arg(long, value_name = "URL", env = "DUETIME_STORE", hide_env_values = true)]
    pub store: Option<String>,
    /// What all keys in Redis begin with. [default: duetime]
    #[arg(long, value_name = "NAME", env = "DUETIME_NAMESPACE")]
    pub namespace: Option<String>,
    /// Where to listen. [default: 127.0.0.1:3830]
    #[arg(long, value_name = "ADDR", env = "DUETIME_LISTEN")]
    pub listen: Option<String>,
    /// Where the other nodes ask this one for its figures: http://HOST:PORT, or an IP address. [default: where it listens,
    /// if that is one address]
    #[arg(long, value_name = "URL", env = "DUETIME_ADVERTISE")]
    pub advertise: Option<String>,
    /// Who shares the shards. [default: solo]
    #[arg(long, value_enum, value_name = "MODE", env = "DUETIME_OWNERSHIP")]
    pub ownership: Option<OwnershipMode>,
    /// Addresses of etcd.
    #[arg(long, value_name = "URL", env = "DUETIME_ETCD", hide_env_values = true, value_delimiter = ',')]
    pub etcd: Vec<String>,
    /// This node's name. [default: the machine's]
    #[arg(long, value_name = "NAME", env = "DUETIME_NODE_ID")]
    pub node_id: Option<String>,
    /// How long a stop may take. [default: 10s]
    #[arg(long, value_name = "DURATION", env = "DUETIME_SHUTDOWN_GRACE")]
    pub shutdown_grace: Option<String>,
    /// How log lines look. [default: text]
    #[arg(long, value_enum, value_name = "FORMAT", env = "DUETIME_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}

impl ConfigFlags {
    /// The keys that are given so.
    #[must_use]
    pub fn overlays(&self) -> Vec<Overlay> {
        fn word<T: clap::ValueEnum>(value: T) -> String {
            value.to_possible_value().expect("no value is hidden").get_name().to_owned()
        }
        let given = [
            ("--store", ("store", "url"), self.store.clone()),
            ("--namespace", ("store", "namespace"), self.namespace.clone()),
            ("--listen", ("node", "listen"), self.listen.clone()),
            ("--advertise", ("node", "advertise"), self.advertise.clone()),
            ("--ownership", ("ownership", "mode"), self.ownership.map(word)),
            ("--node-id", ("node", "id"), self.node_id.clone()),
            ("--shutdown-grace", ("node", "shutdown_grace"), self.shutdown_grace.clone()),
            ("--log-format", ("node", "log_format"), self.log_format.map(word)),
        ];
        let mut overlays: Vec<Overlay> = given
            .into_iter()
            .filter_map(|(flag, key, value)| Some(Overlay { flag, key, value: Value::from(value?) }))
            .collect();
        if !self.etcd.is_empty() {
            let value = Value::Array(self.etcd.iter().cloned().map(Value::from).collect());
            overlays.push(Overlay { flag: "--etcd", key: ("ownership", "etcd"), value });
        }
        overlays
    }
}
