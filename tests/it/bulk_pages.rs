//! What people do to many rows at once on the pages, without a script: the page says before how many, and does no more.

use hapax_testkit::fake_bot::{FakeBot, Say};
use serde_json::json;

use crate::chat_pages::{Browser, TOKEN};
use crate::phones::{ACCOUNT, OTHER_ACCOUNT, Phones, sending};
use crate::rig::{Opened, Rig, channel, eventually, text};

on_every_store! {
    parked_items_that_match_go_back_together
    claims_are_released_and_deleted_one_by_one_and_together
    accounts_send_again_together
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
    assert_eq!(browser.post("/accounts/resume", &[("until", "1")]).await.status, 303);
    assert_eq!(rig.store.paused_accounts().await.expect("listed").len(), 2);
    assert_eq!(browser.post("/accounts/resume", &[("until", LATER)]).await.status, 303);
    assert_eq!(rig.store.paused_accounts().await.expect("listed").len(), 0);
    let audit = browser.see("/audit").await.html;
    assert!(audit.contains("accounts resume") && audit.contains("2 accounts send again."), "{audit}");
    rig.stop().await;
}
