//! Fuzz targets of this crate: each takes any bytes and panics when a law is broken.
//!
//! Upstream: `fuzz/fuzz_targets`, and the tests below with the corpora. Not in a plain build.

use duetime_core::{Delivery, Headers, MessageId, Nonce, Timestamp, TopicName};
use duetime_settings::{REDACTED_BYTES_MIN, Redactor, Secret, TargetUrl};

pub use crate::http::fuzz::{addresses, retry_after};
use crate::template::Template;

fn delivery(id: &str, headers: Vec<(String, String)>) -> Option<Delivery> {
    Some(Delivery {
        topic: TopicName::new("orders").ok()?,
        id: MessageId::new(id).ok()?,
        due_at: Timestamp::ZERO,
        attempt: 1,
        nonce: Nonce(7),
        headers: Headers::new(headers).ok()?,
        payload: bytes::Bytes::new(),
        not_after: Timestamp::ZERO,
        at_most_once: false,
        span: None,
    })
}

/// A template is refused or filled in; what a message says is never read as a template itself.
pub fn templates(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (text, value) = text.split_once('\n').unwrap_or((&text, "{id}"));
    // Whatever is written with doubled braces is taken as it is.
    let literal = Template::parse(&text.replace('{', "{{").replace('}', "}}")).expect("there is no place in it");
    let Some(message) = delivery("o-1", vec![("X".to_owned(), value.to_owned())]) else { return };
    assert_eq!(literal.fill(&message, |c| c).as_deref(), Ok(text));
    assert!(!literal.varies());
    let Ok(template) = Template::parse(text) else { return };
    let filled = template.fill(&message, |c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let literals: usize = template.literals().map(str::len).sum();
    if let Ok(filled) = filled {
        assert!(filled.len() >= literals);
        if !template.varies() {
            assert_eq!(template.of_topic(&message.topic, |c| c, "*"), filled);
        }
    }
    let placed = Template::parse("<{header.x}>").expect("a template");
    assert_eq!(placed.fill(&message, |c| c), Ok(format!("<{value}>")));
}

/// A message calls no host and no path but those that are allowed, whatever its header says.
pub fn message_urls(data: &[u8]) {
    let value = String::from_utf8_lossy(data).into_owned();
    if let Some(message) = delivery("o-1", vec![("x".to_owned(), value)]) {
        crate::http::fuzz::message_url(&message);
    }
}

/// A secret does not survive: not in an address that is shown, and not in what a target says.
pub fn redaction(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split('\n');
    let mut part = || parts.next().unwrap_or_default();
    let (odd, before, after) = (part(), part(), part());
    let password = format!("LEFTLEFT{odd}RIGHTRIGHT");
    for url in [
        format!("redis://user:{password}@db.example:6379/0"),
        format!("redis-cluster://{password}@a.example:1,b.example:2"),
        format!("https://u:{password}@db.example/in?token={password}"),
        format!("amqp://db.example/v?x={password}"),
    ] {
        let address = TargetUrl::new(&url);
        let shown = format!("{address} {address:?}");
        assert!(!shown.contains("LEFT") && !shown.contains("RIGHT"), "{url} is shown as {shown}");
        let said = Redactor::new(address.secrets()).redact(&format!("{before}{password}{after}"), 500);
        let is_made_up = [odd, before, after].iter().any(|part| part.contains(['L', 'R']));
        assert!(is_made_up || !said.contains("LEFTLEFT") && !said.contains("RIGHTRIGHT"), "{url}: {said}");
    }
    assert_eq!(format!("{:?}", Secret::new(password.as_str())), "***");
    // A secret is taken out wherever it stands, also where others stand beside it or around it.
    let secrets: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let redactor = Redactor::new(secrets.clone());
    for said in [secrets.join(" "), secrets.concat(), text.replace('\n', "\t")] {
        let clean = redactor.redact(&said, usize::MAX);
        for secret in secrets.iter().filter(|secret| secret.len() >= REDACTED_BYTES_MIN && !secret.contains("***")) {
            assert!(!clean.contains(secret.as_str()), "{secret:?} is in {clean:?}");
        }
        for bytes_max in [0, 7, 20] {
            assert!(redactor.redact(&said, bytes_max).len() <= bytes_max);
        }
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
replay::corpora!(templates, retry_after, addresses, message_urls, redaction);
