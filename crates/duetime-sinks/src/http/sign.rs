//! Signatures of Standard Webhooks (<https://www.standardwebhooks.com>), version 1.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use duetime_settings::Secret;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// How a signing secret begins.
const PREFIX: &str = "whsec_";
/// Bytes of key material that the specification asks for.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Signs with every secret, so that secrets can be changed without a moment in which the receiver
/// knows none of them.
#[derive(Clone)]
pub struct Signer(Vec<Hmac<Sha256>>);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({})", self.0.len())
    }
}

impl Signer {
    /// Takes the secrets, newest first.
    ///
    /// # Errors
    ///
    /// A sentence that says which secret is malformed and how one is made; never the secret.
    pub fn new(secrets: &[Secret]) -> Result<Self, String> {
        let keys = secrets.iter().enumerate().map(|(index, secret)| {
            let help = format!(
                "signing_secrets[{index}] is refused; write \"{PREFIX}\" and the base64 of {} to {} random bytes, \
                 as made by: echo {PREFIX}$(openssl rand -base64 32)",
                KEY_BYTES.start(),
                KEY_BYTES.end()
            );
            let text = secret.expose().strip_prefix(PREFIX).ok_or_else(|| help.clone())?;
            let key = STANDARD.decode(text).map_err(|_| help.clone())?;
            if !KEY_BYTES.contains(&key.len()) {
                return Err(help);
            }
            Ok(Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"))
        });
        keys.collect::<Result<_, _>>().map(Self)
    }

    /// The value of `webhook-signature`; `None` without a secret.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp_s: i64, payload: &[u8]) -> Option<String> {
        let signatures = self.0.iter().map(|key| {
            let mut mac = key.clone();
            mac.update(format!("{id}.{timestamp_s}.").as_bytes());
            mac.update(payload);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        });
        (!self.0.is_empty()).then(|| signatures.collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_the_one_of_the_specification() {
        // The example of the reference libraries of Standard Webhooks.
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let payload = br#"{"test": 2432232314}"#;
        let one = Signer::new(std::slice::from_ref(&secret)).unwrap();
        let signature = one.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, payload).unwrap();
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let other = Secret::new(format!("whsec_{}", STANDARD.encode([7; 32])));
        let both = Signer::new(&[other, secret]).unwrap();
        let signatures = both.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, payload).unwrap();
        assert!(signatures.starts_with("v1,") && signatures.ends_with(&format!(" {signature}")), "{signatures}");
        assert_eq!(Signer::new(&[]).unwrap().sign("a", 1, b""), None);
    }

    #[test]
    fn a_malformed_secret_is_refused_and_not_shown() {
        for wrong in ["canary-without-prefix", "whsec_canary%", "whsec_Y2FuYXJ5"] {
            let error = Signer::new(&[Secret::new(wrong)]).unwrap_err();
            assert!(error.contains("signing_secrets[0]") && !error.contains("canary"), "{error}");
            assert!(!error.contains("Y2FuYXJ5"), "{error}");
        }
    }
}
