//! The named sinks of the configuration, and how a topic finds its own.
//!
//! Upstream: the program gives the configuration, dispatch binds topics. A named sink has one
//! connection, opened when it is first needed and shared by all topics that name it.

use std::collections::BTreeMap;
use std::sync::Arc;

use duetime_core::suggest::unknown;
use duetime_core::{BindError, Clock, Namespace, Sink, SinkBinder, SinkRef, TopicName};
use duetime_settings::TargetUrl;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::fault::SinkFault;
#[cfg(feature = "http")]
use crate::http::{HttpConfig, HttpTarget};
#[cfg(feature = "redis-stream")]
use crate::in_place::InPlaceTarget;
#[cfg(feature = "kafka")]
use crate::kafka::{KafkaConfig, KafkaTarget};
use crate::log::{LogConfig, LogTarget};
#[cfg(feature = "nats")]
use crate::nats::{NatsConfig, NatsTarget};
#[cfg(feature = "rabbitmq")]
use crate::rabbitmq::{RabbitMqConfig, RabbitMqTarget};
#[cfg(feature = "redis-stream")]
use crate::redis_stream::{RedisStreamConfig, RedisStreamTarget};
use crate::remedy::with_remedy;
use crate::target::Target;

/// One `[sinks.NAME]` of the configuration file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SinkConfig {
    /// Lines in the node's own log.
    Log(LogConfig),
    /// A webhook.
    #[cfg(feature = "http")]
    Http(Box<HttpConfig>),
    /// A RabbitMQ broker.
    #[cfg(feature = "rabbitmq")]
    RabbitMq(Box<RabbitMqConfig>),
    /// A NATS JetStream server.
    #[cfg(feature = "nats")]
    Nats(Box<NatsConfig>),
    /// A Kafka cluster.
    #[cfg(feature = "kafka")]
    Kafka(Box<KafkaConfig>),
    /// A Kafka cluster, to which this program was not built to speak.
    #[cfg(not(feature = "kafka"))]
    Kafka,
    /// Streams on a Redis server.
    #[cfg(feature = "redis-stream")]
    RedisStream(Box<RedisStreamConfig>),
}

impl SinkConfig {
    /// The types, as `type` in the file names them.
    pub const TYPES: &[&str] = &["log", "http", "rabbitmq", "nats", "kafka", "redis-stream"];

    /// Reads the settings of a sink of this type, all but `type` itself; `None`: there is no such type.
    pub fn read<'de, D: Deserializer<'de>>(kind: &str, settings: D) -> Option<Result<Self, D::Error>> {
        Some(match kind {
            "log" => LogConfig::deserialize(settings).map(Self::Log),
            #[cfg(feature = "http")]
            "http" => HttpConfig::deserialize(settings).map(Box::new).map(Self::Http),
            #[cfg(feature = "rabbitmq")]
            "rabbitmq" => RabbitMqConfig::deserialize(settings).map(Box::new).map(Self::RabbitMq),
            #[cfg(feature = "nats")]
            "nats" => NatsConfig::deserialize(settings).map(Box::new).map(Self::Nats),
            #[cfg(feature = "kafka")]
            "kafka" => KafkaConfig::deserialize(settings).map(Box::new).map(Self::Kafka),
            #[cfg(not(feature = "kafka"))]
            "kafka" => serde::de::IgnoredAny::deserialize(settings).map(|_| Self::Kafka),
            #[cfg(feature = "redis-stream")]
            "redis-stream" => RedisStreamConfig::deserialize(settings).map(Box::new).map(Self::RedisStream),
            _ => return None,
        })
    }

    /// The type, as `type` in the file names it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Log(_) => "log",
            #[cfg(feature = "http")]
            Self::Http(_) => "http",
            #[cfg(feature = "rabbitmq")]
            Self::RabbitMq(_) => "rabbitmq",
            #[cfg(feature = "nats")]
            Self::Nats(_) => "nats",
            #[cfg(feature = "kafka")]
            Self::Kafka(_) => "kafka",
            #[cfg(not(feature = "kafka"))]
            Self::Kafka => "kafka",
            #[cfg(feature = "redis-stream")]
            Self::RedisStream(_) => "redis-stream",
        }
    }

    /// The Redis that it writes to, if it is one of its own.
    #[must_use]
    pub fn redis_url(&self) -> Option<&TargetUrl> {
        match self {
            #[cfg(feature = "redis-stream")]
            Self::RedisStream(config) => config.url.as_ref(),
            _ => None,
        }
    }

    /// Whether the sink delivers inside the store, which then has to be a Redis.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        match self {
            #[cfg(feature = "redis-stream")]
            Self::RedisStream(config) => config.in_place,
            _ => false,
        }
    }
}

/// The named sinks of the configuration, and how a topic finds its own.
#[derive(Debug)]
pub struct SinkRegistry {
    targets: BTreeMap<String, Arc<dyn Target>>,
}

impl SinkRegistry {
    /// Checks every configured sink; opens no connection. `clock` dates deliveries; no sink writes to a key
    /// that a store with `namespace` may have.
    ///
    /// # Errors
    ///
    /// A sentence for each sink that is wrong, with the fix.
    pub fn new(
        configs: BTreeMap<String, SinkConfig>,
        clock: Arc<dyn Clock>,
        namespace: &Namespace,
    ) -> Result<Arc<Self>, String> {
        let (registry, faults) = Self::of_good_ones(&configs, &clock, namespace);
        let faults: Vec<String> = faults.into_iter().map(|(name, fault)| format!("sinks.{name}: {fault}")).collect();
        if faults.is_empty() { Ok(registry) } else { Err(faults.join("; ")) }
    }

    /// The sinks that can be made, and what is wrong with the others. Opens no connection.
    #[must_use]
    pub fn of_good_ones(
        configs: &BTreeMap<String, SinkConfig>,
        clock: &Arc<dyn Clock>,
        namespace: &Namespace,
    ) -> (Arc<Self>, Vec<(String, SinkFault)>) {
        let (mut targets, mut faults) = (BTreeMap::new(), Vec::new());
        for (name, config) in configs {
            match make(config, clock, namespace) {
                Ok(target) => {
                    targets.insert(name.clone(), target);
                }
                Err(fault) => faults.extend(all_faults(config, fault).into_iter().map(|fault| (name.clone(), fault))),
            }
        }
        (Arc::new(Self { targets }), faults)
    }

    /// The names of the configured sinks.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.targets.keys().map(String::as_str)
    }

    /// Connects to each configured sink, and says for each what is wrong. Hands nothing over.
    pub async fn check(&self) -> Vec<(String, Result<(), String>)> {
        let checks =
            self.targets.iter().map(async |(name, target)| (name.clone(), target.check().await.map_err(with_remedy)));
        futures::future::join_all(checks).await
    }
}

#[cfg_attr(
    not(all(any(feature = "http", feature = "rabbitmq"), feature = "redis-stream")),
    expect(unused_variables, reason = "some sinks need no clock, and most no namespace")
)]
pub(crate) fn make(
    config: &SinkConfig,
    clock: &Arc<dyn Clock>,
    namespace: &Namespace,
) -> Result<Arc<dyn Target>, SinkFault> {
    Ok(match config {
        SinkConfig::Log(config) => Arc::new(LogTarget(config.clone())),
        #[cfg(feature = "http")]
        SinkConfig::Http(config) => Arc::new(HttpTarget::new(config, clock.clone())?),
        #[cfg(feature = "rabbitmq")]
        SinkConfig::RabbitMq(config) => Arc::new(RabbitMqTarget::new(config, clock.clone())?),
        #[cfg(feature = "kafka")]
        SinkConfig::Kafka(config) => Arc::new(KafkaTarget::new(config)?),
        #[cfg(not(feature = "kafka"))]
        SinkConfig::Kafka => {
            return Err(SinkFault::whole(
                "this program was built without Kafka, which needs `make` to build; install make, libssl-dev \
                 and pkg-config, then: cargo build --release --features kafka-tls",
            ));
        }
        #[cfg(feature = "nats")]
        SinkConfig::Nats(config) => Arc::new(NatsTarget::new(config)?),
        #[cfg(feature = "redis-stream")]
        SinkConfig::RedisStream(config) if config.in_place => Arc::new(InPlaceTarget::new(config)?),
        #[cfg(feature = "redis-stream")]
        SinkConfig::RedisStream(config) => Arc::new(RedisStreamTarget::new(config, namespace)?),
    })
}

/// `first`, which was met when the sink was made, and what else is wrong with it.
fn all_faults(config: &SinkConfig, first: SinkFault) -> Vec<SinkFault> {
    match config {
        #[cfg(feature = "http")]
        SinkConfig::Http(config) => {
            let mut all = HttpTarget::faults(config);
            if !all.contains(&first) {
                all.push(first);
            }
            all
        }
        _ => vec![first],
    }
}

impl SinkBinder for SinkRegistry {
    fn bind(&self, topic: &TopicName, sink: &SinkRef) -> Result<Arc<dyn Sink>, BindError> {
        let Some(target) = self.targets.get(&sink.name) else {
            let configured = self.names().map(str::to_owned).collect();
            return Err(BindError::UnknownSink { name: sink.name.clone(), configured });
        };
        let bound = target.clone().bind(topic, &sink.settings);
        bound.map_err(|error| BindError::Refused(format!("sink {:?}: {error}", sink.name)))
    }
}

/// A whole section, `type` included. [`SinkConfig::read`] can say where in it a fault lies, and this cannot.
impl<'de> Deserialize<'de> for SinkConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut settings = Map::deserialize(from)?;
        let kind = settings.remove("type").ok_or_else(|| D::Error::missing_field("type"))?;
        let kind = kind.as_str().unwrap_or_default();
        let read = Self::read(kind, Value::Object(settings));
        read.ok_or_else(|| D::Error::custom(unknown("type", kind, Self::TYPES)))?.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use duetime_testkit::WallClock;

    use super::*;

    fn registry(text: &str) -> Result<Arc<SinkRegistry>, String> {
        let configs = toml::from_str(text).map_err(|error| error.to_string())?;
        SinkRegistry::new(configs, Arc::new(WallClock), &Namespace::default())
    }

    fn bind(registry: &SinkRegistry, sink: serde_json::Value) -> Result<Arc<dyn Sink>, String> {
        let bound = registry.bind(&TopicName::new("orders").unwrap(), &serde_json::from_value(sink).unwrap());
        bound.map_err(|error| error.listing(|_| true))
    }

    #[test]
    fn a_topic_finds_its_sink_by_name_and_a_wrong_name_lists_the_known_ones() {
        let sinks = registry("[audit]\ntype = \"log\"\n[bench]\ntype = \"log\"\ncount_only = true").unwrap();
        assert_eq!(bind(&sinks, serde_json::json!({"name": "audit"})).unwrap().kind(), "log");
        let error = bind(&sinks, serde_json::json!({"name": "audti"})).unwrap_err();
        assert_eq!(error, "no sink is called \"audti\"; did you mean \"audit\"? Configured: audit and bench");
        let unknown = SinkRef { name: "audti".to_owned(), settings: Map::new() };
        let error = sinks.bind(&TopicName::new("orders").unwrap(), &unknown).unwrap_err();
        assert!(error.listing(|name| name == "bench").ends_with("configured: bench"), "{error}");
        for shown in [error.to_string(), error.listing(|_| false)] {
            assert!(!shown.contains("bench") && !shown.contains("audit"), "it names what nobody may see: {shown}");
        }
        let error = bind(&sinks, serde_json::json!({"name": "audit", "path": "/x"})).unwrap_err();
        assert!(error.starts_with("sink \"audit\": unknown sink setting \"path\""), "{error}");
        // Where no name is near, it says both ways to have one.
        for (sinks, end) in [(&registry("").unwrap(), "name another"), (&sinks, "configured: audit and bench")] {
            let error = bind(sinks, serde_json::json!({"name": "x"})).unwrap_err();
            assert!(error.contains("[sinks.NAME] in the file") && error.contains("`duetime sink put`"), "{error}");
            assert!(error.ends_with(end), "{error}");
        }
    }

    #[cfg(not(feature = "kafka"))]
    #[test]
    fn a_program_without_kafka_says_how_to_have_it() {
        let error = registry("[k]\ntype = \"kafka\"\nbrokers = \"a:9092\"").unwrap_err();
        assert!(error.starts_with("sinks.k: ") && error.contains("--features kafka-tls"), "{error}");
    }

    #[test]
    fn an_unknown_key_or_type_in_the_configuration_is_refused() {
        for (text, says) in
            [("[a]\ntype = \"log\"\ncount_olny = true", "count_only"), ("[a]\ntype = \"pigeon\"", "pigeon")]
        {
            let error = registry(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
