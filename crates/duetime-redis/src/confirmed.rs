//! Scripts whose answers say how many replicas have what they wrote.
//!
//! Calls that meet go in one write with one WAIT behind them all, on a connection of their own: WAIT
//! holds it up. Whoever finds the connection free sends for all who wait by then.
//!
//! A WAIT that ends in an error is no answer: the server was demoted meanwhile, and what it carried out
//! may be gone with it. The call is repeated at the present master. Where fewer replicas have it than
//! follow the server, WAIT is repeated for a while; the script is not, for its answer holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::LinkConfig;
use crate::connection::{OpenConnection, Server, ServerConnection};
use crate::dial::Endpoint;
use crate::error::{Failure, LinkError, into_result};
use crate::replicated::{UNKNOWN, followers};
use crate::server_clock::SendDeadline;

/// Longest wait for replicas in one sending.
const WAIT_FOR: Duration = Duration::from_secs(1);
/// How long replicas that follow the server are waited for in all; what they have by then is what the
/// answer says. A replica that is silent for longer does not follow.
const SHORT_MAX: Duration = Duration::from_secs(4);
/// Most calls in one write.
const GROUP_MAX: usize = 64;
/// Most calls that wait to be sent to one server. Each has a caller that waits for it, and callers have bounds of
/// their own; this one holds if those are ever wrong.
const WAITING_MAX: usize = 4_096;

type ConfirmedAnswer = Result<(Value, u32), Failure>;

/// One call that waits to be sent.
struct ConfirmedCall {
    script: Cmd,
    /// A write that changes nothing: WAIT is for writes of its own connection, and a repeated
    /// script writes nothing.
    mark: Cmd,
    asking: bool,
    replicas: u8,
    end: SendDeadline,
    answer: oneshot::Sender<ConfirmedAnswer>,
}

/// The connection for it, and who waits for it.
pub(crate) struct Confirms {
    connection: Arc<ServerConnection>,
    server: Arc<Server>,
    waiting: Mutex<Vec<ConfirmedCall>>,
    sending: Arc<tokio::sync::Mutex<()>>,
    wait_ms: u64,
    /// A call whose end is nearer than this is not sent any more.
    least: Duration,
    /// Replicas that followed when the server was last asked; [`UNKNOWN`] before that.
    following: AtomicU32,
}

/// Nothing was sent.
fn too_many() -> Failure {
    let text = format!("{WAITING_MAX} calls wait for this server already; send fewer at once, or add masters");
    Failure::Transient { reconnect: false, text }
}

fn lost() -> Failure {
    Failure::Transient { reconnect: true, text: "the call that spoke for this one was given up".to_owned() }
}

impl Confirms {
    pub(crate) fn new(endpoint: &Endpoint, config: &LinkConfig, server: &Arc<Server>) -> Self {
        let connection = ServerConnection::new(endpoint, config, server);
        // An answer must not come later than the connection waits for one.
        let wait_ms = u64::try_from(WAIT_FOR.min(config.response_timeout / 2).as_millis()).expect("a second at most");
        Self {
            connection,
            server: server.clone(),
            waiting: Mutex::default(),
            sending: Arc::default(),
            wait_ms: wait_ms.max(1),
            least: config.response_timeout / 2,
            following: AtomicU32::new(UNKNOWN),
        }
    }

    /// Sends a script once; answers with how many of `replicas` have it.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mark: Cmd,
        asking: bool,
        replicas: u8,
        made: impl FnOnce(i64) -> Cmd,
    ) -> ConfirmedAnswer {
        let end = self.connection.end(&mut self.connection.get().await?).await?;
        let (answer, mut own) = oneshot::channel();
        let script = made(end.not_after_ms);
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= WAITING_MAX {
                return Err(too_many());
            }
            waiting.push(ConfirmedCall { script, mark, asking, replicas, end, answer });
        }
        loop {
            let alone = tokio::select! {
                biased;
                answer = &mut own => return answer.unwrap_or_else(|_| Err(lost())),
                alone = self.sending.clone().lock_owned() => alone,
            };
            // It may have been among those of the one before.
            if let Ok(answer) = own.try_recv() {
                return answer;
            }
            let jobs: Vec<ConfirmedCall> = {
                let mut waiting = self.waiting.lock();
                let count = waiting.len().min(GROUP_MAX);
                waiting.drain(..count).collect()
            };
            // A caller that goes away must not leave the others without the end of what it sent for them.
            let confirms = self.clone();
            let group = tokio::spawn(async move {
                let _alone = alone;
                confirms.send_group(jobs).await;
            });
            let _ = group.await;
        }
    }

    async fn send_group(&self, jobs: Vec<ConfirmedCall>) {
        let soon = Instant::now() + self.least;
        let (jobs, stale): (Vec<ConfirmedCall>, Vec<ConfirmedCall>) =
            jobs.into_iter().partition(|job| job.end.over_at > soon);
        for job in stale {
            let text = "too many calls wait for replicas".to_owned();
            let _ = job.answer.send(Err(Failure::Transient { reconnect: false, text }));
        }
        // What is sent is over when the last of them is.
        let Some(end) = jobs.iter().map(|job| job.end).max_by_key(|end| end.over_at) else { return };
        let mut all = Pipeline::with_capacity(jobs.len() * 2 + 1);
        let mut replicas = 1;
        for job in &jobs {
            for cmd in [&job.script, &job.mark] {
                if job.asking {
                    all.cmd("ASKING").ignore();
                }
                all.add_command(cmd.clone());
            }
            replicas = replicas.max(job.replicas);
        }
        let (generation, sent) = match self.connection.get().await {
            Ok(mut open) => {
                let sent = self.wait_behind(&mut open, end, all, replicas).await;
                (open.generation, sent.map_err(|failure| self.connection.end_if_broken(open.generation, failure)))
            }
            Err(failure) => (0, Err(failure)),
        };
        let (values, reached) = match sent {
            Ok((values, reached)) => {
                (values, reached.map_err(|failure| self.connection.end_if_broken(generation, failure)))
            }
            Err(failure) => {
                for job in jobs {
                    let _ = job.answer.send(Err(failure.clone()));
                }
                return;
            }
        };
        let mut values = values.into_iter();
        let mut answers = Vec::with_capacity(jobs.len());
        for job in &jobs {
            let mut next = || {
                if job.asking {
                    values.next();
                }
                values.next().ok_or_else(|| Failure::unexpected_reply("an answer is missing"))
            };
            let script = next().and_then(|value| self.server.clock.checked(value));
            let mark = next().and_then(into_result);
            let script = script.map_err(|failure| self.connection.end_if_broken(generation, failure));
            // Turned away, or demoted, between the two: what the script wrote may not last.
            let script = match (script, &mark) {
                (Ok(_), Err(failure)) if !matches!(failure, Failure::Final(_)) => {
                    let text = "redis turned away what follows a script".to_owned();
                    Err(Failure::Transient { reconnect: true, text })
                }
                (script, _) => script,
            };
            answers.push((script, mark.is_ok()));
        }
        // Behind the last mark WAIT proves nothing of what was written on this connection.
        let last = answers.iter().rposition(|(_, marked)| *marked);
        for (at, (job, (script, _))) in jobs.into_iter().zip(answers).enumerate() {
            let answer = script.and_then(|value| match &reached {
                _ if last.is_none_or(|last| at > last) => Ok((value, 0)),
                Ok(reached) => Ok((value, (*reached).min(u32::from(job.replicas)))),
                Err(failure) => Err(failure.clone()),
            });
            // A caller that gave up needs no answer.
            let _ = job.answer.send(answer);
        }
    }

    /// Sends commands with WAIT behind them, and waits until `replicas` replicas have it all, or as many
    /// as follow. Answers the values, and how many replicas it were, or why that is not known.
    async fn wait_behind(
        &self,
        open: &mut OpenConnection,
        end: SendDeadline,
        mut all: Pipeline,
        replicas: u8,
    ) -> Result<(Vec<Value>, Result<u32, Failure>), Failure> {
        if self.following.load(Ordering::Relaxed) == UNKNOWN {
            self.following.store(followers(&mut open.connection).await?, Ordering::Relaxed);
        }
        let (asked, began) = (u32::from(replicas), Instant::now());
        let mut least = self.following.load(Ordering::Relaxed).min(asked);
        all.cmd("WAIT").arg(least).arg(self.wait_ms);
        let mut values = match open.connection.send_packed_commands(&all, 0, all.len()).await {
            Ok(values) => values,
            Err(error) => return Err(self.connection.given_up(open, end, error).await),
        };
        let mut answer = values.pop();
        loop {
            let reached = match answer.map(into_result) {
                Some(Ok(Value::Int(reached))) => u32::try_from(reached).unwrap_or(0),
                Some(Err(Failure::Final(error @ (LinkError::NotPermitted(_) | LinkError::LoginRefused)))) => {
                    return Ok((values, Err(Failure::Final(error))));
                }
                other => {
                    let text = format!("redis was demoted while replicas were waited for ({other:?})");
                    return Ok((values, Err(Failure::Transient { reconnect: true, text })));
                }
            };
            if reached >= asked {
                return Ok((values, Ok(reached)));
            }
            // An answer that is lost here leaves open whether the scripts' effects last.
            let following = match followers(&mut open.connection).await {
                Ok(following) => following,
                Err(failure) => return Ok((values, Err(failure))),
            };
            self.following.store(following, Ordering::Relaxed);
            least = following.min(asked);
            if reached >= least || began.elapsed() >= SHORT_MAX {
                return Ok((values, Ok(reached)));
            }
            let mut wait = redis::cmd("WAIT");
            wait.arg(least).arg(self.wait_ms);
            answer = match open.connection.send_packed_command(&wait).await {
                Ok(answer) => Some(answer),
                Err(error) => return Ok((values, Err(Failure::from(error)))),
            };
        }
    }
}
