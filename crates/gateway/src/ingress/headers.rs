//! Which request headers the target gets to see again.

use hapax_domain::limits::KEPT_HEADERS_MAX_BYTES;
use hapax_store::KeptHeaders;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::Nonce;

/// Names the nonce of a webhook in the spool.
const NONCE: &str = "hapax-nonce";

/// Keeps what describes the webhook; leaves out what belonged to the connection, to proxies, or carries a secret.
pub(super) fn keep(headers: &HeaderMap, signatures: &[HeaderName]) -> KeptHeaders {
    let mut kept = KeptHeaders(Vec::with_capacity(256));
    // First, so that no crowd of other headers can push it over the limit.
    if let Some(content_type) = headers.get(header::CONTENT_TYPE) {
        push(&mut kept, "content-type", content_type.as_bytes());
    }
    for (name, value) in headers {
        if *name != header::CONTENT_TYPE && describes_the_webhook(name.as_str()) && !signatures.contains(name) {
            push(&mut kept, name.as_str(), value.as_bytes());
        }
    }
    kept
}

/// Keeps all that an adapter may look at, for a webhook that is read again later: everything but secrets and signatures. Read again it is
/// the same webhook, with the same nonce.
pub(super) fn keep_for_reading(headers: &HeaderMap, signatures: &[HeaderName], nonce: &Nonce) -> KeptHeaders {
    let mut kept = KeptHeaders::default();
    kept.push(NONCE, hex::encode(nonce.bytes()).as_bytes());
    for (name, value) in headers.iter().filter(|(name, _)| !is_secret(name.as_str()) && !signatures.contains(name)) {
        kept.push(name.as_str(), value.as_bytes());
    }
    kept
}

/// The nonce of a kept webhook: the first of that name, because a provider's own comes later.
pub(super) fn nonce(kept: &KeptHeaders) -> Nonce {
    let value = kept.iter().find(|(name, _)| *name == NONCE).map(|(_, value)| value);
    let mut bytes = [0; 16];
    match hex::decode_to_slice(value.unwrap_or_default(), &mut bytes) {
        Ok(()) => Nonce(bytes.into()),
        // It was spooled by an earlier version.
        Err(_) => Nonce::default(),
    }
}

/// The headers that were kept, as a request has them.
pub(super) fn read_back(kept: &KeptHeaders) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in kept.iter() {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

fn push(kept: &mut KeptHeaders, name: &str, value: &[u8]) {
    if kept.0.len() + name.len() + value.len() + 3 <= KEPT_HEADERS_MAX_BYTES {
        kept.push(name, value);
    }
}

fn describes_the_webhook(name: &str) -> bool {
    let of_the_connection = matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "expect"
            | "host"
            | "content-length"
            | "accept-encoding"
    );
    let of_proxies = matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-");
    // Ours to set; a provider that sent them could pretend to be a replay.
    let ours = name == "idempotency-key" || name.starts_with("hapax-");
    !(of_the_connection || is_secret(name) || of_proxies || ours)
}

fn is_secret(name: &str) -> bool {
    matches!(name, "authorization" | "proxy-authorization" | "cookie" | "set-cookie")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_str(value).expect("a header value"));
        }
        map
    }

    fn names(kept: &KeptHeaders) -> Vec<&str> {
        kept.iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn what_describes_the_webhook_stays_exactly() {
        let sent = headers(&[
            ("host", "hooks.example"),
            ("user-agent", "facebookexternalua"),
            ("content-type", "application/json; charset=UTF-8"),
            ("x-github-event", "push"),
            ("accept", "*/*"),
        ]);
        let kept = keep(&sent, &[]);
        assert_eq!(names(&kept), ["content-type", "user-agent", "x-github-event", "accept"]);
        assert_eq!(kept.iter().next(), Some(("content-type", b"application/json; charset=UTF-8".as_slice())));
    }

    #[test]
    fn secrets_signatures_and_the_connection_do_not() {
        let sent = headers(&[
            ("authorization", "Bearer x"),
            ("cookie", "a=b"),
            ("connection", "keep-alive"),
            ("x-hub-signature-256", "sha256=00"),
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
            ("content-length", "3"),
            ("transfer-encoding", "chunked"),
            ("hapax-replay", "1"),
        ]);
        assert_eq!(names(&keep(&sent, &[HeaderName::from_static("x-hub-signature-256")])), Vec::<&str>::new());
    }

    #[test]
    fn what_is_read_again_later_has_all_but_the_secrets() {
        let sent = headers(&[
            ("idempotency-key", "one"),
            ("via", "a"),
            ("via", "b"),
            ("authorization", "Bearer x"),
            ("x-hub-signature-256", "sha256=00"),
        ]);
        let kept = keep_for_reading(&sent, &[HeaderName::from_static("x-hub-signature-256")], &Nonce([7; 16].into()));
        assert_eq!(nonce(&kept).bytes(), &[7; 16]);
        let mut back = read_back(&kept);
        back.remove(NONCE);
        assert_eq!(back, headers(&[("idempotency-key", "one"), ("via", "a"), ("via", "b")]));
    }

    #[test]
    fn many_headers_are_cut_at_the_limit_and_the_content_type_survives() {
        let mut sent = HeaderMap::new();
        for _ in 0..20 {
            sent.append("x-padding", HeaderValue::from_str(&"p".repeat(1_000)).expect("a header value"));
        }
        sent.append("content-type", HeaderValue::from_static("application/json"));
        let kept = keep(&sent, &[]);
        assert!(kept.0.len() <= KEPT_HEADERS_MAX_BYTES);
        assert!(names(&kept).contains(&"content-type"));
    }
}
