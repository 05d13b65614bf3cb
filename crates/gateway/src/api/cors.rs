//! Web pages of other origins: which may call, and what of an answer they see. Never with cookies.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::CorsLayer;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const BROWSERS_REMEMBER: Duration = Duration::from_secs(600);

/// `None` where no origin may.
pub(super) fn layer(origins: &[String]) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect();
    if origins.is_empty() {
        return None;
    }
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, IDEMPOTENCY_KEY, PREFER, LAST_EVENT_ID])
        .expose_headers([header::LOCATION, header::RETRY_AFTER, header::ALLOW, REPLAYED, PREFERENCE_APPLIED])
        .max_age(BROWSERS_REMEMBER);
    Some(layer)
}
