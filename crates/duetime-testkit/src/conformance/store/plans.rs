//! Bulk plans: small records that only who saw their present text changes.

#![expect(missing_docs, reason = "a sentence's name says it all")]

use duetime_core::StoreError;
use duetime_core::plans::{PLAN_BYTES_MAX, PLANS_MAX};

use crate::conformance::StoreFactory;

/// No other test has it.
fn fresh() -> String {
    format!("plan-{:016x}", rand::random::<u64>())
}

pub async fn a_plan_is_changed_only_by_who_saw_it_as_it_is(factory: &dyn StoreFactory) {
    let (store, id) = (factory.store().await, fresh());
    store.swap_plan(&id, None, Some("one é \"1\"")).await.unwrap();
    let again = store.swap_plan(&id, None, Some("other")).await;
    assert!(matches!(again, Err(StoreError::Conflict)), "{again:?}");
    store.swap_plan(&id, Some("one é \"1\""), Some("two")).await.unwrap();
    for seen in [None, Some("one é \"1\""), Some("")] {
        for new in [Some("three"), None] {
            let late = store.swap_plan(&id, seen, new).await;
            assert!(matches!(late, Err(StoreError::Conflict)), "{seen:?} to {new:?}: {late:?}");
        }
    }
    assert_eq!(store.plans().await.unwrap().get(&id).map(String::as_str), Some("two"));
    store.swap_plan(&id, Some("two"), None).await.unwrap();
    assert_eq!(store.plans().await.unwrap().get(&id), None);
    let gone = store.swap_plan(&id, Some("two"), Some("back")).await;
    assert!(matches!(gone, Err(StoreError::Conflict)), "{gone:?}");
}

pub async fn plans_are_bounded_in_length_and_number(factory: &dyn StoreFactory) {
    let store = factory.store().await;
    let long = "x".repeat(PLAN_BYTES_MAX);
    let mut made = Vec::new();
    let full = loop {
        let id = fresh();
        match store.swap_plan(&id, None, Some(&long)).await {
            Ok(()) => made.push(id),
            Err(error) => break error,
        }
        assert!(made.len() <= PLANS_MAX);
    };
    assert!(matches!(full, StoreError::Full(_)), "{full:?}");
    assert!(store.plans().await.unwrap().len() <= PLANS_MAX);
    // One that is there may still change, and one that ended makes way for another.
    store.swap_plan(&made[0], Some(&long), Some("short")).await.unwrap();
    let longer = store.swap_plan(&made[0], Some("short"), Some(&"x".repeat(PLAN_BYTES_MAX + 1))).await;
    assert!(matches!(longer, Err(StoreError::Full(_))), "{longer:?}");
    store.swap_plan(&made[0], Some("short"), None).await.unwrap();
    for id in &made[1..] {
        store.swap_plan(id, Some(&long), None).await.unwrap();
    }
}
