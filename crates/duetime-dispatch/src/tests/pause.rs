//! A paused topic: nothing is claimed, for a sink or by consumers, until it is resumed.

use std::time::Duration;

use duetime_core::{ClaimAsk, TopicConfig};
use duetime_metrics::Event;
use tokio::time::Instant;

use super::house::{House, ids, ms, name, secs, with_sink, without_sink};

fn paused(config: TopicConfig) -> TopicConfig {
    TopicConfig { paused: true, ..config }
}

fn ask(wait: Duration) -> ClaimAsk {
    ClaimAsk { max: 100, wait, visibility: None }
}

#[tokio::test(start_paused = true)]
async fn a_paused_topic_hands_nothing_to_its_sink_and_goes_on_where_it_was_when_it_is_resumed() {
    let house = House::new(with_sink()).await;
    house.put_all(&ids("before", 10), ms(0)).await;
    house.pass(secs(1)).await;
    assert_eq!(house.counts().counted(Event::Delivered), 10);
    house.set_topic(paused(with_sink())).await;
    house.pass(ms(10)).await;
    house.put_all(&ids("due", 20), ms(0)).await;
    house.put_all(&ids("later", 20), secs(30)).await;
    house.store.take_calls();
    house.pass(secs(60)).await;
    assert_eq!(house.counts().counted(Event::Delivered), 10);
    assert_eq!(house.store.take_calls().get("claim").copied().unwrap_or_default(), 0);
    assert_eq!(house.survey().await.due, 40, "delays go on falling due");
    assert_eq!(house.counts().paused.get(), 1);
    house.cancel("due-3").await;
    house.set_topic(with_sink()).await;
    house.pass(secs(2)).await;
    assert_eq!(house.counts().counted(Event::Delivered), 49);
    assert_eq!(house.counts().paused.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn consumers_of_a_paused_topic_wait_and_are_served_when_it_is_resumed() {
    let house = House::new(paused(without_sink())).await;
    house.put_all(&ids("o", 10), ms(0)).await;
    let begun = Instant::now();
    let handed = house.engine.consumers().claim(&name(), ask(secs(5))).await.unwrap();
    assert!(handed.is_empty() && begun.elapsed() >= secs(5), "{:?}", begun.elapsed());
    let consumers = house.engine.consumers();
    let waits = tokio::spawn(async move { consumers.claim(&name(), ask(secs(60))).await.unwrap() });
    house.pass(secs(10)).await;
    assert!(!waits.is_finished());
    let resumed = Instant::now();
    house.set_topic(without_sink()).await;
    let handed = waits.await.unwrap();
    assert!(!handed.is_empty() && resumed.elapsed() < secs(1), "{:?}", resumed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_waits_when_the_topic_is_paused_is_given_nothing_that_falls_due() {
    let house = House::new(without_sink()).await;
    house.put("o-1", secs(10)).await;
    let consumers = house.engine.consumers();
    let waits = tokio::spawn(async move { consumers.claim(&name(), ask(secs(30))).await.unwrap() });
    house.pass(secs(5)).await;
    house.set_topic(paused(without_sink())).await;
    assert!(waits.await.unwrap().is_empty());
    assert_eq!(house.counts().counted(Event::Claimed), 0);
}
