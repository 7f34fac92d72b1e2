//! Clients that give a request up, ask another node, and count on it that nothing more comes of the first.
//!
//! What was sent to a master when the request ended may be carried out for as long as one answer is waited for. Then
//! the client asks another node for something else, is answered, and that is what holds.

use std::time::Duration;

use duetime_core::store::{Edit, Enqueue};
use duetime_core::{Clock as _, Due, Headers, MessageId, Nonce, OnConflict};
use duetime_request::RequestDeadline;
use duetime_testkit::history::{Change, FaultKind, What, digest};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::clients::{Client, Door, FAR};
use crate::mutation::Mutation;
use crate::world::RESPONSE_TIMEOUT;

/// Longest time that a request is waited for.
const GIVEN_UP_MS_MAX: u64 = 3_000;
/// What was sent is over then.
const OVER_AFTER: Duration = RESPONSE_TIMEOUT.saturating_add(Duration::from_secs(1));
/// A node that is stopped goes on so much later at most.
const STOPPED_MS_MAX: u64 = 3_000;
/// Longest wait between two of them.
const PAUSE_MS_MAX: u64 = 1_500;

impl Client {
    /// Requests that are given up, on so many ids. `stem` is of this client alone.
    pub async fn give_up(self, stem: String, ids: u64) {
        for n in 0..ids {
            let id = MessageId::new(&format!("{stem}-{n}")).expect("a good id");
            let kind = self.dice().below(3);
            if kind > 0 {
                self.enqueue(&id, FAR, false, "first", OnConflict::Reject).await;
            }
            let door = self.door().await;
            let stopped = (n == 0 && self.shared.stops).then(|| self.stop(door));
            match kind {
                0 | 1 => self.ask_for_another_content(&id, door).await,
                _ => self.ask_for_a_cancel(&id, door).await,
            }
            sleep(OVER_AFTER).await;
            let holds = if kind < 2 && self.dice().permille(600) {
                self.edit_all(&[(Change::Cancel, Edit::Cancel(id.clone()))]).await;
                None
            } else {
                let text = "third";
                self.enqueue(&id, FAR, false, text, OnConflict::Replace).await;
                Some(digest(text.as_bytes()))
            };
            self.shared.holds.lock().insert(id, holds);
            if let Some(until) = stopped {
                sleep_until(until).await;
                self.shared.history.fault_ends(FaultKind::NodeStalled);
            }
            self.dice().pause(PAUSE_MS_MAX).await;
        }
    }

    /// Stops a node for longer than its client waits, and answers until when.
    fn stop(&self, door: &Door) -> Instant {
        self.shared.history.fault_begins(FaultKind::NodeStalled);
        let after = Duration::from_millis(GIVEN_UP_MS_MAX + self.dice().below(STOPPED_MS_MAX));
        let until = Instant::now() + OVER_AFTER + after;
        door.net.stop_until(until);
        until
    }

    async fn ask_for_another_content(&self, id: &MessageId, door: &Door) {
        let text = "second";
        let due_at = self.shared.clock.now().plus(FAR);
        let change = Change::Enqueue { due_at_ms: due_at.as_millis(), payload: digest(text.as_bytes()) };
        let (headers, payload) = (Headers::default(), text.to_owned().into());
        let (on_conflict, nonce) = (OnConflict::Replace, Nonce(self.dice().next()));
        let item = Enqueue { id: id.clone(), due: Due::At(due_at), headers, payload, on_conflict, nonce };
        self.ask_once(id, change, async { door.router.enqueue(&self.topic, vec![item]).await.len() }).await;
    }

    async fn ask_for_a_cancel(&self, id: &MessageId, door: &Door) {
        let edit = Edit::Cancel(id.clone());
        let asked = async { door.router.edit(&self.topic, vec![edit]).await.len() };
        self.ask_once(id, Change::Cancel, asked).await;
    }

    /// One request to one node, whatever comes of it.
    async fn ask_once(&self, id: &MessageId, change: Change, asked: impl Future<Output = usize>) {
        self.note(id, What::Invoked(change));
        let limit = Duration::from_millis(1 + self.dice().below(GIVEN_UP_MS_MAX));
        // Who gave it up does not look at the answer, and so does not say that it has one.
        if self.shared.left_out.is_some_and(Mutation::is_requests_without_end) {
            let _ = timeout(limit, asked).await;
        } else {
            let _ = timeout(limit, RequestDeadline::after(limit).scope(asked)).await;
        }
        self.note(id, What::Unanswered);
    }
}
