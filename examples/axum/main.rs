//! Orders that are closed if they are not paid in time. Duetime calls POST /due for each check that is due.
//!
//!     DUETIME_URL=http://127.0.0.1:3830 WEBHOOK_SECRET=whsec_… PORT=8000 cargo run
//!
//! The node has a sink `shop` with `url = "http://…:8000/due"` and the same secret; see ../README.md. The orders are
//! in memory, for the sake of a short file: a shop has them in a database, and change is one UPDATE there.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use duetime_client::{Client, NewMessage, VerifyError, verify};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const TOPIC: &str = "shop-orders";

struct Shop {
    node: Client,
    secrets: String,
    orders: Mutex<HashMap<String, &'static str>>,
}

type App = State<Arc<Shop>>;
type Shown = Result<Json<Value>, (StatusCode, String)>;

impl Shop {
    /// Changes an order that is open, and no other: a second call, or a late one, does nothing.
    fn change(&self, order: &str, state: &'static str) {
        let mut orders = self.orders.lock().unwrap();
        orders.get_mut(order).filter(|now| **now == "open").into_iter().for_each(|now| *now = state);
    }

    fn show(&self, order: &str) -> Shown {
        match self.orders.lock().unwrap().get(order) {
            Some(state) => Ok(Json(json!({ "order": order, "state": state }))),
            None => Err((StatusCode::NOT_FOUND, "no such order".to_owned())),
        }
    }
}

async fn show(State(shop): App, Path(order): Path<String>) -> Shown {
    shop.show(&order)
}

async fn place(State(shop): App, Path(order): Path<String>) -> Shown {
    // The check first: a check without its order does nothing, an order without a check stays open. Without an answer
    // of the node this request fails and is repeated; then the check is a duplicate.
    let check = NewMessage::new(json!({ "order": order }).to_string()).id(&order);
    let placed = shop.node.enqueue(TOPIC, &check).await;
    placed.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    shop.orders.lock().unwrap().entry(order.clone()).or_insert("open");
    shop.show(&order)
}

async fn pay(State(shop): App, Path(order): Path<String>) -> Shown {
    shop.change(&order, "paid");
    let now = shop.show(&order)?;
    if now["state"] != "paid" {
        return Err((StatusCode::CONFLICT, "the order is closed".to_owned()));
    }
    if let Err(error) = shop.node.cancel(TOPIC, &order).await {
        // The record is what counts: the check finds the order paid.
        eprintln!("the check of {order} is not cancelled: {error}");
    }
    Ok(now)
}

async fn due(State(shop): App, headers: HeaderMap, body: Bytes) -> StatusCode {
    // Several, with spaces between them, while one is changed.
    let secrets: Vec<&str> = shop.secrets.split_whitespace().collect();
    match verify(&body, &headers, &secrets) {
        Ok(_) => {}
        Err(VerifyError::Signature) => return StatusCode::UNAUTHORIZED,
        Err(of_the_set_up) => {
            eprintln!("a webhook cannot be checked: {of_the_set_up}");
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
    }
    let check: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(order) = check["order"].as_str() else { return StatusCode::INTERNAL_SERVER_ERROR };
    shop.change(order, "closed");
    StatusCode::NO_CONTENT
}

/// Notices at the start that no webhook could be checked: with secrets that can be some, only the signature is missing.
fn check(secrets: &str) -> Result<(), VerifyError> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let headers = [("webhook-id", "x".to_owned()), ("webhook-timestamp", now.to_string())];
    let headers = headers.map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("plain text")));
    match verify(b"", &HeaderMap::from_iter(headers), &secrets.split_whitespace().collect::<Vec<_>>()) {
        Ok(_) | Err(VerifyError::Signature) => Ok(()),
        Err(of_the_set_up) => Err(of_the_set_up),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let secrets = env::var("WEBHOOK_SECRET")?;
    check(&secrets).map_err(|error| format!("WEBHOOK_SECRET: {error}"))?;
    let node = Client::new(&env::var("DUETIME_URL")?, env::var("DUETIME_TOKEN").ok())?;
    let timeout = env::var("ORDER_TIMEOUT").unwrap_or_else(|_| "30m".to_owned());
    let settings = json!({ "sink": { "name": "shop" }, "delay": timeout });
    node.put_topic(TOPIC, settings.as_object().expect("an object")).await?;
    let shop = Shop { node, secrets, orders: Mutex::default() };
    let app = Router::new()
        .route("/orders/{order}", get(show).put(place))
        .route("/orders/{order}/payment", post(pay))
        .route("/due", post(due))
        .with_state(Arc::new(shop));
    let port = env::var("PORT").unwrap_or_else(|_| "8000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let mut end = signal(SignalKind::terminate())?;
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            end.recv().await;
        })
        .await?;
    Ok(())
}
