//! Shards that a change of the routing makes: each is made closed, then noted beside the topic's first shard, then
//! opened. So one that is gone later is known to have been there, and whoever finds it missing finds it lost.
//!
//! Upstream: `moves` (fence), `adopt`.

use std::collections::BTreeSet;

use duetime_core::reshard::Floor;
use duetime_core::store::StoreError;
use duetime_core::{Routing, Shard, TopicName};
use duetime_redis::Sending;
use redis::{Cmd, Pipeline};

use crate::moves::Making;
use crate::reply::{int, odd, store_error, text};
use crate::store::RedisStore;

/// The name of the record that a shard has before it is opened: below every record of its life.
pub(crate) const CLOSED: &str = "closed";

impl RedisStore {
    /// Makes `shard` for the change to `record`, if that was not done before, and has it noted. What is missing
    /// afterwards is lost.
    pub(crate) async fn make_noted(&self, shard: &Shard, record: &Routing, deleted: u64) -> Result<(), StoreError> {
        if self.noted_of(&shard.topic, record, shard.index..shard.index + 1).await?.contains(&shard.index) {
            return Ok(());
        }
        let closed = Routing { rid: CLOSED.to_owned(), ..record.clone() };
        let closed = Routing { epoch: record.epoch - record.change(), ..closed };
        match self.fence_making(shard, &closed, &Floor::default(), Making::New, deleted).await {
            // One that was retired is there, and has a later record.
            Ok(_) | Err(StoreError::Stale(_)) => {}
            Err(error) => return Err(error),
        }
        let first = record.shard(&shard.topic, 0);
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            self.keys.fill_all(cmd, &first);
            cmd.arg(record.life()).arg(shard.index).arg(record.epoch).arg(sending.not_after_ms);
        };
        let (script, key) = (&self.scripts.made, self.keys.messages(&first));
        let run = self.link.replicated(script, &key, self.durability.replicas(), fill).await;
        let (kept, _) = run.map_err(|error| store_error("note that a shard is made", Some(&first), error))?;
        if int(&kept)? == 1 { Ok(()) } else { Err(StoreError::UnknownShard(first.to_string())) }
    }

    /// Which of these shards were made for the change to `record`.
    pub(crate) async fn noted_of(
        &self,
        topic: &TopicName,
        record: &Routing,
        indexes: std::ops::Range<u32>,
    ) -> Result<BTreeSet<u32>, StoreError> {
        if indexes.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut looks = Pipeline::with_capacity(1);
        let look = looks.cmd("HMGET").arg(self.keys.moved(&record.shard(topic, 0)));
        indexes.clone().for_each(|index| {
            look.arg(format!("made:{index}"));
        });
        let doing = "look which shards were made";
        let answer = self.link.pipeline("made", &looks).await.map_err(|error| store_error(doing, None, error))?;
        let epochs = answer.into_iter().next().ok_or_else(|| odd("nothing about the shards that were made"))?;
        let epochs = crate::reply::array(epochs)?.into_iter().map(text);
        let of_it = |epoch: Option<String>| epoch.and_then(|epoch| epoch.parse().ok()) == Some(record.epoch);
        Ok(indexes.zip(epochs).filter(|(_, epoch)| of_it(epoch.clone())).map(|(index, _)| index).collect())
    }
}
