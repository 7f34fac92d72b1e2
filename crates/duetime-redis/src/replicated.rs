//! Scripts whose answers count only when replicas have what they rest on.
//!
//! Script, WAIT and the server's word on who it is go in one write on one connection: all three are
//! of one server, whatever fails over meanwhile. WAIT holds its connection up, so these are not the
//! ones that other calls use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, Value};

use crate::config::LinkConfig;
use crate::connection::{Server, ServerConnection};
use crate::dial::Endpoint;
use crate::error::{Failure, into_result};
use crate::reply::text;

/// Connections to a server on which calls wait for replicas.
const CONNECTIONS: usize = 4;
/// Longest wait for replicas within one sending; above the usual silence of one that is well.
const WAIT_FOR: Duration = Duration::from_secs(1);

/// Whether there are replicas was not asked yet.
pub(crate) const UNKNOWN: u32 = u32::MAX;
/// A replica says every second what it has; one that is silent for longer, in seconds, does not follow.
const LAG_MAX_S: u64 = 3;

/// Who stands behind an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    /// Replicas that have all the server had when it answered. 0: it has none to wait for.
    pub replicas: u32,
    /// The history of the server that answered: another one after each failover and restart.
    pub server: String,
}

/// The connections for it, and how many replicas to wait for.
pub(crate) struct ReplicaWaits {
    connections: Vec<Arc<ServerConnection>>,
    server: Arc<Server>,
    turn: AtomicUsize,
    /// Replicas that followed when the server was last asked; [`UNKNOWN`] before that.
    online: AtomicU32,
}

impl ReplicaWaits {
    pub(crate) fn new(endpoint: &Endpoint, config: &LinkConfig, server: &Arc<Server>) -> Self {
        let connections = (0..CONNECTIONS).map(|_| ServerConnection::new(endpoint, config, server)).collect();
        Self { connections, server: server.clone(), turn: AtomicUsize::new(0), online: AtomicU32::new(UNKNOWN) }
    }

    fn connection(&self) -> &Arc<ServerConnection> {
        &self.connections[self.turn.fetch_add(1, Ordering::Relaxed) % self.connections.len()]
    }

    /// Sends a script once, with what has to be known of its answer; see [`Node::carry`](crate::node::Node::carry).
    pub(crate) async fn send(
        &self,
        asking: bool,
        replicas: u8,
        made: impl FnOnce(i64) -> Cmd,
    ) -> Result<(Value, Backing), Failure> {
        let slot = self.connection();
        let mut open = slot.get().await?;
        let generation = open.generation;
        let most = u32::from(replicas.max(1));
        let mut online = self.online.load(Ordering::Relaxed);
        if online == UNKNOWN {
            let mut info = redis::cmd("INFO");
            info.arg("replication");
            let answer = open.connection.send_packed_command(&info).await.map_err(Failure::from).and_then(into_result);
            let answer = answer.map_err(|failure| slot.end_if_broken(generation, failure))?;
            online = read(&answer).map_or(0, |(online, _)| online);
        }
        let least = online.min(most);
        let mut all = Pipeline::with_capacity(4);
        if asking {
            all.cmd("ASKING");
        }
        let end = slot.end(&mut open).await?;
        all.add_command(made(end.not_after_ms));
        // Zero replicas are there at once.
        let wait_ms = u64::try_from(WAIT_FOR.as_millis()).expect("a second");
        all.cmd("WAIT").arg(least).arg(if least == 0 { 1 } else { wait_ms });
        all.cmd("INFO").arg("replication");
        let mut values = match open.connection.send_packed_commands(&all, usize::from(asking), 3).await {
            Ok(values) => values,
            Err(error) => return Err(slot.given_up(&open, end, error).await),
        };
        values = values
            .into_iter()
            .map(|value| {
                let answer = self.server.clock.checked(value);
                answer.map_err(|failure| slot.end_if_broken(generation, failure))
            })
            .collect::<Result<_, _>>()?;
        let unexpected_reply =
            || Failure::Transient { reconnect: true, text: "redis answered oddly to WAIT".to_owned() };
        let [value, Value::Int(have), info] = <[Value; 3]>::try_from(values).map_err(|_| unexpected_reply())? else {
            return Err(unexpected_reply());
        };
        let (online, server) = read(&info).ok_or_else(unexpected_reply)?;
        let wanted = online.min(most);
        self.online.store(online, Ordering::Relaxed);
        let have = u32::try_from(have).unwrap_or(0);
        if have < wanted {
            let text = format!("{have} of {online} replicas have it so far");
            return Err(Failure::Transient { reconnect: false, text });
        }
        Ok((value, Backing { replicas: have.min(online), server }))
    }
}

/// Replicas that follow, and the server's history, from INFO.
pub(crate) fn read(info: &Value) -> Option<(u32, String)> {
    let text = match info {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::VerbatimString { text, .. } => text,
        _ => return None,
    };
    let online = text.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count();
    let server = text.lines().find_map(|line| line.strip_prefix("master_replid:"))?;
    Some((u32::try_from(online).ok()?, server.trim().to_owned()))
}

/// Replicas that follow and are not silent, by the text of INFO.
pub(crate) fn following_in(info: &str) -> u32 {
    let lag = |line: &str| line.trim().rsplit_once("lag=").and_then(|(_, lag)| lag.parse::<u64>().ok());
    let follows = |line: &&str| {
        line.starts_with("slave") && line.contains("state=online") && lag(line).is_none_or(|lag| lag <= LAG_MAX_S)
    };
    u32::try_from(info.lines().filter(follows).count()).unwrap_or(u32::MAX)
}

/// Asks the master on `connection` how many replicas follow it.
pub(crate) async fn followers(connection: &mut MultiplexedConnection) -> Result<u32, Failure> {
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    let info_text = text(&into_result(connection.send_packed_command(&info).await?)?);
    if info_text.contains("role:slave") {
        return Err(Failure::Transient { reconnect: true, text: "redis is no master any more".to_owned() });
    }
    Ok(following_in(&info_text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replicas_that_follow_are_waited_for() {
        let info = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=1.2.3.4,port=1,state=online,offset=7,lag=0\r\n\
                    slave1:ip=1.2.3.5,port=1,state=wait_bgsave,offset=0,lag=0\r\nmaster_replid:abc\r\n";
        assert_eq!(read(&Value::BulkString(info.as_bytes().to_vec())), Some((1, "abc".to_owned())));
        assert_eq!(read(&Value::Okay), None);
        let silent = info.replace("offset=7,lag=0", "offset=7,lag=9");
        assert_eq!((following_in(info), following_in(&silent)), (1, 0));
    }
}
