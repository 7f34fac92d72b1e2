//! The commands: one file per family. Each answers whether all went well; errors are for people.

pub mod check_config;
pub mod consume;
pub mod dead;
pub mod enqueue;
pub mod man;
pub mod message;
pub mod monitoring;
pub mod observe;
mod output;
pub mod plan;
pub mod shards;
pub mod sink;
pub mod token;
pub mod top;
pub mod topic;

use std::io::IsTerminal as _;
use std::sync::Arc;

use clap::CommandFactory as _;
use duetime_client::{Client, ClientError};
use duetime_core::Store;
use duetime_resize::Steps;

use crate::cli::{Cli, Command, Connection};
use crate::clock::SystemClock;
use crate::config::StoreConfig;
use crate::{serve, stores};

/// Runs what was typed; false: it was done, and the answer is no.
///
/// # Errors
///
/// What kept it from being done, for people.
pub async fn run(cli: Cli, steps: Arc<dyn Steps>) -> anyhow::Result<bool> {
    match cli.command {
        Command::Serve(args) => serve::run(&args, steps).await,
        Command::Topic(command) => topic::run(command).await,
        Command::Enqueue(args) => enqueue::run(args).await,
        Command::Cancel(args) => message::cancel(args).await,
        Command::Get(args) => message::get(args).await,
        Command::Explain(args) => message::explain(args).await,
        Command::Reschedule(args) => message::reschedule(args).await,
        Command::Claim(args) => consume::claim(args).await,
        Command::Ack(args) => consume::ack(args).await,
        Command::Nack(args) => consume::nack(args).await,
        Command::Extend(args) => consume::extend(args).await,
        Command::Dead(command) => dead::run(command).await,
        Command::Shards(command) => shards::run(command).await,
        Command::Sink(command) => sink::run(command).await,
        Command::Nodes(connection) => observe::nodes(&connection).await,
        Command::Status(connection) => observe::status(&connection).await,
        Command::Top(args) => top::run(args).await,
        Command::Bench(args) => bench(args).await,
        Command::Dashboards(args) => monitoring::dashboards(&args),
        Command::Alerts(args) => monitoring::alerts(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Token(command) => token::run(&command),
        Command::Man(args) => man::run(&args),
        Command::CheckConfig { file } => check_config::run(&file).await,
        Command::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "duetime", &mut out);
            output::raw(&out)?;
            Ok(true)
        }
    }
}

async fn bench(args: duetime_bench::Args) -> anyhow::Result<bool> {
    let open_store: duetime_bench::OpenStore = Box::new(|url, meters| {
        Box::pin(async move {
            let config = StoreConfig { url: duetime_sinks::Secret::new(url), ..StoreConfig::default() };
            let store: Arc<dyn Store> = stores::open(&config, meters).await?.store;
            Ok(store)
        })
    });
    duetime_bench::run(args, duetime_bench::Host { open_store, clock: Arc::new(SystemClock) }).await
}

/// A client of the node that was named.
fn client(connection: &Connection) -> anyhow::Result<Client> {
    Ok(Client::new(&connection.node, connection.token.clone())?)
}

/// Says on standard error what is wrong.
pub fn complain(text: &str) {
    let colour = std::io::stderr().is_terminal();
    let (on, off) = if colour { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    eprintln!("{on}error{off}: {text}");
}

/// Says an error with its causes and what to do next.
pub fn report(error: &anyhow::Error) {
    if let Some(io) = error.downcast_ref::<std::io::Error>()
        && io.kind() == std::io::ErrorKind::BrokenPipe
    {
        return;
    }
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors show their cause themselves.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    if let Some(ClientError::Unreachable { base, .. }) = error.downcast_ref::<ClientError>() {
        text = format!("cannot reach {base}: is a node running? start one with `duetime serve`");
    }
    if let Some(problem) = error.downcast_ref::<ClientError>().and_then(ClientError::problem)
        && problem.status == 401
    {
        text += "; give it with --token or DUETIME_TOKEN";
    }
    complain(&text);
}
