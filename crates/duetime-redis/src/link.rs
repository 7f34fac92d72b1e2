//! The link itself: sends calls, and sends them again while that can help.
//!
//! A call may reach the server twice: every script must be idempotent. A repeated call is told so, and it
//! is repeated, or answered as failed, only when the sending before cannot be carried out any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::{Arg, Cmd, Value};

use crate::config::LinkConfig;
use crate::error::{Failure, LinkError};
use crate::node::Node;
use crate::patience::{Lesson, Patience};
use crate::replicated::Backing;
use crate::script::{Script, Sending};
use crate::topology::Topology;

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
        let fill = &fill;
        let send = |node: Arc<Node>, asking, repeated| async move {
            node.carry(asking, |till| self.call(script, fill, repeated, till)).await
        };
        self.retry(script, key, Failure::is_unanswered, send).await
    }

    /// Runs a script as [`Link::script`] does, and answers once so many replicas, but at least one, have
    /// all that the server had when it ran; fewer, if fewer follow it. The script must write, for WAIT
    /// to wait for it.
    ///
    /// # Errors
    ///
    /// See [`LinkError`]. [`LinkError::Unavailable`] also when the script ran and no replica caught up.
    pub async fn replicated<F>(
        &self,
        script: &Script,
        key: &str,
        replicas: u8,
        fill: F,
    ) -> Result<(Value, Backing), LinkError>
    where
        F: Fn(&mut Cmd, &Sending) + Send + Sync,
    {
        let fill = &fill;
        let send = |node: Arc<Node>, asking, repeated| async move {
            let sending = node.waits.send(asking, replicas, |till| self.call(script, fill, repeated, till));
            node.unless_deposed(sending).await
        };
        self.retry(script, key, Failure::is_unanswered_or_unreplicated, send).await
    }

    /// Runs a script as [`Link::script`] does, waits a moment for `replicas` replicas to have what it
    /// wrote, and answers how many do. `mark` is a write that changes nothing, on a key beside those
    /// of the script.
    ///
    /// # Errors
    ///
    /// See [`LinkError`]. Too few replicas are no error.
    pub async fn confirmed<F>(
        &self,
        script: &Script,
        key: &str,
        replicas: u8,
        mark: &Cmd,
        fill: F,
    ) -> Result<(Value, u32), LinkError>
    where
        F: Fn(&mut Cmd, &Sending) + Send + Sync,
    {
        let fill = &fill;
        let send = |node: Arc<Node>, asking, repeated| async move {
            let made = |till| self.call(script, fill, repeated, till);
            let sending = node.confirms.send(mark.clone(), asking, replicas, made);
            match node.unless_deposed(sending).await {
                // A master without replicas may be one that another has taken the place of.
                Ok((_, 0)) if !self.topology.still_master(&node).await => Err(node.deposed_failure()),
                sent => sent,
            }
        };
        self.retry(script, key, Failure::is_unanswered, send).await
    }

    /// Sends a script until it is answered or its time is over: `send` sends it once, to a server, with ASKING or
    /// without, repeated or not. `may_have_run`: whether a sending that failed so may have taken effect.
    async fn retry<T, S, A>(
        &self,
        script: &Script,
        key: &str,
        may_have_run: fn(&Failure) -> bool,
        send: S,
    ) -> Result<T, LinkError>
    where
        S: Fn(Arc<Node>, bool, bool) -> A,
        A: Future<Output = Result<T, Failure>>,
    {
        let mut lesson = Lesson::default();
        let mut patience = self.patience(script.name());
        loop {
            let repeated = lesson.unsure;
            let sent = match self.prepared(script, key, &mut lesson).await {
                Ok((node, asking)) => {
                    // What was waited for may have taken long.
                    patience.check()?;
                    send(node, asking, repeated).await
                }
                Err(failure) => Err(failure),
            };
            let failure = match sent {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            lesson.learn(&failure, may_have_run(&failure));
            self.after(&mut patience, failure).await?;
        }
    }

    /// Where to send the call of a script; the script is loaded there if it has to be.
    async fn prepared(&self, script: &Script, key: &str, lesson: &mut Lesson) -> Result<(Arc<Node>, bool), Failure> {
        let (node, asking) = self.route(lesson.ask.take(), Some(Arg::Simple(key.as_bytes()))).await?;
        if lesson.load {
            let mut loading = redis::cmd("SCRIPT");
            loading.arg("LOAD").arg(script.code(self.is_legacy()));
            node.send(&loading, false).await?;
        }
        Ok((node, asking))
    }

    /// One sending of a call.
    fn call<F>(&self, script: &Script, fill: &F, repeated: bool, not_after_ms: i64) -> Cmd
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
            lesson.learn(&failure, false);
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
