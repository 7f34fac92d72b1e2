//! Bulk plans: one table beside the topics.

use std::collections::BTreeMap;

use async_trait::async_trait;
use duetime_core::StoreError;
use duetime_core::plans::{PLANS_MAX, PlanStore, check_length, too_many};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::fault::Fault;
use crate::job::CommitMode;
use crate::store::{EmbeddedStore, plain};
use crate::write_context::WriteContext;

fn all(conn: &Connection) -> Result<BTreeMap<String, String>, Fault> {
    let mut select = conn.prepare_cached("SELECT id, plan FROM bulk_plan")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn swap(conn: &Connection, id: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), Fault> {
    let there: Option<String> =
        conn.query_row("SELECT plan FROM bulk_plan WHERE id = ?1", [id], |row| row.get(0)).optional()?;
    if there.as_deref() != seen {
        return Err(StoreError::Conflict.into());
    }
    match new {
        None => conn.execute("DELETE FROM bulk_plan WHERE id = ?1", [id])?,
        Some(new) => {
            let plans: i64 = conn.query_row("SELECT count(*) FROM bulk_plan", [], |row| row.get(0))?;
            if there.is_none() && plans.unsigned_abs() >= PLANS_MAX as u64 {
                return Err(too_many().into());
            }
            conn.execute("INSERT OR REPLACE INTO bulk_plan (id, plan) VALUES (?1, ?2)", params![id, new])?
        }
    };
    Ok(())
}

#[async_trait]
impl PlanStore for EmbeddedStore {
    async fn plans(&self) -> Result<BTreeMap<String, String>, StoreError> {
        self.readers.read("read plans", all).await
    }

    async fn swap_plan(&self, id: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), StoreError> {
        check_length(new)?;
        let (id, seen, new) = (id.to_owned(), seen.map(str::to_owned), new.map(str::to_owned));
        let act = move |ctx: &mut WriteContext| {
            ctx.conn.execute_batch("BEGIN")?;
            match swap(&ctx.conn, &id, seen.as_deref(), new.as_deref()) {
                Ok(()) => Ok(ctx.files.commit(&ctx.conn)?),
                Err(fault) => {
                    ctx.undo();
                    Err(fault)
                }
            }
        };
        self.ask("write a plan", CommitMode::OwnTransaction, plain(1), act).await
    }
}
