//! The settings of a RabbitMQ broker: in the configuration file, and per topic.

use std::time::Duration;

use duetime_settings::{ClientTls, TargetUrl};
use serde::Deserialize;

use crate::fault::SinkFault;
use crate::probe_wait::ProbeWaitMax;
use crate::settings;

/// The type as in the configuration.
pub const KIND: &str = "rabbitmq";

/// `type = "rabbitmq"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RabbitMqConfig {
    /// The broker: `amqp://user:password@host:5672/vhost`, `amqps://` for TLS. Required.
    ///
    /// Without a path the vhost is `/`; a vhost `orders` is written `/orders`.
    pub url: TargetUrl,
    /// Longest wait for a confirm while the broker confirms nothing on the connection; while it confirms others,
    /// half as long again. Default `10s`.
    ///
    /// What may be unconfirmed, over all topics of the sink, is what the broker confirms in an eighth of this.
    /// Keep it below half the topic's `visibility_timeout`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<10>")]
    pub timeout: Duration,
    /// Longest time to connect and log in. Default `5s`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<5>")]
    pub connect_timeout: Duration,
    /// Channels per topic, each with one batch in flight, 1 to 256. Default 8.
    #[serde(default = "eight")]
    pub channels: usize,
    /// Most messages in one batch, 1 to 256. Default 128.
    #[serde(default = "batch")]
    pub batch: usize,
    /// A PEM file of an authority that is trusted besides the public ones. Default none.
    #[serde(rename = "ca_file", default, deserialize_with = "ClientTls::of_ca_file")]
    pub certificates: ClientTls,
    /// Longest wait between two tries of a target that is down, from 100ms to 1h. Default `5s`.
    ///
    /// Higher where each try is a burden for the target; what waited is that much later once it is back.
    #[serde(default)]
    pub max_probe_wait: ProbeWaitMax,
}

const fn eight() -> usize {
    8
}

const fn batch() -> usize {
    128
}

impl RabbitMqConfig {
    /// Refuses values that make no sense.
    pub fn check(&self) -> Result<(), SinkFault> {
        if !(Duration::from_millis(10)..=Duration::from_secs(300)).contains(&self.timeout) {
            return Err(SinkFault::at("timeout", "timeout must be 10ms to 5m"));
        }
        if self.connect_timeout.is_zero() {
            return Err(SinkFault::at("connect_timeout", "connect_timeout must be above 0"));
        }
        if !(1..=256).contains(&self.channels) {
            return Err(SinkFault::at("channels", "channels must be 1 to 256"));
        }
        if !(1..=256).contains(&self.batch) {
            return Err(SinkFault::at("batch", "batch must be 1 to 256"));
        }
        let scheme = self.url.expose().get(..7);
        if self.certificates.ca_file.is_some() && scheme.is_some_and(|it| it.eq_ignore_ascii_case("amqp://")) {
            let fault = "ca_file is only of use with an amqps:// url; write amqps, or leave ca_file out";
            return Err(SinkFault::at("ca_file", fault));
        }
        Ok(())
    }
}

/// What a topic may set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RabbitMqSettings {
    /// The exchange, which must exist. Default: the nameless one, which routes to the queue that is
    /// called as the routing key.
    pub exchange: String,
    /// The routing key, a template over `{topic}`, `{id}` and `{header.NAME}`. Default `{topic}`.
    pub routing_key: String,
    /// A message that no queue takes comes back and is tried again. Default `true`; `false` lets the
    /// broker drop it.
    pub mandatory: bool,
    /// The broker keeps messages over its restart. Default `true`.
    pub persistent: bool,
    /// `content_type` of messages that bring no header of that name. Default: `application/json` for an object or
    /// an array of JSON, else `application/octet-stream`.
    pub content_type: Option<String>,
}

impl Default for RabbitMqSettings {
    fn default() -> Self {
        Self {
            exchange: String::new(),
            routing_key: "{topic}".to_owned(),
            mandatory: true,
            persistent: true,
            content_type: None,
        }
    }
}

impl RabbitMqSettings {
    /// The names of the settings.
    pub const KNOWN: &[&str] = &["exchange", "routing_key", "mandatory", "persistent", "content_type"];
}
