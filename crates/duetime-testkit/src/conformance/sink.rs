//! The conformance suite of `Sink`: one sentence of the contract, one function.
//!
//! A sink's tests bring a [`SinkWorld`] and call [`run_all`]: one target serves the whole suite,
//! because some take seconds to start.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use duetime_core::{Delivery, Headers, MessageId, Nonce, Sink, Timestamp, TopicName, Verdict};
use tokio::time::Instant;

use crate::servers::Proxy;
use crate::wait::{Because, let_pass};

/// Longest wait until a target that came back is used again.
const RECOVERY_MAX: Duration = Duration::from_secs(20);

/// So many messages must be under way at once.
const IN_FLIGHT_MIN: usize = 16;
/// Messages in each call of those that are all under way at once.
const EACH: usize = 4;
/// Longest wait until what was sent has arrived.
const ARRIVAL_MAX: Duration = Duration::from_secs(60);

/// A message as it came out at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The topic it said it was from.
    pub topic: String,
    /// The message's id.
    pub id: String,
    /// The delivery id.
    pub delivery_id: String,
    /// Which attempt it said it was.
    pub attempt: String,
    /// The due time it said it had, in milliseconds.
    pub due_at: String,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A part of a world that not every target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// [`SinkWorld::received`].
    Received,
    /// [`SinkWorld::refused_message`].
    RefusedMessage,
    /// [`SinkWorld::behind_proxy`].
    BehindProxy,
    /// [`SinkWorld::take_down`].
    TakeDown,
}

/// A target under test, and a sink bound to it.
#[async_trait]
pub trait SinkWorld: Send {
    /// What it does not have; nothing, if it does not say so: all sentences run. Each sentence that needs such a part is
    /// left out for it, and for no other reason.
    fn lacks(&self) -> &'static [Part] {
        &[]
    }

    /// A sink on the target, configured with a connection of its own. Its credentials contain
    /// [`CANARY`], if it has any.
    fn sink(&self) -> Arc<dyn Sink>;

    /// What arrived at the target since the last call, in any order; `None` if that cannot be seen.
    async fn received(&mut self) -> Option<Vec<Received>>;

    /// A message that the target refuses for its own sake, if it has such.
    fn refused_message(&self) -> Option<Delivery> {
        None
    }

    /// Takes the target down, connections and all. Answers `false` if it cannot be taken down.
    async fn take_down(&mut self) -> bool;

    /// Brings it back, at the same address.
    async fn bring_back(&mut self);

    /// The sink once more, with time-outs of minutes, before a network that can hold answers back; `None` if there
    /// is no such network for it.
    async fn behind_proxy(&mut self) -> Option<(Arc<dyn Sink>, Proxy)> {
        None
    }

    /// A verdict must come within this time, whatever happens to the target.
    fn verdict_within(&self) -> Duration {
        Duration::from_secs(12)
    }
}

/// Part of every credential in a suite's configuration; never to be seen anywhere.
pub const CANARY: &str = "canary-7f3a9c";

/// A message to hand over.
#[must_use]
pub fn message(id: &str, payload: impl Into<Bytes>) -> Delivery {
    Delivery {
        topic: TopicName::new("conformance").expect("a plain name"),
        id: MessageId::new(id).expect("the suite's ids are valid"),
        due_at: Timestamp::from_millis(1_800_000_000_123),
        attempt: 1,
        nonce: Nonce(0x0123_4567_89ab_cdef),
        headers: Headers::default(),
        payload: payload.into(),
        not_after: Timestamp::from_millis(1_900_000_000_123),
        at_most_once: false,
        span: None,
    }
}

fn as_received(message: &Delivery) -> Received {
    Received {
        topic: message.topic.to_string(),
        id: message.id.to_string(),
        delivery_id: message.delivery_id(),
        attempt: message.attempt.to_string(),
        due_at: message.due_at.as_millis().to_string(),
        payload: message.payload.to_vec(),
    }
}

fn by_id(mut received: Vec<Received>) -> Vec<Received> {
    received.sort_by(|one, other| (&one.id, &one.attempt).cmp(&(&other.id, &other.attempt)));
    received
}

/// Hands all over in calls as large as the sink takes, as many at once as it takes.
async fn deliver(sink: &Arc<dyn Sink>, messages: &[Delivery], within: Duration) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let calls: Vec<&[Delivery]> = messages.chunks(sink.batch_max()).collect();
    for round in calls.chunks(sink.calls_max()) {
        let answers = futures::future::join_all(round.iter().map(|batch| sink.deliver(batch)));
        let answers = tokio::time::timeout(within, answers).await.expect("verdicts come in time");
        for (batch, answer) in round.iter().zip(answers) {
            assert_eq!(batch.len(), answer.len(), "one verdict for each message");
            verdicts.extend(answer);
        }
    }
    verdicts
}

/// Whether a sentence is left out, because the world says that it lacks what the sentence needs.
fn is_left_out(world: &impl SinkWorld, part: Part, is_there: bool) -> bool {
    let lacks = world.lacks().contains(&part);
    assert_ne!(lacks, is_there, "{part:?}: the world says {:?} is what it lacks", world.lacks());
    lacks
}

/// Runs every sentence on one target, in an order that leaves it usable.
pub async fn run_all(world: &mut impl SinkWorld) {
    let sees = world.received().await.is_some();
    is_left_out(world, Part::Received, sees);
    a_target_that_is_there_passes_the_check(world).await;
    each_message_has_one_verdict_and_arrives_once(world).await;
    what_arrives_is_what_was_given(world).await;
    any_id_and_any_header_can_be_handed_over(world).await;
    a_second_attempt_has_the_same_delivery_id_and_another_life_has_another(world).await;
    a_refused_message_takes_no_other_along(world).await;
    all_calls_are_under_way_at_once_and_wait_for_their_own_answers(world).await;
    a_target_that_is_away_is_unavailable_and_its_return_is_noticed(world).await;
}

/// See its name.
pub async fn a_target_that_is_there_passes_the_check(world: &mut impl SinkWorld) {
    assert_eq!(world.sink().check().await, Ok(()));
    let shown = format!("{:?}", world.sink());
    assert!(!shown.contains(CANARY), "{shown}");
}

/// See its name.
pub async fn each_message_has_one_verdict_and_arrives_once(world: &mut impl SinkWorld) {
    let sink = world.sink();
    let count = 300.max(sink.batch_max() + 1);
    let messages: Vec<Delivery> =
        (0..count).map(|n| message(&format!("many-{n:05}"), format!("payload {n}"))).collect();
    let verdicts = deliver(&sink, &messages, world.verdict_within()).await;
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
    if let Some(received) = world.received().await {
        assert_eq!(by_id(received), messages.iter().map(as_received).collect::<Vec<_>>());
    }
}

/// See its name.
pub async fn what_arrives_is_what_was_given(world: &mut impl SinkWorld) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads = [Vec::new(), vec![0], b"\r\n\0\xff\xfe".to_vec(), every_byte.clone(), every_byte.repeat(400)];
    let messages: Vec<Delivery> =
        payloads.into_iter().enumerate().map(|(n, payload)| message(&format!("bits-{n}"), payload)).collect();
    let verdicts = deliver(&world.sink(), &messages, world.verdict_within()).await;
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
    if let Some(received) = world.received().await {
        assert_eq!(by_id(received), messages.iter().map(as_received).collect::<Vec<_>>());
    }
}

/// See its name.
pub async fn any_id_and_any_header_can_be_handed_over(world: &mut impl SinkWorld) {
    let long = "é".repeat(128);
    let ids = [" leading and trailing ", "заказ/42?a=b#c", "\"quoted\" {id} %41 100%", "a.b*c>d", long.as_str()];
    let headers = Headers::new(vec![
        ("X-Trace".to_owned(), "00-abc".to_owned()),
        ("x-name".to_owned(), "Zoë, {topic}".to_owned()),
        ("x-empty".to_owned(), String::new()),
        ("Connection".to_owned(), "close".to_owned()),
        ("Host".to_owned(), "elsewhere.example".to_owned()),
        ("webhook-id".to_owned(), "forged".to_owned()),
        ("duetime-id".to_owned(), "forged".to_owned()),
        ("Nats-Msg-Id".to_owned(), "forged".to_owned()),
        ("!#$%&'*+-.^_`|~".to_owned(), "odd".to_owned()),
    ]);
    let headers = headers.expect("the suite's headers are valid");
    let messages: Vec<Delivery> =
        ids.iter().map(|id| Delivery { headers: headers.clone(), ..message(id, "x") }).collect();
    let verdicts = deliver(&world.sink(), &messages, world.verdict_within()).await;
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
    if let Some(received) = world.received().await {
        assert_eq!(by_id(received), by_id(messages.iter().map(as_received).collect()));
    }
}

/// See its name.
pub async fn a_second_attempt_has_the_same_delivery_id_and_another_life_has_another(world: &mut impl SinkWorld) {
    let first = message("again", "x");
    let second = Delivery { attempt: 2, ..first.clone() };
    let other_life = Delivery { attempt: 3, nonce: Nonce(7), ..first.clone() };
    let sink = world.sink();
    for attempt in [&first, &second, &other_life] {
        let verdicts = deliver(&sink, std::slice::from_ref(attempt), world.verdict_within()).await;
        assert_eq!(verdicts, [Verdict::Accepted]);
    }
    if let Some(received) = world.received().await {
        // A target that drops duplicates by the delivery id does what it is there for.
        let ids: BTreeSet<String> = received.into_iter().map(|message| message.delivery_id).collect();
        assert_eq!(ids, BTreeSet::from([first.delivery_id(), other_life.delivery_id()]));
    }
}

/// See its name.
pub async fn a_refused_message_takes_no_other_along(world: &mut impl SinkWorld) {
    let refused = world.refused_message();
    if is_left_out(world, Part::RefusedMessage, refused.is_some()) {
        return;
    }
    let refused = refused.expect("it was looked at");
    let sink = world.sink();
    let mut messages: Vec<Delivery> = (0..9).map(|n| message(&format!("good-{n}"), "x")).collect();
    messages.insert(4, refused);
    let verdicts = deliver(&sink, &messages, world.verdict_within()).await;
    for (n, verdict) in verdicts.iter().enumerate() {
        let own = matches!(verdict, Verdict::Rejected { .. } | Verdict::Refused { .. } | Verdict::Retry { .. });
        assert!(if n == 4 { own } else { *verdict == Verdict::Accepted }, "message {n}: {verdict:?}");
    }
    if let Some(received) = world.received().await {
        messages.remove(4);
        assert_eq!(by_id(received), messages.iter().map(as_received).collect::<Vec<_>>());
    }
}

/// See its name.
pub async fn all_calls_are_under_way_at_once_and_wait_for_their_own_answers(world: &mut impl SinkWorld) {
    let sink = world.sink();
    let (calls, each) = (sink.calls_max(), sink.batch_max().min(EACH));
    assert!(calls * each >= IN_FLIGHT_MIN, "{calls} calls of {each} messages at once are too few");
    let behind = world.behind_proxy().await;
    if is_left_out(world, Part::BehindProxy, behind.is_some()) {
        return;
    }
    let (sink, proxy) = behind.expect("it was looked at");
    let messages = |prefix: &str| -> Vec<Delivery> {
        (0..calls * each).map(|n| message(&format!("{prefix}-{n:04}"), "x")).collect()
    };
    // Opens what each call needs of its own.
    let warm = messages("warm");
    let opened = futures::future::join_all(warm.chunks(each).map(|batch| sink.deliver(batch))).await;
    assert!(opened.iter().flatten().all(|verdict| *verdict == Verdict::Accepted), "{opened:?}");
    let _ = world.received().await;

    proxy.hold_answers();
    let held = messages("held");
    let mut answers = tokio::task::JoinSet::new();
    for batch in held.chunks(each).map(<[Delivery]>::to_vec) {
        let sink = sink.clone();
        answers.spawn(async move { sink.deliver(&batch).await });
    }
    let mut arrived = Vec::new();
    let sent = Instant::now();
    while arrived.len() < held.len()
        && let Some(more) = world.received().await
    {
        arrived.extend(more);
        crate::in_time!(sent.elapsed() < ARRIVAL_MAX, "{} of {} are under way at once", arrived.len(), held.len());
        let_pass(Duration::from_millis(50), Because::AskedAgain).await;
    }
    assert_eq!(by_id(arrived), held.iter().map(as_received).collect::<Vec<_>>());
    assert!(answers.try_join_next().is_none(), "there is no verdict without an answer");
    proxy.heal();
    while let Some(answer) = answers.join_next().await {
        let verdicts = answer.expect("a sink does not panic");
        assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Accepted), "{verdicts:?}");
    }
}

/// See its name.
pub async fn a_target_that_is_away_is_unavailable_and_its_return_is_noticed(world: &mut impl SinkWorld) {
    let sink = world.sink();
    assert_eq!(deliver(&sink, &[message("before", "x")], world.verdict_within()).await, [Verdict::Accepted]);
    let is_down = world.take_down().await;
    if is_left_out(world, Part::TakeDown, is_down) {
        return;
    }
    let messages: Vec<Delivery> = (0..20).map(|n| message(&format!("away-{n}"), "x")).collect();
    for again in [&sink, &world.sink()] {
        for verdict in deliver(again, &messages, world.verdict_within()).await {
            let (Verdict::Unavailable { reason } | Verdict::NoAnswer { reason }) = &verdict else {
                panic!("{verdict:?}")
            };
            assert!(!reason.is_empty() && !reason.contains(CANARY), "{reason}");
        }
    }
    let checked = tokio::time::timeout(world.verdict_within(), sink.check()).await.expect("a check ends in time");
    let said = checked.expect_err("the target is away");
    assert!(!said.is_empty() && !said.contains(CANARY), "{said}");

    world.bring_back().await;
    let _ = world.received().await;
    let back = Instant::now();
    loop {
        let verdict = deliver(&sink, &[message("after", "x")], world.verdict_within()).await;
        if verdict == [Verdict::Accepted] {
            break;
        }
        crate::in_time!(back.elapsed() < RECOVERY_MAX, "the sink does not notice that its target is back: {verdict:?}");
        let_pass(Duration::from_millis(100), Because::AskedAgain).await;
    }
    assert_eq!(sink.check().await, Ok(()));
    if let Some(received) = world.received().await {
        assert!(received.iter().any(|message| message.id == "after"), "{received:?}");
    }
}
