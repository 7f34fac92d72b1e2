//! One server and the few connections to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Client, Cmd, Pipeline, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::confirmed::Confirms;
use crate::connection::Slot;
use crate::error::Failure;
use crate::link::LinkConfig;
use crate::replicated::Waits;

/// Certificates and address are in the client. Connects when it is first asked.
pub(crate) struct Node {
    /// `host:port`, as the cluster names it.
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) waits: Waits,
    pub(crate) confirms: Confirms,
    slots: Vec<Slot>,
    turn: AtomicUsize,
    /// Another server has taken its place: its calls fail at once. Never taken back: a server that
    /// becomes a master again is a new `Node`.
    deposed: watch::Sender<bool>,
    /// When others were asked about it last.
    asked_about: Mutex<Option<Instant>>,
}

impl Node {
    pub(crate) fn new(name: String, client: Client, config: &LinkConfig) -> Self {
        let slots = (0..config.connections.max(1))
            .map(|_| Slot::new(client.clone(), config.connect_timeout, config.response_timeout))
            .collect();
        let (waits, confirms) = (Waits::new(&client, config), Confirms::new(&client, config));
        let (deposed, asked_about) = (watch::Sender::new(false), Mutex::default());
        Self { name, client, waits, confirms, slots, turn: AtomicUsize::new(0), deposed, asked_about }
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

    /// Ends every call that is on its way: another server has taken this one's place.
    pub(crate) fn depose(&self) {
        self.deposed.send_replace(true);
    }

    /// Whether another server has taken its place.
    pub(crate) fn is_deposed(&self) -> bool {
        *self.deposed.borrow()
    }

    /// What a call to a deposed server comes to: it goes to the present one.
    pub(crate) fn deposed_failure(&self) -> Failure {
        Failure::Transient { reconnect: true, text: format!("another server has taken the place of {}", self.name) }
    }

    /// Waits for the end of a call, but not longer than this server is one to call.
    pub(crate) async fn unless_deposed<T>(&self, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let mut deposed = self.deposed.subscribe();
        tokio::select! {
            biased;
            // Never an error: the sender is our own.
            _ = deposed.wait_for(|deposed| *deposed) => Err(self.deposed_failure()),
            answer = call => answer,
        }
    }

    fn slot(&self) -> &Slot {
        &self.slots[self.turn.fetch_add(1, Ordering::Relaxed) % self.slots.len()]
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
                .send_many(&both)
                .await?
                .pop()
                .unwrap_or_else(|| Err(Failure::odd("two answers were expected")));
        }
        let slot = self.slot();
        let (generation, mut connection) = slot.get().await?;
        let failure = match connection.send_packed_command(cmd).await {
            Ok(value) => match judged(value) {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            },
            Err(error) => Failure::from(error),
        };
        Err(end_if_broken(slot, generation, failure))
    }

    /// Sends commands in one write, and judges each answer by itself.
    pub(crate) async fn send_all(&self, pipeline: &Pipeline) -> Result<Vec<Result<Value, Failure>>, Failure> {
        self.unless_deposed(self.send_many(pipeline)).await
    }

    async fn send_many(&self, pipeline: &Pipeline) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let slot = self.slot();
        let (generation, mut connection) = slot.get().await?;
        match connection.send_packed_commands(pipeline, 0, pipeline.len()).await {
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

/// Ends the connection where the failure calls for it.
pub(crate) fn end_if_broken(slot: &Slot, generation: u64, failure: Failure) -> Failure {
    if let Failure::Transient { reconnect: true, .. } = failure {
        slot.broken(generation);
    }
    failure
}
