//! Changes topics through the store, and takes what was written into this node's cache.

use std::sync::Arc;

use duetime_core::store::{Adopt, Adopted, Deletion};
use duetime_core::{ChangeId, StoreError, TopicConfig, TopicName, TopicRecord};
use tracing::warn;

use crate::catalog::change::{CatalogPut, OF_SINK, TopicChange, TopicPut};
use crate::catalog::{CONFLICTS_MAX, Catalog, dead_to};
use crate::error::CatalogError;

impl Catalog {
    /// Creates the topic, or makes `change` to the one that is there: what the change leaves out
    /// stays, what it sets to `null` goes back to the default.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Invalid`] names the field; [`StoreError::Conflict`] after several changes
    /// by others in between.
    pub async fn put(&self, name: &TopicName, change: &TopicChange) -> Result<TopicPut, CatalogError> {
        self.write(name, change, true).await.map(|put| put.expect("what is not there is created"))
    }

    /// Makes `change` to the topic that is there; none: it is not, or not any more.
    ///
    /// # Errors
    ///
    /// As [`Catalog::put`].
    pub async fn change(&self, name: &TopicName, change: &TopicChange) -> CatalogPut {
        self.write(name, change, false).await
    }

    /// Makes `change` to each of these topics that is there; one that fails fails alone.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::topics`]; nothing was changed.
    pub async fn change_each(
        &self,
        names: impl IntoIterator<Item = TopicName>,
        change: &TopicChange,
    ) -> Result<Vec<(CatalogPut, TopicName)>, StoreError> {
        self.refresh().await?;
        let mut puts = Vec::new();
        for name in names {
            puts.push((self.write_known(&name, change, false).await, name));
        }
        self.read_back(puts.iter().filter_map(|(put, _)| put.as_ref().ok()?.as_ref())).await;
        Ok(puts)
    }

    async fn write(&self, name: &TopicName, change: &TopicChange, creates: bool) -> CatalogPut {
        self.refresh().await?;
        let put = self.write_known(name, change, creates).await?;
        self.read_back(&put).await;
        Ok(put)
    }

    /// Reads what was changed as all others read it.
    async fn read_back(&self, puts: impl IntoIterator<Item = &TopicPut>) {
        let changed: Vec<&TopicPut> = puts.into_iter().filter(|put| put.changed).collect();
        let Some(last) = changed.last() else { return };
        if let Err(error) = self.refresh().await {
            warn!(topic = %last.record.name, %error, "a changed topic could not be read back");
            changed.iter().for_each(|put| self.take_in(&put.record));
        }
    }

    async fn write_known(&self, name: &TopicName, change: &TopicChange, creates: bool) -> CatalogPut {
        let mut tries = 0;
        loop {
            match self.put_once(name, change, creates).await {
                Err(CatalogError::Store(StoreError::Conflict)) if tries < CONFLICTS_MAX => {
                    tries += 1;
                    self.conflict_pause().await;
                    self.refresh().await?;
                }
                answer => return answer,
            }
        }
    }

    async fn put_once(&self, name: &TopicName, change: &TopicChange, creates: bool) -> CatalogPut {
        let present = self.get(name);
        if present.is_none() && !creates {
            return Ok(None);
        }
        self.put_onto(name, present, change).await
    }

    /// Makes `change` to `present`, and nothing to any other record of the topic; without one, creates the topic.
    async fn put_onto(&self, name: &TopicName, present: Option<Arc<TopicRecord>>, change: &TopicChange) -> CatalogPut {
        if present.is_none() {
            name.check_new()?;
        }
        let Some((config, note)) = change.made(present.as_deref(), self.clock.now())? else {
            return Ok(present.map(|record| TopicPut { record, created: false, changed: false }));
        };
        if let (Some(sink), Some((sinks, has_streams))) = (&config.sink, self.sinks.get())
            && (present.is_none() || OF_SINK.iter().any(|setting| change.has(setting)))
        {
            change.check_sink((name, &config), sink, &**sinks, *has_streams)?;
        }
        if let Some(to) = &config.dead_to
            && (present.is_none() || change.has("dead_to"))
        {
            dead_to::check(name, to, &self.all())?;
        }
        let record = match &present {
            None => self.fresh(name, config),
            Some(old) => TopicRecord { config, version: old.version + 1, ..(**old).clone() },
        };
        let record = TopicRecord { pause: note.map(|note| note.at_version(record.version)), ..record };
        let stored = self.store.put_topic(&record, present.as_ref().map(|old| old.version)).await;
        if let Err(StoreError::Vanished { messages, .. }) = &stored {
            self.issues.set_vanished(name, Some(*messages), None);
        }
        let record = Arc::new(stored?);
        Ok(Some(TopicPut { record, created: present.is_none(), changed: true }))
    }

    fn fresh(&self, name: &TopicName, config: TopicConfig) -> TopicRecord {
        let shards = config.bounded_shards(self.shards_of(config.shards));
        let change_id = ChangeId(self.draw.next());
        let mut record = TopicRecord::with_shards(name.clone(), config, shards, change_id, self.clock.now());
        // Nobody outside can choose ids that all have one home.
        record.routing.seed = Some(self.draw.next() as u32);
        record
    }

    /// Takes in what this node wrote, unless a later record of the topic is known.
    fn take_in(&self, record: &Arc<TopicRecord>) {
        let age = |record: &TopicRecord| (record.routing.life(), record.version);
        self.topics.send_if_modified(|topics| {
            let is_later = topics.get(&record.name).is_none_or(|known| age(known) < age(record));
            if is_later {
                Arc::make_mut(topics).insert(record.name.clone(), record.clone());
            }
            is_later
        });
    }

    /// Creates the topic with what `change` makes of the defaults, unless it is there: then it is as it was, also where
    /// another node created it at the same moment.
    ///
    /// # Errors
    ///
    /// As [`Catalog::put`].
    pub async fn create(&self, name: &TopicName, change: &TopicChange) -> Result<TopicPut, CatalogError> {
        let mut tries = 0;
        loop {
            self.refresh().await?;
            if let Some(record) = self.get(name) {
                return Ok(TopicPut { record, created: false, changed: false });
            }
            match self.put_onto(name, None, change).await {
                Err(CatalogError::Store(StoreError::Conflict)) if tries < CONFLICTS_MAX => {
                    tries += 1;
                    self.conflict_pause().await;
                }
                // Another node creates it, or died as it did: that is over within seconds.
                Err(CatalogError::Store(StoreError::Conflict)) => {
                    return Err(StoreError::NotReady(name.to_string()).into());
                }
                put => {
                    let put = put?.expect("what is not there is created");
                    self.read_back([&put]).await;
                    return Ok(put);
                }
            }
        }
    }

    /// How many messages there are of a topic that is not in the catalog.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::remains`].
    pub async fn remains(&self, name: &TopicName) -> Result<u64, StoreError> {
        self.store.remains(name).await
    }

    /// Removes the topic with what `how` allows to go with it; false: it was not there.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::delete_topic`]; repeating it is safe.
    pub async fn delete(&self, name: &TopicName, how: Deletion) -> Result<bool, StoreError> {
        let before = self.get(name).map(|known| known.routing.life());
        let was = self.store.delete_topic(name, how).await?;
        self.issues.end_of(name);
        if let Err(error) = self.refresh().await {
            warn!(topic = %name, %error, "the topics could not be read after one was deleted");
            // Somebody else may have created it again meanwhile.
            let is_it = |known: &Arc<TopicRecord>| Some(known.routing.life()) == before;
            self.topics.send_if_modified(|topics| {
                topics.get(name).is_some_and(is_it) && Arc::make_mut(topics).remove(name).is_some()
            });
        }
        self.found(name);
        Ok(was)
    }

    /// Puts back the record of a topic that vanished, with the settings that `change` makes of the defaults,
    /// or with those it had; with `accept_loss`, recreates its lost shards, empty.
    ///
    /// # Errors
    ///
    /// As [`TopicStore::adopt_topic`].
    pub async fn adopt(
        &self,
        name: &TopicName,
        change: Option<&TopicChange>,
        accept_loss: bool,
    ) -> Result<Adopted, CatalogError> {
        let config = change.map(|change| change.apply(&TopicConfig::default())).transpose()?;
        let known = self.issues.known(name).or_else(|| self.get(name)).map(|known| (*known).clone());
        let ask = Adopt { config, known, accept_loss, now: self.clock.now() };
        let adopted = self.store.adopt_topic(name, &ask).await?;
        self.issues.end_of(name);
        self.issues.lose(name, adopted.lost.iter().copied().collect());
        self.refresh().await?;
        Ok(adopted)
    }
}
