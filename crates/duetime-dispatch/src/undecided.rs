//! Messages whose failure may be their destination's or the whole target's: kept until it is known.
//!
//! Upstream: `deliverer`. A failure is the message's own matter where the target accepted another one meanwhile,
//! and the target's where it accepts none for a while: then the breaker opens and nobody has paid.
//!
//! Silence is the message's own matter where the target accepted others meanwhile, and left none of those
//! unanswered that it was sent after the last of them. If it did leave some, or accepted others only before or
//! after, or was found to be down after the last of them, it may have been silent itself: that is excused once.
//! Whoever was accepted in a call that then fell silent proves nothing of the silence. What waits here stays claimed
//! and keeps its permit, so it is bounded by the permits.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use duetime_core::MessageId;
use tokio::time::Instant;

use crate::verdicts::{CallOutcome, reason};
use crate::work::ClaimInfo;

/// Longest time that a target may accept nothing before it is taken to be down.
const ACCEPTS_NOTHING_MAX: Duration = Duration::from_secs(2);
/// So many messages that failed, without one accepted between them, mean the same.
const FAILURES_MAX: usize = 4_096;
/// Acceptances that are less apart are remembered as one.
const ACCEPTED_APART: Duration = Duration::from_millis(50);
/// Acceptances as far as they are remembered: more than three minutes.
const ACCEPTED_MAX: usize = 4_096;
/// Messages that were excused once, as far as they are remembered.
const EXCUSED_MAX: usize = 65_536;

/// Whose matter a failure is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Matter {
    /// The message's own.
    Own,
    /// Perhaps the target's, which is well again.
    Excused,
}

/// One message that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) id: MessageId,
    pub(crate) attempt: u8,
    pub(crate) claim: ClaimInfo,
    pub(crate) said: CallOutcome,
    /// When its call began.
    pub(crate) began: Instant,
    /// When its call ended.
    pub(crate) ended: Instant,
}

/// Messages whose failure may be their destination's or the whole target's: kept until it is known. Oldest first.
#[derive(Debug)]
pub(crate) struct Undecided {
    waiting: VecDeque<Waiting>,
    longest: Duration,
    /// When calls began that are under way, and how many at that moment.
    under_way: BTreeMap<Instant, usize>,
    /// When the target accepted something, the latest last.
    accepted: VecDeque<Instant>,
    /// The end of the latest call in which it did.
    last: Option<Instant>,
    /// The end of the latest call that found the target to be down.
    down: Option<Instant>,
    excused: HashSet<MessageId>,
}

impl Undecided {
    /// `visibility`: of the topic. A message waits no longer than a quarter of it, for it has to be settled
    /// while its claim holds.
    pub(crate) fn new(visibility: Duration) -> Self {
        let longest = ACCEPTS_NOTHING_MAX.min(visibility / 4);
        Self {
            waiting: VecDeque::new(),
            longest,
            under_way: BTreeMap::new(),
            accepted: VecDeque::new(),
            last: None,
            down: None,
            excused: HashSet::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a message whose failure is not decided on.
    pub(crate) fn add(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// A call begins.
    pub(crate) fn begins(&mut self, at: Instant) {
        *self.under_way.entry(at).or_default() += 1;
    }

    /// The call that began then has ended.
    pub(crate) fn ends(&mut self, began: Instant) {
        if let Some(calls) = self.under_way.get_mut(&began) {
            *calls -= 1;
            if *calls == 0 {
                self.under_way.remove(&began);
            }
        }
    }

    /// A call found the target to be down.
    pub(crate) fn found_down(&mut self, ended: Instant) {
        self.down = self.down.max(Some(ended));
    }

    /// The target accepted something in a call. `silent`: it then left another message of that call unanswered, or
    /// was down, so that nobody knows when that began.
    pub(crate) fn accepted(&mut self, ended: Instant, silent: bool) {
        self.last = self.last.max(Some(ended));
        if silent {
            return;
        }
        let place = self.accepted.partition_point(|known| *known <= ended);
        let known = place.checked_sub(1).and_then(|before| self.accepted.get(before));
        // The later of two that are as one says more.
        if known.is_some_and(|known| ended.duration_since(*known) < ACCEPTED_APART) {
            self.accepted[place - 1] = ended;
        } else {
            self.accepted.insert(place, ended);
        }
        if self.accepted.len() > ACCEPTED_MAX {
            self.accepted.pop_front();
        }
    }

    /// Whose matter the silence is that this message met, where the target may have been silent meanwhile.
    pub(crate) fn excuse(&mut self, id: &MessageId) -> Matter {
        if self.excused.contains(id) {
            return Matter::Own;
        }
        if self.excused.len() >= EXCUSED_MAX {
            self.excused.clear();
        }
        self.excused.insert(id.clone());
        Matter::Excused
    }

    /// Takes those about which something is known by now.
    pub(crate) fn decided(&mut self) -> Vec<(Waiting, Matter)> {
        let unanswered = self.unanswered();
        let (mut decided, mut left) = (Vec::new(), VecDeque::new());
        for waiting in std::mem::take(&mut self.waiting) {
            match self.matter(&waiting, &unanswered) {
                Some(matter) => decided.push((waiting, matter)),
                None => left.push_back(waiting),
            }
        }
        self.waiting = left;
        decided
    }

    /// When the messages began that have no answer, yet or for good; in order.
    fn unanswered(&self) -> Vec<Instant> {
        let silent = self.waiting.iter().filter(|waiting| waiting.said.is_silent()).map(|waiting| waiting.began);
        let mut all: Vec<Instant> = self.under_way.keys().copied().chain(silent).collect();
        all.sort_unstable();
        all
    }

    fn matter(&mut self, one: &Waiting, unanswered: &[Instant]) -> Option<Matter> {
        let last = self.last.filter(|last| *last >= one.began)?;
        if !one.said.is_silent() || self.only_this_was_silent(one, unanswered) {
            return Some(Matter::Own);
        }
        // Whoever was accepted before the target fell silent says nothing of the silence.
        (last >= one.ended).then(|| self.excuse(&one.id))
    }

    /// Whether the target accepted others while `one` waited, and after that nobody found it to be down or waited long
    /// in vain but those it had been sent before.
    fn only_this_was_silent(&self, one: &Waiting, unanswered: &[Instant]) -> bool {
        let until = self.accepted.partition_point(|at| *at < one.ended);
        let Some(last) = until.checked_sub(1).map(|n| self.accepted[n]).filter(|at| *at > one.began) else {
            return false;
        };
        if self.down.is_some_and(|down| down > last) {
            return false;
        }
        let long = one.ended.duration_since(one.began) / 2;
        let next = unanswered.get(unanswered.partition_point(|began| *began <= last));
        next.is_none_or(|began| *began + long > one.ended)
    }

    /// When the target is taken to be down if it accepts nothing until then; `margin`: how long before its
    /// deadline a message has to be settled.
    pub(crate) fn decided_at(&self, margin: Duration) -> Option<Instant> {
        let first = self.waiting.front()?.ended;
        if self.waiting.len() >= FAILURES_MAX {
            return Some(first);
        }
        let nearest = self.waiting.iter().map(|waiting| waiting.claim.deadline).min()?;
        let settled_by = nearest.checked_sub(margin).unwrap_or(first);
        Some((first + self.longest).min(settled_by))
    }

    /// Takes all, as the target is down, and why.
    pub(crate) fn take(&mut self) -> (String, Vec<Waiting>) {
        let all: Vec<Waiting> = std::mem::take(&mut self.waiting).into();
        let why = all.last().map(|last| reason(&last.said)).unwrap_or_default();
        (why, all)
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::Score;
    use duetime_testkit::MemStore;

    use super::*;
    use crate::budget::Permit;
    use crate::in_flight::InFlightGuard;

    const VISIBILITY: Duration = Duration::from_secs(60);
    const TIMEOUT: Duration = Duration::from_secs(10);
    const MS: Duration = Duration::from_millis(1);

    /// `id` was sent at `began` and had no answer within the time-out.
    fn silent(id: &str, began: Instant) -> Waiting {
        let ended = began + TIMEOUT;
        let topic = duetime_core::TopicName::new("orders").expect("a good name");
        let clock = std::sync::Arc::new(duetime_testkit::WallClock);
        let schedule = crate::schedule::TopicSchedule::new(
            topic,
            std::sync::Arc::default(),
            clock,
            std::sync::Arc::default(),
            MemStore::new(),
        );
        let claim = ClaimInfo {
            guard: InFlightGuard::new(schedule, 0, Permit::default()),
            index: 0,
            score: Score::from_raw(0),
            sent: began,
            deadline: began + VISIBILITY,
            late: Duration::ZERO,
            bytes: 1,
            suspect: false,
            probe: false,
        };
        let id = MessageId::new(id).unwrap();
        Waiting { id, attempt: 1, claim, said: CallOutcome::TimedOut(TIMEOUT), began, ended }
    }

    /// What is decided on a message that was silent from `began`, where others were accepted at these moments, and
    /// others again were sent at these and have no answer.
    fn decided(
        accepted: impl IntoIterator<Item = Instant>,
        unanswered: impl IntoIterator<Item = Instant>,
        began: Instant,
    ) -> Option<Matter> {
        let mut undecided = Undecided::new(VISIBILITY);
        accepted.into_iter().for_each(|at| undecided.accepted(at, false));
        unanswered.into_iter().for_each(|at| undecided.begins(at));
        undecided.add(silent("m", began));
        undecided.decided().first().map(|(_, matter)| *matter)
    }

    #[test]
    fn silence_is_the_message_s_own_matter_where_others_were_accepted_meanwhile() {
        let began = Instant::now() + TIMEOUT;
        let at = |ms: u64| began + MS * u32::try_from(ms).unwrap();
        assert_eq!(decided((0..10_000).step_by(7).map(at), [], began), Some(Matter::Own));
        assert_eq!(decided([at(3_000), at(7_000)], [], began), Some(Matter::Own), "few are enough");
        assert_eq!(decided((1..10).map(at), [], began), Some(Matter::Own), "nobody else was sent afterwards");
        let slow_too = (0..10_000).step_by(100).map(at);
        assert_eq!(decided((0..9_000).map(at), slow_too, began), Some(Matter::Own), "others were accepted to the end");
        assert_eq!(decided([began - MS], [], began), None, "nobody was accepted since");
    }

    #[test]
    fn silence_may_be_the_target_s_where_whoever_came_after_the_last_acceptance_has_no_answer() {
        let began = Instant::now() + TIMEOUT;
        let at = |ms: u64| began + MS * u32::try_from(ms).unwrap();
        let until = |ms| (1..ms).map(at);
        assert_eq!(decided(until(900), [at(950)], began), None, "it may have fallen silent 900 ms later");
        let well_again = until(900).chain([at(10_001)]);
        assert_eq!(decided(well_again, [at(950)], began), Some(Matter::Excused), "it was silent, and is well again");
        assert_eq!(decided((10_000..10_100).map(at), [], began), Some(Matter::Excused), "the same");
    }

    #[test]
    fn silence_may_be_the_target_s_that_was_found_down_after_the_last_acceptance() {
        let began = Instant::now();
        let found_down = |at: Duration| {
            let mut undecided = Undecided::new(VISIBILITY);
            undecided.accepted(began + TIMEOUT / 5, false);
            undecided.found_down(began + at);
            undecided.add(silent("m", began));
            undecided.accepted(began + TIMEOUT, true);
            undecided.decided().first().map(|(_, matter)| *matter)
        };
        assert_eq!(found_down(TIMEOUT / 4), Some(Matter::Excused), "it went away while the message waited");
        assert_eq!(found_down(TIMEOUT / 10), Some(Matter::Own), "it was back and accepted others");
    }

    #[test]
    fn silence_is_excused_once() {
        let mut undecided = Undecided::new(VISIBILITY);
        let began = Instant::now();
        for (turn, expected) in [(0, Matter::Excused), (1, Matter::Own), (2, Matter::Own)] {
            let began = began + VISIBILITY * turn;
            undecided.add(silent("m", began));
            undecided.accepted(began + TIMEOUT, true);
            assert_eq!(undecided.decided()[0].1, expected);
        }
    }

    #[test]
    fn who_was_accepted_in_a_call_that_then_fell_silent_proves_nothing_of_the_silence() {
        let mut undecided = Undecided::new(VISIBILITY);
        let began = Instant::now();
        let calls = (1..20).map(|n| began + MS * (n * 50));
        calls.for_each(|began| undecided.accepted(began + TIMEOUT, true));
        undecided.add(silent("m", began));
        assert_eq!(undecided.decided()[0].1, Matter::Excused);
    }
}
