//! The program: command line, configuration, wiring, drain. The only crate that names a concrete store,
//! ownership or sink.

mod banner;
mod cli;
mod clock;
mod commands;
mod config;
mod connection;
mod contexts;
mod disk;
mod drain;
mod flags;
#[cfg(test)]
#[path = "../../../tests/stable/kept.rs"]
mod kept;
mod listener;
mod log_rate;
mod logs;
mod manager;
mod node;
mod ownership;
mod panics;
mod rates;
mod run;
mod serve;
mod stores;
mod test_clock;
mod traces;
mod version;

#[cfg(any(test, fuzzing))]
pub use config::fuzz;

use std::process::ExitCode;
use std::sync::Arc;

use duetime_resize::{NoSteps, Steps};
use futures::future::LocalBoxFuture;

use crate::run::REFUSED;

/// Many small bodies come and go; the system's allocator is slower at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    main_watched(Arc::new(NoSteps))
}

/// The program, whose changes of shard counts are looked on, or ended, step by step: for tests.
#[must_use]
pub fn main_watched(steps: Arc<dyn Steps>) -> ExitCode {
    panics::start();
    // A reader that goes away (`| head`) must end us quietly; everything else is checked below.
    let cli = cli::read();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the system gives no threads: {error}");
            return ExitCode::from(REFUSED);
        }
    };
    // Boxed, for a future is compiled anew for each place that polls it, and this one holds all others.
    let run: LocalBoxFuture<'_, anyhow::Result<u8>> = Box::pin(run::run(cli, steps));
    let answer = runtime.block_on(run);
    // Blocking reads of stdin may be under way; they must not hold the end up.
    runtime.shutdown_background();
    logs::flush();
    match answer {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            commands::output::report(&error);
            ExitCode::from(REFUSED)
        }
    }
}
