//! The section `[store]`: its `url` says which store it is, and that store's own struct has the keys.
//!
//! Upstream: reading the file. Downstream: the stores' own settings.

use std::path::Path;
use std::time::Duration;

use duetime_core::Namespace;
use duetime_settings::{Secret, TargetUrl};
use duetime_store_embedded::EmbeddedStoreConfig;
use duetime_store_redis::RedisStoreConfig;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::read::{self, ConfigFault, Read};

/// The `url` where none is given.
pub const DEFAULT_STORE: &str = "embedded:./duetime-data";

/// What is wrong with a URL of neither; does not show it, for it may have a password.
const URLS: &str = "write embedded:PATH, redis://HOST:PORT/DB, redis-cluster://HOST:PORT,HOST:PORT or \
                    redis-sentinel://HOST:PORT,HOST:PORT/MASTER; over TLS rediss for redis";

/// Keys of Redis that any store may have with this value: files that were made from the example have them, and there
/// they change nothing.
const SAYS_NOTHING: [(&str, &str); 2] = [("namespace", Namespace::DEFAULT), ("durability", "memory")];

/// The section `[store]`.
#[derive(Clone, Debug)]
pub enum StoreConfig {
    /// One folder on this machine.
    Embedded(EmbeddedStoreConfig),
    /// One Redis server, the one that sentinels name, or a cluster.
    Redis(Box<RedisStoreConfig>),
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self::of_url(DEFAULT_STORE.to_owned().into()).expect("the default is one of ours")
    }
}

impl StoreConfig {
    /// The store at `url`, all else as it is by default.
    ///
    /// # Errors
    ///
    /// A sentence that lists what can be written.
    pub fn of_url(url: Secret) -> Result<Self, String> {
        if let Some(config) = EmbeddedStoreConfig::of_url(url.expose()) {
            return Ok(Self::Embedded(config));
        }
        if RedisStoreConfig::is_url(url.expose()) {
            return Ok(Self::Redis(Box::new(RedisStoreConfig { url, ..RedisStoreConfig::default() })));
        }
        Err(URLS.to_owned())
    }

    /// Whether several nodes can be on it.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    /// The folder on this machine that it is in.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Embedded(config) => Some(&config.folder),
            Self::Redis(_) => None,
        }
    }

    /// For how long a call may still be carried out that its caller has given up.
    #[must_use]
    pub fn late_for(&self) -> Duration {
        match self {
            Self::Embedded(_) => duetime_router::LATE_FOR,
            Self::Redis(config) => duetime_router::late_for(config.retry_for, config.response_timeout),
        }
    }

    /// What all keys begin with, in etcd too.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        match self {
            Self::Embedded(_) => Namespace::default(),
            Self::Redis(config) => config.namespace.clone(),
        }
    }

    /// The URL as it may be shown: without user and password.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Embedded(config) => config.url(),
            Self::Redis(config) => TargetUrl::new(config.url.expose()).to_string(),
        }
    }

    /// What is secret in the URL.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        match self {
            Self::Embedded(_) => Vec::new(),
            Self::Redis(config) => TargetUrl::new(config.url.expose()).secrets(),
        }
    }

    /// Values that make no sense: the key, and a sentence with the fix.
    #[must_use]
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Embedded(_) => Vec::new(),
            Self::Redis(config) => config.faults(),
        }
    }
}

/// The key that chooses.
#[derive(Deserialize)]
struct StoreChoice {
    url: Secret,
}

/// Reads the section, whose `url` is there.
pub fn section(table: &Table) -> Read<StoreConfig> {
    let mut keys = table.clone();
    let url = keys.remove("url").map(|url| ("url".to_owned(), url)).into_iter().collect();
    let Read { value: choice, mut faults } = read::section::<StoreChoice>(&url);
    read::wipe(url);
    let value = match choice.map(|StoreChoice { url }| (StoreConfig::of_url(url.clone()), url)) {
        Some((Ok(StoreConfig::Embedded(_)), url)) => {
            faults.extend(take_redis_keys(&mut keys));
            own(keys, &url, &mut faults).map(StoreConfig::Embedded)
        }
        Some((Ok(StoreConfig::Redis(_)), url)) => {
            own(keys, &url, &mut faults).map(|config| StoreConfig::Redis(Box::new(config)))
        }
        unknown => {
            if let Some((Err(fault), _)) = unknown {
                faults.push((vec!["url".to_owned()], fault));
            }
            // Redis has all keys that there are, so what else is wrong shows as well.
            faults.extend(read::section::<RedisStoreConfig>(&keys).faults);
            read::wipe(keys);
            None
        }
    };
    Read { value, faults }
}

/// Reads the struct of the store that was chosen. The URL may be in a file: it is read once, and put in here.
fn own<T: DeserializeOwned>(mut keys: Table, url: &Secret, faults: &mut Vec<ConfigFault>) -> Option<T> {
    keys.insert("url".to_owned(), Value::String(url.expose().to_owned()));
    let read = read::section(&keys);
    read::wipe(keys);
    faults.extend(read.faults);
    read.value
}

/// Takes the keys of Redis out of the section of another store; each that says something is a fault.
fn take_redis_keys(keys: &mut Table) -> Vec<ConfigFault> {
    let mut faults = Vec::new();
    for key in read::keys::<RedisStoreConfig>() {
        let Some(value) = keys.remove(key) else { continue };
        if !SAYS_NOTHING.iter().any(|(silent, text)| *silent == key && value.as_str() == Some(text)) {
            let fault =
                "is for Redis, and the store is embedded; leave it out, or write url = \"redis://HOST:PORT/DB\"";
            faults.push((vec![key.to_owned()], fault.to_owned()));
        }
    }
    faults
}
