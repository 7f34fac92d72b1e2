//! `duetime import`: lines of an export, or the delayed messages of another system, into a topic.

mod input;
mod line;
mod send;
mod verify;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use duetime_client::{Client, ClientError, NewMessage};
use duetime_core::units::check_due_at;
use duetime_core::{Clock as _, Due, Headers, MessageId};
use duetime_import::{Kind, ScoreUnit, Source, SourceOptions};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::AsyncWriteExt as _;

use self::input::{Entry, Input, Rate};
use self::send::Sent;
use super::output;
use crate::clock::SystemClock;
use crate::connection::{NodeArgs, read_delay};

/// Requests under way at once.
const REQUESTS: usize = 4;
/// Refusals that are shown one by one; the rest is counted, and in the file of refused lines.
const REFUSALS_SHOWN: u64 = 20;
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// What scores of a plain sorted set count.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Unit {
    /// Seconds since the Unix epoch, with or without a fraction.
    S,
    /// Milliseconds.
    Ms,
}

/// Messages to bring in.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The topic.
    topic: String,
    /// Lines of `duetime export`, or messages as the API takes them, one JSON object a line; - for standard input.
    #[arg(value_name = "FILE", default_value = "-", conflicts_with = "from")]
    file: String,
    /// Another system, and the Redis that it is in: redis://, rediss://, redis-sentinel:// or redis-cluster://. Nothing
    /// is changed there.
    #[arg(long, num_args = 2, action = clap::ArgAction::Set, value_names = ["KIND", "URL"])]
    from: Option<Vec<String>>,
    /// Of --from: the queue.
    #[arg(long, requires = "from")]
    queue: Option<String>,
    /// Of --from: what the system's keys begin with, if that was set to something else than is usual.
    #[arg(long, requires = "from")]
    prefix: Option<String>,
    /// Of --from zset: the sorted set of ids with their due times.
    #[arg(long, requires = "from")]
    key: Option<String>,
    /// Of --from zset: the hash with the payload of each id; without it a member is id and payload.
    #[arg(long, requires = "from", value_name = "KEY")]
    payloads: Option<String>,
    /// Of --from zset: what the scores count, seconds if absent.
    #[arg(long, requires = "from")]
    unit: Option<Unit>,
    /// Take dead letters of a file too: they are scheduled anew.
    #[arg(long, conflicts_with = "from")]
    dead: bool,
    /// Count, and say what would be refused and why; nothing is enqueued.
    #[arg(long, conflicts_with = "verify")]
    dry_run: bool,
    /// Read the source again at the end, and see that each of its messages is in the topic, the same.
    #[arg(long)]
    verify: bool,
    /// Messages a second at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Write what was refused to this file, one JSON object a line, with why; it can be imported when it is put right.
    #[arg(long, value_name = "FILE")]
    refused: Option<PathBuf>,
    /// How long a node that does not answer, or refuses for the moment, is asked again.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = read_delay)]
    retry_for: Duration,
    #[command(flatten)]
    connection: NodeArgs,
}

#[derive(Default, serde::Serialize)]
struct Tally {
    scheduled: u64,
    replaced: u64,
    duplicate: u64,
    /// Dead letters of a file, and what the source has beside delayed messages.
    left: u64,
    refused: u64,
}

impl Tally {
    fn total(&self) -> u64 {
        self.scheduled + self.replaced + self.duplicate + self.left + self.refused
    }

    fn shown(&self, dry_run: bool) -> String {
        let Self { scheduled, replaced, duplicate, left, refused } = self;
        if dry_run {
            return format!("{scheduled} would be sent, {left} left, {refused} refused; nothing was enqueued");
        }
        format!("{scheduled} scheduled, {replaced} replaced, {duplicate} duplicate, {left} left, {refused} refused")
    }
}

impl ImportArgs {
    fn source(&self) -> anyhow::Result<Option<Source>> {
        let Some([word, url]) = self.from.as_deref() else { return Ok(None) };
        let kind = Kind::named(word)
            .with_context(|| format!("--from {word} is not known; give one of {}", Kind::WORDS.join(", ")))?;
        let options = SourceOptions {
            queue: self.queue.clone(),
            prefix: self.prefix.clone(),
            key: self.key.clone(),
            payloads: self.payloads.clone(),
            unit: self.unit.map(|unit| match unit {
                Unit::S => ScoreUnit::Seconds,
                Unit::Ms => ScoreUnit::Millis,
            }),
        };
        Ok(Some(Source::open(kind, url, &options)?))
    }

    async fn input(&self) -> anyhow::Result<Input> {
        match self.source()? {
            Some(source) => Ok(Input::source(source)),
            None => Input::file(&self.file, self.dead).await,
        }
    }
}

/// What a node would refuse of a message, whatever else it holds.
fn check(message: &NewMessage, payload_bytes_max: u64) -> Result<(), String> {
    let id = MessageId::new(message.id.as_deref().unwrap_or_default()).map_err(|error| error.to_string())?;
    id.check_new().map_err(|error| error.to_string())?;
    match message.due {
        Some(Due::At(at)) => check_due_at(at, SystemClock.now()).map(|_| ())?,
        Some(Due::In(delay)) => duetime_core::units::check_delay(delay).map(|_| ())?,
        None => {}
    }
    Headers::new(message.headers.clone())?;
    let bytes = message.payload.len() as u64;
    if bytes > payload_bytes_max {
        return Err(format!(
            "the payload has {bytes} bytes and the topic takes {payload_bytes_max}; raise its max_payload"
        ));
    }
    Ok(())
}

/// Says and writes what was refused, and counts.
struct Report {
    tally: Tally,
    bar: ProgressBar,
    file: Option<tokio::fs::File>,
}

impl Report {
    async fn new(args: &ImportArgs, length: Option<u64>) -> anyhow::Result<Self> {
        let file = match &args.refused {
            Some(path) => {
                let opened = tokio::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).await;
                Some(opened.with_context(|| format!("cannot make {}; name a file that is not there", path.display()))?)
            }
            None => None,
        };
        let bar = match length {
            Some(length) => ProgressBar::new(length)
                .with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} messages, {per_sec}, {eta} left")?),
            None => ProgressBar::new_spinner()
                .with_style(ProgressStyle::with_template("{spinner} {pos} messages in {elapsed}, {per_sec}")?),
        };
        bar.enable_steady_tick(TICK);
        Ok(Self { tally: Tally::default(), bar, file })
    }

    async fn refused(&mut self, why: &str, line: &[u8]) -> anyhow::Result<()> {
        self.tally.refused += 1;
        if self.tally.refused <= REFUSALS_SHOWN {
            self.bar.suspend(|| output::complain(why));
        }
        if let Some(file) = &mut self.file {
            let cannot = "cannot write the file of what was refused";
            file.write_all(line).await.context(cannot)?;
            file.write_all(b"\n").await.context(cannot)?;
        }
        Ok(())
    }

    async fn refused_message(&mut self, message: &NewMessage, why: &str) -> anyhow::Result<()> {
        let mut line = serde_json::to_value(message)?;
        line["refused"] = why.into();
        let id = message.id.as_deref().unwrap_or_default();
        self.refused(&format!("{id}: {why}"), line.to_string().as_bytes()).await
    }

    async fn sent(&mut self, sent: Vec<Sent>) -> anyhow::Result<()> {
        for one in sent {
            match one {
                Sent::Scheduled => self.tally.scheduled += 1,
                Sent::Replaced => self.tally.replaced += 1,
                Sent::Duplicate => self.tally.duplicate += 1,
                Sent::Refused { message, why } => self.refused_message(&message, &why).await?,
            }
        }
        self.bar.set_position(self.tally.total());
        Ok(())
    }
}

type UnderWay<'a> = FuturesUnordered<BoxFuture<'a, Result<Vec<Sent>, ClientError>>>;

/// Waits for `what` while the requests under way go on, so that none of them is late for that.
async fn meanwhile<T>(
    what: impl Future<Output = T>,
    under_way: &mut UnderWay<'_>,
    report: &mut Report,
) -> anyhow::Result<T> {
    tokio::pin!(what);
    loop {
        tokio::select! {
            biased;
            Some(sent) = under_way.next() => report.sent(sent?).await?,
            done = &mut what => return Ok(done),
        }
    }
}

/// Sends all that comes in; a few requests are under way at once.
async fn all(client: &Client, args: &ImportArgs, mut input: Input, report: &mut Report) -> anyhow::Result<()> {
    let max = if args.dry_run { client.topic(&args.topic).await?.config.max_payload } else { u64::MAX };
    let mut rate = Rate::new(args.rate);
    let mut under_way = UnderWay::new();
    while let Some(entries) = meanwhile(input.page(), &mut under_way, report).await?? {
        let mut messages = Vec::new();
        for entry in entries {
            match entry {
                Entry::Left => report.tally.left += 1,
                Entry::Refused { why, line } => report.refused(&why, &line).await?,
                Entry::Message(message) if args.dry_run => match check(&message, max) {
                    Ok(()) => report.tally.scheduled += 1,
                    Err(why) => report.refused_message(&message, &why).await?,
                },
                Entry::Message(message) => messages.push(*message),
            }
        }
        for request in send::requests(messages, args.rate) {
            meanwhile(rate.pass(request.len()), &mut under_way, report).await?;
            if under_way.len() == REQUESTS
                && let Some(sent) = under_way.next().await
            {
                report.sent(sent?).await?;
            }
            under_way.push(send::send(client, &args.topic, request, args.retry_for).boxed());
        }
        report.bar.set_position(report.tally.total());
    }
    while let Some(sent) = under_way.next().await {
        report.sent(sent?).await?;
    }
    Ok(())
}

/// Runs it; false: something was refused, or is not there.
pub async fn run(args: ImportArgs) -> anyhow::Result<bool> {
    ensure!(
        !(args.verify && args.from.is_none() && args.file == "-"),
        "--verify reads the source again, which standard input cannot be; name a file"
    );
    let client = args.connection.client()?;
    let source = args.source()?;
    let (length, left) = match &source {
        Some(source) => (Some(source.count().await?), source.left().await?),
        None => (None, Vec::new()),
    };
    let input = match source {
        Some(source) => Input::source(source),
        None => args.input().await?,
    };
    let mut report = Report::new(&args, length).await?;
    let done = all(&client, &args, input, &mut report).await;
    report.bar.finish_and_clear();
    if let Some(file) = &mut report.file {
        file.flush().await.context("cannot write the file of what was refused")?;
    }
    let tally = report.tally;
    done.with_context(|| {
        format!("{}; then it broke off: the same command again goes on, with duplicates", tally.shown(args.dry_run))
    })?;
    let verified = if args.verify {
        Some(verify::verify(&client, &args.topic, args.input().await?, args.retry_for).await?)
    } else {
        None
    };
    let is_whole = verified.as_ref().is_none_or(verify::Verified::is_whole);
    if args.connection.json {
        let left_there: serde_json::Map<_, _> =
            left.iter().map(|left| (left.what.to_owned(), left.count.into())).collect();
        output::json(&serde_json::json!({ "tally": tally, "not_delayed": left_there, "verified": verified }))?;
        return Ok(tally.refused == 0 && is_whole);
    }
    output::line(&tally.shown(args.dry_run))?;
    if !left.is_empty() {
        let each: Vec<String> = left.iter().map(|left| format!("{} {}", left.count, left.what)).collect();
        output::line(&format!("not delayed, and left where they are: {}", each.join(", ")))?;
    }
    if let Some(verified) = verified {
        output::line(&verified.shown())?;
    }
    Ok(tally.refused == 0 && is_whole)
}
