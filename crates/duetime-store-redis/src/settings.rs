//! Copies of a topic's record beside its first shards: what is known of a topic whose record is lost.
//!
//! Upstream: `topic_lifecycle`, `topics`, `adopt`.

use duetime_core::store::StoreError;
use duetime_core::{RoutingId, Shard, TopicName, TopicRecord, stored};
use duetime_redis::Sending;
use redis::Cmd;
use tracing::warn;

use crate::calls::Calls;
use crate::reply::{store_error, text};

/// So many shards keep a copy of the settings, from the first on: they lie in as many parts of the slots.
pub(crate) const COPIES: u32 = 4;

/// The copy of a record: its version, which distinguishes copies, and the record.
pub(crate) fn copy(record: &TopicRecord) -> String {
    format!("{} {}", record.version, stored::write(record, None))
}

pub(crate) fn read_copy(copy: &str) -> Option<TopicRecord> {
    stored::read(copy.split_once(' ')?.1).ok()
}

/// Writes the copies of a record that was changed. A shard that does not answer keeps its older one.
pub(crate) async fn copy_settings(calls: &Calls, record: &TopicRecord) {
    for index in 0..COPIES.min(record.routing.shards) {
        let shard = record.routing.shard(&record.name, index);
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            calls.keys.fill_all(cmd, &shard);
            cmd.arg(record.routing.life()).arg(record.version).arg(copy(record)).arg(sending.not_after_ms);
        };
        if let Err(error) = calls.link.script(&calls.scripts.settings, &calls.keys.messages(&shard), fill).await {
            warn!(%shard, %error, "copy of the topic's settings could not be written");
        }
    }
}

/// The newest copy of the topic's record in this life.
pub(crate) async fn settings(calls: &Calls, topic: &TopicName, life: u64) -> Result<Option<TopicRecord>, StoreError> {
    let mut newest: Option<TopicRecord> = None;
    for index in 0..COPIES {
        let mut cmd = redis::cmd("HGET");
        cmd.arg(calls.keys.moved(&Shard::new(topic.clone(), index, RoutingId::default()))).arg("settings");
        let answer = calls.link.command("settings", &cmd).await;
        let answer = answer.map_err(|error| store_error("read the settings of a topic", None, error))?;
        if let Some(copy) = text(answer).as_deref().and_then(read_copy)
            && copy.routing.life() == life
            && newest.as_ref().is_none_or(|newest| newest.version < copy.version)
        {
            newest = Some(copy);
        }
    }
    Ok(newest)
}
