//! Sinks that were put by the API: small records that only who saw their present text changes, apart from all others.

#![expect(missing_docs, reason = "a sentence's name says it all")]

use duetime_core::StoreError;
use duetime_core::put_sinks::{SINK_BYTES_MAX, SINKS_MAX};

use crate::conformance::StoreFactory;

/// No other test has it.
fn fresh() -> String {
    format!("sink-{:016x}", rand::random::<u64>())
}

pub async fn a_sink_is_changed_only_by_who_saw_it_as_it_is(factory: &dyn StoreFactory) {
    let (store, name) = (factory.store().await, fresh());
    store.swap_sink(&name, None, Some("one é \"1\"")).await.unwrap();
    let again = store.swap_sink(&name, None, Some("other")).await;
    assert!(matches!(again, Err(StoreError::Conflict)), "{again:?}");
    store.swap_sink(&name, Some("one é \"1\""), Some("two")).await.unwrap();
    for seen in [None, Some("one é \"1\""), Some("")] {
        for new in [Some("three"), None] {
            let late = store.swap_sink(&name, seen, new).await;
            assert!(matches!(late, Err(StoreError::Conflict)), "{seen:?} to {new:?}: {late:?}");
        }
    }
    assert_eq!(store.sinks().await.unwrap().get(&name).map(String::as_str), Some("two"));
    store.swap_sink(&name, Some("two"), None).await.unwrap();
    assert_eq!(store.sinks().await.unwrap().get(&name), None);
    let gone = store.swap_sink(&name, Some("two"), Some("back")).await;
    assert!(matches!(gone, Err(StoreError::Conflict)), "{gone:?}");
}

pub async fn a_sink_and_a_plan_of_one_name_are_two_things(factory: &dyn StoreFactory) {
    let (store, name) = (factory.store().await, fresh());
    store.swap_sink(&name, None, Some("sink")).await.unwrap();
    store.swap_plan(&name, None, Some("plan")).await.unwrap();
    store.swap_plan(&name, Some("plan"), None).await.unwrap();
    assert_eq!(store.sinks().await.unwrap().get(&name).map(String::as_str), Some("sink"));
    store.swap_sink(&name, Some("sink"), None).await.unwrap();
}

pub async fn sinks_are_bounded_in_length_and_number(factory: &dyn StoreFactory) {
    let store = factory.store().await;
    let long = "x".repeat(SINK_BYTES_MAX);
    let mut made = Vec::new();
    let full = loop {
        let name = fresh();
        match store.swap_sink(&name, None, Some(&long)).await {
            Ok(()) => made.push(name),
            Err(error) => break error,
        }
        assert!(made.len() <= SINKS_MAX);
    };
    assert!(matches!(full, StoreError::Full(_)), "{full:?}");
    assert!(store.sinks().await.unwrap().len() <= SINKS_MAX);
    // One that is there may still change, and one that is deleted makes way for another.
    store.swap_sink(&made[0], Some(&long), Some("short")).await.unwrap();
    let longer = store.swap_sink(&made[0], Some("short"), Some(&"x".repeat(SINK_BYTES_MAX + 1))).await;
    assert!(matches!(longer, Err(StoreError::Full(_))), "{longer:?}");
    store.swap_sink(&made[0], Some("short"), None).await.unwrap();
    for name in &made[1..] {
        store.swap_sink(name, Some(&long), None).await.unwrap();
    }
}
