//! Which kind of store an address names.

use std::path::PathBuf;

/// A store, as its URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// One folder on this machine.
    Embedded(PathBuf),
    /// One Redis server, the one that sentinels name, or a cluster.
    Redis,
}

impl StoreUrl {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// A sentence that lists what can be written. Never shows the URL: it may carry a password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        match scheme {
            "embedded" if !rest.is_empty() => Ok(Self::Embedded(PathBuf::from(rest))),
            "redis" | "rediss" if rest.starts_with("//") => Ok(Self::Redis),
            "redis-cluster" | "rediss-cluster" | "redis-sentinel" | "rediss-sentinel" if rest.starts_with("//") => {
                Ok(Self::Redis)
            }
            _ => Err("write embedded:PATH, redis://HOST:PORT/DB, redis-cluster://HOST:PORT,HOST:PORT or \
                      redis-sentinel://HOST:PORT,HOST:PORT/MASTER; over TLS rediss for redis"
                .to_owned()),
        }
    }
}
