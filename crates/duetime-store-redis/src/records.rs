//! Small records beside the catalog, a hash of each kind in its slot: bulk plans, and sinks that were put by the API.

use std::collections::BTreeMap;

use async_trait::async_trait;
use duetime_core::StoreError;
use duetime_core::plans::{self, PLANS_MAX, PlanStore};
use duetime_core::put_sinks::{self, SINKS_MAX, SinkStore};
use duetime_redis::Sending;
use redis::{Cmd, Value};

use crate::calls::Calls;
use crate::catalog;
use crate::reply::{int, store_error, unexpected_reply};
use crate::store::RedisStore;

/// The records of one kind.
struct Records<'a> {
    calls: &'a Calls,
    key: String,
    /// What the link and errors call them.
    called: &'static str,
    most: usize,
    too_many: fn() -> StoreError,
}

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

impl Records<'_> {
    async fn all(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(&self.key);
        let reply = self.calls.link.command(self.called, &cmd).await;
        let reply = reply.map_err(|error| store_error("read small records", None, error))?;
        let read =
            |(id, record)| lossy(id).zip(lossy(record)).ok_or_else(|| unexpected_reply("a record that is no text"));
        pairs(reply).into_iter().map(read).collect()
    }

    async fn swap(&self, id: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), StoreError> {
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            cmd.arg(1).arg(&self.key).arg(id).arg(seen.unwrap_or_default()).arg(new.unwrap_or_default());
            cmd.arg(self.most).arg(u8::from(sending.repeated)).arg(sending.not_after_ms);
        };
        let swapped = catalog::kept(self.calls, &self.calls.scripts.record_swap, &self.key, fill).await;
        match int(&swapped.map_err(|error| store_error("write a small record", None, error))?)? {
            1 => Ok(()),
            0 => Err(StoreError::Conflict),
            _ => Err((self.too_many)()),
        }
    }
}

impl RedisStore {
    fn plan_records(&self) -> Records<'_> {
        let calls = &self.calls;
        Records { calls, key: calls.keys.plans(), called: "plans", most: PLANS_MAX, too_many: plans::too_many }
    }

    fn sink_records(&self) -> Records<'_> {
        let calls = &self.calls;
        Records { calls, key: calls.keys.sinks(), called: "sinks", most: SINKS_MAX, too_many: put_sinks::too_many }
    }
}

#[async_trait]
impl PlanStore for RedisStore {
    async fn plans(&self) -> Result<BTreeMap<String, String>, StoreError> {
        self.plan_records().all().await
    }

    async fn swap_plan(&self, id: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), StoreError> {
        plans::check_length(new)?;
        self.plan_records().swap(id, seen, new).await
    }
}

#[async_trait]
impl SinkStore for RedisStore {
    async fn sinks(&self) -> Result<BTreeMap<String, String>, StoreError> {
        self.sink_records().all().await
    }

    async fn swap_sink(&self, name: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), StoreError> {
        put_sinks::check_length(new)?;
        self.sink_records().swap(name, seen, new).await
    }
}
