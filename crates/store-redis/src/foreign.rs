//! Keys of somebody else's, for `hapax import-seen`.

use hapax_store::StoreError;
use redis::Value;
use tokio::sync::mpsc;

use super::address::Address;
use super::nodes::Nodes;
use super::row::odd;

/// Keys looked at in one call.
const STEP: usize = 1_000;

/// Hands out the keys that fit a pattern, some perhaps twice, until all are read or nobody takes them any more.
pub async fn read_keys(address: &str, pattern: &str, keys: mpsc::Sender<String>) -> Result<(), StoreError> {
    let nodes = Nodes::find(&Address::read(address)?).await?;
    for node in nodes.masters() {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP);
            let (next, found) = read(node.ask("reading keys", &scan).await?)?;
            for key in found {
                if keys.send(key).await.is_err() {
                    return Ok(());
                }
            }
            if next == "0" {
                break;
            }
            cursor = next;
        }
    }
    Ok(())
}

/// Where to go on, and what was found. Keys that are no text are none of ours.
fn read(answer: Value) -> Result<(String, Vec<String>), StoreError> {
    let text = |value: Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    };
    let Value::Array(parts) = answer else { return Err(odd("no list")) };
    let Ok([next, Value::Array(found)]) = <[Value; 2]>::try_from(parts) else { return Err(odd("no list of keys")) };
    Ok((text(next).ok_or_else(|| odd("no cursor"))?, found.into_iter().filter_map(text).collect()))
}
