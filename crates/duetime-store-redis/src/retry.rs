//! Carries one script to a shard until there is an answer that holds.
//!
//! The link repeats a call that got no answer. What is left is here: a server that took the call up late, and
//! a shard that changed its routing record between two sendings.

use std::time::Duration;

use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::{RoutingId, Shard, StoreError};
use duetime_redis::LinkError;
use tokio::time::Instant;

use crate::reply::store_error;
use crate::reply_cache::CachedCall;

/// How often one call may meet a stall before the clocks are doubted after all.
const STALLS_MAX: u8 = 3;
/// How often a call that may have been carried out follows its shard's record to ask.
const ASKS_MAX: u8 = 8;

/// Whether a call that took `took` can have found the server's clock `apart_ms` ahead of clocks
/// that agree.
fn explained(apart_ms: i64, took: Duration) -> bool {
    u64::try_from(apart_ms).is_ok_and(|apart| Duration::from_millis(apart) <= took + CLOCK_SKEW_MAX)
}

/// Makes a call by the record that `shard` names; `run` asks for the caller's present each time. Again where the server took
/// it up late and for that reason found the caller's clock behind its own. Where an earlier sending may have been
/// carried out before the shard took another record, the shard is asked by that record whether it was.
pub(crate) async fn carry<A, F>(
    doing: &'static str,
    shard: &Shard,
    call: Option<&CachedCall<'_>>,
    run: impl Fn(RoutingId) -> F,
) -> Result<A, StoreError>
where
    F: Future<Output = Result<A, LinkError>>,
{
    let (began, mut stalls, mut asks) = (Instant::now(), 0, 0);
    let (mut known, mut stale) = (shard.record(), None);
    let answer = loop {
        // Boxed, so that the layers of a call do not add up to one type too deep for the compiler.
        let error = match Box::pin(run(known)).await {
            Ok(answer) => break Ok(answer),
            Err(error) => error,
        };
        if matches!(&error, LinkError::Refused { code, .. } if code == "NEVER")
            && let Some(record) = stale.take()
        {
            break Err(StoreError::Stale(record));
        }
        match store_error(doing, Some(shard), error) {
            StoreError::ClockSkew(apart) if stalls < STALLS_MAX && explained(apart, began.elapsed()) => stalls += 1,
            StoreError::Stale(record) if asks < ASKS_MAX && call.is_some_and(CachedCall::is_unsure) => {
                asks += 1;
                if let Some(call) = call {
                    call.only_ask();
                }
                known = record.id();
                stale = Some(record);
            }
            error => break Err(error),
        }
    };
    if let Some(call) = call {
        call.is_over();
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_distinguished_from_a_clock_that_is_wrong() {
        assert!(explained(2_900, Duration::from_secs(3)), "the server stood still for three seconds");
        assert!(!explained(60_000, Duration::from_secs(3)), "its clock is ahead");
        assert!(!explained(-2_900, Duration::from_secs(3)), "its clock is behind");
    }
}
