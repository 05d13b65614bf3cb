//! Charges an order once, however often it is started: `cargo run -p hapax --example once -- sqlite:claims.db order-4711`.

use std::time::Duration;

use hapax::{OnAbandoned, Ran};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "memory:".to_owned());
    let order = arguments.next().unwrap_or_else(|| "order-4711".to_owned());

    let payments = hapax::open(&url)
        .await?
        .scope("payments")
        .ttl(Duration::from_secs(90 * 86_400))
        .wait(Duration::from_secs(10))
        .on_abandoned(OnAbandoned::Hold);
    match payments.run(&order, || charge(&order)).await? {
        Ran::Now(receipt) => write(&format!("charged now: {receipt}")),
        Ran::Before(receipt) => write(&format!("charged before: {receipt}")),
    }
    Ok(())
}

async fn charge(order: &str) -> Result<String, std::io::Error> {
    Ok(format!("receipt for {order}"))
}

#[expect(clippy::print_stdout, reason = "an example talks to a person")]
fn write(line: &str) {
    println!("{line}");
}
