//! The yardstick: HTTP, one HMAC, one parse, and nothing else. All that hapax does beyond it shows against it.

use std::borrow::Cow;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use sha2::Sha256;
use tokio::net::TcpListener;

use super::{bare_sender, requests};

/// Serves until it is killed; where there is a provider, it sends as well.
pub(super) async fn serve(listener: TcpListener, provider: Option<SocketAddr>) -> std::io::Result<()> {
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let routes = Router::new().route("/in/{channel}", post(take));
    axum::serve(listener, routes.merge(provider.map(bare_sender::route).unwrap_or_default())).await
}

async fn take(headers: HeaderMap, body: Bytes) -> (StatusCode, &'static str) {
    let signature = headers.get("x-hub-signature-256").and_then(|value| value.as_bytes().strip_prefix(b"sha256="));
    if !signature.is_some_and(|signature| is_signed(signature, &body)) {
        return (StatusCode::UNAUTHORIZED, "");
    }
    match serde_json::from_slice::<Webhook<'_>>(&body) {
        Ok(webhook) if webhook.names_messages() => (StatusCode::OK, r#"{"status":"accepted","accepted":1,"repeated":0}"#),
        _ => (StatusCode::BAD_REQUEST, ""),
    }
}

fn is_signed(signature: &[u8], body: &[u8]) -> bool {
    let mut expected = [0; 32];
    let read = hex::decode_to_slice(signature, &mut expected).is_ok();
    let mac = Hmac::<Sha256>::new_from_slice(requests::SECRET.as_bytes());
    read && mac.is_ok_and(|mac| mac.chain_update(body).verify_slice(&expected).is_ok())
}

/// As much of a webhook as a bot would read.
#[derive(Deserialize)]
struct Webhook<'b> {
    #[serde(borrow)]
    entry: Vec<Entry<'b>>,
}

#[derive(Deserialize)]
struct Entry<'b> {
    #[serde(borrow)]
    changes: Vec<Change<'b>>,
}

#[derive(Deserialize)]
struct Change<'b> {
    #[serde(borrow)]
    value: Value<'b>,
}

#[derive(Deserialize)]
struct Value<'b> {
    #[serde(borrow)]
    messages: Vec<Message<'b>>,
}

#[derive(Deserialize)]
struct Message<'b> {
    id: &'b str,
    from: &'b str,
    #[serde(borrow)]
    text: Text<'b>,
}

#[derive(Deserialize)]
struct Text<'b> {
    #[serde(borrow)]
    body: Cow<'b, str>,
}

impl Webhook<'_> {
    fn names_messages(&self) -> bool {
        let mut messages = self.entry.iter().flat_map(|entry| &entry.changes).flat_map(|change| &change.value.messages);
        messages.all(|message| !(message.id.is_empty() || message.from.is_empty() || message.text.body.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;

    #[tokio::test]
    async fn it_takes_what_is_signed_and_nothing_else() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(serve(listener, None));
        let taken = load::run(address, requests::fresh("t", 2, 10)).await.expect("all were taken");
        assert_eq!(taken.requests, 10);
        assert!(load::run(address, requests::forged("t", 1, 1)).await.is_err(), "the last byte of the body was changed");
        serving.abort();
    }
}
