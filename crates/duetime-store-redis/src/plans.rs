//! Bulk plans: one hash in the slot of the catalog.

use std::collections::BTreeMap;

use async_trait::async_trait;
use duetime_core::StoreError;
use duetime_core::plans::{PLANS_MAX, PlanStore, check_length, too_many};
use duetime_redis::Sending;
use redis::{Cmd, Value};

use crate::catalog;
use crate::reply::{int, store_error, text, unexpected_reply};
use crate::store::RedisStore;

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

#[async_trait]
impl PlanStore for RedisStore {
    async fn plans(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let mut cmd = redis::cmd("HGETALL");
        cmd.arg(self.calls.keys.plans());
        let reply =
            self.calls.link.command("plans", &cmd).await.map_err(|error| store_error("read plans", None, error))?;
        let read = |(id, plan)| text(id).zip(text(plan)).ok_or_else(|| unexpected_reply("a plan that is no text"));
        pairs(reply).into_iter().map(read).collect()
    }

    async fn swap_plan(&self, id: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), StoreError> {
        check_length(new)?;
        let key = self.calls.keys.plans();
        let fill = |cmd: &mut Cmd, sending: &Sending| {
            cmd.arg(1).arg(&key).arg(id).arg(seen.unwrap_or_default()).arg(new.unwrap_or_default());
            cmd.arg(PLANS_MAX).arg(u8::from(sending.repeated)).arg(sending.not_after_ms);
        };
        let swapped = catalog::kept(&self.calls, &self.calls.scripts.plan_swap, &key, fill).await;
        match int(&swapped.map_err(|error| store_error("write a plan", None, error))?)? {
            1 => Ok(()),
            0 => Err(StoreError::Conflict),
            _ => Err(too_many()),
        }
    }
}
