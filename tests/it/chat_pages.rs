//! The pages of threads and queues, as a browser without a script sees them.

use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::fake_provider::Play;
use reqwest::redirect::Policy;

use crate::phones::{Phones, sending};
use crate::rig::{Opened, Rig, channel, eventually, text};

on_every_store! {
    one_form_is_one_message_however_often_it_is_sent
    a_message_in_doubt_is_explained_and_seen_to
    a_person_takes_over_and_hands_back
    parked_items_go_back_one_by_one_and_all_at_once
    every_page_is_there_and_small_and_strangers_see_none
    what_people_write_stays_text
}

pub(crate) const TOKEN: &str = "an admin token for tests";

/// A browser that has signed in, and runs no script.
pub(crate) struct Browser<'r> {
    rig: &'r Rig,
    client: reqwest::Client,
    cookie: String,
}

pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) location: String,
    pub(crate) html: String,
}

impl<'r> Browser<'r> {
    pub(crate) async fn sign_in(rig: &'r Rig, token: &str) -> Self {
        let client = reqwest::Client::builder().no_proxy().redirect(Policy::none()).build().expect("a client");
        let mut browser = Self { rig, client, cookie: String::new() };
        let request = browser.client.post(rig.url("/sign-in")).header("origin", browser.rig.url(""));
        let request = filled_in(request, &[("token", token)]);
        let answer = request.send().await.expect("an answer");
        let cookie = answer.headers().get("set-cookie").expect("a cookie").to_str().expect("text");
        browser.cookie = cookie.split(';').next().expect("a pair").to_owned();
        browser
    }

    /// The same browser in front of another instance.
    pub(crate) fn at<'o>(&self, rig: &'o Rig) -> Browser<'o> {
        Browser { rig, client: self.client.clone(), cookie: self.cookie.clone() }
    }

    pub(crate) async fn see(&self, path: &str) -> Seen {
        Self::seen(self.client.get(self.rig.url(path)).header("cookie", &self.cookie)).await
    }

    pub(crate) async fn post(&self, path: &str, form: &[(&str, &str)]) -> Seen {
        let request = self.client.post(self.rig.url(path)).header("origin", self.rig.url("")).header("cookie", &self.cookie);
        Self::seen(filled_in(request, form)).await
    }

    async fn seen(request: reqwest::RequestBuilder) -> Seen {
        let answer = request.send().await.expect("an answer");
        let location = answer.headers().get("location").and_then(|to| to.to_str().ok()).unwrap_or_default().to_owned();
        Seen { status: answer.status().as_u16(), location, html: answer.text().await.expect("a page") }
    }

    /// The name that the box of a page has for what is written in it.
    async fn request_id(&self, path: &str) -> String {
        let page = self.see(path).await.html;
        let (_, rest) = page.split_once("name=\"request_id\" value=\"").unwrap_or_else(|| panic!("no box: {page}"));
        rest.split('"').next().expect("a value").to_owned()
    }
}

/// As a browser posts a form.
fn filled_in(request: reqwest::RequestBuilder, form: &[(&str, &str)]) -> reqwest::RequestBuilder {
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let fields: Vec<String> = form.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    request.header("content-type", "application/x-www-form-urlencoded").body(fields.join("&"))
}

async fn one_form_is_one_message_however_often_it_is_sent(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    rig.accepted("shop", text("m1", "5511988887777")).await;
    let browser = Browser::sign_in(&rig, TOKEN).await;
    let listed = browser.see("/threads").await.html;
    assert!(listed.contains("href=\"/threads/700001__5511988887777\"") && listed.contains("this is m1"), "{listed}");
    let path = "/threads/700001__5511988887777";
    let page = browser.see(path).await.html;
    assert!(page.contains("<textarea") && page.contains("name=\"text\"") && page.contains("this is m1"), "{page}");
    let id = browser.request_id(path).await;
    let form = [("text", "line one\r\nline two"), ("request_id", id.as_str())];
    let send = format!("{path}/send");
    // Twice at once, as a double click does, and once more by going back.
    let (one, two) = tokio::join!(browser.post(&send, &form), browser.post(&send, &form));
    for sent in [one, two, browser.post(&send, &form).await] {
        assert_eq!(sent.status, 303, "{}", sent.html);
        assert!(sent.location.starts_with(&format!("{path}?sent={id}")), "{}", sent.location);
    }
    eventually("it is sent", async || phones.reached().len() == 1).await;
    let other = browser.post(&send, &[("text", "another text"), ("request_id", &id)]).await;
    assert!(
        other.status == 422 && other.html.contains("press Send once more") && other.html.contains("another text"),
        "{}",
        other.html
    );
    assert!(!other.html.contains(&format!("value=\"{id}\"")), "the next try has a new name");
    // The same text, typed twice, is two messages.
    for _ in 0..2 {
        let id = browser.request_id(path).await;
        assert_eq!(browser.post(&send, &[("text", "ok"), ("request_id", &id)]).await.status, 303);
    }
    eventually("all are sent", async || phones.reached().len() == 3).await;
    eventually("the ticks say so", async || browser.see(path).await.html.matches("title=\"sent\"").count() == 3).await;
    rig.stop().await;
}

async fn a_message_in_doubt_is_explained_and_seen_to(opened: Opened) {
    let phones = Phones::start(|asked| if asked.number == 0 { Play::ActThenCut } else { Play::Act }).await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    rig.accepted("shop", text("m1", "5511988887777")).await;
    let (browser, path) = (Browser::sign_in(&rig, TOKEN).await, "/threads/700001__5511988887777");
    let id = browser.request_id(path).await;
    browser.post(&format!("{path}/send"), &[("text", "did it go?"), ("request_id", &id)]).await;
    let doubt = "Nobody knows whether it went out";
    eventually("it is in doubt", async || browser.see(path).await.html.contains(doubt)).await;
    let page = browser.see(path).await.html;
    assert!(page.contains("after the request may have been written"), "the evidence is told: {page}");
    assert!(browser.see("/outbox").await.html.contains("did it go?"));
    let message = page.split("/messages/").nth(1).and_then(|rest| rest.split('/').next()).expect("a message").to_owned();
    let again = browser.post(&format!("/messages/{message}/retry"), &[]).await;
    assert_eq!((again.status, again.location.as_str()), (303, path));
    eventually("it is sent", async || browser.see(path).await.html.contains("title=\"sent\"")).await;
    let late = browser.post(&format!("/messages/{message}/cancel"), &[]).await;
    assert_eq!(late.status, 303, "{}", late.html);
    let audit = browser.see("/audit").await.html;
    assert!(audit.contains("message retry") && audit.contains(&message), "{audit}");
    rig.stop().await;
}

async fn a_person_takes_over_and_hands_back(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("m1", "5511988887777")).await;
    bot.called(1).await;
    let (browser, path) = (Browser::sign_in(&rig, TOKEN).await, "/threads/700001__5511988887777");
    let page = browser.see(path).await.html;
    assert!(!page.contains("<textarea") && page.contains("token"), "it says why nothing can be sent: {page}");
    assert_eq!(browser.post(&format!("{path}/pause"), &[("mode", "wait")]).await.status, 303);
    assert!(browser.see(path).await.html.contains("Hand back to the bot"));
    assert!(browser.see("/threads").await.html.contains("taken over"));
    rig.accepted("shop", text("m2", "5511988887777")).await;
    assert_eq!(browser.post(&format!("{path}/resume"), &[]).await.status, 303);
    assert!(browser.see(path).await.html.contains("Take over"));
    bot.called(2).await;
    let audit = browser.see("/audit").await.html;
    assert!(audit.contains("thread pause") && audit.contains("thread resume"), "{audit}");
    rig.stop().await;
}

async fn parked_items_go_back_one_by_one_and_all_at_once(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Status(if call.attempt() == 1 { 404 } else { 200 })).await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    for (id, from) in [("m1", "1"), ("m2", "2"), ("m3", "3")] {
        rig.accepted("shop", text(id, from)).await;
    }
    eventually("all are parked", async || rig.inbox().await.iter().filter(|row| row.state.name() == "parked").count() == 3).await;
    let browser = Browser::sign_in(&rig, TOKEN).await;
    let page = browser.see("/parked").await.html;
    assert!(page.contains("Redrive 3 of shop") && page.contains("404"), "{page}");
    let event = rig.inbox().await[0].event.to_string();
    assert_eq!(browser.post("/parked/redrive", &[("event", &event)]).await.status, 303);
    bot.called(4).await;
    assert_eq!(browser.post("/parked/redrive", &[("channel", "shop")]).await.status, 303);
    bot.called(6).await;
    rig.settled().await;
    assert!(browser.see("/parked").await.html.contains("Nothing waits for you"));
    rig.stop().await;
}

async fn every_page_is_there_and_small_and_strangers_see_none(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones), channel("jobs", None)]).await;
    rig.accepted("shop", text("m1", "5511988887777")).await;
    let browser = Browser::sign_in(&rig, TOKEN).await;
    let pages = [
        "/threads",
        "/threads/700001__5511988887777",
        "/outbox",
        "/parked",
        "/claims",
        "/accounts",
        "/channels",
        "/channels/shop",
        "/channels/jobs",
        "/tokens",
        "/audit",
        "/settings",
    ];
    for path in pages {
        let page = browser.see(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.html);
        assert!(page.html.len() < 100_000, "{path} has {} bytes", page.html.len());
        assert!(!page.html.contains(crate::rig::SECRET), "{path} shows a secret");
        let stranger = browser.client.get(rig.url(path)).send().await.expect("an answer");
        assert_eq!(stranger.status(), 303, "{path}");
    }
    for path in ["/threads/700001__1", "/channels/nowhere"] {
        assert_eq!(browser.see(path).await.status, 404, "{path}");
    }
    let made = browser.post("/tokens", &[("name", "looker"), ("scope_read", "1")]).await;
    let token = made.html.split("data-copy=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a token").to_owned();
    let looker = Browser::sign_in(&rig, &token).await;
    let page = looker.see("/threads/700001__5511988887777").await.html;
    assert!(!page.contains("<textarea") && page.contains("may look, and not send"), "{page}");
    for path in ["/tokens", "/audit", "/settings"] {
        assert_eq!(looker.see(path).await.status, 403, "{path}");
    }
    assert_eq!(looker.post("/threads/700001__5511988887777/pause", &[]).await.status, 403);
    assert_eq!(browser.post("/channels/shop/trigger", &[("kind", "whatsapp.text")]).await.status, 303);
    eventually("the sample is in", async || rig.events().await.len() == 2).await;
    assert_eq!(browser.post("/tokens/looker/revoke", &[]).await.status, 303);
    rig.stop().await;
}

async fn what_people_write_stays_text(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    let hostile = "</textarea><script>alert(1)</script>\"><img src=x onerror=alert(1)>";
    let mut message = crate::rig::message("m1", "5511988887777");
    message["text"]["body"] = hostile.into();
    rig.accepted("shop", crate::rig::webhook(&[crate::rig::change(&[message], &[])])).await;
    let (browser, path) = (Browser::sign_in(&rig, TOKEN).await, "/threads/700001__5511988887777");
    let id = browser.request_id(path).await;
    browser.post(&format!("{path}/send"), &[("text", hostile), ("request_id", &id)]).await;
    let refused = browser.post(&format!("{path}/send"), &[("text", &format!("{hostile}!")), ("request_id", &id)]).await;
    for html in
        [refused.html, browser.see(path).await.html, browser.see("/threads").await.html, browser.see("/outbox").await.html]
    {
        assert!(!html.contains("<script>alert") && !html.contains("<img src=x"), "{html}");
    }
    rig.stop().await;
}
