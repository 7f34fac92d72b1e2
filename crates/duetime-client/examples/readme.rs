//! A check that is cancelled, and one that falls due.

use std::sync::Arc;
use std::time::Duration;

use duetime_client::{ClaimedMessage, Client, ConsumeOptions, Due, NewMessage};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let duetime = Client::new(&std::env::var("DUETIME_URL")?, None)?.retrying(Duration::from_secs(30));
    duetime.put_topic("readme-rust", &serde_json::Map::new()).await?;
    let after = |seconds| Due::In(Duration::from_secs(seconds));
    duetime.enqueue("readme-rust", &NewMessage::new("42").id("order-42").due(after(1800))).await?;
    println!("{}", duetime.cancel("readme-rust", "order-42").await?.outcome);

    duetime.enqueue("readme-rust", &NewMessage::new("43").id("order-43").due(after(1))).await?;
    let stop = Arc::new(tokio::sync::Notify::new());
    let close = |message: ClaimedMessage| {
        let stop = stop.clone();
        async move {
            println!("close {}", String::from_utf8_lossy(&message.payload()));
            stop.notify_one();
        }
    };
    duetime.consume("readme-rust", ConsumeOptions::default(), stop.notified(), close).await?;
    Ok(())
}
