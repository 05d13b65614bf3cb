//! The yardstick of sending: takes what hapax takes, makes the provider's call over connections that it keeps, reads the answer, and keeps
//! nothing of it. All that hapax does beyond it shows against it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;

use super::requests::TOKEN;

/// The provider, and the connections to it that nobody uses.
struct Provider {
    address: SocketAddr,
    host: HeaderValue,
    free: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

/// What is submitted.
#[derive(Deserialize)]
struct Submit<'b> {
    account: &'b str,
    to: &'b str,
    #[serde(borrow)]
    text: Cow<'b, str>,
    request_id: &'b str,
}

#[derive(Deserialize)]
struct Answer<'b> {
    #[serde(borrow)]
    messages: Vec<Named<'b>>,
}

#[derive(Deserialize)]
struct Named<'b> {
    id: &'b str,
}

pub(super) fn route(provider: SocketAddr) -> Router {
    let host = HeaderValue::try_from(provider.to_string()).unwrap_or(HeaderValue::from_static("localhost"));
    let provider = Arc::new(Provider { address: provider, host, free: Mutex::default() });
    Router::new().route("/v1/messages", post(send)).with_state(provider)
}

async fn send(State(provider): State<Arc<Provider>>, headers: HeaderMap, body: Bytes) -> Result<String, StatusCode> {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if token != Some(TOKEN) {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let submit: Submit<'_> = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let answer = provider.post(&submit).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let answer: Answer<'_> = serde_json::from_slice(&answer).map_err(|_| StatusCode::BAD_GATEWAY)?;
    let id = answer.messages.first().ok_or(StatusCode::BAD_GATEWAY)?.id;
    Ok(format!(r#"{{"request_id":"{}","provider_id":"{id}","status":"sent"}}"#, submit.request_id))
}

impl Provider {
    async fn post(&self, submit: &Submit<'_>) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
        let body = serde_json::json!({
            "messaging_product": "whatsapp", "to": submit.to, "type": "text", "text": { "body": submit.text }
        });
        let mut request = Request::post(format!("/v25.0/{}/messages", submit.account)).body(Full::from(body.to_string()))?;
        request.headers_mut().insert(HOST, self.host.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {TOKEN}"))?);
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match free {
            Some(free) => free,
            None => self.connect().await?,
        };
        connection.ready().await?;
        let answer = connection.send_request(request).await?;
        let whole = answer.into_body().collect().await?.to_bytes();
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(whole)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::{bare, bot, load, requests};

    #[tokio::test]
    async fn what_is_submitted_goes_out() {
        let provider = bot::Bot::start(|n| format!(r#"{{"messages":[{{"id":"wamid.{n}"}}]}}"#)).await.expect("a provider");
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = tokio::spawn(bare::serve(listener, Some(provider.address)));
        let sent = load::run(address, requests::submits("t", 4, 40)).await.expect("all were sent");
        assert_eq!((sent.requests, provider.count()), (40, 40));
        serving.abort();
    }
}
