//! `duetime bulk redrive|purge|cancel|due-now|reschedule|list|get|start|stop|undo|delete`

mod ten_first;

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use duetime_client::{BulkAsk, BulkPlan, BulkStart, BulkUndo, Client, ClientError};
use duetime_core::units::parse_duration;

use super::output;
use crate::connection::{NodeArgs, moment};

/// How often the progress of a running plan is read.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Acts on messages that match, on the server: counted first, then on so many at a chosen rate, to be stopped at any time.
#[derive(Debug, Subcommand)]
pub enum BulkCommand {
    /// Schedules dead letters at once, with all attempts given back.
    Redrive {
        #[command(flatten)]
        dead: DeadArgs,
        /// With --start: of more than ten redrive ten first, and the others when the topic remembers that all ten were
        /// delivered. If one died again they stay; if it is not known, you are asked, and without a terminal they stay.
        #[arg(long, requires = "start")]
        ten_first: bool,
        /// With --ten-first: how long it is waited for what becomes of the ten; after that the others stay dead letters.
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = ten_first::WITHIN,
            requires = "ten_first")]
        first_within: Duration,
    },
    /// Removes dead letters; `duetime bulk undo` puts them back for ten minutes, where the topic remembers.
    Purge {
        #[command(flatten)]
        dead: DeadArgs,
        #[command(flatten)]
        kept: Kept,
    },
    /// Cancels live messages; `duetime bulk undo` puts them back for ten minutes, where the topic remembers.
    Cancel {
        #[command(flatten)]
        live: LiveArgs,
        #[command(flatten)]
        kept: Kept,
    },
    /// Makes live messages that wait due at once.
    DueNow(LiveArgs),
    /// Gives live messages another due time.
    Reschedule {
        /// The new due time: RFC 3339, or milliseconds since the Unix epoch.
        #[arg(long, value_name = "TIME")]
        at: String,
        #[command(flatten)]
        live: LiveArgs,
    },
    /// Lists the plans of a topic.
    List {
        /// The topic.
        topic: String,
        #[command(flatten)]
        connection: NodeArgs,
    },
    /// Shows a plan.
    Get(PlanName),
    /// Starts a plan, or goes on with one that was stopped.
    Start {
        #[command(flatten)]
        plan: PlanName,
        /// The most messages that it may act on; a plan that was never started wants it.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        at_most: Option<u64>,
        /// Most messages a second. [default: as planned]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
        rate: Option<u32>,
    },
    /// Stops a plan.
    Stop(PlanName),
    /// Puts back what a cancel or purge removed, up to ten minutes after it ended, where nothing else happened to it.
    Undo(PlanName),
    /// Forgets a plan that does not run.
    Delete(PlanName),
}

/// Which plan.
#[derive(Debug, Args)]
pub struct PlanName {
    /// The topic.
    topic: String,
    /// The plan.
    plan: String,
    #[command(flatten)]
    connection: NodeArgs,
}

/// How it is carried out.
#[derive(Debug, Args)]
pub struct How {
    /// The topic.
    topic: String,
    /// Only ids that begin so.
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Most messages a second.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Start it at once, for as many messages as were counted, and wait for its end; else they are only counted, and
    /// `duetime bulk start` starts it within 15 minutes.
    #[arg(long)]
    start: bool,
    /// With --start: the most messages that it may act on. [default: as many as were counted]
    #[arg(long, value_name = "N", requires = "start", value_parser = clap::value_parser!(u64).range(1..))]
    at_most: Option<u64>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// Whether it can be taken back.
#[derive(Debug, Args)]
pub struct Kept {
    /// Do not keep what is removed in the memory of the node: nothing can be put back.
    #[arg(long)]
    no_undo: bool,
}

/// Which dead letters.
#[derive(Debug, Args)]
pub struct DeadArgs {
    #[command(flatten)]
    how: How,
    /// Only those of this reason, as `duetime dead groups` has it.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Which live messages.
#[derive(Debug, Args)]
pub struct LiveArgs {
    #[command(flatten)]
    how: How,
    /// Only messages in this state.
    #[arg(long, value_parser = duetime_router::ListedState::WORDS)]
    state: Option<String>,
    /// Only those that may be claimed from this moment on: milliseconds since the Unix epoch, RFC 3339, or "in 1h".
    #[arg(long, value_name = "TIME")]
    due_from: Option<String>,
    /// Only those that may be claimed before this moment.
    #[arg(long, value_name = "TIME")]
    due_to: Option<String>,
}

/// Runs one.
pub async fn run(command: BulkCommand) -> anyhow::Result<bool> {
    match command {
        BulkCommand::Redrive { dead: args, ten_first, first_within } => {
            dead("redrive", args, (false, ten_first.then_some(first_within))).await
        }
        BulkCommand::Purge { dead: args, kept } => dead("purge", args, (!kept.no_undo, None)).await,
        BulkCommand::Cancel { live: args, kept } => live("cancel", args, (None, !kept.no_undo)).await,
        BulkCommand::DueNow(args) => live("due_now", args, (None, false)).await,
        BulkCommand::Reschedule { at, live: args } => live("reschedule", args, (moment(Some(&at))?, false)).await,
        BulkCommand::List { topic, connection } => list(&topic, &connection).await,
        BulkCommand::Get(name) => {
            let plan = name.connection.client()?.bulk_plan(&name.topic, &name.plan).await?;
            show(&plan, name.connection.json)
        }
        BulkCommand::Start { plan: name, at_most, rate: per_second } => {
            let client = name.connection.client()?;
            let plan = client.start_bulk(&name.topic, &name.plan, BulkStart { at_most, per_second }).await?;
            watch(&client, plan, name.connection.json).await
        }
        BulkCommand::Stop(name) => {
            let client = name.connection.client()?;
            let plan = client.stop_bulk(&name.topic, &name.plan).await?;
            watch(&client, plan, name.connection.json).await.map(|_| true)
        }
        BulkCommand::Undo(name) => {
            let client = name.connection.client()?;
            let plan = client.undo_bulk(&name.topic, &name.plan).await?;
            watch_undo(&client, plan, name.connection.json).await
        }
        BulkCommand::Delete(name) => {
            let plan = name.connection.client()?.forget_bulk(&name.topic, &name.plan).await?;
            show(&plan, name.connection.json)
        }
    }
}

async fn dead(
    action: &str,
    args: DeadArgs,
    (undoable, first_within): (bool, Option<Duration>),
) -> anyhow::Result<bool> {
    let ask = BulkAsk { action: action.to_owned(), reason: args.reason, undoable, ..BulkAsk::default() };
    make(args.how, ask, first_within).await
}

async fn live(action: &str, args: LiveArgs, (due_at, undoable): (Option<i64>, bool)) -> anyhow::Result<bool> {
    let (due_from, due_to) = (moment(args.due_from.as_deref())?, moment(args.due_to.as_deref())?);
    let (action, state) = (action.to_owned(), args.state);
    make(args.how, BulkAsk { action, state, due_from, due_to, due_at, undoable, ..BulkAsk::default() }, None).await
}

async fn make(how: How, ask: BulkAsk, first_within: Option<Duration>) -> anyhow::Result<bool> {
    let client = how.connection.client()?;
    let ask = BulkAsk { prefix: how.prefix, per_second: Some(how.rate), ..ask };
    let mut plan = client.plan_bulk(&how.topic, &ask).await.map_err(|error| of_an_older_node(error, &ask))?;
    if how.start {
        let mut at_most = match how.at_most {
            None if !plan.count_complete => bail!(
                "nothing is done: {} messages were counted before the count ended, and more may match; say how many may \
                 be acted on, with --at-most N",
                plan.expected
            ),
            // Nothing matched.
            None => plan.expected.max(1),
            Some(given) => given,
        };
        if let Some(within) = first_within
            && ten_first::leaves_others(&plan, at_most)
        {
            // It may take longer than a plan waits for its start: the others are counted anew.
            client.forget_bulk(&how.topic, &plan.id).await?;
            at_most -= ten_first::redrive(&client, &how.topic, &ask, within, how.connection.json).await? as u64;
            plan = client.plan_bulk(&how.topic, &ask).await?;
        }
        let agreed = BulkStart { at_most: Some(at_most), per_second: None };
        let plan = client.start_bulk(&how.topic, &plan.id, agreed).await?;
        return watch(&client, plan, how.connection.json).await;
    }
    show(&plan, how.connection.json)?;
    if !how.connection.json {
        let (topic, id, most) = (&how.topic, &plan.id, plan.expected.max(1));
        output::line(&format!(
            "nothing is done yet; start it within 15 minutes with: duetime bulk start --at-most {most} {topic} {id}"
        ))?;
    }
    Ok(true)
}

/// Says what to do where a node is of a version that puts nothing back.
fn of_an_older_node(error: ClientError, ask: &BulkAsk) -> anyhow::Error {
    let is_older = ask.undoable && error.problem().is_some_and(|problem| problem.code == "unknown_field");
    if is_older {
        anyhow!("{error}; a node of an older version puts nothing back: upgrade it, or give --no-undo")
    } else {
        error.into()
    }
}

/// Waits for the end of a plan; false: it failed, or some of its messages did.
async fn watch(client: &Client, mut plan: BulkPlan, as_json: bool) -> anyhow::Result<bool> {
    let live = !as_json && std::io::stderr().is_terminal();
    while !plan.has_ended() {
        if live {
            let done = plan.counts.done + plan.counts.failed + plan.counts.others() - plan.counts.open;
            eprint!("\r{} {done} of at most {}  ", plan.state, plan.at_most.unwrap_or(plan.expected));
        }
        tokio::time::sleep(LOOK_EVERY).await;
        match client.bulk_plan(&plan.topic, &plan.id).await {
            Ok(now) => plan = now,
            // The node may be restarting: the plan goes on after that, or at another node.
            Err(error) if error.is_passing() => {}
            Err(error) => return Err(error.into()),
        }
    }
    if live {
        eprintln!();
    }
    show(&plan, as_json)?;
    Ok(plan.state != "failed" && plan.counts.failed == 0)
}

/// Waits until messages are put back; false: some may not be.
async fn watch_undo(client: &Client, mut plan: BulkPlan, as_json: bool) -> anyhow::Result<bool> {
    while plan.undo.as_ref().is_some_and(BulkUndo::is_under_way) {
        tokio::time::sleep(LOOK_EVERY).await;
        match client.bulk_plan(&plan.topic, &plan.id).await {
            Ok(now) => plan = now,
            Err(error) if error.is_passing() => {}
            Err(error) => return Err(error.into()),
        }
    }
    show(&plan, as_json)?;
    Ok(plan.undo.is_some_and(|undo| undo.state == "done" && undo.unknown == 0))
}

/// What can be put back, or was, in words.
fn undo_words(plan: &BulkPlan, undo: &BulkUndo) -> String {
    let BulkUndo { kept, due_at_once, restored, left, unknown, .. } = undo;
    let until = undo.until.map(output::away).unwrap_or_default();
    // What is not known to be removed may be kept, too.
    let removed = (plan.counts.done + plan.counts.in_flight).max(*kept);
    match (undo.state.as_str(), &undo.why_not) {
        ("possible", None) => format!(
            "{kept} of {removed} can be put back: duetime bulk undo {} {} (at most {due_at_once} are due at once; \
             over {until})",
            plan.topic, plan.id
        ),
        ("keeping", _) if plan.state == "planned" => {
            "what it removes is kept until ten minutes after its end".to_owned()
        }
        ("keeping", _) if !plan.has_ended() => {
            format!("{kept} of {removed} are kept; stop it, or wait for its end, to put them back")
        }
        (_, Some(why)) if restored + left + unknown == 0 => format!("no: {why}"),
        (state, _) => format!("{state}: {restored} put back, {left} left alone, {unknown} not known, of {kept} kept"),
    }
}

fn expected(plan: &BulkPlan) -> String {
    format!("{}{}", if plan.count_complete { "" } else { "at least " }, plan.expected)
}

fn unrecorded(count: u64) -> String {
    if count == 0 { "0".to_owned() } else { format!("{count} (their node ended; as a rule they are done)") }
}

fn show(plan: &BulkPlan, as_json: bool) -> anyhow::Result<bool> {
    if as_json {
        output::json(plan)?;
        return Ok(true);
    }
    let counts = plan.counts;
    let mut rows = vec![
        ("plan", plan.id.clone()),
        ("action", format!("{} on {}, {} a second", plan.action.replace('_', " "), plan.topic, plan.per_second)),
        ("state", plan.state.clone()),
        ("matched", expected(plan)),
        ("at most", plan.at_most.map_or_else(|| "nobody agreed to it yet".to_owned(), |most| most.to_string())),
        ("for example", plan.samples.join(" ")),
        ("done", counts.done.to_string()),
        ("in flight", counts.in_flight.to_string()),
        ("unchanged", counts.unchanged.to_string()),
        ("failed", counts.failed.to_string()),
        ("not recorded", unrecorded(counts.unrecorded)),
    ];
    if counts.open > 0 {
        rows.push(("being carried out", counts.open.to_string()));
    }
    rows.push(("in all", (counts.done + counts.failed + counts.others()).to_string()));
    if let Some(redriven) = plan.redriven_before.filter(|redriven| *redriven > 0) {
        rows.insert(4, ("redriven before", redriven.to_string()));
    }
    rows.extend(plan.failures.iter().map(|failure| ("failed on", format!("{}: {}", failure.id, failure.reason))));
    rows.extend(plan.undo.as_ref().map(|undo| ("undo", undo_words(plan, undo))));
    rows.extend(plan.issue.clone().map(|issue| ("issue", issue)));
    output::pairs(rows)?;
    Ok(true)
}

async fn list(topic: &str, connection: &NodeArgs) -> anyhow::Result<bool> {
    let plans = connection.client()?.bulk_plans(topic).await?;
    if connection.json {
        output::json(&serde_json::json!({ "plans": plans }))?;
        return Ok(true);
    }
    let rows = plans.iter().map(|plan| {
        let at = output::away(plan.created_at);
        let [done, failed, others] =
            [plan.counts.done, plan.counts.failed, plan.counts.others()].map(|count| count.to_string());
        vec![plan.id.clone(), plan.action.clone(), plan.state.clone(), expected(plan), done, failed, others, at]
    });
    let head = ["plan", "action", "state", "matched", "done", "failed", "others", "planned"];
    output::table(&head, rows.collect(), "no bulk plans")?;
    Ok(true)
}
