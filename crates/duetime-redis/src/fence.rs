//! Keeps a call that was sent on an abandoned connection from executing later.
//!
//! The server closes that connection when another connection asks it to (`CLIENT KILL`): a call that the server has not
//! read by then never runs. Where the user may not kill connections, the caller waits for the call's send deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::error::{Failure, into_result};
use crate::reply::word;
use crate::server_clock::ServerClock;

/// A call whose send deadline has passed is fenced for this long all the same, in case a clock was set.
pub(crate) const FENCE_WITHIN: Duration = Duration::from_millis(250);
/// No connection has this id: CLIENT KILL of it kills none, and shows whether the user may kill any.
const NO_CONNECTION: &str = "9223372036854775807";
/// Most pending kills of one server. Beyond, a call waits for its send deadline.
const PENDING_MAX: usize = 256;

/// How a server identifies a connection: by id and address, since a restarted server assigns its ids again.
#[derive(Debug, Default)]
pub(crate) struct ConnectionId {
    id: u64,
    addr: String,
}

/// A connection, and whether calls that were sent on it can still execute.
#[derive(Debug, Default)]
pub(crate) struct TrackedConnection {
    id: Option<ConnectionId>,
    /// True if the user may kill connections.
    pub(crate) kills: bool,
    over: AtomicBool,
}

impl TrackedConnection {
    /// True once nothing that was sent on this connection can execute.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn kill_command(&self) -> Option<Cmd> {
        let id = self.id.as_ref()?;
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(id.id).arg("ADDR").arg(&id.addr);
        Some(kill)
    }

    /// Kills the connection, by `by`, another connection to its server. Returns false if the user may not.
    pub(crate) async fn kill_by(&self, by: &mut MultiplexedConnection) -> Result<bool, Failure> {
        let Some(kill) = self.kill_command().filter(|_| self.kills) else { return Ok(false) };
        match into_result(by.send_packed_command(&kill).await?) {
            // How many were ended: none, if it had ended by itself.
            Ok(Value::Int(_)) => self.over.store(true, Ordering::Release),
            Ok(_) => {}
            Err(Failure::Transient { reconnect, text }) => return Err(Failure::Transient { reconnect, text }),
            Err(failure) => debug!(?failure, "redis does not kill a connection"),
        }
        Ok(self.is_over())
    }
}

/// Asks the server for the id of a new connection and for its time, which goes to `clock`.
pub(crate) async fn identify(
    by: &mut MultiplexedConnection,
    clock: &ServerClock,
) -> Result<TrackedConnection, Failure> {
    let mut all = Pipeline::with_capacity(3);
    all.cmd("CLIENT").arg("INFO");
    all.cmd("TIME");
    all.cmd("CLIENT").arg("KILL").arg("ID").arg(NO_CONNECTION);
    let asked = Instant::now();
    let answers = by.send_packed_commands(&all, 0, 3).await?;
    let [info, time, kill] = <[Value; 3]>::try_from(answers).map_err(|_| Failure::unexpected_reply("a greeting"))?;
    // A busy server identifies the connection when it is busy no more.
    if let Err(failure @ Failure::Transient { .. }) = into_result(info.clone()) {
        return Err(failure);
    }
    // Not every server permits these commands. Without an id, calls wait for their send deadlines instead.
    clock.record(asked, &time);
    let id = connection_id(&info);
    let kills = id.is_some() && !matches!(into_result(kill), Err(Failure::Final(_)));
    Ok(TrackedConnection { id, kills, over: AtomicBool::new(false) })
}

/// Reads `id` and `addr` from the reply to CLIENT INFO.
pub(crate) fn connection_id(info: &Value) -> Option<ConnectionId> {
    let text = match info {
        Value::VerbatimString { text, .. } => text.clone(),
        other => word(other)?,
    };
    let field = |name: &str| text.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    Some(ConnectionId { id: field("id")?.parse().ok()?, addr: field("addr")?.to_owned() })
}

/// A connection to kill once its server accepts connections again.
struct PendingKill {
    connection: Arc<TrackedConnection>,
    over_at: Instant,
}

/// Connections of one server that must be killed before any new connection to it is used.
#[derive(Default)]
pub(crate) struct PendingKills {
    kills: Mutex<Vec<PendingKill>>,
    /// Grows with each pending kill: connections that were opened before are not used any more.
    round: AtomicU64,
    reported: AtomicBool,
}

impl PendingKills {
    /// The current round; connections of another round must not be used.
    pub(crate) fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    /// Adds a connection whose server refuses connections: its process is gone, or out of reach until a new connection
    /// is opened, which is not used before the old one was killed. Returns false if there are too many.
    pub(crate) fn add(&self, connection: &Arc<TrackedConnection>, over_at: Instant) -> bool {
        let mut kills = self.kills.lock();
        kills.retain(|pending| pending.over_at > Instant::now());
        if kills.len() >= PENDING_MAX {
            return false;
        }
        kills.push(PendingKill { connection: connection.clone(), over_at });
        self.round.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Runs all pending kills, by a connection that is not used yet.
    pub(crate) async fn run(&self, by: &mut MultiplexedConnection) -> Result<(), Failure> {
        let left: Vec<(Arc<TrackedConnection>, Instant)> =
            self.kills.lock().iter().map(|pending| (pending.connection.clone(), pending.over_at)).collect();
        let is_due = |over_at: Instant| over_at > Instant::now();
        for (connection, over_at) in left {
            if !connection.is_over() && is_due(over_at) && !connection.kill_by(by).await? && is_due(over_at) {
                let text = "a call on an abandoned connection may still execute".to_owned();
                return Err(Failure::Transient { reconnect: false, text });
            }
        }
        self.kills.lock().retain(|pending| !pending.connection.is_over() && is_due(pending.over_at));
        Ok(())
    }

    /// Warns once that this user may not kill connections, so that lost ones cost more time.
    pub(crate) fn warn_no_kill_right(&self, connection: &TrackedConnection) {
        if !connection.kills && !self.reported.swap(true, Ordering::Relaxed) {
            warn!(
                "redis does not permit this user to kill connections: after a lost connection, calls wait up to \
                 store.response_timeout before they are repeated; allow it: \
                 ACL SETUSER <user> +client|id +client|info +client|kill"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_read_from_what_the_server_says_of_it() {
        let info = "id=7 addr=127.0.0.1:4711 laddr=127.0.0.1:6379 fd=8 name= resp=2 user=default\n";
        let id = connection_id(&Value::BulkString(info.as_bytes().to_vec())).unwrap();
        assert_eq!((id.id, id.addr.as_str()), (7, "127.0.0.1:4711"));
        assert!(connection_id(&Value::Nil).is_none());
        assert!(connection_id(&Value::BulkString(b"id=x addr=y".to_vec())).is_none());
    }

    #[test]
    fn a_pending_kill_ends_the_round_of_all_connections() {
        let (kills, connection) = (PendingKills::default(), Arc::new(TrackedConnection::default()));
        let before = kills.round();
        assert!(kills.add(&connection, Instant::now() + FENCE_WITHIN));
        assert_ne!(kills.round(), before);
        for _ in 1..PENDING_MAX {
            assert!(kills.add(&connection, Instant::now() + FENCE_WITHIN));
        }
        assert!(!kills.add(&connection, Instant::now() + FENCE_WITHIN), "beyond, the caller waits");
    }
}
