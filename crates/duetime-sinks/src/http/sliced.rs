//! A connection on which a fast sender does not keep the thread: after some bytes, other work has its turn.
//!
//! What reads a connection goes on for as long as there is more, and a target decides how much that is and how much work it
//! makes: 4 KiB can be hundreds of interim answers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

use super::guard::GuardedResolver;

/// What is read before other work has its turn.
const SLICE_BYTES: usize = 16 << 10;

/// See the module.
pub(super) struct Sliced {
    stream: TcpStream,
    /// Of the present slice.
    left: usize,
}

impl Sliced {
    fn new(stream: TcpStream) -> Self {
        Self { stream, left: SLICE_BYTES }
    }
}

impl AsyncRead for Sliced {
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
        this.left = this.left.saturating_sub(buf.filled().len() - before);
        Poll::Ready(read)
    }
}

impl AsyncWrite for Sliced {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connection for Sliced {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

/// Connects, and slices what is read.
#[derive(Clone)]
pub(super) struct SlicedConnector(pub HttpConnector<GuardedResolver>);

impl Service<Uri> for SlicedConnector {
    type Response = TokioIo<Sliced>;
    type Error = <HttpConnector<GuardedResolver> as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.0.poll_ready(cx))?;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = self.0.call(to);
        async move { Ok(TokioIo::new(Sliced::new(connecting.await?.into_inner()))) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn other_work_has_its_turn_although_there_is_more_to_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut target = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut connection = Sliced::new(listener.accept().await.unwrap().0);
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
}
