//! The link itself: sends scripts, and sends them again while that can help.
//!
//! A script may reach the server twice: every script must be idempotent. A repeated one is marked as such, and it
//! is repeated, or answered as failed, only when the sending before cannot be carried out any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use duetime_core::ServerId;
use redis::{Arg, Cmd, Pipeline, Value};

use crate::config::LinkConfig;
use crate::error::{Failure, LinkError};
use crate::facts::{self, MasterFacts};
use crate::node::Node;
use crate::pipeline;
use crate::pubsub;
use crate::replicated::Backing;
use crate::retry_budget::RetryState;
use crate::script::{Script, Sending};
use crate::servers::Servers;
use crate::setup::{self, Checks, ClockSkews, ServerFacts};
use crate::topology::Topology;
use crate::watch;

/// The link itself: sends scripts, and sends them again while that can help. Cheap to share.
pub struct Link {
    servers: Servers,
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
        Ok(Arc::new(Self { servers: Servers::new(&config)?, config, legacy: AtomicBool::new(false) }))
    }

    /// Where the link leads, without credentials.
    #[must_use]
    pub fn shown(&self) -> String {
        self.config.url.to_string()
    }

    /// Whether the keys are on several masters.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        matches!(self.servers.topology, Topology::Cluster(_))
    }

    /// Whether sentinels name the primary: such a one goes on alone when it is cut off, unless it is guarded.
    #[must_use]
    pub fn has_sentinels(&self) -> bool {
        matches!(self.servers.topology, Topology::Sentinel(_))
    }

    /// The kind of installation, for metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.servers.topology {
            Topology::Standalone(_) => "redis",
            Topology::Sentinel(_) => "redis-sentinel",
            Topology::Cluster(_) => "redis-cluster",
        }
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
                Ok((_, 0)) if !self.servers.topology.still_master(&node).await => Err(node.deposed_failure()),
                sent => sent,
            }
        };
        // What is asked after the script ran may be refused.
        self.retry(script, key, Failure::is_unanswered_or_unreplicated, send).await
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
        let mut retry_state = RetryState::default();
        let mut retry_budget = self.servers.retry_budget(script.name());
        loop {
            let repeated = retry_state.unsure;
            let sent = match self.prepared(script, key, &mut retry_state).await {
                Ok((node, asking)) => {
                    // What was waited for may have taken long.
                    retry_budget.check()?;
                    send(node, asking, repeated).await
                }
                Err(failure) => Err(failure),
            };
            let failure = match sent {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            retry_state.learn(&failure, may_have_run(&failure));
            self.servers.after(&mut retry_budget, failure).await?;
        }
    }

    /// Where to send the call of a script; the script is loaded there if it has to be.
    async fn prepared(
        &self,
        script: &Script,
        key: &str,
        retry_state: &mut RetryState,
    ) -> Result<(Arc<Node>, bool), Failure> {
        let (node, asking) = self.servers.route(retry_state.ask.take(), Some(Arg::Simple(key.as_bytes()))).await?;
        if retry_state.load {
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
        // An end is this long after the sending began.
        let lifetime = i64::try_from(self.config.response_timeout.as_millis()).unwrap_or(i64::MAX);
        fill(&mut cmd, &Sending { repeated, not_after_ms, since_ms: not_after_ms.saturating_sub(lifetime) });
        cmd
    }

    /// Runs one plain command that may be repeated.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub async fn command(&self, name: &'static str, cmd: &Cmd) -> Result<Value, LinkError> {
        self.servers.command(name, cmd).await
    }

    /// Runs plain commands that may be repeated, in one round trip to each master. Any error that
    /// lasts fails them all.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub async fn pipeline(&self, name: &'static str, pipeline: &Pipeline) -> Result<Vec<Value>, LinkError> {
        pipeline::whole(&self.servers, name, pipeline).await
    }

    /// The same for a look that must not wait long: an answer or an error for each command, after about a
    /// second at the latest.
    pub async fn look(&self, name: &'static str, pipeline: &Pipeline) -> Vec<Result<Value, LinkError>> {
        pipeline::look(&self.servers, name, pipeline).await
    }

    /// Runs plain commands in one round trip to each master, each with its own answer. None is sent
    /// again once it may have been carried out: for those that must not be repeated.
    pub async fn each_once(&self, pipeline: &Pipeline) -> Vec<Result<Value, LinkError>> {
        pipeline::each_once(&self.servers, pipeline).await
    }

    /// The server of `key` at present. All keys have one place where there is one server, and until the
    /// masters of a cluster are known. Waits for nobody.
    #[must_use]
    pub fn server_of(&self, key: &[u8]) -> ServerId {
        self.servers.topology.server_of(key)
    }

    /// Asks every master what it is and refuses what cannot work; the facts are the last one's.
    ///
    /// # Errors
    ///
    /// [`LinkError::Setup`] with the remedy; [`LinkError::Unavailable`] when nobody answers.
    pub async fn check(&self, checks: Checks) -> Result<ServerFacts, LinkError> {
        setup::check(&self.servers, checks, &self.legacy).await
    }

    /// Refuses masters of which one's clock is more than `most_ms` away from what `own_ms` says.
    ///
    /// # Errors
    ///
    /// [`LinkError::Setup`] with the remedy; [`LinkError::Unavailable`] when nobody answers.
    pub async fn check_clock(&self, own_ms: impl Fn() -> i64, most_ms: i64) -> Result<(), LinkError> {
        setup::check_clock(&self.servers, own_ms, most_ms).await
    }

    /// By how many milliseconds the servers' clocks are ahead of what `own_ms` says.
    ///
    /// # Errors
    ///
    /// See [`LinkError`]: none of them answers.
    pub async fn clock_skew_ms(&self, own_ms: impl Fn() -> i64) -> Result<ClockSkews, LinkError> {
        setup::clock_skews(&self.servers, own_ms).await
    }

    /// The server's clock, milliseconds since the Unix epoch.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub async fn clock(&self) -> Result<i64, LinkError> {
        setup::read_clock(&self.command("time", &redis::cmd("TIME")).await?)
    }

    /// Answers as soon as one server that takes writes does.
    ///
    /// # Errors
    ///
    /// See [`LinkError`]: none of them answers.
    pub async fn alive(&self) -> Result<(), LinkError> {
        let masters = self.servers.masters().await?;
        let ping = redis::cmd("PING");
        let asked = masters.iter().map(|node| Box::pin(self.servers.command_on(node, "ping", &ping)));
        futures::future::select_ok(asked).await.map(drop)
    }

    /// Asks every master what it is like at present, all at once; each has its name and an answer, or why none
    /// came within a second.
    ///
    /// # Errors
    ///
    /// See [`LinkError`]: nobody says who the masters are.
    pub async fn facts(&self) -> Result<Vec<(String, Result<MasterFacts, LinkError>)>, LinkError> {
        facts::of_masters(&self.servers.topology).await
    }

    /// Watches over the masters as long as it runs.
    pub async fn watch(self: Arc<Self>) {
        watch::watch(&self.servers.topology).await;
    }

    /// Subscribes to `channel` on connections of its own, at every master up to a bound, and passes on what is
    /// published as long as it runs. What is published while no connection is up is lost.
    pub async fn subscribe(self: Arc<Self>, channel: String, pass_on: impl FnMut(Vec<u8>) + Send) {
        pubsub::subscribe(&self.servers.topology, channel, &self.config.draw, pass_on).await;
    }
}
