//! Every page stays small and plain whatever strangers write: long names, long texts, many rows.

use hapax_domain::Status;
use hapax_testkit::fake_bot::{FakeBot, Say};
use serde_json::json;

use crate::chat_pages::{Browser, TOKEN};
use crate::phones::{ACCOUNT, OTHER_ACCOUNT, Phones, has_status, sending, submit};
use crate::rig::{Opened, Rig, change, channel, eventually, message, webhook};

on_every_store! {
    a_page_of_hostile_words_and_many_rows_stays_small
}

const PAGE_MAX_BYTES: usize = 100_000;
const NAME_BYTES: usize = 4 << 10;
const TEXT_BYTES: usize = 64 << 10;
const MANY: usize = 300;

const HOSTILE: [&str; 8] = [
    "\"><script>alert(1)</script>",
    "'><img src=x onerror=alert(2)>",
    "</textarea></title></style><svg onload=alert(3)>",
    "\" autofocus onfocus=alert(4) x=\"",
    "javascript:alert(5)",
    "<iframe srcdoc='<script>alert(6)</script>'>",
    "\u{202e}\u{0}\u{feff}&lt;b&gt;&#x27;",
    "<a href='//evil.example/'>{{7*7}}${7*7}",
];
/// What none of it may become.
const LIVE: [&str; 7] =
    ["<script>", "<img src=x", "<svg onload", "<iframe", "<a href='//", " onfocus=alert(4) x=\"", "</textarea></title>"];

/// A hostile text of so many bytes, with a number of its own in front.
fn hostile(number: usize, bytes: usize) -> String {
    let mut text = format!("{number} ");
    while text.len() < bytes {
        text.push_str(HOSTILE[number % HOSTILE.len()]);
    }
    text.truncate((0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default());
    text
}

async fn a_page_of_hostile_words_and_many_rows_stays_small(opened: Opened) {
    let words = || Say::Answer { status: 404, headers: Vec::new(), body: hostile(1, 8 << 10) };
    let bot = FakeBot::start(move |_| words()).await.expect("a bot");
    let phones = Phones::willing().await;
    let mut channels = vec![sending("shop", Some(bot.url()), &phones), channel("jobs", None)];
    channels.extend(
        (0..150).map(|number| channel(&format!("channel-{number}"), Some(format!("http://127.0.0.1:9/{}", "x".repeat(500))))),
    );
    let rig = Rig::start(opened, channels).await;
    fill(&rig).await;
    let browser = Browser::sign_in(&rig, TOKEN).await;
    let mut sizes = Vec::new();
    for path in ["/", "/docs", "/settings", "/channels/shop", "/new-channel", "/sign-in?next=/"] {
        sizes.push(looked_at(&browser, path).await);
    }
    for name in ["shop", "channel-0", "channel-149"] {
        let html = browser.see(&format!("/?channel={name}")).await.html;
        assert_eq!(html.matches(&format!("aria-current=\"true\">{name}</a>")).count(), 1, "{name} is offered once");
    }
    for (path, rows, each) in [
        ("/events", "<tr data-key=", MANY),
        ("/parked", "<tr data-key=", MANY),
        ("/threads", "class=\"talk\"", MANY),
        ("/outbox", "<tr data-key=", MANY),
        // One key in eight is refused: it holds a NUL.
        ("/claims", "<td class=\"main\"", MANY * 7 / 8),
        ("/accounts", "<td class=\"main\"", MANY),
        ("/tokens", "<td class=\"main\"", 99),
        ("/audit", "<td class=\"main\"", MANY),
        ("/channels", "<td class=\"main\"", 152),
        ("/events?q=text:alert", "<tr data-key=", MANY / 2),
    ] {
        let found = all_pages(&browser, path, rows, &mut sizes).await;
        assert!(found >= each, "{path}: {found} rows of {each}");
    }
    let (events, threads) = (links(&browser, "/events").await, links(&browser, "/threads").await);
    for path in events.iter().take(10).chain(threads.iter().take(10)) {
        sizes.push(looked_at(&browser, path).await);
    }
    assert!(sizes.len() > 60, "{}", sizes.join("\n"));
    rig.stop().await;
}

/// Makes hundreds of everything.
async fn fill(rig: &Rig) {
    for account in [ACCOUNT, OTHER_ACCOUNT] {
        rig.store.pause_account("shop", account, Some("it rests")).await.expect("paused");
    }
    for number in 0..MANY {
        let mut said = message(&hostile(number, NAME_BYTES), &hostile(number, NAME_BYTES));
        said["text"]["body"] = hostile(number, TEXT_BYTES).into();
        rig.accepted("shop", webhook(&[change(&[said], &[])])).await;
        submit(&rig.store, ACCOUNT, &hostile(number, NAME_BYTES), &hostile(number, TEXT_BYTES)).await;
        let (account, why) = (hostile(number, NAME_BYTES), hostile(number, TEXT_BYTES));
        rig.store.pause_account("shop", &account, Some(&why)).await.expect("paused");
        let claim =
            json!({"key": hostile(number, 255), "scope": hostile(number, 64), "holder": hostile(number, 255), "lease": "600s"});
        post(rig, "/v1/claims", claim).await;
        // What is asked for in vain stands in the audit list.
        post(rig, &format!("/v1/messages/{}/cancel", "%22".repeat(1_000)), json!({})).await;
    }
    let all: Vec<String> = (0..100).map(|number| format!("channel-{number}")).collect();
    for number in 0..99 {
        post(
            rig,
            "/v1/tokens",
            json!({"name": format!("{number}-{}", "t".repeat(60)), "scopes": ["read", "send", "work"], "channels": all}),
        )
        .await;
    }
    let failed = submit(&rig.store, "700003", "1", &hostile(3, TEXT_BYTES)).await;
    has_status(&rig.store, failed, Status::Failed).await;
    eventually("all are parked", async || {
        let stats = rig.store.stats().await.expect("stats");
        stats.channels.iter().map(|counts| counts.parked).sum::<u64>() >= MANY as u64
    })
    .await;
}

async fn post(rig: &Rig, path: &str, body: serde_json::Value) {
    rig.client.post(rig.url(path)).bearer_auth(TOKEN).json(&body).send().await.expect("an answer");
}

/// The page, its size, and how long it took.
async fn looked_at(browser: &Browser<'_>, path: &str) -> String {
    let (html, said) = seen(browser, path).await;
    drop(html);
    said
}

async fn seen(browser: &Browser<'_>, path: &str) -> (String, String) {
    let begun = std::time::Instant::now();
    let page = browser.see(path).await;
    let name: String = path.chars().take(60).collect();
    let said = format!("{name}: {} bytes, {:?}", page.html.len(), begun.elapsed());
    assert!(page.status == 200 || page.status == 303, "{name}: {}", page.status);
    assert!(page.html.len() < PAGE_MAX_BYTES, "{said}");
    for live in LIVE {
        assert!(!page.html.contains(live), "{name} has {live}");
    }
    (page.html, said)
}

/// Follows a list to its end; how many rows it has.
async fn all_pages(browser: &Browser<'_>, path: &str, row: &str, sizes: &mut Vec<String>) -> usize {
    let (mut next, mut rows) = (Some(path.to_owned()), 0);
    while let Some(path) = next {
        let (html, said) = seen(browser, &path).await;
        sizes.push(said);
        rows += html.matches(row).count();
        next = html.split("<a ").find(|link| link.contains("rel=\"next\"")).map(href);
        assert!(rows < 20 * MANY, "{path} has no end");
    }
    rows
}

fn href(link: &str) -> String {
    let (_, rest) = link.split_once("href=\"").expect("an address");
    rest.split('"').next().expect("its end").replace("&amp;", "&")
}

/// Where the rows of a list lead.
async fn links(browser: &Browser<'_>, path: &str) -> Vec<String> {
    let html = browser.see(path).await.html;
    let own = |link: &&str| link.contains(&format!("href=\"{path}/"));
    html.split("<a ").filter(own).map(href).collect()
}
