//! Carries out what was typed.

use std::sync::Arc;

use duetime_core::Store;
use duetime_resize::Steps;
use duetime_supervisor::Supervisor;

use crate::cli::{self, Cli, Command};
use crate::clock::SystemClock;
use crate::commands::{
    apply, backup, bulk, check_config, consume, context, dead, docs, enqueue, events, export, find, forecast, import,
    init, list, man, message, monitoring, move_topic, observe, output, pause, shards, sink, sizing, test_clock, token,
    top, topic, watermark,
};
use crate::config::StoreConfig;
use crate::{serve, stores};

/// Refused or failed; wrong use is 2, and clap's.
pub const REFUSED: u8 = 1;

/// Runs what was typed; the exit status.
pub async fn run(cli: Cli, steps: Arc<dyn Steps>) -> anyhow::Result<u8> {
    let done: anyhow::Result<bool> = match cli.command {
        Command::Apply(args) => return apply::run(args).await,
        Command::Serve(args) => serve::run(&args, steps).await,
        Command::Topic(command) => topic::run(command).await,
        Command::Enqueue(args) => enqueue::run(args).await,
        Command::Context(command) => context::run(command),
        Command::Init(args) => init::run(&args),
        Command::Export(args) => export::run(args).await,
        Command::Import(args) => import::run(args).await,
        Command::Move(args) => move_topic::run(args).await,
        Command::Cancel(args) => message::cancel(args).await,
        Command::Get(args) => message::get(args).await,
        Command::Explain(args) => message::explain(args).await,
        Command::List(args) => list::list(args).await,
        Command::Find(args) => find::run(args).await,
        Command::Peek(args) => list::peek(args).await,
        Command::Reschedule(args) => message::reschedule(args).await,
        Command::Claim(args) => consume::claim(args).await,
        Command::Consumers(args) => consume::consumers(args).await,
        Command::Ack(args) => consume::ack(args).await,
        Command::Nack(args) => consume::nack(args).await,
        Command::Release(args) => consume::release(args).await,
        Command::Extend(args) => consume::extend(args).await,
        Command::Dead(command) => dead::run(command).await,
        Command::Bulk(command) => bulk::run(command).await,
        Command::Forecast(args) => forecast::run(args).await,
        Command::Watermark(args) => watermark::run(args).await,
        Command::Drain(args) => observe::drain(&args, true).await,
        Command::Undrain(args) => observe::drain(&args, false).await,
        Command::Pause(args) => pause::pause(args).await,
        Command::Resume(args) => pause::resume(args).await,
        Command::Backup(args) => backup::run(args).await,
        Command::Whoami(connection) => observe::whoami(&connection).await,
        Command::Rates(args) => observe::rates(&args).await,
        Command::Audit(args) => observe::audit(&args).await,
        Command::Shards(command) => shards::run(command).await,
        Command::Sink(command) => sink::run(command).await,
        Command::Nodes(connection) => observe::nodes(&connection).await,
        Command::Status(connection) => observe::status(&connection).await,
        Command::Events(args) => events::run(args).await,
        Command::Top(args) => top::run(args).await,
        Command::TestClock(args) => test_clock::run(args).await,
        Command::Bench(args) => bench(args).await,
        Command::Dashboards(args) => monitoring::dashboards(&args),
        Command::Alerts(args) => monitoring::alerts(&args),
        Command::Sizing(args) => sizing::run(&args),
        Command::Token(command) => token::run(&command),
        Command::CheckConfig { file, offline, flags } => check_config::run(&file, offline, &flags).await,
        Command::Docs(args) => docs::run(&args),
        Command::Man(args) => man::run(cli::program(), &args),
        Command::Completions { shell } => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut cli::program(), "duetime", &mut out);
            output::raw(&out)?;
            Ok(true)
        }
    };
    Ok(if done? { 0 } else { REFUSED })
}

async fn bench(args: duetime_bench::Args) -> anyhow::Result<bool> {
    let open_store: duetime_bench::OpenStore = Box::new(|url, meters| {
        Box::pin(async move {
            let config = StoreConfig::of_url(duetime_settings::Secret::new(url)).map_err(anyhow::Error::msg)?;
            let store: Arc<dyn Store> = stores::open(&config, meters.clone(), &Supervisor::new(meters)).await?.store;
            Ok(store)
        })
    });
    duetime_bench::run(args, duetime_bench::Host { open_store, clock: Arc::new(SystemClock) }).await
}
