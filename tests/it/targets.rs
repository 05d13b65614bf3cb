//! A target per account: one Meta app has one webhook address and many numbers, each with a bot of its own.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use hapax_gateway::settings::{Channel, Mode, OnStoreFailure};
use hapax_store::ItemState;
use hapax_store::memory::MemoryStore;
use hapax_testkit::fake_bot::{FakeBot, Say};
use hapax_testkit::hand_clock::HandClock;
use hapax_testkit::store_fixture::START_MS;
use serde_json::Value;
use tokio::sync::Notify;

use crate::faulty::{Faulty, Outage, with};
use crate::phones::{Phones, all_sent, sending};
use crate::rig::{Opened, Rig, channel, eventually, message, status, text, webhook};

on_every_store! {
    each_account_has_its_own_bot_and_the_rest_goes_to_the_default
    a_bot_that_is_down_holds_no_other_and_gets_its_own_when_it_is_back
    what_waits_for_a_bot_that_is_down_is_left_where_it_is
    a_bot_that_hangs_leaves_the_others_their_places
    accounts_that_share_an_address_share_a_target
    the_provider_hears_the_bot_of_the_account
    replies_go_out_from_the_account_of_their_bot
    what_is_passed_by_a_store_that_is_away_goes_to_each_bot_in_part
}

/// One change of Meta's shape, for the number with this id.
fn change_of(account: &str, messages: &[Value], statuses: &[Value]) -> Value {
    let mut change = crate::rig::change(messages, statuses);
    change["value"]["metadata"]["phone_number_id"] = account.into();
    change
}

fn text_to(account: &str, id: &str, from: &str) -> String {
    webhook(&[change_of(account, &[message(id, from)], &[])])
}

fn shop(default: Option<&FakeBot>, accounts: &[(&str, &FakeBot)]) -> Channel {
    let targets = accounts.iter().map(|(account, bot)| ((*account).to_owned(), bot.url())).collect();
    Channel { targets, ..channel("shop", default.map(FakeBot::url)) }
}

/// The ids that a bot heard of, and the accounts they were for, in the order of the ids.
fn heard(bot: &FakeBot) -> Vec<(String, String)> {
    let mut heard = Vec::new();
    for call in bot.calls() {
        let body: Value = serde_json::from_slice(&call.body).expect("JSON");
        for change in
            body["entry"].as_array().into_iter().flatten().flat_map(|entry| entry["changes"].as_array().expect("a list"))
        {
            let value = &change["value"];
            for list in ["messages", "statuses"] {
                let account = value["metadata"]["phone_number_id"].as_str().expect("an account");
                let ids = value[list].as_array().into_iter().flatten().filter_map(|element| element["id"].as_str());
                heard.extend(ids.map(|id| (id.to_owned(), account.to_owned())));
            }
        }
    }
    heard.sort_unstable();
    heard
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(id, account)| ((*id).to_owned(), (*account).to_owned())).collect()
}

async fn asked(rig: &Rig, path: &str) -> Value {
    let asked = rig.client.get(rig.url(path)).bearer_auth("an admin token for tests").send().await.expect("an answer");
    assert_eq!(asked.status(), 200, "{path}");
    asked.json().await.expect("JSON")
}

async fn each_account_has_its_own_bot_and_the_rest_goes_to_the_default(opened: Opened) {
    let (default, one, two) = (
        FakeBot::willing().await.expect("a bot"),
        FakeBot::willing().await.expect("a bot"),
        FakeBot::willing().await.expect("a bot"),
    );
    let rig = Rig::start(opened, vec![shop(Some(&default), &[("7001", &one), ("7002", &two)])]).await;
    // The same person writes to all three.
    let mixed = webhook(&[
        change_of("7001", &[message("a1", "5511"), message("a2", "5511")], &[status("s1", "read")]),
        change_of("7002", &[message("b1", "5511")], &[]),
        change_of("7003", &[message("c1", "5511")], &[status("s3", "read")]),
        change_of("7002", &[], &[status("s2", "sent")]),
    ]);
    rig.accepted("shop", mixed).await;
    rig.settled().await;
    assert_eq!(heard(&one), pairs(&[("a1", "7001"), ("a2", "7001"), ("s1", "7001")]));
    assert_eq!(heard(&two), pairs(&[("b1", "7002"), ("s2", "7002")]));
    assert_eq!(heard(&default), pairs(&[("c1", "7003"), ("s3", "7003")]));
    for call in [one.calls(), two.calls(), default.calls()].concat() {
        assert_eq!(call.header("x-hub-signature-256"), crate::rig::signature(&call.body), "each part is signed for its bot");
    }
    rig.counted(r#"hapax_deliveries_total{channel="shop",target="7002"}"#, 2).await;
    rig.counted(r#"hapax_deliveries_total{channel="shop"}"#, 2).await;
    let shown = asked(&rig, "/v1/channels").await;
    assert_eq!(shown["channels"][0]["targets"]["7001"], one.url());
    rig.stop().await;
}

async fn a_bot_that_is_down_holds_no_other_and_gets_its_own_when_it_is_back(opened: Opened) {
    let well = FakeBot::willing().await.expect("a bot");
    let down = FakeBot::willing().await.expect("a bot");
    let address = down.address;
    let mut shop = shop(None, &[("7001", &well), ("7002", &down)]);
    shop.concurrency = 2;
    drop(down);
    let rig = Rig::start(opened, vec![shop]).await;
    for number in 0..20 {
        rig.accepted("shop", text_to("7002", &format!("d{number:02}"), &format!("55{number}"))).await;
    }
    eventually("it is taken for dead", async || rig.metric(r#"hapax_circuit_open{channel="shop",target="7002"}"#) == 1).await;
    for number in 0..20 {
        rig.accepted("shop", text_to("7001", &format!("w{number:02}"), &format!("55{number}"))).await;
    }
    well.called(20).await;
    assert_eq!(rig.metric(r#"hapax_circuit_open{channel="shop",target="7001"}"#), 0);
    let ready = asked(&rig, "/readyz").await;
    let listed = ready["targets_down"].as_array().expect("a list");
    assert_eq!((listed.len(), &listed[0]["channel"], &listed[0]["target"]), (1, &"shop".into(), &"7002".into()), "{ready}");
    assert!(listed[0]["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{ready}");

    let socket = tokio::net::TcpListener::bind(address).await.expect("its old port");
    let back = FakeBot::listen(socket, |_| Box::pin(async { Say::Status(200) })).expect("a bot");
    rig.settled().await;
    assert_eq!((heard(&back).len(), heard(&well).len()), (20, 20));
    assert!(back.calls().iter().all(|call| call.attempt() == 1), "nothing was charged or counted meanwhile");
    assert!(asked(&rig, "/readyz").await["targets_down"].is_null());
    rig.stop().await;
}

/// A backlog there would keep the store busy, and be in the way of the others. The default target is down the first time.
async fn what_waits_for_a_bot_that_is_down_is_left_where_it_is(opened: Opened) {
    let well = FakeBot::willing().await.expect("a bot");
    let down = FakeBot::willing().await.expect("a bot");
    let of_down = |default| if default { shop(Some(&down), &[("7001", &well)]) } else { shop(Some(&well), &[("7002", &down)]) };
    let mut channels = vec![of_down(true), Channel { name: "other".into(), ..of_down(false) }];
    channels.iter_mut().for_each(|channel| channel.concurrency = 2);
    drop(down);
    let rig = Rig::start(opened, channels).await;
    for (channel, target) in [("shop", ""), ("other", r#",target="7002""#)] {
        rig.accepted(channel, text_to("7002", &format!("first {channel}"), "55")).await;
        let open = format!(r#"hapax_circuit_open{{channel="{channel}"{target}}}"#);
        eventually("it is taken for dead", async || rig.metric(&open) == 1).await;
        for number in 0..50 {
            rig.accepted(channel, text_to("7002", &format!("{channel} {number:02}"), &format!("55{number}"))).await;
        }
        let before = well.calls().len();
        for number in 0..10 {
            rig.accepted(channel, text_to("7001", &format!("w {channel} {number:02}"), &format!("55{number}"))).await;
            well.called(before + number + 1).await;
        }
        let put_off = rig.inbox().await.into_iter().filter(|row| *row.channel == *channel);
        let put_off =
            put_off.filter(|row| matches!(row.state, ItemState::Waiting { due_ms } if due_ms > row.received_ms)).count();
        // A probe takes up as many as there are places, and puts back all but one.
        assert!(put_off < 20, "{channel}: {put_off} of 51 were taken up and put off");
    }
    rig.kill();
}

/// Its places are taken for as long as it hangs; the other's are not.
async fn a_bot_that_hangs_leaves_the_others_their_places(opened: Opened) {
    let go_on = Arc::new(Notify::new());
    let script = {
        let go_on = Arc::clone(&go_on);
        move |_| -> BoxFuture<'static, Say> {
            let go_on = Arc::clone(&go_on);
            Box::pin(async move {
                go_on.notified().await;
                Say::Status(200)
            })
        }
    };
    let hangs = FakeBot::start_slow(script).await.expect("a bot");
    let well = FakeBot::willing().await.expect("a bot");
    let mut shop = shop(Some(&hangs), &[("7001", &well)]);
    shop.concurrency = 2;
    let rig = Rig::start(opened, vec![shop]).await;
    for number in 0..12 {
        rig.accepted("shop", text_to("7002", &format!("h{number:02}"), &format!("55{number}"))).await;
    }
    hangs.called(2).await;
    for number in 0..12 {
        rig.accepted("shop", text_to("7001", &format!("w{number:02}"), &format!("55{number}"))).await;
    }
    well.called(12).await;
    assert_eq!(hangs.calls().len(), 2, "no more than `concurrency` at once");
    eventually("it goes on, and all is taken", async || {
        go_on.notify_one();
        rig.inbox().await.is_empty()
    })
    .await;
    assert_eq!(heard(&hangs).len(), 12, "what was put back came again");
    assert!(hangs.calls().iter().all(|call| call.attempt() == 1), "and was not counted");
    rig.stop().await;
}

async fn accounts_that_share_an_address_share_a_target(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![shop(Some(&bot), &[("7001", &bot), ("7002", &bot)])]).await;
    for account in ["7001", "7002", "7003"] {
        rig.accepted("shop", text_to(account, account, "5511")).await;
    }
    rig.settled().await;
    rig.counted(r#"hapax_deliveries_total{channel="shop"}"#, 3).await;
    assert!(!(rig.telemetry)().contains("target="), "it is one target, the default");
    rig.stop().await;
}

async fn the_provider_hears_the_bot_of_the_account(opened: Opened) {
    let saying =
        |word: &'static str| FakeBot::start(move |_| Say::Answer { status: 200, headers: vec![], body: word.to_owned() });
    let (one, two) = (saying("one").await.expect("a bot"), saying("two").await.expect("a bot"));
    let shop = Channel { mode: Mode::Proxy, ..shop(None, &[("7001", &one), ("7002", &two)]) };
    let rig = Rig::start(opened, vec![shop]).await;
    assert_eq!(rig.post("shop", text_to("7002", "b1", "5511")).await, (200, "two".into()));
    assert_eq!(rig.post("shop", text_to("7001", "a1", "5511")).await, (200, "one".into()));
    for _ in 0..2 {
        let (status, _) = rig.post("shop", text_to("7003", "c1", "5511")).await;
        assert!([502, 503].contains(&status), "nobody answers for it: {status}");
    }
    rig.kill();
}

async fn replies_go_out_from_the_account_of_their_bot(opened: Opened) {
    let replying = |word: &'static str| {
        FakeBot::start(move |_| Say::Answer {
            status: 200,
            headers: vec![("content-type", "application/vnd.hapax.replies+json".to_owned())],
            body: format!(r#"{{"replies":[{{"text":"{word}"}}]}}"#),
        })
    };
    let (one, two) = (replying("from one").await.expect("a bot"), replying("from two").await.expect("a bot"));
    let phones = Phones::willing().await;
    let targets = shop(None, &[("7001", &one), ("7002", &two)]).targets;
    let rig = Rig::start(opened, vec![Channel { targets, ..sending("shop", None, &phones) }]).await;
    rig.accepted("shop", text_to("7001", "a1", "5511988887777")).await;
    rig.accepted("shop", text_to("7002", "b1", "5511988887777")).await;
    rig.settled().await;
    all_sent(&rig.store).await;
    let mut sent: Vec<_> =
        phones.reached().into_iter().map(|arrived| (arrived.account, arrived.text.unwrap_or_default())).collect();
    sent.sort_unstable();
    assert_eq!(sent, pairs(&[("7001", "from one"), ("7002", "from two")]));
    rig.stop().await;
}

async fn what_is_passed_by_a_store_that_is_away_goes_to_each_bot_in_part(opened: Opened) {
    let (one, two) = (FakeBot::willing().await.expect("a bot"), FakeBot::willing().await.expect("a bot"));
    let faulty = Faulty::around(&opened);
    let shop = Channel { on_store_failure: OnStoreFailure::Pass, ..shop(None, &[("7001", &one), ("7002", &two)]) };
    let rig = Rig::start(with(&faulty, opened), vec![shop]).await;
    faulty.outage(Outage::Fails);
    let part = |account: &str, id: &str| change_of(account, &[message(id, "5511")], &[]);
    rig.accepted("shop", webhook(&[part("7001", "a1"), part("7002", "b1"), part("7001", "a2")])).await;
    assert_eq!(heard(&one), pairs(&[("a1", "7001"), ("a2", "7001")]));
    assert_eq!(heard(&two), pairs(&[("b1", "7002")]));
    let (status, _) = rig.post("shop", webhook(&[part("7001", "a3"), part("7003", "c1")])).await;
    assert_eq!(status, 503, "the provider keeps what nobody here takes");
    assert_eq!((one.calls().len(), two.calls().len()), (1, 1), "and nobody got a part of it");
    faulty.outage(Outage::Over);
    rig.stop().await;
}

/// It is not lost, it says why it waits, and it is delivered when the config names its account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_without_a_target_waits_and_says_so() {
    let clock = HandClock::at(START_MS);
    let store: Arc<MemoryStore> = Arc::new(MemoryStore::new(Arc::new(clock.clone())));
    let opened = || Opened { store: store.clone(), clock: Arc::new(clock.clone()), folder: None };
    let (one, two) = (FakeBot::willing().await.expect("a bot"), FakeBot::willing().await.expect("a bot"));
    let rig = Rig::start(opened(), vec![shop(None, &[("7001", &one)])]).await;
    rig.accepted("shop", text_to("7002", "b1", "5511")).await;
    rig.accepted("shop", text_to("7001", "a1", "5511")).await;
    one.called(1).await;
    eventually("it says why it waits", async || rig.inbox().await.iter().any(|item| item.why.is_some())).await;
    let item = rig.inbox().await.remove(0);
    let why = "account 7002 has no target: add it to [channel.shop.targets], or set `target` for all others";
    assert_eq!((item.why.as_deref(), item.attempt, item.failures), (Some(why), 0, 0));
    assert!(matches!(item.state, ItemState::Waiting { .. }), "{item:?}");
    let story = asked(&rig, &format!("/v1/events/{}/story", item.event)).await.to_string();
    assert!(story.contains(why), "{story}");
    rig.counted(r#"hapax_items_without_target_total{channel="shop"}"#, 1).await;
    assert_eq!(asked(&rig, "/readyz").await["accounts_without_target"], serde_json::json!(["shop"]));
    rig.stop().await;

    let rig = Rig::start(opened(), vec![shop(None, &[("7001", &one), ("7002", &two)])]).await;
    clock.advance(60_000);
    rig.settled().await;
    assert_eq!(heard(&two), pairs(&[("b1", "7002")]));
    assert_eq!((two.calls()[0].attempt(), one.calls().len()), (1, 1), "it was not tried before");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_without_a_table_is_as_it_was() {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(Opened::memory(), vec![shop(Some(&bot), &[])]).await;
    rig.accepted("shop", text("wamid.A", "1")).await;
    rig.settled().await;
    let shown = asked(&rig, "/v1/channels").await;
    assert!(shown["channels"][0].get("targets").is_none(), "{shown}");
    rig.stop().await;
}
