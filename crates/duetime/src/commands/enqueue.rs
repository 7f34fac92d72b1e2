//! `duetime enqueue`: one message, or a file of them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum, value_parser};
use duetime_client::{Answer, NewMessage, Placed};
use duetime_core::limits::ATTEMPTS_MAX;
use duetime_core::{Expiry, OnConflict};
use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::io::ReaderStream;

use super::output;
use crate::connection::{NodeArgs, When, read_delay};

/// Refusals that are shown one by one; the rest is counted.
const REFUSALS_SHOWN: u64 = 20;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// One message, or a file of them.
#[derive(Debug, Args)]
pub struct EnqueueArgs {
    /// The topic.
    topic: String,
    /// Its id; one is made if absent.
    #[arg(long, conflicts_with = "ndjson")]
    id: Option<String>,
    #[command(flatten)]
    when: When,
    /// The payload: text, @FILE for a file's bytes, - for standard input.
    #[arg(long, visible_aliases = ["body", "data"], value_name = "TEXT|@FILE|-", conflicts_with = "ndjson")]
    #[arg(allow_hyphen_values = true)]
    payload: Option<String>,
    /// A header, delivered with the message. May be repeated.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "ndjson")]
    header: Vec<String>,
    /// Take the place of a message of the same id instead of being refused.
    #[arg(long, conflicts_with = "ndjson")]
    replace: bool,
    /// Of two messages with this id that wait, keep the one that is due earlier, or later; what somebody holds is replaced.
    #[arg(long, value_enum, value_name = "WHICH", conflicts_with_all = ["replace", "ndjson"])]
    keep: Option<WhichIsKept>,
    /// Hand it over no later than this long after its due time; then it is ended as the on_expiry of its topic says.
    #[arg(long, value_name = "DURATION", conflicts_with = "ndjson", value_parser = read_delay)]
    expires: Option<Duration>,
    /// How many times it is delivered before it is a dead letter, instead of its topic's number.
    #[arg(long, value_name = "N", conflicts_with = "ndjson")]
    #[arg(value_parser = value_parser!(u8).range(1..=i64::from(ATTEMPTS_MAX)))]
    max_attempts: Option<u8>,
    /// Messages, one JSON object a line, from a file or - for standard input.
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["delay", "at"])]
    ndjson: Option<String>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Which of two messages stays.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WhichIsKept {
    Earliest,
    Latest,
}

/// Runs it.
pub async fn run(args: EnqueueArgs) -> anyhow::Result<bool> {
    match &args.ndjson {
        Some(file) => many(&args, file).await,
        None => one(&args).await,
    }
}

/// The bytes of `--payload`: text, `@FILE` or `-`.
pub(super) async fn payload(given: Option<&str>) -> anyhow::Result<Bytes> {
    Ok(match given {
        None => Bytes::new(),
        Some("-") => {
            let mut bytes = Vec::new();
            tokio::io::stdin().read_to_end(&mut bytes).await.context("reading standard input")?;
            bytes.into()
        }
        Some(text) => match text.strip_prefix('@') {
            Some(file) => {
                tokio::fs::read(file).await.with_context(|| format!("reading the payload from {file}"))?.into()
            }
            None => Bytes::copy_from_slice(text.as_bytes()),
        },
    })
}

async fn one(args: &EnqueueArgs) -> anyhow::Result<bool> {
    let mut message = NewMessage::new(payload(args.payload.as_deref()).await?);
    message.id.clone_from(&args.id);
    message.due = args.when.due();
    for header in &args.header {
        let (name, value) = header.split_once('=').context("--header is written NAME=VALUE")?;
        message.headers.push((name.to_owned(), value.to_owned()));
    }
    message.expires = args.expires.map(Expiry::After);
    message.max_attempts = args.max_attempts;
    message.on_conflict = match args.keep {
        Some(WhichIsKept::Earliest) => OnConflict::Earliest,
        Some(WhichIsKept::Latest) => OnConflict::Latest,
        None if args.replace => OnConflict::Replace,
        None => OnConflict::Reject,
    };
    let placed = args.connection.client()?.enqueue(&args.topic, &message).await?;
    let duplicate = ["duplicate", "cancelled_before"].contains(&&*placed.outcome);
    if args.connection.json {
        output::json(&placed)?;
    } else if duplicate {
        output::complain(&format!("{} {}", placed.id, why_not(&placed)));
    } else {
        let due = placed.due_at.map(|at| format!(", due {}", output::moment(at))).unwrap_or_default();
        let smeared = output::smeared(placed.smeared_ms);
        let held = if placed.in_flight { "; somebody held it, and may be delivering what it was" } else { "" };
        output::line(&format!("{} {}{due}{smeared}{held}", placed.id, placed.outcome))?;
    }
    Ok(!duplicate)
}

/// Why nothing was scheduled, and what to do.
fn why_not(placed: &Placed) -> String {
    match (placed.outcome.as_str(), &placed.became) {
        ("cancelled_before", _) => {
            "was cancelled before it came, as its topic remembers; nothing was scheduled (--replace does so all the same)"
                .to_owned()
        }
        (_, Some(became)) => format!(
            "was there before, and is {} now, as its topic remembers; nothing was scheduled (--replace does so all the same)",
            became.outcome
        ),
        _ => "is there already; nothing was changed (take its place with --replace)".to_owned(),
    }
}

#[derive(Default, serde::Serialize)]
struct Tally {
    scheduled: u64,
    replaced: u64,
    kept: u64,
    duplicate: u64,
    refused: u64,
}

impl Tally {
    fn total(&self) -> u64 {
        self.scheduled + self.replaced + self.kept + self.duplicate + self.refused
    }

    fn count(&mut self, answer: &Answer<Placed>) {
        match answer {
            Answer::Refused(_) => self.refused += 1,
            Answer::Done(placed) => match placed.outcome.as_str() {
                "replaced" => self.replaced += 1,
                "kept" => self.kept += 1,
                "duplicate" | "cancelled_before" => self.duplicate += 1,
                _ => self.scheduled += 1,
            },
        }
    }
}

/// A bar of bytes where the length is known, a counter where it is not.
fn bar(bytes: Option<u64>) -> anyhow::Result<ProgressBar> {
    let bar = match bytes {
        Some(bytes) => ProgressBar::new(bytes)
            .with_style(ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {msg}, {eta} left")?),
        None => ProgressBar::new_spinner()
            .with_style(ProgressStyle::with_template("{spinner} {bytes} sent {msg} in {elapsed}")?),
    };
    bar.enable_steady_tick(TICK);
    Ok(bar)
}

async fn many(args: &EnqueueArgs, file: &str) -> anyhow::Result<bool> {
    ensure!(args.when.due().is_none(), "--ndjson takes the due times from its lines; leave --delay and --at out");
    let (reader, length): (Box<dyn AsyncRead + Send + Unpin>, _) = if file == "-" {
        (Box::new(tokio::io::stdin()), None)
    } else {
        let opened = tokio::fs::File::open(Path::new(file)).await.with_context(|| format!("reading {file}"))?;
        let length = opened.metadata().await.ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len());
        (Box::new(opened), length)
    };
    let bar = bar(length)?;
    let sent = bar.clone();
    let body = ReaderStream::with_capacity(reader, 64 << 10).inspect(move |chunk| {
        if let Ok(chunk) = chunk {
            sent.inc(chunk.len() as u64);
        }
    });
    let client = args.connection.client()?;
    let mut answers = client.enqueue_ndjson(&args.topic, body).await?;
    let mut tally = Tally::default();
    loop {
        let answer = match answers.next().await {
            Ok(Some(answer)) => answer,
            Ok(None) => break,
            Err(error) => {
                bar.finish_and_clear();
                let done = tally.total();
                return Err(
                    anyhow::Error::new(error).context(format!("{done} lines were answered, then the stream broke"))
                );
            }
        };
        tally.count(&answer);
        if let Answer::Refused(refused) = &answer
            && tally.refused <= REFUSALS_SHOWN
        {
            bar.suspend(|| output::complain(&refused.error.to_string()));
        }
        bar.set_message(output::count(tally.total(), "message"));
    }
    bar.finish_and_clear();
    if args.connection.json {
        output::json(&tally)?;
    } else {
        let kept = if tally.kept > 0 { format!("{} kept, ", tally.kept) } else { String::new() };
        output::line(&format!(
            "{} scheduled, {} replaced, {kept}{} duplicate, {} refused",
            tally.scheduled, tally.replaced, tally.duplicate, tally.refused
        ))?;
    }
    Ok(tally.refused == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duplicate_says_whether_the_message_is_there_or_what_became_of_it() {
        let why = |outcome: &str, became: serde_json::Value| {
            let placed = serde_json::json!({"id": "a", "outcome": outcome, "shard": 0, "became": became});
            why_not(&serde_json::from_value(placed).unwrap())
        };
        let gone = serde_json::json!({"outcome": "delivered", "at": 1});
        assert!(why("duplicate", serde_json::Value::Null).starts_with("is there already"));
        assert!(why("duplicate", gone.clone()).starts_with("was there before, and is delivered now"));
        assert!(why("cancelled_before", gone).starts_with("was cancelled before it came"));
    }
}
