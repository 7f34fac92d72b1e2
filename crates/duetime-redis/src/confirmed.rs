//! Scripts whose answers say how many replicas have what they wrote.
//!
//! Calls that meet go in one write with one WAIT behind them all, on a connection of their own: WAIT
//! holds it up. Whoever finds the connection free sends for all who wait by then.

use std::time::Duration;

use parking_lot::Mutex;
use redis::{Client, Cmd, Pipeline, Value};
use tokio::sync::oneshot;

use crate::connection::Slot;
use crate::error::{Failure, LinkError};
use crate::link::{Link, LinkConfig};
use crate::node::{end_if_broken, judged};
use crate::patience::Lesson;
use crate::script::{Script, Sending};

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
    answer: oneshot::Sender<Answer>,
}

/// The connection for it, and who waits for it.
pub(crate) struct Confirms {
    slot: Slot,
    waiting: Mutex<Vec<Job>>,
    sending: tokio::sync::Mutex<()>,
    wait_ms: u64,
}

fn lost() -> Failure {
    Failure::Transient { reconnect: true, text: "the call that spoke for this one was given up".to_owned() }
}

impl Confirms {
    pub(crate) fn new(client: &Client, config: &LinkConfig) -> Self {
        let slot = Slot::new(client.clone(), config.connect_timeout, config.response_timeout);
        // An answer must not come later than the connection waits for one.
        let wait_ms = u64::try_from(WAIT_FOR.min(config.response_timeout / 2).as_millis()).expect("a second at most");
        Self { slot, waiting: Mutex::default(), sending: tokio::sync::Mutex::default(), wait_ms: wait_ms.max(1) }
    }

    /// Sends a script once; answers with how many of `replicas` have it.
    async fn send(&self, script: Cmd, mark: Cmd, asking: bool, replicas: u8) -> Answer {
        let (answer, mut own) = oneshot::channel();
        self.waiting.lock().push(Job { script, mark, asking, replicas, answer });
        loop {
            let _alone = tokio::select! {
                biased;
                answer = &mut own => return answer.unwrap_or_else(|_| Err(lost())),
                alone = self.sending.lock() => alone,
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
            self.send_group(jobs).await;
        }
    }

    async fn send_group(&self, jobs: Vec<Job>) {
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
            Ok((generation, mut connection)) => {
                let sent = connection.send_packed_commands(&all, 0, all.len()).await;
                (generation, sent.map_err(|error| end_if_broken(&self.slot, generation, Failure::from(error))))
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
            let (script, mark) = (next().and_then(judged), next().and_then(judged));
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
            let sent = match self.prepared(script, &fill, &mut lesson).await {
                Ok((node, cmd, asking)) => node.confirms.send(cmd, mark.clone(), asking, replicas).await,
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
