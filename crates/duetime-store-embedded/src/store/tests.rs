//! The folder from outside: what survives, what is refused.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::time::Duration;

use duetime_core::resize_store::{ApplyOutcome, DeadlineFloor, ResizeStore as _, RoutingAuthority as _};
use duetime_core::store::{Edit, Edited, Enqueue, EnqueueOutcome, Settle, Settled, Settlement};
use duetime_core::{ChangeId, Due, Nonce, Routing, RoutingId, TopicConfig};
use duetime_testkit::{claim_request, plain_message};

use super::*;

mod backup;
mod damage;
mod disk;
mod past;
mod writer;

/// What takes longer does not happen any more, on a slow machine too.
const PATIENCE: Duration = Duration::from_secs(60);

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn open(folder: &Path) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(folder, Default::default()).unwrap()
}

fn shard() -> Shard {
    Shard::new(
        TopicName::new("orders").unwrap(),
        0,
        RoutingId { epoch: duetime_core::routing::LIFE + 1, change_id: ChangeId(1) },
    )
}

/// Waits until the store is ready, for a probe of its disk that takes a second on a busy machine is none.
async fn ready(store: &EmbeddedStore) {
    let probed = async {
        while let Err(error) = store.ready().await {
            assert!(error.to_string().contains(crate::writer::SILENT), "{error}");
        }
    };
    tokio::time::timeout(PATIENCE, probed).await.expect("its writer goes on");
}

async fn with_topic(folder: &Path) -> Arc<EmbeddedStore> {
    let store = open(folder);
    let routing = Routing::first(2, ChangeId(1));
    let config = TopicConfig::default();
    let record = TopicRecord {
        name: shard().topic,
        config,
        routing,
        desired: None,
        max_shards_ever: 2,
        pause: None,
        earlier: Vec::new(),
        remembers_since: 0,
        version: 1,
        created_at_ms: NOW.as_millis(),
    };
    store.put_topic(&record, None).await.unwrap();
    store
}

fn message(id: &str, due: Due) -> Enqueue {
    Enqueue { payload: id.as_bytes().to_vec().into(), nonce: Nonce(rand(id)), ..plain_message(id, due) }
}

fn rand(id: &str) -> u64 {
    id.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte))
}

fn asking(request: u64, limit: usize) -> ClaimRequest {
    ClaimRequest { request, ..claim_request(limit) }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_when_the_folder_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    let batch = ["a", "b", "c", "d"].map(|id| message(id, Due::In(Duration::from_secs(1))));
    let answers = store.enqueue(&shard(), NOW, &batch).await.unwrap();
    assert!(answers.iter().all(|a| a.outcome == EnqueueOutcome::Scheduled));
    let cancelled = store.edit(&shard(), NOW, &[Edit::Cancel(batch[1].id.clone())]).await.unwrap();
    assert_eq!(cancelled, [Edited::Cancelled]);
    let later = NOW.plus(Duration::from_secs(2));
    let claim = store.claim(&shard(), later, &asking(1, 1)).await.unwrap();
    assert_eq!((claim.messages.len(), claim.due_left), (1, 2));
    drop(store);

    let store = open(folder.path());
    let survey = store.all_counts(&[shard()], later).await.unwrap()[0];
    assert_eq!((survey.scheduled, survey.in_flight, survey.due, survey.dead), (2, 1, 2, 0));
    assert_eq!(store.next_due(&[shard()]).await.unwrap(), [Some(NOW.plus(Duration::from_secs(1)))]);
    let again = store.claim(&shard(), later, &asking(1, 1)).await.unwrap();
    assert_eq!(again.messages, claim.messages, "the answer to a repeated request outlives the process");
    let one = &claim.messages[0];
    let ack = [Settle { id: one.id.clone(), score: one.score, action: Settlement::Ack }];
    assert_eq!(store.settle(&shard(), later, &ack).await.unwrap(), [Settled::Ok]);
    assert_eq!(store.settle(&shard(), later, &ack).await.unwrap(), [Settled::Expired]);
}

#[tokio::test]
async fn a_second_process_on_the_folder_learns_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let _first = open(folder.path());
    let refused = EmbeddedStore::open(folder.path(), Default::default()).unwrap_err().to_string();
    assert!(refused.contains("used by another duetime") && refused.contains("--store embedded:PATH"), "{refused}");
    assert!(refused.contains(&std::process::id().to_string()), "{refused}");
}

#[tokio::test]
async fn a_folder_of_a_newer_version_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let conn = rusqlite::Connection::open(folder.path().join(crate::fault::DATABASE)).unwrap();
    conn.pragma_update(None, "user_version", folder::FORMAT + 1).unwrap();
    drop(conn);
    let refused = EmbeddedStore::open(folder.path(), Default::default()).unwrap_err().to_string();
    assert!(refused.contains("newer"), "{refused}");
}

#[tokio::test]
async fn a_flipped_byte_in_a_body_makes_a_dead_letter_and_is_never_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    let batch = ["good", "flipped"].map(|id| message(id, Due::At(NOW)));
    store.enqueue(&shard(), NOW, &batch).await.unwrap();
    drop(store);
    let conn = rusqlite::Connection::open(folder.path().join(crate::fault::DATABASE)).unwrap();
    let flip =
        "UPDATE message SET body = CAST(substr(body, 1, 20) || x'00' || substr(body, 22) AS BLOB) WHERE id = 'flipped'";
    assert_eq!(conn.execute(flip, []).unwrap(), 1);
    drop(conn);
    let store = open(folder.path());
    let claim = store.claim(&shard(), NOW, &asking(1, 10)).await.unwrap();
    assert_eq!(claim.messages.iter().map(|m| m.id.as_str()).collect::<Vec<_>>(), ["good"]);
    assert_eq!(claim.buried, 1);
}

#[tokio::test]
async fn messages_of_one_due_time_come_in_the_order_of_their_enqueue() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    let given: Vec<String> = (0..40).map(|n| format!("{:02}", n * 7 % 40)).collect();
    for batch in given.chunks(5) {
        let batch: Vec<Enqueue> = batch.iter().map(|id| message(id, Due::At(NOW))).collect();
        store.enqueue(&shard(), NOW, &batch).await.unwrap();
    }
    drop(store);
    let store = open(folder.path());
    let mut claimed = Vec::new();
    for request in 0..4 {
        let claim = store.claim(&shard(), NOW, &asking(request, 10)).await.unwrap();
        claimed.extend(claim.messages.into_iter().map(|message| message.id.to_string()));
    }
    assert_eq!(claimed, given);
}

#[tokio::test]
async fn an_enqueue_that_becomes_the_head_is_announced() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    let mut wakeups = store.wakeups();
    for (id, after_s) in [("late", 60), ("later", 90), ("soon", 5)] {
        let batch = [message(id, Due::In(Duration::from_secs(after_s)))];
        store.enqueue(&shard(), NOW, &batch).await.unwrap();
    }
    let told: Vec<_> =
        std::iter::from_fn(|| wakeups.try_recv().ok()).filter_map(|w| Some(w.visible_at?.since(NOW))).collect();
    assert_eq!(told, [Duration::from_secs(60), Duration::from_secs(5)]);
}

/// Takes from a folder what format 1 did not have: it knew no change of the shard count.
fn downgrade(folder: &Path) {
    let conn = rusqlite::Connection::open(folder.join(crate::fault::DATABASE)).unwrap();
    conn.execute_batch(
        "DROP TABLE fence; DROP TABLE outbox; DROP TABLE frozen; DROP TABLE moved; DROP TABLE life;
         DROP TABLE deleted_transaction; DROP TABLE bulk_plan; DROP TABLE put_sink; DROP TABLE past;
         UPDATE shard SET meta = json_remove(meta, '$.transaction', '$.messages', '$.bytes');
         UPDATE topic SET record = json_remove(record, '$.desired', '$.widest');
         PRAGMA user_version = 1;",
    )
    .unwrap();
    let tables = "SELECT group_concat(name) FROM (SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name)";
    let tables: String = conn.query_row(tables, [], |row| row.get(0)).unwrap();
    assert_eq!(tables, "dead,gone,message,shard,sqlite_sequence,topic", "the tables of format 1");
}

#[tokio::test]
async fn a_folder_of_format_1_keeps_its_messages_and_its_shards_can_change() {
    let folder = tempfile::tempdir().unwrap();
    let store = with_topic(folder.path()).await;
    let batch = ["held", "dead", "far", "due"].map(|id| message(id, Due::At(NOW)));
    store.enqueue(&shard(), NOW, &batch).await.unwrap();
    let held = store.claim(&shard(), NOW, &asking(1, 2)).await.unwrap().messages;
    let (dead, held) = held.into_iter().partition::<Vec<_>, _>(|message| message.id.as_str() == "dead");
    let bury = Settlement::Bury("too old".to_owned());
    let bury = [Settle { id: dead[0].id.clone(), score: dead[0].score, action: bury }];
    assert_eq!(store.settle(&shard(), NOW, &bury).await.unwrap(), [Settled::Ok]);
    drop(store);
    downgrade(folder.path());

    for _ in 0..2 {
        let store = open(folder.path());
        let survey = store.all_counts(&[shard()], NOW).await.unwrap()[0];
        assert_eq!((survey.scheduled, survey.in_flight, survey.dead), (2, 1, 1));
        drop(store);
    }
    let store = open(folder.path());
    let record = store.topics().await.unwrap().remove(0);
    assert_eq!((record.max_shards_ever(), record.routing.change()), (2, 1));
    let (seen, mut new) = (record.routing_record(), record.routing_record());
    let state = duetime_core::RoutingState::Moving;
    let epoch = seen.routing.epoch + 1;
    new.routing =
        Routing { epoch, change_id: ChangeId(2), shards: 3, previous: 2, state, ..Routing::first(2, ChangeId(1)) };
    store.swap_routing(&record.name, &seen, &new).await.unwrap();
    for index in 0..3 {
        store.fence(&record.name, index, &new.routing, &DeadlineFloor::default()).await.unwrap();
    }
    let (source, destination) = (new.routing.shard(&record.name, 0), new.routing.shard(&record.name, 2));
    let ids = batch.map(|message| message.id);
    let taken = store.freeze_batch(&source, 2, &ids, 7).await.unwrap().unwrap();
    assert!(matches!(store.apply_batch(&destination, &taken).await.unwrap(), ApplyOutcome::Done { fresh: 4, .. }));
    assert!(store.discard_batch(&source, 7).await.unwrap());
    let ack = [Settle { id: held[0].id.clone(), score: held[0].score, action: Settlement::Ack }];
    assert_eq!(store.settle(&destination, NOW, &ack).await.unwrap(), [Settled::Ok]);
    let there: Vec<_> = store.get(&destination, &ids).await.unwrap().into_iter().flatten().collect();
    let dead = there.iter().find(|message| message.id.as_str() == "dead").unwrap();
    assert_eq!((there.len(), dead.death.as_ref().unwrap().reason.as_str()), (3, "too old"));
    assert!(there.iter().all(|message| message.payload == message.id.as_str()));
}
