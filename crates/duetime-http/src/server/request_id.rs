//! The id of a request: in its answer, whatever that is, and in each line of the log that is about it.

use axum::http::{HeaderMap, HeaderValue};

/// The header of requests and of answers.
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// Longest id that is taken from a request.
const BYTES_MAX: usize = 64;

/// The id that a request brings, or a new one where it brings none, several, or one that is no plain word.
pub(crate) fn id_of(headers: &HeaderMap) -> String {
    let mut given = headers.get_all(REQUEST_ID).iter();
    let is_word = |text: &&str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte);
        (1..=BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
    };
    let first = given.next().and_then(|value| value.to_str().ok()).filter(is_word);
    match first.filter(|_| given.next().is_none()) {
        Some(given) => given.to_owned(),
        None => format!("{:016x}", rand::random::<u64>()),
    }
}

/// The value of the header.
pub(crate) fn value(id: &str) -> HeaderValue {
    HeaderValue::from_str(id).expect("a plain word is a value of a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_client_is_kept_and_any_other_text_is_not() {
        let id = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(REQUEST_ID, HeaderValue::from_str(value).unwrap());
            }
            id_of(&headers)
        };
        assert_eq!(id(&["Order-42/a.b:c"]), "Order-42/a.b:c");
        for strange in [&[][..], &[""], &["a b"], &["a\"b"], &["a", "b"], &[&"x".repeat(65)]] {
            let made = id(strange);
            assert!(made.len() == 16 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{strange:?}: {made}");
        }
        assert_ne!(id(&[]), id(&[]));
    }
}
