//! A world in which dead letters are edited in place and moved to another topic, by requests that come twice at once
//! and again, while others cancel, purge, replace and redrive the same letters, the network fails and the shard count
//! changes.
//!
//! Nobody consumes: what is there in the end is what would be delivered. So each letter is judged by what was answered
//! of it, and by what is there.

use std::sync::Arc;

use duetime_core::store::{DeadAction, Edit, Edited, Enqueue, Settle, Settlement};
use duetime_core::{Clock as _, Due, Headers, MessageId, MessageState, Nonce, OnConflict, StoredMessage};
use duetime_router::{Resend, Resent, resend};
use duetime_testkit::at_home::SettledAtHome as _;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clients::{Client, FAR};
use crate::world::{Node, VISIBILITY, World, drafts, orders, wanted_to_remember};

/// Letters of one round.
const LETTERS: usize = 20;
const ROUNDS: usize = 2;
/// Shards there are at most.
const SHARDS_MAX: u64 = 4;
/// Longest wait before a request: as long as a few calls take, so that requests meet.
const PAUSE_MS_MAX: u64 = 8;
const CLAIMED_MAX: usize = 64;

pub const FIRST: &str = "first";
const EDITED: &str = "edited";
pub const NEW: &str = "new";

/// What somebody else does with a letter at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Nothing,
    Purges,
    Cancels,
    /// Enqueues another message of the id in its place.
    Replaces,
    Redrives,
    /// Redrives it, and has it die again.
    Kills,
}

const OTHERS: [Other; 6] =
    [Other::Nothing, Other::Purges, Other::Cancels, Other::Replaces, Other::Redrives, Other::Kills];

/// Whether the other one found anything to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Took {
    Yes,
    No,
    /// An earlier try, which had no answer, may have.
    Unsure,
}

/// A letter, who asks for what, and what they hear.
#[derive(Debug)]
struct Case {
    id: MessageId,
    how: Resend,
    /// Of each request.
    answers: Vec<Resent>,
    /// Some request had no answer and was sent again.
    retried: bool,
    other: Other,
    took: Took,
}

/// Has letters edited and moved; the shard count in the end.
pub async fn live(world: &Arc<World>, nodes: &Arc<Vec<Node>>, client: &Client) -> u32 {
    let shards = 1 + u32::try_from(world.dice.below(3)).expect("few");
    let remember = crate::past::REMEMBERED_FOR;
    while nodes[0].door.catalog.put(&drafts(), &wanted_to_remember(shards, remember)).await.is_err() {
        world.dice.pause(500).await;
    }
    let mut faults = JoinSet::new();
    faults.spawn(crate::faults::direct(world.clone(), nodes.clone(), client.shared.clone()));
    let elsewhere = Client { topic: drafts(), ..client.clone() };
    for round in 0..ROUNDS {
        let ids = (0..LETTERS).map(|n| MessageId::new(&format!("letter-{round}-{n}")).expect("a good id")).collect();
        let letters = client.die(ids).await;
        let mut all = JoinSet::new();
        for letter in letters {
            all.spawn(client.clone().contend(letter));
        }
        let last = 1 + u32::try_from(world.dice.below(SHARDS_MAX)).expect("few");
        world.request(&nodes[0], &orders(), last).await;
        let mut cases = Vec::new();
        while let Some(case) = all.join_next().await {
            cases.push(case.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
        }
        while round + 1 == ROUNDS && !faults.is_empty() {
            faults.join_next().await.into_iter().for_each(crate::world::passed_on);
        }
        for case in &cases {
            case.judge(client.there(&case.id).await.as_ref(), elsewhere.there(&case.id).await.as_ref());
        }
        for case in &cases {
            client.end(&case.id).await;
            elsewhere.end(&case.id).await;
            let (again, _) = client.clone().ask(case.id.clone(), case.how.clone()).await;
            let left = (client.there(&case.id).await, elsewhere.there(&case.id).await);
            assert!(left == (None, None), "I15: {case:?} was repeated ({again:?}) after all had ended: {left:?}");
        }
    }
    crate::forwarded::live(world, nodes, client, &elsewhere).await
}

impl Client {
    /// Has messages die, and reads their letters.
    pub async fn die(&self, ids: Vec<MessageId>) -> Vec<StoredMessage> {
        for id in &ids {
            self.put(id, FIRST, Due::At(self.shared.clock.now()), OnConflict::Reject).await;
        }
        let (began, mut letters) = (Instant::now(), Vec::new());
        for id in ids {
            letters.push(loop {
                match self.there(&id).await {
                    Some(letter) if letter.state == MessageState::Dead => break letter,
                    _ => self.bury_one(&id).await,
                }
                self.again(began, "a claim").await;
            });
        }
        letters
    }

    /// Claims from the shard of `id`; refuses it for good, and gives back whatever else comes.
    async fn bury_one(&self, id: &MessageId) {
        let Some(record) = self.door().await.catalog.get(&self.topic) else { return };
        for index in 0..record.routing.reach() {
            let shard = record.routing.shard(&self.topic, index);
            let request = self.request(CLAIMED_MAX, VISIBILITY);
            let Some(claim) = self.claim(&shard, &request).await else { continue };
            for message in claim.messages {
                let dies = message.id == *id && message.payload == FIRST;
                let action = if dies { Settlement::Bury("refused".to_owned()) } else { Settlement::Release };
                let settle = Settle { id: message.id, score: message.score, action };
                // What is not settled comes again.
                let _ = self.door().await.routed.settle(&shard, self.shared.clock.now(), &[settle]).await;
            }
        }
    }

    /// Edits or moves a letter, once or twice at once, while somebody else does something with it.
    async fn contend(self, letter: StoredMessage) -> Case {
        let some = |n: usize| usize::try_from(self.dice().below(n as u64)).expect("few");
        let other = OTHERS[some(OTHERS.len())];
        let to = if self.dice().permille(500) { orders() } else { drafts() };
        let payload = (to == orders() || self.dice().permille(500)).then(|| EDITED.into());
        // Without the time of death the letter of a second death is meant as well.
        let names_it = other == Other::Kills || self.dice().permille(700);
        let died_at = letter.death.map(|death| death.at).filter(|_| names_it);
        let how = Resend { to, payload, died_at };
        let (mut asks, id) = (JoinSet::new(), letter.id);
        for _ in 0..1 + some(2) {
            asks.spawn(self.clone().ask(id.clone(), how.clone()));
        }
        let took = self.interfere(&id, other).await;
        let (mut answers, mut retried) = (Vec::new(), false);
        while let Some(asked) = asks.join_next().await {
            let (answer, again) = asked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            answers.push(answer);
            retried |= again;
        }
        Case { id, how, answers, retried, other, took }
    }

    /// Asks until it is answered, and says whether that took more than one request.
    async fn ask(self, id: MessageId, how: Resend) -> (Resent, bool) {
        self.dice().pause(PAUSE_MS_MAX).await;
        let (began, mut retried) = (Instant::now(), false);
        loop {
            let router = self.door().await.router.clone();
            match resend(&router, &self.topic, std::slice::from_ref(&id), &how).await.remove(0) {
                Ok(answer) => return (answer, retried),
                Err(_) => retried = true,
            }
            self.again(began, "an edit of a letter").await;
        }
    }

    async fn interfere(&self, id: &MessageId, other: Other) -> Took {
        self.dice().pause(PAUSE_MS_MAX).await;
        match other {
            Other::Nothing => Took::No,
            Other::Purges => self.settle_dead(id, DeadAction::Purge).await,
            Other::Redrives => self.settle_dead(id, DeadAction::Redrive).await,
            Other::Kills => {
                let took = self.settle_dead(id, DeadAction::Redrive).await;
                self.bury_one(id).await;
                took
            }
            Other::Cancels => self.take_back(id).await,
            Other::Replaces => {
                let far = Due::At(self.shared.clock.now().plus(FAR));
                if self.put(id, NEW, far, OnConflict::Replace).await { Took::Yes } else { Took::No }
            }
        }
    }

    async fn settle_dead(&self, id: &MessageId, action: DeadAction) -> Took {
        let (began, mut took) = (Instant::now(), Took::No);
        loop {
            let door = self.door().await;
            match door.router.dead.settle(&self.topic, std::slice::from_ref(id), action).await.done[0] {
                Ok(true) => return Took::Yes,
                Ok(false) => return took,
                Err(_) => took = Took::Unsure,
            }
            self.again(began, "a change of a dead letter").await;
        }
    }

    async fn take_back(&self, id: &MessageId) -> Took {
        let (began, mut took) = (Instant::now(), Took::No);
        loop {
            let answer = self.door().await.router.edit(&self.topic, vec![Edit::Cancel(id.clone())]).await.remove(0);
            match answer.map(|changed| changed.edited) {
                Ok(Edited::Cancelled | Edited::InFlight) => return Took::Yes,
                Ok(_) => return took,
                Err(_) => took = Took::Unsure,
            }
            self.again(began, "a cancel").await;
        }
    }

    /// Enqueues; false: something else is there, or is remembered.
    pub async fn put(&self, id: &MessageId, text: &'static str, due: Due, on_conflict: OnConflict) -> bool {
        let (headers, nonce) = (Headers::default(), Nonce(self.dice().next()));
        let item = Enqueue { id: id.clone(), due, headers, payload: text.into(), on_conflict, nonce };
        let began = Instant::now();
        loop {
            let placed = self.door().await.router.enqueue(&self.topic, vec![item.clone()]).await.remove(0);
            if let Ok(placed) = placed {
                return !placed.outcome.is_unchanged();
            }
            self.again(began, "an enqueue").await;
        }
    }

    pub async fn there(&self, id: &MessageId) -> Option<StoredMessage> {
        let began = Instant::now();
        loop {
            if let Some(Ok((_, found))) = self.door().await.router.get(&self.topic, vec![id.clone()]).await.pop() {
                return found;
            }
            self.again(began, "a look for a message").await;
        }
    }

    /// Ends whatever is there.
    pub async fn end(&self, id: &MessageId) {
        while self.there(id).await.is_some() {
            self.take_back(id).await;
        }
    }
}

impl Case {
    /// Holds what is there against what was answered.
    fn judge(&self, here: Option<&StoredMessage>, elsewhere: Option<&StoredMessage>) {
        let text = |found: Option<&StoredMessage>| {
            found.map(|one| (String::from_utf8_lossy(&one.payload).into_owned(), one.state == MessageState::Dead))
        };
        let (here, elsewhere) = (text(here), text(elsewhere));
        let holds = |rule: &str, good: bool| assert!(good, "{rule}: {self:?}, here {here:?}, elsewhere {elsewhere:?}");
        let is = |what: &str| here.as_ref().is_some_and(|(text, _)| text == what);
        let lives = |what: &str| here.as_ref() == Some(&(what.to_owned(), false));
        let answered = |some: &[Resent]| self.answers.iter().filter(|one| some.contains(one)).count();
        let moves = self.how.to != orders();
        let gone = if moves { here.is_none() } else { lives(EDITED) };
        let done = answered(&[Resent::Done, Resent::Already]) > 0;
        // A request that moved a letter and had no answer finds none when it is sent again.
        let did = done || self.retried;
        holds("I1: a letter is changed once", answered(&[Resent::Done]) <= 1);
        if moves {
            let scheduled = answered(&[Resent::Done, Resent::Beside]) > 0;
            let payload = if self.how.payload.is_some() { EDITED } else { FIRST };
            holds(
                "I1: what is said to be scheduled is there",
                !scheduled || elsewhere == Some((payload.to_owned(), false)),
            );
            holds("I15: what was not scheduled is not there", scheduled || self.retried || elsewhere.is_none());
        } else {
            holds("I15: an edit in place is in no other topic", elsewhere.is_none());
            let known = answered(&[Resent::Done, Resent::Already]) == self.answers.len();
            holds("I15: an edit that nothing met is known to each who asks", self.other != Other::Nothing || known);
        }
        match (self.other, self.took) {
            (Other::Nothing, _) => holds("I1: a letter that nobody touched is changed", gone && (moves || done)),
            (Other::Cancels, _) => holds("I3: a cancel is not overtaken", here.is_none()),
            (Other::Purges, Took::Yes) => holds("I3: a purge is not overtaken", here.is_none() && !done),
            (Other::Replaces, Took::Yes) => {
                holds("I5: what replaced a letter stays", lives(NEW));
                holds("I18: what moved is remembered", !moves || !done);
            }
            (Other::Redrives, Took::Yes) => {
                holds("I1: a redriven letter lives, and is no other", lives(FIRST) && !done)
            }
            (Other::Kills, Took::Yes) => holds("I1: a letter that died again is another", is(FIRST) && !done),
            (Other::Purges | Other::Redrives | Other::Kills, Took::No) => holds("I4: it was there", gone && did),
            (Other::Replaces, Took::No) => holds("I4: it was there", moves && gone && did),
            (Other::Purges, Took::Unsure) => holds("I1: purged or changed", here.is_none() || gone && did),
            (Other::Redrives | Other::Kills, Took::Unsure) => holds("I1: one of both", is(FIRST) || gone && did),
            (Other::Replaces, Took::Unsure) => unreachable!("an enqueue is known by its nonce"),
        }
    }
}
