//! One multiplexed connection that is made again when it breaks.

use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tokio::time::Instant;

use crate::error::Failure;

/// A connection that could not be made is not tried again sooner than this; callers in between
/// get the same answer.
const RECONNECT_EVERY: Duration = Duration::from_millis(50);

#[derive(Default)]
struct State {
    /// Grows with every connection, so that a late complaint does not end a fresh one.
    generation: u64,
    open: Option<MultiplexedConnection>,
    refused: Option<(Instant, String)>,
}

/// See the module.
pub(crate) struct Slot {
    client: Client,
    connect_timeout: Duration,
    response_timeout: Duration,
    state: Mutex<State>,
    connecting: tokio::sync::Mutex<()>,
}

impl Slot {
    pub(crate) fn new(client: Client, connect_timeout: Duration, response_timeout: Duration) -> Self {
        Self {
            client,
            connect_timeout,
            response_timeout,
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        }
    }

    fn open(&self) -> Option<(u64, MultiplexedConnection)> {
        let state = self.state.lock();
        state.open.as_ref().map(|open| (state.generation, open.clone()))
    }

    /// The open connection, or a new one.
    pub(crate) async fn get(&self) -> Result<(u64, MultiplexedConnection), Failure> {
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        if let Some((at, text)) = &self.state.lock().refused
            && at.elapsed() < RECONNECT_EVERY
        {
            return Err(Failure::Transient { reconnect: false, text: text.clone() });
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout));
        // The bound of the crate covers the socket; the greeting of a stalled server is in ours.
        let made = tokio::time::timeout(
            self.connect_timeout * 2,
            self.client.get_multiplexed_async_connection_with_config(&config),
        );
        let failure = match made.await {
            Ok(Ok(open)) => {
                let mut state = self.state.lock();
                state.generation += 1;
                state.refused = None;
                state.open = Some(open.clone());
                return Ok((state.generation, open));
            }
            Ok(Err(error)) => Failure::from(error),
            Err(_) => Failure::Transient { reconnect: false, text: "no greeting from redis in time".to_owned() },
        };
        if let Failure::Transient { text, .. } = &failure {
            self.state.lock().refused = Some((Instant::now(), text.clone()));
        }
        Err(failure)
    }

    /// Ends the connection of `generation`, if it is still the one in use.
    pub(crate) fn broken(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.open = None;
        }
    }
}
