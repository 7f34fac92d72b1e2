//! Bulk plans: one map.

use std::collections::BTreeMap;

use async_trait::async_trait;
use duetime_core::StoreError;
use duetime_core::plans::{PLANS_MAX, PlanStore, check_length, too_many};

use super::MemStore;

#[async_trait]
impl PlanStore for MemStore {
    async fn plans(&self) -> Result<BTreeMap<String, String>, StoreError> {
        Ok(self.inside.lock().plans.clone())
    }

    async fn swap_plan(&self, id: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), StoreError> {
        check_length(new)?;
        let plans = &mut self.inside.lock().plans;
        if plans.get(id).map(String::as_str) != seen {
            return Err(StoreError::Conflict);
        }
        if seen.is_none() && new.is_some() && plans.len() >= PLANS_MAX {
            return Err(too_many());
        }
        match new {
            Some(new) => drop(plans.insert(id.to_owned(), new.to_owned())),
            None => drop(plans.remove(id)),
        }
        Ok(())
    }
}
