//! How to reach Redis, and the client for one address of it.

use std::path::PathBuf;
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionInfo, TlsCertificates};

use crate::error::LinkError;
use crate::url::RedisUrl;

/// Certificates for `rediss://`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// PEM file of the authority that signed the server's certificate. Default: the public ones.
    pub ca_file: Option<PathBuf>,
    /// PEM file of this client's certificate, where the server asks for one.
    pub cert_file: Option<PathBuf>,
    /// PEM file of its key.
    pub key_file: Option<PathBuf>,
}

/// What the sentinels ask for, where they ask.
#[derive(Clone, Default)]
pub struct SentinelLogin {
    /// The user; without one it is the default user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl std::fmt::Debug for SentinelLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SentinelLogin").finish_non_exhaustive()
    }
}

/// How to reach Redis.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// Where.
    pub url: RedisUrl,
    /// Certificates.
    pub tls: TlsConfig,
    /// For the sentinels alone; the servers' is in the URL.
    pub sentinel: SentinelLogin,
    /// Multiplexed connections to each master; calls are spread over them. More than a few gain nothing: Redis
    /// runs scripts one at a time.
    pub connections: usize,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for one answer. Above the longest stall that is to be sat out.
    pub response_timeout: Duration,
    /// How long a call is sent again while the server cannot be reached or cannot act.
    pub retry_for: Duration,
}

impl LinkConfig {
    /// The usual values for `url`.
    #[must_use]
    pub fn new(url: RedisUrl) -> Self {
        Self {
            url,
            tls: TlsConfig::default(),
            sentinel: SentinelLogin::default(),
            connections: 3,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(15),
        }
    }
}

fn read(file: &std::path::Path) -> Result<Vec<u8>, LinkError> {
    std::fs::read(file).map_err(|error| LinkError::Setup(format!("cannot read {}: {error}", file.display())))
}

/// A client for one address, with the certificates of the configuration.
pub(crate) fn client(info: ConnectionInfo, config: &LinkConfig) -> Result<Client, LinkError> {
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client_tls = match (&config.tls.cert_file, &config.tls.key_file) {
        (Some(cert), Some(key)) => Some(redis::ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        (None, None) => None,
        _ => return Err(LinkError::Setup("tls: give both cert_file and key_file, or neither".to_owned())),
    };
    let root_cert = config.tls.ca_file.as_deref().map(read).transpose()?;
    let made = if client_tls.is_some() || root_cert.is_some() {
        if !matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
            return Err(LinkError::Setup(
                "tls is set but the URL is without; write rediss where it says redis".to_owned(),
            ));
        }
        Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
    } else {
        Client::open(info)
    };
    made.map_err(|error| LinkError::Setup(format!("redis connection: {error}")))
}
