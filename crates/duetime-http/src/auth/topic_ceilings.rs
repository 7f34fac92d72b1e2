//! What each topic may have at most that a token's holder makes or changes.
//!
//! Who is `admin` of a topic sets its `max_messages`, `max_bytes` and `shards` by himself: the token says how far.

use std::sync::Arc;

use axum::http::StatusCode;
use duetime_core::{ShardCount, TopicConfig, TopicRecord};
use duetime_router::TopicChange;
use serde_json::Value;

use crate::json::problem::Problem;

/// What each topic may have at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicCeilings {
    /// As `max_messages` of a topic.
    pub messages: Option<u64>,
    /// As `max_bytes` of a topic.
    pub bytes: Option<u64>,
    /// As the number of its shards.
    pub shards: Option<u32>,
}

impl TopicCeilings {
    /// Those of the configuration, with a sentence in `faults` for each that lets nothing in.
    pub fn of(messages: Option<u64>, bytes: Option<u64>, shards: Option<u32>, faults: &mut Vec<String>) -> Self {
        let all = [("messages", messages), ("bytes", bytes), ("shards", shards.map(u64::from))];
        let nothing = all.into_iter().filter(|(_, most)| *most == Some(0));
        faults.extend(nothing.map(|(of, _)| format!("max_topic_{of} must be 1 or more; leave it out for no limit")));
        let least = TopicConfig::default().max_payload;
        if bytes.is_some_and(|most| (1..least).contains(&most)) {
            let kib = least >> 10;
            faults.push(format!("max_topic_bytes must be {kib} KiB or more: one message of a topic may be that long"));
        }
        Self { messages, bytes, shards }
    }

    /// Whether there is any.
    pub fn is_some(&self) -> bool {
        *self != Self::default()
    }

    /// The change as it may be made to `present` (`None`: the topic is made by it), refused where it passes a ceiling.
    /// A limit that the change leaves to the default is the ceiling; one that it does not name stays. `shards`: how
    /// many a topic may come to have with such a count.
    pub fn bound(
        &self,
        mut change: TopicChange,
        present: Option<&Arc<TopicRecord>>,
        shards: impl Fn(ShardCount) -> u32,
    ) -> Result<TopicChange, Problem> {
        let is_new = present.is_none();
        for (field, most) in [("max_messages", self.messages), ("max_bytes", self.bytes)] {
            if let Some(most) = most {
                change = change.with_default(field, Value::from(most), is_new);
            }
        }
        let base = present.map_or_else(TopicConfig::default, |record| record.config.clone());
        let config = change.apply(&base)?;
        let number = u64::from(shards(config.shards));
        let bounds = [
            ("max_messages", self.messages, config.max_messages, change.has("max_messages")),
            ("max_bytes", self.bytes, config.max_bytes, change.has("max_bytes")),
            ("shards", self.shards.map(u64::from), Some(number), is_new || change.has("shards")),
        ];
        for (field, most, asked, is_named) in bounds {
            let Some(most) = most.filter(|most| is_named && asked.is_none_or(|asked| asked > *most)) else { continue };
            let asked = asked.map_or_else(|| "no limit".to_owned(), |asked| asked.to_string());
            let detail = format!(
                "{field} would be {asked}, and this token may give a topic {most} at most; ask for less, or have the \
                 token's ceiling raised"
            );
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).at(field));
        }
        Ok(change)
    }
}
