//! What is sent to a webhook: headers of the delivery, of the configuration and of the message.

use std::borrow::Cow;
use std::sync::Arc;

use duetime_core::trace::is_trace_header;
use duetime_core::{Delivery, Timestamp, TopicName};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::allowed_url::{AllowedUrls, climbs};
use super::batch;
use super::config::{HttpConfig, HttpSettings};
use super::message_url::MessageUrl;
use super::sign::Signer;
use crate::fault::SinkFault;
use crate::{content_type, own_headers};

/// Headers that belong to the connection or to the request as a whole (RFC 9110, 7.6.1): those of a
/// message that bear such a name are left out.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Prefixes of headers that only Duetime sets.
const OURS: &[&str] = &["webhook-", own_headers::PREFIX];

/// What does not differ between the requests of one topic.
#[derive(Debug)]
pub(super) struct RequestTemplate {
    /// Where the topic's messages go, unless each has its own.
    pub(super) url: Url,
    pub(super) message_url: Option<MessageUrl>,
    pub(super) method: Method,
    allowed: Arc<AllowedUrls>,
    fixed: HeaderMap,
    /// None: by the payload.
    content_type: Option<HeaderValue>,
    prefix: String,
}

fn reserved(name: &str) -> bool {
    RESERVED.contains(&name) || OURS.iter().any(|prefix| name.starts_with(prefix))
}

impl RequestTemplate {
    /// For requests to `url`, without the topic's own settings.
    pub(super) fn new(config: &HttpConfig, url: Url) -> Result<Self, SinkFault> {
        let refused = |fault: String| SinkFault::at("headers", fault);
        let mut fixed = HeaderMap::new();
        for (name, value) in &config.headers {
            let parsed = HeaderName::try_from(name.as_str())
                .ok()
                .filter(|name| !reserved(name.as_str()))
                .ok_or_else(|| refused(format!("headers has {name:?}, which cannot be set; leave it out")))?;
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
                refused(format!("the value of headers.{name} has characters that a header cannot carry"))
            })?;
            value.set_sensitive(true);
            fixed.insert(parsed, value);
        }
        if !config.header_prefix.is_empty() && HeaderName::try_from(config.header_prefix.as_str()).is_err() {
            let fault = "header_prefix must be letters, digits and -, as in \"x-message-\"";
            return Err(SinkFault::at("header_prefix", fault));
        }
        let prefix = config.header_prefix.to_ascii_lowercase();
        let content_type = config.content_type.as_deref().map(read).transpose();
        let content_type = content_type.map_err(|fault| SinkFault::at("content_type", fault))?;
        let allowed = Arc::new(AllowedUrls::new(config)?);
        Ok(Self { url, message_url: None, method: Method::POST, allowed, fixed, content_type, prefix })
    }

    /// With what `topic` sets.
    pub(super) fn for_topic(&self, topic: &TopicName, settings: &HttpSettings) -> Result<Self, String> {
        let content_type = match &settings.content_type {
            Some(text) => Some(read(text)?),
            None => self.content_type.clone(),
        };
        let mut url = self.url.clone();
        if let Some(path) = &settings.path {
            let plain = path.bytes().all(|b| b.is_ascii_graphic() && !b"?#\\".contains(&b));
            if !path.starts_with('/') || !plain || climbs(path) {
                return Err(format!(
                    "path {path:?} is refused; begin it with \"/\", without \"..\", \"?\", \"#\" and spaces, and \
                     percent-encode what is not ASCII as UTF-8"
                ));
            }
            url.set_path(&format!("{}{path}", self.url.path().trim_end_matches('/')));
        }
        let message_url = settings.url.as_deref().map(|text| MessageUrl::new(text, topic, self.allowed.clone()));
        Ok(Self {
            url,
            message_url: message_url.transpose()?,
            method: settings.method.into(),
            allowed: self.allowed.clone(),
            fixed: self.fixed.clone(),
            content_type,
            prefix: self.prefix.clone(),
        })
    }

    /// Where `message` goes.
    ///
    /// # Errors
    ///
    /// A sentence with the fix, if it may not go there.
    pub(super) fn url_of(&self, message: &Delivery) -> Result<Cow<'_, Url>, String> {
        match &self.message_url {
            Some(own) => own.of(message).map(Cow::Owned),
            None => Ok(Cow::Borrowed(&self.url)),
        }
    }

    /// The headers of the request that hands `message` over at `now`, and is given up at `not_after`.
    pub(super) fn headers(
        &self,
        message: &Delivery,
        signer: &Signer,
        now: Timestamp,
        not_after: Timestamp,
    ) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(message.headers.len() + self.fixed.len() + 8);
        headers.extend(self.content_type.clone().map(|value| (CONTENT_TYPE, value)));
        for (name, value) in message.headers.iter() {
            // A trace goes on under the names that every receiver knows.
            let prefix = if is_trace_header(name) { "" } else { &self.prefix };
            let name = format!("{prefix}{}", name.to_ascii_lowercase());
            let is_reserved = reserved(&name) && !own_headers::says_origin(&name);
            if own_headers::hides(message, &name) || is_reserved || self.fixed.contains_key(name.as_str()) {
                continue;
            }
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value.as_bytes())) {
                if name == CONTENT_TYPE {
                    headers.insert(name, value);
                } else {
                    headers.append(name, value);
                }
            }
        }
        self.complete(&mut headers, (&message.delivery_id(), &message.payload), signer, now, not_after);
        for (name, value) in own_headers::of(message) {
            headers.insert(name, plain(&value));
        }
        headers
    }

    /// The headers of a request with this body, which hands several messages of one topic over.
    pub(super) fn headers_of_batch(
        &self,
        (messages, body): (&[Delivery], &[u8]),
        signer: &Signer,
        now: Timestamp,
        not_after: Timestamp,
    ) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.fixed.len() + 8);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.complete(&mut headers, (&batch::id(messages), body), signer, now, not_after);
        headers.insert("duetime-batch", HeaderValue::from(messages.len()));
        let topic = messages.first().map(|message| plain(message.topic.as_str()));
        headers.extend(topic.map(|topic| (HeaderName::from_static("duetime-topic"), topic)));
        headers
    }

    /// Adds what each request has: the configured headers, the type of its body, id, time and signature.
    fn complete(
        &self,
        headers: &mut HeaderMap,
        (id, body): (&str, &[u8]),
        signer: &Signer,
        now: Timestamp,
        not_after: Timestamp,
    ) {
        for (name, value) in &self.fixed {
            headers.insert(name.clone(), value.clone());
        }
        headers.entry(CONTENT_TYPE).or_insert_with(|| HeaderValue::from_static(content_type::of(body)));
        let timestamp_s = now.as_millis().div_euclid(1000);
        if let Some(signature) = signer.sign(id, timestamp_s, body) {
            headers.insert("webhook-signature", plain(&signature));
        }
        headers.insert("webhook-id", plain(id));
        headers.insert("webhook-timestamp", HeaderValue::from(timestamp_s));
        headers.insert("duetime-not-after", HeaderValue::from(not_after.as_millis()));
    }
}

fn plain(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("it is made of visible ASCII")
}

fn read(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text)
        .ok()
        .filter(|_| text.contains('/'))
        .ok_or_else(|| format!("content_type {text:?} is refused; write it as \"application/json\""))
}
