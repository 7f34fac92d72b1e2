//! The keys of one server.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use crate::zset::Zset;

/// What is at a key.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    String(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    Zset(Zset),
    Stream(Stream),
}

/// A stream: entries by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) last: (u64, u64),
    pub(crate) entries: BTreeMap<(u64, u64), Vec<Bytes>>,
}

impl Value {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::Hash(_) => "hash",
            Self::Zset(_) => "zset",
            Self::Stream(_) => "stream",
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Hash(fields) => fields.is_empty(),
            Self::Zset(members) => members.len() == 0,
            // A stream stays without entries, and so does a string.
            Self::String(_) | Self::Stream(_) => false,
        }
    }

    /// Roughly what it takes of memory.
    fn bytes(&self) -> usize {
        const EACH: usize = 48;
        match self {
            Self::String(bytes) => bytes.len(),
            Self::Hash(fields) => fields.iter().map(|(field, value)| field.len() + value.len() + EACH).sum(),
            Self::Zset(members) => members.iter().map(|(_, member)| member.len() + 2 * EACH).sum(),
            Self::Stream(stream) => stream.entries.values().flatten().map(|part| part.len() + EACH).sum(),
        }
    }
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    ends_at_ms: Option<i64>,
}

/// The keys of one server.
#[derive(Clone, Debug, Default)]
pub struct Db {
    keys: HashMap<Bytes, Entry>,
}

/// A key holds a value of another type.
pub(crate) struct WrongType;

macro_rules! typed {
    ($get:ident, $change:ident, $variant:ident, $type:ty) => {
        pub(crate) fn $get(&mut self, key: &[u8], now_ms: i64) -> Result<Option<&$type>, WrongType> {
            match self.get(key, now_ms) {
                Some(Value::$variant(value)) => Ok(Some(value)),
                Some(_) => Err(WrongType),
                None => Ok(None),
            }
        }

        /// Changes it, from nothing if there is none; left with nothing in it, it goes.
        pub(crate) fn $change<T>(
            &mut self,
            key: &Bytes,
            now_ms: i64,
            change: impl FnOnce(&mut $type) -> T,
        ) -> Result<T, WrongType> {
            self.get(key, now_ms);
            let fresh = || Entry { value: Value::$variant(<$type>::default()), ends_at_ms: None };
            let entry = self.keys.entry(key.clone()).or_insert_with(fresh);
            let Value::$variant(value) = &mut entry.value else { return Err(WrongType) };
            let answer = change(value);
            if entry.value.is_empty() {
                self.keys.remove(key);
            }
            Ok(answer)
        }
    };
}

impl Db {
    /// What is at a key, unless it has ended.
    pub(crate) fn get(&mut self, key: &[u8], now_ms: i64) -> Option<&Value> {
        let ended = self.keys.get(key).is_some_and(|entry| entry.ends_at_ms.is_some_and(|end| end <= now_ms));
        if ended {
            self.keys.remove(key);
        }
        self.keys.get(key).map(|entry| &entry.value)
    }

    pub(crate) fn set(&mut self, key: &Bytes, value: Value) {
        self.keys.insert(key.clone(), Entry { value, ends_at_ms: None });
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Value> {
        self.keys.remove(key).map(|entry| entry.value)
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&Bytes) -> bool) {
        self.keys.retain(|key, _| stays(key));
    }

    pub(crate) fn take(&mut self, from: &Self, is: impl Fn(&Bytes) -> bool) {
        let taken = from.keys.iter().filter(|(key, _)| is(key));
        self.keys.extend(taken.map(|(key, entry)| (key.clone(), entry.clone())));
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn ends_at_ms(&self, key: &[u8]) -> Option<i64> {
        self.keys.get(key)?.ends_at_ms
    }

    pub(crate) fn end_at_ms(&mut self, key: &[u8], end: Option<i64>) {
        if let Some(entry) = self.keys.get_mut(key) {
            entry.ends_at_ms = end;
        }
    }

    /// Roughly what all keys take of memory.
    pub(crate) fn bytes(&self) -> usize {
        const EACH: usize = 96;
        self.keys.iter().map(|(key, entry)| key.len() + entry.value.bytes() + EACH).sum()
    }

    typed!(hash, change_hash, Hash, BTreeMap<Bytes, Bytes>);
    typed!(zset, change_zset, Zset, Zset);
    typed!(stream, change_stream, Stream, Stream);

    /// The score of a member of a sorted set.
    #[must_use]
    pub fn score_of(&self, key: &[u8], member: &[u8]) -> Option<f64> {
        match &self.keys.get(key)?.value {
            Value::Zset(members) => members.score(member),
            _ => None,
        }
    }

    /// The scores of all members of a sorted set, in their order.
    pub fn scores(&self, key: &[u8]) -> impl Iterator<Item = f64> + '_ {
        let members = match self.keys.get(key).map(|entry| &entry.value) {
            Some(Value::Zset(members)) => Some(members),
            _ => None,
        };
        members.into_iter().flat_map(Zset::iter).map(|(score, _)| score)
    }

    /// A field of a hash.
    #[must_use]
    pub fn field_of(&self, key: &[u8], field: &[u8]) -> Option<&Bytes> {
        match &self.keys.get(key)?.value {
            Value::Hash(fields) => fields.get(field),
            _ => None,
        }
    }

    /// How many members or fields are at a key.
    #[must_use]
    pub fn size_of(&self, key: &[u8]) -> usize {
        match self.keys.get(key).map(|entry| &entry.value) {
            Some(Value::Hash(fields)) => fields.len(),
            Some(Value::Zset(members)) => members.len(),
            _ => 0,
        }
    }
}
