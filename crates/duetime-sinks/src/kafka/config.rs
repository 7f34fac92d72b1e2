//! The settings of a Kafka cluster: in the configuration file, and per topic.

use std::collections::BTreeMap;
use std::time::Duration;

use duetime_core::suggest::listed;
use duetime_settings::{ClientTls, Redactor, Secret};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use serde::Deserialize;

use crate::fault::SinkFault;
use crate::probe_wait::ProbeWaitMax;
use crate::settings;

/// The type as in the configuration.
pub const KIND: &str = "kafka";

/// Messages that wait in the producer, over all topics of the sink: a bound that is never met, for
/// each topic has its own.
const QUEUED_MAX: &str = "200000";
/// How much they take.
const QUEUED_KIB_MAX: &str = "524288";
/// How long a record waits for others to travel with.
const LINGER_MS: &str = "2";
/// Longest pause before a lost broker is tried again.
const RECONNECT_MS_MAX: &str = "1000";
/// Longest text of what the client library says of a property.
const REASON_BYTES_MAX: usize = 300;

/// Properties that would break what the sink promises, or that have a key of their own.
const RESERVED: &[&str] = &[
    "acks",
    "bootstrap.servers",
    "debug",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "message.timeout.ms",
    "metadata.broker.list",
    "plugin.library.paths",
    "request.required.acks",
    "sasl.password",
    "sasl.username",
    "transactional.id",
];

/// How records are compressed on the wire and on the brokers' disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// DEFLATE.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// How to log in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sasl {
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`. Default `PLAIN`.
    #[serde(default = "plain")]
    pub mechanism: String,
    /// The user.
    pub user: String,
    /// Its password.
    pub password: Secret,
}

fn plain() -> String {
    "PLAIN".to_owned()
}

/// `type = "kafka"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaConfig {
    /// Where to start: `a.example:9092,b.example:9092`. Required. The others are found from there.
    pub brokers: String,
    /// TLS to the brokers. Default `false`.
    #[serde(default)]
    pub tls: bool,
    /// A PEM file of the authorities that are trusted instead of the system's. Default: the system's.
    #[serde(rename = "ca_file", default, deserialize_with = "ClientTls::of_ca_file")]
    pub certificates: ClientTls,
    /// How to log in. Default none.
    #[serde(default)]
    pub sasl: Option<Sasl>,
    /// `none`, `gzip`, `snappy`, `lz4` or `zstd`. Default `none`.
    #[serde(default)]
    pub compression: Compression,
    /// Longest time until all in-sync replicas have a message. Default `10s`.
    ///
    /// Keep it below half the topic's `visibility_timeout`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<10>")]
    pub timeout: Duration,
    /// Longest time to connect, login included. Default `5s`.
    #[serde(with = "duetime_core::units::duration", default = "settings::seconds::<5>")]
    pub connect_timeout: Duration,
    /// Largest message, with headers and key. Default `1000000`, as brokers have it; raise both.
    #[serde(with = "duetime_core::units::size", default = "million")]
    pub max_message: u64,
    /// Further properties of librdkafka, as text: `{ "client.rack" = "a" }`. Default none. Values are
    /// kept as secret as passwords. What the sink's promise rests on cannot be set.
    #[serde(default)]
    pub properties: BTreeMap<String, Secret>,
    /// Longest wait between two tries of a target that is down, from 100ms to 1h. Default `5s`.
    ///
    /// Higher where each try is a burden for the target; what waited is that much later once it is back.
    #[serde(default)]
    pub max_probe_wait: ProbeWaitMax,
}

const fn million() -> u64 {
    1_000_000
}

impl KafkaConfig {
    /// Refuses values that make no sense, and what this program was not built for.
    pub fn check(&self) -> Result<(), SinkFault> {
        let refused = |key, text: &str| Err(SinkFault::at(key, text));
        let host_like = |broker: &str| !broker.is_empty() && !broker.contains(['@', '/', ' ']);
        if !self.brokers.split(',').map(str::trim).all(host_like) {
            return refused("brokers", "brokers is refused; write it as \"a.example:9092,b.example:9092\"");
        }
        if !(Duration::from_millis(100)..=Duration::from_secs(300)).contains(&self.timeout) {
            return refused("timeout", "timeout must be 100ms to 5m");
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&self.connect_timeout) {
            return refused("connect_timeout", "connect_timeout must be 1s to 5m");
        }
        if !(1_000..=1_000_000_000).contains(&self.max_message) {
            return refused("max_message", "max_message must be 1000 to 1000000000 bytes");
        }
        let scram = self.sasl.as_ref().is_some_and(|sasl| sasl.mechanism.starts_with("SCRAM-"));
        if cfg!(not(feature = "kafka-tls")) && (self.tls || scram) {
            let fault = "this program was built without TLS and SCRAM for Kafka; build it with \
                         `--features kafka-tls`";
            return refused(if self.tls { "tls" } else { "sasl" }, fault);
        }
        if let Some(sasl) = &self.sasl {
            const KNOWN: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
            if !KNOWN.contains(&sasl.mechanism.as_str()) {
                return refused("sasl", &format!("sasl.mechanism must be {}", listed(KNOWN)));
            }
        }
        if let Some(file) = &self.certificates.ca_file {
            if !self.tls {
                return refused("ca_file", "ca_file is only of use with tls = true");
            }
            file.read("ca_file").map_err(|fault| SinkFault::at("ca_file", fault))?;
        }
        for name in self.properties.keys() {
            if RESERVED.contains(&name.as_str()) {
                let fault = format!("properties may not set {name:?}: the sink sets it, or its promise rests on it");
                return refused("properties", &fault);
            }
        }
        Ok(())
    }

    /// What must never be shown.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let password = self.sasl.iter().map(|sasl| &sasl.password);
        password.chain(self.properties.values()).map(|secret| secret.expose().to_owned()).collect()
    }

    /// The settings as the client library takes them.
    ///
    /// # Errors
    ///
    /// A sentence that names the refused property, without its value.
    pub(crate) fn client(&self, redactor: &Redactor) -> Result<ClientConfig, SinkFault> {
        let timeout = self.timeout.as_millis().to_string();
        // How long a topic that nobody knows may yet come; without this bound the message's time-out
        // comes first, and hides why.
        let unknown = (self.timeout / 4).as_millis().to_string();
        let connect = self.connect_timeout.as_millis().to_string();
        let protocol = match (self.tls, &self.sasl) {
            (false, None) => "plaintext",
            (true, None) => "ssl",
            (false, Some(_)) => "sasl_plaintext",
            (true, Some(_)) => "sasl_ssl",
        };
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", "duetime")
            .set("security.protocol", protocol)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("compression.type", self.compression.word())
            .set("message.timeout.ms", &timeout)
            .set("message.max.bytes", self.max_message.to_string())
            .set("topic.metadata.propagation.max.ms", &unknown)
            .set("socket.connection.setup.timeout.ms", &connect)
            .set("reconnect.backoff.max.ms", RECONNECT_MS_MAX)
            .set("linger.ms", LINGER_MS)
            .set("queue.buffering.max.messages", QUEUED_MAX)
            .set("queue.buffering.max.kbytes", QUEUED_KIB_MAX)
            // A key goes to the partition to which the Java producer would send it.
            .set("partitioner", "murmur2_random");
        if let Some(sasl) = &self.sasl {
            client
                .set("sasl.mechanisms", &sasl.mechanism)
                .set("sasl.username", &sasl.user)
                .set("sasl.password", sasl.password.expose());
        }
        if let Some(file) = &self.certificates.ca_file {
            client.set("ssl.ca.location", file.path().to_string_lossy());
        }
        for (name, value) in &self.properties {
            client.set(name, value.expose());
        }
        match client.create_native_config() {
            Ok(_) => Ok(client),
            Err(KafkaError::ClientConfig(_, said, name, _)) => {
                let fault = format!("{name} is refused: {}", redactor.redact(&said, REASON_BYTES_MAX));
                Err(SinkFault::at("properties", fault))
            }
            Err(error) => Err(SinkFault::whole(redactor.redact(&error.to_string(), REASON_BYTES_MAX))),
        }
    }
}

/// What a topic may set.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaSettings {
    /// The topic over there, a template over `{topic}`, `{id}` and `{header.NAME}`; in what is filled
    /// in, all but letters, digits, `.`, `_` and `-` becomes `_`. Default `{topic}`.
    pub topic: String,
    /// The record's key, a template too: records with one key keep their order. Default `{id}`; an
    /// empty one spreads records over all partitions.
    pub key: String,
}

impl Default for KafkaSettings {
    fn default() -> Self {
        Self { topic: "{topic}".to_owned(), key: "{id}".to_owned() }
    }
}

impl KafkaSettings {
    /// The names of the settings.
    pub const KNOWN: &[&str] = &["topic", "key"];
}
