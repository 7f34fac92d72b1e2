//! What producers do, life after life of their ids.

use std::sync::atomic::Ordering;
use std::time::Duration;

use duetime_core::store::{DeadAction, Edit, Edited};
use duetime_core::{Expiry, MessageId, MessageState, OnConflict, Version};
use duetime_testkit::history::{Change, FaultKind, What};
use tokio::time::Instant;

use crate::clients::{Client, FAR};

/// Ids of one large request, more than a shard remembers the removal of.
const MANY: u64 = 60;
/// Ids that fall due together.
const CROWD: u64 = 12;
/// Answers lost while a large request is under way, in a thousand.
const BURST_PERMILLE: u64 = 300;
/// What consumers refuse for good, until it is redriven.
pub const POISON: &str = "poison";
/// What a target answers too late.
pub const SLOW: &str = "slow";
/// What may be handed over for a short time only, and no later.
pub const FLEETING: &str = "fleeting";
/// How long that is.
pub const EXPIRY: Expiry = Expiry::After(Duration::from_millis(300));
/// What consumers give back again and again, until it is redriven.
pub const SCARCE: &str = "scarce";
/// How many deliveries that may have, fewer than its topic says.
pub const SCARCE_MAX: u8 = 2;
/// Longest wait of a producer between two ids.
const PAUSE_MS_MAX: u64 = 3_500;
/// Longest wait between two changes of one id.
const STEP_MS_MAX: u64 = 60;

fn id(text: &str) -> MessageId {
    MessageId::new(text).expect("a good id")
}

impl Client {
    fn near(&self) -> Duration {
        Duration::from_millis(self.dice().below(4_000))
    }

    /// Long enough that a clock which is wrong by more than may be is noticed.
    fn near_relative(&self) -> Duration {
        Duration::from_millis(4_000 + self.dice().below(6_000))
    }

    async fn step(&self) {
        self.dice().pause(STEP_MS_MAX).await;
    }

    /// Lives of a few ids. `stem` is of this producer alone.
    pub async fn produce(self, stem: String, lives: u64) {
        for life in 0..lives {
            let name = format!("{stem}-{life}");
            match self.dice().below(19) {
                0 => self.cancelled_twice(&id(&name)).await,
                1 => self.moved(&id(&name)).await,
                2 => self.replaced(&id(&name)).await,
                3 => self.told_twice(&id(&name)).await,
                4 => self.moved_twice(&id(&name)).await,
                5 => self.in_a_while(&id(&name)).await,
                6 => self.many(&name).await,
                7 => self.mixed(&name).await,
                8 => self.refused(&id(&name), POISON).await,
                9 => self.replaced_and_cancelled(&id(&name)).await,
                10 => self.left_alone(&id(&name)).await,
                11 => self.left_open(&id(&name)).await,
                12 => self.elsewhere(&id(&name)).await,
                13 => {
                    self.enqueue(&id(&name), self.near(), false, FLEETING, OnConflict::Reject).await;
                }
                14 => self.by_due_time(&id(&name)).await,
                15 => self.refused(&id(&name), SCARCE).await,
                _ => {
                    let near = self.near();
                    let word = self.enqueue(&id(&name), near, false, "first", OnConflict::Reject).await;
                    assert_eq!(word, "scheduled", "{name}");
                }
            }
            self.dice().pause(PAUSE_MS_MAX).await;
        }
    }

    /// Enqueues many that fall due together, again and again: more than may be in flight where there is a bound.
    pub async fn crowd(self, times: u64) {
        for time in 0..times {
            let ids: Vec<MessageId> = (0..CROWD).map(|n| id(&format!("crowd-{time}-{n}"))).collect();
            self.enqueue_all(&ids, self.near(), false, "first", OnConflict::Reject).await;
            self.dice().pause(PAUSE_MS_MAX).await;
        }
    }

    async fn far(&self, id: &MessageId, text: &str) {
        assert_eq!(self.enqueue(id, FAR, false, text, OnConflict::Reject).await, "scheduled", "{id}");
        self.step().await;
    }

    async fn left_alone(&self, id: &MessageId) {
        self.far(id, "first").await;
    }

    /// Enqueues a message and cancels it after a delivery that had no answer: it may still arrive.
    async fn left_open(&self, id: &MessageId) {
        self.enqueue(id, self.near(), false, SLOW, OnConflict::Reject).await;
        let began = Instant::now();
        let upsets = loop {
            if let Some(upsets) = self.shared.unanswered.lock().get(id) {
                break *upsets;
            }
            self.again(began, "a hand-over").await;
        };
        let made = self.edit_all(&[(Change::Cancel, Edit::Cancel(id.clone()))]).await.remove(0);
        let calm = self.shared.upsets.load(Ordering::Relaxed) == upsets;
        assert!(!calm || made.answer != Edited::Cancelled, "I3: {id} is cancelled, and its hand-over may still arrive");
    }

    /// The version of a message that is far ahead.
    async fn version(&self, id: &MessageId) -> Version {
        let began = Instant::now();
        loop {
            if let Some(Ok((_, Some(message)))) =
                self.door().await.router.get(&self.topic, vec![id.clone()]).await.pop()
            {
                return message.version().expect("nobody holds it");
            }
            self.again(began, "a look for a version").await;
        }
    }

    /// Takes a message away as one that lives elsewhere from now on, and sometimes brings it back; one that was replaced
    /// meanwhile stays.
    async fn elsewhere(&self, id: &MessageId) {
        self.far(id, "first").await;
        let version = self.version(id).await;
        let replaced = self.dice().permille(300);
        if replaced {
            self.enqueue(id, FAR, false, "second", OnConflict::Replace).await;
        } else {
            self.shared.moved.lock().insert(id.clone());
        }
        let edit = Edit::CancelIf { id: id.clone(), version, moved: true };
        let made = self.edit_all(&[(Change::Cancel, edit)]).await.remove(0);
        let gone = made.answer == Edited::Cancelled || made.done;
        assert_eq!(gone, !replaced, "{id}: a removal of one version is answered {:?}", made.answer);
        if gone && self.dice().permille(500) {
            self.step().await;
            let back = self.enqueue(id, FAR, false, "back", OnConflict::Return).await;
            assert_eq!(back, "scheduled", "{id}: it comes back");
        }
    }

    async fn cancelled_twice(&self, id: &MessageId) {
        self.far(id, "first").await;
        self.cancel(id).await;
        self.step().await;
        if self.shared.remembers && self.topic == crate::world::orders() {
            self.is_remembered(id).await;
            let anew = self.enqueue(id, FAR, false, "second", OnConflict::Replace).await;
            assert_eq!(anew, "scheduled", "{id}");
        } else {
            self.far(id, "second").await;
        }
        self.cancel(id).await;
    }

    async fn moved(&self, id: &MessageId) {
        self.far(id, "first").await;
        self.reschedule(id, self.near(), false).await;
    }

    async fn moved_twice(&self, id: &MessageId) {
        self.far(id, "first").await;
        self.reschedule(id, FAR + FAR, false).await;
        self.step().await;
        if self.dice().permille(500) {
            self.reschedule(id, self.near_relative(), true).await;
        }
    }

    async fn replaced(&self, id: &MessageId) {
        self.far(id, "first").await;
        let replaced = self.enqueue(id, self.near(), false, "second", OnConflict::Replace).await;
        // The same enqueue, sent again, is answered as one that is there.
        assert!(matches!(replaced, "replaced" | "scheduled"), "{id}: {replaced}");
    }

    async fn replaced_and_cancelled(&self, id: &MessageId) {
        self.far(id, "first").await;
        let replaced = self.enqueue(id, FAR, false, "second", OnConflict::Replace).await;
        assert!(matches!(replaced, "replaced" | "scheduled"), "{id}: {replaced}");
        self.step().await;
        if self.dice().permille(500) {
            self.cancel(id).await;
        } else {
            self.enqueue(id, FAR + FAR, false, "third", OnConflict::Replace).await;
        }
    }

    /// Of two messages with this id the one that is due earlier, or later, is there.
    async fn by_due_time(&self, id: &MessageId) {
        self.far(id, "first").await;
        let (rule, worse) = match self.dice().below(2) {
            0 => (OnConflict::Earliest, FAR + FAR),
            _ => (OnConflict::Latest, self.near()),
        };
        let kept = self.enqueue(id, worse, false, "second", rule).await;
        assert_eq!(kept, "kept", "{id} is replaced, by {rule:?}, though it is the one");
        self.step().await;
        let better = if rule == OnConflict::Earliest { self.near() } else { FAR + FAR };
        let replaced = self.enqueue(id, better, false, "third", rule).await;
        // The same enqueue, sent again, is answered as one that is there.
        assert!(matches!(replaced, "replaced" | "scheduled"), "{id} is {replaced}, by {rule:?}");
        // What is near may be claimed by then, where a node stood still: a receipt of it is void then.
        if self.dice().permille(300) && rule == OnConflict::Latest {
            self.cancel(id).await;
        }
    }

    async fn told_twice(&self, id: &MessageId) {
        self.far(id, "first").await;
        assert_eq!(self.enqueue(id, self.near(), false, "second", OnConflict::Reject).await, "duplicate", "{id}");
    }

    async fn in_a_while(&self, id: &MessageId) {
        let delay = self.near_relative();
        assert_eq!(self.enqueue(id, delay, true, "first", OnConflict::Reject).await, "scheduled", "{id}");
    }

    /// A large request, one of whose ids is not there.
    async fn many(&self, name: &str) {
        let mut ids: Vec<MessageId> = (0..MANY).map(|n| id(&format!("{name}-{n}"))).collect();
        let words = self.enqueue_all(&ids, FAR, false, "first", OnConflict::Reject).await;
        assert!(words.iter().all(|word| *word == "scheduled"), "{name}");
        self.step().await;
        let gone = ids.remove(0);
        self.cancel(&gone).await;
        let mut changes: Vec<_> = ids.iter().map(|id| (Change::Cancel, Edit::Cancel(id.clone()))).collect();
        changes.push((Change::Cancel, Edit::Cancel(gone)));
        // What is answered is judged with the history.
        let weather = self.shared.weather.clone().filter(|_| self.dice().permille(700));
        if let Some(weather) = &weather {
            self.shared.history.fault_begins(FaultKind::NetworkFailed);
            *weather.burst_permille.lock() = BURST_PERMILLE;
        }
        self.edit_all(&changes).await;
        if let Some(weather) = &weather {
            *weather.burst_permille.lock() = 0;
            self.shared.history.fault_ends(FaultKind::NetworkFailed);
        }
    }

    /// Cancels and other times in one request.
    async fn mixed(&self, name: &str) {
        let ids: Vec<MessageId> = (0..8).map(|n| id(&format!("{name}-{n}"))).collect();
        self.enqueue_all(&ids, FAR, false, "first", OnConflict::Reject).await;
        self.step().await;
        let each = ids.iter().enumerate().map(|(n, id)| match n % 2 {
            0 => (Change::Cancel, Edit::Cancel(id.clone())),
            _ => self.reschedule_to(id, FAR + FAR, false),
        });
        let changes: Vec<_> = each.collect();
        self.edit_all(&changes).await;
    }

    /// Refused for good by its consumer, or given back until it is out of attempts; then redriven or purged.
    async fn refused(&self, id: &MessageId, text: &str) {
        self.enqueue(id, self.near(), false, text, OnConflict::Reject).await;
        let began = Instant::now();
        let mut upsets;
        let dead = loop {
            upsets = self.shared.upsets.load(Ordering::Relaxed);
            let found = self.door().await.router.get(&self.topic, vec![id.clone()]).await.pop();
            if let Some(Ok((_, Some(message)))) = found
                && message.state == MessageState::Dead
            {
                break message;
            }
            self.again(began, "a look for a dead letter").await;
        };
        let reason = dead.death.map(|death| death.reason).unwrap_or_default();
        self.note(id, What::Dead { attempts: dead.attempts, reason });
        let redrives = self.dice().permille(500);
        if redrives {
            self.shared.healed.lock().insert(id.clone());
        }
        self.note(id, What::Invoked(if redrives { Change::Redrive } else { Change::Cancel }));
        let action = if redrives { DeadAction::Redrive } else { DeadAction::Purge };
        let (began, mut repeated) = (Instant::now(), false);
        loop {
            let door = self.door().await;
            let settled = door.router.dead.settle(&self.topic, std::slice::from_ref(id), action).await;
            match &settled.done[0] {
                Ok(done) => {
                    // A failover may undo a refusal, which waits for no replica.
                    let calm = !repeated && self.shared.upsets.load(Ordering::Relaxed) == upsets;
                    assert!(*done || !calm, "{id}: a dead letter is said to be none");
                    break;
                }
                Err(_) => {
                    repeated = true;
                    self.again(began, "a change of a dead letter").await;
                }
            }
        }
        self.answered(id, if redrives { "redriven" } else { "cancelled" });
    }
}
