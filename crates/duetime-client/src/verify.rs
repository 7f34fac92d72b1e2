//! Whether a webhook comes from a node that knows the secret.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use reqwest::header::HeaderMap;
use sha2::Sha256;

/// How far the time of a webhook may be from this machine's clock.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// Why a webhook is not taken for one of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Not signed with any of the secrets, or too old, or from the future.
    #[error("invalid signature of a webhook")]
    Signature,
    /// No secret was given.
    #[error("no secret is given, so no webhook can be checked")]
    NoSecret,
    /// One of the secrets cannot be one.
    #[error("a secret is \"whsec_\" and base64")]
    Secret,
}

/// Checks the signature of a webhook (Standard Webhooks, version 1), and returns its delivery id, the same for every
/// attempt of one message.
///
/// The body is the bytes as they came; the secrets are one `whsec_…`, or several while they are changed. The signature
/// covers the delivery id, the time and the body; the `duetime-*` headers are not signed.
#[expect(clippy::disallowed_methods, reason = "a signature is compared with the machine's own time")]
pub fn verify(body: &[u8], headers: &HeaderMap, secrets: &[&str]) -> Result<String, VerifyError> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    verify_at(since.as_secs(), body, headers, secrets)
}

fn verify_at(now: u64, body: &[u8], headers: &HeaderMap, secrets: &[&str]) -> Result<String, VerifyError> {
    if secrets.is_empty() {
        return Err(VerifyError::NoSecret);
    }
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty());
    let (Some(id), Some(sent)) = (header("webhook-id"), header("webhook-timestamp")) else {
        return Err(VerifyError::Signature);
    };
    let is_near = |seconds: u64| now.abs_diff(seconds) <= TOLERANCE.as_secs();
    if !sent.parse().is_ok_and(is_near) {
        return Err(VerifyError::Signature);
    }
    let given = headers.get_all("webhook-signature").iter().filter_map(|value| value.to_str().ok());
    let given: Vec<Vec<u8>> = given
        .flat_map(str::split_whitespace)
        .filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok())
        .collect();
    for secret in secrets {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).unwrap_or_default();
        if key.is_empty() {
            return Err(VerifyError::Secret);
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of any length is taken");
        mac.update(format!("{id}.{sent}.").as_bytes());
        mac.update(body);
        if given.iter().any(|signature| mac.clone().verify_slice(signature).is_ok()) {
            return Ok(id.to_owned());
        }
    }
    Err(VerifyError::Signature)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};
    use serde_json::Value;

    use super::*;

    const VECTORS: &str = include_str!("../../../clients/vectors/signatures.json");

    #[test]
    fn no_secret_at_all_is_a_fault_of_the_set_up_whatever_the_webhook_is() {
        assert_eq!(verify(b"", &HeaderMap::new(), &[]), Err(VerifyError::NoSecret));
    }

    #[test]
    fn webhooks_are_judged_as_the_clients_in_other_languages_judge_them() {
        let vectors: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
        let mut judged = std::collections::BTreeSet::new();
        for vector in &vectors {
            let mut headers = HeaderMap::new();
            for (name, value) in vector["headers"].as_object().unwrap() {
                let value = HeaderValue::from_str(value.as_str().unwrap()).unwrap();
                headers.insert(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
            }
            let body = STANDARD.decode(vector["body_base64"].as_str().unwrap()).unwrap();
            let secrets: Vec<&str> = vector["secrets"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let found = verify_at(vector["now"].as_u64().unwrap(), &body, &headers, &secrets);
            let is_valid = vector["is_valid"].as_bool().unwrap();
            assert_eq!(found.is_ok(), is_valid, "{}", vector["name"]);
            judged.insert(is_valid);
        }
        assert_eq!(judged.len(), 2, "some are valid, and some are not");
    }
}
