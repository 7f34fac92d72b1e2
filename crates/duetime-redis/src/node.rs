//! One server and the few connections to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Client, Cmd, Pipeline, Value};

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
}

impl Node {
    pub(crate) fn new(name: String, client: Client, config: &LinkConfig) -> Self {
        let slots = (0..config.connections.max(1))
            .map(|_| Slot::new(client.clone(), config.connect_timeout, config.response_timeout))
            .collect();
        let (waits, confirms) = (Waits::new(&client, config), Confirms::new(&client, config));
        Self { name, client, waits, confirms, slots, turn: AtomicUsize::new(0) }
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
        self.send_all_within(pipeline, None).await
    }

    /// The same; an answer that takes longer than `longest` is not waited for.
    pub(crate) async fn send_all_within(
        &self,
        pipeline: &Pipeline,
        longest: Option<Duration>,
    ) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let slot = self.slot();
        let (generation, mut connection) = slot.get().await?;
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

/// Ends the connection where the failure calls for it.
pub(crate) fn end_if_broken(slot: &Slot, generation: u64, failure: Failure) -> Failure {
    if let Failure::Transient { reconnect: true, .. } = failure {
        slot.broken(generation);
    }
    failure
}
