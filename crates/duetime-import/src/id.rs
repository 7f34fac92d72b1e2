//! How an id of another system is written as an id of a message.

use duetime_core::MessageId;
use duetime_core::limits::ID_BYTES_MAX;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use sha2::{Digest as _, Sha256};

/// Begins an id whose rest is percent-encoded: it decodes to the bytes of the original.
const ENCODED: &str = "pct:";
/// Begins an id that is a SHA-256 of the original, in hex: the original is too long for an id.
const HASHED: &str = "sha256:";

/// What is encoded beside bytes that are not ASCII: control characters, the escape itself, and the dot, for an id of
/// dots alone is refused.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b'.');

/// The id of a message for an id of another system. One that Duetime takes stays as it is. Another one is `pct:` and
/// its bytes, percent-encoded; one that is too long for that, `sha256:` and its hash. An original that begins with
/// either is encoded too, so two originals never have one spelling.
#[must_use]
pub fn spell_id(original: &[u8]) -> String {
    let is_own = |text: &str| text.starts_with(ENCODED) || text.starts_with(HASHED);
    let taken = |text: &&str| MessageId::new(text).is_ok_and(|id| id.check_new().is_ok()) && !is_own(text);
    if let Some(text) = std::str::from_utf8(original).ok().filter(taken) {
        return text.to_owned();
    }
    let encoded = format!("{ENCODED}{}", percent_encode(original, ESCAPED));
    if encoded.len() <= ID_BYTES_MAX {
        return encoded;
    }
    hashed(original)
}

/// `sha256:` and the hash of these bytes, in hex.
pub(crate) fn hashed(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(HASHED.to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_decode_str;

    use super::*;

    #[test]
    fn an_id_that_is_taken_stays_and_any_other_can_be_read_back() {
        for plain in ["order-1", "заказ 7", "a%0Ab", "repeat:abc:1763700000123", "..."] {
            assert_eq!(spell_id(plain.as_bytes()), plain);
        }
        let odd: [&[u8]; 7] = [b"", b".", b"..", b"a\nb", b"\xff\x00%", b"pct:a", b"sha256:a"];
        for original in odd {
            let id = spell_id(original);
            let rest = id.strip_prefix("pct:").expect("encoded");
            assert_eq!(percent_decode_str(rest).collect::<Vec<u8>>(), original);
            assert!(MessageId::new(&id).is_ok_and(|id| id.check_new().is_ok()), "{id}");
        }
        let long = spell_id(&[b'x'; 257]);
        assert!(long.starts_with("sha256:") && long.len() == 7 + 64, "{long}");
    }
}
