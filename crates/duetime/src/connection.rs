//! Arguments that many commands share: which node, and when a message is due.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use duetime_client::Client;
use duetime_core::units::{parse_duration, parse_time};
use duetime_core::{Clock as _, Due, Timestamp};

use crate::clock::SystemClock;
use crate::contexts::Contexts;

/// The node where none is named.
const NODE: &str = "http://127.0.0.1:3830";

/// Which node, and how to talk to it.
#[derive(Clone, Debug, Args)]
pub struct NodeArgs {
    /// The node. [default: that of the context, else http://127.0.0.1:3830]
    #[arg(long, value_name = "URL", env = "DUETIME_NODE", hide_env_values = true)]
    pub node: Option<String>,
    /// The node and the token that are kept under this name. [default: that of `duetime context use`]
    #[arg(long, value_name = "NAME", env = "DUETIME_CONTEXT")]
    pub context: Option<String>,
    /// The token to show to the node. [default: that of the context]
    #[arg(long, value_name = "TOKEN", env = "DUETIME_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Print JSON for programs instead of tables for people.
    #[arg(long)]
    pub json: bool,
}

impl NodeArgs {
    /// A client of the node that was named.
    pub fn client(&self) -> anyhow::Result<Client> {
        let (node, token) = self.target()?;
        let client = Client::new(&node, token)?;
        let _ = ASKED.set(client.clone());
        Ok(client)
    }

    /// The address of the node that was named, and the token for it. The token of a context is shown to no other node.
    pub fn target(&self) -> anyhow::Result<(String, Option<String>)> {
        let named = match (&self.node, &self.context) {
            (Some(_), Some(_)) => bail!(
                "--node (DUETIME_NODE) and --context (DUETIME_CONTEXT) both name a node; give one of them, or unset its variable"
            ),
            (Some(node), None) => return Ok((node.clone(), self.token.clone())),
            (None, Some(name)) => Some((Contexts::read()?, name.clone())),
            // Who has no folder of its own has no contexts.
            (None, None) => Contexts::read().ok().and_then(|contexts| {
                let name = contexts.current()?.to_owned();
                Some((contexts, name))
            }),
        };
        let Some((contexts, name)) = named else { return Ok((NODE.to_owned(), self.token.clone())) };
        let (node, token) = contexts.target(&name)?;
        Ok((node, self.token.clone().or_else(|| token.map(|token| token.expose().to_owned()))))
    }
}

/// When a message is due.
#[derive(Clone, Copy, Debug, Args)]
pub struct When {
    /// From now on: 500ms, 30m, "1h 30m".
    #[arg(long, value_name = "DURATION", value_parser = read_delay, allow_hyphen_values = true, conflicts_with = "at")]
    pub delay: Option<Duration>,
    /// A moment: milliseconds since the Unix epoch, RFC 3339, or "in 30m".
    #[arg(long, value_name = "TIME", value_parser = read_at, allow_negative_numbers = true)]
    pub at: Option<At>,
}

/// A moment as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(Due);

/// Whether a text is a date and a time alone.
fn lacks_zone(text: &str) -> bool {
    text.parse::<jiff::civil::DateTime>().is_ok() && text.parse::<jiff::Timestamp>().is_err()
}

/// Reads a moment, or how far it is ahead.
fn read_at(text: &str) -> Result<At, String> {
    match text.trim().strip_prefix("in ") {
        Some(delay) => read_delay(delay.trim()).map(|delay| At(Due::In(delay))),
        None => parse_time(text).map(|at| At(Due::At(at))).map_err(|error| match lacks_zone(text.trim()) {
            true => format!("{text:?} has no time zone; add Z for UTC, or an offset like +02:00"),
            false => format!("{error}; or how far it is ahead, as in \"in 30m\""),
        }),
    }
}

/// Reads a moment of an option, in milliseconds since the Unix epoch; one that is said to be ahead is so from now on.
pub fn moment(text: Option<&str>) -> anyhow::Result<Option<i64>> {
    let at = text.map(read_at).transpose().map_err(anyhow::Error::msg)?;
    Ok(at.map(|At(due)| match due {
        Due::At(at) => at.as_millis(),
        Due::In(delay) => now().plus(delay).as_millis(),
    }))
}

/// The node that the command asks.
static ASKED: OnceLock<Client> = OnceLock::new();

/// The time by the clock of the node that the command asks, which decides what is due; a test clock is far ahead.
pub fn now() -> Timestamp {
    let ahead_ms = ASKED.get().map_or(0, Client::ahead_ms);
    Timestamp::from_millis(SystemClock.now().as_millis() + ahead_ms)
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
        self.delay.map(Due::In).or(self.at.map(|At(due)| due))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_moment_may_be_written_as_how_far_it_is_ahead() {
        let ahead = |minutes: u64| Ok(At(Due::In(Duration::from_secs(60 * minutes))));
        for (text, minutes) in [("in 30m", 30), ("in 1h30m", 90), (" in  90 min ", 90)] {
            assert_eq!(read_at(text), ahead(minutes), "{text}");
        }
        let at = Timestamp::from_millis(1_896_091_200_000);
        assert_eq!(read_at("2030-01-31T12:00:00+12:00"), Ok(At(Due::At(Timestamp::from_millis(1_896_048_000_000)))));
        assert_eq!(read_at("1896091200000"), Ok(At(Due::At(at))));
        assert!(read_at("in 30").unwrap_err().contains("30s for seconds"));
        assert!(read_at("2030-01-31T12:00:00").unwrap_err().contains("has no time zone"));
        assert!(read_at("tomorrow").unwrap_err().contains("as in \"in 30m\""));
    }
}
