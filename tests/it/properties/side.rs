//! One of the stores under comparison: operations applied, answers written down so that they can be
//! compared.

use duetime_testkit::at_home::{AllCounted as _, MessagesAtHome as _, SettledAtHome as _};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use duetime_core::store::{
    Claim, ClaimRequest, ClaimedMessage, DeadChange, DeadEdit, Edit, Enqueue, Settle, Settled, Settlement,
};
use duetime_core::{
    DeliveryMode, Due, Headers, MessageId, Nonce, RetryPolicy, Role, Score, Shard, Store, StoredMessage, Timestamp,
    TopicRecord, max_attempts,
};

use super::moves::show_batch;
use super::operation::{Change, IDS, LetterChange, NewMessage, Operation, Take, When, Whose};

/// How far from the case's start drawn due times lie.
const APART_MS: i64 = 10_000_000_000;
/// Times nearer than that to the start were made by a store's own clock.
const NEAR_MS: i64 = APART_MS / 2;
/// What such times are compared by.
const COARSE_MS: i64 = 60_000;
/// Letters a page of the final dump has.
const PAGE: usize = 2;

pub(super) struct Case {
    start: Timestamp,
}

impl Case {
    pub fn new(start: Timestamp) -> Self {
        Self { start }
    }

    /// A due time nobody else has.
    fn due(&self, when: When, operation: usize, item: usize) -> Timestamp {
        let own = i64::try_from(operation * 100 + item).expect("cases are short");
        let apart = match when {
            When::Past => -APART_MS,
            When::FarAhead => APART_MS,
        };
        Timestamp::from_millis(self.start.as_millis() + apart + own)
    }

    /// A moment as it can be compared.
    pub(super) fn show(&self, at: Timestamp) -> String {
        let apart_ms = at.as_millis() - self.start.as_millis();
        if apart_ms.abs() > NEAR_MS {
            return format!("{apart_ms:+}ms");
        }
        format!("~{:+}", (apart_ms + COARSE_MS / 2).div_euclid(COARSE_MS))
    }

    pub(super) fn show_message(&self, one: &StoredMessage) -> String {
        let death = one.death.as_ref().map(|death| !death.reason.is_empty());
        // When a dead letter is visible has no meaning.
        let visible_at = if one.death.is_some() { String::new() } else { self.show(one.visible_at) };
        format!(
            "{} {:?} due {} visible {visible_at} attempts {} {:?} {:?} {:?} death {death:?}",
            one.id,
            one.state,
            self.show(one.due_at),
            one.attempts,
            one.nonce,
            one.headers,
            one.payload
        )
    }

    fn show_claimed(&self, one: &ClaimedMessage) -> String {
        format!(
            "{} due {} attempt {} suspect {} class {} attempts {} {:?} {:?} {:?}",
            one.id,
            self.show(one.due_at),
            one.attempt,
            one.suspect,
            one.score.class().digit(),
            one.score.attempts(),
            one.nonce,
            one.headers,
            one.payload
        )
    }
}

pub(super) fn id(number: usize) -> MessageId {
    MessageId::new(&format!("id-{number}")).expect("a good id")
}

pub(super) struct Side {
    pub name: &'static str,
    pub(super) store: Arc<dyn Store>,
    /// As it is by now.
    pub(super) record: TopicRecord,
    claims: Vec<(u32, ClaimRequest)>,
    /// Every receipt seen, also of claims that ended; the same order on all sides.
    receipts: Vec<(MessageId, Score)>,
}

impl Side {
    pub fn new(name: &'static str, store: Arc<dyn Store>, record: &TopicRecord) -> Self {
        Self { name, store, record: record.clone(), claims: Vec::new(), receipts: Vec::new() }
    }

    /// One of the shards there are, retired ones among them.
    pub(super) fn shard(&self, index: u32) -> Shard {
        self.record.routing.shard(&self.record.name, index % self.record.max_shards_ever())
    }

    fn shards(&self) -> Vec<Shard> {
        (0..self.record.max_shards_ever()).map(|index| self.shard(index)).collect()
    }

    /// Applies it, and answers what can be compared.
    pub async fn apply(&mut self, case: &Case, number: usize, operation: &Operation, now: Timestamp) -> String {
        match operation {
            Operation::Enqueue(index, batch) => {
                let batch: Vec<Enqueue> = batch.iter().enumerate().map(|(n, one)| made(case, number, n, one)).collect();
                let answers = self.store.enqueue(&self.shard(*index), now, &batch).await.expect("answered");
                // Of a duplicate, a store may not know the due time without cost.
                answers.iter().map(|answer| format!("{:?} ", answer.outcome)).collect()
            }
            Operation::Edit(index, batch) => {
                let batch = edits(case, number, batch);
                let answers = self.store.edit(&self.shard(*index), now, &batch).await.expect("answered");
                format!("{answers:?}")
            }
            Operation::Claim(index, take) => self.claim(case, *index, request(number, take), now).await,
            Operation::ClaimAgain(back) => self.claim_again(case, *back, now).await,
            Operation::Settle(index, batch) => {
                let batch = self.chosen(batch);
                let answers = self.store.settle(&self.shard(*index), now, &batch).await.expect("answered");
                let mut shown = String::new();
                for (item, answer) in batch.iter().zip(answers) {
                    shown += &self.settled(case, item, answer);
                }
                shown
            }
            Operation::SettleDead(index, ids, action) => {
                let ids: Vec<MessageId> = ids.iter().map(|number| id(*number)).collect();
                let answers = self.store.resolve_dead_letters(&self.shard(*index), now, &ids, *action).await;
                format!("{:?}", answers.expect("answered"))
            }
            Operation::EditDead(index, changes) => self.edit_dead(number, (*index, Role::Home), changes, now).await,
            Operation::Look => self.look(case, now).await,
            Operation::Old(operation) => self.apply_old(case, number, operation, now).await,
            Operation::Move(index, step) => self.step(case, number, *index, step).await,
        }
    }

    /// Changes dead letters as they are there; each store has its own times of death.
    pub(super) async fn edit_dead(
        &self,
        number: usize,
        (index, role): (u32, Role),
        changes: &[LetterChange],
        now: Timestamp,
    ) -> String {
        let (shard, mut edits) = (self.shard(index), Vec::new());
        for (n, LetterChange { id: which, whose, rewritten }) in changes.iter().enumerate() {
            let there = self.store.get(&shard, &[id(*which)]).await.expect("answered").remove(0);
            let (nonce, died) = there.map_or((Nonce(0), None), |there| (there.nonce, there.death));
            let died_at = died.map_or(now, |death| death.at);
            let (nonce, died_at) = match whose {
                Whose::This => (nonce, died_at),
                Whose::OtherDeath => (nonce, Timestamp::from_millis(died_at.as_millis() - 1)),
                Whose::OtherEnqueue => (Nonce(nonce.0 ^ 1), died_at),
            };
            let rewrite = |nonce: u64| DeadChange::Rewrite {
                nonce: Nonce(nonce),
                headers: Headers::default(),
                payload: Bytes::from(format!("rewritten {number}-{n}")),
            };
            let change = rewritten.map_or(DeadChange::MoveOut, rewrite);
            edits.push(DeadEdit { id: id(*which), nonce, died_at, change });
        }
        let answers = self.store.edit_dead_letters_at(&shard, role, now, &edits).await.expect("answered").answers;
        format!("{answers:?}")
    }

    /// The settlements of receipts that are there.
    pub(super) fn chosen(&self, batch: &[(usize, Settlement)]) -> Vec<Settle> {
        let last = self.receipts.len();
        let chosen = batch.iter().filter_map(|(back, how)| {
            let (id, score) = self.receipts.get(last.checked_sub(back + 1)?)?;
            Some(Settle { id: id.clone(), score: *score, action: how.clone() })
        });
        chosen.collect()
    }

    /// One settlement's answer; the receipt of an extension is kept.
    pub(super) fn settled(&mut self, case: &Case, item: &Settle, answer: Settled) -> String {
        let Settled::Extended(score) = answer else { return format!("{} {answer:?} ", item.id) };
        self.receipts.push((item.id.clone(), score));
        let (class, attempts) = (score.class().digit(), score.attempts());
        format!("{} class {class} attempts {attempts} {} ", item.id, case.show(score.visible_at()))
    }

    async fn claim(&mut self, case: &Case, index: u32, request: ClaimRequest, now: Timestamp) -> String {
        let claim = self.store.claim(&self.shard(index), now, &request).await.expect("answered");
        if request.delivery == DeliveryMode::AtLeastOnce && !claim.messages.is_empty() {
            self.claims.push((index, request));
        }
        self.receipts.extend(claim.messages.iter().map(|one| (one.id.clone(), one.score)));
        show_claim(case, &claim)
    }

    async fn claim_again(&mut self, case: &Case, back: usize, now: Timestamp) -> String {
        let Some(last) = self.claims.len().checked_sub(back + 1) else { return String::new() };
        let (index, request) = self.claims[last].clone();
        let mut claim = self.store.claim(&self.shard(index), now, &request).await.expect("answered");
        // They have one deadline now, and no order among them.
        claim.messages.sort_by(|a, b| a.id.cmp(&b.id));
        show_claim(case, &claim)
    }

    async fn look(&self, case: &Case, now: Timestamp) -> String {
        let mut shown = String::new();
        for survey in self.store.all_counts(&self.shards(), now).await.expect("answered") {
            let head = survey.head.map(|at| case.show(at));
            let (scheduled, due, in_flight, dead) = (survey.scheduled, survey.due, survey.in_flight, survey.dead);
            let _ = writeln!(shown, "scheduled {scheduled} due {due} in flight {in_flight} dead {dead} head {head:?}");
        }
        let heads = self.store.next_due(&self.shards()).await.expect("answered");
        let _ = writeln!(shown, "{:?}", heads.iter().map(|at| at.map(|at| case.show(at))).collect::<Vec<_>>());
        let edge = |ms: i64| Timestamp::from_millis(case.start.as_millis() + ms);
        let edges = [-2 * APART_MS, -NEAR_MS, -60_000, 60_000, NEAR_MS, 2 * APART_MS].map(edge);
        let counts = self.store.whole_forecast(&self.shards(), &edges).await.expect("answered");
        let _ = writeln!(shown, "{counts:?}");
        shown
    }

    pub async fn dump(&self, case: &Case, now: Timestamp) -> String {
        let mut shown = self.look(case, now).await;
        for shard in self.shards() {
            let ids: Vec<MessageId> = (0..IDS).map(id).collect();
            for one in self.store.get(&shard, &ids).await.expect("answered").iter().flatten() {
                let _ = writeln!(shown, "{shard}: {}", case.show_message(one));
            }
            let mut from = None;
            loop {
                let page = self.store.dead_letters(&shard, from, PAGE).await.expect("answered");
                for one in &page.messages {
                    let _ = writeln!(shown, "{shard} dead: {}", case.show_message(one));
                }
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
            let outbox = self.store.outbox(&shard).await.expect("answered");
            let _ = writeln!(shown, "{shard} outbox: {}", show_batch(case, outbox.as_ref()));
        }
        shown
    }
}

pub(super) fn edits(case: &Case, number: usize, batch: &[Change]) -> Vec<Edit> {
    let edit = |(n, change): (usize, &Change)| match change {
        Change::Cancel(number) => Edit::Cancel(id(*number)),
        Change::Reschedule(which, when) => Edit::Reschedule(id(*which), Due::At(case.due(*when, number, n))),
    };
    batch.iter().enumerate().map(edit).collect()
}

pub(super) fn made(case: &Case, operation: usize, item: usize, one: &NewMessage) -> Enqueue {
    let header = ("nonce".to_owned(), one.nonce.to_string());
    let headers = Headers::new(vec![header]).expect("a good header");
    Enqueue {
        id: id(one.id),
        due: Due::At(case.due(one.when, operation, item)),
        headers: one.max_attempts.map_or_else(|| headers.clone(), |most| max_attempts::kept_in(most, &headers)),
        payload: Bytes::from(format!("payload {operation}-{item}")),
        on_conflict: one.on_conflict,
        nonce: Nonce(one.nonce),
    }
}

fn request(number: usize, take: &Take) -> ClaimRequest {
    ClaimRequest {
        request: number as u64 + 1,
        limit: take.limit,
        visibility: take.visibility,
        class: take.class(),
        retry: RetryPolicy {
            max_attempts: take.max_attempts,
            initial: take.initial,
            max: Duration::from_secs(7200),
            factor: 2.0,
            jitter: 0.3,
            waits: take.waits.clone(),
        },
        delivery: take.delivery,
    }
}

fn show_claim(case: &Case, claim: &Claim) -> String {
    let mut shown = String::new();
    for one in &claim.messages {
        let _ = writeln!(shown, "{}", case.show_claimed(one));
    }
    let next = claim.next_due.map(|at| case.show(at));
    let _ = write!(shown, "next {next:?} left {} ", claim.due_left);
    let _ = write!(shown, "buried {} expired {}", claim.buried, claim.expired);
    shown
}
