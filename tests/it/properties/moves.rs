//! The part of the operations that a resize brings: calls at the source shard, and the steps of a move.

use duetime_core::store::AckWait;
use std::fmt::Write as _;

use duetime_core::resize_store::{ApplyOutcome, Batch, BatchId, DeadlineFloor, FrozenState, Lookup};
use duetime_core::routing::RoutingState;
use duetime_core::store::Enqueue;
use duetime_core::{ChangeId, MessageId, Role, Routing, RoutingRecord, Timestamp, envelope};

use super::operation::{Operation, Step};
use super::side::{Case, Side, edits, id, made};

/// Where it was, and the answer of what was there.
fn show_old<A>(answer: Lookup<A>, show: impl FnOnce(A) -> String) -> String {
    match answer {
        Lookup::Found(answer) => show(answer) + " ",
        Lookup::Absent(became) => {
            became.map_or_else(|| "absent ".to_owned(), |became| format!("{} ", became.end.as_str()))
        }
        Lookup::Frozen => "frozen ".to_owned(),
    }
}

/// All of a batch that can be compared.
pub(super) fn show_batch(case: &Case, batch: Option<&Batch>) -> String {
    let Some(batch) = batch else { return "nothing".to_owned() };
    let mut shown = format!("{:?} from {} to {}:", batch.name, batch.from, batch.to);
    for one in &batch.messages {
        let state = match &one.state {
            FrozenState::Live(score) => {
                let (at, class, attempts) = (case.show(score.visible_at()), score.class().digit(), score.attempts());
                format!("visible {at} class {class} attempts {attempts}")
            }
            FrozenState::Dead { attempts, reason, .. } => format!("dead {attempts} {}", reason.is_empty()),
        };
        let body = one.body.as_ref().map(|body| envelope::decode(body).expect("it is one of ours"));
        let body = body.map(|body| (case.show(body.due_at), body.nonce, body.headers, body.payload));
        let _ = write!(shown, " [{} {state} {body:?}]", one.id);
    }
    shown
}

impl Side {
    pub(super) async fn apply_old(
        &mut self,
        case: &Case,
        number: usize,
        operation: &Operation,
        now: Timestamp,
    ) -> String {
        match operation {
            Operation::Enqueue(index, batch) => {
                let batch: Vec<Enqueue> = batch.iter().enumerate().map(|(n, one)| made(case, number, n, one)).collect();
                let answers =
                    self.store.enqueue_at(&self.shard(*index), Role::Source, now, &batch).await.expect("answered");
                let show = |answer| show_old(answer, |one: duetime_core::store::Enqueued| format!("{:?}", one.outcome));
                answers.into_iter().map(show).collect()
            }
            Operation::Edit(index, batch) => {
                let batch = edits(case, number, batch);
                let answers =
                    self.store.edit_at(&self.shard(*index), Role::Source, now, &batch).await.expect("answered").answers;
                format!("{answers:?}")
            }
            Operation::Settle(index, batch) => {
                let batch = self.chosen(batch);
                let answers = self
                    .store
                    .settle_at(&self.shard(*index), Role::Source, now, &batch, AckWait::No)
                    .await
                    .expect("answered")
                    .answers;
                let mut shown = String::new();
                for (item, answer) in batch.iter().zip(answers) {
                    shown += &show_old(answer, |answer| self.settled(case, item, answer));
                }
                shown
            }
            Operation::EditDead(index, changes) => self.edit_dead(number, (*index, Role::Source), changes, now).await,
            Operation::SettleDead(index, ids, action) => {
                let ids: Vec<MessageId> = ids.iter().map(|number| id(*number)).collect();
                let answers =
                    self.store.resolve_dead_letters_at(&self.shard(*index), Role::Source, now, &ids, *action).await;
                format!("{:?}", answers.expect("answered").answers)
            }
            other => unreachable!("{other:?} has no source shard"),
        }
    }

    pub(super) async fn step(&mut self, case: &Case, number: usize, index: u32, step: &Step) -> String {
        let shard = self.shard(index);
        match step {
            Step::Fence(shards) => self.fence(number, *shards).await,
            Step::Take(hop, ids) => {
                let to = (shard.index + hop) % self.record.max_shards_ever();
                if to == shard.index {
                    return String::new();
                }
                let ids: Vec<MessageId> = ids.iter().map(|number| id(*number)).collect();
                let taken = self.store.freeze_batch(&shard, to, &ids, number as u64 + 1).await.expect("answered");
                show_batch(case, taken.as_ref())
            }
            Step::Put => {
                let Some(batch) = self.store.outbox(&shard).await.expect("answered") else { return String::new() };
                let to = self.shard(batch.to);
                let shown = match self.store.apply_batch(&to, &batch).await.expect("answered") {
                    ApplyOutcome::Done { fresh, .. } => format!("{fresh} put"),
                    conflict @ ApplyOutcome::Conflict { .. } => format!("{conflict:?}"),
                };
                format!("{shown}, {:?}", self.store.last_applied_batch(&to, batch.from).await.expect("answered"))
            }
            Step::Renumber(to) => {
                let held = self.store.outbox(&shard).await.expect("answered");
                let seen = held.map_or(0, |batch| batch.name.nonce);
                let new = BatchId { number: *to, nonce: number as u64 + 1 };
                format!("{}", self.store.rename_batch(&shard, seen, new).await.expect("answered"))
            }
            Step::Drop => {
                let Some(batch) = self.store.outbox(&shard).await.expect("answered") else { return String::new() };
                format!("{}", self.store.discard_batch(&shard, batch.name.nonce).await.expect("answered"))
            }
            Step::Scan(limit) => {
                let (mut seen, mut from) = (Vec::new(), None);
                loop {
                    let page = self.store.scan(&shard, from.as_ref(), *limit).await.expect("answered");
                    // When a dead letter is visible has no meaning.
                    seen.extend(page.found.into_iter().map(|one| format!("{} {:?}", one.id, one.state)));
                    from = page.next;
                    if from.is_none() {
                        break;
                    }
                }
                seen.sort();
                seen.dedup();
                format!("{seen:?}")
            }
            Step::Read(ids) => {
                let ids: Vec<MessageId> = ids.iter().map(|number| id(*number)).collect();
                let found = self.store.get_at(&shard, Role::Source, &ids).await.expect("answered");
                found.into_iter().map(|one| show_old(one, |one| case.show_message(&one))).collect()
            }
        }
    }

    async fn fence(&mut self, number: usize, shards: u32) -> String {
        let seen = self.record.routing_record();
        let routing = Routing {
            epoch: seen.routing.epoch + 1,
            change_id: ChangeId(number as u64 + 1),
            shards,
            previous: seen.routing.shards,
            state: RoutingState::Moving,
            seed: seen.routing.seed,
            watermark: seen.routing.watermark,
            max_in_flight: seen.routing.max_in_flight,
        };
        let new = RoutingRecord { routing: routing.clone(), desired: Some(number as u32), earlier: Vec::new() };
        self.store.swap_routing(&self.record.name, &seen, &new).await.expect("nobody else changes it");
        self.record.set_routing(&new);
        let mut shown = String::new();
        // Retired shards too: here they go on taking part.
        for index in 0..self.record.max_shards_ever() {
            let fenced = self.store.fence(&self.record.name, index, &routing, &DeadlineFloor::default()).await;
            let _ = write!(shown, "{:?} ", fenced.expect("answered").before.map(|before| before.in_life(0)));
        }
        let inspected =
            self.store.inspect(&self.record.name, 0..self.record.max_shards_ever()).await.expect("answered");
        let each = inspected.into_iter().flatten().map(|one| (one.routing.change(), one.outbox));
        shown + &format!("{:?}", each.collect::<Vec<_>>())
    }
}
