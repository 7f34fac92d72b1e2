//! What a user types after `duetime bench`. Field docs are the help text.

use std::path::PathBuf;
use std::time::Duration;

use duetime_core::DeliveryMode;
use duetime_core::limits::BATCH_ITEMS_MAX;
use duetime_core::units::parse_duration;

/// Measures a running node, or a store by itself.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The workload.
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum What {
    /// Schedules messages that fall due in an hour, in batches from concurrent producers.
    Enqueue(Common),
    /// Schedules messages that are due at once, then delivers and settles all of them.
    Drain(Common),
    /// Schedules messages that fall due in an hour, then cancels all of them.
    Cancel(Common),
    /// Schedules messages at a steady rate, or all for one millisecond, and measures how late they come.
    Lateness(Lateness),
    /// Order timeouts: most orders are paid and cancelled in time, the rest is checked one by one.
    Orders(Orders),
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// The node to measure. Contexts are not used.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:3830", env = "DUETIME_NODE")]
    pub node: String,
    /// The token to show to the node.
    #[arg(long, env = "DUETIME_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Measure this store by itself, with the engine in this process, instead of a node:
    /// `embedded:PATH` or `redis://host:port/db`.
    #[arg(long, value_name = "URL")]
    pub store: Option<String>,
    /// Shards of the topic that is made for the run.
    #[arg(long, default_value_t = 8)]
    pub shards: u32,
    /// Remove messages as they are claimed, before they are delivered, as a topic with
    /// `delivery = "at-most-once"` does.
    #[arg(long)]
    pub at_most_once: bool,
    /// Messages to measure.
    #[arg(long, short = 'n', default_value_t = 1_000_000)]
    pub count: u64,
    /// Messages before the measurement begins; a tenth of `--count`, at most 50000, unless given.
    #[arg(long)]
    pub warmup: Option<u64>,
    /// Bytes of each payload.
    #[arg(long, default_value_t = 100)]
    pub payload: usize,
    /// Messages in each request or store call.
    #[arg(long, default_value_t = 64)]
    pub batch: usize,
    /// Requests or store calls at once.
    #[arg(long, short = 'c', default_value_t = 8)]
    pub concurrency: usize,
    /// Write the figures to this file too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Something to keep with the figures, such as `redis=7.0.15`. May be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub note: Vec<String>,
    /// Leave the topic and its messages when done.
    #[arg(long)]
    pub keep: bool,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Lateness {
    #[command(flatten)]
    pub common: Common,
    /// Messages that fall due each second.
    #[arg(long, default_value_t = 2_000)]
    pub rate: u64,
    /// How long to measure, after two seconds of warm-up.
    #[arg(long, default_value = "20s", value_parser = parse_duration)]
    pub duration: Duration,
    /// How long before its due time a message is scheduled.
    #[arg(long, default_value = "3s", value_parser = parse_duration)]
    pub ahead: Duration,
    /// Instead of a rate: this many messages, all due in the same millisecond.
    #[arg(long, value_name = "N")]
    pub burst: Option<u64>,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Orders {
    #[command(flatten)]
    pub common: Common,
    /// Orders placed each second.
    #[arg(long, default_value_t = 5_000)]
    pub rate: u64,
    /// The time to pay: what is 30 minutes in a shop.
    #[arg(long, default_value = "15s", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Share of the orders that is paid in time, 0 to 1.
    #[arg(long, default_value_t = 0.95)]
    pub paid: f64,
    /// How long after the last due time to wait for what is missing, and for what comes twice.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub grace: Duration,
}

impl What {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Enqueue(common) | Self::Drain(common) | Self::Cancel(common) => common,
            Self::Lateness(own) => &own.common,
            Self::Orders(own) => &own.common,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Enqueue(_) => "enqueue",
            Self::Drain(_) => "drain",
            Self::Cancel(_) => "cancel",
            Self::Lateness(_) => "lateness",
            Self::Orders(_) => "orders",
        }
    }
}

impl Common {
    pub(crate) fn delivery(&self) -> DeliveryMode {
        if self.at_most_once { DeliveryMode::AtMostOnce } else { DeliveryMode::AtLeastOnce }
    }

    /// Most messages in one request to a node; a store call has the store's own bound.
    const REQUEST_ITEMS_MAX: usize = 10_000;

    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let most = if self.store.is_some() { BATCH_ITEMS_MAX } else { Self::REQUEST_ITEMS_MAX };
        anyhow::ensure!((1..=most).contains(&self.batch), "--batch must be 1 to {most}");
        anyhow::ensure!((1..=10_000).contains(&self.concurrency), "--concurrency must be 1 to 10000");
        anyhow::ensure!(self.count > 0, "--count must be 1 or more");
        anyhow::ensure!(self.note.iter().all(|note| note.contains('=')), "--note is written KEY=VALUE");
        Ok(())
    }

    pub(crate) fn warmup(&self) -> u64 {
        self.warmup.unwrap_or((self.count / 10).min(50_000))
    }
}
