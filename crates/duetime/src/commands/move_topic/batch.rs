//! One batch on its way: copied aside, taken out of the source, scheduled at the destination, its copies removed.
//!
//! Each step is repeated as it is when its answer is lost, and when the whole move is: a copy that is there is a
//! `duplicate`, what was taken out is `moved`, what is scheduled is a `duplicate`. So it does not matter at which of them a
//! mover ends, nor what another one does at the same time.

use anyhow::bail;
use duetime_client::{Answer, Became, ClientError, ItemProblem, NewMessage, Outcome, Placed};
use duetime_core::limits::ID_BYTES_MAX;
use duetime_core::units::check_due_at;
use duetime_core::{Clock as _, Due, Headers, MessageId, OnConflict, Repeat, Version};
use futures::{StreamExt as _, TryStreamExt as _};

use super::side::{ASKED, NO_TOPIC, Side, Tally, is_no_topic};
use crate::clock::SystemClock;
use crate::commands::import::line::beginning;

/// The header of a copy whose id has no room in that of the copy.
const ID_HEADER: &str = "duetime-move-id";
/// The header of a copy with the time at which it was made, milliseconds since the Unix epoch.
const COPIED_HEADER: &str = "duetime-move-at";
/// How often the topic of copies is made again for one batch.
const MADE_AGAIN_MAX: u32 = 10;

/// A message that is to be moved.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub id: String,
    /// What the source had as it was read.
    pub version: Version,
    pub message: NewMessage,
    /// When its copy was made, as that says.
    pub copied_at: Option<i64>,
    /// When the source gave it away, once it has.
    pub given_at: Option<i64>,
}

impl Pending {
    /// What falls due before `due_from` stays: its sink was down when it was due, and it is tried again where it is.
    pub fn new(message: NewMessage, version: Version, due_from: i64) -> Option<Self> {
        let is_later = matches!(message.due, Some(Due::At(at)) if at.as_millis() >= due_from);
        let id = message.id.clone().filter(|_| is_later)?;
        let message = NewMessage { on_conflict: OnConflict::Return, ..message };
        Some(Self { id, version, message, copied_at: None, given_at: None })
    }

    /// What the destination would refuse, found before the source gives it away.
    pub fn check(&self) -> Result<(), String> {
        let id = MessageId::new(&self.id).map_err(|error| error.to_string())?;
        id.check_new().map_err(|error| error.to_string())?;
        if let Some(Due::At(at)) = self.message.due {
            check_due_at(at, SystemClock.now())?;
        }
        Repeat::check(&Headers::new(self.copy().headers)?)
    }

    /// The id of its copy: of this version, so that none takes the place of another.
    pub fn copy_id(&self) -> String {
        let whole = format!("{}:{}", self.version, self.id);
        if whole.len() <= ID_BYTES_MAX { whole } else { self.version.to_string() }
    }

    fn copy(&self) -> NewMessage {
        let id = self.copy_id();
        let mut copy = self.message.clone();
        copy.headers.push((COPIED_HEADER.to_owned(), SystemClock.now().as_millis().to_string()));
        if !id.contains(':') {
            copy.headers.push((ID_HEADER.to_owned(), self.id.clone()));
        }
        copy.id(id)
    }

    /// The message that a copy is of.
    pub fn of_copy(mut copy: NewMessage) -> Option<Self> {
        let name = copy.id.take()?;
        let (version, id) = match name.split_once(':') {
            Some((version, id)) => (version.parse().ok()?, id.to_owned()),
            None => {
                let at = copy.headers.iter().rposition(|(name, _)| name == ID_HEADER)?;
                (name.parse().ok()?, copy.headers.remove(at).1)
            }
        };
        let at = copy.headers.iter().rposition(|(name, _)| name == COPIED_HEADER);
        let copied_at = at.and_then(|at| copy.headers.remove(at).1.parse().ok());
        let message = NewMessage { id: Some(id.clone()), on_conflict: OnConflict::Return, ..copy };
        Some(Self { id, version, message, copied_at, given_at: None })
    }
}

/// Cuts messages into batches, in their order.
pub(super) fn cut(messages: Vec<Pending>, items: usize, bytes_max: usize) -> Vec<Vec<Pending>> {
    let (mut batches, mut one, mut bytes) = (Vec::new(), Vec::new(), 0);
    for message in messages {
        let more = message.message.payload.len();
        if !one.is_empty() && (one.len() == items.max(1) || bytes + more > bytes_max) {
            batches.push(std::mem::take(&mut one));
            bytes = 0;
        }
        bytes += more;
        one.push(message);
    }
    if !one.is_empty() {
        batches.push(one);
    }
    batches
}

/// What became of a batch.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub tally: Tally,
    pub refusals: Vec<String>,
}

impl Done {
    fn refuse(&mut self, one: &Pending, why: &str) {
        self.tally.refused += 1;
        self.refusals.push(format!("{}: {why}; it stays at the source", beginning(&one.id)));
    }
}

/// What the source says of a message that it was to give away.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// It lives at the destination, from this moment on.
    Moved {
        at: i64,
    },
    /// It is there, in another version; or another version of it has moved. This copy is of no use.
    Changed,
    Cancelled,
    Delivered,
    /// The source does not know it.
    Unclear,
}

impl Given {
    /// What the source remembers of a message that is gone.
    pub fn of(became: Option<&Became>, version: Version) -> Self {
        let Some(became) = became else { return Self::Unclear };
        match became.outcome.as_str() {
            "moved" if became.version.as_deref() == Some(&version.to_string()) => Self::Moved { at: became.at },
            "moved" => Self::Changed,
            "delivered" => Self::Delivered,
            // A dead letter that was purged was cancelled by hand.
            _ => Self::Cancelled,
        }
    }
}

/// Whether the destination knows an id.
enum Look {
    Unknown,
    /// Of another message, and how.
    Known(String),
    /// Of this very message, which the source does not have any more as it was read: another move was faster.
    Gone,
}

/// One batch, and between whom.
pub(super) struct Batch {
    pub from: Side,
    pub to: Side,
    pub staged: Side,
    /// The longest payload of the source, which copies may have.
    pub max_payload: u64,
}

fn refused(side: &str, problem: &ItemProblem) -> anyhow::Error {
    anyhow::anyhow!("the {side} refuses a message: {} ({})", problem.detail, problem.code)
}

impl Batch {
    /// Moves messages; what was done before an error too, which leaves some with a copy, and the next move goes on
    /// with those.
    pub async fn run(self, messages: Vec<Pending>) -> (Done, anyhow::Result<()>) {
        let mut done = Done::default();
        let ended = self.steps(messages, &mut done).await;
        (done, ended)
    }

    async fn steps(&self, messages: Vec<Pending>, done: &mut Done) -> anyhow::Result<()> {
        let messages = self.leave_known(messages, done).await?;
        let staged = self.stage(messages, done).await?;
        if staged.is_empty() {
            return Ok(());
        }
        let given = self.take(&staged).await?;
        let (mut moved, mut over) = (Vec::new(), Vec::new());
        for (one, given) in staged.into_iter().zip(given) {
            match given {
                Given::Moved { at } => moved.push(Pending { given_at: Some(at), ..one }),
                // A sending of this very step that is on its way may still find the version, if it is given back its
                // time: the copy stays until the source is done with it.
                Given::Changed => done.tally.changed += 1,
                Given::Unclear => done.tally.unclear += 1,
                Given::Cancelled => {
                    done.tally.cancelled += 1;
                    over.push(one);
                }
                Given::Delivered => {
                    done.tally.delivered += 1;
                    over.push(one);
                }
            }
        }
        over.extend(self.place(moved, done).await?);
        self.unstage(&over).await
    }

    /// Leaves at the source what the destination would refuse; what is left of the messages.
    ///
    /// Once the source has given a message away, what the destination remembers of its id counts as of that message. So what
    /// it remembers now is of an earlier one. A cancel that comes there later is of this one: the source gives away only what
    /// it had before this look.
    async fn leave_known(&self, messages: Vec<Pending>, done: &mut Done) -> anyhow::Result<Vec<Pending>> {
        let mut fit = Vec::with_capacity(messages.len());
        for one in messages {
            match one.check() {
                Ok(()) => fit.push(one),
                Err(why) => done.refuse(&one, &why),
            }
        }
        let asked = futures::stream::iter(fit)
            .map(|one| async { self.look(&one).await.map(|look| (one, look)) })
            .buffered(ASKED);
        let looks: Vec<_> = asked.try_collect().await?;
        let mut unknown = Vec::with_capacity(looks.len());
        for (one, look) in looks {
            match look {
                Look::Unknown => unknown.push(one),
                Look::Gone => {}
                Look::Known(how) => {
                    done.refuse(&one, &format!("the destination knows this id of another message ({how})"));
                }
            }
        }
        Ok(unknown)
    }

    /// Looks whether the destination knows the id of a message that the source has.
    async fn look(&self, one: &Pending) -> Result<Look, ClientError> {
        let how = match self.to.message(&one.id).await? {
            Ok(_) => "it is there already".to_owned(),
            Err(Some(became)) if became.outcome != "moved" => format!("it was {}", became.outcome.replace('_', " ")),
            Err(_) => return Ok(Look::Unknown),
        };
        let here = self.from.message(&one.id).await?;
        let is_here = here.is_ok_and(|here| here.version.is_some_and(|version| version == one.version.to_string()));
        Ok(if is_here { Look::Known(how) } else { Look::Gone })
    }

    /// Copies messages aside; those of which a copy is there.
    async fn stage(&self, messages: Vec<Pending>, done: &mut Done) -> anyhow::Result<Vec<Pending>> {
        let copies: Vec<NewMessage> = messages.iter().map(Pending::copy).collect();
        let answers = self.enqueue_copies(&copies).await?;
        let mut staged = Vec::with_capacity(messages.len());
        for (one, answer) in messages.into_iter().zip(answers) {
            match answer {
                Ok(placed) if placed.became.is_none() => staged.push(one),
                Ok(_) => {
                    bail!("the topic {} remembers what its copies became; set its remember to 0s", self.staged.topic)
                }
                Err(problem) => done.refuse(&one, &format!("{} ({})", problem.detail, problem.code)),
            }
        }
        Ok(staged)
    }

    /// Enqueues copies. Another move that ends deletes the topic of copies where it has none, which is made again then.
    async fn enqueue_copies(&self, copies: &[NewMessage]) -> anyhow::Result<Vec<Result<Placed, ItemProblem>>> {
        for _ in 0..MADE_AGAIN_MAX {
            let answers = match self.staged.client.enqueue_many(&self.staged.topic, copies).await {
                Err(error) if is_no_topic(&error) => None,
                answers => Some(answers?.into_iter().map(Answer::into_result).collect::<Vec<_>>()),
            };
            let has_none =
                |answer: &Result<Placed, ItemProblem>| matches!(answer, Err(problem) if problem.code == NO_TOPIC);
            // Those that were taken are duplicates the next time, or were in the topic that is gone.
            if let Some(answers) = answers.filter(|answers| !answers.iter().any(has_none)) {
                return Ok(answers);
            }
            self.staged.make_staged(self.max_payload).await?;
        }
        bail!(
            "the topic {} at the destination was deleted {MADE_AGAIN_MAX} times while copies were put there; see who \
             does that, and again",
            self.staged.topic
        )
    }

    async fn enqueue(&self, side: &Side, messages: &[NewMessage]) -> anyhow::Result<Vec<Result<Placed, ItemProblem>>> {
        let answers = side.client.enqueue_many(&side.topic, messages).await?;
        Ok(answers.into_iter().map(Answer::into_result).collect())
    }

    /// Has the source give messages away, each if it is what was copied.
    async fn take(&self, messages: &[Pending]) -> anyhow::Result<Vec<Given>> {
        let versions: Vec<String> = messages.iter().map(|one| one.version.to_string()).collect();
        let ids: Vec<&str> = messages.iter().map(|one| one.id.as_str()).collect();
        let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
        let asked_at = SystemClock.now().as_millis();
        let answers = self.from.client.take_moved(&self.from.topic, &ids, &versions).await?;
        let given = |(answer, one): (Answer<Outcome>, &Pending)| {
            let answer = answer.into_result().map_err(|problem| refused("source", &problem))?;
            Ok(match answer.outcome.as_str() {
                "cancelled" if answer.became.is_none() => Given::Moved { at: asked_at },
                "changed" => Given::Changed,
                _ => Given::of(answer.became.as_ref(), one.version),
            })
        };
        answers.into_iter().zip(messages).map(given).collect()
    }

    /// Schedules what the source gave away; of which the copies are of no use any more. The destination refuses what it
    /// delivered or cancelled since, for as long as it remembers that: what was given away before then is not sent.
    pub async fn place(&self, mut moved: Vec<Pending>, done: &mut Done) -> anyhow::Result<Vec<Pending>> {
        let sent = moved.len();
        moved.retain(|one| one.given_at.is_some_and(|at| self.to.remembers_since(at)));
        done.tally.unclear += (sent - moved.len()) as u64;
        let messages: Vec<NewMessage> = moved.iter().map(|one| one.message.clone()).collect();
        let mut failed = None;
        for answer in self.enqueue(&self.to, &messages).await? {
            let placed = match answer {
                Ok(placed) => placed,
                // The copy stays, and the next move schedules it.
                Err(problem) => {
                    failed.get_or_insert_with(|| refused("destination", &problem));
                    continue;
                }
            };
            let became = placed.became.as_ref().map(|became| became.outcome.as_str());
            match (placed.outcome.as_str(), became) {
                ("cancelled_before", _) | (_, Some("cancelled" | "cancelled_in_flight")) => done.tally.cancelled += 1,
                (outcome, _) => {
                    done.tally.moved += 1;
                    done.tally.there_before += u64::from(outcome == "duplicate");
                }
            }
        }
        failed.map_or(Ok(moved), Err)
    }

    /// Removes the copies of what is settled.
    pub async fn unstage(&self, settled: &[Pending]) -> anyhow::Result<()> {
        let ids: Vec<String> = settled.iter().map(Pending::copy_id).collect();
        let answers = match self.staged.client.cancel_many(&self.staged.topic, &ids).await {
            // Another move that ended has removed them, and then the topic.
            Err(error) if is_no_topic(&error) => return Ok(()),
            answers => answers?,
        };
        for answer in answers {
            match answer.into_result() {
                Err(problem) if problem.code != NO_TOPIC => return Err(refused("destination", &problem)),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use duetime_core::Timestamp;

    use super::*;

    fn pending(id: &str) -> Pending {
        let version = "0000000000000007-1924992000000000".parse().unwrap();
        let mut message = NewMessage::new("pay").id(id).due(Due::At(Timestamp::from_millis(1_924_992_000_000)));
        message.headers = vec![("k".to_owned(), "v".to_owned())];
        Pending::new(message, version, 0).unwrap()
    }

    #[test]
    fn a_copy_says_which_message_and_which_version_it_is_of_however_long_the_id_is() {
        for id in ["order-1", "a:b", &"ж".repeat(ID_BYTES_MAX / 2)] {
            let one = pending(id);
            assert!(MessageId::new(&one.copy_id()).is_ok(), "{id}");
            let again = Pending::of_copy(one.copy()).unwrap();
            assert_eq!((again.id.as_str(), again.version), (id, one.version));
            assert_eq!(again.message.headers, one.message.headers);
        }
        let copied_at = Pending::of_copy(pending("a").copy()).unwrap().copied_at.unwrap();
        assert!((0..60_000).contains(&(SystemClock.now().as_millis() - copied_at)));
        assert!(Pending::of_copy(NewMessage::new("x").id("another")).is_none());
    }

    #[test]
    fn what_the_source_remembers_decides_about_a_copy() {
        let version = pending("a").version;
        let became = |outcome: &str, version: Option<String>| {
            Some(Became { outcome: outcome.to_owned(), version, ..Became::default() })
        };
        for (became, given) in [
            (became("moved", Some(version.to_string())), Given::Moved { at: 0 }),
            (became("moved", Some("0000000000000008-1924992000000000".to_owned())), Given::Changed),
            (became("delivered", None), Given::Delivered),
            (became("cancelled", None), Given::Cancelled),
            (became("cancelled_before", None), Given::Cancelled),
            (None, Given::Unclear),
        ] {
            assert_eq!(Given::of(became.as_ref(), version), given, "{became:?}");
        }
    }

    #[test]
    fn batches_are_bounded_by_messages_and_by_bytes() {
        let of = |count: usize, items: usize, bytes: usize| -> Vec<usize> {
            let messages = (0..count).map(|n| pending(&n.to_string())).collect();
            cut(messages, items, bytes).iter().map(Vec::len).collect()
        };
        assert_eq!(of(5, 2, 100), [2, 2, 1]);
        assert_eq!(of(5, 10, 6), [2, 2, 1]);
        assert_eq!(of(2, 0, 1), [1, 1]);
    }
}
