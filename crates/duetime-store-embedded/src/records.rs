//! Small records beside the topics, a table of each kind: bulk plans, and sinks that were put by the API.

use std::collections::BTreeMap;

use async_trait::async_trait;
use duetime_core::StoreError;
use duetime_core::records::{RecordKind, RecordStore, Records};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::fault::Fault;
use crate::job::CommitMode;
use crate::store::{EmbeddedStore, plain};
use crate::write_context::WriteContext;

/// Under this name, which no record has, stands the highest version that any of its table had.
const LAST_VERSION: &str = "";

/// What the table of a kind is asked.
struct Statements {
    all: &'static str,
    one: &'static str,
    count: &'static str,
    put: &'static str,
    remove: &'static str,
}

static OF_PLANS: Statements = Statements {
    all: "SELECT id, plan FROM bulk_plan",
    one: "SELECT plan FROM bulk_plan WHERE id = ?1",
    count: "SELECT count(*) FROM bulk_plan WHERE id <> ''",
    put: "INSERT OR REPLACE INTO bulk_plan (id, plan) VALUES (?1, ?2)",
    remove: "DELETE FROM bulk_plan WHERE id = ?1",
};

static OF_SINKS: Statements = Statements {
    all: "SELECT id, record FROM put_sink",
    one: "SELECT record FROM put_sink WHERE id = ?1",
    count: "SELECT count(*) FROM put_sink WHERE id <> ''",
    put: "INSERT OR REPLACE INTO put_sink (id, record) VALUES (?1, ?2)",
    remove: "DELETE FROM put_sink WHERE id = ?1",
};

impl Statements {
    fn of(kind: RecordKind) -> &'static Self {
        match kind {
            RecordKind::Plan => &OF_PLANS,
            RecordKind::Sink => &OF_SINKS,
        }
    }
}

fn version_in(text: Option<String>) -> u64 {
    text.and_then(|last| last.parse().ok()).unwrap_or(0)
}

fn read(conn: &Connection, kind: RecordKind) -> Result<Records, Fault> {
    let mut select = conn.prepare_cached(Statements::of(kind).all)?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut by_name = rows.collect::<rusqlite::Result<BTreeMap<String, String>>>()?;
    let last_version = version_in(by_name.remove(LAST_VERSION));
    Ok(Records { by_name, last_version })
}

fn swap(conn: &Connection, kind: RecordKind, name: &str, seen: Option<&str>, new: Option<&str>) -> Result<(), Fault> {
    let table = Statements::of(kind);
    let there: Option<String> = conn.query_row(table.one, [name], |row| row.get(0)).optional()?;
    if there.as_deref() != seen {
        return Err(StoreError::Conflict.into());
    }
    // That of one that is removed does not come again either.
    if let Some(version) = new.or(seen).and_then(|text| kind.version_of(text)) {
        let last = version_in(conn.query_row(table.one, [LAST_VERSION], |row| row.get(0)).optional()?);
        if new.is_some() && version <= last {
            return Err(StoreError::Conflict.into());
        }
        if version > last {
            conn.execute(table.put, params![LAST_VERSION, version.to_string()])?;
        }
    }
    match new {
        None => conn.execute(table.remove, [name])?,
        Some(new) => {
            let records: i64 = conn.query_row(table.count, [], |row| row.get(0))?;
            if there.is_none() && records.unsigned_abs() >= kind.most() as u64 {
                return Err(kind.too_many().into());
            }
            conn.execute(table.put, params![name, new])?
        }
    };
    Ok(())
}

#[async_trait]
impl RecordStore for EmbeddedStore {
    async fn records(&self, kind: RecordKind) -> Result<Records, StoreError> {
        self.readers.read("read small records", move |conn| read(conn, kind)).await
    }

    async fn swap_record(
        &self,
        kind: RecordKind,
        name: &str,
        seen: Option<&str>,
        new: Option<&str>,
    ) -> Result<(), StoreError> {
        kind.check_length(new)?;
        let (name, seen, new) = (name.to_owned(), seen.map(str::to_owned), new.map(str::to_owned));
        let act = move |ctx: &mut WriteContext| {
            ctx.conn.execute_batch("BEGIN")?;
            match swap(&ctx.conn, kind, &name, seen.as_deref(), new.as_deref()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_was_written_without_its_count_never_comes_again_once_its_record_is_removed() {
        let sink = |version: u64| format!(r#"{{"version":{version},"changed_at_ms":0,"config":{{"type":"log"}}}}"#);
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE put_sink (id TEXT PRIMARY KEY, record TEXT NOT NULL)").unwrap();
        conn.execute(OF_SINKS.put, params!["hook", sink(7)]).unwrap();
        let (kind, is_there) = (RecordKind::Sink, sink(7));
        swap(&conn, kind, "hook", Some(&is_there), None).unwrap();
        assert_eq!(read(&conn, kind).unwrap().last_version, 7);
        let again = swap(&conn, kind, "other", None, Some(&sink(7)));
        assert!(matches!(again, Err(Fault::Refused(StoreError::Conflict))), "{again:?}");
        swap(&conn, kind, "other", None, Some(&sink(8))).unwrap();
        swap(&conn, kind, "other", Some(&sink(8)), None).unwrap();
        assert_eq!(read(&conn, kind).unwrap().last_version, 8, "a removal has no version of its own");
    }
}
