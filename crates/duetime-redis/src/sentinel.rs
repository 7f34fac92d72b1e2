//! Who the primary is, as the sentinels say: asked, checked with the server, asked again every second
//! and in doubt.
//!
//! A primary that was cut off from its sentinels goes on answering. So it is left as soon as a majority of
//! the configured sentinels names another, or one of them reports a later failover.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::RwLock;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisConnectionInfo, Value};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info};

use crate::config::{LinkConfig, endpoint};
use crate::error::{Failure, LinkError};
use crate::node::Node;
use crate::reply::word;
use crate::url::elsewhere;

/// The sentinels are not asked more often than this.
const REFRESH_EVERY: Duration = Duration::from_millis(200);
/// Longest wait for one sentinel, and for the server they name.
const TELL_WITHIN: Duration = Duration::from_secs(1);

/// How much longer the others are waited for once one sentinel has answered.
const LAGGARDS_FOR: Duration = Duration::from_millis(200);
/// Where sentinels announce a new primary.
const SWITCHED: &str = "+switch-master";
/// Pause before a lost subscription is made again.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What one sentinel says of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SentinelReport {
    /// `host:port`.
    name: String,
    /// Grows with every failover that a majority of sentinels agreed to; 0 where it is not known.
    epoch: u64,
}

/// Whom to believe: the sentinel that knows of the latest failover, or a majority of the `configured` ones.
/// What is older than what was `seen` before needs the majority.
fn believed(reports: &[SentinelReport], configured: usize, seen: u64) -> Option<&SentinelReport> {
    let count = |name: &str| reports.iter().filter(|one| one.name == name).count();
    let best = reports.iter().max_by_key(|one| (one.epoch, count(&one.name)))?;
    if best.epoch > seen || count(&best.name) * 2 > configured {
        return Some(best);
    }
    if let Some(most) = reports.iter().find(|one| count(&one.name) * 2 > configured) {
        return Some(most);
    }
    (best.epoch == seen).then_some(best)
}

/// The epoch in what SENTINEL MASTER answers.
pub(crate) fn read_epoch(facts: &Value) -> Option<u64> {
    let Value::Array(facts) = facts else { return None };
    let mut pairs = facts.chunks_exact(2);
    let epoch = pairs.find(|pair| word(&pair[0]).as_deref() == Some("config-epoch"))?;
    word(&epoch[1])?.parse().ok()
}

/// Who the primary is, as the sentinels say: asked, checked with the server, asked again every second and in
/// doubt.
pub(crate) struct Sentinels {
    /// User, password and database of the servers the sentinels watch.
    base: ConnectionInfo,
    sentinels: Vec<Node>,
    master: String,
    config: LinkConfig,
    present: RwLock<Option<Arc<Node>>>,
    /// That of the failover the primary came from.
    epoch: RwLock<u64>,
    /// What the last sentinel that was asked in vain said.
    last_error: RwLock<Option<String>>,
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
            login = login.set_password(password.expose());
        }
        let sentinels = addresses
            .iter()
            .map(|address| {
                let unexpected_reply = |_| LinkError::Setup(format!("store URL: {address:?} is not host:port"));
                let info = format!("{scheme}://{address}").into_connection_info().map_err(unexpected_reply)?;
                let info = info.set_redis_settings(login.clone());
                Ok(Node::new(address.clone(), endpoint(info, &rare)?, &rare))
            })
            .collect::<Result<_, LinkError>>()?;
        let (present, epoch, last_error, refreshed) = Default::default();
        Ok(Self { base, sentinels, master, config, present, epoch, last_error, refreshed })
    }

    /// The primary.
    pub(crate) async fn node(self: &Arc<Self>) -> Result<Arc<Node>, Failure> {
        if let Some(node) = self.present.read().clone() {
            return Ok(node);
        }
        self.refresh(true).await?;
        self.present.read().clone().ok_or_else(|| Failure::Transient {
            reconnect: false,
            text: {
                let why = self.last_error.read().clone().unwrap_or_else(|| "none was asked yet".to_owned());
                format!("no sentinel names a primary of {}: {why}", self.config.url)
            },
        })
    }

    /// Asks again, unless that was done a moment ago or, without `wait`, is being done.
    pub(crate) async fn refresh(self: &Arc<Self>, wait: bool) -> Result<(), Failure> {
        if !wait && self.refreshed.try_lock().is_err() {
            return Ok(());
        }
        // In a task of its own: others wait for it, and the caller may be polled no more for long.
        let sentinels = self.clone();
        tokio::spawn(async move { sentinels.ask_again().await }).await.unwrap_or(Ok(()))
    }

    async fn ask_again(&self) -> Result<(), Failure> {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at.elapsed() < REFRESH_EVERY) {
            return Ok(());
        }
        let done = self.ask().await;
        *refreshed = Some(Instant::now());
        done
    }

    /// The primary as it is known, without asking anybody.
    pub(crate) fn known(&self) -> Option<Arc<Node>> {
        self.present.read().clone()
    }

    async fn ask(&self) -> Result<(), Failure> {
        let (mut reports, mut unknown, mut refused) = (Vec::new(), 0, None);
        let mut asked: FuturesUnordered<_> = self
            .sentinels
            .iter()
            .map(async |sentinel| (sentinel, tokio::time::timeout(TELL_WITHIN, self.report_of(sentinel)).await))
            .collect();
        let mut until = Instant::now() + TELL_WITHIN * 2;
        while let Ok(Some((sentinel, answer))) = tokio::time::timeout_at(until, asked.next()).await {
            match answer {
                Ok(Ok(Some(one))) => {
                    reports.push(one);
                    until = until.min(Instant::now() + LAGGARDS_FOR);
                }
                Ok(Ok(None)) => unknown += 1,
                Ok(Err(failure)) => {
                    debug!(sentinel = sentinel.name, ?failure, "does not name the primary");
                    if let Failure::Final(error) = &failure {
                        refused = Some(error.clone());
                    }
                    *self.last_error.write() = Some(LinkError::from(failure).to_string());
                }
                Err(_) => {
                    debug!(sentinel = sentinel.name, "does not name the primary in time");
                    *self.last_error.write() = Some(format!("{} does not answer in time", sentinel.name));
                }
            }
        }
        match (reports.is_empty(), refused) {
            (false, _) => {}
            (true, Some(error)) => return Err(Failure::Final(error)),
            (true, None) if unknown == self.sentinels.len() => {
                return Err(Failure::Final(LinkError::Setup(format!(
                    "no sentinel knows a master {:?}; the URL ends in the name after `sentinel monitor`",
                    self.master
                ))));
            }
            (true, None) => return Ok(()),
        }
        let seen = *self.epoch.read();
        let Some(believed) = believed(&reports, self.sentinels.len(), seen) else { return Ok(()) };
        if self.present.read().as_ref().is_some_and(|present| present.name == believed.name) {
            *self.epoch.write() = believed.epoch;
            return Ok(());
        }
        self.follow(believed).await
    }

    /// Goes to another primary; the one so far is left at once, for it may go on answering.
    async fn follow(&self, believed: &SentinelReport) -> Result<(), Failure> {
        let SentinelReport { name, epoch } = believed;
        let node = self.named(name)?;
        let newer = *epoch > *self.epoch.read();
        if newer {
            self.leave(name);
            *self.epoch.write() = *epoch;
        }
        // Sentinels may be behind, and a server that was primary may come back as one for a moment.
        let mut role = Cmd::new();
        role.arg("ROLE");
        let answer = tokio::time::timeout(TELL_WITHIN, node.send(&role, false)).await;
        let last_error = match answer {
            Ok(Ok(Value::Array(parts))) if parts.first().and_then(word).as_deref() == Some("master") => {
                self.leave(name);
                *self.epoch.write() = *epoch;
                self.take(node);
                return Ok(());
            }
            Ok(Ok(_)) => format!("{name} is no primary yet"),
            Ok(Err(Failure::Final(error))) => return Err(Failure::Final(error)),
            Ok(Err(failure)) => LinkError::from(failure).to_string(),
            Err(_) => format!("{name} does not answer in time"),
        };
        debug!(reason = last_error, "redis sentinel: the primary cannot be used yet");
        *self.last_error.write() = Some(last_error);
        Ok(())
    }

    /// Leaves the primary so far, for `name` has its place: what waits for it is sent there.
    fn leave(&self, name: &str) {
        if let Some(before) = self.present.write().take_if(|present| present.name != name) {
            info!(primary = before.name, next = name, "redis sentinel: this server was deposed, leaving it");
            before.depose();
        }
    }

    fn named(&self, name: &str) -> Result<Arc<Node>, Failure> {
        let (host, port) =
            name.rsplit_once(':').ok_or_else(|| Failure::unexpected_reply("an address without a port"))?;
        let port = port.parse().map_err(|_| Failure::unexpected_reply("a port that is no number"))?;
        let made = endpoint(elsewhere(&self.base, host.to_owned(), port), &self.config).map_err(Failure::Final)?;
        Ok(Arc::new(Node::new(name.to_owned(), made, &self.config)))
    }

    /// What a sentinel says of the primary; `None`: it knows none.
    async fn report_of(&self, sentinel: &Node) -> Result<Option<SentinelReport>, Failure> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        both.cmd("SENTINEL").arg("MASTER").arg(&self.master);
        let mut answers = sentinel.send_all(&both).await.map_err(Failure::of_sentinel)?.into_iter();
        let mut next = || answers.next().unwrap_or_else(|| Err(Failure::unexpected_reply("an answer is missing")));
        let Value::Array(parts) = next().map_err(Failure::of_sentinel)? else { return Ok(None) };
        let part =
            |at: usize| parts.get(at).and_then(word).ok_or_else(|| Failure::unexpected_reply("an address is missing"));
        let name = format!("{}:{}", part(0)?, part(1)?);
        // Without the right to ask for it, all count the same, and the majority is believed.
        let epoch = next().ok().and_then(|facts| read_epoch(&facts)).unwrap_or(0);
        Ok(Some(SentinelReport { name, epoch }))
    }

    /// Listens for switches of the primary as long as it is polled; `woken` is notified of each. A hint: the
    /// sentinels are asked anyway.
    pub(crate) async fn listen(&self, woken: &Notify) {
        let listening = self.sentinels.iter().map(async |sentinel| {
            loop {
                let hearing = async {
                    let mut pubsub = sentinel.endpoint.pubsub().await?;
                    pubsub.subscribe(SWITCHED).await?;
                    let mut messages = pubsub.on_message();
                    while let Some(message) = messages.next().await {
                        let switched = message.get_payload_bytes().split(|byte| *byte == b' ').next();
                        if switched == Some(self.master.as_bytes()) {
                            woken.notify_one();
                        }
                    }
                    redis::RedisResult::Ok(())
                };
                if let Err(error) = hearing.await {
                    debug!(sentinel = sentinel.name, %error, "cannot listen for switches of the primary");
                }
                tokio::time::sleep(LISTEN_AGAIN_AFTER).await;
            }
        });
        futures::future::join_all(listening).await;
    }

    fn take(&self, node: Arc<Node>) {
        let mut present = self.present.write();
        if present.as_ref().is_none_or(|present| present.name != node.name) {
            info!(primary = node.name, master = self.master, "redis sentinel: primary known");
            *present = Some(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(all: &[(&str, u64)]) -> Vec<SentinelReport> {
        all.iter().map(|(name, epoch)| SentinelReport { name: (*name).to_owned(), epoch: *epoch }).collect()
    }

    fn name(all: &[(&str, u64)], configured: usize, seen: u64) -> Option<String> {
        believed(&reports(all), configured, seen).map(|one| one.name.clone())
    }

    #[test]
    fn the_latest_failover_is_believed_and_an_older_one_only_to_a_majority() {
        assert_eq!(name(&[("a:1", 0), ("b:1", 1)], 3, 0).unwrap(), "b:1", "one knows of a later failover");
        assert_eq!(name(&[("a:1", 0)], 3, 1), None, "one that is behind brings nobody back");
        assert_eq!(name(&[("a:1", 0), ("a:1", 0)], 3, 1).unwrap(), "a:1", "but two of three do");
        assert_eq!(name(&[("a:1", 0), ("b:1", 0), ("b:1", 0)], 3, 0).unwrap(), "b:1", "epochs that say nothing");
        assert_eq!(name(&[("a:1", 4)], 3, 4).unwrap(), "a:1");
        assert_eq!(name(&[], 3, 0), None);
    }

    #[test]
    fn the_epoch_is_read_from_among_the_facts() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let facts = Value::Array(["name", "main", "config-epoch", "7"].map(bulk).to_vec());
        assert_eq!(read_epoch(&facts), Some(7));
        assert_eq!(read_epoch(&Value::Nil), None);
    }
}
