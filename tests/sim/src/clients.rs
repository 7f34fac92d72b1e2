//! Clients: producers with ids of their own, and consumers. Each writes down what it sees.
//!
//! A producer makes one change of an id after the other; what may be in flight is not changed any
//! more, so that the order of the history is the order of what happened.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use duetime_core::store::{Edit, Edited, Enqueue, EnqueueOutcome};
use duetime_core::{Clock as _, Due, Headers, MessageId, Nonce, OnConflict, TopicName, max_attempts};
use duetime_router::{Catalog, RoutedStore, Router};
use duetime_testkit::TokioClock;
use duetime_testkit::history::{Change, Recorder, What, digest};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::draw::Dice;
use crate::mutation::Mutation;
use crate::net::{NodeNet, Weather};
use crate::producers::{EXPIRY, FLEETING, SCARCE, SCARCE_MAX};
use crate::witness::{Masterwise, id_of};

/// Ahead of every end.
pub const FAR: Duration = Duration::from_secs(100_000);
/// How long one change is tried.
const TRIED_FOR: Duration = Duration::from_secs(600);
/// How far apart clocks may be where a relative delay is taken.
pub const APART_MS_MAX: i64 = 2_000;

/// One node, as a client sees it.
#[derive(Clone, Debug)]
pub struct Door {
    pub router: Arc<Router>,
    pub routed: Arc<RoutedStore>,
    pub catalog: Arc<Catalog>,
    pub net: Arc<NodeNet>,
}

/// What all clients of a world share.
#[derive(Debug)]
pub struct Shared {
    pub doors: Vec<Door>,
    pub clock: Arc<TokioClock>,
    pub history: Arc<Recorder>,
    pub dice: Arc<Dice>,
    pub witness: Arc<Masterwise>,
    pub left_out: Option<Mutation>,
    /// What producers of large requests may make worse; none: the network never fails.
    pub weather: Option<Arc<Weather>>,
    /// Whether nodes may stop.
    pub stops: bool,
    /// Whether the orders are remembered when they are gone.
    pub remembers: bool,
    /// Ids whose consumers refuse them no more.
    pub healed: Mutex<BTreeSet<MessageId>>,
    /// How long a claim hides its messages at present, in ms.
    pub visibility_ms: AtomicU64,
    /// How long the longest claim that had no answer hides its messages, in ms.
    pub unanswered_ms: AtomicU64,
    /// Grows with everything that may undo a claim, or move a clock.
    pub upsets: AtomicU64,
    /// Grows when all clocks go ahead of the true time, and when they come back: odd meanwhile.
    pub all_ahead: AtomicU64,
    /// Deliveries, by id and time, that were early because all clocks were ahead.
    pub excused: Mutex<BTreeSet<(String, i64)>>,
    /// Whether deadlines say when the next claim can be: no failover undoes one and no clock jumps.
    pub deadlines_hold: bool,
    /// Whether no answer is ever lost: no fault but of clocks.
    pub all_answered: bool,
    /// What was answered last for ids whose earlier requests were given up: what is there in the end, or that nothing is.
    pub holds: Mutex<std::collections::BTreeMap<MessageId, Option<u64>>>,
    /// Messages whose delivery had no answer, each with the number of faults that had begun when it was claimed.
    pub unanswered: Mutex<std::collections::BTreeMap<MessageId, u64>>,
    /// Messages that were removed to be handed out, by id and nonce, each with the number of upsets by then.
    pub removed: Mutex<std::collections::BTreeMap<(MessageId, u64), u64>>,
    /// Messages that a client asked to remove because they live elsewhere.
    pub moved: Mutex<BTreeSet<MessageId>>,
    /// Due times of messages as they were acknowledged last, by topic and id.
    pub due: Mutex<std::collections::BTreeMap<(TopicName, MessageId), i64>>,
}

/// A client of one topic, of all nodes: each try goes to any of them.
#[derive(Clone, Debug)]
pub struct Client {
    pub topic: TopicName,
    pub shared: Arc<Shared>,
}

/// What became of a change: the last answer, and whether the masters carried it out, if so in an earlier try.
pub struct Made<T> {
    pub answer: T,
    pub done: bool,
}

impl Client {
    pub fn dice(&self) -> &Dice {
        &self.shared.dice
    }

    /// Any node, once it does not stand still.
    pub async fn door(&self) -> &Door {
        let doors = &self.shared.doors;
        let door = &doors[usize::try_from(self.dice().below(doors.len() as u64)).expect("few")];
        door.net.awake().await;
        door
    }

    pub fn note(&self, id: &MessageId, what: What) {
        self.shared.history.note(self.topic.as_str(), id.as_str(), what);
    }

    pub fn answered(&self, id: &MessageId, word: &str) {
        self.note(id, What::Answered { outcome: word.to_owned() });
    }

    fn now_ms(&self) -> i64 {
        self.shared.clock.now().as_millis()
    }

    /// Waits before another try; fails a world in which nothing helps.
    pub async fn again(&self, began: Instant, what: &str) {
        assert!(began.elapsed() < TRIED_FOR, "no answer to {what} of {}", self.topic);
        self.dice().pause(200).await;
    }

    fn new_due(&self, id: &MessageId, at_ms: Option<i64>) {
        let key = (self.topic.clone(), id.clone());
        match at_ms {
            Some(at_ms) => self.shared.due.lock().insert(key, at_ms),
            None => self.shared.due.lock().remove(&key),
        };
    }

    /// The due time, and the earliest moment at which it may be delivered.
    fn due_of(&self, delay: Duration, relative: bool) -> (Due, i64) {
        let at = self.shared.clock.now().plus(delay);
        if relative { (Due::In(delay), at.as_millis() - APART_MS_MAX) } else { (Due::At(at), at.as_millis()) }
    }

    /// Schedules, again and again as the same enqueue until it is answered.
    pub async fn enqueue(
        &self,
        id: &MessageId,
        delay: Duration,
        relative: bool,
        text: &str,
        on_conflict: OnConflict,
    ) -> &'static str {
        self.enqueue_all(std::slice::from_ref(id), delay, relative, text, on_conflict).await[0]
    }

    /// The same for many ids in one request; what is not answered is sent again.
    pub async fn enqueue_all(
        &self,
        ids: &[MessageId],
        delay: Duration,
        relative: bool,
        text: &str,
        on_conflict: OnConflict,
    ) -> Vec<&'static str> {
        let (due, due_at_ms) = self.due_of(delay, relative);
        let change = Change::Enqueue { due_at_ms, payload: digest(text.as_bytes()) };
        let mut open = Vec::new();
        for (place, id) in ids.iter().enumerate() {
            self.note(id, What::Invoked(change));
            let headers = match text {
                FLEETING => EXPIRY.kept_in(&Headers::default()),
                SCARCE => max_attempts::kept_in(SCARCE_MAX, &Headers::default()),
                _ => Headers::default(),
            };
            let payload = text.to_owned().into();
            let item = Enqueue { id: id.clone(), due, headers, payload, on_conflict, nonce: Nonce(self.dice().next()) };
            open.push((place, item));
        }
        let (began, mut words) = (Instant::now(), vec![""; ids.len()]);
        while !open.is_empty() {
            let items = open.iter().map(|(_, item)| item.clone()).collect();
            let answers = self.door().await.router.enqueue(&self.topic, items).await;
            let mut left = Vec::new();
            for ((place, item), answer) in open.into_iter().zip(answers) {
                let Ok(placed) = answer else {
                    left.push((place, item));
                    continue;
                };
                words[place] = match placed.outcome {
                    EnqueueOutcome::Scheduled => "scheduled",
                    EnqueueOutcome::Replaced | EnqueueOutcome::ReplacedInFlight => "replaced",
                    EnqueueOutcome::Kept => "kept",
                    EnqueueOutcome::Duplicate => "duplicate",
                    EnqueueOutcome::CancelledBefore => "cancelled_before",
                };
                if !placed.outcome.is_unchanged() {
                    self.new_due(&item.id, Some(placed.due_at.as_millis()));
                }
                self.answered(&item.id, words[place]);
            }
            open = left;
            if !open.is_empty() {
                self.again(began, "an enqueue").await;
            }
        }
        words
    }

    /// How often such an edit of this message was carried out, anywhere.
    fn times_edited(&self, edit: &Edit) -> u64 {
        self.shared.witness.times_edited(&self.topic, edit)
    }

    /// Cancels or reschedules, in one request, until every item is answered.
    ///
    /// Of a try whose answer was lost the client does not know whether it was carried out: the masters do. What the
    /// last try itself carried out it must learn, however often it was sent.
    pub async fn edit_all(&self, changes: &[(Change, Edit)]) -> Vec<Made<Edited>> {
        changes.iter().for_each(|(change, edit)| self.note(id_of(edit), What::Invoked(*change)));
        let times_before: Vec<u64> = changes.iter().map(|(_, edit)| self.times_edited(edit)).collect();
        let began = Instant::now();
        let mut made: Vec<Option<Made<Edited>>> = changes.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..changes.len()).collect();
        while !open.is_empty() {
            let by_earlier: Vec<bool> =
                open.iter().map(|place| self.times_edited(&changes[*place].1) > times_before[*place]).collect();
            let edits = open.iter().map(|place| changes[*place].1.clone()).collect();
            let answers = self.door().await.router.edit(&self.topic, edits).await;
            let mut left = Vec::new();
            for ((place, answer), by_earlier) in open.into_iter().zip(answers).zip(by_earlier) {
                let Ok(edited) = answer.map(|changed| changed.edited) else {
                    left.push(place);
                    continue;
                };
                let (change, edit) = &changes[place];
                let done = match change {
                    Change::Cancel => by_earlier,
                    // The message may have been delivered between two sendings.
                    _ => self.times_edited(edit) > times_before[place],
                };
                let word = match edited {
                    Edited::Cancelled => "cancelled",
                    Edited::Rescheduled(_) => "rescheduled",
                    // It was carried out by a try whose answer was lost, and a consumer may have had it since.
                    Edited::InFlight | Edited::Unknown if done && matches!(change, Change::Reschedule { .. }) => {
                        "rescheduled"
                    }
                    Edited::Unknown | Edited::Gone(_) if done => "cancelled",
                    Edited::InFlight => "in_flight",
                    Edited::Dead => "dead",
                    Edited::Unknown | Edited::Gone(_) => "unknown",
                    Edited::Changed => "changed",
                    Edited::Full => unreachable!("the router answers an error"),
                };
                match edited {
                    Edited::Rescheduled(at) => self.new_due(id_of(edit), Some(at.as_millis())),
                    _ => self.new_due(id_of(edit), None),
                }
                self.answered(id_of(edit), word);
                made[place] = Some(Made { answer: edited, done });
            }
            open = left;
            if !open.is_empty() {
                self.again(began, "a change").await;
            }
        }
        made.into_iter().map(|made| made.expect("every item was answered")).collect()
    }

    pub fn reschedule_to(&self, id: &MessageId, delay: Duration, relative: bool) -> (Change, Edit) {
        let (due, due_at_ms) = self.due_of(delay, relative);
        (Change::Reschedule { due_at_ms }, Edit::Reschedule(id.clone(), due))
    }

    pub async fn reschedule(&self, id: &MessageId, delay: Duration, relative: bool) {
        let made = self.edit_all(&[self.reschedule_to(id, delay, relative)]).await.remove(0);
        let was_claimed = made.done && delay < FAR && matches!(made.answer, Edited::InFlight | Edited::Unknown);
        let good = was_claimed || matches!(made.answer, Edited::Rescheduled(_));
        assert!(good, "{id} at {}: the reschedule is answered {:?}", self.now_ms(), made.answer);
    }

    pub async fn cancel(&self, id: &MessageId) {
        self.cancel_all(std::slice::from_ref(id)).await;
    }

    /// Cancels what is there and nobody holds.
    pub async fn cancel_all(&self, ids: &[MessageId]) {
        let changes: Vec<_> = ids.iter().map(|id| (Change::Cancel, Edit::Cancel(id.clone()))).collect();
        for (made, id) in self.edit_all(&changes).await.into_iter().zip(ids) {
            let good = made.answer == Edited::Cancelled
                || (made.done && matches!(made.answer, Edited::Unknown | Edited::Gone(_)));
            assert!(good, "{id} at {}: the cancel is answered {:?}", self.now_ms(), made.answer);
        }
    }
}
