//! The stream of events: what comes is told, who was away resumes, who is slow is cut.

use std::time::Duration;

use hapax_domain::limits::{STREAM_BUFFER, STREAMS_MAX};

use super::*;

/// A stream that is read, frame by frame.
struct Reading {
    body: Body,
    buffer: String,
}

impl Fixture {
    async fn open(&self, path: &str, token: &str, last: Option<&str>) -> Response<Body> {
        let mut request = Request::get(path).header("authorization", format!("Bearer {token}"));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        self.router.clone().oneshot(request.body(Body::empty()).expect("a request")).await.expect("infallible")
    }

    async fn listen(&self, path: &str, last: Option<&str>) -> Reading {
        let response = self.open(path, TOKEN, last).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Reading { body: response.into_body(), buffer: String::new() }
    }
}

impl Reading {
    /// The next block of lines; nothing when the stream has ended.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.buffer = rest;
                return Some(block);
            }
            let frame = tokio::time::timeout(Duration::from_secs(60), self.body.frame()).await.expect("in time")?;
            let bytes = frame.expect("a whole stream").into_data().expect("bytes");
            self.buffer.push_str(std::str::from_utf8(&bytes).expect("text"));
        }
    }

    /// The ids of the next events.
    async fn ids(&mut self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        while ids.len() < count {
            let block = self.block().await.expect("more to come");
            if let Some(id) = block.lines().find_map(|line| line.strip_prefix("id: ")) {
                let data = block.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
                let row: Value = serde_json::from_str(data).expect("JSON");
                assert_eq!(row["id"], id);
                ids.push(id.to_owned());
            }
        }
        ids
    }
}

#[tokio::test]
async fn what_comes_is_told_in_its_order_and_only_of_the_channel_asked_for() {
    let fixture = Fixture::new();
    let old = fixture.accept_on("help", "m0", Disposition::Deliver).await;
    let (mut all, mut help) = (fixture.listen("/v1/stream", None).await, fixture.listen("/v1/stream?channel=help", None).await);
    let mut told = Vec::new();
    for (channel, id) in [("shop", "m1"), ("help", "m2"), ("pay", "m3"), ("help", "m4")] {
        told.push(fixture.accept_on(channel, id, Disposition::Deliver).await);
    }
    assert!(!told.contains(&old));
    assert_eq!(all.ids(4).await, told);
    assert_eq!(help.ids(2).await, [told[1].clone(), told[3].clone()]);
}

#[tokio::test]
async fn who_was_away_resumes_from_before_the_last_and_misses_nothing() {
    let fixture = Fixture::new();
    let mut ids = Vec::new();
    for n in 0..1_203 {
        ids.push(fixture.accept_on("help", &format!("m{n}"), Disposition::Deliver).await);
        if n % 100 == 99 {
            fixture.clock.0.fetch_add(20_000, Ordering::SeqCst);
        }
    }
    let mut again = fixture.listen("/v1/stream?channel=help", Some(&ids[150])).await;
    assert_eq!(again.ids(1_103).await, ids[100..], "all of that time again, and all since, over several pages");
    let new = fixture.accept_on("help", "new", Disposition::Deliver).await;
    assert_eq!(again.ids(1).await, [new], "and what comes now, once");

    for bad in ["x", "itm_00000000000000000000000000000009", "evt_00000000000000000000000000000009"] {
        assert_eq!(fixture.open("/v1/stream", TOKEN, Some(bad)).await.status(), StatusCode::BAD_REQUEST, "{bad}");
    }
}

/// Its number is lower than that of what was told before it.
#[tokio::test]
async fn what_is_committed_late_is_told_too() {
    let fixture = Fixture::new();
    let mut live = fixture.listen("/v1/stream", None).await;
    fixture.clock.0.fetch_add(5_000, Ordering::SeqCst);
    let first = fixture.accept_on("help", "m1", Disposition::Deliver).await;
    assert_eq!(live.ids(1).await, [first]);
    // The model makes ids of its clock: one from before stands for a commit that took long.
    fixture.clock.0.fetch_sub(4_000, Ordering::SeqCst);
    let late = fixture.accept_on("help", "m2", Disposition::Deliver).await;
    assert_eq!(live.ids(1).await, [late]);
}

#[tokio::test]
async fn a_token_hears_only_of_its_channels() {
    let fixture = Fixture::new();
    let token = fixture.token("bot", &["read"], Some(&["help"])).await;
    let before = fixture.accept_on("shop", "m0", Disposition::Deliver).await;
    let response = fixture.open("/v1/stream", &token, Some(&before)).await;
    let mut own = Reading { body: response.into_body(), buffer: String::new() };
    fixture.accept_on("shop", "m1", Disposition::Deliver).await;
    let heard = fixture.accept_on("help", "m2", Disposition::Deliver).await;
    assert_eq!(own.ids(1).await, [heard]);
    assert_eq!(fixture.open("/v1/stream?channel=shop", &token, None).await.status(), StatusCode::FORBIDDEN);
    let worker = fixture.token("hand", &["work"], None).await;
    assert_eq!(fixture.open("/v1/stream", &worker, None).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_revoked_token_hears_nothing_more() {
    let fixture = Fixture::new();
    let token = fixture.token("bot", &["read"], None).await;
    let response = fixture.open("/v1/stream", &token, None).await;
    let mut reading = Reading { body: response.into_body(), buffer: String::new() };
    reading.block().await.expect("it opens");
    assert_eq!(fixture.with("DELETE", "/v1/tokens/bot", TOKEN, json!({})).await.0, StatusCode::OK);
    fixture.accept_on("shop", "m1", Disposition::Deliver).await;
    assert_eq!(reading.block().await, None);
}

#[tokio::test]
async fn who_does_not_read_is_cut_and_resumes() {
    let fixture = Fixture::new();
    let (mut slow, mut quick) = (fixture.listen("/v1/stream", None).await, fixture.listen("/v1/stream", None).await);
    assert_eq!(slow.block().await.as_deref(), Some("retry: 2000"));
    let mut ids = Vec::new();
    for n in 0..STREAM_BUFFER + 500 {
        ids.push(fixture.accept_on("help", &format!("m{n}"), Disposition::Deliver).await);
        if n % 100 == 0 {
            assert_eq!(quick.ids(ids.len().min(if n == 0 { 1 } else { 100 })).await.last(), ids.last());
        }
    }
    let left = ids.len() - 1 - (ids.len() - 1) / 100 * 100;
    quick.ids(left).await;
    let mut rest = String::new();
    while let Some(block) = slow.block().await {
        rest = block;
    }
    assert!(rest.contains("Last-Event-ID"), "{rest}");
    let mut again = fixture.listen("/v1/stream", Some(&ids[0])).await;
    assert_eq!(again.ids(ids.len()).await, ids);
}

#[tokio::test]
async fn there_is_a_limit_on_open_streams() {
    let fixture = Fixture::new();
    let mut open = Vec::new();
    for _ in 0..STREAMS_MAX {
        open.push(fixture.listen("/v1/stream", None).await);
    }
    let refused = fixture.open("/v1/stream", TOKEN, None).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    open.pop();
    assert_eq!(fixture.open("/v1/stream", TOKEN, None).await.status(), StatusCode::OK);
}
