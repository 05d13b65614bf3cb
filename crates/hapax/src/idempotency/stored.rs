//! A response as it is stored: the text of an HTTP message, which `application/http` is.

use std::io::Write;

use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::body::{Body, full};
use crate::Completed;

pub(super) const CONTENT_TYPE: &str = "application/http";
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What describes a body or leads on. Cookies and whatever else belongs to one connection or session are not among them.
pub(super) const KEPT_HEADERS: [HeaderName; 10] = [
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LOCATION,
    header::CONTENT_TYPE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::LINK,
    header::LOCATION,
];

/// A response that never ends cannot be kept.
pub(super) fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

pub(super) fn record(head: &Parts, kept: &[HeaderName], body: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(body.len() + 256);
    // Writing to a vector does not fail.
    let _ = write!(record, "HTTP/1.1 {}\r\n", head.status.as_u16());
    for name in kept {
        for value in head.headers.get_all(name) {
            record.extend_from_slice(name.as_str().as_bytes());
            record.extend_from_slice(b": ");
            record.extend_from_slice(value.as_bytes());
            record.extend_from_slice(b"\r\n");
        }
    }
    record.extend_from_slice(b"\r\n");
    record.extend_from_slice(body);
    record
}

/// The stored response; `None` when there is none.
pub(super) fn replay(done: &Completed) -> Option<Response<Body>> {
    let record = done.result.as_ref().filter(|_| done.content_type.as_deref() == Some(CONTENT_TYPE))?;
    let end = record.windows(4).position(|window| window == b"\r\n\r\n")?;
    let mut lines = record[..end].split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let status = StatusCode::from_bytes(lines.next()?.strip_prefix(b"HTTP/1.1 ")?).ok()?;
    let mut response = Response::new(full(record.slice(end + 4..)));
    *response.status_mut() = status;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let value = line[colon + 1..].strip_prefix(b" ")?;
        response.headers_mut().append(HeaderName::from_bytes(&line[..colon]).ok()?, HeaderValue::from_bytes(value).ok()?);
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn completed(record: Vec<u8>) -> Completed {
        Completed { completed_at_ms: 0, content_type: Some(CONTENT_TYPE.to_owned()), result: Some(record.into()) }
    }

    #[tokio::test]
    async fn a_record_reads_back_with_the_headers_that_are_kept() {
        let response = Response::builder()
            .status(201)
            .header("location", "/orders/1")
            .header("link", "<a>")
            .header("link", "<b>")
            .header("set-cookie", "session=1")
            .body(())
            .expect("a response");
        let body = b"a\r\n\r\nb\0\xff";
        let replayed = replay(&completed(record(&response.into_parts().0, &KEPT_HEADERS, body))).expect("it reads");
        assert_eq!(replayed.status(), 201);
        let headers = replayed.headers();
        assert_eq!(
            (&headers["location"], &headers["idempotent-replayed"]),
            (&"/orders/1".parse().expect("a value"), &"true".parse().expect("a value"))
        );
        assert_eq!(headers.get_all("link").iter().count(), 2);
        assert!(!headers.contains_key("set-cookie"));
        assert_eq!(replayed.into_body().collect().await.expect("a body").to_bytes().as_ref(), body);
    }

    #[test]
    fn what_is_no_record_is_not_replayed() {
        for bad in ["", "HTTP/1.1 201", "HTTP/1.1 2\r\n\r\n", "HTTP/1.1 200\r\nno colon\r\n\r\n", "200\r\n\r\n"] {
            assert!(replay(&completed(bad.into())).is_none(), "{bad}");
        }
        let json = Completed { content_type: None, ..completed(b"HTTP/1.1 200\r\n\r\n".to_vec()) };
        assert!(replay(&json).is_none());
    }
}
