//! Arguments that many commands share: which node, and when a message is due.

use std::time::Duration;

use clap::Args;
use duetime_client::Client;
use duetime_core::units::parse_duration;
use duetime_core::{Due, Timestamp};

/// Which node, and how to talk to it.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// The node.
    #[arg(
        long,
        value_name = "URL",
        env = "DUETIME_NODE",
        hide_env_values = true,
        default_value = "http://127.0.0.1:3830"
    )]
    pub node: String,
    /// The token to show to the node.
    #[arg(long, value_name = "TOKEN", env = "DUETIME_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Print JSON for programs instead of tables for people.
    #[arg(long)]
    pub json: bool,
}

impl NodeArgs {
    /// A client of the node that was named.
    pub fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&self.node, self.token.clone())?)
    }
}

/// When a message is due.
#[derive(Clone, Copy, Debug, Args)]
pub struct When {
    /// From now on: 500ms, 30m, "1h 30m".
    #[arg(long, value_name = "DURATION", value_parser = read_delay, allow_hyphen_values = true, conflicts_with = "at")]
    pub delay: Option<Duration>,
    /// A moment: milliseconds since the Unix epoch, or RFC 3339.
    #[arg(long, value_name = "TIME", value_parser = duetime_core::units::parse_time, allow_negative_numbers = true)]
    pub at: Option<Timestamp>,
}

/// Reads a delay. Many tools count in seconds, the API in milliseconds: a number needs its unit here.
pub fn read_delay(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("a delay is not negative; give 0s to be due at once".to_owned());
    }
    match text.parse::<u64>() {
        Ok(number) if number > 0 => Err(format!("write its unit: {number}s for seconds, {number}ms for milliseconds")),
        _ => parse_duration(text),
    }
}

impl When {
    /// `None`: neither was given.
    #[must_use]
    pub fn due(&self) -> Option<Due> {
        self.delay.map(Due::In).or(self.at.map(Due::At))
    }
}
