//! What was sent on a connection that was given up must not be carried out any more.
//!
//! The server ends that connection when another one requests it: what it has not read of it by then it
//! never runs. Where that cannot be done, the sending's end is waited for.

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

/// A sending that is over by its end is looked after for this long all the same, in case a clock was set.
pub(crate) const FENCE_WITHIN: Duration = Duration::from_millis(250);
/// No client has this number: who may not end any is refused, who may ends none.
const NOBODY: &str = "9223372036854775807";
/// Connections that one process may still have behind it; older ones wait for the end of their calls.
const OWED_MAX: usize = 256;

/// A connection as its server sees it. Number and address together: a server that was restarted
/// begins its numbers again.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    id: u64,
    addr: String,
}

/// One connection, and whether all that was sent on it is over.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    sight: Option<Sight>,
    /// The user may end connections.
    pub(crate) kills: bool,
    over: AtomicBool,
}

impl Seen {
    /// Nothing that was sent on it can be carried out any more.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn kill(&self) -> Option<Cmd> {
        let sight = self.sight.as_ref()?;
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(sight.id).arg("ADDR").arg(&sight.addr);
        Some(kill)
    }

    /// Has the server end it; false, if that cannot be done. `by` is another connection to that server.
    pub(crate) async fn end(&self, by: &mut MultiplexedConnection) -> Result<bool, Failure> {
        let Some(kill) = self.kill().filter(|_| self.kills) else { return Ok(false) };
        match into_result(by.send_packed_command(&kill).await?) {
            // How many were ended: none, if it had ended by itself.
            Ok(Value::Int(_)) => self.over.store(true, Ordering::Release),
            Ok(_) => {}
            Err(Failure::Transient { reconnect, text }) => return Err(Failure::Transient { reconnect, text }),
            Err(failure) => debug!(?failure, "redis does not end a connection"),
        }
        Ok(self.is_over())
    }
}

/// Who a new connection is to its server, and what time it is there.
pub(crate) async fn greet(by: &mut MultiplexedConnection, clock: &ServerClock) -> Result<Seen, Failure> {
    let mut all = Pipeline::with_capacity(3);
    all.cmd("CLIENT").arg("INFO");
    all.cmd("TIME");
    all.cmd("CLIENT").arg("KILL").arg("ID").arg(NOBODY);
    let asked = Instant::now();
    let answers = by.send_packed_commands(&all, 0, 3).await?;
    let [info, time, kill] = <[Value; 3]>::try_from(answers).map_err(|_| Failure::unexpected_reply("a greeting"))?;
    // A server that is busy will say who we are when it is not.
    if let Err(failure @ Failure::Transient { .. }) = into_result(info.clone()) {
        return Err(failure);
    }
    // Not every server lets everybody ask; what is missing makes calls wait and is no failure.
    clock.heard(asked, &time);
    let sight = sight(&info);
    let kills = sight.is_some() && !matches!(into_result(kill), Err(Failure::Final(_)));
    Ok(Seen { sight, kills, over: AtomicBool::new(false) })
}

/// `id` and `addr` of CLIENT INFO.
pub(crate) fn sight(info: &Value) -> Option<Sight> {
    let text = match info {
        Value::VerbatimString { text, .. } => text.clone(),
        other => word(other)?,
    };
    let field = |name: &str| text.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    Some(Sight { id: field("id")?.parse().ok()?, addr: field("addr")?.to_owned() })
}

/// A call that was repeated elsewhere, because its server took no connection any more.
struct OwedFence {
    seen: Arc<Seen>,
    over_at: Instant,
}

/// What all connections to one server share.
#[derive(Default)]
pub(crate) struct Debts {
    owed: Mutex<Vec<OwedFence>>,
    /// Grows with each debt: connections that were made before are not used any more.
    round: AtomicU64,
    reported: AtomicBool,
}

impl Debts {
    /// Connections of another round are not to be used.
    pub(crate) fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    /// Nobody listens there: the process that had the call is gone, or out of reach until a new connection is
    /// made, which is not used before the old one was ended.
    pub(crate) fn owe(&self, seen: &Arc<Seen>, over_at: Instant) -> bool {
        let mut owed = self.owed.lock();
        owed.retain(|debt| debt.over_at > Instant::now());
        if owed.len() >= OWED_MAX {
            return false;
        }
        owed.push(OwedFence { seen: seen.clone(), over_at });
        self.round.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Ends what is owed, by a connection that nobody uses yet.
    pub(crate) async fn settle(&self, by: &mut MultiplexedConnection) -> Result<(), Failure> {
        let left: Vec<(Arc<Seen>, Instant)> =
            self.owed.lock().iter().map(|debt| (debt.seen.clone(), debt.over_at)).collect();
        for (seen, over_at) in left {
            if !seen.is_over() && over_at > Instant::now() && !seen.end(by).await? && over_at > Instant::now() {
                let text = "a call that was given up may still be carried out".to_owned();
                return Err(Failure::Transient { reconnect: false, text });
            }
        }
        self.owed.lock().retain(|debt| !debt.seen.is_over() && debt.over_at > Instant::now());
        Ok(())
    }

    /// Says once that lost connections cost more than they need to.
    pub(crate) fn tell(&self, seen: &Seen) {
        if !seen.kills && !self.reported.swap(true, Ordering::Relaxed) {
            warn!(
                "redis does not permit this user to end connections: after a lost connection, calls wait up to \
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
        let seen = sight(&Value::BulkString(info.as_bytes().to_vec())).unwrap();
        assert_eq!((seen.id, seen.addr.as_str()), (7, "127.0.0.1:4711"));
        assert!(sight(&Value::Nil).is_none());
        assert!(sight(&Value::BulkString(b"id=x addr=y".to_vec())).is_none());
    }

    #[test]
    fn a_debt_ends_the_round_of_all_connections() {
        let (debts, seen) = (Debts::default(), Arc::new(Seen::default()));
        let before = debts.round();
        assert!(debts.owe(&seen, Instant::now() + FENCE_WITHIN));
        assert_ne!(debts.round(), before);
        for _ in 1..OWED_MAX {
            assert!(debts.owe(&seen, Instant::now() + FENCE_WITHIN));
        }
        assert!(!debts.owe(&seen, Instant::now() + FENCE_WITHIN), "who finds no room waits");
    }
}
