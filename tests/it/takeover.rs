//! A person takes a thread over: the bot gets nothing of it, other threads never wait, and all of it comes in order when it is handed back.

use hapax_providers::settings::Settings;
use hapax_testkit::fake_bot::{Call, FakeBot};
use serde_json::{Value, json};

use crate::program::{Poster, disk_folder, program};
use crate::rig::{Opened, Rig, SECRET, change, channel, eventually, in_time, status, text, webhook};

on_every_store! {
    what_comes_in_waits_and_comes_in_order_when_the_thread_is_handed_back
    by_choice_what_comes_in_is_done_and_the_bot_never_gets_it
    many_paused_threads_hold_up_nobody
    who_pulls_gets_nothing_of_a_paused_thread
    a_pause_holds_on_every_instance
    a_thread_stays_paused_under_the_names_that_its_person_gets
    a_person_is_handed_back_by_the_other_name_than_was_paused_before_both_were_known
    deeds_are_listed_with_who_did_them_and_kept_over_a_restart
}

const TOKEN: &str = "an admin token for tests";

/// A second process on the same data.
fn again(opened: &Opened) -> Opened {
    Opened { store: opened.store.clone(), clock: opened.clock.clone(), folder: opened.folder.clone() }
}

async fn post(rig: &Rig, path: &str, body: Value) -> Value {
    let request = rig.client.post(rig.url(path)).bearer_auth(TOKEN).json(&body);
    request.send().await.expect("an answer").json().await.expect("JSON")
}

async fn get(rig: &Rig, path: &str) -> Value {
    let request = rig.client.get(rig.url(path)).bearer_auth(TOKEN);
    request.send().await.expect("an answer").json().await.expect("JSON")
}

/// The provider's ids of the messages that the bot was called with.
fn ids(calls: &[Call]) -> Vec<String> {
    let id = |call: &Call| {
        let body: Value = serde_json::from_slice(&call.body).expect("JSON");
        let value = &body["entry"][0]["changes"][0]["value"];
        value["messages"][0]["id"].as_str().or(value["statuses"][0]["id"].as_str()).expect("an id").to_owned()
    };
    calls.iter().map(id).collect()
}

async fn waits_for_a_person(rig: &Rig, items: usize) {
    eventually("they wait, and say why", async || {
        let why = |item: &hapax_store::InboxRow| item.why.as_deref().is_some_and(|why| why.contains("taken over"));
        rig.inbox().await.iter().filter(|item| why(item)).count() >= items
    })
    .await;
}

async fn what_comes_in_waits_and_comes_in_order_when_the_thread_is_handed_back(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    let missing = post(&rig, "/v1/threads/700001__5511/pause", json!({})).await;
    assert_eq!(missing["code"], "not_found", "{missing}");
    rig.accepted("shop", text("m1", "5511")).await;
    bot.called(1).await;
    rig.settled().await;

    let paused = post(&rig, "/v1/threads/700001__5511/pause", json!({})).await;
    assert_eq!((&paused["paused"]["mode"], &paused["paused"]["by"]), (&json!("wait"), &json!("admin")), "{paused}");
    assert_eq!(post(&rig, "/v1/threads/700001__5511/pause", json!({"mode": "later"})).await["code"], "invalid_request");
    for id in ["m2", "m3", "m4"] {
        rig.accepted("shop", text(id, "5511")).await;
    }
    waits_for_a_person(&rig, 1).await;
    rig.accepted("shop", text("x1", "5522")).await;
    rig.accepted("shop", webhook(&[change(&[], &[status("wamid.sent", "delivered")])])).await;
    let calls = ids(&bot.called(3).await);
    assert!(calls.contains(&"x1".to_owned()) && calls.contains(&"wamid.sent".to_owned()), "{calls:?}");
    let listed = get(&rig, "/v1/threads").await;
    let by_id = |id: &str| listed["threads"].as_array().expect("threads").iter().find(|thread| thread["id"] == id).cloned();
    assert!(by_id("700001__5511").is_some_and(|thread| thread["paused"].is_object()), "{listed}");
    assert!(by_id("700001__5522").is_some_and(|thread| thread["paused"].is_null()), "{listed}");

    // Looked at again and again, and never charged or counted.
    eventually("what the bot was given is settled", async || rig.inbox().await.len() == 3).await;
    let waiting = rig.inbox().await;
    assert!(waiting.iter().all(|item| (item.attempt, item.failures) == (0, 0)), "{waiting:?}");
    let story = get(&rig, &format!("/v1/events/{}/story", waiting[0].event)).await.to_string();
    assert!(story.contains("taken over"), "{story}");

    let resumed = post(&rig, "/v1/threads/700001__5511/resume", json!({})).await;
    assert!(resumed["id"].is_string() && resumed["paused"].is_null(), "{resumed}");
    let calls = in_time("the rest", bot.called(6)).await;
    assert_eq!(ids(&calls[3..]), ["m2", "m3", "m4"]);
    assert!(calls.iter().all(|call| call.attempt() == 1));
    rig.settled().await;
    rig.stop().await;
}

async fn by_choice_what_comes_in_is_done_and_the_bot_never_gets_it(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let rig = Rig::start(opened, vec![channel("shop", Some(bot.url()))]).await;
    rig.accepted("shop", text("m1", "5511")).await;
    bot.called(1).await;
    rig.settled().await;
    post(&rig, "/v1/threads/700001__5511/pause", json!({"mode": "done"})).await;
    rig.accepted("shop", text("m2", "5511")).await;
    rig.settled().await;
    let event = rig.events().await[0].id;
    let story = get(&rig, &format!("/v1/events/{event}/story")).await;
    assert!(story.to_string().contains("the bot did not get it"), "{story}");
    post(&rig, "/v1/threads/700001__5511/resume", json!({})).await;
    rig.accepted("shop", text("m3", "5511")).await;
    assert_eq!(ids(&bot.called(2).await), ["m1", "m3"]);
    rig.settled().await;
    rig.stop().await;
}

async fn many_paused_threads_hold_up_nobody(opened: Opened) {
    const PAUSED: usize = 40;
    let bot = FakeBot::willing().await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.concurrency = 4;
    let rig = Rig::start(opened, vec![shop]).await;
    for number in 0..PAUSED {
        rig.accepted("shop", text(&format!("a{number}"), &format!("55{number}"))).await;
    }
    bot.called(PAUSED).await;
    rig.settled().await;
    for number in 0..PAUSED {
        post(&rig, &format!("/v1/threads/700001__55{number}/pause"), json!({})).await;
        rig.accepted("shop", text(&format!("b{number}"), &format!("55{number}"))).await;
    }
    waits_for_a_person(&rig, PAUSED).await;
    for number in 0..10 {
        rig.accepted("shop", text(&format!("c{number}"), "99")).await;
        in_time("another thread", bot.called(PAUSED + number + 1)).await;
    }
    assert!(ids(&bot.calls()[PAUSED..]).iter().all(|id| id.starts_with('c')), "nothing of the paused ones");
    rig.stop().await;
}

async fn who_pulls_gets_nothing_of_a_paused_thread(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("jobs", None)]).await;
    rig.accepted("jobs", text("m1", "5511")).await;
    post(&rig, "/v1/threads/700001__5511/pause", json!({})).await;
    rig.accepted("jobs", text("x1", "5522")).await;
    let pull = || post(&rig, "/v1/pull", json!({"channel": "jobs", "max": 10}));
    let items = pull().await;
    assert_eq!(items["items"].as_array().map(Vec::len), Some(1), "{items}");
    assert_eq!(items["items"][0]["thread"], "700001__5522");
    waits_for_a_person(&rig, 1).await;
    post(&rig, "/v1/threads/700001__5511/resume", json!({})).await;
    eventually("it is given out", async || {
        let items = pull().await;
        items["items"].as_array().is_some_and(|items| items.iter().any(|item| item["thread"] == "700001__5511"))
    })
    .await;
    rig.stop().await;
}

async fn a_pause_holds_on_every_instance(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let channels = || vec![channel("shop", Some(bot.url()))];
    let other = again(&opened);
    let (one, two) = (Rig::start(opened, channels()).await, Rig::start(other, channels()).await);
    one.accepted("shop", text("m1", "5511")).await;
    bot.called(1).await;
    one.settled().await;
    post(&one, "/v1/threads/700001__5511/pause", json!({})).await;
    eventually("the other knows", async || get(&two, "/v1/threads/700001__5511").await["paused"].is_object()).await;
    two.accepted("shop", text("m2", "5511")).await;
    one.accepted("shop", text("m3", "5511")).await;
    waits_for_a_person(&one, 1).await;
    one.accepted("shop", text("x1", "5522")).await;
    assert_eq!(ids(&bot.called(2).await), ["m1", "x1"]);
    // One of them goes; the other obeys on its own.
    one.stop().await;
    two.accepted("shop", text("x2", "5522")).await;
    assert_eq!(ids(&bot.called(3).await), ["m1", "x1", "x2"]);
    post(&two, "/v1/threads/700001__5511/resume", json!({})).await;
    assert_eq!(ids(&in_time("the rest", bot.called(5)).await), ["m1", "x1", "x2", "m2", "m3"]);
    two.settled().await;
    two.stop().await;
}

/// A GOWA webhook of one message, from somebody who is called so, and also so.
fn gowa(id: &str, from: &str, lid: Option<&str>) -> String {
    let mut payload =
        json!({"id": id, "chat_id": from, "from": from, "timestamp": "2026-08-22T10:00:00Z", "is_from_me": false, "body": "oi"});
    if let Some(lid) = lid {
        payload["from_lid"] = json!(lid);
    }
    json!({"event": "message", "device_id": "551190000@s.whatsapp.net", "payload": payload}).to_string()
}

async fn a_thread_stays_paused_under_the_names_that_its_person_gets(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.provider = Settings::Gowa { secrets: vec![SECRET.into()] };
    let rig = Rig::start(opened, vec![shop]).await;
    let heard = |calls: &[Call]| -> Vec<String> {
        let id = |call: &Call| {
            serde_json::from_slice::<Value>(&call.body).expect("JSON")["payload"]["id"].as_str().expect("an id").to_owned()
        };
        calls.iter().map(id).collect()
    };
    // Whichever of the two names it was taken over by, it is one person once a webhook says both.
    for (round, paused_by) in ["phone", "lid"].into_iter().enumerate() {
        let (phone, lid) = (format!("5511{round}@s.whatsapp.net"), format!("99{round}@lid"));
        let before = bot.calls().len();
        rig.accepted("shop", gowa(&format!("p1{round}"), &phone, None)).await;
        rig.accepted("shop", gowa(&format!("l1{round}"), &lid, Some(&lid))).await;
        bot.called(before + 2).await;
        rig.settled().await;
        let name = if paused_by == "phone" { &phone } else { &lid };
        let listed = get(&rig, "/v1/threads").await;
        let thread = listed["threads"].as_array().expect("threads").iter().find(|thread| thread["peer"] == *name.as_str());
        let path = format!("/v1/threads/{}", thread.expect("the thread")["id"].as_str().expect("an id"));
        assert!(post(&rig, &format!("{path}/pause"), json!({})).await["paused"].is_object());

        rig.accepted("shop", gowa(&format!("b1{round}"), &phone, Some(&lid))).await;
        rig.accepted("shop", gowa(&format!("l2{round}"), &lid, Some(&lid))).await;
        waits_for_a_person(&rig, 1).await;
        rig.accepted("shop", gowa(&format!("other{round}"), "5500@s.whatsapp.net", None)).await;
        let calls = heard(&in_time("somebody else", bot.called(before + 3)).await);
        assert_eq!(calls[before + 2], format!("other{round}"), "paused by {paused_by}: {calls:?}");
        post(&rig, &format!("{path}/resume"), json!({})).await;
        let calls = heard(&in_time("the rest", bot.called(before + 5)).await);
        assert_eq!(calls[before + 3..], [format!("b1{round}"), format!("l2{round}")], "paused by {paused_by}");
        rig.settled().await;
    }
    rig.stop().await;
}

async fn a_person_is_handed_back_by_the_other_name_than_was_paused_before_both_were_known(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let mut shop = channel("shop", Some(bot.url()));
    shop.provider = Settings::Gowa { secrets: vec![SECRET.into()] };
    let rig = Rig::start(opened, vec![shop]).await;
    let heard = |from: usize| -> Vec<String> {
        let id = |call: &Call| {
            serde_json::from_slice::<Value>(&call.body).expect("JSON")["payload"]["id"].as_str().expect("an id").to_owned()
        };
        bot.calls()[from..].iter().map(id).collect()
    };
    // Each name has a thread of its own, from when it was not known that they are one person's.
    let all = async || get(&rig, "/v1/threads").await["threads"].as_array().expect("threads").clone();
    let is_of = |thread: &Value, names: &[&str; 2]| names.iter().any(|name| thread["peer"] == *name);
    let rounds: [(&[&str], &str); 4] =
        [(&["phone"], "lid"), (&["lid"], "phone"), (&["phone", "lid"], "lid"), (&["phone", "lid"], "phone")];
    for (round, (paused, resumed)) in rounds.into_iter().enumerate() {
        let (phone, lid) = (format!("5511{round}@s.whatsapp.net"), format!("99{round}@lid"));
        let before = bot.calls().len();
        rig.accepted("shop", gowa(&format!("p1{round}"), &phone, None)).await;
        rig.accepted("shop", gowa(&format!("l1{round}"), &lid, Some(&lid))).await;
        bot.called(before + 2).await;
        rig.settled().await;
        let listed = all().await;
        let path = |name: &str| {
            let peer = if name == "phone" { &phone } else { &lid };
            let thread = listed.iter().find(|thread| thread["peer"] == *peer.as_str()).expect("the thread");
            format!("/v1/threads/{}", thread["id"].as_str().expect("an id"))
        };
        for name in paused {
            assert!(post(&rig, &format!("{}/pause", path(name)), json!({})).await["paused"].is_object());
        }
        rig.accepted("shop", gowa(&format!("b1{round}"), &phone, Some(&lid))).await;
        rig.accepted("shop", gowa(&format!("l2{round}"), &lid, Some(&lid))).await;
        waits_for_a_person(&rig, 1).await;
        let both = async || -> Vec<bool> {
            let threads = all().await;
            threads.iter().filter(|thread| is_of(thread, &[&phone, &lid])).map(|thread| thread["paused"].is_object()).collect()
        };
        assert_eq!(both().await, [true, true], "{paused:?} paused");
        let answer = post(&rig, &format!("{}/resume", path(resumed)), json!({})).await;
        assert!(answer["id"].is_string() && answer["paused"].is_null(), "{paused:?} paused, {resumed} resumed: {answer}");
        assert_eq!(both().await, [false, false], "{paused:?} paused, {resumed} resumed");
        in_time("the rest", bot.called(before + 4)).await;
        assert_eq!(heard(before + 2), [format!("b1{round}"), format!("l2{round}")], "{paused:?} paused, {resumed} resumed");
        rig.settled().await;
    }
    rig.stop().await;
}

async fn deeds_are_listed_with_who_did_them_and_kept_over_a_restart(opened: Opened) {
    let next = again(&opened);
    let rig = Rig::start(opened, vec![channel("shop", None)]).await;
    rig.accepted("shop", text("m1", "5511")).await;
    let event = rig.events().await[0].id.to_string();
    post(&rig, &format!("/v1/events/{event}/replay"), json!({})).await;
    let made = post(&rig, "/v1/tokens", json!({"name": "ana", "scopes": ["send", "read"]})).await;
    let ana = made["token"].as_str().expect("a token").to_owned();
    let pause = rig.client.post(rig.url("/v1/threads/700001__5511/pause")).bearer_auth(&ana);
    assert_eq!(pause.send().await.expect("an answer").status(), 200);
    post(&rig, "/v1/redrive", json!({"channel": "shop"})).await;
    post(&rig, "/v1/messages/msg_00000000000000000000000000000001/cancel", json!({})).await;
    post(&rig, "/v1/pull", json!({"channel": "shop"})).await;
    let refused = rig.client.get(rig.url("/v1/audit")).bearer_auth(&ana).send().await.expect("an answer");
    assert_eq!(refused.status(), 403);
    rig.stop().await;

    let rig = Rig::start(next, vec![channel("shop", None)]).await;
    let (first, all) = (get(&rig, "/v1/audit?limit=2").await, get(&rig, "/v1/audit").await);
    let line = |entry: &Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
        format!("{} {} {}: {}", text("by"), text("action"), text("target"), text("result"))
    };
    let lines: Vec<String> = all["entries"].as_array().expect("entries").iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "admin message cancel msg_00000000000000000000000000000001: not_found".to_owned(),
            "admin redrive shop: 0 in line again".to_owned(),
            "ana thread pause 700001__5511: ok".to_owned(),
            "admin token create ana: made, with send, read".to_owned(),
            format!("admin replay {event}: ok"),
        ]
    );
    assert_eq!(all["entries"][0]["from"], "127.0.0.1");
    assert!(!all.to_string().contains(&ana) && !all.to_string().contains("this is m1"), "neither secrets nor texts");
    let rest = get(&rig, &format!("/v1/audit?cursor={}", first["next"].as_str().expect("more"))).await;
    assert_eq!(rest["entries"].as_array().map(|rest| rest.iter().map(line).collect::<Vec<_>>()), Some(lines[2..].to_vec()));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_survives_kill_nine() {
    let bot = FakeBot::willing().await.expect("a bot");
    let folder = disk_folder();
    let (hapax, poster) = (program(folder.path(), Some(&bot.url()), ""), Poster::new());
    let (process, at) = hapax.serve().await.expect("it starts");
    poster.post_until_taken(at, text("m1", "5511")).await;
    bot.called(1).await;
    let ask = async |at, path: &str| poster.ask(at, path, &json!({})).await.expect("an answer");
    assert!(ask(at, "/v1/threads/700001__5511/pause").await["paused"].is_object());
    poster.post_until_taken(at, text("m2", "5511")).await;
    process.kill_nine().await.expect("killed");

    let (process, at) = hapax.serve().await.expect("it starts again");
    poster.post_until_taken(at, text("m3", "5511")).await;
    poster.post_until_taken(at, text("x1", "5522")).await;
    assert_eq!(ids(&bot.called(2).await), ["m1", "x1"]);
    assert!(poster.get(at, "/v1/threads/700001__5511").await.expect("an answer").contains("\"paused\""), "it is still paused");
    ask(at, "/v1/threads/700001__5511/resume").await;
    assert_eq!(ids(&in_time("the rest", bot.called(4)).await), ["m1", "x1", "m2", "m3"]);
    process.stop().await.expect("it stops");
}
