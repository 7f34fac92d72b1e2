//! Where the program's own log goes: to the terminal for people, or one JSON object a line.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

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

/// Starts logging to standard error. Once per program.
pub fn start(format: LogFormat) {
    let levels = EnvFilter::try_from_env(LEVELS).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(levels).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
