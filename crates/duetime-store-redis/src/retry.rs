//! Runs one script on a shard until it is answered.
//!
//! The link repeats a call that got no answer. This file handles the rest: a server that read the call late, and a shard
//! that changed its routing record between two sendings.

use std::time::Duration;

use duetime_core::limits::CLOCK_SKEW_MAX;
use duetime_core::{RoutingId, Shard, StoreError};
use duetime_redis::LinkError;
use tokio::time::Instant;

use crate::reply::store_error;
use crate::reply_cache::CachedCall;

/// How often one call may meet a stalled server before clock skew is reported after all.
const STALLS_MAX: u8 = 3;
/// How often a call that may have executed follows its shard's record to ask whether it did.
const ASKS_MAX: u8 = 8;

/// True if a call that took `took` may find the server's clock `apart_ms` ahead although the clocks agree.
fn explained(apart_ms: i64, took: Duration) -> bool {
    u64::try_from(apart_ms).is_ok_and(|apart| Duration::from_millis(apart) <= took + CLOCK_SKEW_MAX)
}

/// Runs a call under the record that `shard` names; `run` takes the caller's time for each sending. Repeats the call
/// where the server read it late, and therefore found the caller's clock behind its own. Where an earlier sending may
/// have executed before the shard took another record, asks the shard under that record whether it did.
pub(crate) async fn run_until_answered<A, F>(
    doing: &'static str,
    shard: &Shard,
    call: Option<&CachedCall<'_>>,
    run: impl Fn(RoutingId) -> F,
) -> Result<A, StoreError>
where
    F: Future<Output = Result<A, LinkError>>,
{
    if let Some(call) = call {
        call.begins();
    }
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
