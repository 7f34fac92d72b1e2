//! `duetime test-clock`

use std::time::Duration;

use clap::Args;
use duetime_core::Timestamp;

use super::output;
use crate::connection::{NodeArgs, read_delay};

/// How the clock is moved, if at all.
#[derive(Debug, Args)]
pub struct TestClockArgs {
    /// Move it ahead by so much: 500ms, 30m, "1h 30m".
    #[arg(long, value_name = "DURATION", value_parser = read_delay, conflicts_with = "to")]
    advance: Option<Duration>,
    /// Move it ahead to this moment: milliseconds since the Unix epoch, or RFC 3339.
    #[arg(long, value_name = "TIME", value_parser = duetime_core::units::parse_time)]
    to: Option<Timestamp>,
    #[command(flatten)]
    connection: NodeArgs,
}

/// `duetime test-clock`.
pub async fn run(args: TestClockArgs) -> anyhow::Result<bool> {
    let client = args.connection.client()?;
    let shown = match (args.advance, args.to) {
        (Some(by), _) => client.advance_test_clock(by).await?,
        (None, Some(to)) => client.move_test_clock_to(to).await?,
        (None, None) => client.test_clock().await?,
    };
    if args.connection.json {
        output::json(&shown)?;
    } else {
        let ahead = Duration::from_millis(u64::try_from(shown.ahead_ms).unwrap_or(0));
        let ahead = duetime_core::units::show_duration(ahead);
        output::line(&format!("{}, {ahead} ahead of the machine's clock", Timestamp::from_millis(shown.now)))?;
    }
    Ok(true)
}
