//! Scripts whose answers say how many replicas have what they wrote.
//!
//! Calls that meet go in one write with one WAIT behind them all, on a connection of their own: WAIT
//! holds it up. Whoever finds the connection free sends for all who wait by then.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Client, Cmd, Pipeline, Value};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connection::{Server, Slot};
use crate::error::{Failure, LinkError};
use crate::link::{Link, LinkConfig};
use crate::node::{end_if_broken, given_up, judged, judged_in_time};
use crate::patience::Lesson;
use crate::script::{Script, Sending};
use crate::server_clock::End;

/// Longest wait for replicas; what they have by then is what the answer says.
const WAIT_FOR: Duration = Duration::from_secs(1);
/// Most calls in one write.
const GROUP_MAX: usize = 64;

type Answer = Result<(Value, u32), Failure>;

/// One call that waits to be sent.
struct Job {
    script: Cmd,
    /// A write that changes nothing: WAIT is for writes of its own connection, and a repeated
    /// script writes nothing.
    mark: Cmd,
    asking: bool,
    replicas: u8,
    end: End,
    answer: oneshot::Sender<Answer>,
}

/// The connection for it, and who waits for it.
pub(crate) struct Confirms {
    slot: Slot,
    server: Arc<Server>,
    waiting: Mutex<Vec<Job>>,
    sending: Arc<tokio::sync::Mutex<()>>,
    wait_ms: u64,
    /// A call whose end is nearer than this is not sent any more.
    least: Duration,
}

fn lost() -> Failure {
    Failure::Transient { reconnect: true, text: "the call that spoke for this one was given up".to_owned() }
}

impl Confirms {
    pub(crate) fn new(client: &Client, config: &LinkConfig, server: &Arc<Server>) -> Self {
        let slot = Slot::new(client, config, server);
        // An answer must not come later than the connection waits for one.
        let wait_ms = u64::try_from(WAIT_FOR.min(config.response_timeout / 2).as_millis()).expect("a second at most");
        Self {
            slot,
            server: server.clone(),
            waiting: Mutex::default(),
            sending: Arc::default(),
            wait_ms: wait_ms.max(1),
            least: config.response_timeout / 2,
        }
    }

    /// Sends a script once; answers with how many of `replicas` have it.
    async fn send(self: &Arc<Self>, mark: Cmd, asking: bool, replicas: u8, made: impl FnOnce(i64) -> Cmd) -> Answer {
        let end = self.slot.end(&mut self.slot.get().await?).await?;
        let (answer, mut own) = oneshot::channel();
        let script = made(end.not_after_ms);
        self.waiting.lock().push(Job { script, mark, asking, replicas, end, answer });
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
            let jobs: Vec<Job> = {
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

    async fn send_group(&self, jobs: Vec<Job>) {
        let soon = Instant::now() + self.least;
        let (jobs, stale): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(|job| job.end.over_at > soon);
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
        all.cmd("WAIT").arg(replicas).arg(self.wait_ms);
        let (generation, sent) = match self.slot.get().await {
            Ok(mut open) => {
                let sent = match open.connection.send_packed_commands(&all, 0, all.len()).await {
                    Ok(values) => Ok(values),
                    Err(error) => Err(given_up(&self.slot, &open, end, error).await),
                };
                (open.generation, sent)
            }
            Err(failure) => (0, Err(failure)),
        };
        let mut values = match sent {
            Ok(values) => values,
            Err(failure) => {
                for job in jobs {
                    let _ = job.answer.send(Err(failure.clone()));
                }
                return;
            }
        };
        let reached = match values.pop() {
            Some(Value::Int(reached)) => u32::try_from(reached).unwrap_or(0),
            // Demoted in between, or no answer at all.
            _ => 0,
        };
        let mut values = values.into_iter();
        let mut answers = Vec::with_capacity(jobs.len());
        for job in &jobs {
            let mut next = || {
                if job.asking {
                    values.next();
                }
                values.next().ok_or_else(|| Failure::odd("an answer is missing"))
            };
            let script = next().and_then(|value| judged_in_time(value, &self.server.clock));
            let mark = next().and_then(judged);
            answers.push((script, mark.is_ok()));
        }
        // Behind the last mark WAIT proves nothing of what was written on this connection.
        let last = answers.iter().rposition(|(_, marked)| *marked);
        for (at, (job, (script, _))) in jobs.into_iter().zip(answers).enumerate() {
            let reached = if last.is_some_and(|last| at <= last) { reached } else { 0 };
            let answer = script
                .map(|value| (value, reached.min(u32::from(job.replicas))))
                .map_err(|failure| end_if_broken(&self.slot, generation, failure));
            // A caller that gave up needs no answer.
            let _ = job.answer.send(answer);
        }
    }
}

impl Link {
    /// Runs a script as [`Link::script`] does, waits a moment for `replicas` replicas to have what it
    /// wrote, and answers how many do. `mark` is a write that changes nothing, on a key beside those
    /// of the script.
    ///
    /// # Errors
    ///
    /// See [`LinkError`]. Too few replicas are no error.
    pub async fn confirmed<F>(
        &self,
        script: &Script,
        key: &str,
        replicas: u8,
        mark: &Cmd,
        fill: F,
    ) -> Result<(Value, u32), LinkError>
    where
        F: Fn(&mut Cmd, &Sending) + Send + Sync,
    {
        let mut lesson = Lesson::default();
        let mut patience = self.patience(script.name());
        loop {
            let repeated = lesson.unsure;
            let sent = match self.prepared(script, key, &mut lesson).await {
                Ok((node, asking)) => {
                    let made = |till| self.call(script, &fill, repeated, till);
                    node.confirms.send(mark.clone(), asking, replicas, made).await
                }
                Err(failure) => Err(failure),
            };
            let failure = match sent {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            lesson.learn(&failure);
            self.after(&mut patience, failure).await?;
        }
    }
}
