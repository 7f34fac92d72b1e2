//! Topics over several masters: a creation is noted with the number of its life, then made shard by shard, then
//! published; a deletion leaves the number of the life it ended. A shard that holds messages of a life that nobody
//! deleted is never emptied.

use duetime_core::routing::{LIFE, RoutingState};
use duetime_core::store::{Adopt, Adopted};
use duetime_core::{
    ChangeId, Clock as _, ResizeStore as _, Routing, RoutingRecord, Shard, StoreError, TopicName, TopicRecord,
};

use crate::catalogue::Note;
use crate::mutation::Mutation;
use crate::server::{Sent, Server};
use crate::store::{CATALOGUE, SimStore, master_of, seat};
use crate::wire::Kept;

/// A creation that is neither finished nor taken back after this belongs to a dead node.
const CREATING_FOR_MS: i64 = 10_000;
/// How often a change is tried again because others change the topic meanwhile.
const SWAPS_MAX: usize = 16;
/// Shards looked at for a life of the name that nobody remembers.
const LOOKED_AT: u32 = 16;

/// Every shard the topic has or ever had.
fn shards(record: &TopicRecord) -> impl Iterator<Item = Shard> + '_ {
    (0..record.max_shards_ever()).map(|index| record.routing.shard(&record.name, index))
}

/// Makes one shard for a creation. `deleted`: the last life of the name that is known to be deleted.
fn create(server: &Server, shard: &Shard, routing: &Routing, deleted: u64) -> Result<(), StoreError> {
    let life = routing.life();
    if let Some((there, holds)) = server.mem.shard_holds(&shard.topic, shard.index) {
        if there.change_id == routing.change_id {
            return Ok(());
        }
        let is_left_over = there.life() < life && (holds == 0 || there.life() <= deleted);
        let empties = server.leaves_out(Mutation::CreationOverMessages) && there.life() < life;
        if !is_left_over && !empties && !server.leaves_out(Mutation::LateCreation) {
            return Err(StoreError::Conflict);
        }
    }
    server.empty(&seat(shard));
    server.mem.make_shard(&shard.topic, shard.index, routing);
    Ok(())
}

impl SimStore {
    /// Reads the record and the note of a topic.
    pub(crate) async fn noted(
        &self,
        topic: &TopicName,
    ) -> Result<(Option<TopicRecord>, Option<Note>, u64), StoreError> {
        let topic = topic.clone();
        let look = move |server: &Server, _: &Sent| {
            Ok(server.catalogue(|all| {
                let deleted = all.deleted.get(&topic).copied().unwrap_or_default();
                (all.topics.get(&topic).cloned(), all.notes.get(&topic).cloned(), deleted)
            }))
        };
        self.link.call(CATALOGUE, false, Kept::No, look).await
    }

    async fn swap_record(
        &self,
        topic: &TopicName,
        seen: Option<&TopicRecord>,
        new: Option<&TopicRecord>,
        note: Option<&Note>,
    ) -> Result<bool, StoreError> {
        let (topic, seen, new, note) = (topic.clone(), seen.cloned(), new.cloned(), note.cloned());
        let script = move |server: &Server, _: &Sent| {
            let done = server.catalogue(|all| all.swap(&topic, seen.as_ref(), new.clone(), note.clone()));
            if let Some(note) = note.as_ref().filter(|note| done && note.deleting) {
                server.is_deleted(&topic, note.record.routing.life());
            }
            Ok(done)
        };
        self.link.call(CATALOGUE, true, Kept::Topics, script).await
    }

    pub async fn write_topic(&self, record: &TopicRecord, seen: Option<u64>) -> Result<TopicRecord, StoreError> {
        let topic = &record.name;
        let (there, note, deleted) = self.noted(topic).await?;
        let Some(seen) = seen else {
            return match there {
                Some(there) if there.routing.change_id == record.routing.change_id => Ok(there),
                Some(_) => Err(StoreError::Conflict),
                None => self.create_topic(record, note, deleted).await,
            };
        };
        let Some(old) = there else { return Err(StoreError::Conflict) };
        let mut new = record.clone();
        new.keep_routing_of(&old);
        if old == new {
            return Ok(new);
        }
        if old.version != seen || !self.swap_record(topic, Some(&old), Some(&new), None).await? {
            return Err(StoreError::Conflict);
        }
        Ok(new)
    }

    async fn create_topic(
        &self,
        record: &TopicRecord,
        note: Option<Note>,
        deleted: u64,
    ) -> Result<TopicRecord, StoreError> {
        let topic = &record.name;
        if let Some(note) = note {
            let age_ms = self.link.clock.now().as_millis() - note.since.as_millis();
            if note.deleting {
                self.drop_shards(&note.record).await?;
            } else if note.record.routing.change_id != record.routing.change_id && age_ms < CREATING_FOR_MS {
                return Err(StoreError::Conflict);
            }
        }
        // A catalogue that came back empty has forgotten the lives whose shards are still there.
        let there = self.inspect(topic, 0..LOOKED_AT).await?;
        let floor = there.iter().flatten().map(|shard| shard.routing.life()).max().unwrap_or_default();
        if !self.leaves_out(Mutation::CreationOverMessages) {
            let messages = self.held(topic, deleted).await?;
            if messages > 0 {
                return Err(StoreError::Vanished { topic: topic.to_string(), messages });
            }
        }
        let (noted, since) = (record.clone(), self.link.clock.now());
        let script = move |server: &Server, _: &Sent| {
            Ok(server.catalogue(|all| {
                if all.topics.contains_key(&noted.name) {
                    return None;
                }
                let mine =
                    all.notes.get(&noted.name).filter(|note| note.record.routing.change_id == noted.routing.change_id);
                if let Some(mine) = mine {
                    return Some(mine.clone());
                }
                let mut record = noted.clone();
                record.routing.epoch = all.draw_life(floor) * LIFE + 1;
                let note = Note { deleting: false, since, record };
                all.swap(&noted.name, None, None, Some(note.clone())).then_some(note)
            }))
        };
        let note = self.link.call(CATALOGUE, true, Kept::Topics, script).await?.ok_or(StoreError::Conflict)?;
        for shard in shards(&note.record) {
            let routing = note.record.routing.clone();
            self.kept(&shard, move |server, shard, _| create(server, shard, &routing, deleted)).await?;
        }
        // Whoever took the creation over owns the name.
        let published = note.clone();
        let script = move |server: &Server, _: &Sent| {
            Ok(server.catalogue(|all| {
                let (topic, record) = (&published.record.name, &published.record);
                let is_done = all.topics.get(topic) == Some(record);
                let is_mine = all.notes.get(topic) == Some(&published);
                is_done || (is_mine && all.swap(topic, None, Some(record.clone()), None))
            }))
        };
        let done = self.link.call(CATALOGUE, true, Kept::Topics, script).await?;
        if done { Ok(note.record) } else { Err(StoreError::Conflict) }
    }

    /// Messages in shards of the name whose life is not known to be deleted.
    async fn held(&self, topic: &TopicName, deleted: u64) -> Result<u64, StoreError> {
        let mut messages = 0;
        for index in 0..LOOKED_AT {
            let name = topic.clone();
            let look = move |server: &Server, _: &Sent| Ok(server.mem.shard_holds(&name, index));
            let master = master_of(self.link.servers.len(), topic, index);
            let there = self.link.call(master, false, Kept::No, look).await?;
            let held = there.filter(|(routing, _)| routing.life() > deleted).map_or(0, |(_, holds)| holds);
            messages += held as u64;
        }
        Ok(messages)
    }

    /// The same, of a topic that is neither there nor being created or deleted.
    pub async fn messages_left(&self, topic: &TopicName) -> Result<u64, StoreError> {
        match self.noted(topic).await? {
            (None, None, deleted) => self.held(topic, deleted).await,
            _ => Ok(0),
        }
    }

    pub async fn remove_topic(&self, topic: &TopicName) -> Result<bool, StoreError> {
        let mut met = None;
        for _ in 0..SWAPS_MAX {
            let (there, note, _) = self.noted(topic).await?;
            // It was there, and another of the name is now: that one was not asked for.
            if let Some(there) = &there
                && *met.get_or_insert(there.routing.life()) != there.routing.life()
            {
                return Ok(true);
            }
            let record = match (there, note) {
                (Some(record), _) => {
                    let note = Note { deleting: true, since: self.link.clock.now(), record: record.clone() };
                    if !self.swap_record(topic, Some(&record), None, Some(&note)).await? {
                        continue;
                    }
                    record
                }
                (None, Some(Note { deleting: true, record, .. })) => record,
                (None, _) => return Ok(false),
            };
            self.drop_shards(&record).await?;
            let name = topic.clone();
            let forget = move |server: &Server, _: &Sent| {
                server.catalogue(|all| {
                    if all.notes.get(&name).is_some_and(|note| note.deleting && note.record == record) {
                        all.notes.remove(&name);
                    }
                });
                Ok(())
            };
            self.link.call(CATALOGUE, true, Kept::Topics, forget).await?;
            return Ok(true);
        }
        Err(StoreError::Conflict)
    }

    async fn drop_shards(&self, record: &TopicRecord) -> Result<(), StoreError> {
        for shard in shards(record) {
            self.unmake(&shard, record.routing.life()).await?;
        }
        Ok(())
    }

    /// Removes one shard of this life, unless it is another's by now.
    pub async fn unmake(&self, shard: &Shard, life: u64) -> Result<(), StoreError> {
        let act = {
            let shard = shard.clone();
            move |server: &Server, _: &Sent| {
                let there = server.mem.shard_holds(&shard.topic, shard.index);
                let same = there.as_ref().is_some_and(|(routing, _)| routing.life() == life);
                if same || server.leaves_out(Mutation::DeletionOfAnyLife) {
                    server.empty(&seat(&shard));
                    server.mem.remove_shard(&shard.topic, shard.index);
                }
                Ok(())
            }
        };
        self.link.call(self.master(shard), true, Kept::Shard(seat(shard)), act).await
    }

    /// Puts the record back of a topic whose shards are there: what they say is what it was.
    pub async fn adopt(&self, topic: &TopicName, ask: &Adopt) -> Result<Adopted, StoreError> {
        let adopted = |record, restored| Adopted { record, restored, lost: Vec::new(), recreated: Vec::new() };
        if let (Some(record), _, _) = self.noted(topic).await? {
            return Ok(adopted(record, false));
        }
        let config = ask.config.clone().or_else(|| ask.known.as_ref().map(|known| known.config.clone()));
        let config = config.ok_or_else(|| StoreError::SettingsUnknown(topic.to_string()))?;
        let record = TopicRecord::new(topic.clone(), config, 1, ChangeId::default(), ask.now);
        let there = self.inspect(topic, 0..LOOKED_AT).await?;
        let max_shards_ever = there.iter().rposition(Option::is_some).map_or(0, |last| last as u32 + 1);
        let latest = there.into_iter().flatten().map(|shard| shard.routing).max_by_key(|routing| routing.epoch);
        let latest = latest.ok_or_else(|| StoreError::UnknownShard(topic.to_string()))?;
        // Some may have heard of the commit and others not: verified again, it is committed again.
        let moving = latest.previous != latest.shards;
        let state = if moving { RoutingState::Moving } else { latest.state };
        let mut restored = record;
        restored.set_routing(&RoutingRecord { routing: Routing { state, ..latest }, desired: None });
        restored.max_shards_ever = restored.max_shards_ever.max(max_shards_ever);
        let put = restored.clone();
        let script = move |server: &Server, _: &Sent| {
            Ok(server.catalogue(|all| {
                let floor = put.routing.life();
                if all.topics.contains_key(&put.name) || !all.swap(&put.name, None, Some(put.clone()), None) {
                    return false;
                }
                all.draw_life(floor);
                true
            }))
        };
        let done = self.link.call(CATALOGUE, true, Kept::Topics, script).await?;
        if done { Ok(adopted(restored, true)) } else { Err(StoreError::Conflict) }
    }

    /// Swaps the routing of a topic's record.
    pub async fn swap(&self, topic: &TopicName, seen: &RoutingRecord, new: &RoutingRecord) -> Result<(), StoreError> {
        for _ in 0..SWAPS_MAX {
            let Some(there) = self.noted(topic).await?.0 else { return Err(StoreError::Conflict) };
            if there.routing_record() != *seen {
                return Err(StoreError::Conflict);
            }
            let mut record = there.clone();
            record.set_routing(new);
            if self.swap_record(topic, Some(&there), Some(&record), None).await? {
                return Ok(());
            }
        }
        Err(StoreError::Conflict)
    }

    pub async fn read_routing(&self, topic: &TopicName) -> Result<Option<RoutingRecord>, StoreError> {
        Ok(self.noted(topic).await?.0.map(|record| record.routing_record()))
    }

    /// The record, if it is of this life, and the last life of the name that was deleted.
    pub async fn of_life(&self, topic: &TopicName, life: u64) -> Result<Option<(TopicRecord, u64)>, StoreError> {
        let (there, _, deleted) = self.noted(topic).await?;
        Ok(there.filter(|record| record.routing.life() == life).map(|record| (record, deleted)))
    }
}
