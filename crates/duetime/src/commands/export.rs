//! `duetime export`: the messages of a topic as lines of JSON, page by page, with bounded memory.
//!
//! A page is written before the state beside the file says so: an export that is carried on cuts the file to what the
//! state says. While shards change, a message may move behind the place that was reached, so the whole is read again.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use clap::Args;
use duetime_client::{Client, ClientError, ListFilter, MessageLines};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncSeekExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use super::output;
use crate::connection::{NodeArgs, moment, read_delay};

/// Messages of one page.
const PAGE: usize = 500;
/// How often the shards may change before the export gives up.
const PASSES_MAX: u32 = 10;
/// How often it is asked whether the shards still change.
const ASKED_EVERY: Duration = Duration::from_secs(1);
/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);
/// What `--state` takes beside the states of a list.
const DEAD: &str = "dead";

/// Which messages, and where to.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The topic.
    topic: String,
    /// Only messages in this state. If absent, all, and dead letters last; with --due-from, --due-to or --prefix all that
    /// are live.
    #[arg(long, value_parser = ["scheduled", "due", "in_flight", "retrying", "dead"])]
    state: Option<String>,
    /// Only those that may be claimed from this moment on: milliseconds since the Unix epoch, RFC 3339, or "in 1h".
    #[arg(long, value_name = "TIME")]
    due_from: Option<String>,
    /// Only those that may be claimed before this moment.
    #[arg(long, value_name = "TIME")]
    due_to: Option<String>,
    /// Only ids that begin so.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Of dead letters (--state dead): only those of this reason, as `duetime dead groups` has it.
    #[arg(long, requires = "state")]
    reason: Option<String>,
    /// Write to this file. One that was begun, with its FILE.state, is carried on.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Go on where an export to standard output ended, as its error says.
    #[arg(long, value_name = "CURSOR", conflicts_with = "out")]
    cursor: Option<String>,
    /// How long a node that does not answer is asked again.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = read_delay)]
    retry_for: Duration,
    #[command(flatten)]
    connection: NodeArgs,
}

impl ExportArgs {
    /// The moments as they are given.
    fn due(&self) -> [Option<String>; 2] {
        [self.due_from.clone(), self.due_to.clone()]
    }
}

/// Which list is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    Live,
    Dead,
}

/// Where the next page is, under which shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// The life of the topic and the changes of its shard count when the pass began.
    shards: (u64, u64),
    part: Part,
    cursor: Option<String>,
}

impl Place {
    fn shown(&self) -> String {
        let part = if self.part == Part::Live { "live" } else { DEAD };
        let (life, epoch) = self.shards;
        format!("{life}.{epoch}.{part}.{}", self.cursor.as_deref().unwrap_or_default())
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, '.');
        let shards = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let part = match parts.next()? {
            "live" => Part::Live,
            DEAD => Part::Dead,
            _ => return None,
        };
        let cursor = Some(parts.next()?.to_owned()).filter(|cursor| !cursor.is_empty());
        Some(Self { shards, part, cursor })
    }
}

/// What stands beside a file that is not whole.
#[derive(Debug, Serialize, Deserialize)]
struct SavedState {
    topic: String,
    state: Option<String>,
    /// The moments that were given, which the export goes on with.
    due_from: Option<i64>,
    due_to: Option<i64>,
    /// As they were given: "in 1h" is another moment when the command is repeated. `None`: by a version before this.
    #[serde(default)]
    due: Option<[Option<String>; 2]>,
    prefix: Option<String>,
    reason: Option<String>,
    place: Place,
    /// Bytes and messages of the file so far.
    bytes: u64,
    messages: u64,
}

/// Where lines go.
struct Target {
    to: Box<dyn AsyncWrite + Send + Unpin>,
    file: Option<(PathBuf, tokio::fs::File)>,
    bytes: u64,
    messages: u64,
}

impl Target {
    async fn write(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        self.bytes += lines.len() as u64;
        self.messages += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.to.write_all(lines).await.context("cannot write the lines")?;
        self.to.flush().await.context("cannot write the lines")
    }

    /// Forgets what a pass wrote that is begun again. What standard output was given stays there.
    async fn begin_again(&mut self) -> anyhow::Result<()> {
        if let Some((path, file)) = &mut self.file {
            let cannot = || format!("cannot write {}", path.display());
            file.set_len(0).await.with_context(cannot)?;
            file.seek(std::io::SeekFrom::Start(0)).await.with_context(cannot)?;
            (self.bytes, self.messages) = (0, 0);
        }
        Ok(())
    }
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.to_owned().into_os_string();
    name.push(".state");
    PathBuf::from(name)
}

/// Writes the state in one piece.
fn save(at: &Path, state: &SavedState) -> anyhow::Result<()> {
    let draft = at.with_extension("state.part");
    let cannot = || format!("cannot write {}", at.display());
    std::fs::write(&draft, serde_json::to_vec(state)?).with_context(cannot)?;
    std::fs::rename(&draft, at).with_context(cannot)
}

/// Whether only live messages can be meant.
fn narrowed(filter: &ListFilter) -> bool {
    filter.due_from.is_some() || filter.due_to.is_some() || filter.prefix.is_some()
}

/// The lines of a page, and the cursor of the next.
async fn whole(page: MessageLines) -> Result<(Bytes, Option<String>), ClientError> {
    let next = page.next.clone();
    Ok((page.bytes().await?, next))
}

struct Export<'a> {
    client: Client,
    args: &'a ExportArgs,
    filter: ListFilter,
    target: Target,
    bar: ProgressBar,
}

impl Export<'_> {
    /// The shards, once they are at rest.
    async fn at_rest(&self) -> anyhow::Result<(u64, u64)> {
        let mut said = false;
        loop {
            let shards = self.client.shards(&self.args.topic).await?;
            if shards.resize.is_none() {
                return Ok((shards.incarnation, shards.epoch));
            }
            if !said {
                self.bar.suspend(|| output::warn("the shard count changes; the export begins when that is over"));
                said = true;
            }
            tokio::time::sleep(ASKED_EVERY).await;
        }
    }

    async fn request_once(&self, place: &Place) -> Result<MessageLines, ClientError> {
        let (topic, cursor) = (&self.args.topic, place.cursor.as_deref());
        match place.part {
            Part::Live => self.client.list_lines(topic, &self.filter, cursor, PAGE).await,
            Part::Dead => self.client.dead_lines(topic, self.args.reason.as_deref(), cursor, PAGE).await,
        }
    }

    async fn request(&self, place: &Place) -> Result<MessageLines, ClientError> {
        self.client.again(async || self.request_once(place).await).await
    }

    /// The place behind a page; `None`: that was all.
    fn after(&self, place: &Place, next: Option<String>) -> Option<Place> {
        let more = next.is_some();
        let both = self.args.state.is_none() && !narrowed(&self.filter) && place.part == Part::Live;
        let part = if more || !both { place.part } else { Part::Dead };
        (more || both).then_some(Place { part, cursor: next, shards: place.shards })
    }

    /// The lines of a page and the cursor of the next; one whose connection is cut is asked for again, and may end
    /// elsewhere then.
    async fn lines(&self, place: &Place, page: MessageLines) -> Result<(Bytes, Option<String>), ClientError> {
        match whole(page).await {
            Err(error) if error.is_passing() => {}
            lines => return lines,
        }
        self.client.again(async || whole(self.request_once(place).await?).await).await
    }

    /// Writes all from `place` on. The next page is asked for while one is read and written. Answers where it stopped,
    /// with an error.
    async fn pass(&mut self, mut place: Place) -> Result<(), (Place, anyhow::Error)> {
        let mut page = match self.request(&place).await {
            Ok(page) => page,
            Err(error) => return Err((place, error.into())),
        };
        loop {
            let planned = self.after(&place, page.next.clone());
            let following = async {
                match &planned {
                    Some(planned) => Some(self.request(planned).await),
                    None => None,
                }
            };
            let (lines, following) = tokio::join!(self.lines(&place, page), following);
            let written = match lines {
                Ok((lines, next)) => self.target.write(&lines).await.map(|()| self.after(&place, next)),
                Err(error) => Err(error.into()),
            };
            let after = match written {
                Ok(after) => after,
                Err(error) => return Err((place, error)),
            };
            self.bar.set_position(self.target.messages);
            // What was asked for meanwhile is behind the page as it was planned, not as it came.
            let following = following.filter(|_| after == planned);
            let Some(after) = after else { return Ok(()) };
            place = after;
            if let Err(error) = self.save(&place).await {
                return Err((place, error));
            }
            let following = match following {
                Some(following) => following,
                None => self.request(&place).await,
            };
            page = match following {
                Ok(page) => page,
                Err(error) => return Err((place, error.into())),
            };
        }
    }

    async fn save(&self, place: &Place) -> anyhow::Result<()> {
        let Some((path, _)) = &self.target.file else { return Ok(()) };
        let state = SavedState {
            topic: self.args.topic.clone(),
            state: self.args.state.clone(),
            due_from: self.filter.due_from,
            due_to: self.filter.due_to,
            due: Some(self.args.due()),
            prefix: self.filter.prefix.clone(),
            reason: self.args.reason.clone(),
            place: place.clone(),
            bytes: self.target.bytes,
            messages: self.target.messages,
        };
        save(&beside(path), &state)
    }
}

/// The file to write, and where to go on in it; what stands in a file without a state is never touched. An export that
/// goes on has the moments of the `filter` that it was begun with.
async fn open(args: &ExportArgs, filter: &mut ListFilter) -> anyhow::Result<(Target, Option<Place>)> {
    let Some(path) = &args.out else {
        let target = Target { to: Box::new(tokio::io::stdout()), file: None, bytes: 0, messages: 0 };
        let read = |text: &String| Place::read(text).context("--cursor is not one; give what the error said, exactly");
        return Ok((target, args.cursor.as_ref().map(read).transpose()?));
    };
    let saved =
        match std::fs::read(beside(path)) {
            Ok(bytes) => Some(serde_json::from_slice::<SavedState>(&bytes).with_context(|| {
                format!("{} cannot be read; remove it and {}", beside(path).display(), path.display())
            })?),
            Err(_) => None,
        };
    if let Some(saved) = &saved {
        if saved.due == Some(args.due()) {
            (filter.due_from, filter.due_to) = (saved.due_from, saved.due_to);
        }
        let given = (&args.topic, &args.state, filter.due_from, filter.due_to, &filter.prefix, &args.reason);
        let begun = (&saved.topic, &saved.state, saved.due_from, saved.due_to, &saved.prefix, &saved.reason);
        ensure!(
            given == begun,
            "{} was begun with another topic or other options; repeat them, or remove it and its .state",
            path.display()
        );
    } else {
        let is_empty = std::fs::metadata(path).map_or(true, |meta| meta.len() == 0);
        ensure!(is_empty, "{} is there already; name another file, or remove it", path.display());
    }
    let cannot = || format!("cannot write {}", path.display());
    let mut options = tokio::fs::OpenOptions::new();
    let mut file =
        options.write(true).create(true).truncate(false).mode(0o600).open(path).await.with_context(cannot)?;
    let (bytes, messages) = saved.as_ref().map_or((0, 0), |saved| (saved.bytes, saved.messages));
    ensure!(
        file.metadata().await.with_context(cannot)?.len() >= bytes,
        "{} is shorter than its .state says; remove both",
        path.display()
    );
    file.set_len(bytes).await.with_context(cannot)?;
    file.seek(std::io::SeekFrom::End(0)).await.with_context(cannot)?;
    let to = Box::new(file.try_clone().await.with_context(cannot)?);
    Ok((Target { to, file: Some((path.clone(), file)), bytes, messages }, saved.map(|saved| saved.place)))
}

/// Runs it.
pub async fn run(args: ExportArgs) -> anyhow::Result<bool> {
    let (due_from, due_to) = (moment(args.due_from.as_deref())?, moment(args.due_to.as_deref())?);
    let state = args.state.clone().filter(|state| state != DEAD);
    let mut filter = ListFilter { state, due_from, due_to, prefix: args.prefix.clone() };
    ensure!(
        !(narrowed(&filter) && args.state.as_deref() == Some(DEAD)),
        "--due-from, --due-to and --prefix are for live messages; leave them out"
    );
    ensure!(
        args.reason.is_none() || args.state.as_deref() == Some(DEAD),
        "--reason is for dead letters; give --state dead with it"
    );
    let (target, saved) = open(&args, &mut filter).await?;
    let bar = ProgressBar::new_spinner()
        .with_style(ProgressStyle::with_template("{spinner} {pos} messages in {elapsed}, {per_sec}")?);
    bar.enable_steady_tick(TICK);
    let begun = Instant::now();
    let before = target.messages;
    let mut export =
        Export { client: args.connection.client()?.retrying(args.retry_for), args: &args, filter, target, bar };
    let me = export.client.me().await?;
    ensure!(
        me.name.is_none() || me.scopes.iter().any(|scope| matches!(scope.as_str(), "produce" | "admin")),
        "the token is shown no payloads, and an export without them is none; it needs the scopes `view` and `produce`"
    );
    let first = if args.state.as_deref() == Some(DEAD) { Part::Dead } else { Part::Live };
    let mut shards = export.at_rest().await?;
    let mut place = match saved {
        Some(saved) if saved.shards == shards => saved,
        // What was written is of messages that are gone, and may be all that is left of them.
        Some(saved) if saved.shards.0 != shards.0 => {
            export.bar.finish_and_clear();
            let advice = match args.out {
                Some(_) => "name another file, or remove it and its .state",
                None => "leave out --cursor",
            };
            bail!("the topic was deleted and created again since the export was begun; {advice}");
        }
        other => {
            if other.is_some() {
                export.bar.suspend(|| output::warn("the shard count changed since; the export begins again"));
                export.target.begin_again().await?;
            }
            Place { shards, part: first, cursor: None }
        }
    };
    let mut passes = 0;
    loop {
        if let Err((at, error)) = export.pass(place).await {
            export.bar.finish_and_clear();
            let advice = match &args.out {
                Some(file) => format!("the same command goes on with {}", file.display()),
                None => format!("go on with --cursor {}", at.shown()),
            };
            return Err(error.context(format!("{} messages were written; {advice}", export.target.messages)));
        }
        let after = export.at_rest().await?;
        if after == shards {
            break;
        }
        passes += 1;
        ensure!(after.0 == shards.0, "the topic was deleted and created again; export it again");
        if passes == PASSES_MAX {
            bail!("the shard count changed in each of {PASSES_MAX} passes; export while it stays as it is");
        }
        export.bar.suspend(|| output::warn("the shard count changed meanwhile; all is read again"));
        export.target.begin_again().await?;
        shards = after;
        place = Place { shards, part: first, cursor: None };
    }
    export.bar.finish_and_clear();
    finish(&args, export.target, begun, before).await
}

async fn finish(args: &ExportArgs, mut target: Target, begun: Instant, before: u64) -> anyhow::Result<bool> {
    if let Some((path, file)) = &mut target.file {
        file.sync_all().await.with_context(|| format!("cannot write {}", path.display()))?;
        match std::fs::remove_file(beside(path)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", beside(path).display()));
            }
            _ => {}
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (messages, bytes) = (target.messages, target.bytes);
    if args.connection.json {
        eprintln!("{}", serde_json::json!({"messages": messages, "bytes": bytes, "seconds": seconds}));
    } else {
        let rate = messages.saturating_sub(before) as f64 / seconds.max(0.001);
        eprintln!("{}, {} MiB in {seconds:.1} s, {rate:.0} a second", output::count(messages, "message"), bytes >> 20);
    }
    Ok(true)
}
