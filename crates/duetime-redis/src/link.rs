//! The link itself: sends calls, and sends them again while that can help.
//!
//! A call may reach the server twice: every script must be idempotent. A repeated call is told so.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, Pipeline, TlsCertificates, Value};
use tokio::time::Instant;
use tracing::debug;

use crate::connection::Slot;
use crate::error::{Failure, LinkError};
use crate::replicated::Waits;
use crate::script::Script;
use crate::url::RedisUrl;

/// First pause before a call is sent again; each is twice the one before, half of it drawn.
const BACKOFF_FIRST: Duration = Duration::from_millis(10);
/// Longest pause.
const BACKOFF_MAX: Duration = Duration::from_millis(500);
/// How often one call loads its script before it takes the server for one without memory.
const LOADS_MAX: u8 = 3;

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

/// How to reach Redis.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// Where.
    pub url: RedisUrl,
    /// Certificates.
    pub tls: TlsConfig,
    /// Multiplexed connections; calls are spread over them. More than a few gain nothing: Redis
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
            connections: 3,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(15),
        }
    }
}

/// See the module. Cheap to share.
pub struct Link {
    slots: Vec<Slot>,
    waits: Waits,
    client: Client,
    config: LinkConfig,
    /// The server is older than 7.0.
    legacy: AtomicBool,
    turn: AtomicUsize,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("to", &self.config.url).finish_non_exhaustive()
    }
}

fn read(file: &std::path::Path) -> Result<Vec<u8>, LinkError> {
    std::fs::read(file).map_err(|error| LinkError::Setup(format!("cannot read {}: {error}", file.display())))
}

fn client(config: &LinkConfig) -> Result<Client, LinkError> {
    let info = match &config.url {
        RedisUrl::Standalone(info) => info.as_ref().clone(),
        RedisUrl::Sentinel { .. } | RedisUrl::Cluster { .. } => {
            return Err(LinkError::Setup(
                "Redis Sentinel and Redis Cluster are not supported yet; give a redis:// or rediss:// URL".to_owned(),
            ));
        }
    };
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client_tls = match (&config.tls.cert_file, &config.tls.key_file) {
        (Some(cert), Some(key)) => Some(redis::ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        (None, None) => None,
        _ => return Err(LinkError::Setup("tls: give both cert_file and key_file, or neither".to_owned())),
    };
    let root_cert = config.tls.ca_file.as_deref().map(read).transpose()?;
    let made = if client_tls.is_some() || root_cert.is_some() {
        if !matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }) {
            return Err(LinkError::Setup("tls is set but the URL is redis://; write rediss://".to_owned()));
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
        let client = client(&config)?;
        let slots = (0..config.connections.max(1))
            .map(|_| Slot::new(client.clone(), config.connect_timeout, config.response_timeout))
            .collect();
        let waits = Waits::new(&client, &config);
        Ok(Arc::new(Self { slots, waits, client, config, legacy: AtomicBool::new(false), turn: AtomicUsize::new(0) }))
    }

    /// Where the link leads, without credentials.
    #[must_use]
    pub fn shown(&self) -> String {
        self.config.url.to_string()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn set_legacy(&self, legacy: bool) {
        self.legacy.store(legacy, Ordering::Relaxed);
    }

    /// Whether the server is older than 7.0.
    #[must_use]
    pub fn is_legacy(&self) -> bool {
        self.legacy.load(Ordering::Relaxed)
    }

    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    fn slot(&self) -> &Slot {
        &self.slots[self.turn.fetch_add(1, Ordering::Relaxed) % self.slots.len()]
    }

    /// Runs a script. `fill` adds the keys' number, keys and arguments; it is called again for each
    /// repetition, with `true` once an earlier sending may have taken effect.
    ///
    /// # Errors
    ///
    /// See [`LinkError`]; transient ones only after the configured bound.
    pub async fn script<F>(&self, script: &Script, fill: F) -> Result<Value, LinkError>
    where
        F: Fn(&mut Cmd, bool) + Send + Sync,
    {
        let mut patience = self.patience(script.name());
        let (mut unsure, mut load) = (false, false);
        loop {
            let failure = match self.script_once(script, &fill, unsure, load).await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            load |= matches!(failure, Failure::NoScript);
            unsure |= matches!(failure, Failure::Transient { reconnect: true, .. });
            patience.after(failure).await?;
        }
    }

    async fn script_once<F>(&self, script: &Script, fill: &F, unsure: bool, load: bool) -> Result<Value, Failure>
    where
        F: Fn(&mut Cmd, bool) + Send + Sync,
    {
        let slot = self.slot();
        let (generation, mut connection) = slot.get().await?;
        let legacy = self.is_legacy();
        if load {
            let mut loading = redis::cmd("SCRIPT");
            loading.arg("LOAD").arg(script.code(legacy));
            settle(slot, generation, connection.send_packed_command(&loading).await)?;
        }
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(script.sha(legacy));
        fill(&mut cmd, unsure);
        settle(slot, generation, connection.send_packed_command(&cmd).await)
    }

    /// Runs one plain command that may be repeated.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub async fn command(&self, name: &'static str, cmd: &Cmd) -> Result<Value, LinkError> {
        let mut patience = self.patience(name);
        loop {
            match self.command_once(cmd).await {
                Ok(value) => return Ok(value),
                Err(failure) => patience.after(failure).await?,
            }
        }
    }

    async fn command_once(&self, cmd: &Cmd) -> Result<Value, Failure> {
        let slot = self.slot();
        let (generation, mut connection) = slot.get().await?;
        settle(slot, generation, connection.send_packed_command(cmd).await)
    }

    /// Runs plain commands that may be repeated, in one round trip. Any error fails them all.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub async fn pipeline(&self, name: &'static str, pipeline: &Pipeline) -> Result<Vec<Value>, LinkError> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let mut patience = self.patience(name);
        loop {
            match self.pipeline_once(pipeline).await {
                Ok(values) => return Ok(values),
                Err(failure) => patience.after(failure).await?,
            }
        }
    }

    async fn pipeline_once(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        let slot = self.slot();
        let (generation, mut connection) = slot.get().await?;
        let sent = connection.send_packed_commands(pipeline, 0, pipeline.len()).await;
        let Value::Array(values) = settle(slot, generation, sent.map(Value::Array))? else {
            unreachable!("wrapped above")
        };
        for value in &values {
            if let Some(error) = server_error(value) {
                return Err(judged(slot, generation, Failure::from(error)));
            }
        }
        Ok(values)
    }

    /// Runs plain commands in one round trip, each with its own answer. They are sent once: for those
    /// that must not be repeated.
    ///
    /// # Errors
    ///
    /// [`LinkError::Unavailable`]: nothing is known of any of them.
    pub async fn each_once(&self, pipeline: &Pipeline) -> Result<Vec<Result<Value, LinkError>>, LinkError> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let slot = self.slot();
        let (generation, mut connection) = slot.get().await.map_err(LinkError::from)?;
        let sent = connection.send_packed_commands(pipeline, 0, pipeline.len()).await;
        let values = match settle(slot, generation, sent.map(Value::Array)) {
            Ok(Value::Array(values)) => values,
            Ok(_) => unreachable!("wrapped above"),
            Err(failure) => return Err(failure.into()),
        };
        let own = |value: Value| match server_error(&value) {
            Some(error) => Err(judged(slot, generation, Failure::from(error)).into()),
            None => Ok(value),
        };
        Ok(values.into_iter().map(own).collect())
    }

    pub(crate) fn patience(&self, call: &'static str) -> Patience {
        Patience { call, give_up: Instant::now() + self.config.retry_for, pause: BACKOFF_FIRST, loads: 0 }
    }
}

/// What is left of a call's time, and how long to wait before the next sending.
pub(crate) struct Patience {
    call: &'static str,
    give_up: Instant,
    pause: Duration,
    loads: u8,
}

impl Patience {
    /// Waits if sending again can help; else says why not.
    pub(crate) async fn after(&mut self, failure: Failure) -> Result<(), LinkError> {
        let text = match failure {
            Failure::Final(error) => return Err(error),
            Failure::NoScript if self.loads < LOADS_MAX => {
                self.loads += 1;
                return Ok(());
            }
            Failure::NoScript => "redis forgets its scripts as fast as they are loaded".to_owned(),
            Failure::Transient { text, .. } => text,
        };
        let wait = self.pause.mul_f64(rand::random_range(0.5..1.0));
        if Instant::now() + wait >= self.give_up {
            return Err(LinkError::Unavailable(text));
        }
        debug!(call = self.call, reason = %text, "redis cannot answer, trying again");
        tokio::time::sleep(wait).await;
        self.pause = (self.pause * 2).min(BACKOFF_MAX);
        Ok(())
    }
}

pub(crate) fn server_error(value: &Value) -> Option<&redis::ServerError> {
    match value {
        Value::ServerError(error) => Some(error),
        _ => None,
    }
}

/// Judges one answer, and ends the connection where that is called for.
fn settle(slot: &Slot, generation: u64, answer: redis::RedisResult<Value>) -> Result<Value, Failure> {
    let failure = match answer {
        Ok(value) => match server_error(&value) {
            None => return Ok(value),
            Some(error) => Failure::from(error),
        },
        Err(error) => Failure::from(error),
    };
    Err(judged(slot, generation, failure))
}

pub(crate) fn judged(slot: &Slot, generation: u64, failure: Failure) -> Failure {
    if let Failure::Transient { reconnect: true, .. } = failure {
        slot.broken(generation);
    }
    failure
}
