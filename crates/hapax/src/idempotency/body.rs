//! Bodies of both sides, in one type.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a request or a response on its way through an [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Debug)]
pub struct Body(UnsyncBoxBody<Bytes, BoxError>);

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

pub(super) fn boxed<B>(body: B) -> Body
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Body(body.map_err(Into::into).boxed_unsync())
}

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Body(Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync())
}

/// What was read of a body.
pub(super) enum Read {
    Whole(Bytes),
    /// More than asked for: the same body, from its beginning.
    Longer(Body),
}

pub(super) async fn read_up_to(mut body: Body, most: usize) -> Result<Read, BoxError> {
    let mut parts = VecDeque::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        // Trailers are not kept.
        let Ok(data) = frame?.into_data() else { continue };
        length += data.len();
        parts.push_back(data);
        if length > most {
            return Ok(Read::Longer(boxed(Resumed { parts, rest: body })));
        }
    }
    if parts.len() == 1 {
        return Ok(Read::Whole(parts.pop_front().unwrap_or_default()));
    }
    let mut whole = Vec::with_capacity(length);
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    Ok(Read::Whole(whole.into()))
}

/// A body whose beginning was read already.
struct Resumed {
    parts: VecDeque<Bytes>,
    rest: Body,
}

impl HttpBody for Resumed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(part) = self.parts.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        Poll::Ready(ready!(Pin::new(&mut self.rest).poll_frame(context)))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty() && self.rest.is_end_stream()
    }
}
