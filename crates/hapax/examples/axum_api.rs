//! An API whose orders are made once per `Idempotency-Key`:
//! `cargo run -p hapax --features tower --example axum_api -- sqlite:claims.db`, then twice
//! `curl -i -X POST -H 'Idempotency-Key: 1' -d pizza http://127.0.0.1:3000/orders`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use hapax::IdempotencyLayer;

static ORDERS: AtomicU64 = AtomicU64::new(0);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let claims = hapax::open(&url).await?.scope("orders-api").wait(Duration::from_secs(10));
    let app = Router::new().route("/orders", post(create_order)).layer(IdempotencyLayer::new(claims).required(true));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app).await?;
    Ok(())
}

async fn create_order(dish: String) -> String {
    format!("order {}: {dish}\n", ORDERS.fetch_add(1, Ordering::SeqCst) + 1)
}
