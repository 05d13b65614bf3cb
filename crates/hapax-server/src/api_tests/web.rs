//! The pages: who gets in, who does not, and what a browser is told.

use super::*;
use axum::body::Body;
use hapax_gateway::connections::peer::Peer;
use http::header;

const PAGES: [&str; 3] = ["/", "/events", "/docs"];
const HOSTILE: &str = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'`{{7*7}}";

/// One browser, with its cookie.
pub(super) struct Browser<'f> {
    fixture: &'f Fixture,
    pub(super) cookie: Option<String>,
}

pub(super) struct Seen {
    pub(super) status: StatusCode,
    headers: http::HeaderMap,
    pub(super) text: String,
}

impl Seen {
    pub(super) fn to(&self) -> &str {
        self.headers.get(header::LOCATION).map_or("", |path| path.to_str().expect("a path"))
    }

    /// The cookies that were set, whole.
    pub(super) fn cookies(&self) -> Vec<&str> {
        self.headers.get_all(header::SET_COOKIE).iter().map(|cookie| cookie.to_str().expect("a cookie")).collect()
    }
}

impl Fixture {
    fn browser(&self) -> Browser<'_> {
        Browser { fixture: self, cookie: None }
    }

    pub(super) async fn signed_in(&self, token: &str) -> Browser<'_> {
        let mut browser = self.browser();
        let seen = browser.post("/sign-in", &format!("token={token}")).await;
        assert_eq!((seen.status, seen.to()), (StatusCode::SEE_OTHER, "/"), "{}", seen.text);
        browser.keep(&seen);
        browser
    }

    async fn see(&self, request: Request<Body>) -> Seen {
        let (parts, body) = self.router.clone().oneshot(request).await.expect("infallible").into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        Seen { status: parts.status, headers: parts.headers, text: String::from_utf8_lossy(&bytes).into_owned() }
    }
}

impl Browser<'_> {
    fn keep(&mut self, seen: &Seen) {
        let pair = seen.cookies().first().and_then(|cookie| cookie.split(';').next()).map(str::to_owned);
        self.cookie = pair.or(self.cookie.take());
    }

    pub(super) fn ask(&self, method: &str, path: &str) -> http::request::Builder {
        let builder = Request::builder().method(method).uri(path).header("host", "127.0.0.1:4272");
        self.cookie.iter().fold(builder, |builder, cookie| builder.header("cookie", cookie))
    }

    pub(super) async fn get(&self, path: &str) -> Seen {
        self.fixture.see(self.ask("GET", path).body(Body::empty()).expect("a request")).await
    }

    pub(super) async fn post(&self, path: &str, form: &str) -> Seen {
        self.post_from(path, form, &[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:4272")]).await
    }

    pub(super) async fn post_from(&self, path: &str, form: &str, headers: &[(&str, &str)]) -> Seen {
        let builder = self.ask("POST", path).header("content-type", "application/x-www-form-urlencoded");
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        self.fixture.see(builder.body(Body::from(form.to_owned())).expect("a request")).await
    }
}

#[tokio::test]
async fn who_has_not_signed_in_is_sent_to_and_comes_back_where_it_wanted() {
    let fixture = Fixture::new();
    let mut browser = fixture.browser();
    for path in PAGES.iter().chain(&["/live"]) {
        let seen = browser.get(path).await;
        assert_eq!(seen.status, StatusCode::SEE_OTHER, "{path}");
        assert!(seen.to().starts_with("/sign-in"), "{path}: {}", seen.to());
    }
    assert_eq!(browser.get("/events?q=state:parked").await.to(), "/sign-in?next=/events%3Fq%3Dstate:parked");
    let form = browser.get("/sign-in?next=/events%3Fq%3Dstate:parked").await;
    assert!(form.text.contains("name=\"token\"") && form.text.contains("value=\"/events?q=state:parked\""), "{}", form.text);
    let entered = browser.post("/sign-in", &format!("token={TOKEN}&next=/events%3Fq%3Dstate:parked")).await;
    assert_eq!((entered.status, entered.to()), (StatusCode::SEE_OTHER, "/events?q=state:parked"));
    browser.keep(&entered);
    assert_eq!(browser.get("/events").await.status, StatusCode::OK);
    assert_eq!(browser.get("/sign-in").await.to(), "/", "who is in need not sign in");
}

#[tokio::test]
async fn a_wrong_token_opens_nothing_and_is_not_shown_again() {
    let fixture = Fixture::new();
    let browser = fixture.browser();
    let seen = browser.post("/sign-in", "token=a-wrong-one-of-somebody").await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
    assert!(seen.cookies().is_empty() && !seen.text.contains("a-wrong-one"), "{}", seen.text);
    assert_eq!(browser.post("/sign-in", "").await.status, StatusCode::UNAUTHORIZED);
    let worker = fixture.token("worker", &["work"], None).await;
    assert_eq!(browser.post("/sign-in", &format!("token={worker}")).await.status, StatusCode::FORBIDDEN, "it may not look");
}

#[tokio::test]
async fn the_cookie_is_for_this_host_and_no_script() {
    let fixture = Fixture::made(|store| Arc::new(store), |api| api.public_url = Some("https://hapax.lan".to_owned()));
    let browser = fixture.browser();
    let form = format!("token={TOKEN}");
    let seen = browser.post("/sign-in", &form).await;
    let [cookie] = seen.cookies()[..] else { panic!("one cookie") };
    assert!(cookie.starts_with("hapax=") && cookie.ends_with("; Path=/; Max-Age=604800; HttpOnly; SameSite=Strict"), "{cookie}");
    let word = cookie.trim_start_matches("hapax=").split(';').next().expect("a value");
    assert_eq!(word.len(), 96);
    let kept = fixture.store.amend(&format!("web:session:{word}"), None, None, None).await.expect("readable");
    assert_eq!(kept, None, "only a hash of it is kept");

    let secure = |host: &str, proto: Option<&str>, peer: &str| {
        let builder = Request::post("/sign-in").header("host", host).header("sec-fetch-site", "same-origin");
        let builder = proto.into_iter().fold(builder, |builder, proto| builder.header("x-forwarded-proto", proto));
        let builder = builder.header("content-type", "application/x-www-form-urlencoded");
        builder.extension(Peer(peer.parse().expect("an address"))).body(Body::from(form.clone())).expect("a request")
    };
    for (request, https) in [
        (secure("hapax.lan", None, "192.0.2.1"), true),
        (secure("127.0.0.1:4272", None, "127.0.0.1"), false),
        (secure("127.0.0.1:4272", Some("https"), "10.0.0.1"), true),
        (secure("127.0.0.1:4272", Some("https"), "192.0.2.1"), false),
        (secure("hapax.lan", Some("http"), "10.0.0.1"), false),
    ] {
        let seen = fixture.see(request).await;
        let [cookie] = seen.cookies()[..] else { panic!("one cookie") };
        assert_eq!((cookie.starts_with("__Host-hapax="), cookie.ends_with("; Secure")), (https, https), "{cookie}");
    }
}

#[tokio::test]
async fn a_cookie_of_the_other_kind_is_not_believed() {
    let fixture = Fixture::new();
    let mut browser = fixture.signed_in(TOKEN).await;
    browser.cookie = browser.cookie.map(|cookie| format!("__Host-{cookie}"));
    assert_eq!(browser.get("/").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn nothing_is_done_for_another_sites_page() {
    let fixture = Fixture::new();
    let id = fixture.accept("m1", Disposition::Deliver).await;
    let browser = fixture.signed_in(TOKEN).await;
    let replay = format!("/events/{id}/replay");
    for headers in [
        &[][..],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://127.0.0.1:4272"), ("sec-fetch-site", "cross-site")],
    ] {
        for path in [replay.as_str(), "/sign-out", "/sign-in"] {
            let seen = browser.post_from(path, "", headers).await;
            assert_eq!(seen.status, StatusCode::FORBIDDEN, "{path} {headers:?}");
        }
    }
    let (_, inbox) = fixture.get("/v1/inbox").await;
    assert_eq!(inbox["items"].as_array().map(Vec::len), Some(1), "nothing was replayed");
    let seen = browser.post_from(&replay, "", &[("origin", "http://127.0.0.1:4272")]).await;
    assert_eq!((seen.status, seen.to()), (StatusCode::SEE_OTHER, format!("/events/{id}").as_str()));
}

#[tokio::test]
async fn a_name_that_is_not_ours_is_refused() {
    let fixture = Fixture::new();
    let browser = fixture.signed_in(TOKEN).await;
    let ask = |host: Option<&str>| {
        let builder = Request::get("/events").header("cookie", browser.cookie.as_deref().expect("a cookie"));
        host.into_iter().fold(builder, |builder, host| builder.header("host", host)).body(Body::empty()).expect("a request")
    };
    for host in [None, Some("evil.example"), Some("127.0.0.1.evil.example:4272"), Some("192.0.2.9")] {
        let seen = fixture.see(ask(host)).await;
        assert_eq!(seen.status, StatusCode::FORBIDDEN, "{host:?}");
        assert!(!seen.text.contains("Sign out"), "{host:?}");
    }
    for host in ["localhost:4272", "[::1]:4272", "hapax.lan"] {
        assert_eq!(fixture.see(ask(Some(host))).await.status, StatusCode::OK, "{host}");
    }
}

#[tokio::test]
async fn a_session_ends_with_its_token_by_signing_out_and_everywhere() {
    let fixture = Fixture::new();
    let token = fixture.token("viewer", &["read"], None).await;
    let [one, other, third] = [fixture.signed_in(&token).await, fixture.signed_in(&token).await, fixture.signed_in(TOKEN).await];
    let out = one.post("/sign-out", "").await;
    assert_eq!(out.to(), "/sign-in");
    assert!(out.cookies().iter().all(|cookie| cookie.contains("Max-Age=0")) && out.cookies().len() == 2);
    assert_eq!(one.get("/").await.status, StatusCode::SEE_OTHER, "the cookie is worth nothing any more");
    assert_eq!(other.get("/").await.status, StatusCode::OK);

    let again = fixture.signed_in(&token).await;
    again.post("/sign-out", "everywhere=1").await;
    for browser in [&other, &again] {
        assert_eq!(browser.get("/").await.status, StatusCode::SEE_OTHER);
    }
    assert_eq!(third.get("/").await.status, StatusCode::OK, "those of other tokens stay");
    let fresh = fixture.signed_in(&token).await;
    assert_eq!(fresh.get("/").await.status, StatusCode::OK);

    fixture.with("DELETE", "/v1/tokens/viewer", TOKEN, json!({})).await;
    assert_eq!(fresh.get("/").await.status, StatusCode::SEE_OTHER, "without its token there is no session");
}

#[tokio::test]
async fn a_session_has_an_end() {
    let fixture = Fixture::new();
    let browser = fixture.signed_in(TOKEN).await;
    fixture.clock.0.fetch_add(7 * 86_400_000 - 1, Ordering::SeqCst);
    assert_eq!(browser.get("/").await.status, StatusCode::OK);
    fixture.clock.0.fetch_add(1, Ordering::SeqCst);
    assert_eq!(browser.get("/").await.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_link_signs_in_once_and_soon_and_looking_at_it_does_not_use_it_up() {
    let fixture = Fixture::new();
    let token = fixture.token("viewer", &["read"], Some(&["shop"])).await;
    let (status, made) = fixture.with("POST", "/v1/sign-in-links", &token, json!({})).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let path = made["path"].as_str().expect("a path");
    let code = path.strip_prefix("/sign-in?code=").expect("a code");
    let mut browser = fixture.browser();
    for _ in 0..2 {
        assert!(browser.get(path).await.text.contains("Continue"), "a preview may look at it");
    }
    let entered = browser.post("/sign-in", &format!("code={code}")).await;
    assert_eq!(entered.status, StatusCode::SEE_OTHER);
    browser.keep(&entered);
    assert!(browser.get("/").await.text.contains("viewer"));
    assert_eq!(fixture.browser().post("/sign-in", &format!("code={code}")).await.status, StatusCode::UNAUTHORIZED);

    let (_, late) = fixture.with("POST", "/v1/sign-in-links", &token, json!({})).await;
    let code = late["path"].as_str().and_then(|path| path.split('=').next_back()).expect("a code").to_owned();
    fixture.clock.0.fetch_add(10 * 60_000, Ordering::SeqCst);
    assert_eq!(fixture.browser().post("/sign-in", &format!("code={code}")).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_link_dies_with_its_token() {
    let fixture = Fixture::new();
    let token = fixture.token("viewer", &["read"], None).await;
    let (_, made) = fixture.with("POST", "/v1/sign-in-links", &token, json!({})).await;
    let code = made["path"].as_str().and_then(|path| path.split('=').next_back()).expect("a code").to_owned();
    fixture.with("DELETE", "/v1/tokens/viewer", TOKEN, json!({})).await;
    assert_eq!(fixture.browser().post("/sign-in", &format!("code={code}")).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn every_page_says_what_a_browser_may_do_with_it_and_stays_small() {
    let fixture = Fixture::new();
    let mut ids = Vec::new();
    for n in 0..60 {
        ids.push(fixture.accept(&format!("m{n}{}", "x".repeat(300)), Disposition::Deliver).await);
    }
    let browser = fixture.signed_in(TOKEN).await;
    let story = format!("/events/{}", ids[0]);
    for path in
        PAGES.iter().copied().chain([story.as_str(), "/sign-in?next=/", "/events?q=odd:", "/events/evt_7", "/events?q=text:hi"])
    {
        let seen = browser.get(path).await;
        let policy = seen.headers.get(header::CONTENT_SECURITY_POLICY).map(|value| value.to_str().expect("text").to_owned());
        let policy = policy.unwrap_or_else(|| panic!("{path}: no policy"));
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(seen.headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(seen.headers["cache-control"], "no-store", "{path}");
        assert!(seen.text.len() < 100 << 10, "{path}: {} bytes", seen.text.len());
        for inline in [" style=", " onclick=", "<style", "javascript:"] {
            assert!(!seen.text.contains(inline), "{path} has {inline}");
        }
        assert_eq!(
            seen.text.matches("<script").count(),
            seen.text.matches("<script type=\"module\" src=\"/assets/").count(),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_style_and_the_script_are_kept_for_good_under_a_name_of_their_own() {
    let fixture = Fixture::new();
    let browser = fixture.browser();
    let page = browser.get("/sign-in").await.text;
    let paths: Vec<&str> = page.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(paths.len() >= 3, "{page}");
    for path in paths {
        let seen = browser.get(path).await;
        assert_eq!(
            (seen.status, &seen.headers["cache-control"]),
            (StatusCode::OK, &"public, max-age=31536000, immutable".parse().expect("a value")),
            "{path}"
        );
        assert!(!seen.text.is_empty());
    }
    assert_eq!(browser.get("/assets/hapax-000000000000.css").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn hostile_texts_stay_texts() {
    let fixture = Fixture::new();
    let id = fixture.hear_in(HOSTILE, "shop", HOSTILE, HOSTILE, &[], Disposition::Deliver).await;
    fixture.settle(Outcome::Parked { why: HOSTILE.to_owned(), charged: true }).await;
    let browser = fixture.signed_in(TOKEN).await;
    let query = "q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E";
    for path in [
        "/".to_owned(),
        "/events".to_owned(),
        format!("/events/{id}"),
        format!("/events?{query}"),
        format!("/sign-in?next=/&{query}"),
    ] {
        let seen = browser.get(&path).await;
        for live in ["<script>", "<img src=x", "\"><script>", "onerror=alert(1)>"] {
            assert!(!seen.text.contains(live), "{path}: {}", seen.text);
        }
    }
    assert!(browser.get(&format!("/events/{id}")).await.text.contains("&lt;script&gt;"), "it is shown, as text");
}

#[tokio::test]
async fn a_token_of_some_channels_sees_these_on_every_page() {
    let fixture = Fixture::new();
    fixture.hear("shop", "m1", "peer-of-shop", &[], Disposition::Deliver).await;
    let other = fixture.hear("pay", "m2", "peer-of-pay", &[], Disposition::Deliver).await;
    let token = fixture.token("shop-viewer", &["read"], Some(&["shop"])).await;
    let browser = fixture.signed_in(&token).await;
    for path in PAGES.iter().copied().chain(["/events?q=channel:shop"]) {
        let seen = browser.get(path).await;
        assert_eq!(seen.status, StatusCode::OK, "{path}");
        assert!(
            !seen.text.contains("peer-of-pay") && !seen.text.contains(">pay<") && !seen.text.contains(&other),
            "{path}: {}",
            seen.text
        );
    }
    assert_eq!(browser.get(&format!("/events/{other}")).await.status, StatusCode::NOT_FOUND);
    let refused = browser.get("/events?q=channel:pay").await;
    assert!(refused.text.contains("limited to shop") && !refused.text.contains("peer-of-pay"), "{}", refused.text);
}

#[tokio::test]
async fn who_may_only_look_is_offered_nothing_and_may_do_nothing() {
    let fixture = Fixture::new();
    let id = fixture.accept("m1", Disposition::Deliver).await;
    fixture.settle(Outcome::Parked { why: "404".to_owned(), charged: true }).await;
    let token = fixture.token("viewer", &["read"], None).await;
    let browser = fixture.signed_in(&token).await;
    let seen = browser.get(&format!("/events/{id}")).await;
    assert!(!seen.text.contains("/replay") && !seen.text.contains("/redrive"), "{}", seen.text);
    for action in ["replay", "redrive"] {
        let path = format!("/events/{id}/{action}");
        assert_eq!(browser.post(&path, "").await.status, StatusCode::FORBIDDEN, "{action}");
    }
    let mut admin = fixture.signed_in(TOKEN).await;
    let done = admin.post(&format!("/events/{id}/redrive"), "").await;
    assert_eq!(done.status, StatusCode::SEE_OTHER);
    let session = admin.cookie.clone().expect("a cookie");
    admin.keep(&done);
    admin.cookie = admin.cookie.map(|flash| format!("{session}; {flash}"));
    let told = admin.get(done.to()).await;
    assert!(told.text.contains("1 item is back in line"), "{}", told.text);
    assert!(told.cookies().iter().any(|cookie| cookie.starts_with("hapax_flash=;")), "it is told once");
}

#[tokio::test]
async fn payloads_can_be_kept_from_those_who_only_look() {
    let fixture = Fixture::made(|store| Arc::new(store), |api| api.hide_payloads = true);
    let id = fixture.accept("m1", Disposition::Deliver).await;
    let token = fixture.token("viewer", &["read"], None).await;
    let page = format!("/events/{id}");
    let seen = fixture.signed_in(&token).await.get(&page).await.text;
    assert!(!seen.contains("&quot;hi&quot;") && seen.contains("hide_payloads"), "{seen}");
    assert!(fixture.signed_in(TOKEN).await.get(&page).await.text.contains("&quot;hi&quot;"));
    let (_, detail) = fixture.with("GET", &format!("/v1{page}"), &token, json!({})).await;
    assert_eq!((&detail["body_encoding"], &detail["body"]), (&json!("hidden"), &json!("8 bytes")));
    for list in ["events", "inbox", "threads", "outbox"] {
        let (status, problem) = fixture.with("GET", &format!("/v1/{list}?q=text:hi"), &token, json!({})).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{list}: {problem}");
    }
    let (_, threads) = fixture.with("GET", "/v1/threads", &token, json!({})).await;
    assert_eq!(threads["threads"][0]["last_message_text"], json!("13 characters"), "{threads}");
    let (_, messages) = fixture.with("GET", "/v1/threads/7__55119/messages", &token, json!({})).await;
    assert_eq!(messages["messages"][0]["text"], json!("13 characters"), "{messages}");
}

#[tokio::test]
async fn a_first_visit_teaches_how_the_first_webhook_gets_in() {
    let fixture = Fixture::new();
    let browser = fixture.signed_in(TOKEN).await;
    let first = browser.get("/").await.text;
    assert!(first.contains("hapax trigger") && first.contains("http://127.0.0.1:4272/in/shop"), "{first}");
    assert!(browser.get("/events").await.text.contains("hapax trigger"));
    let id = fixture.accept("m1", Disposition::Deliver).await;
    let then = browser.get("/").await.text;
    assert!(!then.contains("hapax trigger") && then.contains(&id), "{then}");
}

#[tokio::test]
async fn the_story_page_leads_along_the_thread() {
    let fixture = Fixture::new();
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(fixture.accept(&format!("m{n}"), Disposition::Deliver).await);
    }
    let browser = fixture.signed_in(TOKEN).await;
    let seen = browser.get(&format!("/events/{}", ids[1])).await.text;
    for (rel, id) in [("prev", &ids[0]), ("next", &ids[2])] {
        assert!(seen.contains(&format!("href=\"/events/{id}\" rel=\"{rel}\"")), "{rel}: {seen}");
    }
    let last = browser.get("/events/latest").await.text;
    assert!(!last.contains("rel=\"next\""), "{last}");
}

#[tokio::test]
async fn every_operation_of_the_api_is_on_its_page() {
    let fixture = Fixture::new();
    let seen = fixture.signed_in(TOKEN).await.get("/docs").await.text;
    let document: Value = serde_json::from_str(hapax_gateway::api::document_json()).expect("JSON");
    for (path, item) in document["paths"].as_object().expect("paths") {
        assert!(seen.contains(&format!("<code>{path}</code>")), "{path}");
        for operation in item.as_object().expect("operations").values() {
            let summary = operation["summary"].as_str().expect("a summary");
            let escaped = summary.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
            let parts = escaped.split('`').enumerate();
            let shown = parts.map(|(place, part)| if place % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() });
            assert!(seen.contains(&shown.collect::<String>()), "{summary}");
        }
    }
}

#[tokio::test]
async fn an_open_page_hears_of_what_its_token_sees() {
    let fixture = Fixture::new();
    let token = fixture.token("shop-viewer", &["read"], Some(&["shop"])).await;
    let browser = fixture.signed_in(&token).await;
    let request = browser.ask("GET", "/live").body(Body::empty()).expect("a request");
    let response = fixture.router.clone().oneshot(request).await.expect("infallible");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut frames = response.into_body().into_data_stream();
    let mut next = async || {
        let frame = futures_util::StreamExt::next(&mut frames).await.expect("a frame").expect("bytes");
        String::from_utf8_lossy(&frame).into_owned()
    };
    assert!(next().await.contains("event: open"));
    fixture.accept_on("pay", "m1", Disposition::Deliver).await;
    fixture.accept_on("shop", "m2", Disposition::Deliver).await;
    assert_eq!(next().await, "event: news\ndata: shop\n\n");
}

#[tokio::test]
async fn an_open_page_outlives_a_crowd_of_events() {
    let fixture = Fixture::new();
    let browser = fixture.signed_in(TOKEN).await;
    let request = browser.ask("GET", "/live").body(Body::empty()).expect("a request");
    let response = fixture.router.clone().oneshot(request).await.expect("infallible");
    let mut frames = response.into_body().into_data_stream();
    let mut next = async || {
        let frame = futures_util::StreamExt::next(&mut frames).await.expect("it goes on").expect("bytes");
        String::from_utf8_lossy(&frame).into_owned()
    };
    assert!(next().await.contains("event: open"));
    // More than are told one by one to those who want each.
    for n in 0..21_000 {
        fixture.accept(&format!("m{n}"), Disposition::Keep).await;
    }
    assert_eq!(next().await, "event: news\ndata: shop\n\n");
    fixture.accept("one more", Disposition::Keep).await;
    assert_eq!(next().await, "event: news\ndata: shop\n\n");
}
