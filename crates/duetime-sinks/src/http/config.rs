//! The settings of a webhook: in the configuration file, and per topic.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_settings::{ClientTls, Secret, TargetUrl};
use hyper::Method;
use serde::Deserialize;

use super::batch::MESSAGES_MAX;
use crate::fault::SinkFault;
use crate::probe_wait::ProbeWaitMax;
use crate::settings;

/// The type as in the configuration.
pub const KIND: &str = "http";

/// `type = "http"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// Where messages are posted: `http://` or `https://`. Required. No user or password in it: put
    /// credentials into `headers`.
    pub url: TargetUrl,
    /// URLs that topics may name instead of `url`, also one for each message: `https://*.shop.example/hooks/*`,
    /// `https://hooks.example:8443`. Without a port it is that of the scheme, and `:*` is any. Default: none.
    ///
    /// Every one of them is sent `headers`, and signed requests.
    #[serde(default)]
    pub targets: Vec<String>,
    /// Methods that topics may name instead of `POST`: `PUT`, `PATCH`, `DELETE`. Default: none.
    #[serde(default)]
    pub methods: Vec<WebhookMethod>,
    /// Secrets that sign each request per Standard Webhooks, `whsec_…`. Default none: unsigned.
    ///
    /// Give the new one beside the old one while the receiver changes over; each signs.
    #[serde(default)]
    pub signing_secrets: Vec<Secret>,
    /// Headers of every request, for credentials: `authorization = "Bearer …"`. Default none.
    /// A header of a message with the same name is left out.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// `content-type` of messages that bring none in their headers. Default: `application/json` for an object or
    /// an array of JSON, else `application/octet-stream`.
    #[serde(default)]
    pub content_type: Option<String>,
    /// What names of message headers are prefixed with, e.g. `x-duetime-`. Default none: as they are.
    #[serde(default)]
    pub header_prefix: String,
    /// Longest time one request may take, from 10ms to 5m. Default `10s`.
    ///
    /// Keep twice that below the topic's `visibility_timeout`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<10>")]
    pub timeout: Duration,
    /// Longest time to connect. Default `3s`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<3>")]
    pub connect_timeout: Duration,
    /// Most messages in one request, 1 to 100. Default 1: the body is the payload of one message.
    ///
    /// With more the body is a JSON array, of what is due together: no message waits for others.
    #[serde(default = "one")]
    pub batch: usize,
    /// Requests in flight at once, over all topics of this sink, 1 to 4096. Default 64.
    #[serde(default = "sixty_four")]
    pub concurrency: usize,
    /// Requests a second, over all topics of this sink. Default: no limit.
    #[serde(default)]
    pub per_second: Option<f64>,
    /// Addresses, ranges (`10.0.0.0/8`) and host names that may be reached although they are loopback,
    /// private, link-local or otherwise not public. Default none.
    #[serde(default)]
    pub allow: Vec<String>,
    /// The only addresses, ranges and host names that may be reached, public ones too. Default: all that
    /// is public. What is not public has to be in `allow` besides.
    #[serde(default)]
    pub only: Option<Vec<String>>,
    /// A PEM file of the authorities that are trusted instead of the system's. Default: the system's.
    #[serde(rename = "ca_file", default, deserialize_with = "ClientTls::of_ca_file")]
    pub certificates: ClientTls,
    /// How much of an answer is read before the connection is given up. Default 64 KiB.
    #[serde(with = "duetime_core::units::size", default = "sixty_four_kib")]
    pub max_response: u64,
    /// Longest wait between two tries of a target that is down, from 100ms to 1h. Default `5s`.
    ///
    /// Higher where each try is a burden for the target; what waited is that much later once it is back.
    #[serde(default)]
    pub max_probe_wait: ProbeWaitMax,
}

const fn one() -> usize {
    1
}

const fn sixty_four() -> usize {
    64
}

const fn sixty_four_kib() -> u64 {
    64 << 10
}

/// The method of a request that hands messages over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum WebhookMethod {
    /// Of all topics that name none.
    #[default]
    Post,
    /// For receivers that keep the body under the URL.
    Put,
    /// For receivers that change what is under the URL.
    Patch,
    /// For receivers that remove what is under the URL; the payload is sent all the same.
    Delete,
}

impl From<WebhookMethod> for Method {
    fn from(method: WebhookMethod) -> Self {
        match method {
            WebhookMethod::Post => Self::POST,
            WebhookMethod::Put => Self::PUT,
            WebhookMethod::Patch => Self::PATCH,
            WebhookMethod::Delete => Self::DELETE,
        }
    }
}

/// What a topic may set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Added to the path of `url`: begins with `/`, no query. Default none.
    pub path: Option<String>,
    /// Instead of the sink's, a template; what it becomes for a message must be in `targets` of the sink. Default: the
    /// sink's.
    pub url: Option<String>,
    /// Instead of `POST`, one of `methods` of the sink.
    pub method: WebhookMethod,
    /// Instead of the sink's.
    pub content_type: Option<String>,
}

impl HttpSettings {
    /// The names of the settings.
    pub const KNOWN: &[&str] = &["path", "url", "method", "content_type"];

    /// Whether a topic may set this with the sink `config`.
    ///
    /// # Errors
    ///
    /// A sentence with the fix.
    pub fn check(&self, config: &HttpConfig) -> Result<(), String> {
        let is_post = self.method == WebhookMethod::Post;
        let refusal = match () {
            () if config.batch > 1 && self.content_type.is_some() => {
                "content_type is of no use where the sink has batch: it sends JSON; leave it out"
            }
            () if config.batch > 1 && (self.url.is_some() || !is_post) => {
                "url and method are refused where the sink has batch: a request has several messages; leave them \
                 out, or name a sink without batch"
            }
            () if self.url.is_some() && self.path.is_some() => {
                "path is added to `url` of the sink; write it into url of the topic, or leave url out"
            }
            () if self.url.is_some() && config.targets.is_empty() => {
                "url needs a sink that says where messages may go; set targets of the sink, such as \
                 [\"https://*.shop.example\"], or leave url out"
            }
            () if !is_post && !config.methods.contains(&self.method) => {
                "method is none that the sink allows; add it to methods of the sink, such as [\"PUT\"], or leave it out"
            }
            () => return Ok(()),
        };
        Err(refusal.to_owned())
    }
}

impl HttpConfig {
    /// All values that make no sense by themselves: the key, and a sentence with the fix.
    #[must_use]
    pub fn faults(&self) -> Vec<SinkFault> {
        let mut found = Vec::new();
        let mut add = |key, text: &str| found.push(SinkFault::at(key, text));
        if !(Duration::from_millis(10)..=Duration::from_secs(300)).contains(&self.timeout) {
            add("timeout", "timeout must be 10ms to 5m");
        }
        if self.connect_timeout.is_zero() {
            add("connect_timeout", "connect_timeout must be above 0");
        }
        if !(1..=MESSAGES_MAX).contains(&self.batch) {
            add("batch", "batch must be 1 to 100");
        }
        if self.batch > 1 && (self.content_type.is_some() || !self.header_prefix.is_empty()) {
            add("batch", "batch sends an array of JSON, headers within; leave content_type and header_prefix out");
        }
        if !(1..=4096).contains(&self.concurrency) {
            add("concurrency", "concurrency must be 1 to 4096");
        }
        if self.per_second.is_some_and(|rate| !(0.001..=1_000_000.0).contains(&rate)) {
            add("per_second", "per_second must be 0.001 to 1000000");
        }
        let scheme = self.url.expose().get(..7);
        let is_plain = scheme.is_some_and(|it| it.eq_ignore_ascii_case("http://")) && !self.has_https_target();
        if self.certificates.ca_file.is_some() && is_plain {
            add("ca_file", "ca_file is only of use with an https:// url; write https, or leave ca_file out");
        }
        found
    }

    /// Whether messages may go to an `https://` URL of their own.
    #[must_use]
    pub fn has_https_target(&self) -> bool {
        let is_https = |target: &String| target.get(..8).is_some_and(|it| it.eq_ignore_ascii_case("https://"));
        self.targets.iter().any(is_https)
    }

    /// How many requests of one topic are worth having in flight: under a rate limit, no more than
    /// have their turn within half the time-out.
    #[must_use]
    pub fn calls_max(&self) -> usize {
        match self.per_second {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to be small and positive"
            )]
            Some(rate) => ((rate * self.timeout.as_secs_f64() / 2.0) as usize).clamp(1, self.concurrency),
            None => self.concurrency,
        }
    }
}
