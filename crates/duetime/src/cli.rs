//! What a user types. Field docs are the help text.

mod arrange;
mod habits;
#[cfg(test)]
mod shown;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod typed;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands::{
    apply, backup, bulk, consume, context, dead, docs, enqueue, events, export, find, forecast, import, init, list,
    man, message, monitoring, move_topic, observe, pause, shards, sink, sizing, test_clock, token, topic, watermark,
};
use crate::connection::NodeArgs;
use crate::flags::ConfigFlags;
use crate::serve::ServeArgs;
use crate::version;

/// Delivers messages at their due time.
#[derive(Debug, Parser)]
#[command(name = "duetime", version = version::shown(), propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    /// Options of commands that talk to a node.
    #[command(flatten)]
    pub before: Before,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// One command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs a node.
    Serve(ServeArgs),
    /// Writes a configuration file to begin with.
    Init(init::InitArgs),
    /// Keeps nodes and where their tokens are under names, and uses one of them.
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// Creates, changes, shows and deletes topics.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Creates and changes topics and sinks so that they are as a file declares them; shows what differs first.
    Apply(apply::ApplyArgs),
    /// Schedules a message; `import` takes a file of them.
    #[command(visible_aliases = ["publish", "push", "schedule"])]
    Enqueue(enqueue::EnqueueArgs),
    /// Writes the messages of a topic with their payloads, one JSON object a line, while the node serves.
    Export(export::ExportArgs),
    /// Brings messages into a topic: lines of an export, or what another system keeps in Redis.
    Import(import::ImportArgs),
    /// Moves the pending messages of a topic to another Duetime, while both serve.
    Move(move_topic::MoveArgs),
    /// Cancels messages: what answers `cancelled` is never delivered.
    Cancel(message::IdsArgs),
    /// Shows messages.
    Get(message::IdsArgs),
    /// Says where messages are and what happens to them next.
    Explain(message::IdsArgs),
    /// Lists live messages by state, time and beginning of their id, without payloads.
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Finds messages by their id alone, in all topics.
    Find(find::FindArgs),
    /// Shows some of the messages that are due, without claiming them.
    Peek(list::PeekArgs),
    /// Gives a message another due time, and all its attempts back.
    Reschedule(message::RescheduleArgs),
    /// Takes messages that are due, to be settled with ack, nack, release or extend.
    Claim(consume::ClaimArgs),
    /// Lists the consumers of a topic that name themselves, at one node.
    Consumers(consume::ConsumersArgs),
    /// Settles claimed messages: done.
    Ack(consume::AckArgs),
    /// Settles claimed messages: try again later, or never.
    Nack(consume::NackArgs),
    /// Settles claimed messages: not begun, due again at once without costing an attempt.
    Release(consume::ReleaseArgs),
    /// Asks for more time for claimed messages; answers new receipts.
    Extend(consume::ExtendArgs),
    /// Lists, redrives and purges dead letters.
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// Acts on all messages that match: counted first, then on the server at a chosen rate.
    #[command(subcommand)]
    Bulk(bulk::BulkCommand),
    /// Shows how much falls due when, and how late the last of it will be.
    Forecast(forecast::ForecastArgs),
    /// Shows up to when a topic is done, or waits until it is done up to a moment.
    Watermark(watermark::WatermarkArgs),
    /// Pauses a topic: nothing is claimed until it is resumed, all else goes on.
    Pause(pause::PauseArgs),
    /// Resumes a paused topic.
    Resume(pause::ResumeArgs),
    /// Shows the shards of a topic.
    #[command(subcommand)]
    Shards(shards::ShardsCommand),
    /// Shows whether the sink of a topic is down, tries it at once, and pauses or resumes all topics of a sink.
    #[command(subcommand)]
    Sink(sink::SinkCommand),
    /// Lists the nodes.
    Nodes(NodeArgs),
    /// Moves a node's shards to other nodes; it keeps serving requests.
    Drain(observe::DrainArgs),
    /// Lets a drained node take its share of the shards again.
    Undrain(observe::DrainArgs),
    /// Shows the node and its topics.
    Status(NodeArgs),
    /// Copies the embedded store of a node into a file while it serves, and reads the copy.
    Backup(backup::BackupArgs),
    /// Shows the token's name, scopes and limits.
    Whoami(NodeArgs),
    /// Shows rates and lateness of the last minute, at one node or at all.
    Rates(observe::RatesArgs),
    /// Shows who changed what, the newest first, at one node or at all.
    Audit(observe::AuditArgs),
    /// Prints a line of JSON whenever the counts of topics change.
    Events(events::EventsArgs),
    /// Shows the topics live; q quits.
    Top(observe::TopArgs),
    /// Shows and moves ahead the clock of a node that was started with `serve --test-clock`.
    TestClock(test_clock::TestClockArgs),
    /// Measures a node or a store.
    Bench(duetime_bench::Args),
    /// Writes Grafana dashboards into a folder.
    Dashboards(monitoring::DashboardsArgs),
    /// Prints rules for Prometheus: recordings and alerts for what you promise of lateness.
    Alerts(monitoring::AlertsArgs),
    /// Computes how many masters, shards and nodes a load needs.
    Sizing(sizing::SizingArgs),
    /// Makes tokens for `[[auth.tokens]]`.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Validates a configuration file and tests its store and sinks. Flags and variables override the file, as for
    /// `serve`.
    CheckConfig {
        /// The file.
        file: PathBuf,
        /// Read the file and what it names, and ask no store, etcd or sink: what one of them is down for says nothing
        /// against the file.
        #[arg(long)]
        offline: bool,
        #[command(flatten)]
        flags: ConfigFlags,
    },
    /// Shows the documents of this version, which are in the program: a list of them, a page, or where a word is.
    Docs(docs::DocsArgs),
    /// Prints the completions of a shell: `duetime completions bash > /etc/bash_completion.d/duetime`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes manual pages into a folder, for packages.
    #[command(hide = true)]
    Man(man::ManArgs),
}

/// What may stand before the command too: `duetime --node URL status`.
#[derive(Debug, Args)]
pub struct Before {
    /// The node, also behind the command.
    #[arg(long = "node", id = "node_before", value_name = "URL")]
    node: Option<String>,
    /// The token to show to the node, also behind the command.
    #[arg(long = "token", id = "token_before", value_name = "TOKEN")]
    token: Option<String>,
    /// The node and the token that are kept under this name, also behind the command.
    #[arg(long = "context", id = "context_before", value_name = "NAME")]
    context: Option<String>,
    /// Print JSON for programs instead of tables for people, also behind the command.
    #[arg(long = "json", id = "json_before")]
    json: bool,
}

impl Before {
    /// The same behind the command, which then takes it or says that it does not; `None`: there is nothing.
    fn behind(&self) -> Option<Vec<String>> {
        let option = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("--{name}={value}"));
        let mut behind = Vec::new();
        behind.extend(option("node", &self.node));
        behind.extend(option("token", &self.token));
        behind.extend(option("context", &self.context));
        behind.extend(self.json.then(|| "--json".to_owned()));
        (!behind.is_empty()).then_some(behind)
    }
}

/// The command line with groups of commands and examples.
#[must_use]
pub fn program() -> clap::Command {
    arrange::arranged(Cli::command())
}

/// Reads what was typed; ends the program where that cannot be understood, or asks for help.
#[must_use]
pub fn read() -> Cli {
    let typed: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let typed = moved_behind(&typed).unwrap_or(typed);
    let cli = understood(&typed).unwrap_or_else(|error| habits::corrected(error, program(), &typed).exit());
    // The command would run without them, at another node.
    if let Some(left) = cli.before.behind() {
        let names: Vec<&str> = left.iter().filter_map(|option| option.split('=').next()).collect();
        let why = format!("{} before the command is not understood; write it behind the command", names.join(", "));
        Cli::command().error(clap::error::ErrorKind::UnknownArgument, why).exit();
    }
    cli
}

fn understood(typed: &[std::ffi::OsString]) -> Result<Cli, clap::Error> {
    let mut program = program();
    let mut matches = program.try_get_matches_from_mut(typed)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut program))
}

/// What was typed, with the options before the command moved behind it.
fn moved_behind(typed: &[std::ffi::OsString]) -> Option<Vec<std::ffi::OsString>> {
    // Without the command's own options, which may lack: only what stands before it is looked for.
    let command = Cli::command();
    let is_command = |word: &std::ffi::OsString| command.find_subcommand(word).is_some();
    // The value of an option may be the name of a command: the option lacks its value if the command begins there.
    let before_at = |at: usize| Some((at, BeforeOnly::try_parse_from(&typed[..at]).ok()?.before));
    let (at, before) = (1..typed.len()).filter(|at| is_command(&typed[*at])).find_map(before_at)?;
    let before = before.behind()?;
    let (rest, end) = (&typed[at..], typed[at..].iter().position(|word| word == "--"));
    let (options, plain) = rest.split_at(end.unwrap_or(rest.len()));
    let moved = [&typed[0]].into_iter().chain(options).cloned();
    Some(moved.chain(before.into_iter().map(Into::into)).chain(plain.iter().cloned()).collect())
}

#[derive(Debug, Parser)]
#[command(disable_help_flag = true, disable_version_flag = true)]
struct BeforeOnly {
    #[command(flatten)]
    before: Before,
}
