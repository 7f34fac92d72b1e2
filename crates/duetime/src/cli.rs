//! What a user types. Field docs are the help text.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use duetime_core::units::parse_duration;
use duetime_core::{Due, Timestamp};

use crate::commands::{consume, dead, enqueue, message, monitoring, observe, plan, shards, sink, topic};
use crate::serve::ServeArgs;

/// Delivers messages in due time.
#[derive(Debug, Parser)]
#[command(name = "duetime", version, propagate_version = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// One command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs a node.
    Serve(ServeArgs),
    /// Creates, changes, shows and deletes topics.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Schedules a message, or a whole file of them.
    Enqueue(enqueue::EnqueueArgs),
    /// Cancels messages: what answers `cancelled` is never delivered.
    Cancel(message::IdsArgs),
    /// Shows messages.
    Get(message::IdsArgs),
    /// Says where messages are and what happens to them next.
    Explain(message::IdsArgs),
    /// Gives a message another due time.
    Reschedule(message::RescheduleArgs),
    /// Takes messages that are due, to be settled with ack, nack or extend.
    Claim(consume::ClaimArgs),
    /// Settles claimed messages: done.
    Ack(consume::AckArgs),
    /// Settles claimed messages: try again later.
    Nack(consume::NackArgs),
    /// Asks for more time for claimed messages; answers new receipts.
    Extend(consume::ExtendArgs),
    /// Lists, redrives and purges dead letters.
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// Shows the shards of a topic.
    #[command(subcommand)]
    Shards(shards::ShardsCommand),
    /// Shows whether the sink of a topic is down, and tries it at once.
    #[command(subcommand)]
    Sink(sink::SinkCommand),
    /// Lists the nodes.
    Nodes(Connection),
    /// Shows the node and its topics.
    Status(Connection),
    /// Shows the topics live; q quits.
    Top(observe::TopArgs),
    /// Measures a node or a store.
    Bench(duetime_bench::Args),
    /// Writes Grafana dashboards into a folder.
    Dashboards(monitoring::DashboardsArgs),
    /// Prints rules for Prometheus: recordings and alerts for what you promise of lateness.
    Alerts(monitoring::AlertsArgs),
    /// Computes how many masters, shards and nodes a load needs.
    Plan(plan::PlanArgs),
    /// Makes tokens for `[[auth.tokens]]`.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Says all that is wrong with a configuration file, and tries its store and sinks.
    CheckConfig {
        /// The file.
        file: PathBuf,
    },
    /// Prints the completions of a shell: `duetime completions bash > /etc/bash_completion.d/duetime`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Prints a token nobody can guess, and its hash for the configuration file.
    New {
        /// The name of the token in the configuration and in logs.
        #[arg(long, value_name = "NAME", default_value = "NAME")]
        name: String,
        /// Print JSON for programs.
        #[arg(long)]
        json: bool,
    },
}

/// Which node, and how to talk to it.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// The node.
    #[arg(long, value_name = "URL", env = "DUETIME_NODE", default_value = "http://127.0.0.1:3830")]
    pub node: String,
    /// The token to show to the node.
    #[arg(long, value_name = "TOKEN", env = "DUETIME_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Print JSON for programs instead of tables for people.
    #[arg(long)]
    pub json: bool,
}

/// When a message is due.
#[derive(Clone, Copy, Debug, Args)]
pub struct When {
    /// From now on: 500ms, 30m, "1h 30m", or milliseconds.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "at")]
    pub delay: Option<Duration>,
    /// A moment: milliseconds since the Unix epoch, or RFC 3339.
    #[arg(long, value_name = "TIME", value_parser = duetime_core::units::parse_time, allow_negative_numbers = true)]
    pub at: Option<Timestamp>,
}

impl When {
    /// `None`: neither was given.
    #[must_use]
    pub fn due(&self) -> Option<Due> {
        self.delay.map(Due::In).or(self.at.map(Due::At))
    }
}
