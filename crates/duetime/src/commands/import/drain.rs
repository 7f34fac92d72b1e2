//! Messages of a system that cannot be listed: a batch is taken, enqueued, and only then removed there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use duetime_client::{Became, Client, ClientError, Message, NewMessage, Placed};
use duetime_core::{Clock, Due, Timestamp};
use duetime_import::{Drain, DrainKind, HOLD, Item, PUT_AT, PUT_AT_SLACK_S, Removal, Sameness, Taken, TakenPlace};
use futures::{StreamExt as _, TryStreamExt as _};

use super::args::ImportArgs;
use super::input::{Rate, refusal};
use super::line;
use super::report::{Report, check, counts, show_left};
use super::send::{self, Sent};
use crate::clock::SystemClock;
use crate::commands::output;

/// Messages that are taken at once, and held until they are enqueued.
const BATCH: usize = 256;
/// Messages that are asked for at once.
const AT_ONCE: usize = 32;

/// The time by the clock of the node, which decides what is due; never before it.
#[derive(Debug)]
struct NodeClock(Client);

impl Clock for NodeClock {
    fn now(&self) -> Timestamp {
        let ahead_ms = self.0.ahead_ms();
        // It is told in whole seconds, of which the last has begun.
        let begun_ms = if ahead_ms == 0 { 0 } else { 1000 };
        Timestamp::from_millis(SystemClock.now().as_millis() + ahead_ms + begun_ms)
    }
}

/// What came of the source.
#[derive(Default, serde::Serialize)]
struct Drained {
    /// Are gone there, and were enqueued by this run or one before.
    removed: u64,
    /// Were removed there meanwhile, or a worker had them, and so cancelled here.
    cancelled: u64,
    /// Were so too, and could not be cancelled here for sure.
    unclear: u64,
    /// Headers that are no text.
    headers_dropped: u64,
    /// Are there at the end.
    waiting: u64,
}

/// A message that is still there.
struct Held {
    message: NewMessage,
    sameness: Sameness,
    place: TakenPlace,
}

struct Pass<'a> {
    client: &'a Client,
    args: &'a ImportArgs,
    payload_bytes_max: u64,
    smear: Duration,
    drain: Drain,
    report: &'a mut Report,
    did: &'a mut Drained,
}

/// A message of the topic, unless there is none.
async fn find(client: &Client, topic: &str, id: &str) -> Result<Option<Message>, ClientError> {
    match client.message(topic, id).await {
        Ok(message) => Ok(Some(message)),
        Err(ClientError::Refused(problem)) if problem.code == "unknown_message" => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a due time is the one that is asked for `held`; a topic with a smear makes it later.
fn is_due_as(held: &Held, due_at: i64, smear: Duration) -> bool {
    let Some(Due::At(asked)) = held.message.due else { return false };
    let (slack_ms, smear_ms) = (PUT_AT_SLACK_S * 1000, smear.as_millis() as i64);
    (-slack_ms..=slack_ms + smear_ms).contains(&(due_at - asked.as_millis()))
}

/// Whether the headers of a sender are the same. What the import adds is not at a message that was also enqueued here,
/// and a node adds the trace of the request.
fn has_same_headers(held: &Held, there: &Message) -> bool {
    let is_added = |name: &str| {
        ["rabbitmq-", "content-"].iter().any(|beginning| name.starts_with(beginning))
            || ["traceparent", "tracestate"].contains(&name)
    };
    let of_held: BTreeMap<&String, &String> = held.message.headers.iter().map(|(name, value)| (name, value)).collect();
    of_held.iter().all(|(name, value)| there.headers.get(*name).map_or(is_added(name), |other| other == *value))
        && there.headers.keys().all(|name| of_held.contains_key(name) || is_added(name))
}

/// Whether what the topic has, or had, by the id of `held` is that message. It would be lost if it were another one.
fn is_itself(held: &Held, placed: &Placed, there: Option<&Message>, smear: Duration) -> bool {
    let is_put_then = |at: i64, seconds: i64| (at - seconds).abs() <= PUT_AT_SLACK_S;
    let was_due_as = |became: &Became| became.due_at.is_some_and(|due_at| is_due_as(held, due_at, smear));
    match (&held.sameness, &placed.became, there) {
        // By this run, which was not told so.
        (Sameness::Content, _, there) => there.is_some_and(|there| {
            let hold = there.headers.get(HOLD);
            hold.is_some_and(|hold| held.message.headers.iter().any(|(name, value)| name == HOLD && value == hold))
        }),
        (Sameness::Given { with_due }, _, Some(there)) => {
            there.payload() == held.message.payload
                && has_same_headers(held, there)
                && (!with_due || is_due_as(held, there.due_at, smear))
        }
        (Sameness::Given { with_due }, Some(became), None) => {
            became.outcome.starts_with("cancelled") || (*with_due && was_due_as(became))
        }
        // What ended before this one was put is another one, and so is what was due at another time.
        (Sameness::PutAt(seconds), Some(became), None) => {
            became.at / 1000 + PUT_AT_SLACK_S >= *seconds && was_due_as(became)
        }
        (Sameness::PutAt(seconds), _, Some(there)) => {
            let put_at = there.headers.get(PUT_AT).and_then(|text| text.parse().ok());
            put_at.is_some_and(|at| is_put_then(at, *seconds)) && there.payload() == held.message.payload
        }
        (Sameness::Given { .. } | Sameness::PutAt(_), None, None) => false,
    }
}

impl Pass<'_> {
    async fn refuse(&mut self, held: Held, why: &str) -> anyhow::Result<()> {
        self.report.refused_message(&held.message, why).await?;
        Ok(self.drain.keep(held.place)?)
    }

    /// What of a batch can be sent; the rest stays there.
    async fn sendable(&mut self, batch: Vec<Taken>) -> anyhow::Result<Vec<Held>> {
        let mut sendable = Vec::with_capacity(batch.len());
        for Taken { item, sameness, headers_dropped, place } in batch {
            self.did.headers_dropped += headers_dropped;
            match item {
                Item::Message(message) => {
                    let held = Held { message, sameness, place };
                    match check(&held.message, self.payload_bytes_max) {
                        Ok(()) => sendable.push(held),
                        Err(why) => self.refuse(held, &why).await?,
                    }
                }
                Item::Refused { id, why } => {
                    let (why, line) = refusal(&id, &why);
                    self.report.refused(&why, &line).await?;
                    self.drain.keep(place)?;
                }
                Item::Other => self.drain.keep(place)?,
            }
        }
        Ok(sendable)
    }

    /// Enqueues what is held, and removes there what the topic has. `None`: by a run before this one.
    async fn enqueue(&mut self, mut held: Vec<Held>, rate: &mut Rate) -> anyhow::Result<Vec<(Held, Option<i64>)>> {
        let mut enqueued = Vec::with_capacity(held.len());
        while !held.is_empty() {
            let mut sent = Vec::with_capacity(held.len());
            for request in send::requests(held.iter().map(|one| one.message.clone()).collect(), self.args.rate) {
                rate.pass(request.len()).await;
                sent.extend(send::send(self.client, &self.args.topic, request).await?);
            }
            let mut duplicates = Vec::new();
            for (held, sent) in std::mem::take(&mut held).into_iter().zip(sent) {
                match sent {
                    Sent::Scheduled(placed) | Sent::Replaced(placed) => {
                        self.report.tally.scheduled += 1;
                        enqueued.push((held, placed.due_at));
                    }
                    Sent::Duplicate(placed) => duplicates.push((held, placed)),
                    Sent::Refused { why, .. } => self.refuse(held, &why).await?,
                }
            }
            held = self.judge(duplicates, &mut enqueued).await?;
        }
        Ok(enqueued)
    }

    /// Tells what is in the topic already from another message that has its id, and gives those back that are to be
    /// enqueued with another one.
    async fn judge(
        &mut self,
        duplicates: Vec<(Held, Placed)>,
        enqueued: &mut Vec<(Held, Option<i64>)>,
    ) -> anyhow::Result<Vec<Held>> {
        let (client, topic, smear) = (self.client, &self.args.topic, self.smear);
        let looked = futures::stream::iter(duplicates).map(|(held, placed)| async move {
            let there = find(client, topic, &placed.id).await?;
            let is_itself = is_itself(&held, &placed, there.as_ref(), smear);
            // Who enqueued it may be slow, and find it deleted by this run: it must not take that for a cancel. Another due
            // time says that this run has it. What was tried already has its next attempt at another time, and stays so.
            if let (Sameness::PutAt(_), true, Some(there)) = (&held.sameness, is_itself, &there)
                && there.state == "scheduled"
                && there.attempts == 0
            {
                let due = Due::At(Timestamp::from_millis(there.due_at + 1));
                // Where it was claimed or cancelled at this moment it stays so.
                match client.reschedule(topic, &placed.id, due).await {
                    Err(error) if error.is_passing() || error.problem().is_none() => return Err(error),
                    _ => {}
                }
            }
            Ok((held, is_itself))
        });
        let judged: Vec<(Held, bool)> = looked.buffered(AT_ONCE).try_collect().await?;
        let mut again = Vec::new();
        for (mut held, is_itself) in judged {
            if is_itself {
                self.report.tally.duplicate += 1;
                enqueued.push((held, None));
            } else if held.sameness == Sameness::Content {
                // It may be this one, by a run that was killed. It comes twice then, and no other one is lost.
                self.drain.number_on(&mut held.message);
                again.push(held);
            } else {
                let why =
                    "the topic has another message with its id, or had one; take another topic, or remove that one";
                self.refuse(held, why).await?;
            }
        }
        Ok(again)
    }

    /// Removes there what the topic has. What somebody else removed was cancelled there, or is being worked on.
    async fn remove(&mut self, enqueued: Vec<(Held, Option<i64>)>) -> anyhow::Result<()> {
        let (mut places, mut ids) = (Vec::with_capacity(enqueued.len()), Vec::with_capacity(enqueued.len()));
        for (held, due_at) in enqueued {
            places.push(held.place);
            ids.push((held.message.id.unwrap_or_default(), due_at));
        }
        let removals = self.drain.remove(places).await?;
        for ((id, due_at), removal) in ids.into_iter().zip(removals) {
            if removal == Removal::Done {
                self.did.removed += 1;
            } else if self.cancel(&id, due_at).await? {
                self.did.cancelled += 1;
            } else {
                self.did.unclear += 1;
                let what =
                    "it was not there any more when it was to be removed: cancelled, or a worker has it; look here";
                self.report.bar.suspend(|| output::complain(&format!("{}: {what}", line::beginning(&id))));
            }
        }
        Ok(())
    }

    /// Cancels what this run has enqueued, unless it is something else by now, or was tried or delivered.
    async fn cancel(&self, id: &str, due_at: Option<i64>) -> anyhow::Result<bool> {
        let (client, topic) = (self.client, &self.args.topic);
        let (Some(due_at), Some(there)) = (due_at, find(client, topic, id).await?) else { return Ok(false) };
        let Some(version) = there.version.filter(|_| there.due_at == due_at && there.attempts == 0) else {
            return Ok(false);
        };
        match client.cancel_if(topic, id, &version).await {
            Ok(outcome) => Ok(outcome.outcome == "cancelled"),
            Err(error) if error.is_passing() || error.problem().is_none() => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    async fn all(mut self) -> anyhow::Result<()> {
        let mut rate = Rate::new(self.args.rate);
        let most = self.args.rate.map_or(BATCH, |rate| BATCH.min(rate as usize)).max(1);
        loop {
            let batch = self.drain.batch(most).await?;
            if batch.is_empty() {
                self.did.waiting = self.drain.finish().await?;
                return Ok(());
            }
            let held = self.sendable(batch).await?;
            let enqueued = self.enqueue(held, &mut rate).await?;
            self.remove(enqueued).await?;
            self.report.bar.set_position(self.report.tally.total());
        }
    }
}

/// Runs it; false: something was refused, or is unclear.
pub(super) async fn run(args: &ImportArgs, kind: DrainKind, url: &str) -> anyhow::Result<bool> {
    ensure!(
        !args.verify,
        "--verify reads the source again, and what was drained is not there any more: each message was removed there only \
         after the topic had it. Leave --verify out, and compare the counts with `duetime topic get {}`",
        args.topic
    );
    let client = args.connection.client()?.retrying(args.retry_for);
    let config = client.topic(&args.topic).await?.config;
    let (payload_bytes_max, smear) = (config.max_payload, config.smear);
    let mut drain = Drain::open(kind, url, &args.options(), Arc::new(NodeClock(client.clone()))).await?;
    let waiting = drain.waiting().await?;
    let mut report = Report::new(args, Some(waiting.count)).await?;
    let mut did = Drained::default();
    let done = if args.dry_run {
        report.tally.scheduled = waiting.count;
        did.waiting = waiting.count;
        Ok(())
    } else {
        Pass { client: &client, args, payload_bytes_max, smear, drain, report: &mut report, did: &mut did }.all().await
    };
    let tally = report.finish().await?;
    let shown = format!("{}; {} removed there", tally.shown(args.dry_run), did.removed);
    done.with_context(|| format!("{shown}; then it broke off: the same command again goes on, with duplicates"))?;
    let is_whole = tally.refused == 0 && did.unclear == 0;
    if args.connection.json {
        let left = counts(&waiting.left);
        output::json(&serde_json::json!({ "tally": tally, "not_delayed": left, "drained": did }))?;
        return Ok(is_whole);
    }
    output::line(&tally.shown(args.dry_run))?;
    if args.dry_run {
        output::line("counted only: what would be refused is not known before it is taken")?;
    } else {
        let Drained { removed, cancelled, unclear, headers_dropped, waiting } = did;
        output::line(&format!(
            "there: {removed} removed, {cancelled} cancelled or begun meanwhile and so cancelled here, {unclear} unclear, \
             {waiting} still wait; {headers_dropped} headers that are no text were dropped"
        ))?;
        if kind == DrainKind::RabbitMqDlx {
            output::line(
                "what somebody holds there unacknowledged is not counted: before you delete the queue, see that its \
                 messages_unacknowledged is 0 (rabbitmqctl list_queues -p VHOST name messages_ready \
                 messages_unacknowledged)",
            )?;
        }
    }
    if tally.total() == 0 {
        output::warn("nothing waits there; see --queue or --tube, and the URL");
    }
    show_left(&waiting.left)?;
    Ok(is_whole)
}
