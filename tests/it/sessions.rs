//! Who has signed in stays so on every instance and over a restart, until somebody ends it.

use hapax_testkit::servers::Engine;

use crate::chat_pages::{Browser, TOKEN};
use crate::rig::{Opened, Rig, channel, on_two_instances};

on_every_store! {
    a_session_holds_on_every_instance_and_over_a_restart
}

/// A second process on the same data.
fn again(opened: &Opened) -> Opened {
    Opened { store: opened.store.clone(), clock: opened.clock.clone(), folder: opened.folder.clone() }
}

async fn a_session_holds_on_every_instance_and_over_a_restart(opened: Opened) {
    let channels = || vec![channel("shop", None)];
    let (second, third) = (again(&opened), again(&opened));
    let (one, two) = (Rig::start(opened, channels()).await, Rig::start(second, channels()).await);
    let browser = Browser::sign_in(&one, TOKEN).await;
    assert_eq!(browser.see("/").await.status, 200);
    assert_eq!(browser.at(&two).see("/tokens").await.status, 200);
    let elsewhere = browser.at(&two);
    one.stop().await;
    assert_eq!(elsewhere.see("/").await.status, 200);
    let after = Rig::start(third, channels()).await;
    assert_eq!(elsewhere.at(&after).see("/").await.status, 200);
    // One that signs out is out everywhere, also where it never was.
    assert_eq!(elsewhere.post("/sign-out", &[]).await.status, 303);
    let seen = elsewhere.at(&after).see("/events").await;
    assert_eq!((seen.status, seen.location.as_str()), (303, "/sign-in?next=/events"));
    two.stop().await;
    after.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signing_out_everywhere_holds_on_two_instances_of_postgres() {
    on_two_instances(Engine::Postgres, signing_out_everywhere_ends_all_sessions_of_a_token).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signing_out_everywhere_holds_on_two_instances_of_mariadb() {
    on_two_instances(Engine::Mariadb, signing_out_everywhere_ends_all_sessions_of_a_token).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signing_out_everywhere_holds_on_two_instances_of_redis() {
    on_two_instances(Engine::Redis, signing_out_everywhere_ends_all_sessions_of_a_token).await;
}

async fn signing_out_everywhere_ends_all_sessions_of_a_token(opened: Vec<Opened>) {
    let mut rigs = Vec::new();
    for opened in opened {
        rigs.push(Rig::start(opened, vec![channel("shop", None)]).await);
    }
    let [one, two] = &rigs[..] else { panic!("two instances") };
    let ask = serde_json::json!({"name": "viewer", "scopes": ["read"]});
    let made = one.client.post(one.url("/v1/tokens")).bearer_auth(TOKEN).json(&ask).send().await.expect("an answer");
    let made: serde_json::Value = made.json().await.expect("JSON");
    let token = made["token"].as_str().expect("a token");
    let admin = Browser::sign_in(two, TOKEN).await;
    let (here, there) = (Browser::sign_in(one, token).await, Browser::sign_in(two, token).await);
    for browser in [&here, &here.at(two), &there, &there.at(one)] {
        assert_eq!(browser.see("/").await.status, 200);
    }
    assert_eq!(here.post("/sign-out", &[("everywhere", "1")]).await.status, 303);
    for browser in [&here, &here.at(two), &there, &there.at(one)] {
        assert_eq!(browser.see("/").await.status, 303, "at once, on both");
    }
    for browser in [&admin, &admin.at(one), &Browser::sign_in(two, token).await.at(one)] {
        assert_eq!(browser.see("/").await.status, 200, "other tokens' sessions stay, and one may come again");
    }
    for rig in rigs {
        rig.stop().await;
    }
}
