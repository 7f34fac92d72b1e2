//! Listens, serves connections, and ends when told: open requests are answered first.

use std::io;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::app::{HttpParts, router};

/// Connections open at once; more wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 8192;

/// A client that does not finish a request's head in so long is let go.
const HEAD_READ_MAX: Duration = Duration::from_secs(30);

/// After the end was told, open requests have so long.
const CLOSE_MAX: Duration = Duration::from_secs(15);

/// Pause after the system refused a connection (no file descriptor left, most likely).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the API on `listener` until `shutdown`, then answers what is open, for at most 15 s.
///
/// # Errors
///
/// None after it has begun; the signature leaves room for listeners that break.
pub async fn serve(listener: TcpListener, parts: HttpParts, shutdown: CancellationToken) -> io::Result<()> {
    let draining = parts.draining.clone();
    let service = TowerToHyperService::new(router(parts));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_READ_MAX);
    builder.http2().timer(TokioTimer::new());
    let room = std::sync::Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    let open = GracefulShutdown::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = async {
                let place = room.clone().acquire_owned().await.expect("never closed");
                listener.accept().await.map(|(stream, _)| (stream, place))
            } => accepted,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted, going on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let connection = builder.serve_connection(TokioIo::new(stream), service.clone()).into_owned();
        let connection = open.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    // Claims that wait would hold the door open.
    draining.cancel();
    if tokio::time::timeout(CLOSE_MAX, open.shutdown()).await.is_err() {
        warn!("requests are still open, leaving them");
    }
    Ok(())
}
