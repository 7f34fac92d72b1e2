//! Small records, bulk plans and sinks that were put by the API: only who saw their present text changes them.

use duetime_core::StoreError;
use duetime_core::records::RecordKind;

use crate::conformance::StoreFactory;

const KINDS: [RecordKind; 2] = [RecordKind::Plan, RecordKind::Sink];

/// No other test has it.
fn fresh() -> String {
    format!("record-{:016x}", rand::random::<u64>())
}

pub async fn a_record_is_changed_only_by_who_saw_it_as_it_is(factory: &dyn StoreFactory) {
    for kind in KINDS {
        let (store, name) = (factory.store().await, fresh());
        store.swap_record(kind, &name, None, Some("one é \"1\"")).await.unwrap();
        let again = store.swap_record(kind, &name, None, Some("other")).await;
        assert!(matches!(again, Err(StoreError::Conflict)), "{again:?}");
        store.swap_record(kind, &name, Some("one é \"1\""), Some("two")).await.unwrap();
        for seen in [None, Some("one é \"1\""), Some("")] {
            for new in [Some("three"), None] {
                let late = store.swap_record(kind, &name, seen, new).await;
                assert!(matches!(late, Err(StoreError::Conflict)), "{seen:?} to {new:?}: {late:?}");
            }
        }
        assert_eq!(store.records(kind).await.unwrap().by_name.get(&name).map(String::as_str), Some("two"));
        store.swap_record(kind, &name, Some("two"), None).await.unwrap();
        assert_eq!(store.records(kind).await.unwrap().by_name.get(&name), None);
        let gone = store.swap_record(kind, &name, Some("two"), Some("back")).await;
        assert!(matches!(gone, Err(StoreError::Conflict)), "{gone:?}");
    }
}

pub async fn records_of_two_kinds_and_one_name_are_two_things(factory: &dyn StoreFactory) {
    let (store, name) = (factory.store().await, fresh());
    store.swap_record(RecordKind::Sink, &name, None, Some("sink")).await.unwrap();
    store.swap_record(RecordKind::Plan, &name, None, Some("plan")).await.unwrap();
    store.swap_record(RecordKind::Plan, &name, Some("plan"), None).await.unwrap();
    assert_eq!(store.records(RecordKind::Sink).await.unwrap().by_name.get(&name).map(String::as_str), Some("sink"));
    store.swap_record(RecordKind::Sink, &name, Some("sink"), None).await.unwrap();
}

pub async fn records_are_bounded_in_length_and_number(factory: &dyn StoreFactory) {
    for kind in KINDS {
        let store = factory.store().await;
        let long = "x".repeat(kind.bytes_max());
        let mut made = Vec::new();
        let full = loop {
            let name = fresh();
            match store.swap_record(kind, &name, None, Some(&long)).await {
                Ok(()) => made.push(name),
                Err(error) => break error,
            }
            assert!(made.len() <= kind.most());
        };
        assert!(matches!(full, StoreError::RecordLimit(_)), "{full:?}");
        assert!(store.records(kind).await.unwrap().by_name.len() <= kind.most());
        // One that is there may still change, and one that is removed makes way for another.
        store.swap_record(kind, &made[0], Some(&long), Some("short")).await.unwrap();
        let longer = store.swap_record(kind, &made[0], Some("short"), Some(&"x".repeat(kind.bytes_max() + 1))).await;
        assert!(matches!(longer, Err(StoreError::RecordLimit(_))), "{longer:?}");
        store.swap_record(kind, &made[0], Some("short"), None).await.unwrap();
        for name in &made[1..] {
            store.swap_record(kind, name, Some(&long), None).await.unwrap();
        }
    }
}

/// A sink of this version.
fn sink(version: u64) -> String {
    format!(r#"{{"version":{version},"changed_at_ms":0,"config":{{"type":"log"}}}}"#)
}

pub async fn a_version_never_comes_again(factory: &dyn StoreFactory) {
    let (store, kind) = (factory.store().await, RecordKind::Sink);
    let (name, other) = (fresh(), fresh());
    let is_refused = |answer: Result<(), StoreError>| matches!(answer, Err(StoreError::Conflict));
    let first = store.records(kind).await.unwrap().last_version + 1;
    store.swap_record(kind, &name, None, Some(&sink(first))).await.unwrap();
    assert!(is_refused(store.swap_record(kind, &name, Some(&sink(first)), Some(&sink(first))).await));
    store.swap_record(kind, &name, Some(&sink(first)), Some(&sink(first + 4))).await.unwrap();
    assert_eq!(store.records(kind).await.unwrap().last_version, first + 4);
    // Deleted, by whatever name it is put again: who holds one of its versions does not meet another sink by it.
    store.swap_record(kind, &name, Some(&sink(first + 4)), None).await.unwrap();
    for old in [first, first + 1, first + 4] {
        for name in [&name, &other] {
            let again = store.swap_record(kind, name, None, Some(&sink(old))).await;
            assert!(is_refused(again), "version {old} came again after {}", first + 4);
        }
    }
    assert_eq!(store.records(kind).await.unwrap().last_version, first + 4, "what was refused counts for nothing");
    store.swap_record(kind, &name, None, Some(&sink(first + 5))).await.unwrap();
    let all = store.records(kind).await.unwrap().by_name;
    assert_eq!((all.get(&name), all.get("")), (Some(&sink(first + 5)), None));
    store.swap_record(kind, &name, Some(&sink(first + 5)), None).await.unwrap();
    assert_eq!(store.records(RecordKind::Plan).await.unwrap().last_version, 0, "plans have none");
}
