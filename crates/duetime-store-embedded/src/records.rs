//! Small records beside the topics, a table of each kind: bulk plans, and sinks that were put by the API.

use std::collections::BTreeMap;

use async_trait::async_trait;
use duetime_core::StoreError;
use duetime_core::plans::{self, PLANS_MAX, PlanStore};
use duetime_core::put_sinks::{self, SINKS_MAX, SinkStore};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::fault::Fault;
use crate::job::CommitMode;
use crate::store::{EmbeddedStore, plain};
use crate::write_context::WriteContext;

/// The records of one kind.
struct Kind {
    all: &'static str,
    one: &'static str,
    count: &'static str,
    put: &'static str,
    remove: &'static str,
    most: usize,
    too_many: fn() -> StoreError,
}

static PLANS: Kind = Kind {
    all: "SELECT id, plan FROM bulk_plan",
    one: "SELECT plan FROM bulk_plan WHERE id = ?1",
    count: "SELECT count(*) FROM bulk_plan",
    put: "INSERT OR REPLACE INTO bulk_plan (id, plan) VALUES (?1, ?2)",
    remove: "DELETE FROM bulk_plan WHERE id = ?1",
    most: PLANS_MAX,
    too_many: plans::too_many,
};

static SINKS: Kind = Kind {
    all: "SELECT id, record FROM put_sink",
    one: "SELECT record FROM put_sink WHERE id = ?1",
    count: "SELECT count(*) FROM put_sink",
    put: "INSERT OR REPLACE INTO put_sink (id, record) VALUES (?1, ?2)",
    remove: "DELETE FROM put_sink WHERE id = ?1",
    most: SINKS_MAX,
    too_many: put_sinks::too_many,
};

impl Kind {
    fn read(&self, conn: &Connection) -> Result<BTreeMap<String, String>, Fault> {
        let mut select = conn.prepare_cached(self.all)?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn swap(&self, conn: &Connection, id: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), Fault> {
        let there: Option<String> = conn.query_row(self.one, [id], |row| row.get(0)).optional()?;
        if there.as_deref() != seen {
            return Err(StoreError::Conflict.into());
        }
        match new {
            None => conn.execute(self.remove, [id])?,
            Some(new) => {
                let records: i64 = conn.query_row(self.count, [], |row| row.get(0))?;
                if there.is_none() && records.unsigned_abs() >= self.most as u64 {
                    return Err((self.too_many)().into());
                }
                conn.execute(self.put, params![id, new])?
            }
        };
        Ok(())
    }
}

impl EmbeddedStore {
    async fn swap(
        &self,
        kind: &'static Kind,
        id: &str,
        seen: Option<&str>,
        new: Option<&str>,
    ) -> Result<(), StoreError> {
        let (id, seen, new) = (id.to_owned(), seen.map(str::to_owned), new.map(str::to_owned));
        let act = move |ctx: &mut WriteContext| {
            ctx.conn.execute_batch("BEGIN")?;
            match kind.swap(&ctx.conn, &id, seen.as_deref(), new.as_deref()) {
                Ok(()) => Ok(ctx.files.commit(&ctx.conn)?),
                Err(fault) => {
                    ctx.undo();
                    Err(fault)
                }
            }
        };
        self.ask("write a small record", CommitMode::OwnTransaction, plain(1), act).await
    }
}

#[async_trait]
impl PlanStore for EmbeddedStore {
    async fn plans(&self) -> Result<BTreeMap<String, String>, StoreError> {
        self.readers.read("read plans", |conn| PLANS.read(conn)).await
    }

    async fn swap_plan(&self, id: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), StoreError> {
        plans::check_length(new)?;
        self.swap(&PLANS, id, seen, new).await
    }
}

#[async_trait]
impl SinkStore for EmbeddedStore {
    async fn sinks(&self) -> Result<BTreeMap<String, String>, StoreError> {
        self.readers.read("read sinks", |conn| SINKS.read(conn)).await
    }

    async fn swap_sink(&self, name: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), StoreError> {
        put_sinks::check_length(new)?;
        self.swap(&SINKS, name, seen, new).await
    }
}
