//! `duetime dead list|groups|redrive|purge`

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use duetime_client::{Client, ClientError, DeadChoice, DeadDone, DeadOutcome, DeadResend};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{enqueue, output};
use crate::connection::NodeArgs;

/// Dead letters of one page.
const PAGE_MAX: usize = 500;

/// The outcome of a letter that is scheduled.
const REDRIVEN: &str = "redriven";

/// Dead letters that a node groups at a time.
const GROUPED: u64 = 10_000;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadCommand {
    /// Lists them with their reasons, oldest first in each shard.
    List {
        /// The topic.
        topic: String,
        /// Most to list.
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Only those of this reason, as `duetime dead groups` has it.
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        connection: NodeArgs,
    },
    /// Groups them by reason: how many, since when, and some of their ids.
    Groups {
        /// The topic.
        topic: String,
        /// Ids to show of each group.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
        samples: u16,
        /// Most dead letters to read.
        #[arg(long, value_name = "N", default_value_t = GROUPED, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
        #[command(flatten)]
        connection: NodeArgs,
    },
    /// Schedules them at once, with all attempts given back; with --to in another topic, with --payload as edited.
    Redrive(RedriveArgs),
    /// Removes them for good.
    Purge(PurgeArgs),
}

/// Which dead letters are redriven, where, and as what.
#[derive(Debug, Args)]
pub struct RedriveArgs {
    #[command(flatten)]
    these: ChoiceArgs,
    /// Schedule them in this topic, under their ids. What is there already stays, and so does its letter.
    #[arg(long, value_name = "TOPIC")]
    to: Option<String>,
    /// Deliver this instead of the payload of one letter, which is kept with it: text, @FILE for a file's bytes, - for
    /// standard input.
    #[arg(long, visible_aliases = ["body", "data"], value_name = "TEXT|@FILE|-", conflicts_with_all = ["all", "stdin"])]
    #[arg(allow_hyphen_values = true)]
    payload: Option<String>,
}

/// Which dead letters go for good.
#[derive(Debug, Args)]
pub struct PurgeArgs {
    #[command(flatten)]
    these: ChoiceArgs,
    /// Do not ask before all are purged.
    #[arg(long, requires = "all")]
    yes: bool,
}

/// Which dead letters.
#[derive(Debug, Args)]
pub struct ChoiceArgs {
    /// The topic.
    topic: String,
    /// The messages; those whose ids begin with - behind --.
    #[arg(value_name = "ID", required_unless_present_any = ["all", "stdin"], conflicts_with_all = ["all", "stdin"])]
    ids: Vec<String>,
    /// Read ids from standard input, one a line.
    #[arg(long, conflicts_with = "all")]
    stdin: bool,
    /// All there are.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Runs one.
pub async fn run(command: DeadCommand) -> anyhow::Result<bool> {
    match command {
        DeadCommand::List { topic, limit, reason, connection } => {
            list(&topic, reason.as_deref(), limit, &connection).await
        }
        DeadCommand::Groups { topic, samples, limit, connection } => {
            groups(&topic, usize::from(samples), limit, &connection).await
        }
        DeadCommand::Redrive(RedriveArgs { these, to: None, payload: None }) => {
            act(these, "redriven", Client::redrive).await
        }
        DeadCommand::Redrive(args) => resend(args).await,
        DeadCommand::Purge(PurgeArgs { these, yes }) => {
            if these.all && !yes {
                confirm_purge(&these).await?;
            }
            act(these, "purged", Client::purge).await
        }
    }
}

async fn list(topic: &str, reason: Option<&str>, limit: usize, connection: &NodeArgs) -> anyhow::Result<bool> {
    let client = connection.client()?;
    let (mut messages, mut cursor) = (Vec::new(), None);
    loop {
        let wanted = limit.saturating_sub(messages.len()).min(PAGE_MAX);
        if wanted == 0 {
            break;
        }
        let page = client.dead_of(topic, reason, cursor.as_deref(), wanted).await?;
        messages.extend(page.messages);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if connection.json {
        output::json(&json!({ "messages": messages, "more": cursor.is_some() }))?;
        return Ok(true);
    }
    let rows = messages.iter().map(|message| {
        let death = message.death.as_ref();
        vec![
            message.id.clone(),
            death.map_or_else(String::new, |death| output::away(death.at)),
            message.attempts.to_string(),
            message.redrives.to_string(),
            death.map_or_else(String::new, |death| death.reason.clone()),
            output::payload(message.payload.as_deref(), message.payload_base64.as_deref()),
        ]
    });
    output::table(&["id", "died", "attempts", "redrives", "reason", "payload"], rows.collect(), "no dead letters")?;
    if cursor.is_some() {
        output::line(&format!("there are more; list them with --limit {}", limit.saturating_mul(10)))?;
    }
    Ok(true)
}

async fn groups(topic: &str, samples: usize, limit: u64, connection: &NodeArgs) -> anyhow::Result<bool> {
    let client = connection.client()?;
    let read_on = async |read: u64, cursor: Option<&str>| {
        let left = usize::try_from((limit - read).min(GROUPED)).unwrap_or(usize::MAX);
        client.dead_groups(topic, samples, left, cursor).await
    };
    let mut found = read_on(0, None).await?;
    while let Some(cursor) = found.next.clone().filter(|_| found.scanned < limit) {
        found.add(read_on(found.scanned, Some(&cursor)).await?, samples);
    }
    if connection.json {
        output::json(&found)?;
        return Ok(true);
    }
    let rows = found.groups.iter().map(|group| {
        let (first, last) = (output::away(group.first), output::away(group.last));
        vec![
            group.count.to_string(),
            group.last_day.to_string(),
            group.redriven_before.to_string(),
            first,
            last,
            group.reason.clone(),
            group.ids.join(" "),
        ]
    });
    output::table(
        &["dead", "last day", "redriven before", "first", "last", "reason", "for example"],
        rows.collect(),
        "no dead letters",
    )?;
    if !found.complete {
        let more = limit.saturating_mul(10);
        output::line(&format!("only {} dead letters were read; read more with --limit {more}", found.scanned))?;
    }
    Ok(true)
}

/// Asks before all dead letters of a topic are removed; refused, where nobody can be asked.
async fn confirm_purge(these: &ChoiceArgs) -> anyhow::Result<()> {
    let dead = these.connection.client()?.topic(&these.topic).await?.dead;
    let what = output::count(dead, "dead letter");
    ensure!(
        std::io::stdin().is_terminal(),
        "{what} of {:?} would be removed for good; nobody can be asked here, so say so with --yes",
        these.topic
    );
    let question = format!("{what} of {:?} are removed for good. Go on?", these.topic);
    ensure!(output::agreed(&question)?, "nothing was purged");
    Ok(())
}

fn show(results: &[DeadOutcome]) -> anyhow::Result<()> {
    for result in results {
        let detail = result.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
        output::line(&format!("{} {}{detail}", result.id.as_deref().unwrap_or("?"), result.outcome))?;
    }
    Ok(())
}

/// Redrives letters in another topic, or one with another payload.
async fn resend(args: RedriveArgs) -> anyhow::Result<bool> {
    let RedriveArgs { these, to, payload } = args;
    let client = these.connection.client()?;
    let mut asked = DeadResend { to, ..DeadResend::default() };
    if let Some(payload) = &payload {
        ensure!(these.ids.len() == 1, "--payload is of one letter; name one id");
        asked.payload_base64 = Some(STANDARD.encode(enqueue::payload(Some(payload)).await?));
    }
    if these.all {
        return resend_all(&client, &these, asked).await;
    }
    let mut results = Vec::new();
    for ids in output::arguments(these.ids, these.stdin)?.chunks(DeadResend::IDS_MAX) {
        asked.ids = ids.to_vec();
        results.extend(client.resend(&these.topic, &asked).await?.results.unwrap_or_default());
    }
    let done = results.iter().filter(|result| result.outcome == REDRIVEN).count();
    if these.connection.json {
        output::json(&json!({ "done": done, "results": results }))?;
    } else {
        show(&results)?;
    }
    Ok(done == results.len())
}

/// Redrives all letters of a topic in another one, a page at a time, and shows those of it that stay: they are passed by,
/// so that each is asked for once.
async fn resend_all(client: &Client, these: &ChoiceArgs, mut asked: DeadResend) -> anyhow::Result<bool> {
    let (mut done, mut stayed) = (0, 0);
    let mut cursor = None;
    loop {
        let so_far = || format!("{done} redriven, {stayed} stayed; then it broke off: give the command again");
        let page = client.dead(&these.topic, cursor.as_deref(), PAGE_MAX).await.with_context(so_far)?;
        asked.ids = page.messages.into_iter().map(|message| message.id).collect();
        if !asked.ids.is_empty() {
            let answer = client.resend(&these.topic, &asked).await.with_context(so_far)?;
            let (left, stays): (Vec<_>, Vec<_>) =
                answer.results.unwrap_or_default().into_iter().partition(|result| result.outcome == REDRIVEN);
            (done, stayed) = (done + left.len(), stayed + stays.len());
            if !these.connection.json {
                show(&stays)?;
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if these.connection.json {
        output::json(&json!({ "done": done, "stayed": stayed }))?;
    } else {
        output::line(&format!("{done} redriven"))?;
    }
    Ok(stayed == 0)
}

async fn act(
    args: ChoiceArgs,
    word: &str,
    ask: impl AsyncFn(&Client, &str, &DeadChoice) -> Result<DeadDone, ClientError>,
) -> anyhow::Result<bool> {
    let client = args.connection.client()?;
    if !args.all {
        let ids = output::arguments(args.ids, args.stdin)?;
        let done = ask(&client, &args.topic, &DeadChoice::Ids(ids)).await?;
        let results = done.results.unwrap_or_default();
        if args.connection.json {
            output::json(&json!({ "done": done.done, "replicas": done.replicas, "results": results }))?;
        } else {
            show(&results)?;
        }
        return Ok(results.iter().all(|result| result.outcome == word));
    }
    let total = client.topic(&args.topic).await?.dead;
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {eta} left")?;
    let bar = ProgressBar::new(total).with_style(style).with_message(word.to_owned());
    bar.enable_steady_tick(TICK);
    let mut count = 0;
    loop {
        let done = ask(&client, &args.topic, &DeadChoice::All).await?;
        count += done.done;
        bar.set_position(count);
        if !done.more {
            break;
        }
    }
    bar.finish_and_clear();
    if args.connection.json {
        output::json(&json!({ "done": count }))?;
    } else {
        output::line(&format!("{count} {word}"))?;
    }
    Ok(true)
}
