//! `duetime apply`: the sinks and topics of a node as a file declares them.

mod diff;
mod sinks;

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use duetime_client::{Client, Topic};
use duetime_core::TopicConfig;
use serde_json::{Map, Value};

use super::output;
use crate::config::{Declared, DeclaredTopic, read_declared};
use crate::connection::NodeArgs;
use diff::{Action, Diff, Named, SettingDiff};

/// The exit status where the node differs from the file and nothing was to be changed.
const DIFFERS: u8 = 2;

/// What is left as it is where the file does not name it: operators change it while a node serves.
const LEFT: [&str; 2] = ["shards", "paused"];

/// Topics and sinks as code.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// A file with sections `[topics.NAME]` and `[sinks.NAME]`, such as a node's configuration; its other sections are left
    /// out, and so are sinks where the node takes none by the API.
    file: PathBuf,
    /// Show what differs and change nothing; the node checks the sinks, and tries them. Exit status 2 where something
    /// differs.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before anything is changed.
    #[arg(long)]
    yes: bool,
    /// Delete topics that are not in the file, of those that the token is for. What a section like [topics."orders-*"]
    /// is for stays, and so does each sink.
    #[arg(long)]
    delete: bool,
    /// Most messages that the topics which are deleted may hold, dead letters too.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "delete")]
    at_most: u64,
    #[command(flatten)]
    connection: NodeArgs,
}

fn topic_diff(name: &str, action: Action) -> Diff {
    Diff::new(Named::Topic(name.to_owned()), action)
}

/// What the declaration of a topic differs in from the topic that is there.
fn compared(declared: &DeclaredTopic, config: &TopicConfig, present: Option<&Topic>) -> anyhow::Result<Diff> {
    let wanted = serde_json::to_value(config)?;
    let now = present.map(|topic| serde_json::to_value(&topic.config)).transpose()?;
    let mut diff = topic_diff(&declared.name, if present.is_some() { Action::None } else { Action::Create });
    for setting in TopicConfig::SETTINGS {
        let is_named = declared.named.iter().any(|name| name == setting.name);
        let (from, to) = (now.as_ref().and_then(|now| now.get(setting.name)), wanted.get(setting.name));
        let differs = match now {
            None => is_named,
            Some(_) => (is_named || !LEFT.contains(&setting.name)) && from != to,
        };
        if differs {
            diff.changes.push(SettingDiff { setting: setting.name.to_owned(), from: from.cloned(), to: to.cloned() });
        }
    }
    if diff.action == Action::None && !diff.changes.is_empty() {
        diff.action = Action::Change;
    }
    Ok(diff)
}

/// What differs, topic by topic: those of the file, then the others of the node.
fn differences(declared: &Declared, present: Vec<Topic>, args: &ApplyArgs) -> anyhow::Result<Vec<Diff>> {
    let mut present: BTreeMap<String, Topic> = present.into_iter().map(|topic| (topic.name.clone(), topic)).collect();
    let mut diffs = Vec::new();
    for topic in &declared.topics {
        let there = present.remove(&topic.name);
        diffs.push(match &topic.config {
            Ok(config) => compared(topic, config, there.as_ref())?,
            Err(complaints) => {
                let errors = complaints.iter().map(ToString::to_string).collect();
                Diff { errors, ..topic_diff(&topic.name, Action::Refused) }
            }
        });
    }
    for (name, topic) in present {
        // What a pattern is for is declared too: its first message makes it.
        let goes = args.delete && !declared.has_pattern_for(&name);
        let messages = goes.then_some(topic.scheduled + topic.in_flight + topic.dead);
        let action = if goes { Action::Delete } else { Action::Keep };
        diffs.push(Diff { messages, ..topic_diff(&name, action) });
    }
    Ok(diffs)
}

/// `left`: messages that may still go with topics that are deleted. A dry run asks the node about sinks alone, and
/// changes nothing.
async fn carry_out(client: &Client, diff: &Diff, dry_run: bool, left: &mut u64) -> anyhow::Result<()> {
    let topic = match &diff.of {
        Named::Sink(name) => return sinks::put(client, name, diff, dry_run).await,
        Named::Topic(_) if dry_run => return Ok(()),
        Named::Topic(name) => name,
    };
    match diff.action {
        Action::Create | Action::Change => {
            let changes = diff.changes.iter();
            let change: Map<String, Value> =
                changes.map(|change| (change.setting.clone(), change.to.clone().unwrap_or_default())).collect();
            client.put_topic(topic, &change).await?;
        }
        Action::Delete => {
            // Some may have come since it was counted, while somebody was asked.
            let present = client.topic(topic).await?;
            let messages = present.scheduled + present.in_flight + present.dead;
            ensure!(
                messages <= *left,
                "it holds {} by now, and was not deleted; to delete these too, give a larger --at-most",
                output::count(messages, "message")
            );
            client.delete_topic(topic, messages > 0).await?;
            *left -= messages;
        }
        Action::None | Action::Keep | Action::OfFile | Action::LeftOut | Action::Refused => {}
    }
    Ok(())
}

/// `1 sink and 2 topics`: how many of these there are of each.
fn counted<'a>(diffs: impl Iterator<Item = &'a Diff>) -> String {
    let (mut sinks, mut topics) = (0, 0);
    for diff in diffs {
        *(if matches!(diff.of, Named::Sink(_)) { &mut sinks } else { &mut topics }) += 1;
    }
    match (output::count(sinks, "sink"), output::count(topics, "topic")) {
        (_, of_topics) if sinks == 0 => of_topics,
        (of_sinks, _) if topics == 0 => of_sinks,
        (of_sinks, of_topics) => format!("{of_sinks} and {of_topics}"),
    }
}

/// Asks before anything is changed; refused, where nobody can be asked.
fn confirm(diffs: &[Diff]) -> anyhow::Result<()> {
    let what = format!("{} would be changed", counted(diffs.iter().filter(|diff| diff.is_difference())));
    ensure!(std::io::stdin().is_terminal(), "{what}; nobody can be asked here, so say so with --yes");
    ensure!(output::agreed(&format!("{what}. Go on?"))?, "nothing was changed");
    Ok(())
}

/// `duetime apply`: the exit status.
pub async fn run(args: ApplyArgs) -> anyhow::Result<u8> {
    let declared = match read_declared(&args.file) {
        Ok(declared) => declared,
        Err(complaints) => {
            for complaint in &complaints {
                output::complain(&complaint.to_string());
            }
            return Ok(1);
        }
    };
    if args.delete && !declared.has_topics() {
        let file = args.file.display();
        bail!(
            "{file} declares no topics, and --delete would delete all; write sections [topics.NAME], or leave it out"
        );
    }
    let client = args.connection.client()?;
    // Topics need sinks: these come first.
    let mut diffs = sinks::differences(&declared.sinks, client.named_sinks().await?);
    let sinks = diffs.len();
    diffs.extend(differences(&declared, client.topics().await?, &args)?);
    let (differs, json) = (diffs.iter().any(Diff::is_difference), args.connection.json);
    if !json {
        diffs.iter().try_for_each(|diff| output::line(&diff.shown()))?;
    }
    let doomed: u64 = diffs.iter().filter_map(|diff| diff.messages).sum();
    if doomed > args.at_most && !args.dry_run {
        bail!(
            "the topics to be deleted hold {}, and nothing was changed; to delete these too, say --at-most {doomed}",
            output::count(doomed, "message")
        );
    }
    if differs {
        if !args.yes && !args.dry_run {
            confirm(&diffs)?;
        }
        let mut left = args.at_most;
        let mut not_put: BTreeSet<String> =
            diffs.iter().filter(|diff| !diff.errors.is_empty()).filter_map(Diff::sink).collect();
        for diff in diffs.iter_mut().filter(|diff| diff.is_difference()) {
            let done = match diff.needs_sink().filter(|name| not_put.contains(*name)) {
                Some(name) => Err(anyhow!(
                    "its sink {name} {}, so it stays as it is; mend what is said of the sink, and apply again",
                    if args.dry_run { "would not be put" } else { "was not put" }
                )),
                None => carry_out(&client, diff, args.dry_run, &mut left).await,
            };
            if let Err(error) = done {
                not_put.extend(diff.sink());
                diff.errors.push(format!("{error:#}"));
                output::complain(&format!("{}: {error:#}", diff.title()));
            }
        }
    }
    let failed = diffs.iter().filter(|diff| !diff.errors.is_empty()).count();
    if json {
        let (sinks, topics) = diffs.split_at(sinks);
        output::json(&serde_json::json!({ "sinks": sinks, "topics": topics, "dry_run": args.dry_run }))?;
    } else if differs && !args.dry_run {
        let done = diffs.iter().filter(|diff| diff.is_difference() && diff.errors.is_empty());
        output::line(&format!("{} changed", counted(done)))?;
    }
    Ok(match (failed, differs && args.dry_run) {
        (0, true) => DIFFERS,
        (0, false) => 0,
        _ => 1,
    })
}
