//! The checker is checked: good histories pass, and each kind of damage is found every time.

use proptest::prelude::*;

use super::event::FaultFields;
use super::{Change, Event, FaultKind, FinalState, Invariant, Left, Outcome, Rules, Verdict, What, check, digest};

const RULES: Rules = Rules { attempts_max: 5, aftermath_ms: 500 };
const TOPICS: [&str; 2] = ["orders", "couriers"];
const START_MS: i64 = 1_000_000;

/// One message of a good history.
#[derive(Clone, Debug)]
struct Life {
    delay_ms: i64,
    /// Moved ahead by so much, before it was due.
    moved_ms: Option<i64>,
    retries: u8,
    end: End,
    /// Accepted again after a fault.
    again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Accepted,
    Cancelled,
    Dead,
    StillThere,
}

fn life() -> impl Strategy<Value = Life> {
    let end = prop_oneof![3 => Just(End::Accepted), 1 => Just(End::Cancelled), 1 => Just(End::Dead), 1 => Just(End::StillThere)];
    (100i64..5000, proptest::option::of(500i64..5000), 0u8..4, end, any::<bool>())
        .prop_map(|(delay_ms, moved_ms, retries, end, again)| Life { delay_ms, moved_ms, retries, end, again })
}

/// At least one of each kind that a damage needs.
fn lives() -> impl Strategy<Value = Vec<Life>> {
    proptest::collection::vec(life(), 0..12).prop_map(|mut lives| {
        let usual = Life { delay_ms: 700, moved_ms: None, retries: 0, end: End::Accepted, again: false };
        lives.push(usual.clone());
        lives.push(Life { moved_ms: Some(900), ..usual.clone() });
        lives.push(Life { end: End::Cancelled, ..usual });
        lives
    })
}

fn event(at_ms: i64, topic: &str, id: &str, what: What) -> Event {
    Event { at_ms, topic: topic.to_owned(), id: id.to_owned(), what }
}

fn answered(outcome: &str) -> What {
    What::Answered { outcome: outcome.to_owned() }
}

fn payload_of(topic: &str, id: &str) -> u64 {
    digest(format!("{topic} {id}").as_bytes())
}

fn tell(topic: &str, id: &str, life: &Life, history: &mut Vec<Event>, state: &mut FinalState) {
    let payload = payload_of(topic, id);
    let mut note = |at_ms, what| history.push(event(at_ms, topic, id, what));
    let mut due_at_ms = START_MS + life.delay_ms;
    note(START_MS, What::Invoked(Change::Enqueue { due_at_ms, payload }));
    note(START_MS + 3, answered("scheduled"));
    if let Some(by_ms) = life.moved_ms {
        due_at_ms += by_ms;
        note(START_MS + 10, What::Invoked(Change::Reschedule { due_at_ms }));
        note(START_MS + 12, answered("rescheduled"));
    }
    let mut at_ms = due_at_ms;
    let mut attempt = 0;
    let mut deliver = |at_ms: i64, attempt: u8, outcome: Outcome| {
        note(at_ms, What::Handed { attempt, payload, until_ms: Some(at_ms + 300) });
        note(at_ms + 5, What::Settled { attempt, outcome });
    };
    let mut left = |state_word: &str, reason: Option<&str>| {
        state.left.push(Left {
            topic: topic.to_owned(),
            id: id.to_owned(),
            state: state_word.to_owned(),
            payload,
            reason: reason.map(str::to_owned),
        });
    };
    for _ in 0..life.retries {
        attempt += 1;
        deliver(at_ms, attempt, Outcome::Retry);
        at_ms += 50;
    }
    match life.end {
        End::Accepted => {
            deliver(at_ms, attempt + 1, Outcome::Accepted);
            if life.again {
                let fault = FaultFields { kind: FaultKind::NodeKilled };
                deliver(at_ms + 700, attempt + 2, Outcome::Accepted);
                history.push(event(at_ms + 6, "", "", What::FaultBegins(fault)));
                history.push(event(at_ms + 300, "", "", What::FaultEnds(fault)));
            }
        }
        End::Cancelled => {
            note(at_ms + 1, What::Invoked(Change::Cancel));
            note(at_ms + 2, answered("cancelled"));
        }
        End::Dead => {
            deliver(at_ms, attempt + 1, Outcome::Rejected);
            note(at_ms + 20, What::Dead { attempts: attempt + 1, reason: "410".to_owned() });
            left("dead", Some("410"));
        }
        End::StillThere => left("scheduled", None),
    }
}

fn told(lives: &[Life], with_faults: bool) -> (Vec<Event>, FinalState) {
    let (mut history, mut state) = (Vec::new(), FinalState::default());
    for (n, life) in lives.iter().enumerate() {
        let life = Life { again: life.again && with_faults, ..life.clone() };
        tell(TOPICS[n % 2], &format!("m{n}"), &life, &mut history, &mut state);
    }
    let of = |word: &str| state.left.iter().filter(|left| left.state == word).count() as u64;
    state.counts = Some((of("scheduled"), of("in_flight"), of("dead")));
    history.sort_by_key(|event| event.at_ms);
    (history, state)
}

/// The message with which damage is done: the n-th of those that fit.
fn pick(lives: &[Life], nth: usize, fits: impl Fn(&Life) -> bool) -> (String, String, Life) {
    let fitting: Vec<usize> = (0..lives.len()).filter(|n| fits(&lives[*n])).collect();
    let n = fitting[nth % fitting.len()];
    (TOPICS[n % 2].to_owned(), format!("m{n}"), lives[n].clone())
}

fn has(verdict: &Verdict, invariant: Invariant, id: &str) -> Result<(), TestCaseError> {
    let found = verdict.violations.iter().any(|v| v.invariant == invariant && v.says.contains(&format!("/{id}:")));
    prop_assert!(found, "{invariant:?} of {id} is not found: {verdict}");
    let shown = verdict.violations.iter().filter(|v| v.invariant == invariant);
    for violation in shown {
        prop_assert!(violation.witness.len() <= 6, "a short witness: {verdict}");
    }
    Ok(())
}

fn is_handed(event: &Event, id: &str) -> bool {
    event.id == id && matches!(event.what, What::Handed { .. })
}

/// Does one kind of damage to a good history; answers what must be found, and of which message.
fn damage(kind: usize, nth: usize, lives: &[Life], history: &mut Vec<Event>) -> (Invariant, String) {
    let accepted = |life: &Life| life.end == End::Accepted;
    let (topic, id, life) = match kind {
        3 => pick(lives, nth, |life| life.end == End::Cancelled),
        5 => pick(lives, nth, |life| accepted(life) && life.moved_ms.is_some()),
        1 => pick(lives, nth, |life| accepted(life) && life.moved_ms.is_none()),
        _ => pick(lives, nth, accepted),
    };
    let first = history.iter().position(|event| is_handed(event, &id));
    let found = match kind {
        0 => {
            history.retain(|event| event.id != id || !matches!(event.what, What::Handed { .. } | What::Settled { .. }));
            Invariant::I1
        }
        1 => {
            history[first.unwrap()].at_ms = START_MS + life.delay_ms - 1;
            Invariant::I2
        }
        2 => {
            let last = history.iter().rfind(|event| event.id == id).unwrap().clone();
            history.push(Event { at_ms: last.at_ms + 1, ..last });
            Invariant::I7
        }
        3 => {
            let at_ms = history.iter().rfind(|event| event.id == id).unwrap().at_ms + 1;
            let payload = payload_of(&topic, &id);
            let attempt = life.retries + 1;
            history.push(event(at_ms, &topic, &id, What::Handed { attempt, payload, until_ms: None }));
            Invariant::I3
        }
        4 => {
            if let What::Handed { payload, .. } = &mut history[first.unwrap()].what {
                *payload ^= 1;
            }
            Invariant::I13
        }
        5 => {
            history[first.unwrap()].at_ms = START_MS + life.delay_ms;
            Invariant::I5
        }
        6 => {
            let last = history.iter().rposition(|event| is_handed(event, &id)).unwrap();
            if let What::Handed { attempt, .. } = &mut history[last].what {
                *attempt += 1;
            }
            Invariant::I8
        }
        _ => {
            let other = if topic == TOPICS[0] { TOPICS[1] } else { TOPICS[0] };
            history[first.unwrap()].topic = other.to_owned();
            Invariant::I14
        }
    };
    history.sort_by_key(|event| event.at_ms);
    (found, id)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn good_histories_pass_and_their_duplicates_are_explained(lives in lives()) {
        let (history, state) = told(&lives, true);
        let verdict = check(&history, &state, RULES);
        prop_assert!(verdict.is_good(), "{verdict}");
        let again = lives.iter().filter(|life| life.again && life.end == End::Accepted).count();
        prop_assert_eq!(verdict.explained.len(), again);
    }

    #[test]
    fn each_kind_of_damage_is_found_every_time(lives in lives(), kind in 0usize..8, nth: usize) {
        let (mut history, state) = told(&lives, false);
        let (invariant, id) = damage(kind, nth, &lives, &mut history);
        has(&check(&history, &state, RULES), invariant, &id)?;
    }
}

#[test]
fn a_line_of_the_history_is_read_as_it_was_written() {
    let (history, _) =
        told(&[Life { delay_ms: 1, moved_ms: Some(2), retries: 1, end: End::Accepted, again: true }], true);
    for event in history {
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event, "{line}");
    }
}

#[test]
fn what_is_there_twice_or_counted_wrong_or_dead_without_reason_is_found() {
    let life = Life { delay_ms: 1, moved_ms: None, retries: 0, end: End::Dead, again: false };
    let (history, mut state) = told(&[life], false);
    check(&history, &state, RULES).assert_good();
    state.left.push(Left { state: "scheduled".to_owned(), reason: None, ..state.left[0].clone() });
    state.left[0].reason = None;
    let found: Vec<Invariant> = check(&history, &state, RULES).violations.iter().map(|v| v.invariant).collect();
    assert_eq!(found, [Invariant::I12, Invariant::I9, Invariant::I10]);
}

#[test]
fn who_hears_unknown_of_what_is_there_is_found() {
    let life = Life { delay_ms: 9000, moved_ms: None, retries: 0, end: End::StillThere, again: false };
    let (mut history, state) = told(&[life], false);
    history.push(event(START_MS + 50, "orders", "m0", What::Invoked(Change::Cancel)));
    history.push(event(START_MS + 51, "orders", "m0", answered("unknown")));
    let verdict = check(&history, &state, RULES);
    assert_eq!(verdict.violations[0].invariant, Invariant::I4, "{verdict}");
}

#[test]
fn who_hears_unknown_while_an_ack_is_on_its_way_back_is_right() {
    let judged = |handed_ms: i64| {
        let life = Life { delay_ms: 1, moved_ms: None, retries: 0, end: End::StillThere, again: false };
        let (mut history, _) = told(&[life], false);
        let payload = payload_of("orders", "m0");
        let mut note = |after_ms, what| history.push(event(START_MS + after_ms, "orders", "m0", what));
        note(handed_ms, What::Handed { attempt: 1, payload, until_ms: Some(START_MS + 300) });
        note(50, What::Invoked(Change::Cancel));
        note(51, answered("unknown"));
        note(53, What::Settled { attempt: 1, outcome: Outcome::Accepted });
        history.sort_by_key(|event| event.at_ms);
        let found = check(&history, &FinalState::default(), RULES).violations;
        found.into_iter().map(|violation| violation.invariant).collect::<Vec<_>>()
    };
    assert_eq!((judged(40), judged(52)), (vec![], vec![Invariant::I4]), "delivered before the answer, and after it");
}

#[test]
fn two_claims_at_once_are_found() {
    let life = Life { delay_ms: 1, moved_ms: None, retries: 0, end: End::StillThere, again: false };
    let (mut history, state) = told(&[life], false);
    let payload = payload_of("orders", "m0");
    for attempt in 1..=2 {
        let at_ms = START_MS + 100 * i64::from(attempt);
        let until_ms = Some(at_ms + 300);
        history.push(event(at_ms, "orders", "m0", What::Handed { attempt, payload, until_ms }));
    }
    let verdict = check(&history, &state, RULES);
    assert_eq!(verdict.violations[0].invariant, Invariant::I6, "{verdict}");
}

/// This many messages, accepted and noted at `first_ms` and delivered again at `again_ms`; the fault is at 10,000 to
/// 11,000.
fn doubled(kind: FaultKind, count: usize, first_ms: i64, again_ms: i64) -> Verdict {
    let mut history = Vec::new();
    for n in 0..count {
        let (topic, id) = ("orders", format!("m{n}"));
        let payload = payload_of(topic, &id);
        let due_at_ms = START_MS;
        let mut note = |at_ms, what| history.push(event(START_MS + at_ms, topic, &id, what));
        note(0, What::Invoked(Change::Enqueue { due_at_ms, payload }));
        note(1, answered("scheduled"));
        for (attempt, at_ms) in [(1, first_ms), (2, again_ms)] {
            note(at_ms, What::Handed { attempt, payload, until_ms: None });
            note(at_ms + 1, What::Settled { attempt, outcome: Outcome::Accepted });
        }
    }
    let fault = FaultFields { kind };
    history.push(event(START_MS + 10_000, "", "", What::FaultBegins(fault)));
    history.push(event(START_MS + 11_000, "", "", What::FaultEnds(fault)));
    history.sort_by_key(|event| event.at_ms);
    check(&history, &FinalState::default(), Rules { attempts_max: 5, aftermath_ms: 6_000 })
}

#[test]
fn a_fault_explains_only_what_was_in_flight_when_it_struck() {
    use FaultKind::{NodeKilled, NodeStalled, StoreStopped};
    for (kind, first_ms, again_ms, is_explained) in [
        // Delivered just before, and again when its claim had run out.
        (NodeKilled, 9_900, 15_000, true),
        (NodeStalled, 9_900, 15_000, true),
        (StoreStopped, 9_900, 15_000, true),
        // Long settled when it struck.
        (NodeKilled, 7_000, 15_000, false),
        (StoreStopped, 7_000, 15_000, false),
        // Both before it, or the second long after it.
        (StoreStopped, 9_000, 9_900, false),
        (NodeKilled, 9_900, 17_100, false),
        (StoreStopped, 9_900, 17_100, false),
        // By another node, when the killed one was gone; a stalled one may still wake with it.
        (NodeKilled, 12_500, 14_000, false),
        (NodeStalled, 12_500, 14_000, true),
        (NodeStalled, 13_500, 14_000, false),
    ] {
        let verdict = doubled(kind, 1, first_ms, again_ms);
        assert_eq!(verdict.is_good(), is_explained, "{kind:?} {first_ms} {again_ms}: {verdict}");
        assert_eq!(verdict.explained.len(), usize::from(is_explained), "{kind:?} {first_ms} {again_ms}");
    }
}

#[test]
fn a_fault_explains_no_more_duplicates_than_were_in_flight() {
    assert!(doubled(FaultKind::StoreStopped, 20, 10_500, 13_500).is_good());
    // All of them after its end: an ack that does nothing, and no answer that was lost with the fault.
    let verdict = doubled(FaultKind::StoreStopped, 20, 13_500, 15_000);
    assert_eq!((verdict.violations.len(), verdict.explained.len()), (20, 0), "{verdict}");
}

#[test]
fn an_enqueue_that_changed_nothing_is_no_new_life() {
    let life = Life { delay_ms: 1, moved_ms: None, retries: 0, end: End::Accepted, again: false };
    for (word, good) in [("duplicate", false), ("scheduled", true)] {
        let (mut history, state) = told(std::slice::from_ref(&life), false);
        let payload = payload_of("orders", "m0");
        let due_at_ms = START_MS + 100;
        history.push(event(START_MS + 100, "orders", "m0", What::Invoked(Change::Enqueue { due_at_ms, payload })));
        history.push(event(START_MS + 101, "orders", "m0", answered(word)));
        history.push(event(START_MS + 200, "orders", "m0", What::Handed { attempt: 1, payload, until_ms: None }));
        let outcome = Outcome::Accepted;
        history.push(event(START_MS + 201, "orders", "m0", What::Settled { attempt: 1, outcome }));
        let found = check(&history, &state, RULES);
        assert_eq!(found.violations.iter().all(|v| v.invariant != Invariant::I7), good, "{word}: {found}");
    }
}

#[test]
fn a_killed_store_that_saves_every_second_may_lose_the_last_two_seconds_and_no_more() {
    for (asked_ms, answered_ms, kind, good) in [
        (8_999, 9_000, FaultKind::StoreKilledUnsaved, true),
        (7_899, 7_900, FaultKind::StoreKilledUnsaved, false),
        // The answer was on its way when the store was killed.
        (9_990, 10_100, FaultKind::StoreKilledUnsaved, true),
        (10_099, 10_100, FaultKind::StoreKilledUnsaved, false),
        (9_990, 11_100, FaultKind::StoreKilledUnsaved, false),
        (8_999, 9_000, FaultKind::StoreStopped, false),
    ] {
        let mut history = Vec::new();
        let mut note = |at_ms, id: &str, what| history.push(event(at_ms, "orders", id, what));
        let enqueue = Change::Enqueue { due_at_ms: 90_000, payload: 1 };
        // One is enqueued and lost, one is cancelled and comes all the same.
        note(asked_ms, "lost", What::Invoked(enqueue));
        note(answered_ms, "lost", answered("scheduled"));
        note(1, "back", What::Invoked(enqueue));
        note(2, "back", answered("scheduled"));
        note(asked_ms, "back", What::Invoked(Change::Cancel));
        note(answered_ms, "back", answered("cancelled"));
        note(91_000, "back", What::Handed { attempt: 1, payload: 1, until_ms: None });
        note(91_000, "back", What::Settled { attempt: 1, outcome: Outcome::Accepted });
        history.push(event(10_000, "", "", What::FaultBegins(FaultFields { kind })));
        history.push(event(11_000, "", "", What::FaultEnds(FaultFields { kind })));
        history.sort_by_key(|event| event.at_ms);
        let verdict = check(&history, &FinalState::default(), RULES);
        let found: Vec<Invariant> = verdict.violations.iter().map(|violation| violation.invariant).collect();
        assert_eq!(found.is_empty(), good, "{answered_ms} {kind:?}: {verdict}");
        assert!(good || found == [Invariant::I3, Invariant::I1], "{found:?}");
    }
}

#[test]
fn an_enqueue_that_crosses_a_hand_over_may_have_been_done_after_it() {
    let mut history = Vec::new();
    let mut note = |at_ms, what| history.push(event(at_ms, "orders", "m", what));
    let life = |due_at_ms| What::Invoked(Change::Enqueue { due_at_ms, payload: 1 });
    let accepted = |attempt| What::Settled { attempt, outcome: Outcome::Accepted };
    note(10, life(20));
    note(11, answered("scheduled"));
    for (attempt, at_ms) in [(1, 21), (1, 91)] {
        if at_ms == 21 {
            note(at_ms - 1, life(90));
        }
        note(at_ms, What::Handed { attempt, payload: 1, until_ms: None });
        note(at_ms + 1, accepted(attempt));
        if at_ms == 21 {
            note(at_ms + 2, answered("scheduled"));
        }
    }
    check(&history, &FinalState::default(), RULES).assert_good();
    // The same without the second enqueue is a duplicate, and an attempt too few.
    history.drain(2..3);
    history.retain(|event| event.at_ms != 23);
    let found: Vec<Invariant> =
        check(&history, &FinalState::default(), RULES).violations.iter().map(|v| v.invariant).collect();
    assert_eq!(found, [Invariant::I8, Invariant::I7]);
}

#[test]
fn what_is_replaced_while_a_consumer_has_it_may_be_heard_of_once_more() {
    for (replaced_at_ms, good) in [(150, true), (90, false)] {
        let mut history = Vec::new();
        let mut note = |at_ms, what| history.push(event(at_ms, "orders", "m", what));
        note(10, What::Invoked(Change::Enqueue { due_at_ms: 100, payload: 1 }));
        note(11, answered("scheduled"));
        note(replaced_at_ms - 5, What::Invoked(Change::Enqueue { due_at_ms: 900, payload: 2 }));
        note(replaced_at_ms, answered("replaced"));
        // Due at 100, and claimed before it was replaced, or not at all.
        for (at_ms, payload) in [(160, 1), (901, 2)] {
            note(at_ms, What::Handed { attempt: 1, payload, until_ms: None });
            note(at_ms + 1, What::Settled { attempt: 1, outcome: Outcome::Accepted });
        }
        let verdict = check(&history, &FinalState::default(), RULES);
        assert_eq!(verdict.is_good(), good, "{replaced_at_ms}: {verdict}");
    }
}

/// A message delivered at `first_ms`, settled at once so, and delivered again as the same attempt; a fault of
/// this kind is at 10,000 to 11,000.
fn given_back(kind: FaultKind, first_ms: i64, outcome: Outcome, again_ms: i64) -> Vec<Invariant> {
    let mut history = Vec::new();
    let mut note = |at_ms, topic: &str, id: &str, what| history.push(event(START_MS + at_ms, topic, id, what));
    note(0, "orders", "m", What::Invoked(Change::Enqueue { due_at_ms: START_MS, payload: 1 }));
    note(1, "orders", "m", answered("scheduled"));
    for (at_ms, outcome) in [(first_ms, outcome), (again_ms, Outcome::Accepted)] {
        note(at_ms, "orders", "m", What::Handed { attempt: 1, payload: 1, until_ms: None });
        note(at_ms, "orders", "m", What::Settled { attempt: 1, outcome });
    }
    note(10_000, "", "", What::FaultBegins(FaultFields { kind }));
    note(11_000, "", "", What::FaultEnds(FaultFields { kind }));
    history.sort_by_key(|event| event.at_ms);
    let verdict = check(&history, &FinalState::default(), Rules { attempts_max: 5, aftermath_ms: 6_000 });
    verdict.violations.iter().map(|violation| violation.invariant).collect()
}

#[test]
fn an_outage_gives_back_the_attempts_of_what_was_in_flight_and_no_others() {
    let retried = |first_ms| given_back(FaultKind::TargetFailed, first_ms, Outcome::Retry, 14_000);
    // What the target answered as it went away may not have been heard.
    assert_eq!(retried(9_990), []);
    assert_eq!(retried(10_500), []);
    // Answered and settled long before it went, or well after it came back.
    assert_eq!(given_back(FaultKind::TargetFailed, 7_000, Outcome::Retry, 7_700), [Invariant::I8]);
    assert_eq!(retried(13_500), [Invariant::I8]);
    // Again before there was any fault.
    assert_eq!(given_back(FaultKind::TargetFailed, 9_000, Outcome::Retry, 9_700), [Invariant::I8]);
    // A killed node hands nothing over, so nothing of what comes afterwards was in flight at it.
    assert_eq!(given_back(FaultKind::NodeKilled, 9_990, Outcome::Retry, 14_000), []);
    assert_eq!(given_back(FaultKind::NodeKilled, 12_500, Outcome::Retry, 13_200), [Invariant::I8]);
    // Nothing decided in time whose fault it was.
    assert_eq!(given_back(FaultKind::TargetFailed, 7_000, Outcome::Retry, 7_750), []);
    // An answer that may be the target's own matter may cost nothing at any time.
    assert_eq!(given_back(FaultKind::TargetFailed, 7_000, Outcome::Unavailable, 14_000), []);
}

#[test]
fn a_settlement_that_nobody_knows_of_may_have_ended_a_message_and_makes_no_duplicate() {
    let told = |first: Outcome, second: bool| {
        let mut history = Vec::new();
        let mut note = |at_ms, what| history.push(event(at_ms, "orders", "m", what));
        note(10, What::Invoked(Change::Enqueue { due_at_ms: 20, payload: 1 }));
        note(11, answered("scheduled"));
        note(21, What::Handed { attempt: 1, payload: 1, until_ms: None });
        note(22, What::Settled { attempt: 1, outcome: first });
        if second {
            note(5_000, What::Handed { attempt: 2, payload: 1, until_ms: None });
            note(5_001, What::Settled { attempt: 2, outcome: Outcome::Accepted });
        }
        check(&history, &FinalState::default(), RULES).violations.iter().map(|v| v.invariant).collect::<Vec<_>>()
    };
    assert_eq!((told(Outcome::Unknown, false), told(Outcome::Unknown, true)), (vec![], vec![]));
    assert_eq!(
        (told(Outcome::Retry, false), told(Outcome::Accepted, true)),
        (vec![Invariant::I1], vec![Invariant::I7])
    );
}
