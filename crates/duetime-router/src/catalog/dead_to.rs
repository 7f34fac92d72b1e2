//! Which topic another one may forward its dead letters to.

use std::time::Duration;

use duetime_core::{TopicName, TopicRecord, Topics};

use crate::error::CatalogError;

/// Shortest `remember` of a topic to which letters are forwarded. A letter may be there, delivered and gone while it is
/// also where it died: until the next look, until another node has the shard, or while a call of a node that stalled is
/// on its way.
const REMEMBER_LEAST: Duration = Duration::from_secs(600);

/// Refuses a topic that does not remember for long enough, which could take one letter twice, and a way of more than one
/// step: a letter is forwarded once. A topic that is not there may be created later, so letters wait for it.
///
/// It goes by the topics as they are known here. What another node changes at the same moment is seen as letters are
/// forwarded: one that was forwarded before stays where it dies.
pub(crate) fn check(topic: &TopicName, to: &TopicName, topics: &Topics) -> Result<(), CatalogError> {
    let refuse = |detail: String| Err(CatalogError::Invalid { field: Some("dead_to".to_owned()), detail });
    if to == topic {
        return refuse("dead_to names the topic itself; name another topic, or leave it out".to_owned());
    }
    if topics.values().any(|other| other.config.dead_to.as_ref() == Some(topic)) {
        return refuse(format!(
            "dead_to: other topics forward their dead letters to {topic}, and a letter is forwarded once; leave dead_to out here"
        ));
    }
    let Some(target) = topics.get(to) else { return Ok(()) };
    if target.config.dead_to.is_some() {
        return refuse(format!(
            "dead_to: {to} forwards its own dead letters, and a letter is forwarded once; name a topic that keeps its own"
        ));
    }
    if let Some(why) = forgets(target) {
        return refuse(format!("dead_to: {why}"));
    }
    Ok(())
}

/// Why nothing is forwarded to this topic, if it does not remember for long enough.
pub(crate) fn forgets(to: &TopicRecord) -> Option<String> {
    let name = &to.name;
    (to.config.remember < REMEMBER_LEAST).then(|| {
        format!(
            "{name} does not remember what became of its messages for 10m at least, so that a letter could come twice; let \
             it: duetime topic set {name} --remember 1h"
        )
    })
}
