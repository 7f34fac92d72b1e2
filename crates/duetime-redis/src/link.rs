//! The link itself: sends calls, and sends them again while that can help.
//!
//! A call may reach the server twice: every script must be idempotent. A repeated call is told so, and it
//! is repeated, or answered as failed, only when the sending before cannot be carried out any more.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Arg, Client, Cmd, ConnectionInfo, TlsCertificates, Value};

use crate::error::{Failure, LinkError};
use crate::node::Node;
use crate::patience::{Lesson, Patience};
use crate::script::{Script, Sending};
use crate::topology::Topology;
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

/// See the module. Cheap to share.
pub struct Link {
    topology: Topology,
    config: LinkConfig,
    /// A server is older than 7.0.
    legacy: AtomicBool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("to", &self.config.url).finish_non_exhaustive()
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

impl Link {
    /// Makes a link; the first call connects. See [`Link::check`](crate::Checks) for start-up.
    ///
    /// # Errors
    ///
    /// [`LinkError::Setup`]: the topology, a certificate file or the address cannot be used.
    pub fn new(config: LinkConfig) -> Result<Arc<Self>, LinkError> {
        Ok(Arc::new(Self { topology: Topology::new(&config)?, config, legacy: AtomicBool::new(false) }))
    }

    /// Where the link leads, without credentials.
    #[must_use]
    pub fn shown(&self) -> String {
        self.config.url.to_string()
    }

    /// Whether the keys are on several masters.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn set_legacy(&self, legacy: bool) {
        self.legacy.store(legacy, Ordering::Relaxed);
    }

    /// Whether the server is older than 7.0.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        self.legacy.load(Ordering::Relaxed)
    }

    /// Runs a script on the server of `key`, its first one. `fill` adds the keys' number, keys and
    /// arguments; it is called again for each sending. After an error no sending is under way any more.
    ///
    /// # Errors
    ///
    /// See [`LinkError`]; transient ones only after the configured bound.
    pub async fn script<F>(&self, script: &Script, key: &str, fill: F) -> Result<Value, LinkError>
    where
        F: Fn(&mut Cmd, &Sending) + Send + Sync,
    {
        let mut lesson = Lesson::default();
        let mut patience = self.patience(script.name());
        loop {
            let repeated = lesson.unsure;
            let sent = match self.prepared(script, key, &mut lesson).await {
                Ok((node, asking)) => node.carry(asking, |till| self.call(script, &fill, repeated, till)).await,
                Err(failure) => Err(failure),
            };
            let failure = match sent {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            lesson.learn(&failure);
            self.after(&mut patience, failure).await?;
        }
    }

    /// Where to send the call of a script; the script is loaded there if it has to be.
    pub(crate) async fn prepared(
        &self,
        script: &Script,
        key: &str,
        lesson: &mut Lesson,
    ) -> Result<(Arc<Node>, bool), Failure> {
        let (node, asking) = self.route(lesson.ask.take(), Some(Arg::Simple(key.as_bytes()))).await?;
        if lesson.load {
            let mut loading = redis::cmd("SCRIPT");
            loading.arg("LOAD").arg(script.code(self.is_legacy()));
            node.send(&loading, false).await?;
        }
        Ok((node, asking))
    }

    /// One sending of a call.
    pub(crate) fn call<F>(&self, script: &Script, fill: &F, repeated: bool, not_after_ms: i64) -> Cmd
    where
        F: Fn(&mut Cmd, &Sending) + Send + Sync,
    {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(script.sha(self.is_legacy()));
        // An end is so long after the sending began.
        let lifetime = i64::try_from(self.config.response_timeout.as_millis()).unwrap_or(i64::MAX);
        fill(&mut cmd, &Sending { repeated, not_after_ms, since_ms: not_after_ms.saturating_sub(lifetime) });
        cmd
    }

    /// The server of a key, or the one that a redirection for this once named.
    pub(crate) async fn route(
        &self,
        ask: Option<String>,
        key: Option<Arg<&[u8]>>,
    ) -> Result<(Arc<Node>, bool), Failure> {
        Ok(match ask {
            Some(to) => (self.topology.node_at(&to)?, true),
            None => (self.topology.node(key.and_then(bytes_of)).await?, false),
        })
    }

    /// Runs one plain command that may be repeated.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub async fn command(&self, name: &'static str, cmd: &Cmd) -> Result<Value, LinkError> {
        let mut lesson = Lesson::default();
        let mut patience = self.patience(name);
        loop {
            let failure = match self.route(lesson.ask.take(), cmd.args_iter().nth(1)).await {
                Ok((node, asking)) => match node.send(cmd, asking).await {
                    Ok(value) => return Ok(value),
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            lesson.learn(&failure);
            self.after(&mut patience, failure).await?;
        }
    }

    /// Answers as soon as one server that takes writes does.
    ///
    /// # Errors
    ///
    /// See [`LinkError`]: none of them answers.
    pub async fn alive(&self) -> Result<(), LinkError> {
        let masters = self.masters().await?;
        let ping = redis::cmd("PING");
        let asked = masters.iter().map(|node| Box::pin(self.command_on(node, "ping", &ping)));
        futures::future::select_ok(asked).await.map(drop)
    }

    /// The same on one server, whatever keys are where.
    pub(crate) async fn command_on(&self, node: &Node, name: &'static str, cmd: &Cmd) -> Result<Value, LinkError> {
        let mut patience = self.patience(name);
        loop {
            match node.send(cmd, false).await {
                Ok(value) => return Ok(value),
                Err(failure) => self.after(&mut patience, failure).await?,
            }
        }
    }

    /// Every server that takes writes, once it is known who they are.
    pub(crate) async fn masters(&self) -> Result<Vec<Arc<Node>>, LinkError> {
        let mut patience = self.patience("masters");
        loop {
            match self.topology.masters().await {
                Ok(masters) => return Ok(masters),
                Err(failure) => self.after(&mut patience, failure).await?,
            }
        }
    }

    /// Learns from a failure where the call is better sent, and waits if that helps.
    pub(crate) async fn after(&self, patience: &mut Patience, failure: Failure) -> Result<(), LinkError> {
        match &failure {
            Failure::Moved { slot, to } => {
                if let Err(Failure::Final(error)) = self.topology.moved(*slot, to) {
                    return Err(error);
                }
                self.topology.doubt().await;
            }
            Failure::Transient { .. } => self.topology.doubt().await,
            _ => {}
        }
        patience.after(failure).await
    }

    pub(crate) fn patience(&self, call: &'static str) -> Patience {
        self.patience_of(call, self.config.retry_for)
    }

    pub(crate) fn patience_of(&self, call: &'static str, longest: Duration) -> Patience {
        Patience::new(call, longest.min(self.config.retry_for))
    }
}

fn bytes_of(arg: Arg<&[u8]>) -> Option<&[u8]> {
    match arg {
        Arg::Simple(bytes) => Some(bytes),
        _ => None,
    }
}
