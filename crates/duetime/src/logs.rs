//! Where the program's own log goes: to the terminal for people, or one JSON object a line.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use serde::Deserialize;
use tracing::Metadata;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

/// The variable that says how much is logged, per module: `info`, `warn,duetime_dispatch=debug` …
const LEVELS: &str = "DUETIME_LOG";

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// What libraries say may have bytes of connections in it, passwords among them, even as an error:
/// it is never logged, whatever the variable says. What matters of it we say ourselves.
fn is_ours(said: &Metadata<'_>) -> bool {
    said.target().starts_with("duetime")
}

/// Starts logging to standard error. Once per program.
pub fn start(format: LogFormat) {
    let levels = EnvFilter::try_from_env(LEVELS).unwrap_or_else(|_| EnvFilter::new("info"));
    let kept = levels.and(filter_fn(is_ours));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let all = tracing_subscriber::registry();
    match format {
        LogFormat::Text => {
            let ansi = std::io::stderr().is_terminal();
            all.with(lines.with_ansi(ansi).with_target(false).with_filter(kept)).init();
        }
        LogFormat::Json => all.with(lines.json().flatten_event(true).with_filter(kept)).init(),
    }
}
