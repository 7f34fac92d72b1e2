//! Where Redis is: one URL for each topology.

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::error::LinkError;

/// A store URL, taken apart. Shown without user and password.
#[derive(Clone)]
pub enum RedisUrl {
    /// `redis://[user:password@]host[:port][/db]`, or `rediss://` over TLS.
    Standalone(Box<ConnectionInfo>),
    /// `redis-sentinel://[user:password@]h:p,h:p,…/MASTER`; user and password are those of the servers.
    /// `rediss-sentinel://`: sentinels and servers speak TLS.
    Sentinel {
        /// Addresses of the sentinels.
        sentinels: Vec<String>,
        /// The name they know the primary by.
        master: String,
        /// User and password, with the first address.
        base: Box<ConnectionInfo>,
    },
    /// `redis-cluster://[user:password@]h:p,h:p,…`, or `rediss-cluster://` over TLS.
    Cluster {
        /// Addresses to start from.
        nodes: Vec<String>,
        /// User and password, with the first address.
        base: Box<ConnectionInfo>,
    },
}

impl RedisUrl {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// [`LinkError::Setup`], without the password that may be in it.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let setup = |what: &str| LinkError::Setup(format!("store URL: {what}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(|| setup("write redis://host:port/db"))?;
        let hosts = |list: &str| -> Result<Vec<String>, LinkError> {
            let all: Vec<String> = list.rsplit('@').next().unwrap_or("").split(',').map(str::to_owned).collect();
            if all.iter().any(String::is_empty) {
                Err(setup("a host is missing; write host:port,host:port"))
            } else {
                Ok(all)
            }
        };
        let base = |list: &str| {
            let first = list.split(',').next().unwrap_or_default();
            let plain = if scheme.starts_with("rediss") { "rediss" } else { "redis" };
            let info = format!("{plain}://{first}").into_connection_info().map_err(|_| {
                setup(&format!("cannot be read; write {scheme}://user:password@h:p,h:p, special characters as %XX"))
            });
            info.map(Box::new)
        };
        match scheme {
            "redis" | "rediss" => {
                text.into_connection_info().map(|info| Self::Standalone(Box::new(info))).map_err(|_| {
                    setup("cannot be read; write redis://user:password@host:port/db, special characters as %XX")
                })
            }
            "redis-sentinel" | "rediss-sentinel" => {
                let write = || format!("write {scheme}://h:p,h:p/MASTER");
                let (list, master) = rest.rsplit_once('/').ok_or_else(|| setup(&write()))?;
                if master.is_empty() {
                    return Err(setup(&format!("the name of the master is missing; {}", write())));
                }
                Ok(Self::Sentinel { sentinels: hosts(list)?, master: master.to_owned(), base: base(list)? })
            }
            "redis-cluster" | "rediss-cluster" => {
                let list = rest.trim_end_matches('/');
                Ok(Self::Cluster { nodes: hosts(list)?, base: base(list)? })
            }
            other => Err(setup(&format!(
                "{other:?} is unknown; use redis, redis-sentinel or redis-cluster, and rediss for redis over TLS"
            ))),
        }
    }
}

/// The same server user and the same TLS at another address.
pub(crate) fn elsewhere(base: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    base.clone().set_addr(match base.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    })
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standalone(info) => write!(f, "redis at {}", info.addr()),
            Self::Sentinel { sentinels, master, .. } => write!(f, "redis {master:?} by {}", sentinels.join(",")),
            Self::Cluster { nodes, .. } => write!(f, "redis cluster at {}", nodes.join(",")),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let url = RedisUrl::parse("rediss://ann:s3cret@redis.example:6380/2").unwrap();
        assert_eq!(url.to_string(), "redis at redis.example:6380");
        assert!(!format!("{url:?}").contains("s3cret"));
        for bad in ["redis://ann:s3cret@:x/1", "http://ann:s3cret@h", "redis-sentinel://ann:s3cret@h:1", "s3cret"] {
            let error = RedisUrl::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn every_topology_has_its_url() {
        assert!(matches!(
            RedisUrl::parse("redis-sentinel://a:1,b:2/main").unwrap(),
            RedisUrl::Sentinel { sentinels, master, .. } if sentinels == ["a:1", "b:2"] && master == "main"
        ));
        assert!(matches!(
            RedisUrl::parse("redis-cluster://a:1,b:2").unwrap(),
            RedisUrl::Cluster { nodes, .. } if nodes.len() == 2
        ));
        let Ok(RedisUrl::Cluster { base, .. }) = RedisUrl::parse("rediss-cluster://ann:s3cret@a:1,b:2") else {
            panic!()
        };
        let other = elsewhere(&base, "c".to_owned(), 3);
        assert!(matches!(other.addr(), ConnectionAddr::TcpTls { host, port: 3, .. } if host == "c"));
        assert_eq!(other.redis_settings().username(), Some("ann"));
    }
}
