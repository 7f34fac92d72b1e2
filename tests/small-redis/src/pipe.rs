//! One connection: bytes that are on their way to a server and back, and the task that serves them.
//!
//! What was sent arrives in its order, also after its sender closed the connection; a [`Way`] says when, and whether.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::reply::{Reply, read_command};
use crate::server::{Outcome, Server};

/// What becomes of some bytes.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// They arrive then, or behind what was sent before them.
    Arrives(Instant),
    /// They are lost, and the connection breaks for both ends.
    Breaks,
}

/// The way between one client and one server.
pub trait Way: Debug + Send + Sync {
    /// What becomes of what is sent to the server now.
    fn there(&self, bytes: &[u8]) -> Fate;
    /// What becomes of what is sent to the client now.
    fn back(&self, bytes: &[u8]) -> Fate;
}

/// A way that takes no time.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

impl Way for Direct {
    fn there(&self, _: &[u8]) -> Fate {
        Fate::Arrives(Instant::now())
    }

    fn back(&self, _: &[u8]) -> Fate {
        Fate::Arrives(Instant::now())
    }
}

#[derive(Debug, Default)]
struct Lane {
    under_way: VecDeque<(Instant, Bytes)>,
    closed: bool,
}

impl Lane {
    fn push(&mut self, at: Instant, bytes: Bytes) {
        let at = self.under_way.back().map_or(at, |(last, _)| at.max(*last));
        self.under_way.push_back((at, bytes));
    }
}

#[derive(Debug, Default)]
struct Lanes {
    there: Lane,
    back: Lane,
    broken: bool,
    reader: Option<Waker>,
}

/// One connection, between its client's end and its server's.
#[derive(Debug)]
pub(crate) struct Pipe {
    lanes: Mutex<Lanes>,
    arrived: Notify,
    way: Arc<dyn Way>,
}

impl Pipe {
    /// Sends to the client.
    pub(crate) fn answer(&self, bytes: Vec<u8>) {
        let fate = self.way.back(&bytes);
        let mut lanes = self.lanes.lock();
        match fate {
            Fate::Arrives(at) => lanes.back.push(at, bytes.into()),
            Fate::Breaks => lanes.broken = true,
        }
        if let Some(reader) = lanes.reader.take() {
            reader.wake();
        }
        drop(lanes);
        self.arrived.notify_one();
    }

    /// Closes the server's end.
    pub(crate) fn close(&self) {
        let mut lanes = self.lanes.lock();
        lanes.back.closed = true;
        if let Some(reader) = lanes.reader.take() {
            reader.wake();
        }
        drop(lanes);
        self.arrived.notify_one();
    }

    /// The next that arrives; none: nothing more does.
    async fn next(&self) -> Option<Bytes> {
        loop {
            let first = {
                let mut lanes = self.lanes.lock();
                match lanes.there.under_way.front().map(|(at, _)| *at) {
                    Some(at) if at <= Instant::now() => {
                        return lanes.there.under_way.pop_front().map(|(_, bytes)| bytes);
                    }
                    // What is lost on its way is no more than the rest of it.
                    None if lanes.there.closed || lanes.broken || lanes.back.closed => return None,
                    first => first,
                }
            };
            match first {
                Some(at) => sleep_until(at).await,
                None => self.arrived.notified().await,
            }
        }
    }
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct Socket {
    pipe: Arc<Pipe>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// Connects to a server, which serves the connection in a task of its own.
pub fn connect(server: &Arc<Server>, from: &str, way: Arc<dyn Way>) -> io::Result<Socket> {
    let pipe = Arc::new(Pipe { lanes: Mutex::default(), arrived: Notify::new(), way });
    let client = server.accept(from, &pipe).ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused))?;
    tokio::spawn(serve(server.clone(), client, pipe.clone()));
    Ok(Socket { pipe, timer: None })
}

async fn serve(server: Arc<Server>, client: u64, pipe: Arc<Pipe>) {
    let mut buffer = BytesMut::new();
    'open: while let Some(bytes) = pipe.next().await {
        buffer.extend_from_slice(&bytes);
        let mut out = Vec::new();
        loop {
            if !server.is_open(client) {
                break 'open;
            }
            let args = match read_command(&mut buffer) {
                Ok(Some(args)) => args,
                Ok(None) => break,
                Err(text) => {
                    Reply::Error(text).write(&mut out);
                    pipe.answer(out);
                    break 'open;
                }
            };
            match server.carry_out(client, &args) {
                Outcome::Answers(replies) => replies.iter().for_each(|reply| reply.write(&mut out)),
                Outcome::Waits(wait) => {
                    if !out.is_empty() {
                        pipe.answer(std::mem::take(&mut out));
                    }
                    match server.waited_for(client, wait).await {
                        Some(reply) => reply.write(&mut out),
                        None => break 'open,
                    }
                }
            }
        }
        if !out.is_empty() {
            pipe.answer(out);
        }
    }
    server.leaves(client);
    pipe.close();
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let fate = self.pipe.way.there(bytes);
        let mut lanes = self.pipe.lanes.lock();
        if lanes.broken || lanes.back.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match fate {
            Fate::Arrives(at) => lanes.there.push(at, Bytes::copy_from_slice(bytes)),
            Fate::Breaks => lanes.broken = true,
        }
        if lanes.broken
            && let Some(reader) = lanes.reader.take()
        {
            reader.wake();
        }
        drop(lanes);
        self.pipe.arrived.notify_one();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.lanes.lock().there.closed = true;
        self.pipe.arrived.notify_one();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let pipe = self.pipe.clone();
        loop {
            let at = {
                let mut lanes = pipe.lanes.lock();
                if lanes.broken {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                let closed = lanes.back.closed;
                match lanes.back.under_way.front_mut() {
                    Some((at, bytes)) if *at <= Instant::now() => {
                        let count = bytes.len().min(into.remaining());
                        into.put_slice(&bytes[..count]);
                        bytes.advance(count);
                        if bytes.is_empty() {
                            lanes.back.under_way.pop_front();
                        }
                        return Poll::Ready(Ok(()));
                    }
                    Some((at, _)) => *at,
                    None if closed => return Poll::Ready(Ok(())),
                    None => {
                        lanes.reader = Some(context.waker().clone());
                        return Poll::Pending;
                    }
                }
            };
            pipe.lanes.lock().reader = Some(context.waker().clone());
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.pipe.lanes.lock().there.closed = true;
        self.pipe.arrived.notify_one();
    }
}
