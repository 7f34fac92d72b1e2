//! The rule, sentence by sentence, and over any trace of calls.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const VISIBILITY: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);
/// Far enough ahead that no claim ends.
const NEVER: Duration = Duration::from_secs(86_400);

/// A judge whose failures are known by the number of their message.
fn judge() -> Judge<u64> {
    Judge::new(VISIBILITY)
}

/// Message `n` fails at `at` and is held, if it does not pay at once.
fn fails(judge: &mut Judge<u64>, n: u64, at: Instant) -> bool {
    let pays = judge.failed(Nonce(n), at);
    if !pays {
        judge.hold(Nonce(n), at, at + NEVER, n);
    }
    pays
}

#[test]
fn a_message_pays_once_one_is_accepted_that_was_sent_after_it_failed() {
    let (mut judge, t) = (judge(), Instant::now());
    assert!(!fails(&mut judge, 1, t + 10 * MS));
    judge.accepted(t, t + 20 * MS);
    assert_eq!(judge.paying(), [0; 0], "it was under way already: the target may have gone away behind it");
    judge.accepted(t + 10 * MS, t + 30 * MS);
    assert_eq!((judge.paying(), judge.expires_at()), (vec![1], None));
}

#[test]
fn a_target_of_which_no_acceptance_was_heard_is_down_and_nobody_pays() {
    let (mut judge, t) = (judge(), Instant::now());
    judge.accepted(t, t);
    fails(&mut judge, 1, t + MS);
    fails(&mut judge, 2, t + 2 * MS);
    assert_eq!(judge.expires_at(), Some(t + MS + HELD_MAX));
    assert_eq!(judge.expired(t + HELD_MAX), (vec![], false));
    assert_eq!(judge.expired(t + MS + HELD_MAX), (vec![1, 2], true));
    assert_eq!(judge.len(), 0);
}

#[test]
fn a_slow_target_is_not_down_and_what_cannot_be_held_longer_pays_when_it_fails_again() {
    let (mut judge, t) = (judge(), Instant::now());
    fails(&mut judge, 1, t);
    judge.accepted(t - MS, t + 1_000 * MS);
    assert_eq!(judge.expired(t + HELD_MAX), (vec![1], false), "acceptances are heard, of what was sent before");
    judge.accepted(t + MS, t + 5_000 * MS);
    assert!(fails(&mut judge, 1, t + 6_000 * MS), "for the failure before");
    assert!(!fails(&mut judge, 1, t + 7_000 * MS), "nobody was accepted since");
}

#[test]
fn a_call_that_was_under_way_when_the_target_came_back_pays_for_one_outage_once() {
    let (mut judge, t) = (judge(), Instant::now());
    assert!(!fails(&mut judge, 1, t));
    assert_eq!(judge.expired(t + HELD_MAX), (vec![1], true));
    judge.sending(Nonce(1));
    judge.accepted(t + MS, t + 3_000 * MS);
    assert!(judge.failed(Nonce(1), t + 4_000 * MS));
    judge.accepted(t + 5_000 * MS, t + 6_000 * MS);
    judge.sending(Nonce(1));
    assert!(!judge.failed(Nonce(1), t + 7_000 * MS), "that is another outage, or it is bad: it pays next");
}

#[test]
fn a_message_that_was_accepted_owes_nothing_any_more() {
    let (mut judge, t) = (judge(), Instant::now());
    fails(&mut judge, 1, t);
    judge.accepted(t + MS, t + 2 * MS);
    judge.forget(Nonce(1));
    assert!(!judge.failed(Nonce(1), t + 3 * MS));
}

#[test]
fn many_failures_without_an_acceptance_mean_at_once_that_the_target_is_down() {
    let (mut judge, t) = (judge(), Instant::now());
    (0..FAILURES_MAX as u64).for_each(|n| assert!(!fails(&mut judge, n, t)));
    assert_eq!(judge.expires_at(), Some(t));
    let (held, is_down) = judge.expired(t);
    assert!(is_down && held.len() == FAILURES_MAX);
}

#[test]
fn what_is_remembered_is_bounded_and_the_oldest_goes_first() {
    let (mut judge, t) = (judge(), Instant::now());
    (0..3 * REMEMBERED_MAX as u64).for_each(|n| assert!(!judge.failed(Nonce(n), t)));
    judge.accepted(t + MS, t + 2 * MS);
    assert!(judge.unpaid.young.len() + judge.unpaid.old.len() <= 2 * REMEMBERED_MAX);
    assert!(judge.failed(Nonce(3 * REMEMBERED_MAX as u64 - 1), t + 3 * MS));
    assert!(!judge.failed(Nonce(0), t + 3 * MS), "one more try for nothing");
}

/// One call of one message, in milliseconds: after the one before, how long, and when within that the target decides.
#[derive(Clone, Debug)]
struct Call {
    after: u64,
    took: u64,
    decided: u64,
    message: u64,
}

/// Messages below this are bad by themselves.
const BAD: u64 = 2;

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let one = (0u64..400, 1u64..3_000, 0u64..=100, 0u64..12);
    let one = one.prop_map(|(after, took, part, message)| Call { after, took, decided: took * part / 100, message });
    proptest::collection::vec(one, 1..300)
}

/// Alternating spans, up first.
fn spans() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(1u64..8_000, 0..12)
}

/// What happened to one message.
#[derive(Debug, Default)]
struct Seen {
    /// In which outage each failure was (`None`: in none, it is bad), when its call began and when it ended.
    failures: Vec<(Option<usize>, u64, u64)>,
    paid: usize,
    is_busy: bool,
}

/// The number of the outage at this moment.
fn outage(spans: &[u64], at: u64) -> Option<usize> {
    let mut ends = 0;
    for (n, span) in spans.iter().enumerate() {
        ends += span;
        if at < ends {
            return (n % 2 == 1).then_some(n);
        }
    }
    None
}

/// Runs the calls against a target with these outages; what became of each message, and when it was heard to accept
/// what was sent when.
fn run(calls: &[Call], spans: &[u64]) -> (BTreeMap<u64, Seen>, Vec<(u64, u64)>) {
    let (mut judge, t) = (judge(), Instant::now());
    let at = |ms: u64| t + Duration::from_millis(ms);
    let mut seen: BTreeMap<u64, Seen> = BTreeMap::new();
    let mut accepted = Vec::new();
    let mut ends: BTreeMap<(u64, usize), (u64, Call)> = BTreeMap::new();
    let mut now = 0;
    let last = Call { after: 1_000_000, took: 1, decided: 0, message: u64::MAX };
    for (n, call) in calls.iter().chain([&last]).enumerate() {
        now += call.after;
        while let Some(((end, _), (began, ended))) = ends.first_key_value().map(|(k, v)| (*k, v.clone()))
            && end <= now
        {
            ends.pop_first();
            let (held, _) = judge.expired(at(end));
            held.iter().for_each(|n| seen.get_mut(n).unwrap().is_busy = false);
            let outage = outage(spans, began + ended.decided);
            let one = seen.entry(ended.message).or_default();
            one.is_busy = false;
            if outage.is_none() && ended.message >= BAD {
                judge.accepted(at(began), at(end));
                judge.forget(Nonce(ended.message));
                accepted.push((began, end));
            } else {
                one.failures.push((outage, began, end));
                let pays = judge.failed(Nonce(ended.message), at(end));
                one.paid += usize::from(pays);
                if !pays {
                    one.is_busy = true;
                    judge.hold(Nonce(ended.message), at(end), at(end) + NEVER, ended.message);
                }
            }
            for n in judge.paying() {
                let one = seen.get_mut(&n).unwrap();
                (one.paid, one.is_busy) = (one.paid + 1, false);
            }
        }
        let one = seen.entry(call.message).or_default();
        if !one.is_busy {
            one.is_busy = true;
            judge.sending(Nonce(call.message));
            ends.insert((now + call.took, n), (now, call.clone()));
        }
    }
    (seen, accepted)
}

proptest! {
    #[test]
    fn an_outage_costs_a_message_at_most_one_attempt(calls in calls(), spans in spans()) {
        let (seen, _) = run(&calls, &spans);
        for (message, seen) in seen.iter().filter(|(message, _)| **message >= BAD) {
            let mut outages: Vec<_> = seen.failures.iter().map(|(outage, ..)| outage).collect();
            outages.dedup();
            prop_assert!(seen.paid <= outages.len(), "{message}: {seen:?}");
        }
    }

    #[test]
    fn a_bad_message_pays_for_each_failure_after_which_another_is_accepted(calls in calls(), spans in spans()) {
        let (seen, accepted) = run(&calls, &spans);
        for (message, seen) in seen.iter().filter(|(message, _)| **message < BAD) {
            // The next failure is when it pays at the latest, so the last one is not counted. Of two calls that met the
            // same proof one pays.
            let proven = seen.failures.windows(2).filter(|pair| {
                accepted.iter().any(|(sent, heard)| *sent >= pair[0].2 && *heard <= pair[1].1)
            });
            prop_assert!(seen.paid >= proven.count(), "{message}: {seen:?} {accepted:?}");
        }
    }
}
