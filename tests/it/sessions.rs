//! Who has signed in stays so on every instance and over a restart, until somebody ends it.

use crate::chat_pages::{Browser, TOKEN};
use crate::rig::{Opened, Rig, channel};

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
