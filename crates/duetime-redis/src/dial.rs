//! How a connection to a server is made: by the client of the `redis` crate, or over a stream of bytes that somebody
//! else brings.
//!
//! Everything above a connection is the same for both: fences, clocks, repetitions, pub/sub.

use std::fmt;
use std::io;
use std::sync::Arc;

use duetime_settings::ClientTls;
use futures::future::BoxFuture;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsCertificates};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

/// A stream of bytes to a server and back.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Connects to servers in place of TCP and TLS: a simulated network, a proxy in the same process, a recorder.
pub trait Dial: fmt::Debug + Send + Sync {
    /// A stream to the server at `host:port`. A refusal is [`io::ErrorKind::ConnectionRefused`], as over TCP: nobody
    /// listens there.
    fn dial(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>>;
}

/// One address of a server, and how to connect to it. The login is in the client.
#[derive(Clone)]
pub(crate) struct Endpoint {
    client: Client,
    /// Files of certificates, if there are any: a connection is made with what was read of them last.
    tls: Option<ClientTls>,
    dial: Option<Arc<dyn Dial>>,
}

/// Ends the task that drives a connection over a dialled stream; the client does that for its own.
pub(crate) struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A client with what the files of `tls` held when they were read last.
pub(crate) fn client_of(info: ConnectionInfo, tls: &ClientTls) -> Result<Client, String> {
    let pem = tls.read().map_err(|fault| format!("tls: {fault}"))?;
    let client_tls = pem.identity.clone();
    let client_tls = client_tls.map(|(client_cert, client_key)| redis::ClientTlsConfig { client_cert, client_key });
    let certificates = TlsCertificates { client_tls, root_cert: pem.ca.clone() };
    Client::build_with_tls(info, certificates).map_err(|error| error.to_string())
}

impl Endpoint {
    pub(crate) fn new(client: Client, tls: Option<ClientTls>, dial: Option<Arc<dyn Dial>>) -> Self {
        Self { client, tls, dial }
    }

    /// The client for a new connection.
    fn client(&self) -> RedisResult<Client> {
        let Some(tls) = &self.tls else { return Ok(self.client.clone()) };
        let made = client_of(self.client.get_connection_info().clone(), tls);
        made.map_err(|fault| io::Error::other(fault).into())
    }

    async fn stream(&self, dial: &dyn Dial) -> io::Result<Box<dyn ByteStream>> {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => dial.dial(host, *port).await,
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "only host:port can be dialled")),
        }
    }

    /// A new connection, and what keeps it alive.
    pub(crate) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<(MultiplexedConnection, Option<Driver>)> {
        let Some(dial) = &self.dial else {
            return Ok((self.client()?.get_multiplexed_async_connection_with_config(config).await?, None));
        };
        let stream = self.stream(&**dial).await?;
        let login = self.client.get_connection_info().redis_settings();
        let (connection, driver) = MultiplexedConnection::new_with_config(login, stream, config.clone()).await?;
        Ok((connection, Some(Driver(tokio::spawn(driver).abort_handle()))))
    }

    /// A new connection for subscriptions.
    pub(crate) async fn pubsub(&self) -> RedisResult<PubSub> {
        let Some(dial) = &self.dial else { return self.client()?.get_async_pubsub().await };
        let stream = self.stream(&**dial).await?;
        PubSub::new(self.client.get_connection_info().redis_settings(), stream).await
    }
}
