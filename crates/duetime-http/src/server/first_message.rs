//! Which topics are made by their first message, as the configuration has it.

use duetime_core::TopicConfig;

/// Which topics are made by their first message, and with which settings.
#[derive(Clone, Debug, Default)]
pub struct FirstMessages {
    /// Beginnings of names, with the settings of their topics; `None`: these are not made. The longest decides.
    pub patterns: Vec<(String, Option<TopicConfig>)>,
    /// Where there are as many topics, none is made.
    pub topics_max: usize,
}

impl FirstMessages {
    /// The settings of a topic that its first message makes; `None`: it makes none.
    pub(crate) fn settings_of(&self, topic: &str) -> Option<&TopicConfig> {
        let matching = self.patterns.iter().filter(|(beginning, _)| topic.starts_with(beginning));
        matching.max_by_key(|(beginning, _)| beginning.len())?.1.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_decides() {
        let of = |shards| Some(TopicConfig { max_messages: Some(shards), ..TopicConfig::default() });
        let patterns = [("", of(1)), ("orders-", of(2)), ("orders-secret-", None), ("orders-secret-eu", of(3))];
        let patterns = patterns.map(|(beginning, config)| (beginning.to_owned(), config)).to_vec();
        let rules = FirstMessages { patterns, topics_max: 1 };
        let found = |topic| rules.settings_of(topic).and_then(|config| config.max_messages);
        let names = ["bills", "orders-1", "orders-secret-1", "orders-secret-eu"];
        assert_eq!(names.map(found), [Some(1), Some(2), None, Some(3)]);
        assert!(FirstMessages::default().settings_of("a").is_none());
    }
}
