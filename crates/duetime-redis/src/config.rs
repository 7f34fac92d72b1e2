//! How to reach Redis, and the endpoint for one address of it.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::Draw;
use duetime_settings::{ClientTls, Secret};
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionInfo};

use crate::dial::{Dial, Endpoint, client_of};
use crate::error::LinkError;
use crate::url::RedisUrl;

/// What the sentinels ask for, where they ask.
#[derive(Clone, Debug, Default)]
pub struct SentinelLogin {
    /// The user; without one it is the default user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
}

/// How to reach Redis.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// Where.
    pub url: RedisUrl,
    /// Certificates for `rediss://`.
    pub tls: ClientTls,
    /// For the sentinels alone; the servers' is in the URL.
    pub sentinel: SentinelLogin,
    /// Multiplexed connections to each master: a call goes over the first that has few calls under way. More than a few
    /// gain nothing: Redis runs scripts one at a time.
    pub connections: usize,
    /// A connection with so many calls in progress is passed over for the next one. Below, calls that are made at about
    /// the same time share a write, a read and a wake-up on both sides. A few, for large answers on one connection are
    /// read one after the other: with 16, a drain at most once is a fifth slower. 0: each call goes over the next one.
    pub calls_shared: usize,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for one answer. Above the longest stall that is to be sat out.
    pub response_timeout: Duration,
    /// How long a call is sent again while the server cannot be reached or cannot act.
    pub retry_for: Duration,
    /// Makes connections in place of TCP and TLS; none: those.
    pub dial: Option<Arc<dyn Dial>>,
    /// Where pauses, and who is asked first, are drawn from.
    pub draw: Draw,
}

impl LinkConfig {
    /// The usual values for `url`.
    #[must_use]
    pub fn new(url: RedisUrl) -> Self {
        Self {
            url,
            tls: ClientTls::default(),
            sentinel: SentinelLogin::default(),
            connections: 3,
            calls_shared: 4,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(15),
            dial: None,
            draw: Draw::new(rand::random::<u64>),
        }
    }
}

/// One address, with the certificates of the configuration.
pub(crate) fn endpoint(info: ConnectionInfo, config: &LinkConfig) -> Result<Endpoint, LinkError> {
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let has_files = config.tls.paths().next().is_some();
    if has_files && !matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
        return Err(LinkError::Setup("tls is set but the URL is without; write rediss where it says redis".to_owned()));
    }
    let made = match has_files {
        true => client_of(info, &config.tls),
        false => Client::open(info).map_err(|error| error.to_string()),
    };
    let client = made.map_err(|error| LinkError::Setup(format!("redis connection: {error}")))?;
    Ok(Endpoint::new(client, has_files.then(|| config.tls.clone()), config.dial.clone()))
}
