//! Who the primary is, as the sentinels tell it: asked, checked with the server, asked again in doubt.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, Value};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::error::{Failure, LinkError};
use crate::link::{LinkConfig, client};
use crate::node::Node;
use crate::reply::word;
use crate::url::elsewhere;

/// The sentinels are not asked more often than this.
const REFRESH_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for one sentinel and for the server it names; the next sentinel is asked then.
const TELL_WITHIN: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Sentinels {
    /// User, password and database of the servers the sentinels watch.
    base: ConnectionInfo,
    sentinels: Vec<Node>,
    master: String,
    config: LinkConfig,
    present: RwLock<Option<Arc<Node>>>,
    /// What the last sentinel that was asked in vain said.
    trouble: RwLock<Option<String>>,
    /// When they were asked last; held while they are.
    refreshed: tokio::sync::Mutex<Option<Instant>>,
}

impl Sentinels {
    pub(crate) fn new(
        base: ConnectionInfo,
        addresses: &[String],
        master: String,
        config: LinkConfig,
    ) -> Result<Self, LinkError> {
        // One connection each: they are asked rarely. Certificates are the servers', users are their own.
        let rare = LinkConfig { connections: 1, ..config.clone() };
        let scheme = if matches!(base.addr(), ConnectionAddr::TcpTls { .. }) { "rediss" } else { "redis" };
        let mut login = RedisConnectionInfo::default();
        if let Some(user) = &config.sentinel.user {
            login = login.set_username(user);
        }
        if let Some(password) = &config.sentinel.password {
            login = login.set_password(password);
        }
        let sentinels = addresses
            .iter()
            .map(|address| {
                let odd = |_| LinkError::Setup(format!("store URL: {address:?} is not host:port"));
                let info = format!("{scheme}://{address}").into_connection_info().map_err(odd)?;
                let info = info.set_redis_settings(login.clone());
                Ok(Node::new(address.clone(), client(info, &rare)?, &rare))
            })
            .collect::<Result<_, LinkError>>()?;
        let (present, trouble, refreshed) = (RwLock::default(), RwLock::default(), tokio::sync::Mutex::default());
        Ok(Self { base, sentinels, master, config, present, trouble, refreshed })
    }

    /// The primary.
    pub(crate) async fn node(&self) -> Result<Arc<Node>, Failure> {
        if let Some(node) = self.present.read().clone() {
            return Ok(node);
        }
        self.refresh(true).await?;
        self.present.read().clone().ok_or_else(|| Failure::Transient {
            reconnect: false,
            text: {
                let why = self.trouble.read().clone().unwrap_or_else(|| "none was asked yet".to_owned());
                format!("no sentinel tells of a primary of {}: {why}", self.config.url)
            },
        })
    }

    /// Asks again, unless that was done a moment ago or, without `wait`, is being done.
    pub(crate) async fn refresh(&self, wait: bool) -> Result<(), Failure> {
        let mut refreshed = match self.refreshed.try_lock() {
            Ok(guard) => guard,
            Err(_) if !wait => return Ok(()),
            Err(_) => self.refreshed.lock().await,
        };
        if refreshed.is_some_and(|at| at.elapsed() < REFRESH_EVERY) {
            return Ok(());
        }
        let (mut told, mut unknown, mut refused) = (false, 0, None);
        let first = rand::random_range(0..self.sentinels.len());
        for sentinel in self.sentinels.iter().cycle().skip(first).take(self.sentinels.len()) {
            match tokio::time::timeout(TELL_WITHIN, self.told_by(sentinel)).await {
                Ok(Ok(Some(node))) => {
                    self.take(node);
                    told = true;
                    break;
                }
                Ok(Ok(None)) => unknown += 1,
                Ok(Err(failure)) => {
                    debug!(sentinel = sentinel.name, ?failure, "does not tell the primary");
                    if let Failure::Final(error) = &failure {
                        refused = Some(error.clone());
                    }
                    *self.trouble.write() = Some(LinkError::from(failure).to_string());
                }
                Err(_) => {
                    debug!(sentinel = sentinel.name, "does not tell the primary in time");
                    *self.trouble.write() = Some(format!("{} does not answer in time", sentinel.name));
                }
            }
        }
        *refreshed = Some(Instant::now());
        if let (false, Some(error)) = (told, refused) {
            return Err(Failure::Final(error));
        }
        if !told && unknown == self.sentinels.len() {
            return Err(Failure::Final(LinkError::Setup(format!(
                "no sentinel knows a master {:?}; the URL ends in the name after `sentinel monitor`",
                self.master
            ))));
        }
        Ok(())
    }

    /// The server a sentinel names, if that itself says that it takes writes; `None`: it knows none.
    async fn told_by(&self, sentinel: &Node) -> Result<Option<Arc<Node>>, Failure> {
        let mut cmd = Cmd::new();
        cmd.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        let answer = sentinel.send(&cmd, false).await.map_err(Failure::of_sentinel)?;
        let Value::Array(parts) = &answer else { return Ok(None) };
        let part = |at: usize| parts.get(at).and_then(word).ok_or_else(|| Failure::odd("an address is missing"));
        let (host, port) = (part(0)?, part(1)?);
        let name = format!("{host}:{port}");
        let node = match self.present.read().clone() {
            Some(present) if present.name == name => present,
            _ => {
                let port = port.parse().map_err(|_| Failure::odd("a port that is no number"))?;
                let info = elsewhere(&self.base, host, port);
                let made = client(info, &self.config).map_err(Failure::Final)?;
                Arc::new(Node::new(name, made, &self.config))
            }
        };
        // A sentinel may be behind, and a server that was primary may come back as one for a moment.
        let mut role = Cmd::new();
        role.arg("ROLE");
        match node.send(&role, false).await? {
            Value::Array(parts) if parts.first().and_then(word).as_deref() == Some("master") => Ok(Some(node)),
            _ => Err(Failure::Transient { reconnect: false, text: format!("{} is no primary yet", node.name) }),
        }
    }

    fn take(&self, node: Arc<Node>) {
        let mut present = self.present.write();
        if present.as_ref().is_none_or(|present| present.name != node.name) {
            info!(primary = node.name, master = self.master, "redis sentinel: primary known");
            *present = Some(node);
        }
    }
}
