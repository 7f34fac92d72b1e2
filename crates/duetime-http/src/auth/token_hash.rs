//! Hashes of tokens' secrets, and how the configuration writes them.
//!
//! Upstream: `auth`.

use base64::Engine as _;
use sha2::{Digest as _, Sha256};

pub(crate) type Hash = duetime_settings::SecretHash;

/// What the text of a hash begins with.
const HASH_PREFIX: &str = "sha256:";

/// Random bytes in a token that the program makes.
const TOKEN_BYTES: usize = 32;

/// The hash of a secret.
pub(crate) fn hash_of(secret: &[u8]) -> Hash {
    Sha256::digest(secret).into()
}

/// A hash as the configuration has it.
pub(crate) fn show_hash(hash: &Hash) -> String {
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{HASH_PREFIX}{digits}")
}

/// The hash that is written there, if it is one.
pub(crate) fn read_hash(text: &str) -> Option<Hash> {
    let digits = text.trim().strip_prefix(HASH_PREFIX)?;
    let digits = digits.as_bytes();
    let mut hash = Hash::default();
    if digits.len() != 2 * hash.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// A secret nobody can guess, and its hash for the configuration.
#[must_use]
pub fn new_token() -> (String, String) {
    let secret = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; TOKEN_BYTES]>());
    let hash = show_hash(&hash_of(secret.as_bytes()));
    (secret, hash)
}
