//! What people do to many rows at once on the pages, without a script: the page says before how many, and does no more.

use hapax_domain::Status;
use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::fake_provider::Play;
use serde_json::json;

use crate::chat_pages::{Browser, TOKEN};
use crate::phones::{ACCOUNT, OTHER_ACCOUNT, Phones, has_status, sending, submit};
use crate::rig::{Opened, Rig, channel, eventually, text};

on_every_store! {
    parked_items_that_match_go_back_together
    claims_are_released_and_deleted_one_by_one_and_together
    accounts_send_again_together
    what_is_in_doubt_is_sent_once_more_or_given_up_together
}

const LATER: &str = "99999999999999";

async fn parked_items_that_match_go_back_together(opened: Opened) {
    let bot = FakeBot::start(|call| Say::Status(if call.attempt() == 1 { 404 } else { 200 })).await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    for (id, from) in [("red1", "1"), ("red2", "2"), ("blue", "3")] {
        rig.accepted("shop", text(id, from)).await;
    }
    eventually("all are parked", async || rig.inbox().await.iter().filter(|row| row.state.name() == "parked").count() == 3).await;
    let browser = Browser::sign_in(&rig, TOKEN).await;
    let page = browser.see("/parked?q=text:red").await.html;
    assert!(page.contains("Redrive 2") && page.contains("2 are meant."), "{page}");
    assert_eq!(browser.post("/parked/redrive", &[("q", "text:red"), ("until", LATER)]).await.status, 303);
    bot.called(5).await;
    eventually("one is left", async || rig.inbox().await.len() == 1).await;
    assert!(browser.see("/audit").await.html.contains("2 items are back in line."));
    rig.stop().await;
}

async fn claims_are_released_and_deleted_one_by_one_and_together(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    for key in ["night-1", "night-2", "night-3", "day-1"] {
        let claim = json!({"key": key, "scope": "jobs", "lease": "60s"});
        let answer = rig.client.post(rig.url("/v1/claims")).bearer_auth(TOKEN).json(&claim).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{answer:?}");
    }
    let browser = Browser::sign_in(&rig, TOKEN).await;
    let page = browser.see("/claims?key=night").await.html;
    assert!(page.contains("Release 3") && page.contains("Delete 3"), "{page}");
    assert_eq!(browser.post("/claims/end", &[("key", "night-1"), ("scope", "jobs")]).await.status, 303);
    let page = browser.see("/claims?key=night").await.html;
    assert!(!page.contains("night-1") && page.contains("night-2"), "{page}");
    assert_eq!(browser.post("/claims/end", &[("key", "night-1"), ("scope", "jobs")]).await.status, 303, "it says so kindly");
    browser.post("/claims/all/end", &[("key", "night-2"), ("until", LATER)]).await;
    browser.post("/claims/all/delete", &[("key", "night"), ("scope", "jobs"), ("until", LATER)]).await;
    let page = browser.see("/claims").await.html;
    assert!(!page.contains("night-") && page.contains("day-1"), "{page}");
    let audit = browser.see("/audit").await.html;
    for words in ["claim end", "claims end", "1 claim is free.", "claims delete", "1 claim is forgotten."] {
        assert!(audit.contains(words), "{words}: {audit}");
    }
    rig.stop().await;
}

async fn accounts_send_again_together(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    for account in [ACCOUNT, OTHER_ACCOUNT] {
        rig.store.pause_account("shop", account, Some("its token expired")).await.expect("paused");
    }
    let browser = Browser::sign_in(&rig, TOKEN).await;
    assert!(browser.see("/accounts").await.html.contains("Resume 2"));
    assert_eq!(browser.post("/accounts/all/resume", &[("until", "1")]).await.status, 303);
    assert_eq!(rig.store.paused_accounts().await.expect("listed").len(), 2);
    assert_eq!(browser.post("/accounts/all/resume", &[("until", LATER)]).await.status, 303);
    assert_eq!(rig.store.paused_accounts().await.expect("listed").len(), 0);
    let audit = browser.see("/audit").await.html;
    assert!(audit.contains("accounts resume") && audit.contains("2 accounts send again."), "{audit}");
    rig.stop().await;
}

async fn what_is_in_doubt_is_sent_once_more_or_given_up_together(opened: Opened) {
    // Of the first try of each, the answer is lost when it is on the phone.
    let phones = Phones::start(|asked| if asked.number < 4 { Play::ActThenCut } else { Play::Act }).await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    let mut ids = Vec::new();
    for (to, words) in [("55110001", "red one"), ("55110002", "red two"), ("55110003", "blue one"), ("55110004", "blue two")] {
        let id = submit(&rig.store, ACCOUNT, to, words).await;
        has_status(&rig.store, id, Status::Unknown).await;
        ids.push(id);
    }
    let browser = Browser::sign_in(&rig, TOKEN).await;
    let page = browser.see("/outbox?q=text:red").await.html;
    assert!(page.contains("Send once more 2") && page.contains("Give up 2") && page.contains("2 are meant."), "{page}");
    assert!(page.contains("stays in doubt"), "what giving up means is said before: {page}");
    browser.post("/outbox/retry", &[("q", "text:red"), ("until", "1")]).await;
    assert_eq!(phones.reached().len(), 4, "nothing was there at that time");
    assert_eq!(browser.post("/outbox/retry", &[("q", "text:red"), ("until", LATER)]).await.status, 303);
    for id in &ids[..2] {
        has_status(&rig.store, *id, Status::Sent).await;
    }
    let page = browser.see("/outbox").await.html;
    assert!(!page.contains("red one") && page.contains("blue one") && page.contains("Give up 2"), "{page}");
    assert_eq!(browser.post("/outbox/cancel", &[("q", "text:blue"), ("until", LATER)]).await.status, 303);
    for id in &ids[2..] {
        let given_up = crate::phones::message(&rig.store, *id).await;
        assert_eq!(
            (given_up.steps.status(), given_up.outbox),
            (Status::Unknown, None),
            "what may have gone out never counts as failed"
        );
    }
    assert!(browser.see("/outbox").await.html.contains("Nothing waits to be sent"));
    let chat = browser.see("/threads/700001__55110003").await.html;
    assert!(chat.contains("Somebody has given it up") && !chat.contains("looks for the provider"), "{chat}");
    let reached: Vec<usize> = ids.iter().map(|id| phones.times()[&id.to_string()]).collect();
    assert_eq!(reached, [2, 2, 1, 1], "only what was sent once more comes twice");
    let audit = browser.see("/audit").await.html;
    for words in ["2 messages are in line once more.", "2 messages are given up."] {
        assert!(audit.contains(words), "{words}: {audit}");
    }
    rig.stop().await;
}
