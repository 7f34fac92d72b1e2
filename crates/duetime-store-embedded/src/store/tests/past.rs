//! What is remembered of messages that are gone, while a clock is wrong.

use duetime_core::limits::NOTES_MAX;

use super::*;

const WINDOW: Duration = Duration::from_secs(3600);

fn cancels(name: &str, count: usize) -> Vec<Edit> {
    (0..count).map(|n| Edit::Cancel(MessageId::new(&format!("{name}-{n}")).unwrap())).collect()
}

#[tokio::test]
async fn what_a_clock_that_was_ahead_wrote_is_remembered_for_one_window_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_topic(dir.path()).await;
    let shard = Shard { memory: duetime_core::Memory { window: WINDOW, since: 1, watermark: false }, ..shard() };
    let ahead = NOW.plus(Duration::from_secs(365 * 24 * 3600));
    store.edit(&shard, ahead, &cancels("ahead", 40)).await.unwrap();
    // The clock is put right, and others are remembered.
    store.edit(&shard, NOW, &cancels("after", 8)).await.unwrap();
    let batch: Vec<Enqueue> = (0..40).map(|n| message(&format!("ahead-{n}"), Due::At(NOW))).collect();
    let answers = store.enqueue(&shard, NOW, &batch).await.unwrap();
    let held = answers.iter().filter(|one| one.outcome == EnqueueOutcome::CancelledBefore).count();
    assert_eq!(held, 40, "cancels of before are forgotten");
    // All of them are over together: none waits until the clock is as far as it was.
    store.edit(&shard, NOW.plus(WINDOW * 2), &cancels("late", 40)).await.unwrap();
    let conn = folder::open_reader(dir.path()).unwrap();
    let sql = "SELECT count(*) FROM past WHERE id NOT LIKE 'late-%'";
    assert_eq!(conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

fn notes(folder: &Path) -> u32 {
    let conn = folder::open_reader(folder).unwrap();
    let sql = "SELECT coalesce(json_extract(meta, '$.notes'), 0) FROM shard ORDER BY key LIMIT 1";
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_shard_that_has_as_many_notes_as_it_may_refuses_more_until_they_are_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_topic(dir.path()).await;
    let shard = Shard { memory: duetime_core::Memory { window: WINDOW, since: 1, watermark: false }, ..shard() };
    let edit = async |store: &EmbeddedStore, now, names: &[&str]| {
        let edits: Vec<Edit> = names.iter().map(|name| Edit::Cancel(MessageId::new(name).unwrap())).collect();
        store.edit(&shard, now, &edits).await.unwrap()
    };
    assert_eq!(edit(&store, NOW, &["x", "y", "x"]).await, [Edited::Unknown; 3]);
    assert_eq!(notes(dir.path()), 2, "each id once");
    // What takes the place of a note is none.
    let replaced = Enqueue { on_conflict: duetime_core::OnConflict::Replace, ..message("x", Due::At(NOW)) };
    store.enqueue(&shard, NOW, &[replaced, message("a", Due::At(NOW))]).await.unwrap();
    assert_eq!(edit(&store, NOW, &["x"]).await, [Edited::Cancelled]);
    assert_eq!(notes(dir.path()), 1);
    drop(store);
    let conn = rusqlite::Connection::open(dir.path().join(crate::fault::DATABASE)).unwrap();
    let sql = "UPDATE shard SET meta = json_set(meta, '$.notes', ?1)";
    conn.execute(sql, [NOTES_MAX - 1]).unwrap();
    drop(conn);
    let store = open(dir.path());
    let later = NOW.plus(WINDOW / 2);
    assert_eq!(edit(&store, later, &["p", "q", "a"]).await, [Edited::Unknown, Edited::Full, Edited::Cancelled]);
    let placed = store.enqueue(&shard, later, &[message("p", Due::At(later)), message("q", Due::At(later))]).await;
    let placed: Vec<EnqueueOutcome> = placed.unwrap().into_iter().map(|one| one.outcome).collect();
    assert_eq!(placed, [EnqueueOutcome::CancelledBefore, EnqueueOutcome::Scheduled]);
    // Those of `NOW` are over: refused cancels alone drop them.
    assert_eq!(edit(&store, NOW.plus(WINDOW * 2), &["z"]).await, [Edited::Unknown]);
}
