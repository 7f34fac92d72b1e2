//! Contents: payloads, headers and ids arrive as they were given, bit for bit.

use crate::at_home::MessagesAtHome as _;
use bytes::Bytes;
use duetime_core::store::{DeadAction, Edited, Enqueue, Settled, Settlement};
use duetime_core::{Headers, MessageState};

use super::world::{World, id, message, settle};
use crate::conformance::StoreFactory;

/// Enqueues, reads, claims, buries, pages and redrives; everything must come back the same.
async fn travels_whole(world: &World, given: &Enqueue) {
    world.enqueue(std::slice::from_ref(given)).await;
    let same = |what: &str, headers: &Headers, payload: &Bytes| {
        assert_eq!(headers, &given.headers, "{what} of {}", given.id);
        assert!(payload == &given.payload, "{what} of {} has another payload", given.id);
    };
    let found = world.get(given.id.as_str()).await.unwrap();
    same("get", &found.headers, &found.payload);
    let claimed = world.claim_one().await;
    assert_eq!((&claimed.id, claimed.nonce), (&given.id, given.nonce));
    same("claim", &claimed.headers, &claimed.payload);
    assert_eq!(world.settle(&claimed, Settlement::Bury("refused".to_owned())).await, Settled::Ok);
    let page = world.store.dead_letters(&world.shard(), None, 10).await.unwrap();
    same("dead", &page.messages[0].headers, &page.messages[0].payload);
    let ids = [given.id.clone()];
    world.store.resolve_dead_letters(&world.shard(), world.now(), &ids, DeadAction::Redrive).await.unwrap();
    let claimed = world.claim_one().await;
    same("redriven claim", &claimed.headers, &claimed.payload);
    assert_eq!(world.settle(&claimed, Settlement::Ack).await, Settled::Ok);
}

pub async fn payloads_arrive_bit_for_bit(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let every_byte: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
    let large: Vec<u8> = (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let payloads = [every_byte, Vec::new(), large, vec![0], b"\r\n".to_vec(), vec![0xff; 9], b"1e3".to_vec()];
    for (n, payload) in payloads.into_iter().enumerate() {
        let given = message(&format!("m{n}"), world.ago(1000));
        travels_whole(&world, &Enqueue { payload: payload.into(), ..given }).await;
    }
}

pub async fn headers_arrive_as_they_were_given(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let sets = [
        vec![pair("content-type", "application/json")],
        vec![pair("b", "2"), pair("a", "1"), pair("b", "3"), pair("Empty", "")],
        vec![pair("greeting", "привет, 世界 🎉"), pair("x!#$%&'*+-.^_`|~", "{}[]\"'\\ ")],
        (0..64).map(|n| pair(&format!("h{n}"), &"v".repeat(200))).collect(),
    ];
    for (n, pairs) in sets.into_iter().enumerate() {
        let given = message(&format!("m{n}"), world.ago(1000));
        travels_whole(&world, &Enqueue { headers: Headers::new(pairs).unwrap(), ..given }).await;
    }
}

pub async fn odd_ids_are_ids_like_others(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let longest = "ж".repeat(128);
    let odd = [
        " ",
        "заказ 42",
        "a:b",
        "{tag}:x",
        "}{",
        "\"quoted\"",
        "it's",
        "back\\slash",
        "-inf",
        "+inf",
        "inf",
        "(1",
        "[1",
        "0",
        "-1",
        "nil",
        "null",
        "NaN",
        "*",
        "?",
        "%s%n",
        "%00",
        "🎉",
        "e\u{301}",
        "é",
        "a/b/../c",
        "#",
        "$1",
        "count",
        "epoch",
        "meta",
        "\u{feff}",
        "\u{2028}",
        longest.as_str(),
    ];
    for text in odd {
        travels_whole(&world, &message(text, world.ago(1000))).await;
        world.put(text, world.ago(-60_000)).await;
        assert!(matches!(world.reschedule(text, world.ago(-50_000)).await, Edited::Rescheduled(_)), "{text:?}");
        assert_eq!(world.cancel(text).await, Edited::Cancelled, "{text:?}");
    }
    assert_eq!(world.survey().await, duetime_core::store::ShardCounts::default());
}

pub async fn ids_that_look_alike_are_kept_apart(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let alike = ["1", "01", "1.0", "1e0", "+1", " 1", "1 ", "A", "a", "é", "e\u{301}"];
    let batch: Vec<_> = alike.iter().map(|text| message(text, world.ago(1000))).collect();
    world.enqueue(&batch).await;
    let claim = world.claim(64).await;
    assert_eq!(claim.messages.len(), alike.len());
    for one in &claim.messages {
        assert_eq!(one.payload, format!("payload of {}", one.id));
    }
    assert_eq!(world.settle(&claim.messages[0], Settlement::Ack).await, Settled::Ok);
    assert_eq!(world.survey().await.in_flight, alike.len() as u64 - 1);
}

pub async fn equal_payloads_do_not_collapse_into_one(factory: &dyn StoreFactory) {
    let world = World::new(factory).await;
    let batch: Vec<_> = (0..5)
        .map(|n| Enqueue { payload: Bytes::from_static(b"same"), ..message(&format!("m{n}"), world.ago(1000)) })
        .collect();
    world.enqueue(&batch).await;
    let claim = world.claim(10).await;
    assert_eq!(claim.messages.len(), 5);
    world.settle_all(&[settle(&claim.messages[0], Settlement::Ack)]).await;
    assert_eq!(world.get("m4").await.unwrap().payload, "same");
    assert_eq!(world.get("m4").await.unwrap().state, MessageState::InFlight);
    assert_eq!(world.store.get(&world.shard(), &[id("m0")]).await.unwrap(), [None]);
}
