//! The operations that are drawn: few ids, few shards, so that they meet.

use std::time::Duration;

use duetime_core::store::{DeadAction, Settlement};
use duetime_core::{DeliveryMode, LeaseClass, OnConflict};
use proptest::prelude::*;

/// Ids are drawn from so many.
pub(super) const IDS: usize = 5;
const HOUR: Duration = Duration::from_secs(3600);
/// Ends before the next operation begins.
const INSTANT: Duration = Duration::from_millis(1);
const BURIED: &str = "buried by the test";

#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Past,
    FarAhead,
}

#[derive(Clone, Debug)]
pub(super) struct NewMessage {
    pub id: usize,
    pub when: When,
    pub on_conflict: OnConflict,
    /// Few nonces, so that enqueues are repeated: the message's content goes with it.
    pub nonce: u64,
    /// How many deliveries it may have, where it says so.
    pub max_attempts: Option<u8>,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Cancel(usize),
    Reschedule(usize, When),
}

/// A change of a dead letter.
#[derive(Clone, Copy, Debug)]
pub(super) struct LetterChange {
    pub id: usize,
    /// Of the letter that is there, or of another death or enqueue.
    pub whose: Whose,
    /// Of the message that takes its place; none: it is moved out. Few, so that edits are repeated.
    pub rewritten: Option<u64>,
}

/// Which letter is meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    This,
    OtherDeath,
    OtherEnqueue,
}

#[derive(Clone, Debug)]
pub(super) struct Take {
    pub limit: usize,
    pub visibility: Duration,
    pub max_attempts: u8,
    pub waits: Vec<Duration>,
    /// Wait of a suspect.
    pub initial: Duration,
    pub delivery: DeliveryMode,
}

impl Take {
    pub fn class(&self) -> LeaseClass {
        LeaseClass::for_visibility(self.visibility)
    }
}

#[derive(Clone, Debug)]
pub(super) enum Operation {
    Enqueue(u32, Vec<NewMessage>),
    Edit(u32, Vec<Change>),
    Claim(u32, Take),
    /// Repeats one of the last claims by its request.
    ClaimAgain(usize),
    /// Settles receipts, counted back from the youngest.
    Settle(u32, Vec<(usize, Settlement)>),
    SettleDead(u32, Vec<usize>, DeadAction),
    EditDead(u32, Vec<LetterChange>),
    Look,
    /// An enqueue, edit or settlement at the source shard.
    Old(Box<Operation>),
    Move(u32, Step),
}

/// A step of a move out of a shard, or of a change of their number.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// To so many shards.
    Fence(u32),
    /// To the shard so many places on.
    Take(u32, Vec<usize>),
    Put,
    Renumber(u64),
    Drop,
    /// Pages of so many.
    Scan(usize),
    Read(Vec<usize>),
}

impl Operation {
    /// Whether it leaves a message that is visible at about the present moment.
    pub fn touches_the_present(&self) -> bool {
        match self {
            // Deadlines of two shards may be the same by chance; moves would bring them together.
            Self::Claim(..) | Self::Settle(..) => true,
            Self::Old(operation) => operation.touches_the_present(),
            Self::SettleDead(_, _, action) => *action == DeadAction::Redrive,
            Self::EditDead(_, edits) => edits.iter().any(|edit| edit.rewritten.is_some()),
            _ => false,
        }
    }
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![4 => Just(When::Past), 1 => Just(When::FarAhead)]
}

fn new_message() -> impl Strategy<Value = NewMessage> {
    let on_conflict = prop_oneof![
        3 => Just(OnConflict::Reject),
        1 => Just(OnConflict::Replace),
        1 => Just(OnConflict::Earliest),
        1 => Just(OnConflict::Latest),
    ];
    let nonce = prop_oneof![3 => any::<u64>(), 1 => 1u64..4];
    let own = prop_oneof![2 => Just(None), 1 => (1u8..6).prop_map(Some)];
    (0..IDS, when(), on_conflict, nonce, own).prop_map(|(id, when, on_conflict, nonce, max_attempts)| NewMessage {
        id,
        when,
        on_conflict,
        nonce,
        max_attempts,
    })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![(0..IDS).prop_map(Change::Cancel), (0..IDS, when()).prop_map(|(id, when)| Change::Reschedule(id, when))]
}

fn take() -> impl Strategy<Value = Take> {
    let visibility = prop_oneof![2 => Just(HOUR), 1 => Just(HOUR / 2), 2 => Just(INSTANT)];
    let initial = prop_oneof![Just(Duration::ZERO), Just(HOUR)];
    let delivery = prop_oneof![6 => Just(DeliveryMode::AtLeastOnce), 1 => Just(DeliveryMode::AtMostOnce)];
    let waits = prop_oneof![
        3 => Just(Vec::new()),
        1 => Just(vec![HOUR, Duration::ZERO]),
        1 => Just(vec![Duration::ZERO, HOUR / 2]),
    ];
    (1usize..8, visibility, 1u8..4, (initial, waits), delivery).prop_map(
        |(limit, visibility, max_attempts, (initial, waits), delivery)| Take {
            // Messages of one claim run out as equals, and the order of equals is nobody's promise.
            limit: if visibility == INSTANT { 1 } else { limit },
            visibility,
            max_attempts,
            waits,
            initial,
            delivery,
        },
    )
}

/// At most one of a batch becomes visible at the present moment, for the same reason.
fn settlements() -> impl Strategy<Value = Vec<(usize, Settlement)>> {
    let later = prop_oneof![
        3 => Just(Settlement::Ack),
        2 => Just(Settlement::Nack(HOUR)),
        2 => Just(Settlement::Release),
        1 => Just(Settlement::Defer(HOUR)),
        2 => any::<bool>().prop_map(|charged| Settlement::Unanswered { wait: HOUR, charged }),
        1 => Just(Settlement::Extend(HOUR, LeaseClass::TOPIC)),
        1 => Just(Settlement::Extend(HOUR / 2, LeaseClass::for_visibility(HOUR / 2))),
        1 => Just(Settlement::Bury(BURIED.to_owned())),
    ];
    let now = prop_oneof![
        Just(Settlement::Nack(Duration::ZERO)),
        Just(Settlement::Extend(INSTANT, LeaseClass::for_visibility(INSTANT))),
    ];
    let receipt = 0usize..8;
    let many = proptest::collection::vec((receipt.clone(), later), 0..5);
    (many, proptest::option::of((receipt, now))).prop_map(|(mut many, one)| {
        many.extend(one);
        many
    })
}

/// At most one of a batch becomes visible at the present moment.
fn letter_changes() -> impl Strategy<Value = Vec<LetterChange>> {
    let whose = || prop_oneof![4 => Just(Whose::This), 1 => Just(Whose::OtherDeath), 1 => Just(Whose::OtherEnqueue)];
    let change = move |rewritten| {
        (0..IDS, whose(), rewritten).prop_map(|(id, whose, rewritten)| LetterChange { id, whose, rewritten })
    };
    let moved = proptest::collection::vec(change(Just(None).boxed()), 0..3);
    let rewritten = proptest::option::of(change((100u64..103).prop_map(Some).boxed()));
    (moved, rewritten).prop_map(|(mut all, one)| {
        all.extend(one);
        all
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let shard = || 0u32..super::SHARDS_MAX;
    let redrive = (shard(), (0..IDS).prop_map(|id| vec![id]), Just(DeadAction::Redrive));
    let purge = (shard(), proptest::collection::vec(0..IDS, 0..3), Just(DeadAction::Purge));
    let resolve_dead_letters = prop_oneof![redrive, purge];
    let plain = prop_oneof![
        6 => (shard(), proptest::collection::vec(new_message(), 0..6)).prop_map(|(s, b)| Operation::Enqueue(s, b)),
        3 => (shard(), proptest::collection::vec(change(), 0..4)).prop_map(|(s, b)| Operation::Edit(s, b)),
        8 => (shard(), take()).prop_map(|(s, take)| Operation::Claim(s, take)),
        1 => (0usize..4).prop_map(Operation::ClaimAgain),
        6 => (shard(), settlements()).prop_map(|(s, b)| Operation::Settle(s, b)),
        2 => resolve_dead_letters.prop_map(|(s, ids, action)| Operation::SettleDead(s, ids, action)),
        2 => (shard(), letter_changes()).prop_map(|(s, edits)| Operation::EditDead(s, edits)),
        1 => Just(Operation::Look),
    ];
    let plain = plain.boxed();
    prop_oneof![
        5 => plain.clone(),
        2 => plain.prop_map(|operation| match operation {
            Operation::Claim(..) | Operation::ClaimAgain(_) | Operation::Look => operation,
            other => Operation::Old(Box::new(other)),
        }),
        3 => (shard(), step()).prop_map(|(shard, step)| Operation::Move(shard, step)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let some = || proptest::collection::vec(0..IDS, 1..IDS);
    prop_oneof![
        2 => (1..=super::SHARDS_MAX).prop_map(Step::Fence),
        6 => (1..super::SHARDS_MAX, some()).prop_map(|(hop, ids)| Step::Take(hop, ids)),
        6 => Just(Step::Put),
        2 => (0u64..6).prop_map(Step::Renumber),
        4 => Just(Step::Drop),
        1 => (1usize..3).prop_map(Step::Scan),
        1 => some().prop_map(Step::Read),
    ]
}

pub(super) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 1..40)
}
