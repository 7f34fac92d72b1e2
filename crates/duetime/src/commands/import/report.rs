//! What came of an import: said, counted, and written down.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use duetime_client::NewMessage;
use duetime_core::units::{check_due_at, parse_time};
use duetime_core::{Clock as _, Due, Headers, MessageId, Repeat};
use duetime_import::Left;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::io::AsyncWriteExt as _;

use super::args::ImportArgs;
use super::line;
use super::send::Sent;
use crate::clock::SystemClock;
use crate::commands::output;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);
/// Refusals that are shown one by one; the rest is counted, and in the file of refused lines.
const REFUSALS_SHOWN: u64 = 20;

#[derive(Default, serde::Serialize)]
pub(super) struct Tally {
    pub(super) scheduled: u64,
    pub(super) replaced: u64,
    pub(super) duplicate: u64,
    /// Dead letters of a file, and what the source has beside delayed messages.
    pub(super) left: u64,
    pub(super) refused: u64,
}

impl Tally {
    pub(super) fn total(&self) -> u64 {
        self.scheduled + self.replaced + self.duplicate + self.left + self.refused
    }

    pub(super) fn shown(&self, dry_run: bool) -> String {
        let Self { scheduled, replaced, duplicate, left, refused } = self;
        if dry_run {
            return format!("{scheduled} would be sent, {left} left, {refused} refused; nothing was enqueued");
        }
        format!("{scheduled} scheduled, {replaced} replaced, {duplicate} duplicate, {left} left, {refused} refused")
    }
}

/// What a node would refuse of a message, whatever else it holds.
pub(super) fn check(message: &NewMessage, payload_bytes_max: u64) -> Result<(), String> {
    let id = MessageId::new(message.id.as_deref().unwrap_or_default()).map_err(|error| error.to_string())?;
    id.check_new().map_err(|error| error.to_string())?;
    match message.due {
        Some(Due::At(at)) => {
            parse_time(&at.as_millis().to_string())?;
            check_due_at(at, SystemClock.now())?;
        }
        Some(Due::In(delay)) => duetime_core::units::check_delay(delay).map(|_| ())?,
        None => {}
    }
    Repeat::check(&Headers::new(message.headers.clone())?)?;
    if message.payload.len() as u64 > payload_bytes_max {
        return Err(too_large(message, payload_bytes_max));
    }
    Ok(())
}

/// Why a message is refused whose payload is larger than the topic takes.
pub(super) fn too_large(message: &NewMessage, payload_bytes_max: u64) -> String {
    let bytes = message.payload.len();
    format!("the payload has {bytes} bytes and the topic takes {payload_bytes_max}; raise its max_payload")
}

/// Says and writes what was refused, and counts.
pub(super) struct Report {
    pub(super) tally: Tally,
    pub(super) bar: ProgressBar,
    pub(super) file: Option<tokio::fs::File>,
}

impl Report {
    pub(super) async fn new(args: &ImportArgs, length: Option<u64>) -> anyhow::Result<Self> {
        let file = match &args.refused {
            Some(path) => {
                let place = |path: &Path| std::fs::canonicalize(path).ok();
                let is_there = place(path).is_some_and(|place_of| place(args.file.as_ref()) == Some(place_of));
                let is_input = args.from.is_none() && is_there;
                ensure!(!is_input, "{} is what is imported; name another file", path.display());
                // The same command goes on with the file of one that broke off.
                let opened = tokio::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path).await;
                Some(opened.with_context(|| format!("cannot write {}", path.display()))?)
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

    pub(super) async fn refused(&mut self, why: &str, line: &[u8]) -> anyhow::Result<()> {
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

    pub(super) async fn refused_message(&mut self, message: &NewMessage, why: &str) -> anyhow::Result<()> {
        let mut line = serde_json::to_value(message)?;
        line["refused"] = why.into();
        let id = message.id.as_deref().unwrap_or_default();
        self.refused(&format!("{}: {why}", line::beginning(id)), line.to_string().as_bytes()).await
    }

    pub(super) async fn sent(&mut self, sent: Vec<Sent>) -> anyhow::Result<()> {
        for one in sent {
            match one {
                Sent::Scheduled(_) => self.tally.scheduled += 1,
                Sent::Replaced(_) => self.tally.replaced += 1,
                Sent::Duplicate(_) => self.tally.duplicate += 1,
                Sent::Refused { message, why } => self.refused_message(&message, &why).await?,
            }
        }
        self.bar.set_position(self.tally.total());
        Ok(())
    }

    pub(super) async fn finish(mut self) -> anyhow::Result<Tally> {
        self.bar.finish_and_clear();
        if let Some(file) = &mut self.file {
            file.flush().await.context("cannot write the file of what was refused")?;
        }
        Ok(self.tally)
    }
}

pub(super) fn counts(left: &[Left]) -> serde_json::Map<String, serde_json::Value> {
    left.iter().map(|left| (left.what.to_owned(), left.count.into())).collect()
}

pub(super) fn show_left(left: &[Left]) -> anyhow::Result<()> {
    if !left.is_empty() {
        let each: Vec<String> = left.iter().map(|left| format!("{} {}", left.count, left.what)).collect();
        output::line(&format!("not delayed, and left where they are: {}", each.join(", ")))?;
    }
    Ok(())
}
