//! What is served beside `/v1`, as far as the document is concerned: these paths are answered before or beside the routes of `api`.
#![expect(dead_code, reason = "only their descriptions are used")]

use serde::Serialize;
use utoipa::ToSchema;

/// What became of a webhook, where the provider does not want another answer.
#[derive(Serialize, ToSchema)]
struct Taken {
    /// `accepted`, `duplicate`, `conflict` or `ignored`.
    status: String,
    /// Events that were new.
    accepted: u64,
    /// Copies of events that are known.
    repeated: u64,
}

/// Whether hapax can take webhooks. Only `status` is told to those without a token.
#[derive(Serialize, ToSchema)]
struct Readiness {
    /// `ready` or `unready`.
    status: String,
}

/// Takes in a webhook, signed by its provider.
#[utoipa::path(
    post,
    path = "/in/{channel}",
    operation_id = "takeWebhook",
    tag = "webhooks",
    params(("channel" = String, Path, description = "The channel, as it is configured")),
    request_body(content = Vec<u8>, content_type = "*/*", description = "What the provider posts"),
    responses(
        (status = 200, description = "It is on disk; some providers hear words of their own", body = Taken),
        (status = 400), (status = 401), (status = 405), (status = 408), (status = 409), (status = 413),
        (status = 502), (status = 503), (status = 504)
    )
)]
fn webhook() {}

/// Answers the handshake by which a provider checks the address.
#[utoipa::path(
    get,
    path = "/in/{channel}",
    operation_id = "answerHandshake",
    tag = "webhooks",
    params(("channel" = String, Path, description = "The channel, as it is configured")),
    responses((status = 200, description = "What the provider wants to hear", body = String, content_type = "text/plain"), (status = 401), (status = 405), (status = 503))
)]
fn handshake() {}

/// Says that the process lives.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "health",
    responses((status = 200, description = "It does", body = String, content_type = "text/plain"))
)]
fn healthz() {}

/// Says whether webhooks can be taken in; with a token, or on `admin_listen`, it says more.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    tag = "health",
    responses(
        (status = 200, description = "They can", body = Readiness),
        (status = 401),
        (status = 403),
        (status = 429),
        (status = 503, description = "They cannot", body = Readiness)
    )
)]
fn readyz() {}

/// Shows the metrics, for Prometheus. Without `admin_listen` this takes a token of scope `read`.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "health",
    responses((status = 200, description = "All of them", body = String, content_type = "text/plain"), (status = 401), (status = 403), (status = 429), (status = 503))
)]
fn metrics() {}

/// Shows this document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "health",
    responses((status = 200, description = "An OpenAPI 3.1 document", body = Object))
)]
fn openapi() {}
