//! Topics that are made by their first message: `[topics_default]`, and patterns such as `[topics."orders-*"]`.

use duetime_core::{TopicConfig, TopicName};
use duetime_http::FirstMessages;
use serde::Deserialize;
use toml::Table;

use super::Config;
use super::read::{self, Read};

/// Where there are as many topics, a first message makes none, unless the file says otherwise.
const TOPICS_MAX: usize = 1_000;

/// What holds for topics whose names begin alike.
#[derive(Clone, Debug, Default)]
pub struct TopicPattern {
    /// Their first message makes them.
    pub create: bool,
    /// Their settings then.
    pub config: TopicConfig,
}

/// The section `[topics_default]`: what holds for topics that no pattern is for.
#[derive(Clone, Debug)]
pub struct TopicsDefault {
    /// Where there are as many topics, a first message makes none.
    pub topics_max: usize,
    /// All else.
    pub pattern: TopicPattern,
}

impl Default for TopicsDefault {
    fn default() -> Self {
        Self { topics_max: TOPICS_MAX, pattern: TopicPattern::default() }
    }
}

/// Whether a section of `[topics]` is for all names of one beginning.
pub fn is_pattern(name: &str) -> bool {
    name.contains('*')
}

/// A name that a pattern is for, or what is wrong with the pattern.
pub fn example_of(pattern: &str) -> Result<TopicName, String> {
    let beginning = pattern.strip_suffix('*').filter(|beginning| !beginning.contains('*') && !beginning.is_empty());
    let help = "write the beginning of names followed by one *; what holds for all topics is in [topics_default]";
    let beginning = beginning.ok_or_else(|| help.to_owned())?;
    TopicName::new(&format!("{beginning}x")).map_err(|error| error.to_string())
}

/// Reads a section `[topics."orders-*"]`.
pub fn pattern(table: &Table) -> Read<TopicPattern> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Own {
        create: bool,
    }
    let (own, settings) = split(table, "create");
    let (own, config) = (read::section::<Own>(&own), read::section::<TopicConfig>(&settings));
    let faults = own.faults.into_iter().chain(config.faults).collect();
    let create = own.value.unwrap_or_default().create;
    Read { value: config.value.map(|config| TopicPattern { create, config }), faults }
}

/// Reads the section `[topics_default]`.
pub fn topics_default(table: &Table) -> Read<TopicsDefault> {
    #[derive(Deserialize)]
    #[serde(default)]
    struct Own {
        topics_max: usize,
    }
    impl Default for Own {
        fn default() -> Self {
            Self { topics_max: TOPICS_MAX }
        }
    }
    let (own, rest) = split(table, "topics_max");
    let (own, pattern) = (read::section::<Own>(&own), pattern(&rest));
    let faults = own.faults.into_iter().chain(pattern.faults).collect();
    let topics_max = own.value.unwrap_or_default().topics_max;
    Read { value: pattern.value.map(|pattern| TopicsDefault { topics_max, pattern }), faults }
}

/// A section of this key alone, and one of all others.
fn split(table: &Table, key: &str) -> (Table, Table) {
    table.clone().into_iter().partition(|(name, _)| name == key)
}

impl Config {
    /// Which topics are made by their first message.
    #[must_use]
    pub fn first_messages(&self) -> FirstMessages {
        let all = std::iter::once(("*", &self.topics_default.pattern))
            .chain(self.topic_patterns.iter().map(|(name, pattern)| (name.as_str(), pattern)));
        let patterns = all.map(|(name, pattern)| {
            let beginning = name.strip_suffix('*').unwrap_or(name);
            (beginning.to_owned(), pattern.create.then(|| pattern.config.clone()))
        });
        FirstMessages { patterns: patterns.collect(), topics_max: self.topics_default.topics_max }
    }
}
