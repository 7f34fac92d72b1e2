//! What a consumer asks for, as the store is asked for it.
//!
//! Upstream: `router`, `past`.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::{Settle, Settlement};
use duetime_core::{LeaseClass, Receipt, Successor, TopicRecord};

/// What follows the message of a receipt, where it is known to be followed by one.
pub(crate) type Next = Option<Box<Successor>>;

/// Bytes of bodies of series that the acks of a request hold at once; one body may have more.
const BODY_BYTES_AT_ONCE: u64 = 16 << 20;

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

/// Whether this is an ack of a message of a series.
pub(crate) fn is_ack_of_series((receipt, ask): &(Receipt, SettleAsk)) -> bool {
    receipt.repeats && *ask == SettleAsk::Ack && receipt.score != Receipt::SETTLED
}

/// How many bodies of series the acks of a request hold at once: as many of the topic's largest as fit into
/// [`BODY_BYTES_AT_ONCE`], at most `most`.
pub(crate) fn bodies_at_once(record: &TopicRecord, most: usize) -> usize {
    let fit = BODY_BYTES_AT_ONCE / record.config.max_payload.max(1);
    usize::try_from(fit).unwrap_or(most).clamp(1, most)
}

/// The next of `asks` that are settled together. A request may have any number of acks of series: no more bodies than
/// `bodies` are held at once.
pub(crate) fn portion<I>(asks: &mut Peekable<I>, bodies: usize) -> Vec<(Receipt, SettleAsk)>
where
    I: Iterator<Item = (Receipt, SettleAsk)>,
{
    let (mut some, mut acks) = (Vec::new(), 0);
    while let Some(ask) = asks.next_if(|ask| acks < bodies || !is_ack_of_series(ask)) {
        acks += usize::from(is_ack_of_series(&ask));
        some.push(ask);
    }
    some
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
