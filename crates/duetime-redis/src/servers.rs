//! The servers behind a link: finds the one to ask, and sends plain commands until they are answered or their time is
//! over.
//!
//! Upstream: the link and its parts. Downstream: the topology, which knows who is where. Knows no script.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::Draw;
use redis::{Arg, Cmd, Value};

use crate::config::LinkConfig;
use crate::error::{Failure, LinkError};
use crate::node::Node;
use crate::retry_budget::{RetryBudget, RetryState};
use crate::topology::Topology;

/// The servers behind a link: finds the one to ask, and sends plain commands until they are answered or their time is
/// over.
pub(crate) struct Servers {
    pub(crate) topology: Topology,
    retry_for: Duration,
    draw: Draw,
}

impl Servers {
    pub(crate) fn new(config: &LinkConfig) -> Result<Self, LinkError> {
        Ok(Self { topology: Topology::new(config)?, retry_for: config.retry_for, draw: config.draw.clone() })
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

    /// Runs one plain command that may be repeated, on the server of its key.
    pub(crate) async fn command(&self, name: &'static str, cmd: &Cmd) -> Result<Value, LinkError> {
        let mut retry_state = RetryState::default();
        let mut retry_budget = self.retry_budget(name);
        loop {
            let failure = match self.route(retry_state.ask.take(), cmd.args_iter().nth(1)).await {
                Ok((node, asking)) => match node.send(cmd, asking).await {
                    Ok(value) => return Ok(value),
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            retry_state.learn(&failure, false);
            self.after(&mut retry_budget, failure).await?;
        }
    }

    /// The same on one server, whatever keys are where.
    pub(crate) async fn command_on(&self, node: &Node, name: &'static str, cmd: &Cmd) -> Result<Value, LinkError> {
        let mut retry_budget = self.retry_budget(name);
        loop {
            match node.send(cmd, false).await {
                Ok(value) => return Ok(value),
                Err(failure) => self.after(&mut retry_budget, failure).await?,
            }
        }
    }

    /// Every server that takes writes, once it is known who they are.
    pub(crate) async fn masters(&self) -> Result<Vec<Arc<Node>>, LinkError> {
        let mut retry_budget = self.retry_budget("masters");
        loop {
            match self.topology.masters().await {
                Ok(masters) => return Ok(masters),
                Err(failure) => self.after(&mut retry_budget, failure).await?,
            }
        }
    }

    /// Learns from a failure where the call is better sent, and waits if that helps.
    pub(crate) async fn after(&self, retry_budget: &mut RetryBudget, failure: Failure) -> Result<(), LinkError> {
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
        retry_budget.after(failure).await
    }

    pub(crate) fn retry_budget(&self, call: &'static str) -> RetryBudget {
        self.retry_budget_of(call, self.retry_for)
    }

    pub(crate) fn retry_budget_of(&self, call: &'static str, longest: Duration) -> RetryBudget {
        RetryBudget::new(call, longest.min(self.retry_for), self.draw.clone())
    }
}

fn bytes_of(arg: Arg<&[u8]>) -> Option<&[u8]> {
    match arg {
        Arg::Simple(bytes) => Some(bytes),
        _ => None,
    }
}
