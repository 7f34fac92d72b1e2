//! Damage of the files is noticed, reported, and kept to the shard it is in.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::collections::BTreeSet;

use duetime_core::ListPlace;

use super::*;

const PAGE: usize = 4096;
/// Messages in each of the two shards, so that their tables have many pages.
const MANY: usize = 2_000;

fn other() -> Shard {
    Shard { index: 1, ..shard() }
}

async fn fill(store: &EmbeddedStore, shard: &Shard) {
    let all: Vec<Enqueue> =
        (0..MANY).map(|n| message(&format!("{}-order-{n:05}", shard.index), Due::At(NOW))).collect();
    for batch in all.chunks(250) {
        store.enqueue(shard, NOW, batch).await.unwrap();
    }
}

/// Claims as long as something comes; the ids, and how often nothing did although something was due.
async fn claim_all(store: &EmbeddedStore, shard: &Shard) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for request in 0..100 {
        let claim = store.claim(shard, NOW, &asking(request, 250)).await.unwrap();
        if claim.messages.is_empty() {
            assert_eq!(claim.due_left, 0, "what cannot be read is not due: nobody could take it");
            break;
        }
        ids.extend(claim.messages.iter().map(|message| message.id.to_string()));
    }
    ids
}

/// Zeroes the first page in the second half of the database that is of this kind and satisfies `is`.
fn zero_page(folder: &Path, kind: u8, is: impl Fn(&[u8]) -> bool) {
    let path = folder.join(crate::fault::DATABASE);
    let mut bytes = std::fs::read(&path).unwrap();
    let half = bytes.len() / PAGE / 2;
    let page = (half..bytes.len() / PAGE).find(|page| {
        let page = &bytes[page * PAGE..(page + 1) * PAGE];
        page[0] == kind && u16::from_be_bytes([page[3], page[4]]) > 20 && is(page)
    });
    let page = page.expect("a page of that kind");
    bytes[page * PAGE..(page + 1) * PAGE].fill(0);
    std::fs::write(path, bytes).unwrap();
}

fn holds(page: &[u8], text: &str) -> bool {
    page.windows(text.len()).any(|some| some == text.as_bytes())
}

#[tokio::test]
async fn messages_behind_a_damaged_page_and_other_shards_are_delivered_and_the_damage_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    fill(&store, &shard()).await;
    fill(&store, &other()).await;
    drop(store);
    zero_page(folder.path(), 0x0d, |page| holds(page, "1-order-") && !holds(page, "0-order-"));

    let meters = Arc::new(Meters::new());
    let store = EmbeddedStore::open(folder.path(), meters.clone()).unwrap();
    assert_eq!(claim_all(&store, &shard()).await.len(), MANY);
    // On a busy machine, the thread that looks for damage may have found the other one.
    assert!(!store.issues().join(" ").contains("disk: 0"), "{:?}", store.issues());
    let readable = claim_all(&store, &other()).await;
    assert!((MANY - 100..MANY).contains(&readable.len()), "{} of {MANY}", readable.len());
    let told = store.issues().join(" ");
    assert!(told.contains("topic orders are damaged on the disk: 1;") && told.contains("restore a backup"), "{told}");
    assert!(meters.render().contains("duetime_store_issues{kind=\"damage\"} 1"));
    let later = NOW.plus(Duration::from_secs(1));
    assert!(store.next_due(&[other()]).await.unwrap()[0] > Some(later), "nothing that can be taken is due");
    assert_eq!(store.all_counts(&[other()], later).await.unwrap()[0].due, 0);
}

#[tokio::test]
async fn an_index_with_a_damaged_page_is_made_anew_when_the_folder_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    fill(&store, &shard()).await;
    drop(store);
    zero_page(folder.path(), 0x0a, |page| !holds(page, "order-"));

    let store = open(folder.path());
    assert_eq!(claim_all(&store, &shard()).await.len(), MANY);
    assert_eq!(store.issues(), Vec::<String>::new());
}

/// The page at that part of what counts in a log: frames behind it are of an earlier round and have other salts.
fn within_log(log: &[u8], part: usize, of: usize) -> usize {
    const HEADER: usize = 32;
    const FRAME_HEADER: usize = 24;
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let frames = log[HEADER..].chunks_exact(FRAME_HEADER + page);
    let counting = frames.take_while(|frame| frame[8..16] == log[16..24]).count();
    HEADER + (counting * part / of) * (FRAME_HEADER + page) + FRAME_HEADER
}

#[tokio::test]
async fn acknowledged_transactions_that_are_missing_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    for n in 0..20 {
        store.enqueue(&shard(), NOW, &[message(&format!("order-{n}"), Due::At(NOW))]).await.unwrap();
    }
    store.edit(&shard(), NOW, &[Edit::Cancel("never".parse().unwrap())]).await.unwrap();
    for damaged in [false, true] {
        let copy = tempfile::tempdir().unwrap();
        for file in ["duetime.db", "duetime.db-wal", "duetime.synced"] {
            std::fs::copy(folder.path().join(file), copy.path().join(file)).unwrap();
        }
        if damaged {
            let path = copy.path().join("duetime.db-wal");
            let mut log = std::fs::read(&path).unwrap();
            let at = within_log(&log, 3, 4);
            log[at..at + 1000].fill(0);
            std::fs::write(path, log).unwrap();
        }
        let found = open(copy.path());
        let survey = found.all_counts(&[shard()], NOW).await.unwrap()[0];
        assert_eq!(survey.scheduled < 20, damaged, "{survey:?}");
        let told = found.issues().join(" ");
        assert_eq!(told.contains("acknowledged transactions are missing"), damaged, "{told}");
        found.enqueue(&shard(), NOW, &[message("later", Due::At(NOW))]).await.unwrap();
        drop(found);
        assert_eq!(open(copy.path()).issues(), Vec::<String>::new(), "it goes on from what is there");
    }
}

#[tokio::test]
async fn a_message_that_is_missing_in_the_tables_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    fill(&store, &shard()).await;
    drop(store);
    assert_eq!(change(folder.path(), "DELETE FROM message WHERE id = '0-order-00007'"), 1);
    let store = open(folder.path());
    assert!(store.issues().join(" ").contains("topic orders are damaged"), "{:?}", store.issues());
    assert_eq!(claim_all(&store, &shard()).await.len(), MANY - 1);
}

/// Looks through all of the shard, without the pauses.
fn look_through(folder: &Path, store: &EmbeddedStore) -> Vec<String> {
    let key = store.directory.key(&shard()).unwrap();
    let place = crate::verify::ShardRows { topic: shard().topic, index: 0, key };
    assert!(crate::verify::look_through(folder, &[place], &store.damages, |_| true).unwrap());
    store.issues()
}

#[tokio::test]
async fn a_damaged_body_is_reported_before_its_message_is_due() {
    // The last page of a body, which SQLite itself cannot distinguish from what was written, and one with whole rows.
    for kind in [None, Some(0x0d)] {
        let folder = tempfile::tempdir().unwrap();
        let store = with_topic(folder.path()).await;
        let due = NOW.plus(Duration::from_secs(3_600));
        for n in 0..300 {
            let mut one = message(&format!("order-{n:03}"), Due::At(due));
            if kind.is_none() {
                one.payload = format!("{}the-end-of-{n:03}", "x".repeat(20_000)).into_bytes().into();
            }
            store.enqueue(&shard(), NOW, &[one]).await.unwrap();
        }
        assert_eq!(look_through(folder.path(), &store), Vec::<String>::new());
        drop(store);
        match kind {
            Some(kind) => zero_page(folder.path(), kind, |page| holds(page, "order-")),
            None => {
                let path = folder.path().join(crate::fault::DATABASE);
                let mut bytes = std::fs::read(&path).unwrap();
                let page = bytes.chunks_exact_mut(PAGE).find(|page| holds(page, "the-end-of-200")).unwrap();
                page.fill(0);
                std::fs::write(path, bytes).unwrap();
            }
        }
        let store = open(folder.path());
        assert_eq!(store.issues(), Vec::<String>::new(), "nobody has read it");
        let told = look_through(folder.path(), &store).join(" ");
        assert!(told.contains("topic orders are damaged on the disk: 0;"), "{told}");
    }
}

/// All that the list says, by pages.
async fn list_all(store: &EmbeddedStore, limit: usize) -> Vec<String> {
    let (mut range, mut ids) =
        (ListRange { from: Timestamp::ZERO, till: NOW.plus(Duration::from_secs(1)), after: None }, Vec::new());
    loop {
        let page = store.list(&shard(), &range, limit).await.unwrap();
        range.after = page.found.last().map(|last| ListPlace { score: last.score.raw(), tie: last.tie.clone() });
        ids.extend(page.found.into_iter().map(|entry| entry.id.to_string()));
        if !page.more {
            return ids;
        }
    }
}

/// Changes the database while nobody has it open; so many rows.
fn change(folder: &Path, sql: &str) -> usize {
    rusqlite::Connection::open(folder.join(crate::fault::DATABASE)).unwrap().execute(sql, []).unwrap()
}

fn assert_reported(store: &EmbeddedStore) {
    let told = store.issues().join(" ");
    assert!(told.contains("topic orders are damaged on the disk: 0;"), "{told}");
}

#[tokio::test]
async fn a_damaged_id_hides_no_other_message_and_is_reported_by_who_reads_it() {
    // With a character that no id may have, and no text at all.
    for damaged in ["char(16) || id", "CAST(X'ff' || CAST(id AS BLOB) AS TEXT)"] {
        let folder = tempfile::tempdir().unwrap();
        let store = with_topic(folder.path()).await;
        let all: Vec<Enqueue> = (0..20).map(|n| message(&format!("order-{n:02}"), Due::At(NOW))).collect();
        store.enqueue(&shard(), NOW, &all).await.unwrap();
        drop(store);
        let some = format!("UPDATE message SET id = {damaged} WHERE id BETWEEN 'order-04' AND 'order-07'");
        assert_eq!(change(folder.path(), &some), 4);

        let store = open(folder.path());
        assert_eq!(store.issues(), Vec::<String>::new());
        assert_eq!(list_all(&store, 2).await.len(), 16, "two pages of it have nothing else");
        assert_reported(&store);

        // What has no id cannot be moved: nothing is left behind without a word.
        drop(store);
        let store = open(folder.path());
        let halted = store.scan(&shard(), None, 100).await.unwrap_err().to_string();
        assert!(halted.contains("row 5 has") && halted.contains("docs/EMBEDDED.md"), "{halted}");
        assert_reported(&store);

        drop(store);
        let store = open(folder.path());
        assert_eq!(claim_all(&store, &shard()).await.len(), 16);
    }
}

#[tokio::test]
async fn a_damaged_page_hides_no_other_message_of_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    fill(&store, &shard()).await;
    drop(store);
    zero_page(folder.path(), 0x0d, |page| holds(page, "0-order-"));
    let store = open(folder.path());
    let listed = list_all(&store, 50).await.len();
    assert!((MANY - 100..MANY).contains(&listed), "{listed} of {MANY}");
    assert_reported(&store);
}

#[tokio::test]
async fn a_damaged_dead_letter_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    let all: Vec<Enqueue> = (0..5).map(|n| message(&format!("order-{n}"), Due::At(NOW))).collect();
    store.enqueue(&shard(), NOW, &all).await.unwrap();
    let claimed = store.claim(&shard(), NOW, &asking(1, 5)).await.unwrap().messages;
    let ends = claimed.iter().map(|one| Settle {
        id: one.id.clone(),
        score: one.score,
        action: Settlement::Bury("refused".into()),
    });
    store.settle(&shard(), NOW, &ends.collect::<Vec<_>>()).await.unwrap();
    drop(store);
    assert_eq!(change(folder.path(), "UPDATE message SET body = zeroblob(40) WHERE id = 'order-3'"), 1);
    let store = open(folder.path());
    let page = store.dead_letters(&shard(), None, 100).await.unwrap();
    assert_eq!(page.messages.len(), 4);
    assert_reported(&store);
}
