//! A connection on which a fast sender does not keep the thread: after some bytes, other work has its turn, and over
//! HTTP/2 it ends when the target sends more frames than it may. And one that nothing is written to once the process has
//! stalled: what was about to be sent before may be somebody else's since.
//!
//! What reads a connection goes on for as long as there is more, and a target decides how much that is and how much work it
//! makes: 4 KiB can be hundreds of interim answers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use duetime_request::Generation;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use super::frames::FrameBudget;

/// What is read before other work has its turn.
const SLICE_BYTES: usize = 16 << 10;
/// Of an error: nothing at all was written to the connection. The system says so of none that was made.
pub(super) const UNWRITTEN: io::ErrorKind = io::ErrorKind::AddrNotAvailable;

/// See the module.
pub(super) struct Sliced<S> {
    stream: S,
    /// Of the present slice.
    left: usize,
    /// Over HTTP/2.
    budget: Option<FrameBudget>,
    /// In which requests may be written to it.
    generation: Generation,
    is_written: bool,
    /// Something was written that TLS may still hold.
    is_unflushed: bool,
    /// Counts the connection as long as it is open.
    _permit: Option<OwnedSemaphorePermit>,
}

impl<S: Connection> Sliced<S> {
    /// `stream` as HTTP has it, without TLS, for requests of `generation`; so many are in flight at most.
    pub(super) fn new(
        stream: S,
        requests_max: usize,
        generation: Generation,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let budget = stream.connected().is_negotiated_h2().then(|| FrameBudget::new(requests_max));
        Self { stream, left: SLICE_BYTES, budget, generation, is_written: false, is_unflushed: false, _permit: permit }
    }
}

impl<S> Sliced<S> {
    fn check_generation(&self) -> io::Result<()> {
        if self.generation.has_ended() {
            let kind = if self.is_written { io::ErrorKind::ConnectionAborted } else { UNWRITTEN };
            return Err(io::Error::new(kind, "this process stalled before it was sent"));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Sliced<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.left == 0 {
            this.left = SLICE_BYTES;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buf) else {
            this.left = SLICE_BYTES;
            return Poll::Pending;
        };
        let bytes = &buf.filled()[before..];
        this.left = this.left.saturating_sub(bytes.len());
        if this.budget.as_mut().is_some_and(|budget| !budget.received(bytes)) {
            let text = "it sent more frames of HTTP/2 than its answers need (interim answers, PING and the like)";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Sliced<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Where nothing is left to be sent, the answer of a request from before a stall is read on.
        if this.is_unflushed {
            this.check_generation()?;
        }
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.is_unflushed &= !matches!(flushed, Poll::Ready(Ok(())));
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check_generation()?;
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bytes);
        // One that cannot be written at once may have begun all the same.
        this.is_written = true;
        this.is_unflushed |= matches!(written, Poll::Ready(Ok(_)));
        if let (Poll::Ready(Ok(written)), Some(budget)) = (&written, &mut this.budget) {
            let mut left = *written;
            for piece in bytes {
                let taken = left.min(piece.len());
                budget.sent(&piece[..taken]);
                left -= taken;
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl<S: Connection> Connection for Sliced<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn other_work_has_its_turn_although_there_is_more_to_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut target = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut connection = Sliced::new(listener.accept().await.unwrap().0, 1, Generation::current(), None);
        target.write_all(&[b'x'; 3 * SLICE_BYTES]).await.unwrap();
        let (mut piece, mut read, mut turns) = ([0; 1024], 0, 0);
        while read < 3 * SLICE_BYTES {
            let began = read;
            while let Some(got) = connection.read(&mut piece).now_or_never() {
                read += got.unwrap();
            }
            assert!(read - began <= SLICE_BYTES, "{}", read - began);
            turns += 1;
            tokio::task::yield_now().await;
        }
        assert!(turns >= 3, "{turns}");
    }

    #[tokio::test]
    async fn nothing_is_written_to_a_connection_from_before_a_stall_and_an_answer_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut target = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let stream = listener.accept().await.unwrap().0;
        let mut connection = Sliced::new(stream, 1, Generation::that_has_ended(), None);
        assert_eq!(connection.write(b"late").await.unwrap_err().kind(), UNWRITTEN);
        connection.generation = Generation::current();
        connection.write_all(b"whole").await.unwrap();
        connection.flush().await.unwrap();
        connection.generation = Generation::that_has_ended();
        assert_eq!(connection.write(b"late").await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        connection.flush().await.unwrap();
        target.write_all(b"answer").await.unwrap();
        assert_eq!(connection.read(&mut [0; 8]).await.unwrap(), 6);
        // Of a request that TLS holds a part of.
        connection.is_unflushed = true;
        assert_eq!(connection.flush().await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        drop(connection);
        let mut sent = Vec::new();
        target.read_to_end(&mut sent).await.unwrap();
        assert_eq!(sent, b"whole");
    }
}
