//! An order that is not paid in time is closed. The shop's own record decides; Duetime wakes it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use duetime_client::{Client, ConsumeOptions, Due, NewMessage};
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let duetime = Client::new(&std::env::var("DUETIME_URL")?, None)?.retrying(Duration::from_secs(30));
    let timeout = duetime_client::parse_duration(&std::env::var("ORDER_TIMEOUT")?)?;
    duetime.put_topic("orders-rust", &serde_json::Map::new()).await?;
    let open: BTreeSet<String> = ["order-1", "order-2", "order-3"].map(str::to_owned).into();
    for order in &open {
        let check = NewMessage::new(order.clone()).id(order).due(Due::In(timeout));
        duetime.enqueue("orders-rust", &check).await?;
    }
    let (open, all_closed) = (Arc::new(Mutex::new(open)), Arc::new(Notify::new()));
    open.lock().unwrap().remove("order-2"); // It is paid. `in_flight` would mean that the check is under way.
    println!("order-2 paid, its check {}", duetime.cancel("orders-rust", "order-2").await?.outcome);
    let check = |message: duetime_client::ClaimedMessage| {
        let (open, all_closed) = (open.clone(), all_closed.clone());
        async move {
            let mut open = open.lock().unwrap();
            if open.remove(&message.id) {
                println!("{} closed", message.id);
            }
            if open.is_empty() {
                all_closed.notify_one();
            }
        }
    };
    duetime.consume("orders-rust", ConsumeOptions::default(), all_closed.notified(), check).await?;
    Ok(())
}
