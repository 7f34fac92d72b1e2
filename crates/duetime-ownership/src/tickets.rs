//! The counter that says whose turn it is: one number in Redis that everybody advances by taking a ticket.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use duetime_core::Namespace;
use duetime_redis::Link;
use redis::Value;

/// Longest wait for a ticket: what is held is scanned on meanwhile.
const TICKET_WITHIN: Duration = Duration::from_millis(800);

/// One ticket: so many places were taken, the last of them is `end - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Where the counter of places stands now.
    pub end: u64,
    /// Where the counter of turns stands now.
    pub turns: u64,
}

/// Gives out tickets, each place to one asker.
#[async_trait]
pub trait Tickets: Send + Sync + std::fmt::Debug + 'static {
    /// Takes the next `places`.
    ///
    /// # Errors
    ///
    /// A sentence: nobody answered in time.
    async fn take(&self, places: u64) -> Result<Ticket, String>;
}

/// Tickets from two counters in Redis, `NAMESPACE:{turn}:shards` and `NAMESPACE:{turn}:nodes`.
#[derive(Debug)]
pub struct RedisTickets {
    link: Arc<Link>,
    namespace: Namespace,
}

impl RedisTickets {
    /// Counters beside the shards of `namespace`.
    #[must_use]
    pub fn new(link: Arc<Link>, namespace: Namespace) -> Arc<Self> {
        Arc::new(Self { link, namespace })
    }

    async fn advance(&self, counter: &str, by: u64) -> Result<u64, String> {
        let mut cmd = redis::cmd("INCRBY");
        cmd.arg(format!("{}:{{turn}}:{counter}", self.namespace)).arg(by);
        // A repetition skips places that nobody takes this time; the next round covers them.
        match tokio::time::timeout(TICKET_WITHIN, self.link.command("turn", &cmd)).await {
            Ok(Ok(Value::Int(at))) => Ok(u64::try_from(at).unwrap_or_default()),
            Ok(Ok(_)) => Err("the counter of turns is no number".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("redis did not answer in time".to_owned()),
        }
    }
}

#[async_trait]
impl Tickets for RedisTickets {
    async fn take(&self, places: u64) -> Result<Ticket, String> {
        let (end, turns) = tokio::try_join!(self.advance("shards", places), self.advance("nodes", 1))?;
        Ok(Ticket { end, turns })
    }
}
