//! One request on its way through writer and syncer, whatever it asks.

use duetime_core::StoreError;
use tokio::sync::oneshot;

use crate::fault::Fault;
use crate::writer::Desk;

/// How a request is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// New messages: refused when space is short; answered when on the disk.
    Enqueue,
    /// Answered when on the disk.
    Durable,
    /// Answered when committed. A power loss may undo it, a killed process not.
    Quick,
    /// Makes its own transaction; answered when on the disk.
    Alone,
}

/// A request of any kind.
pub trait Job: Send {
    /// How it is treated.
    fn kind(&self) -> Kind;
    /// Messages and bytes it writes, about.
    fn size(&self) -> (usize, usize);
    /// Does it and keeps the answer. May be called again after a rollback.
    fn run(&mut self, desk: &mut Desk) -> rusqlite::Result<()>;
    /// Gives the kept answer to whoever asked.
    fn answer(self: Box<Self>);
    /// Says why there is no answer.
    fn refuse(self: Box<Self>, error: StoreError);
    /// What it does, for an error.
    fn doing(&self) -> &'static str;
}

/// A [`Job`] made of a function.
pub struct Task<A, F> {
    pub kind: Kind,
    pub size: (usize, usize),
    pub doing: &'static str,
    pub act: F,
    pub kept: Option<Result<A, StoreError>>,
    pub reply: oneshot::Sender<Result<A, StoreError>>,
}

impl<A, F> Job for Task<A, F>
where
    A: Send,
    F: FnMut(&mut Desk) -> Result<A, Fault> + Send,
{
    fn kind(&self) -> Kind {
        self.kind
    }

    fn size(&self) -> (usize, usize) {
        self.size
    }

    fn run(&mut self, desk: &mut Desk) -> rusqlite::Result<()> {
        self.kept = Some(match (self.act)(desk) {
            Ok(answer) => Ok(answer),
            Err(Fault::Refused(error)) => Err(error),
            Err(Fault::Sql(error)) => return Err(error),
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
