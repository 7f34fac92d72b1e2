//! Small records beside the catalog, a hash of each kind in its slot: bulk plans, and sinks that were put by the API.

use std::collections::BTreeMap;

use async_trait::async_trait;
use duetime_core::StoreError;
use duetime_core::records::{RecordKind, RecordStore, Records};
use duetime_redis::Sending;
use redis::{Cmd, Value};

use crate::catalog;
use crate::reply::{int, store_error, unexpected_reply};
use crate::store::RedisStore;

/// The field of a hash with the highest version that any of its records had; no record has this name.
const LAST_VERSION: &str = "";

/// Fields and values, however the server answers a hash.
fn pairs(reply: Value) -> Vec<(Value, Value)> {
    match reply {
        Value::Map(pairs) => pairs,
        Value::Array(list) => {
            let mut list = list.into_iter();
            std::iter::from_fn(|| Some((list.next()?, list.next()?))).collect()
        }
        _ => Vec::new(),
    }
}

/// A text, whatever it was written as: whoever reads it as a record refuses that one alone.
fn lossy(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    }
}

impl RedisStore {
    /// The hash of a kind, and what the link calls a look at it.
    fn hash_of(&self, kind: RecordKind) -> (String, &'static str) {
        match kind {
            RecordKind::Plan => (self.calls.keys.plans(), "plans"),
            RecordKind::Sink => (self.calls.keys.sinks(), "sinks"),
        }
    }

    async fn look_at_records(&self, called: &'static str, cmd: &Cmd) -> Result<Value, StoreError> {
        let reply = self.calls.link.command(called, cmd).await;
        reply.map_err(|error| store_error("read small records", None, error))
    }

    /// What is there of the record that was read as `seen`: one that is no text was read as another.
    async fn as_written(&self, kind: RecordKind, name: &str, seen: &str) -> Result<Vec<u8>, StoreError> {
        if seen.contains(char::REPLACEMENT_CHARACTER) {
            let (key, called) = self.hash_of(kind);
            let mut cmd = redis::cmd("HGET");
            cmd.arg(key).arg(name);
            if let Value::BulkString(bytes) = self.look_at_records(called, &cmd).await?
                && String::from_utf8_lossy(&bytes) == seen
            {
                return Ok(bytes);
            }
        }
        Ok(seen.as_bytes().to_vec())
    }
}

#[async_trait]
impl RecordStore for RedisStore {
    async fn records(&self, kind: RecordKind) -> Result<Records, StoreError> {
        let (key, called) = self.hash_of(kind);
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(key);
        let read =
            |(name, record)| lossy(name).zip(lossy(record)).ok_or_else(|| unexpected_reply("a record that is no text"));
        let all = pairs(self.look_at_records(called, &cmd).await?).into_iter().map(read);
        let mut by_name = all.collect::<Result<BTreeMap<String, String>, StoreError>>()?;
        let last_version = by_name.remove(LAST_VERSION).and_then(|last| last.parse().ok()).unwrap_or(0);
        Ok(Records { by_name, last_version })
    }

    async fn swap_record(
        &self,
        kind: RecordKind,
        name: &str,
        seen: Option<&str>,
        new: Option<&str>,
    ) -> Result<(), StoreError> {
        kind.check_length(new)?;
        let version = new.or(seen).and_then(|text| kind.version_of(text));
        let version = version.map_or_else(String::new, |version| version.to_string());
        let seen = self.as_written(kind, name, seen.unwrap_or_default()).await?;
        let (key, _) = self.hash_of(kind);
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            cmd.arg(1).arg(&key).arg(name).arg(&seen[..]).arg(new.unwrap_or_default());
            cmd.arg(kind.most()).arg(u8::from(sending.repeated)).arg(&version).arg(sending.not_after_ms);
        };
        let swapped = catalog::kept(&self.calls, &self.calls.scripts.record_swap, &key, fill).await;
        match int(&swapped.map_err(|error| store_error("write a small record", None, error))?)? {
            1 => Ok(()),
            0 => Err(StoreError::Conflict),
            _ => Err(kind.too_many()),
        }
    }
}
