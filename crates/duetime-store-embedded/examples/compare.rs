//! Which database the store stands on: redb and SQLite, the same work in the same groups.
//!
//! `cargo run --release -p duetime-store-embedded --example compare -- FOLDER [MESSAGES]`. Every
//! group is one transaction with one sync; the figures are in `docs/EMBEDDED.md`.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use rusqlite::{Connection, params};
use tokio::time::Instant;

const SHARDS: u64 = 16;
const BODY: [u8; 122] = [7; 122];
/// Now and then all of a group fits one sync, now and then only little does.
const GROUPS: [usize; 2] = [64, 1024];

/// Shard, id and score of message `n`: ids in no order, due times in the order of arrival.
fn message(n: u64) -> (u64, String, i64) {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed % SHARDS, format!("order-{mixed:016x}"), (1_800_000_000_000 + n as i64 / 50) * 1000)
}

/// What both have to do; keys count from 1 in the order of arrival.
trait Candidate {
    const NAME: &'static str;
    fn insert(&mut self, from: u64, to: u64);
    fn claim(&mut self, shard: u64, limit: usize, deadline: i64) -> Vec<(String, i64)>;
    fn ack(&mut self, shard: u64, claimed: &[(String, i64)]);
    fn cancel(&mut self, ids: &[u64]);
}

struct Sqlite(Connection);

impl Sqlite {
    fn group(&mut self, act: impl FnOnce(&Connection)) {
        self.0.execute_batch("BEGIN").unwrap();
        act(&self.0);
        self.0.execute_batch("COMMIT").unwrap();
    }
}

impl Candidate for Sqlite {
    const NAME: &'static str = "SQLite 3, WAL";

    fn insert(&mut self, from: u64, to: u64) {
        self.group(|conn| {
            let sql = "INSERT INTO message (shard, id, score, body) VALUES (?1, ?2, ?3, ?4) \
                       ON CONFLICT (shard, id) DO NOTHING";
            let mut insert = conn.prepare_cached(sql).unwrap();
            for n in from..to {
                let (shard, id, score) = message(n);
                insert.execute(params![shard as i64, id, score, &BODY[..]]).unwrap();
            }
        });
    }

    fn claim(&mut self, shard: u64, limit: usize, deadline: i64) -> Vec<(String, i64)> {
        let mut claimed = Vec::new();
        self.group(|conn| {
            let sql = "SELECT key, id, body FROM message WHERE shard = ?1 AND score <= ?2 ORDER BY score LIMIT ?3";
            let mut select = conn.prepare_cached(sql).unwrap();
            let rows = select.query_map(params![shard as i64, deadline - 1, limit as i64], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            });
            let rows: Vec<(i64, String, Vec<u8>)> = rows.unwrap().map(Result::unwrap).collect();
            let mut hide = conn.prepare_cached("UPDATE message SET score = ?2 WHERE key = ?1").unwrap();
            for (key, id, _) in rows {
                hide.execute([key, deadline]).unwrap();
                claimed.push((id, deadline));
            }
        });
        claimed
    }

    fn ack(&mut self, shard: u64, claimed: &[(String, i64)]) {
        self.group(|conn| {
            let sql = "DELETE FROM message WHERE shard = ?1 AND id = ?2 AND score = ?3";
            let mut delete = conn.prepare_cached(sql).unwrap();
            for (id, score) in claimed {
                assert_eq!(delete.execute(params![shard as i64, id, score]).unwrap(), 1);
            }
        });
    }

    fn cancel(&mut self, ids: &[u64]) {
        self.group(|conn| {
            let mut delete = conn.prepare_cached("DELETE FROM message WHERE shard = ?1 AND id = ?2").unwrap();
            for n in ids {
                let (shard, id, _) = message(*n);
                assert_eq!(delete.execute(params![shard as i64, id]).unwrap(), 1);
            }
        });
    }
}

const IDS: TableDefinition<(u64, &str), (u64, i64)> = TableDefinition::new("ids");
const SCORES: TableDefinition<(u64, i64, u64), ()> = TableDefinition::new("scores");
const BODIES: TableDefinition<u64, (&str, &[u8])> = TableDefinition::new("bodies");

struct Redb(Database);

impl Candidate for Redb {
    const NAME: &'static str = "redb 4";

    fn insert(&mut self, from: u64, to: u64) {
        let group = self.0.begin_write().unwrap();
        {
            let mut ids = group.open_table(IDS).unwrap();
            let mut scores = group.open_table(SCORES).unwrap();
            let mut bodies = group.open_table(BODIES).unwrap();
            for n in from..to {
                let (shard, id, score) = message(n);
                if ids.insert((shard, id.as_str()), (n, score)).unwrap().is_none() {
                    scores.insert((shard, score, n), ()).unwrap();
                    bodies.insert(n, (id.as_str(), &BODY[..])).unwrap();
                }
            }
        }
        group.commit().unwrap();
    }

    fn claim(&mut self, shard: u64, limit: usize, deadline: i64) -> Vec<(String, i64)> {
        let mut claimed = Vec::new();
        let group = self.0.begin_write().unwrap();
        {
            let mut ids = group.open_table(IDS).unwrap();
            let mut scores = group.open_table(SCORES).unwrap();
            let bodies = group.open_table(BODIES).unwrap();
            let range = scores.range((shard, 0, 0)..(shard, deadline, 0)).unwrap();
            let due: Vec<(u64, i64, u64)> = range.take(limit).map(|entry| entry.unwrap().0.value()).collect();
            for (shard, score, key) in due {
                let id = bodies.get(key).unwrap().unwrap().value().0.to_owned();
                scores.remove((shard, score, key)).unwrap();
                scores.insert((shard, deadline, key), ()).unwrap();
                ids.insert((shard, id.as_str()), (key, deadline)).unwrap();
                claimed.push((id, deadline));
            }
        }
        group.commit().unwrap();
        claimed
    }

    fn ack(&mut self, shard: u64, claimed: &[(String, i64)]) {
        let group = self.0.begin_write().unwrap();
        {
            let mut ids = group.open_table(IDS).unwrap();
            let mut scores = group.open_table(SCORES).unwrap();
            let mut bodies = group.open_table(BODIES).unwrap();
            for (id, score) in claimed {
                let key = ids.remove((shard, id.as_str())).unwrap().unwrap().value().0;
                scores.remove((shard, *score, key)).unwrap();
                bodies.remove(key).unwrap();
            }
        }
        group.commit().unwrap();
    }

    fn cancel(&mut self, gone: &[u64]) {
        let group = self.0.begin_write().unwrap();
        {
            let mut ids = group.open_table(IDS).unwrap();
            let mut scores = group.open_table(SCORES).unwrap();
            let mut bodies = group.open_table(BODIES).unwrap();
            for n in gone {
                let (shard, id, _) = message(*n);
                let (key, score) = ids.remove((shard, id.as_str())).unwrap().unwrap().value();
                scores.remove((shard, score, key)).unwrap();
                bodies.remove(key).unwrap();
            }
        }
        group.commit().unwrap();
    }
}

fn timed(what: &str, messages: u64, act: impl FnOnce()) {
    let started = Instant::now();
    act();
    println!("  {what:<34} {:>9.0} messages/s", messages as f64 / started.elapsed().as_secs_f64());
}

fn size(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

fn measure<C: Candidate>(mut db: C, folder: &Path, messages: u64, group: usize) {
    println!("{}, groups of {group}", C::NAME);
    timed("schedule", messages, || {
        for from in (1..=messages).step_by(group) {
            db.insert(from, (from + group as u64).min(messages + 1));
        }
    });
    println!("  {:<34} {:>9} bytes a message", "space", size(folder) / messages);
    let tenth: Vec<u64> = (1..=messages).step_by(10).collect();
    timed("cancel every tenth", tenth.len() as u64, || tenth.chunks(group).for_each(|ids| db.cancel(ids)));
    let left = messages - tenth.len() as u64;
    let claims = left / 4 / group as u64;
    let mut claimed = Vec::new();
    let taken = claims * group as u64;
    timed("claim a quarter", taken, || {
        for n in 0..claims {
            let shard = n % SHARDS;
            claimed.push((shard, db.claim(shard, group, (1_900_000_000_000 + n as i64) * 1000 + 101)));
        }
    });
    timed("acknowledge it", taken, || claimed.iter().for_each(|(shard, ids)| db.ack(*shard, ids)));
    println!("  {:<34} {:>9} MB", "space at the end", size(folder) / 1_000_000);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().expect("give a folder on the disk to be measured");
    let messages: u64 = args.next().map_or(300_000, |text| text.parse().expect("a number of messages"));
    for group in GROUPS {
        // What a sync costs decides small groups; few of them say enough.
        let messages = messages.min(group as u64 * 2000);
        let at = tempfile::tempdir_in(&folder).unwrap();
        let conn = Connection::open(at.path().join("sqlite")).unwrap();
        conn.pragma_update(None, "journal_mode", "wal").unwrap();
        conn.pragma_update(None, "synchronous", "full").unwrap();
        conn.pragma_update(None, "cache_size", -65_536).unwrap();
        conn.pragma_update(None, "wal_autocheckpoint", 8192).unwrap();
        conn.execute_batch(
            "CREATE TABLE message (key INTEGER PRIMARY KEY, shard INTEGER, id TEXT, score INTEGER, body BLOB) STRICT;
             CREATE UNIQUE INDEX by_id ON message (shard, id); CREATE INDEX by_score ON message (shard, score)",
        )
        .unwrap();
        measure(Sqlite(conn), at.path(), messages, group);

        let at = tempfile::tempdir_in(&folder).unwrap();
        let db = Database::builder().set_cache_size(64 << 20).create(at.path().join("redb")).unwrap();
        assert!(db.begin_read().is_ok());
        measure(Redb(db), at.path(), messages, group);
    }
}
