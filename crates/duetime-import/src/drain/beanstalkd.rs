//! A tube of beanstalkd. Delayed jobs are looked at and deleted by their number, ready ones are reserved.
//!
//! A delayed job is not reserved (`reserve-job` could): when the connection of whoever reserved it ends, it is ready at
//! once, and a worker would have it early.

use std::collections::HashSet;
use std::sync::Arc;

use duetime_core::{Clock, Timestamp};

use super::beanstalk_client::{Client, Reply, number};
use super::taken::{BATCH_BYTES, Job, PUT_AT, Place, PlaceIn, Removal, Sameness, Taken, Waiting};
use crate::item::{Item, header, message, refused};
use crate::options::{SourceError, SourceOptions, needed};
use crate::source::Left;

/// Numbers that are asked for at once; the commands of so many fit any socket.
const LOOK_MAX: u64 = 256;
/// Bodies that are asked for at once.
const BODIES: usize = 16;
/// Longest name of a tube, in bytes.
const TUBE_BYTES_MAX: usize = 200;

/// How far a pass is.
#[derive(Debug)]
enum Step {
    /// Takes the delayed job that is due first, and those of the `ahead` numbers after it: they were put after it.
    Head { ahead: u64 },
    /// The first one stays, and hides those behind it: all numbers from `next` to `last` are looked at.
    Scan { next: u64, last: u64 },
    /// Takes what is ready: this many yet.
    Ready { budget: u64 },
}

pub(super) struct Beanstalkd {
    client: Client,
    tube: String,
    step: Step,
    /// How many delayed jobs this pass takes yet. `None`: it has not begun.
    budget: Option<u64>,
    /// Jobs that stay.
    passed_over: HashSet<u64>,
    clock: Arc<dyn Clock>,
}

impl Beanstalkd {
    pub async fn open(url: &str, options: &SourceOptions, clock: Arc<dyn Clock>) -> Result<Self, SourceError> {
        let tube = needed(&options.queue, "--tube", "the name of the tube")?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-+/;.$_()".contains(c);
        if tube.len() > TUBE_BYTES_MAX || tube.starts_with('-') || !tube.chars().all(is_name) {
            return Err(SourceError::Option(format!("--tube {tube} is no name of a tube; see list-tubes there")));
        }
        let mut client = Client::connect(url).await?;
        let mut commands = vec![format!("use {tube}"), format!("watch {tube}")];
        commands.extend((tube != "default").then(|| "ignore default".to_owned()));
        for reply in client.ask_all(&commands).await? {
            if !matches!(reply.word(), "USING" | "WATCHING") {
                return Err(reply.odd());
            }
        }
        let step = Step::Head { ahead: LOOK_MAX - 1 };
        Ok(Self { client, tube: tube.to_owned(), step, budget: None, passed_over: HashSet::new(), clock })
    }

    pub async fn waiting(&mut self) -> Result<Waiting, SourceError> {
        let reply = self.client.ask(format!("stats-tube {}", self.tube)).await?;
        // The tube is there, for it is used.
        let fields = reply.fields()?.ok_or_else(|| reply.odd())?;
        let of = |state: &str| number(&fields, &format!("current-jobs-{state}"));
        let delayed = of("delayed")?;
        self.budget.get_or_insert(delayed);
        let left = [("reserved", of("reserved")?), ("buried", of("buried")?)];
        let left = left.into_iter().filter(|(_, count)| *count > 0).map(|(what, count)| Left { what, count });
        Ok(Waiting { count: delayed + of("ready")?, left: left.collect() })
    }

    pub fn pass_over(&mut self, job: &Job) {
        self.passed_over.insert(job.number);
    }

    pub async fn batch(&mut self, most: usize) -> Result<Vec<Taken>, SourceError> {
        if self.budget.is_none() {
            self.waiting().await?;
        }
        loop {
            let budget = self.budget.unwrap_or_default();
            let of_delayed = most_of(budget, most);
            match self.step {
                Step::Ready { budget: 0 } => return Ok(Vec::new()),
                Step::Ready { budget } => {
                    let taken = self.reserve(budget, most_of(budget, most)).await?;
                    // All that came is kept already, or was lost again: others may lie behind.
                    let goes_on = matches!(self.step, Step::Ready { budget: left } if 0 < left && left < budget);
                    if !taken.is_empty() || !goes_on {
                        return Ok(taken);
                    }
                }
                _ if budget == 0 => self.step = self.ready().await?,
                Step::Head { ahead } => {
                    let Some(head) = self.client.ask("peek-delayed".to_owned()).await?.job() else {
                        self.step = self.ready().await?;
                        continue;
                    };
                    if self.passed_over.contains(&head) {
                        self.step = Step::Scan { next: 1, last: self.last(head).await? };
                        continue;
                    }
                    let numbers: Vec<u64> = (head..=head.saturating_add(ahead)).collect();
                    let (found, _) = self.look(&numbers, of_delayed).await?;
                    // Numbers of other tubes and of jobs that are done are asked for in vain.
                    let is_dense = found.len() as u64 * 8 >= ahead.min(of_delayed as u64);
                    let ahead = if is_dense { (ahead * 2 + 1).min(LOOK_MAX - 1) } else { ahead / 2 };
                    self.step = Step::Head { ahead };
                    if !found.is_empty() {
                        return Ok(found);
                    }
                }
                Step::Scan { next, last } if next > last => self.step = self.ready().await?,
                Step::Scan { next, last } => {
                    let numbers: Vec<u64> = (next..=last.min(next + LOOK_MAX - 1)).collect();
                    let (found, after) = self.look(&numbers, of_delayed).await?;
                    self.step = Step::Scan { next: after, last };
                    if !found.is_empty() {
                        return Ok(found);
                    }
                }
            }
        }
    }

    /// A number that no job is beyond, unless it was put by a server that has ended since.
    async fn last(&mut self, head: u64) -> Result<u64, SourceError> {
        let reply = self.client.ask("stats".to_owned()).await?;
        let fields = reply.fields()?.ok_or_else(|| reply.odd())?;
        let passed = self.passed_over.iter().max().copied().unwrap_or_default();
        Ok(number(&fields, "total-jobs")?.saturating_add(head.max(passed)))
    }

    async fn ready(&mut self) -> Result<Step, SourceError> {
        let reply = self.client.ask(format!("stats-tube {}", self.tube)).await?;
        let fields = reply.fields()?.ok_or_else(|| reply.odd())?;
        Ok(Step::Ready { budget: number(&fields, "current-jobs-ready")? })
    }

    /// The delayed jobs of the tube among these numbers, and the number after the last that was looked at.
    async fn look(&mut self, numbers: &[u64], most: usize) -> Result<(Vec<Taken>, u64), SourceError> {
        let asked: Vec<u64> = numbers.iter().copied().filter(|one| !self.passed_over.contains(one)).collect();
        let commands: Vec<String> = asked.iter().map(|number| format!("stats-job {number}")).collect();
        let replies = self.client.ask_all(&commands).await?;
        // Read after the answers: what was left of a delay then is less by now.
        let now = self.clock.now();
        let mut delayed = Vec::new();
        for (number, reply) in asked.iter().zip(&replies) {
            if let Some(seen) = self.seen(*number, reply, "delayed", now)? {
                delayed.push(seen);
            }
        }
        let end = numbers.last().map_or(0, |last| last + 1);
        let (mut found, mut bytes, mut looked) = (Vec::new(), 0, 0);
        while looked < delayed.len() && found.len() < most && bytes < BATCH_BYTES {
            let some = &delayed[looked..delayed.len().min(looked + BODIES.min(most - found.len()))];
            looked += some.len();
            let commands: Vec<String> = some.iter().map(|seen| format!("peek {}", seen.job.number)).collect();
            self.client.send(&commands).await?;
            for seen in some {
                let reply = self.client.reply().await?;
                match reply.word() {
                    // It was deleted just now.
                    "NOT_FOUND" => {}
                    "FOUND" => {
                        bytes += reply.body.as_ref().map_or(0, Vec::len);
                        found.push(self.taken(seen, reply));
                    }
                    _ => return Err(reply.odd()),
                }
            }
        }
        self.budget = self.budget.map(|budget| budget.saturating_sub(found.len() as u64));
        Ok((found, delayed.get(looked).map_or(end, |seen| seen.job.number)))
    }

    /// What is ready, held until it is deleted. It is there for others again when the connection ends.
    async fn reserve(&mut self, budget: u64, most: usize) -> Result<Vec<Taken>, SourceError> {
        let (mut held, mut bytes, mut is_whole, mut is_last) = (Vec::new(), 0, false, false);
        let mut given = 0;
        while given < most && bytes < BATCH_BYTES && !is_whole {
            let some = BODIES.min(most - given);
            self.client.send(&vec!["reserve-with-timeout 0".to_owned(); some]).await?;
            for _ in 0..some {
                let reply = self.client.reply().await?;
                given += usize::from(reply.word() == "RESERVED");
                match (reply.word(), reply.job()) {
                    // Of those that are kept, one that was held for longer than its worker may.
                    ("RESERVED", Some(number)) if self.passed_over.contains(&number) => {}
                    ("RESERVED", Some(number)) => {
                        bytes += reply.body.as_ref().map_or(0, Vec::len);
                        held.push((number, reply));
                    }
                    ("TIMED_OUT", _) => (is_whole, is_last) = (true, true),
                    // What is held has a second left, and no more is given before it is deleted.
                    ("DEADLINE_SOON", _) => is_whole = true,
                    _ => return Err(reply.odd()),
                }
            }
        }
        let left = if is_last { 0 } else { budget - (given as u64).min(budget) };
        self.step = Step::Ready { budget: left };
        let commands: Vec<String> = held.iter().map(|(number, _)| format!("stats-job {number}")).collect();
        let replies = self.client.ask_all(&commands).await?;
        let now = self.clock.now();
        let mut taken = Vec::with_capacity(held.len());
        for ((number, held), reply) in held.into_iter().zip(&replies) {
            // One that is not reserved any more was held for longer than its worker may.
            if let Some(seen) = self.seen(number, reply, "reserved", now)? {
                taken.push(self.taken(&seen, held));
            }
        }
        Ok(taken)
    }

    /// What is known of a job without its body, if it is of the tube and in this state.
    fn seen(&self, at: u64, reply: &Reply, state: &str, now: Timestamp) -> Result<Option<Seen>, SourceError> {
        let Some(fields) = reply.fields()? else { return Ok(None) };
        let tube = fields.get("tube").map(|tube| tube.trim_matches('"'));
        if tube != Some(&self.tube) || fields.get("state") != Some(&state) {
            return Ok(None);
        }
        let is_reserved = state == "reserved";
        let job = Job { number: at, pri: number(&fields, "pri")?, is_reserved };
        let age = i64::try_from(number(&fields, "age")?).unwrap_or_default();
        // Whole seconds, of which the last has begun.
        let wait_s = if is_reserved { 0 } else { i64::try_from(number(&fields, "time-left")?).unwrap_or(i64::MAX) + 1 };
        let due_ms = now.as_millis().saturating_add(wait_s.saturating_mul(1000));
        Ok(Some(Seen { job, due_ms, put_at_s: now.as_millis() / 1000 - age }))
    }

    fn taken(&self, seen: &Seen, reply: Reply) -> Taken {
        let id = format!("{}-{}", self.tube, seen.job.number);
        let item = match reply.body {
            Some(body) => {
                let mut message = message(id.as_bytes(), seen.due_ms, body);
                header(&mut message, PUT_AT, seen.put_at_s.to_string().as_bytes());
                header(&mut message, "beanstalkd-pri", seen.job.pri.to_string().as_bytes());
                Item::Message(message)
            }
            None => refused(id.as_bytes(), "its body has more bytes than any topic takes"),
        };
        let place = Place(PlaceIn::Beanstalkd(seen.job));
        Taken { item, sameness: Sameness::PutAt(seen.put_at_s), headers_dropped: 0, place }
    }

    pub async fn remove(&mut self, jobs: &[Job]) -> Result<Vec<Removal>, SourceError> {
        let commands: Vec<String> = jobs.iter().map(|job| format!("delete {}", job.number)).collect();
        let replies = self.client.ask_all(&commands).await?;
        let removal = |reply: Reply| match reply.word() {
            "DELETED" => Ok(Removal::Done),
            "NOT_FOUND" => Ok(Removal::Absent),
            _ => Err(reply.odd()),
        };
        replies.into_iter().map(removal).collect()
    }

    /// A job that was reserved is ready again. A delayed one was never anything else.
    pub async fn put_back(&mut self, job: &Job) -> Result<(), SourceError> {
        if !job.is_reserved {
            return Ok(());
        }
        let reply = self.client.ask(format!("release {} {} 0", job.number, job.pri)).await?;
        // Not found: it was held for longer than its worker may, and is ready again by that.
        if matches!(reply.word(), "RELEASED" | "NOT_FOUND") { Ok(()) } else { Err(reply.odd()) }
    }
}

/// A job whose body is still to be read.
struct Seen {
    job: Job,
    due_ms: i64,
    put_at_s: i64,
}

fn most_of(budget: u64, most: usize) -> usize {
    usize::try_from(budget).unwrap_or(usize::MAX).min(most).min(LOOK_MAX as usize)
}
