//! `duetime apply`: the topics of a node as a file declares them.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::Args;
use duetime_client::{Client, Topic};
use duetime_core::TopicConfig;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{output, settings};
use crate::config::{Declared, DeclaredTopic, declared_topics};
use crate::connection::NodeArgs;

/// The exit status where the node differs from the file and nothing was to be changed.
const DIFFERS: u8 = 2;

/// What is left as it is where the file does not name it: operators change it while a node serves.
const LEFT: [&str; 2] = ["shards", "paused"];

/// Topics as code.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// A file with sections `[topics.NAME]`, such as a node's configuration; its other sections are left out.
    file: PathBuf,
    /// Show what differs and change nothing; exit status 2 where something does.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before topics are changed.
    #[arg(long)]
    yes: bool,
    /// Delete topics that are not in the file, of those that the token is for. What a section like [topics."orders-*"]
    /// is for stays.
    #[arg(long)]
    delete: bool,
    /// Most messages that the topics which are deleted may hold, dead letters too.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "delete")]
    at_most: u64,
    #[command(flatten)]
    connection: NodeArgs,
}

/// What is to be done with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    None,
    Create,
    Change,
    Delete,
    /// It is not in the file, or only a pattern is for it.
    Keep,
    /// What the file says of it is wrong.
    Refused,
}

#[derive(Debug, Serialize)]
struct SettingDiff {
    setting: &'static str,
    /// Absent: its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Value>,
}

#[derive(Debug, Serialize)]
struct TopicDiff {
    topic: String,
    action: Action,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<SettingDiff>,
    /// Messages in it, where it is to be deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
    /// Why nothing is done, or was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
}

impl TopicDiff {
    fn new(topic: &str, action: Action) -> Self {
        Self { topic: topic.to_owned(), action, changes: Vec::new(), messages: None, errors: Vec::new() }
    }

    const fn is_difference(&self) -> bool {
        matches!(self.action, Action::Create | Action::Change | Action::Delete)
    }

    fn shown(&self) -> String {
        let name = &self.topic;
        let mut lines = vec![match (self.action, self.messages) {
            (Action::None, _) => format!("  {name} is as declared"),
            (Action::Create, _) => format!("+ {name}"),
            (Action::Change, _) => format!("~ {name}"),
            (Action::Delete, messages) => {
                format!("- {name}, with {}", output::count(messages.unwrap_or_default(), "message"))
            }
            (Action::Keep, _) => format!("  {name} is not named in the file and stays"),
            (Action::Refused, _) => format!("! {name}"),
        }];
        let value = |setting: &str, value: &Option<Value>| settings::value_of(setting, value.as_ref());
        lines.extend(self.changes.iter().map(|SettingDiff { setting, from, to }| {
            let name = setting.replace('_', " ");
            match self.action {
                Action::Create => format!("    {name}: {}", value(setting, to)),
                _ => format!("    {name}: {} -> {}", value(setting, from), value(setting, to)),
            }
        }));
        lines.extend(self.errors.iter().map(|error| format!("    {error}")));
        lines.join("\n")
    }
}

/// What the declaration of a topic differs in from the topic that is there.
fn compared(declared: &DeclaredTopic, config: &TopicConfig, present: Option<&Topic>) -> anyhow::Result<TopicDiff> {
    let wanted = serde_json::to_value(config)?;
    let now = present.map(|topic| serde_json::to_value(&topic.config)).transpose()?;
    let mut diff = TopicDiff::new(&declared.name, if present.is_some() { Action::None } else { Action::Create });
    for setting in TopicConfig::SETTINGS {
        let is_named = declared.named.iter().any(|name| name == setting.name);
        let (from, to) = (now.as_ref().and_then(|now| now.get(setting.name)), wanted.get(setting.name));
        let differs = match now {
            None => is_named,
            Some(_) => (is_named || !LEFT.contains(&setting.name)) && from != to,
        };
        if differs {
            diff.changes.push(SettingDiff { setting: setting.name, from: from.cloned(), to: to.cloned() });
        }
    }
    if diff.action == Action::None && !diff.changes.is_empty() {
        diff.action = Action::Change;
    }
    Ok(diff)
}

/// What differs, topic by topic: those of the file, then the others of the node.
fn differences(declared: &Declared, present: Vec<Topic>, args: &ApplyArgs) -> anyhow::Result<Vec<TopicDiff>> {
    let mut present: BTreeMap<String, Topic> = present.into_iter().map(|topic| (topic.name.clone(), topic)).collect();
    let mut diffs = Vec::new();
    for topic in &declared.topics {
        let there = present.remove(&topic.name);
        diffs.push(match &topic.config {
            Ok(config) => compared(topic, config, there.as_ref())?,
            Err(complaints) => {
                let errors = complaints.iter().map(ToString::to_string).collect();
                TopicDiff { errors, ..TopicDiff::new(&topic.name, Action::Refused) }
            }
        });
    }
    for (name, topic) in present {
        // What a pattern is for is declared too: its first message makes it.
        let goes = args.delete && !declared.has_pattern_for(&name);
        let messages = goes.then_some(topic.scheduled + topic.in_flight + topic.dead);
        let action = if goes { Action::Delete } else { Action::Keep };
        diffs.push(TopicDiff { messages, ..TopicDiff::new(&name, action) });
    }
    Ok(diffs)
}

/// `left`: messages that may still go with topics that are deleted.
async fn carry_out(client: &Client, diff: &TopicDiff, left: &mut u64) -> anyhow::Result<()> {
    match diff.action {
        Action::Create | Action::Change => {
            let change: Map<String, Value> = diff
                .changes
                .iter()
                .map(|change| (change.setting.to_owned(), change.to.clone().unwrap_or_default()))
                .collect();
            client.put_topic(&diff.topic, &change).await?;
        }
        Action::Delete => {
            // Some may have come since it was counted, while somebody was asked.
            let topic = client.topic(&diff.topic).await?;
            let messages = topic.scheduled + topic.in_flight + topic.dead;
            ensure!(
                messages <= *left,
                "it holds {} by now, and was not deleted; to delete these too, give a larger --at-most",
                output::count(messages, "message")
            );
            client.delete_topic(&diff.topic, messages > 0).await?;
            *left -= messages;
        }
        Action::None | Action::Keep | Action::Refused => {}
    }
    Ok(())
}

/// Asks before anything is changed; refused, where nobody can be asked.
fn confirm(diffs: &[TopicDiff]) -> anyhow::Result<()> {
    let count = diffs.iter().filter(|diff| diff.is_difference()).count() as u64;
    let what = format!("{} would be changed", output::count(count, "topic"));
    ensure!(std::io::stdin().is_terminal(), "{what}; nobody can be asked here, so say so with --yes");
    let said = output::ask(&format!("{what}. Go on? [y/N] "))?;
    ensure!(matches!(said.trim(), "y" | "Y" | "yes"), "nothing was changed");
    Ok(())
}

/// `duetime apply`: the exit status.
pub async fn run(args: ApplyArgs) -> anyhow::Result<u8> {
    let declared = match declared_topics(&args.file) {
        Ok(declared) => declared,
        Err(complaints) => {
            for complaint in &complaints {
                output::complain(&complaint.to_string());
            }
            return Ok(1);
        }
    };
    let client = args.connection.client()?;
    let mut diffs = differences(&declared, client.topics().await?, &args)?;
    let (differs, json) = (diffs.iter().any(TopicDiff::is_difference), args.connection.json);
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
    if differs && !args.dry_run {
        if !args.yes {
            confirm(&diffs)?;
        }
        let mut left = args.at_most;
        for diff in diffs.iter_mut().filter(|diff| diff.is_difference()) {
            if let Err(error) = carry_out(&client, diff, &mut left).await {
                diff.errors.push(format!("{error:#}"));
                output::complain(&format!("{}: {error:#}", diff.topic));
            }
        }
    }
    let failed = diffs.iter().filter(|diff| !diff.errors.is_empty()).count();
    if json {
        output::json(&serde_json::json!({ "topics": diffs, "dry_run": args.dry_run }))?;
    } else if differs && !args.dry_run {
        let done = diffs.iter().filter(|diff| diff.is_difference() && diff.errors.is_empty()).count() as u64;
        output::line(&format!("{} changed", output::count(done, "topic")))?;
    }
    Ok(match (failed, differs && args.dry_run) {
        (0, true) => DIFFERS,
        (0, false) => 0,
        _ => 1,
    })
}
