//! One multiplexed connection that is made again when it breaks.
//!
//! Callers share it, so no caller's future drives what others wait for: a caller may be polled no more for long, where
//! it is one of many futures of a loop that waits for something else, perhaps for one of those others. Connections are
//! made, and ended, in tasks of their own.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisError};
use tokio::time::Instant;

use crate::config::LinkConfig;
use crate::dial::{Driver, Endpoint};
use crate::error::Failure;
use crate::fence::{FENCE_WITHIN, PendingKills, TrackedConnection, identify};
use crate::server_clock::{SendDeadline, ServerClock};

/// A connection that could not be made is not tried again sooner than this; callers in between
/// get the same answer.
const RECONNECT_EVERY: Duration = Duration::from_millis(50);

/// A connection that can be used.
#[derive(Clone)]
pub(crate) struct OpenConnection {
    pub(crate) generation: u64,
    pub(crate) connection: MultiplexedConnection,
    /// Of a connection over a dialled stream.
    _driver: Option<Arc<Driver>>,
    tracked: Arc<TrackedConnection>,
    round: u64,
}

/// Why there is none.
struct RefusedConnection {
    at: Instant,
    text: String,
    /// True if the connection was refused: there is no listener.
    gone: bool,
}

#[derive(Default)]
struct LinkState {
    /// Grows with every connection, so that a late error does not close a newer one.
    generation: u64,
    open: Option<OpenConnection>,
    refused: Option<RefusedConnection>,
}

/// What all connections to one server share.
pub(crate) struct Server {
    pub(crate) clock: Arc<ServerClock>,
    pending_kills: PendingKills,
}

impl Server {
    pub(crate) fn new(config: &LinkConfig) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::new(ServerClock::new(config.response_timeout)),
            pending_kills: PendingKills::default(),
        })
    }
}

/// One multiplexed connection that is made again when it breaks.
pub(crate) struct ServerConnection {
    endpoint: Endpoint,
    connect_timeout: Duration,
    response_timeout: Duration,
    server: Arc<Server>,
    state: Mutex<LinkState>,
    connecting: tokio::sync::Mutex<()>,
    fencing: tokio::sync::Mutex<()>,
}

impl ServerConnection {
    pub(crate) fn new(endpoint: &Endpoint, config: &LinkConfig, server: &Arc<Server>) -> Arc<Self> {
        Arc::new(Self {
            endpoint: endpoint.clone(),
            connect_timeout: config.connect_timeout,
            response_timeout: config.response_timeout,
            server: server.clone(),
            state: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            fencing: tokio::sync::Mutex::default(),
        })
    }

    fn open(&self) -> Option<OpenConnection> {
        let state = self.state.lock();
        state.open.as_ref().filter(|open| open.round == self.server.pending_kills.round()).cloned()
    }

    /// The open connection, or a new one.
    pub(crate) async fn get(self: &Arc<Self>) -> Result<OpenConnection, Failure> {
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let connection = self.clone();
        let made = tokio::spawn(async move { connection.make().await }).await;
        made.unwrap_or_else(|ended| Err(Failure::Transient { reconnect: false, text: ended.to_string() }))
    }

    /// Opens a connection, unless another caller has done so meanwhile.
    async fn make(&self) -> Result<OpenConnection, Failure> {
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        if let Some(refused) = &self.state.lock().refused
            && refused.at.elapsed() < RECONNECT_EVERY
        {
            return Err(Failure::Transient { reconnect: false, text: refused.text.clone() });
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.response_timeout));
        let round = self.server.pending_kills.round();
        let connecting = async {
            let made = self.endpoint.connect(&config).await;
            let (mut connection, driver) =
                made.map_err(|error| (error.is_connection_refusal(), Failure::from(error)))?;
            let identified = async {
                let tracked = identify(&mut connection, &self.server.clock).await?;
                self.server.pending_kills.run(&mut connection).await?;
                Ok(tracked)
            };
            let tracked = identified.await.map_err(|failure| (false, failure))?;
            Ok((connection, driver.map(Arc::new), Arc::new(tracked)))
        };
        // The crate's time-out covers the socket; this one covers a stalled server's answers too.
        let (gone, failure) = match tokio::time::timeout(self.connect_timeout * 2, connecting).await {
            Ok(Ok((connection, driver, tracked))) => {
                let mut state = self.state.lock();
                state.generation += 1;
                state.refused = None;
                let generation = state.generation;
                let open = OpenConnection { generation, connection, _driver: driver, tracked, round };
                state.open = Some(open.clone());
                return Ok(open);
            }
            Ok(Err(failed)) => failed,
            Err(_) => (
                false,
                Failure::Transient {
                    reconnect: false,
                    text: "redis did not answer a new connection in time".to_owned(),
                },
            ),
        };
        if let Failure::Transient { text, .. } = &failure {
            self.state.lock().refused = Some(RefusedConnection { at: Instant::now(), text: text.clone(), gone });
        }
        Err(failure)
    }

    /// The send deadline of a call that is sent on this connection now.
    pub(crate) async fn end(&self, open: &mut OpenConnection) -> Result<SendDeadline, Failure> {
        let end = self.server.clock.end(&mut open.connection).await;
        end.map_err(|failure| self.end_if_broken(open.generation, failure))
    }

    /// Closes a connection on which a call got no answer, and returns once that call cannot execute any more: the server
    /// killed the connection, or the call's send deadline, `over_at`, has passed. Callers that wait for the same
    /// connection share one kill.
    pub(crate) async fn fence(self: &Arc<Self>, lost: &OpenConnection, over_at: Instant) {
        self.broken(lost.generation);
        self.server.pending_kills.warn_no_kill_right(&lost.tracked);
        let longest = if lost.tracked.kills { over_at.max(Instant::now() + FENCE_WITHIN) } else { over_at };
        let (connection, lost) = (self.clone(), lost.clone());
        let ended = async move { connection.end_lost(&lost, over_at).await };
        let _ = tokio::spawn(tokio::time::timeout_at(longest, ended)).await;
    }

    async fn end_lost(self: &Arc<Self>, lost: &OpenConnection, over_at: Instant) {
        let _one_at_a_time = self.fencing.lock().await;
        while !lost.tracked.is_over() {
            match self.get().await {
                Ok(mut open) => match lost.tracked.kill_by(&mut open.connection).await {
                    Ok(true) => break,
                    Ok(false) => return tokio::time::sleep_until(over_at).await,
                    Err(_) => self.broken(open.generation),
                },
                Err(_)
                    if lost.tracked.kills
                        && self.is_gone()
                        && self.server.pending_kills.add(&lost.tracked, over_at) =>
                {
                    break;
                }
                Err(_) => {}
            }
            tokio::time::sleep(RECONNECT_EVERY).await;
        }
    }

    /// Ends the connection of `generation` where the failure calls for it.
    pub(crate) fn end_if_broken(&self, generation: u64, failure: Failure) -> Failure {
        if let Failure::Transient { reconnect: true, .. } = failure {
            self.broken(generation);
        }
        failure
    }

    /// Returns why a call got no answer, once the call cannot execute any more.
    pub(crate) async fn given_up(
        self: &Arc<Self>,
        open: &OpenConnection,
        end: SendDeadline,
        error: RedisError,
    ) -> Failure {
        let answered = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        let failure = self.end_if_broken(open.generation, Failure::from(error));
        if !answered {
            self.fence(open, end.over_at).await;
        }
        failure
    }

    /// True if the last attempt to connect was refused.
    fn is_gone(&self) -> bool {
        self.state.lock().refused.as_ref().is_some_and(|refused| refused.gone)
    }

    /// Ends the connection of `generation`, if it is still the one in use.
    pub(crate) fn broken(&self, generation: u64) {
        let mut state = self.state.lock();
        if state.generation == generation {
            state.open = None;
        }
    }
}
