//! One request on its way through writer and syncer, whatever it asks.

use duetime_core::StoreError;
use tokio::sync::oneshot;

use crate::fault::Fault;
use crate::write_context::WriteContext;

/// When a request is answered, and in which transaction it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// New messages: answered once on the disk, and refused while space is short.
    NewMessages,
    /// Answered once on the disk.
    Synced,
    /// Answered once committed. A power loss may undo it, a killed process does not.
    Committed,
    /// Makes its own transaction; answered once on the disk.
    OwnTransaction,
}

impl CommitMode {
    /// Whether success shows that the database can be written.
    pub fn writes(self) -> bool {
        self != Self::Committed
    }
}

/// A request, whatever it asks.
pub trait Job: Send {
    /// When it is answered.
    fn mode(&self) -> CommitMode;
    /// Messages and bytes it writes, about.
    fn size(&self) -> (usize, usize);
    /// Does it and keeps the answer. May be called again after a rollback.
    fn run(&mut self, ctx: &mut WriteContext) -> rusqlite::Result<()>;
    /// Gives the kept answer to whoever asked.
    fn answer(self: Box<Self>);
    /// Says why there is no answer.
    fn refuse(self: Box<Self>, error: StoreError);
    /// What it does, for an error.
    fn doing(&self) -> &'static str;
}

/// A [`Job`] made of a function.
pub struct Task<A, F> {
    pub mode: CommitMode,
    pub size: (usize, usize),
    pub doing: &'static str,
    pub act: F,
    pub kept: Option<Result<A, StoreError>>,
    pub reply: oneshot::Sender<Result<A, StoreError>>,
}

impl<A, F> Job for Task<A, F>
where
    A: Send,
    F: FnMut(&mut WriteContext) -> Result<A, Fault> + Send,
{
    fn mode(&self) -> CommitMode {
        self.mode
    }

    fn size(&self) -> (usize, usize) {
        self.size
    }

    fn run(&mut self, ctx: &mut WriteContext) -> rusqlite::Result<()> {
        self.kept = Some(match (self.act)(ctx) {
            Ok(answer) => Ok(answer),
            Err(Fault::Sql(error)) => return Err(error),
            Err(fault) => Err(fault.into_store_error(self.doing, &ctx.folder)),
        });
        Ok(())
    }

    fn answer(self: Box<Self>) {
        let kept = self.kept.expect("a job is run before it is answered");
        // Whoever asked may have gone away.
        let _ = self.reply.send(kept);
    }

    fn refuse(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send(Err(error));
    }

    fn doing(&self) -> &'static str {
        self.doing
    }
}

/// Asks nothing: it makes the writer look around.
pub struct Nudge;

impl Job for Nudge {
    fn mode(&self) -> CommitMode {
        CommitMode::Committed
    }

    fn size(&self) -> (usize, usize) {
        (0, 0)
    }

    fn run(&mut self, _: &mut WriteContext) -> rusqlite::Result<()> {
        Ok(())
    }

    fn answer(self: Box<Self>) {}

    fn refuse(self: Box<Self>, _: StoreError) {}

    fn doing(&self) -> &'static str {
        "look around"
    }
}
