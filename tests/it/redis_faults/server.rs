//! What tests ask a redis-server, in words.

use duetime_testkit::servers::{RedisOptions, RedisServer};

/// A server whose every write is on disk before it is answered, with these lines in its configuration.
pub async fn durable(lines: &[&str]) -> RedisServer {
    let lines = lines.iter().map(|line| (*line).to_owned()).collect();
    RedisServer::start_with(RedisOptions { append_only: true, lines, ..RedisOptions::default() }).await
}

pub async fn connection(server: &RedisServer) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await
}

/// Runs one command, given as words.
pub async fn ask(server: &RedisServer, words: &str) -> redis::RedisResult<redis::Value> {
    let mut command = redis::Cmd::new();
    command.arg(words.split(' ').collect::<Vec<_>>());
    command.query_async(&mut connection(server).await?).await
}
