//! `duetime enqueue`: one message. `duetime import` takes a file of them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum, value_parser};
use duetime_client::{NewMessage, Placed};
use duetime_core::limits::ATTEMPTS_MAX;
use duetime_core::{Expiry, Missed, OnConflict, RepeatAsk, Timestamp};
use tokio::io::AsyncReadExt as _;

use super::output;
use crate::connection::{NodeArgs, When, moment, read_delay};

/// One message.
#[derive(Debug, Args)]
pub struct EnqueueArgs {
    /// The topic.
    topic: String,
    /// Its id; one is made if absent.
    #[arg(long)]
    id: Option<String>,
    #[command(flatten)]
    when: When,
    /// The payload: text, @FILE for a file's bytes, - for standard input.
    #[arg(long, visible_aliases = ["body", "data"], value_name = "TEXT|@FILE|-")]
    #[arg(allow_hyphen_values = true)]
    payload: Option<String>,
    /// A header, delivered with the message. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    header: Vec<String>,
    /// Take the place of a message of the same id instead of being refused.
    #[arg(long)]
    replace: bool,
    /// Of two messages with this id that wait, keep the one that is due earlier, or later; what somebody holds is replaced.
    #[arg(long, value_enum, value_name = "WHICH", conflicts_with = "replace")]
    keep: Option<WhichIsKept>,
    /// Hand it over no later than this long after its due time; then it is ended as the on_expiry of its topic says.
    #[arg(long, value_name = "DURATION", value_parser = read_delay)]
    expires: Option<Duration>,
    /// How many times it is delivered before it is a dead letter, instead of its topic's number.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = value_parser!(u8).range(1..=i64::from(ATTEMPTS_MAX)))]
    max_attempts: Option<u8>,
    /// How long a claim of it by a consumer hides it, instead of its topic's time.
    #[arg(long, value_name = "DURATION", value_parser = read_delay)]
    visibility_timeout: Option<Duration>,
    #[command(flatten)]
    repeat: RepeatArgs,
    #[command(flatten)]
    connection: NodeArgs,
}

/// By which rule a message comes again.
#[derive(Debug, Args)]
struct RepeatArgs {
    /// Send it again so long after the one before, and so on; the next one is written as this one ends.
    #[arg(long, value_name = "DURATION", conflicts_with = "cron", value_parser = read_delay)]
    every: Option<Duration>,
    /// Send it at these times: minute, hour, day of the month, month, day of the week.
    #[arg(long, value_name = "RULE")]
    cron: Option<String>,
    /// By whose clocks --cron goes, as IANA names it; else UTC.
    #[arg(long, value_name = "NAME", requires = "cron")]
    time_zone: Option<String>,
    /// Send none after this moment: milliseconds since the Unix epoch, RFC 3339, or "in 30d". With --every or --cron.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Send it so many times, the first one among them. With --every or --cron.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    times: Option<u32>,
    /// What becomes of times that pass while the one before is not settled: left out, or one at once for all of them.
    #[arg(long, value_enum, value_name = "HOW")]
    missed: Option<WhatIsMissed>,
}

/// What becomes of times that pass unused.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WhatIsMissed {
    Skip,
    Once,
}

impl RepeatArgs {
    fn ask(&self) -> anyhow::Result<Option<RepeatAsk>> {
        let until = moment(self.until.as_deref())?.map(Timestamp::from_millis);
        let missed = self.missed.map(|missed| match missed {
            WhatIsMissed::Skip => Missed::Skip,
            WhatIsMissed::Once => Missed::Once,
        });
        let ask = RepeatAsk {
            every: self.every,
            cron: self.cron.clone(),
            time_zone: self.time_zone.clone(),
            until,
            times: self.times.map(u64::from),
            missed,
        };
        let is_said = ask.every.is_some() || ask.cron.is_some();
        ensure!(is_said || ask == RepeatAsk::default(), "--until, --times and --missed go with --every or --cron");
        Ok(is_said.then_some(ask))
    }
}

/// Which of two messages stays.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WhichIsKept {
    Earliest,
    Latest,
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

/// Runs it.
pub async fn run(args: EnqueueArgs) -> anyhow::Result<bool> {
    let mut message = NewMessage::new(payload(args.payload.as_deref()).await?);
    message.id.clone_from(&args.id);
    message.due = args.when.due();
    for header in &args.header {
        let (name, value) = header.split_once('=').context("--header is written NAME=VALUE")?;
        message.headers.push((name.to_owned(), value.to_owned()));
    }
    message.expires = args.expires.map(Expiry::After);
    message.max_attempts = args.max_attempts;
    message.visibility_timeout = args.visibility_timeout;
    message.repeat = args.repeat.ask()?.map(Box::new);
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
        (_, Some(became)) if became.outcome == "moved" => {
            "moved elsewhere and lives there, as its topic remembers; nothing was scheduled (a request with \"on_conflict\": \
             \"return\" does so all the same)"
                .to_owned()
        }
        (_, Some(became)) => format!(
            "was there before, and is {} now, as its topic remembers; nothing was scheduled (--replace does so all the same)",
            became.outcome
        ),
        _ => "is there already; nothing was changed (take its place with --replace)".to_owned(),
    }
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
        let moved = why("duplicate", serde_json::json!({"outcome": "moved", "at": 1}));
        assert!(moved.contains("return") && !moved.contains("--replace"), "{moved}");
        assert!(why("cancelled_before", gone).starts_with("was cancelled before it came"));
    }
}
