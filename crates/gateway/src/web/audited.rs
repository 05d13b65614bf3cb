//! What people change by a page stands in the list of who did what, as what they change by the API does.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Method;

use super::Web;
use super::visitor::Visitor;
use crate::api::audit;

pub(super) async fn note(State(web): State<Arc<Web>>, visitor: Visitor, request: Request, next: Next) -> Response {
    let looks = request.method() == Method::GET;
    let response = audit::noted(Arc::clone(&web.api), visitor.caller, request, next).await;
    if !looks {
        web.counting.forget();
    }
    response
}
