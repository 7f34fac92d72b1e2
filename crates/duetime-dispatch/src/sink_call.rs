//! One call of a sink, and what is left of a message that it did not take.
//!
//! Upstream: `deliverer`.

use duetime_core::{Delivery, MessageId, Nonce, Verdict};
use tokio::time::Instant;

use crate::work::ClaimInfo;

/// One call of the sink, before and after.
#[derive(Debug)]
pub(crate) struct SinkCall {
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) claims: Vec<ClaimInfo>,
    pub(crate) said: Vec<Verdict>,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

impl SinkCall {
    pub(crate) fn has_accepted(&self) -> bool {
        self.said.contains(&Verdict::Accepted)
    }

    /// Why the target as a whole cannot be used, if it was found so.
    pub(crate) fn unavailable(&self) -> Option<&Verdict> {
        self.said.iter().find(|said| matches!(said, Verdict::Unavailable { .. }))
    }
}

/// A message that was not accepted, until it is known whether it pays for that.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) id: MessageId,
    pub(crate) nonce: Nonce,
    pub(crate) attempt: u8,
    /// Attempts that it may have.
    pub(crate) most: u8,
    pub(crate) claim: ClaimInfo,
    pub(crate) said: Verdict,
}
