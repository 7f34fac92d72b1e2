//! One server and the few connections to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Client, Cmd, ErrorKind, Pipeline, RedisError, Value};

use crate::confirmed::Confirms;
use crate::connection::{Open, Server, Slot};
use crate::error::Failure;
use crate::link::LinkConfig;
use crate::replicated::Waits;
use crate::server_clock::{End, ServerClock};

/// Certificates and address are in the client. Connects when it is first asked.
pub(crate) struct Node {
    /// `host:port`, as the cluster names it.
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) waits: Waits,
    pub(crate) confirms: Arc<Confirms>,
    server: Arc<Server>,
    slots: Vec<Slot>,
    turn: AtomicUsize,
}

impl Node {
    pub(crate) fn new(name: String, client: Client, config: &LinkConfig) -> Self {
        let server = Server::new(config);
        let slots = (0..config.connections.max(1)).map(|_| Slot::new(&client, config, &server)).collect();
        let waits = Waits::new(&client, config, &server);
        let confirms = Arc::new(Confirms::new(&client, config, &server));
        Self { name, client, waits, confirms, server, slots, turn: AtomicUsize::new(0) }
    }

    fn slot(&self) -> &Slot {
        &self.slots[self.turn.fetch_add(1, Ordering::Relaxed) % self.slots.len()]
    }

    /// Sends one command and judges its answer; `asking`: to a node that is still taking the slot
    /// over, in one write with the word that it may answer.
    pub(crate) async fn send(&self, cmd: &Cmd, asking: bool) -> Result<Value, Failure> {
        if asking {
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(cmd.clone());
            return self.send_all(&both).await?.pop().unwrap_or_else(|| Err(Failure::odd("two answers were expected")));
        }
        let slot = self.slot();
        let Open { generation, mut connection, .. } = slot.get().await?;
        let failure = match connection.send_packed_command(cmd).await {
            Ok(value) => match judged(value) {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            },
            Err(error) => Failure::from(error),
        };
        Err(end_if_broken(slot, generation, failure))
    }

    /// Sends a call that writes; `made` is told the time of the server after which it must not be carried out.
    /// When this fails, what was sent is over.
    pub(crate) async fn carry(&self, asking: bool, made: impl FnOnce(i64) -> Cmd) -> Result<Value, Failure> {
        let slot = self.slot();
        let mut open = slot.get().await?;
        let end = slot.end(&mut open).await?;
        let cmd = made(end.not_after_ms);
        let sent = if asking {
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(cmd);
            let answers = open.connection.send_packed_commands(&both, 1, 1).await;
            answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
        } else {
            open.connection.send_packed_command(&cmd).await
        };
        match sent {
            Ok(value) => judged_in_time(value, &self.server.clock)
                .map_err(|failure| end_if_broken(slot, open.generation, failure)),
            Err(error) => Err(given_up(slot, &open, end, error).await),
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
        let slot = self.slot();
        let Open { generation, mut connection, .. } = slot.get().await?;
        let sending = connection.send_packed_commands(pipeline, 0, pipeline.len());
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
                .map(|value| judged(value).map_err(|failure| end_if_broken(slot, generation, failure)))
                .collect()),
            Err(error) => Err(end_if_broken(slot, generation, Failure::from(error))),
        }
    }
}

/// An answer, or the failure it tells of.
pub(crate) fn judged(value: Value) -> Result<Value, Failure> {
    match value {
        Value::ServerError(error) => Err(Failure::from(&error)),
        value => Ok(value),
    }
}

/// The same for a call with an end: one that came too late makes the clock doubtful.
pub(crate) fn judged_in_time(value: Value, clock: &ServerClock) -> Result<Value, Failure> {
    judged(value).inspect_err(|failure| {
        if let Failure::Late { .. } = failure {
            clock.doubt();
        }
    })
}

/// Why a call got no answer, once it cannot be carried out any more.
pub(crate) async fn given_up(slot: &Slot, open: &Open, end: End, error: RedisError) -> Failure {
    let answered = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    let failure = end_if_broken(slot, open.generation, Failure::from(error));
    if !answered {
        slot.fence(open, end.over_at).await;
    }
    failure
}

/// Ends the connection where the failure calls for it.
pub(crate) fn end_if_broken(slot: &Slot, generation: u64, failure: Failure) -> Failure {
    if let Failure::Transient { reconnect: true, .. } = failure {
        slot.broken(generation);
    }
    failure
}
