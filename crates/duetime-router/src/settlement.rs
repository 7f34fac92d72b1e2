//! What a consumer asks for, as the store is asked for it.
//!
//! Upstream: `router`, `past`.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{Settle, Settlement};
use duetime_core::{LeaseClass, Receipt, Successor, TopicRecord};

/// What follows the message of a receipt, where it is known to be followed by one.
pub(crate) type Next = Option<Box<Successor>>;

/// How a consumer settles what it claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleAsk {
    /// Done.
    Ack,
    /// Again after this long, or after the topic's backoff; a dead letter, for this reason, if attempts are
    /// used up.
    Nack(Option<Duration>, Option<Arc<str>>),
    /// A dead letter at once, for this reason.
    Bury(Option<Arc<str>>),
    /// Hidden for this long from now, or for the visibility timeout of the message, else for its topic's.
    Extend(Option<Duration>),
    /// Not begun: as it was before the claim, without costing an attempt.
    Release,
}

fn with_reason(what: String, reason: Option<&str>) -> String {
    reason.map_or_else(|| what.clone(), |reason| format!("{what}: {reason}"))
}

/// The settlement that a consumer asks for, with what follows its message.
pub(crate) fn settlement(record: &TopicRecord, receipt: &Receipt, ask: SettleAsk, next: &Next) -> Settle {
    let retry = &record.config.retry;
    let (attempts, most) = (receipt.score.attempts(), receipt.max_attempts.unwrap_or(retry.max_attempts));
    let how = match ask {
        SettleAsk::Ack => next.clone().map_or(Settlement::Ack, Settlement::Repeat),
        SettleAsk::Nack(_, reason) if attempts >= most => {
            let what = format!("given back by its consumer on attempt {attempts} of {most}");
            Settlement::Bury(with_reason(what, reason.as_deref()))
        }
        SettleAsk::Bury(reason) => {
            let what = format!("given up by its consumer on attempt {attempts} of {most}");
            Settlement::Bury(with_reason(what, reason.as_deref()))
        }
        SettleAsk::Nack(delay, _) => {
            Settlement::Nack(delay.unwrap_or_else(|| retry.backoff(attempts, rand::random::<f64>())))
        }
        SettleAsk::Extend(asked) => {
            let visibility = asked.or(receipt.visibility).unwrap_or(record.config.visibility_timeout);
            Settlement::Extend(visibility, LeaseClass::for_visibility(visibility))
        }
        SettleAsk::Release => Settlement::Release,
    };
    Settle { id: receipt.id.clone(), score: receipt.score, action: how }
}
