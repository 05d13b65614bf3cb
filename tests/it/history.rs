//! The counts of the last hour, day and week: kept over a restart, and added up over instances.

use hapax_testkit::fake_bot::FakeBot;
use serde_json::Value;

use crate::rig::{Opened, Rig, channel, text};

on_every_store! {
    counts_are_there_at_once_and_kept_over_a_restart
    instances_on_one_store_count_together
}

async fn history(rig: &Rig, query: &str) -> Value {
    let request = rig.client.get(rig.url(&format!("/v1/history?{query}"))).bearer_auth("an admin token for tests");
    request.send().await.expect("an answer").json().await.expect("JSON")
}

/// A second process on the same data.
fn again(opened: &Opened) -> Opened {
    Opened { store: opened.store.clone(), clock: opened.clock.clone(), folder: opened.folder.clone() }
}

async fn counts_are_there_at_once_and_kept_over_a_restart(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let channels = || vec![channel("shop", Some(bot.url())), channel("other", None)];
    let next = again(&opened);
    let rig = Rig::start(opened, channels()).await;
    for (id, from) in [("m1", "1"), ("m2", "2"), ("m3", "3")] {
        rig.accepted("shop", text(id, from)).await;
    }
    rig.post("shop", text("m1", "1")).await;
    rig.settled().await;
    rig.counted(r#"hapax_deliveries_total{channel="shop"}"#, 3).await;
    rig.counted(r#"hapax_events_duplicate_total{channel="shop"}"#, 1).await;
    for (range, buckets) in [("hour", 60), ("day", 144), ("week", 168)] {
        let told = history(&rig, &format!("range={range}")).await;
        assert_eq!(told["buckets"].as_array().map(Vec::len), Some(buckets), "{told}");
        let total = &told["total"];
        let counts = ["accepted", "copies", "delivered", "bot_within_10s", "parked"].map(|name| total[name].as_u64());
        assert_eq!(counts, [3, 1, 3, 3, 0].map(Some), "{told}");
        assert_eq!(told["channels"][0]["channel"], "shop");
    }
    assert_eq!(history(&rig, "channel=other").await["total"]["accepted"], 0);
    assert_eq!(history(&rig, "range=year").await["code"], "invalid_request");
    rig.stop().await;

    let rig = Rig::start(next, channels()).await;
    rig.accepted("shop", text("m4", "1")).await;
    rig.settled().await;
    rig.counted(r#"hapax_deliveries_total{channel="shop"}"#, 1).await;
    for range in ["hour", "day", "week"] {
        let told = history(&rig, &format!("range={range}")).await;
        let counts = ["accepted", "copies", "delivered"].map(|name| told["total"][name].as_u64());
        assert_eq!(counts, [4, 1, 4].map(Some), "{range}: {told}");
    }
    rig.stop().await;
}

async fn instances_on_one_store_count_together(opened: Opened) {
    let (other, third) = (again(&opened), again(&opened));
    let one = Rig::start(opened, vec![channel("shop", None)]).await;
    let two = Rig::start(other, vec![channel("shop", None)]).await;
    // The same numbers on both: what they write looks alike.
    one.accepted("shop", text("m1", "1")).await;
    two.accepted("shop", text("m2", "1")).await;
    tokio::join!(one.stop(), two.stop());
    let rig = Rig::start(third, vec![channel("shop", None)]).await;
    assert_eq!(history(&rig, "range=hour").await["total"]["accepted"], 2);
    rig.stop().await;
}
