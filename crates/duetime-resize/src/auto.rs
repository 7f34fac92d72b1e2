//! `shards = "auto"`: follows the number of nodes, with patience, so that a restart moves nothing.

use std::collections::HashMap;

use duetime_core::TopicName;
use tokio::time::Instant;

use crate::config::ResizeConfig;

/// Since when which number is wanted, by topic.
#[derive(Debug, Default)]
pub(crate) struct Auto(HashMap<TopicName, (u32, Instant)>);

impl Auto {
    /// What the topic should have by the number of nodes, if that has been so for long enough.
    pub fn wants(&mut self, topic: &TopicName, present: u32, wanted: u32, config: &ResizeConfig) -> Option<u32> {
        if wanted == present {
            self.0.remove(topic);
            return None;
        }
        let now = Instant::now();
        let since = self.0.entry(topic.clone()).or_insert((wanted, now));
        if since.0 != wanted {
            *since = (wanted, now);
        }
        let patience = if wanted > present { config.auto_grow_after } else { config.auto_shrink_after };
        (since.1.elapsed() >= patience).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn auto_grows_soon_shrinks_late_and_a_restart_of_a_node_moves_nothing() {
        let (mut auto, config) = (Auto::default(), ResizeConfig::default());
        let topic = TopicName::new("t").unwrap();
        let mut wants = |nodes| auto.wants(&topic, 8, config.auto().shards(nodes), &config);
        assert_eq!(wants(2), None);
        assert_eq!(wants(3), None);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(wants(3), None);
        assert_eq!(wants(5), None, "another number, another wait");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(wants(5), Some(32));
        for _ in 0..20 {
            assert_eq!(wants(1), None);
            tokio::time::sleep(Duration::from_secs(300)).await;
            assert_eq!(wants(2), None);
        }
        assert_eq!(wants(1), None);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(wants(1), Some(4));
    }
}
