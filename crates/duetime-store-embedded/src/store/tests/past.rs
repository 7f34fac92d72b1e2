//! What is remembered of messages that are gone, while a clock is wrong.

use super::*;

const WINDOW: Duration = Duration::from_secs(3600);

fn cancels(name: &str, count: usize) -> Vec<Edit> {
    (0..count).map(|n| Edit::Cancel(MessageId::new(&format!("{name}-{n}")).unwrap())).collect()
}

#[tokio::test]
async fn what_a_clock_that_was_ahead_wrote_is_remembered_for_one_window_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_topic(dir.path()).await;
    let shard = Shard { memory: duetime_core::Memory { window: WINDOW, since: 1 }, ..shard() };
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
