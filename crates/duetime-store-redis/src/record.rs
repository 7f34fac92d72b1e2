//! Routing records and outboxes as scripts keep and answer them.

use duetime_core::resize_store::{Batch, BatchId, DeadlineFloor, Frozen, FrozenState};
use duetime_core::routing::RoutingState;
use duetime_core::store::StoreError;
use duetime_core::{LeaseClass, MessageId, Parity, Routing, Timestamp};
use redis::Value;

use crate::reply::{array, bytes, id, int, score, text, unexpected_reply};

/// The outbox is empty.
const NO_NONCE: &str = "-";

pub(crate) fn state_word(state: RoutingState) -> &'static str {
    if state == RoutingState::Moving { "moving" } else { "stable" }
}

/// The parity of a shard's deadlines as `deadline.lua` reads it.
pub(crate) fn parity_word(parity: Parity) -> &'static str {
    match parity {
        Parity::Any => "",
        Parity::Even => "0",
        Parity::Odd => "1",
    }
}

/// The seed as scripts keep it: empty, if it is that of the topic's name.
pub(crate) fn seed_word(routing: &Routing) -> String {
    routing.seed.map_or_else(String::new, |seed| seed.to_string())
}

/// A record from the fields of meta, in the order epoch, rid, shards, previous, state, seed.
pub(crate) fn routing(fields: [Value; 6]) -> Option<Routing> {
    let [epoch, change_id, shards, previous, state, seed] = fields.map(text);
    Some(Routing {
        epoch: epoch?.parse().ok()?,
        change_id: change_id?.parse().ok()?,
        shards: shards?.parse().ok()?,
        previous: previous?.parse().ok()?,
        state: if state? == "moving" { RoutingState::Moving } else { RoutingState::Stable },
        seed: seed.and_then(|seed| seed.parse().ok()),
        watermark: false,
        max_in_flight: None,
    })
}

pub(crate) fn floor(deadlines: &[Value]) -> Result<DeadlineFloor, StoreError> {
    let mut floor = DeadlineFloor::default();
    for (class, last) in LeaseClass::held().zip(deadlines) {
        if *last != Value::Nil {
            floor.raise(class, Timestamp::from_millis(int(last)?));
        }
    }
    Ok(floor)
}

/// `number nonce`, and what follows.
pub(crate) fn name(text: &str) -> Option<(BatchId, Option<u32>)> {
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok()?;
    let nonce = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((BatchId { number, nonce }, words.next().and_then(|to| to.parse().ok())))
}

pub(crate) fn nonce_text(nonce: u64) -> String {
    format!("{nonce:016x}")
}

/// A message as the outbox keeps it; see `take.lua`.
pub(crate) fn frozen(id: MessageId, stored: Value) -> Option<Frozen> {
    let stored = bytes(stored)?;
    let kind = *stored.first()?;
    let space = |from: usize| stored[from..].iter().position(|byte| *byte == b' ').map(|at| from + at);
    let first = space(1)?;
    let second = space(first + 1)?;
    let number = |from: usize, to: usize| std::str::from_utf8(&stored[from..to]).ok();
    let length: usize = number(first + 1, second)?.parse().ok()?;
    let at = score(&Value::BulkString(stored[1..first].to_vec())).ok()??;
    let end = (second + 1).checked_add(length)?;
    let info = stored.get(second + 1..end)?;
    let state = if kind.eq_ignore_ascii_case(&b'l') {
        FrozenState::Live(at)
    } else {
        let (attempts, reason) = std::str::from_utf8(info).ok()?.split_once(' ')?;
        FrozenState::Dead { at: at.raw(), attempts: attempts.parse().unwrap_or(0), reason: reason.to_owned() }
    };
    let body = kind.is_ascii_lowercase().then(|| stored.slice(end..));
    Some(Frozen { id, state, body })
}

/// Reads an outbox as its scripts answer it.
pub(crate) fn outbox(from: u32, reply: Value) -> Result<Option<Batch>, StoreError> {
    let fields = match reply {
        Value::Map(pairs) => pairs,
        list => {
            let mut list = array(list)?.into_iter();
            std::iter::from_fn(|| Some((list.next()?, list.next()?))).collect()
        }
    };
    let mut named = None;
    let mut messages = Vec::with_capacity(fields.len());
    for (field, value) in fields {
        if matches!(&field, Value::BulkString(field) if field.is_empty()) {
            named = text(value);
        } else {
            let id = id(&field)?;
            messages.push(frozen(id, value).ok_or_else(|| unexpected_reply("a message in an outbox"))?);
        }
    }
    let named = named.ok_or_else(|| unexpected_reply("an outbox without a name"))?;
    if named.split(' ').nth(1) == Some(NO_NONCE) {
        return Ok(None);
    }
    let Some((name, Some(to))) = name(&named) else { return Err(unexpected_reply("the name of an outbox")) };
    messages.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(Some(Batch { name, from, to, messages }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outbox_is_read_as_the_script_packs_it() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let list = ["", "7 00000000000000ff 3", "b", "d1763700000123000 11 2 it burnedbody", "a", "L5 0 "];
        let batch = outbox(1, Value::Array(list.iter().map(|text| bulk(text)).collect())).unwrap().unwrap();
        assert_eq!((batch.name, batch.from, batch.to), (BatchId { number: 7, nonce: 255 }, 1, 3));
        assert_eq!((batch.messages[0].body.as_ref(), batch.messages[0].id.as_str()), (None, "a"));
        let FrozenState::Dead { at, attempts, reason } = &batch.messages[1].state else { panic!() };
        assert_eq!((*at, *attempts, reason.as_str()), (1_763_700_000_123_000, 2, "it burned"));
        assert_eq!(batch.messages[1].body.as_deref(), Some(&b"body"[..]));
        assert_eq!(outbox(1, Value::Array(vec![bulk(""), bulk("7 - 0")])).unwrap(), None);
    }
}
