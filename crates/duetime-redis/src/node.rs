//! One server and the few connections to it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Pipeline, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::LinkConfig;
use crate::confirmed::Confirms;
use crate::connection::{Server, ServerConnection};
use crate::dial::Endpoint;
use crate::error::{Failure, into_result};
use crate::replicated::ReplicaWaits;

/// A connection, and how many calls are under way on it.
struct CountedConnection {
    connection: Arc<ServerConnection>,
    calls: AtomicUsize,
}

/// A connection that one call goes over, until the call is over.
struct CallSlot<'a>(&'a CountedConnection);

impl Deref for CallSlot<'_> {
    type Target = Arc<ServerConnection>;

    fn deref(&self) -> &Arc<ServerConnection> {
        &self.0.connection
    }
}

impl Drop for CallSlot<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Certificates and address are in the endpoint. Connects when it is first asked.
pub(crate) struct Node {
    /// `host:port`, as the cluster names it.
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
    pub(crate) waits: ReplicaWaits,
    pub(crate) confirms: Arc<Confirms>,
    server: Arc<Server>,
    connections: Vec<CountedConnection>,
    /// See [`LinkConfig::calls_shared`].
    calls_shared: usize,
    turn: AtomicUsize,
    /// Another server has taken its place: its calls fail at once. Never taken back: a server that
    /// becomes a master again is a new `Node`. `None`: no other can, so no call has to watch for it.
    deposed: Option<CancellationToken>,
    /// When others were asked about it last.
    asked_about: Mutex<Option<Instant>>,
}

impl Node {
    pub(crate) fn new(name: String, endpoint: Endpoint, config: &LinkConfig) -> Self {
        let server = Server::new(config);
        let counted = |_| CountedConnection {
            connection: ServerConnection::new(&endpoint, config, &server),
            calls: AtomicUsize::new(0),
        };
        let connections = (0..config.connections.max(1)).map(counted).collect();
        let waits = ReplicaWaits::new(&endpoint, config, &server);
        let confirms = Arc::new(Confirms::new(&endpoint, config, &server));
        Self {
            name,
            endpoint,
            waits,
            confirms,
            server,
            connections,
            calls_shared: config.calls_shared,
            turn: AtomicUsize::new(0),
            deposed: Some(CancellationToken::new()),
            asked_about: Mutex::default(),
        }
    }

    /// The one server of a link: no other takes its place.
    pub(crate) fn alone(name: String, endpoint: Endpoint, config: &LinkConfig) -> Self {
        Self { deposed: None, ..Self::new(name, endpoint, config) }
    }

    /// Whether it is time to ask others about it, if that is done once in `every`; the caller does it then.
    pub(crate) fn asked_about(&self, every: Duration) -> bool {
        let mut asked = self.asked_about.lock();
        let due = asked.is_none_or(|at| at.elapsed() >= every);
        if due {
            *asked = Some(Instant::now());
        }
        due
    }

    /// Fails all in-flight calls: another server took over.
    pub(crate) fn depose(&self) {
        self.deposed.iter().for_each(CancellationToken::cancel);
    }

    /// Whether another server has taken its place.
    pub(crate) fn is_deposed(&self) -> bool {
        self.deposed.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    /// What a call to a deposed server comes to: it goes to the present one.
    pub(crate) fn deposed_failure(&self) -> Failure {
        Failure::Transient { reconnect: true, text: format!("another server has taken the place of {}", self.name) }
    }

    /// Waits for the end of a call, but not longer than this server is one to call.
    pub(crate) async fn unless_deposed<T>(&self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let Some(deposed) = &self.deposed else { return call.await };
        tokio::select! {
            biased;
            () = deposed.cancelled() => Err(self.deposed_failure()),
            answer = call => answer,
        }
    }

    /// The first connection that has few calls under way; where all have many, each in turn.
    fn connection(&self) -> CallSlot<'_> {
        let has_few = |counted: &&CountedConnection| counted.calls.load(Ordering::Relaxed) < self.calls_shared;
        let in_turn = || &self.connections[self.turn.fetch_add(1, Ordering::Relaxed) % self.connections.len()];
        let counted = self.connections.iter().find(has_few).unwrap_or_else(in_turn);
        counted.calls.fetch_add(1, Ordering::Relaxed);
        CallSlot(counted)
    }

    /// Sends one command and judges its answer; `asking`: to a node that is still taking the slot
    /// over, in one write with the word that it may answer.
    pub(crate) async fn send(&self, cmd: &Cmd, asking: bool) -> Result<Value, Failure> {
        self.unless_deposed(self.send_one(cmd, asking)).await
    }

    async fn send_one(&self, cmd: &Cmd, asking: bool) -> Result<Value, Failure> {
        if asking {
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(cmd.clone());
            return self
                .send_many(&both, None)
                .await?
                .pop()
                .unwrap_or_else(|| Err(Failure::unexpected_reply("two answers were expected")));
        }
        let slot = self.connection();
        let mut open = slot.get().await?;
        let generation = open.generation;
        let failure = match open.connection.send_packed_command(cmd).await {
            Ok(value) => match into_result(value) {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            },
            Err(error) => Failure::from(error),
        };
        Err(slot.end_if_broken(generation, failure))
    }

    /// Sends a call that writes; `made` gets the time of the server after which it must not be carried out.
    /// When this fails, what was sent is over, or this server's history is: another has taken its place.
    pub(crate) async fn carry(&self, asking: bool, made: impl FnOnce(i64) -> Cmd) -> Result<Value, Failure> {
        self.unless_deposed(self.carry_here(asking, made)).await
    }

    async fn carry_here(&self, asking: bool, made: impl FnOnce(i64) -> Cmd) -> Result<Value, Failure> {
        let slot = self.connection();
        let mut open = slot.get().await?;
        let end = slot.end(&mut open).await?;
        let cmd = made(end.not_after_ms);
        let sent = if asking {
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(cmd);
            let answers = Box::pin(open.connection.send_packed_commands(&both, 1, 1)).await;
            answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
        } else {
            open.connection.send_packed_command(&cmd).await
        };
        match sent {
            Ok(value) => {
                self.server.clock.checked(value).map_err(|failure| slot.end_if_broken(open.generation, failure))
            }
            Err(error) => Err(Box::pin(slot.given_up(&open, end, error)).await),
        }
    }

    /// Sends commands in one write, and judges each answer by itself.
    pub(crate) async fn send_all(&self, pipeline: &Pipeline) -> Result<Vec<Result<Value, Failure>>, Failure> {
        self.send_all_within(pipeline, None).await
    }

    /// The same; an answer that takes longer than `longest` is not waited for.
    pub(crate) async fn send_all_within(
        &self,
        pipeline: &Pipeline,
        longest: Option<Duration>,
    ) -> Result<Vec<Result<Value, Failure>>, Failure> {
        self.unless_deposed(self.send_many(pipeline, longest)).await
    }

    async fn send_many(
        &self,
        pipeline: &Pipeline,
        longest: Option<Duration>,
    ) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let slot = self.connection();
        let mut open = slot.get().await?;
        let generation = open.generation;
        let sending = open.connection.send_packed_commands(pipeline, 0, pipeline.len());
        let sent = match longest {
            None => sending.await,
            Some(longest) => match tokio::time::timeout(longest, sending).await {
                Ok(sent) => sent,
                Err(_) => {
                    // A connection whose packets were dropped for long stays silent as long again once they
                    // arrive: the next call makes a fresh one.
                    slot.broken(generation);
                    let text = format!("no answer from {} in time", self.name);
                    return Err(Failure::Transient { reconnect: false, text });
                }
            },
        };
        match sent {
            Ok(values) => Ok(values
                .into_iter()
                .map(|value| into_result(value).map_err(|failure| slot.end_if_broken(generation, failure)))
                .collect()),
            Err(error) => Err(slot.end_if_broken(generation, Failure::from(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;
    use crate::url::RedisUrl;

    #[test]
    fn calls_share_the_first_connection_that_has_few_of_them() {
        let config = LinkConfig::new(RedisUrl::parse("redis://127.0.0.1:1").unwrap());
        let Ok(Topology::Standalone(node)) = Topology::new(&config) else { panic!("one server") };
        let of = |slot: &CallSlot<'_>| node.connections.iter().position(|known| std::ptr::eq(known, slot.0)).unwrap();
        let mut held: Vec<CallSlot<'_>> =
            (0..config.connections * config.calls_shared).map(|_| node.connection()).collect();
        let spread: Vec<usize> = held.iter().map(of).collect();
        assert!(spread.is_sorted() && spread.last() == Some(&(config.connections - 1)), "{spread:?}");
        let more: Vec<CallSlot<'_>> = (0..config.connections).map(|_| node.connection()).collect();
        let mut in_turn: Vec<usize> = more.iter().map(of).collect();
        in_turn.sort_unstable();
        assert_eq!(in_turn, (0..config.connections).collect::<Vec<_>>(), "all have many");
        drop((held.remove(0), more));
        assert_eq!(of(&node.connection()), 0);
    }
}
