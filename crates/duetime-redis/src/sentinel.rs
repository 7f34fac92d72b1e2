//! Who the primary is, as the sentinels tell it: asked, checked with the server, asked again in doubt.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Value};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::error::{Failure, LinkError};
use crate::link::{LinkConfig, client};
use crate::node::Node;
use crate::reply::word;

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
        // One connection each: they are asked rarely. Certificates and users are the servers'.
        let plain = LinkConfig { tls: crate::TlsConfig::default(), connections: 1, ..config.clone() };
        let sentinels = addresses
            .iter()
            .map(|address| {
                let odd = |_| LinkError::Setup(format!("store URL: {address:?} is not host:port"));
                let info = format!("redis://{address}").into_connection_info().map_err(odd)?;
                Ok(Node::new(address.clone(), client(info, &plain)?, &plain))
            })
            .collect::<Result<_, LinkError>>()?;
        let (present, refreshed) = (RwLock::default(), tokio::sync::Mutex::default());
        Ok(Self { base, sentinels, master, config, present, refreshed })
    }

    /// The primary.
    pub(crate) async fn node(&self) -> Result<Arc<Node>, Failure> {
        if let Some(node) = self.present.read().clone() {
            return Ok(node);
        }
        self.refresh(true).await?;
        self.present.read().clone().ok_or_else(|| Failure::Transient {
            reconnect: false,
            text: format!("no sentinel tells of a primary of {}", self.config.url),
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
        let (mut told, mut unknown) = (false, 0);
        let first = rand::random_range(0..self.sentinels.len());
        for sentinel in self.sentinels.iter().cycle().skip(first).take(self.sentinels.len()) {
            match tokio::time::timeout(TELL_WITHIN, self.told_by(sentinel)).await {
                Ok(Ok(Some(node))) => {
                    self.take(node);
                    told = true;
                    break;
                }
                Ok(Ok(None)) => unknown += 1,
                Ok(Err(failure)) => debug!(sentinel = sentinel.name, ?failure, "does not tell the primary"),
                Err(_) => debug!(sentinel = sentinel.name, "does not tell the primary in time"),
            }
        }
        *refreshed = Some(Instant::now());
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
        let answer = sentinel.send(&cmd, false).await?;
        let Value::Array(parts) = &answer else { return Ok(None) };
        let part = |at: usize| parts.get(at).and_then(word).ok_or_else(|| Failure::odd("an address is missing"));
        let (host, port) = (part(0)?, part(1)?);
        let name = format!("{host}:{port}");
        let node = match self.present.read().clone() {
            Some(present) if present.name == name => present,
            _ => {
                let port = port.parse().map_err(|_| Failure::odd("a port that is no number"))?;
                let info = self.base.clone().set_addr(ConnectionAddr::Tcp(host, port));
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
