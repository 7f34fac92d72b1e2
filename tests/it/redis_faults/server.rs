//! What tests ask a redis-server, in words.

use std::time::Duration;

use duetime_testkit::servers::{RedisOptions, RedisServer};

/// A server whose every write is on disk before it is answered, with these lines in its configuration.
pub async fn durable(lines: &[&str]) -> RedisServer {
    let lines = lines.iter().map(|line| (*line).to_owned()).collect();
    RedisServer::start_with(RedisOptions { append_only: true, lines, ..RedisOptions::default() }).await
}

/// Longest wait for a connection, and for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection that has patience with a slow machine: by itself the library gives an answer up after half a second.
pub async fn connect_by(client: &redis::Client) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new();
    let config = config.set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&config).await
}

pub async fn connection(server: &RedisServer) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    connect_by(&redis::Client::open(server.url()).unwrap()).await
}

/// Runs one command, given as words.
pub async fn ask(server: &RedisServer, words: &str) -> redis::RedisResult<redis::Value> {
    let mut command = redis::Cmd::new();
    command.arg(words.split(' ').collect::<Vec<_>>());
    command.query_async(&mut connection(server).await?).await
}
