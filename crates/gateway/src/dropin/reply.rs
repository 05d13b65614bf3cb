//! Answers to bots: in the provider's own shape, and known to have been handed over.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hapax_providers::dropin::Reply;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::written::KeptAnswer;

/// An answer that hapax gives by itself.
pub(super) fn of(reply: Reply) -> Response<Body> {
    let mut response = Response::new(Body::from(reply.body));
    *response.status_mut() = reply.status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    if let Some(seconds) = reply.retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// The provider's own answer; `then` hears whether it was handed over to the last byte.
pub(super) fn kept(answer: KeptAnswer, then: impl FnOnce(bool) + Send + 'static) -> Response<Body> {
    let mut response = Response::new(Body::new(Handed { bytes: Some(answer.body), then: Some(Box::new(then)) }));
    *response.status_mut() = answer.status;
    if let Some(value) = answer.content_type.and_then(|value| HeaderValue::try_from(value).ok()) {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}

/// A body that knows what became of it.
struct Handed {
    bytes: Option<Bytes>,
    then: Option<Box<dyn FnOnce(bool) + Send>>,
}

impl HttpBody for Handed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let handed_over = self.bytes.is_none();
        if let Some(then) = self.then.take() {
            then(handed_over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::sync::{Arc, Mutex};

    #[tokio::test]
    async fn it_is_told_whether_the_answer_was_taken() {
        let told: Arc<Mutex<Vec<bool>>> = Arc::default();
        let answer = |body: &'static str| {
            let told = Arc::clone(&told);
            let kept_answer = KeptAnswer { status: StatusCode::OK, content_type: None, body: body.into() };
            kept(kept_answer, move |handed_over| told.lock().expect("no panic").push(handed_over))
        };
        assert_eq!(answer("taken").into_body().collect().await.expect("a body").to_bytes(), "taken");
        drop(answer("not taken"));
        assert_eq!(*told.lock().expect("no panic"), [true, false]);
    }
}
