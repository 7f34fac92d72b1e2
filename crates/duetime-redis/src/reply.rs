//! Reads the few answers the link asks for itself.

use redis::Value;

/// A word, however it was sent.
pub(crate) fn word(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// A text of many lines, however it was sent; empty where it is none.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

/// No clock is right that shows more: the end of the year 9999. What is added to one that is believed does not
/// overflow.
const CLOCK_MS_MAX: i64 = 253_402_300_799_999;

/// Milliseconds since the Unix epoch in what TIME answers.
pub(crate) fn clock_of(answer: &Value) -> Option<i64> {
    let Value::Array(parts) = answer else { return None };
    let part = |at: usize| parts.get(at).and_then(word)?.parse::<i64>().ok();
    let ms = part(0)?.checked_mul(1000)?.checked_add(part(1)? / 1000)?;
    (0..=CLOCK_MS_MAX).contains(&ms).then_some(ms)
}
