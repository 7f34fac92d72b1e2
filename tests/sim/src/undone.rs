//! A world in which many messages are cancelled or purged by bulk plans, and one plan is taken back, while others cancel
//! and replace single messages, a second plan removes the same ones, calls are kept back on their way, and nodes end.
//!
//! Nobody consumes: what is there in the end is what would be delivered, at the due time that it has.

use std::sync::Arc;
use std::time::Duration;

use duetime_core::store::Edit;
use duetime_core::{Clock as _, Due, MessageId, OnConflict, StoredMessage};
use duetime_router::{
    BulkAction, BulkFilter, BulkPlan, PlanAsk, PlanDeps, PlanError, PlanStart, PlanUndo, PlanWatcher, Plans, UndoState,
};
use duetime_testkit::history::FaultKind;
use parking_lot::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::clients::{Client, FAR};
use crate::letters::{FIRST, NEW};
use crate::mutation::Mutation;
use crate::world::{Node, World};

/// Messages of one round, and how many of them a plan removes in a second.
const MESSAGES: usize = 24;
const PER_SECOND: u32 = 12;
const ROUNDS: usize = 2;
/// Some fall due within this time, and so while they are not there.
const SOON_MS_MAX: u64 = 40_000;
/// When others act on single messages, and when a node ends.
const MEDDLED_MS_MAX: u64 = 12_000;
/// How often two plans are for the same messages, letters are purged, and a node ends, in a thousand.
const TWO_PLANS_PERMILLE: u64 = 400;
const PURGES_PERMILLE: u64 = 400;
const ENDS_PERMILLE: u64 = 150;
/// Calls that are kept back on their way, and connections that break, in a thousand.
const HELD_PERMILLE: u64 = 120;
const LOST_PERMILLE: u64 = 10;
/// Whatever was kept back, or is put back once more, has had its effect by then.
const AFTERMATH: Duration = Duration::from_secs(60);

/// What somebody else does with a message meanwhile, and whether that took effect for sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Nothing,
    Cancels,
    Replaces { is_done: bool },
}

#[derive(Debug)]
struct Nobody;

impl PlanWatcher for Nobody {
    fn failed(&self, _plan: &BulkPlan, _id: &str, _reason: &str) {}
}

/// One node's plans; a node that ends and begins again has others.
struct Runner {
    plans: Arc<Plans>,
    run: JoinHandle<()>,
}

/// The bulk plans of all nodes.
struct Runners {
    nodes: Arc<Vec<Node>>,
    left_out: Option<Mutation>,
    stop: CancellationToken,
    all: Mutex<Vec<Runner>>,
}

impl Runners {
    fn new(nodes: &Arc<Vec<Node>>, left_out: Option<Mutation>) -> Self {
        let (nodes, stop, all) = (nodes.clone(), CancellationToken::new(), Mutex::default());
        let runners = Self { nodes, left_out, stop, all };
        let begun = (0..runners.nodes.len()).map(|number| runners.begun(number)).collect();
        *runners.all.lock() = begun;
        runners
    }

    fn begun(&self, number: usize) -> Runner {
        let Node { door, clock, store, draw, .. } = &self.nodes[number];
        let name = format!("n{number}");
        let deps = PlanDeps::new(door.router.clone(), store.clone(), clock.clone(), Arc::new(Nobody), &name);
        let at_once = self.left_out.is_some_and(Mutation::is_undo_at_once);
        let late_for = if at_once { Duration::ZERO } else { deps.late_for };
        let plans = Plans::new(PlanDeps { late_for, draw: draw.clone(), ..deps });
        let run = tokio::spawn(plans.clone().run(self.stop.clone()));
        Runner { plans, run }
    }

    /// Ends what a node does for plans wherever it is, and begins anew.
    fn end(&self, number: usize) {
        let mut all = self.all.lock();
        all[number].run.abort();
        all[number] = self.begun(number);
    }

    async fn stopped(self) {
        self.stop.cancel();
        for runner in self.all.into_inner() {
            if let Err(error) = runner.run.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }
}

/// Removes many, and has that taken back.
pub async fn live(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client) {
    let runners = Runners::new(nodes, client.shared.left_out);
    for round in 0..ROUNDS {
        let ids: Vec<MessageId> =
            (0..MESSAGES).map(|n| MessageId::new(&format!("bulk-{round}-{n}")).expect("a good id")).collect();
        let action = if world.dice.permille(PURGES_PERMILLE) { BulkAction::Purge } else { BulkAction::Cancel };
        let before = client.fill(&ids, action).await;
        if world.trouble.network {
            world.history.fault_begins(FaultKind::NetworkFailed);
            *world.weather.held_permille.lock() = HELD_PERMILLE;
            *world.weather.lost_permille.lock() = LOST_PERMILLE;
        }
        let case = client.remove_and_put_back(world, &runners, (round, action), before).await;
        *world.weather.held_permille.lock() = 0;
        *world.weather.lost_permille.lock() = 0;
        world.weather.cleared().await;
        sleep(AFTERMATH).await;
        if world.trouble.network {
            world.history.fault_ends(FaultKind::NetworkFailed);
        }
        let mut there = Vec::new();
        for id in &ids {
            there.push(client.there(id).await);
        }
        case.judge(&there);
        for id in &ids {
            client.end(id).await;
        }
        // Asked once more, nothing comes.
        if case.undo.is_some() {
            client.undo(&runners, &case.plan.id).await;
            sleep(AFTERMATH).await;
        }
        for id in &ids {
            assert_eq!(client.there(id).await, None, "I15: {id} was put back twice, the plan: {:?}", case.plan);
        }
    }
    runners.stopped().await;
}

/// What was there, what was asked, and what was heard.
#[derive(Debug)]
struct Case {
    before: Vec<StoredMessage>,
    others: Vec<Other>,
    /// The plan that is taken back.
    plan: BulkPlan,
    undo: Option<PlanUndo>,
    /// A plan for the same messages that nobody takes back.
    second: Option<BulkPlan>,
    /// Nothing goes wrong.
    is_calm: bool,
}

impl Client {
    /// Messages far ahead and soon, or dead letters, as they are.
    async fn fill(&self, ids: &[MessageId], action: BulkAction) -> Vec<StoredMessage> {
        if action == BulkAction::Purge {
            return self.die(ids.to_vec()).await;
        }
        let mut all = Vec::new();
        for id in ids {
            let soon = Duration::from_millis(1 + self.dice().below(SOON_MS_MAX));
            let ahead = if self.dice().permille(300) { soon } else { FAR };
            self.put(id, FIRST, Due::At(self.shared.clock.now().plus(ahead)), OnConflict::Reject).await;
            all.push(self.there(id).await.expect("it was enqueued"));
        }
        all
    }

    /// Any node's plans, once it does not stand still.
    async fn plans(&self, runners: &Runners) -> Arc<Plans> {
        let number = usize::try_from(self.dice().below(runners.nodes.len() as u64)).expect("few");
        runners.nodes[number].door.net.awake().await;
        runners.all.lock()[number].plans.clone()
    }

    async fn remove_and_put_back(
        &self,
        world: &Arc<World>,
        runners: &Runners,
        (round, action): (usize, BulkAction),
        before: Vec<StoredMessage>,
    ) -> Case {
        let dice = self.dice();
        let (has_second, ends) = (dice.permille(TWO_PLANS_PERMILLE), dice.permille(ENDS_PERMILLE));
        let ends = ends && world.trouble.network;
        let mut meddlers = JoinSet::new();
        let mut others = vec![Other::Nothing; before.len()];
        for (n, one) in before.iter().enumerate() {
            let other = match dice.below(6) {
                0 => Other::Cancels,
                1 if !has_second => Other::Replaces { is_done: false },
                _ => continue,
            };
            let (client, id) = (self.clone(), one.id.clone());
            meddlers.spawn(async move { (n, client.meddle(&id, other).await) });
        }
        let prefix = format!("bulk-{round}-");
        let plan = self.started(runners, &prefix, action).await;
        let second = if has_second { Some(self.started(runners, &prefix, action).await) } else { None };
        if ends {
            dice.pause(MEDDLED_MS_MAX).await;
            runners.end(usize::try_from(dice.below(runners.nodes.len() as u64)).expect("few"));
        }
        self.seen(runners, &plan, |plan| plan.state.has_ended()).await;
        let is_asked = self.undo(runners, &plan).await;
        let mut plan = self.seen(runners, &plan, |plan| !is_asked || has_gone_on(plan)).await;
        let second = match second {
            Some(second) => Some(self.seen(runners, &second, |plan| plan.state.has_ended()).await),
            None => None,
        };
        while let Some(ended) = meddlers.join_next().await {
            let (n, other) = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            others[n] = other;
        }
        let undo = plan.undo.take().filter(|_| is_asked);
        Case { before, others, plan, undo, second, is_calm: !world.trouble.network && !has_second }
    }

    /// Acts on one message at some moment.
    async fn meddle(&self, id: &MessageId, other: Other) -> Other {
        self.dice().pause(MEDDLED_MS_MAX).await;
        if other == Other::Cancels {
            let began = Instant::now();
            while self.door().await.router.edit(&self.topic, vec![Edit::Cancel(id.clone())]).await[0].is_err() {
                self.again(began, "a cancel").await;
            }
            return other;
        }
        let far = Due::At(self.shared.clock.now().plus(FAR));
        Other::Replaces { is_done: self.put(id, NEW, far, OnConflict::Replace).await }
    }

    /// Plans this at some node, and starts it at another. Its name.
    async fn started(&self, runners: &Runners, prefix: &str, action: BulkAction) -> String {
        let (began, at_most) = (Instant::now(), Some(MESSAGES as u64));
        let filter = BulkFilter { prefix: prefix.to_owned(), ..BulkFilter::default() };
        let ask = PlanAsk { action, to: None, filter, per_second: PER_SECOND, by: None, undoable: true };
        loop {
            let plans = self.plans(runners).await;
            if let Ok(plan) = plans.create(&self.topic, ask.clone()).await {
                loop {
                    let how = PlanStart { at_most, per_second: None };
                    match self.plans(runners).await.start(&self.topic, &plan.id, how).await {
                        // An earlier try, which had no answer, began it.
                        Ok(_) | Err(PlanError::Refused(_)) => return plan.id,
                        Err(_) => self.again(began, "the start of a plan").await,
                    }
                }
            }
            self.again(began, "a plan").await;
        }
    }

    async fn seen(&self, runners: &Runners, id: &str, wanted: impl Fn(&BulkPlan) -> bool) -> BulkPlan {
        let began = Instant::now();
        loop {
            match self.plans(runners).await.get(&self.topic, id).await {
                Ok(plan) if wanted(&plan) => return plan,
                _ => self.again(began, "a bulk plan").await,
            }
        }
    }

    /// Asks for a plan to be taken back; false: it cannot be.
    async fn undo(&self, runners: &Runners, id: &str) -> bool {
        let began = Instant::now();
        loop {
            match self.plans(runners).await.undo(&self.topic, id, None).await {
                Ok(_) => return true,
                Err(PlanError::Refused(_)) => return false,
                Err(_) => self.again(began, "an undo").await,
            }
        }
    }
}

/// Whether taking it back has ended.
fn has_gone_on(plan: &BulkPlan) -> bool {
    plan.undo.as_ref().is_some_and(|undo| matches!(undo.state, UndoState::Done | UndoState::Lost))
}

impl Case {
    /// Holds what is there against what was answered.
    fn judge(&self, there: &[Option<StoredMessage>]) {
        let holds = |rule: &str, good: bool| assert!(good, "{rule}: {self:?}, there: {there:?}");
        let as_it_was = |was: &StoredMessage, is: &StoredMessage| {
            let all =
                |one: &StoredMessage| (one.due_at, one.attempts, one.nonce, one.payload.clone(), one.death.clone());
            all(was) == all(is)
        };
        let (mut missing, mut gone, mut replaced) = (0, 0, 0);
        for ((was, is), other) in self.before.iter().zip(there).zip(&self.others) {
            let id = &was.id;
            let is_first = is.as_ref().is_some_and(|is| is.payload == FIRST);
            gone += u64::from(is.is_none());
            replaced += u64::from(matches!(other, Other::Replaces { .. }));
            match other {
                Other::Cancels => holds(&format!("I3: a cancel of {id} is not overtaken"), is.is_none()),
                Other::Replaces { is_done: true } => holds(&format!("I5: what replaced {id} stays"), !is_first),
                Other::Nothing | Other::Replaces { .. } => {}
            }
            if let Some(is) = is.as_ref().filter(|_| is_first) {
                holds(&format!("I15: {id} is as it was"), as_it_was(was, is));
            }
            missing += u64::from(is.is_none() && *other != Other::Cancels);
        }
        let all = self.before.len() as u64;
        // What is not kept is removed for good, and what a second plan removed too.
        let back = match &self.undo {
            Some(undo) if undo.state == UndoState::Done => undo.kept,
            Some(undo) => undo.restored,
            None => 0,
        };
        let of_second = self.second.as_ref().map_or(0, |second| second.counts.done);
        let may_miss = if self.second.is_some() { all } else { all - back.min(all) };
        holds("I1: what was kept is there again", missing <= may_miss);
        holds(
            "I4: what is said to be there again is",
            self.undo.as_ref().is_none_or(|undo| all - gone >= self.stay(undo)),
        );
        // Each of those was removed by a plan that nobody took back.
        holds("I3: what another plan removed stays removed", gone + replaced >= of_second);
        if self.is_calm {
            let meddled = self.others.iter().filter(|other| **other != Other::Nothing).count() as u64;
            holds("I1: in a calm world all is kept", self.undo.is_some() && back + meddled >= all && missing == 0);
        }
    }

    /// Of those that an undo put back so many are not removed again by anybody.
    fn stay(&self, undo: &PlanUndo) -> u64 {
        let cancels = self.others.iter().filter(|other| **other == Other::Cancels).count() as u64;
        let removed_again = self.second.as_ref().map_or(0, BulkPlan::acted_on);
        undo.restored.saturating_sub(cancels + removed_again)
    }
}
