//! What a payload is, where neither its message nor the configuration says so.
//!
//! Upstream: sinks whose carrier names a content type.

use serde::de::IgnoredAny;

const BYTES: &str = "application/octet-stream";
const JSON: &str = "application/json";

/// `application/json` for an object or an array of JSON, which frameworks then parse, else
/// `application/octet-stream`. Costs one pass over a payload that begins like one of them.
#[must_use]
pub(crate) fn of(payload: &[u8]) -> &'static str {
    let begins = payload.trim_ascii_start().first().is_some_and(|first| b"{[".contains(first));
    let text = if begins { std::str::from_utf8(payload).ok() } else { None };
    if text.is_some_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok()) { JSON } else { BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_and_an_array_are_json_and_all_else_is_bytes() {
        for payload in ["{}", " {\"order\": 1}\n", "[]", "[1, {\"a\": null}]"] {
            assert_eq!(of(payload.as_bytes()), JSON, "{payload}");
        }
        for payload in ["", "42", "\"text\"", "{\"order\": 1", "{} {}", "[draft] two", "{\u{0}}"] {
            assert_eq!(of(payload.as_bytes()), BYTES, "{payload}");
        }
        assert_eq!(of(b"{\"a\": \"\xff\"}"), BYTES);
    }
}
