//! Reads what scripts answer, by moving and never by copying bodies.

use bytes::Bytes;
use duetime_core::receipt::Receipt;
use duetime_core::routing::RoutingState;
use duetime_core::{MessageId, Outcome, Routing, Score, Shard, StoreError};
use duetime_redis::LinkError;
use redis::Value;

/// A reply that is not what the script promises: somebody else's script, or a damaged key.
pub(crate) fn unexpected_reply(what: &str) -> StoreError {
    StoreError::Damaged(format!("redis answered oddly: {what}"))
}

pub(crate) fn array(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(unexpected_reply(&format!("a list was expected, not {other:?}"))),
    }
}

/// The values of a list of known length.
pub(crate) fn tuple<const N: usize>(value: Value) -> Result<[Value; N], StoreError> {
    let values = array(value)?;
    let len = values.len();
    <[Value; N]>::try_from(values).map_err(|_| unexpected_reply(&format!("a list of {N} was expected, not of {len}")))
}

pub(crate) fn int(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| unexpected_reply("a whole number was expected")),
        other => Err(unexpected_reply(&format!("a number was expected, not {other:?}"))),
    }
}

pub(crate) fn ints(value: Value) -> Result<Vec<i64>, StoreError> {
    array(value)?.iter().map(int).collect()
}

/// The outcomes, if they are as many as were asked for.
pub(crate) fn as_many<T>(count: usize, outcomes: Vec<T>) -> Result<Vec<T>, StoreError> {
    let len = outcomes.len();
    if len == count {
        Ok(outcomes)
    } else {
        Err(unexpected_reply(&format!("{count} outcomes were expected, not {len}")))
    }
}

/// A count, which is never negative.
pub(crate) fn count(value: &Value) -> Result<u64, StoreError> {
    Ok(u64::try_from(int(value)?).unwrap_or(0))
}

/// A score as Redis writes it: a whole number, or the infinity of the entry that is never claimed.
pub(crate) fn score(value: &Value) -> Result<Option<Score>, StoreError> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) if bytes.ends_with(b"inf") => Ok(None),
        // A score somebody else wrote by hand may have another form of number.
        Value::BulkString(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| unexpected_reply("a score"))?;
            let raw = match text.parse::<i64>() {
                Ok(raw) => raw,
                Err(_) => text.parse::<f64>().map_err(|_| unexpected_reply("a score"))? as i64,
            };
            Ok(Some(Score::from_raw(raw)))
        }
        other => Err(unexpected_reply(&format!("a score was expected, not {other:?}"))),
    }
}

pub(crate) fn bytes(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(Bytes::from(bytes)),
        _ => None,
    }
}

pub(crate) fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// Reads what is remembered of a message; `None`: nothing is, or what a later version wrote, which fails no other item.
pub(crate) fn outcome(value: &Value) -> Result<Option<Outcome>, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(Outcome::decode(bytes)),
        other => Err(unexpected_reply(&format!("an outcome was expected, not {other:?}"))),
    }
}

pub(crate) fn id(value: &Value) -> Result<MessageId, StoreError> {
    let Value::BulkString(bytes) = value else { return Err(unexpected_reply("an id was expected")) };
    let text = std::str::from_utf8(bytes).map_err(|_| unexpected_reply("an id is not UTF-8"))?;
    MessageId::new(text).map_err(|error| unexpected_reply(&error.to_string()))
}

/// Whether `score` can prove a claim at all.
pub(crate) fn proves(score: Score) -> bool {
    score != Receipt::SETTLED && score.raw() > 0 && score.class().is_held()
}

fn routing(detail: &str) -> Option<Routing> {
    let mut words = detail.split(' ');
    Some(Routing {
        epoch: words.next()?.parse().ok()?,
        change_id: words.next()?.parse().ok()?,
        shards: words.next()?.parse().ok()?,
        previous: words.next()?.parse().ok()?,
        state: if words.next()? == "moving" { RoutingState::Moving } else { RoutingState::Stable },
        seed: words.next().and_then(|seed| seed.parse().ok()),
        watermark: false,
        max_in_flight: None,
    })
}

/// What a shard that refuses holds: messages, and the life they are of where its meta says so.
fn occupied(detail: &str) -> String {
    match detail.split_once(' ') {
        Some((held, "-")) => format!("{held} messages without the shard's meta"),
        Some((held, life)) => format!("{held} messages of life {life}"),
        None => detail.to_owned(),
    }
}

/// What a failed call means to the caller of the store.
pub(crate) fn store_error(doing: &'static str, shard: Option<&Shard>, error: LinkError) -> StoreError {
    let named = || shard.map_or_else(String::new, ToString::to_string);
    match error {
        LinkError::Full(text) => StoreError::Full(text),
        LinkError::Setup(text) | LinkError::NotPermitted(text) => StoreError::Setup(text),
        refused @ (LinkError::LoginRefused | LinkError::SentinelLoginRefused) => StoreError::Setup(refused.to_string()),
        LinkError::Refused { code, detail } => match code.as_str() {
            "UNKNOWN_SHARD" => StoreError::UnknownShard(named()),
            "LOST" => StoreError::Lost(named()),
            "OCCUPIED" => StoreError::Occupied { shard: named(), detail: occupied(&detail) },
            "OVERTAKEN" => StoreError::Conflict,
            "FORGOTTEN" => StoreError::Unavailable { doing, source: detail.into() },
            "RIVAL" => StoreError::Damaged(format!(
                "two changes of the number of shards were begun at once: shard {} has epoch and name {detail}",
                named()
            )),
            // Closed for a deletion, which the caller's record does not open.
            "NOT_READY" | "SEALED" => StoreError::NotReady(named()),
            "SKEW" => StoreError::ClockSkew(detail.trim().parse().unwrap_or(i64::MAX)),
            "STALE" => routing(&detail).map_or_else(
                || unexpected_reply("the routing record of a shard"),
                |routing| StoreError::Stale(Box::new(routing)),
            ),
            _ => StoreError::Damaged(format!("redis refused to {doing}: {code} {detail}")),
        },
        other => StoreError::Unavailable { doing, source: Box::new(other) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn an_outcome_of_a_later_version_is_as_good_as_none_and_fails_nothing_else() {
        let read = |bytes: &[u8]| outcome(&Value::BulkString(bytes.to_vec()));
        assert_eq!(read(b"").unwrap(), None);
        assert_eq!(read(&[8; duetime_core::memory::OUTCOME_BYTES]).unwrap(), None, "a kind that is not known here");
        assert!(outcome(&Value::Int(1)).is_err());
    }

    #[test]
    fn scores_are_read_exactly_and_the_sentinel_is_none() {
        assert_eq!(score(&bulk("1763700000123107")).unwrap(), Some(Score::from_raw(1_763_700_000_123_107)));
        assert_eq!(score(&bulk("inf")).unwrap(), None);
        assert_eq!(score(&Value::Nil).unwrap(), None);
        assert!(score(&bulk("x")).is_err());
    }

    #[test]
    fn refusals_become_what_the_caller_can_do() {
        let refused = |code: &str, detail: &str| {
            store_error("x", None, LinkError::Refused { code: code.into(), detail: detail.into() })
        };
        let StoreError::Stale(record) = refused("STALE", "3 0000000000000abc 8 4 moving 77") else { panic!() };
        assert_eq!((record.epoch, record.shards, record.previous, record.state), (3, 8, 4, RoutingState::Moving));
        assert_eq!(record.seed, Some(77));
        assert!(matches!(refused("SKEW", "-2500"), StoreError::ClockSkew(-2500)));
        assert!(matches!(refused("UNKNOWN_SHARD", ""), StoreError::UnknownShard(_)));
        assert!(matches!(refused("WRONGTYPE", "x"), StoreError::Damaged(_)));
    }
}
