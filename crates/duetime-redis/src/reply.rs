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
