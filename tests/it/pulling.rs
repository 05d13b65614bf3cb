//! Workers that ask: who waits is woken, who dies loses the item, and a thread keeps its order whoever works on it.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::program::{Poster, program};
use crate::rig::{Opened, Rig, channel, in_time, text};

on_every_store! {
    who_waits_is_woken_and_a_stop_sends_everybody_home
    ten_workers_keep_the_order_of_each_thread
    one_look_serves_all_who_wait
}

async fn asked(rig: &Rig, path: &str, body: Value) -> (u16, Value) {
    let request = rig.client.post(rig.url(path)).bearer_auth("an admin token for tests").json(&body);
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

async fn pulled(rig: &Rig, max: usize, wait: &str) -> Vec<Value> {
    let (status, body) = asked(rig, "/v1/pull", json!({"channel": "jobs", "max": max, "wait": wait})).await;
    assert_eq!(status, 200, "{body}");
    body["items"].as_array().expect("items").clone()
}

async fn who_waits_is_woken_and_a_stop_sends_everybody_home(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("jobs", None)]).await;
    let (items, ()) = tokio::join!(in_time("an item", pulled(&rig, 5, "30s")), rig.accepted("jobs", text("m1", "5511")));
    assert_eq!((items.len(), &items[0]["attempt"]), (1, &json!(1)), "{items:?}");
    let sent: Value = serde_json::from_str(items[0]["body"].as_str().expect("a body")).expect("the provider's own shape");
    assert_eq!(sent["entry"][0]["changes"][0]["value"]["messages"][0]["id"], "m1");
    let (status, done) = asked(&rig, "/v1/settle", json!({"lease": items[0]["lease"], "outcome": "done"})).await;
    assert_eq!((status, &done["status"]), (200, &json!("done")), "{done}");
    rig.settled().await;
    assert_eq!(rig.metric(r#"hapax_items_pulled_total{channel="jobs"}"#), 1);
    assert_eq!(rig.metric(r#"hapax_deliveries_total{channel="jobs"}"#), 1);

    let wait = || {
        let request = rig.client.post(rig.url("/v1/pull")).bearer_auth("an admin token for tests");
        tokio::spawn(request.json(&json!({"channel": "jobs", "wait": 30})).send())
    };
    let (one, two) = (wait(), wait());
    rig.accepted("jobs", text("m2", "5511")).await;
    let (first, other) = futures_util::future::select(one, two).await.factor_first();
    let items: Value = first.expect("no panic").expect("an answer").json().await.expect("JSON");
    assert_eq!(items["items"].as_array().map(Vec::len), Some(1));
    rig.begin_stop();
    let empty = in_time("the end of waiting", other).await.expect("no panic").expect("an answer");
    assert_eq!(empty.status(), 200);
    in_time("a stop", rig.stop()).await;
}

async fn ten_workers_keep_the_order_of_each_thread(opened: Opened) {
    const THREADS: usize = 4;
    const EACH: usize = 12;
    let rig = Rig::start(opened, vec![channel("jobs", None)]).await;
    for n in 0..EACH {
        for thread in 0..THREADS {
            rig.accepted("jobs", text(&format!("m{thread}-{n}"), &format!("551{thread}"))).await;
        }
    }
    let seen: Arc<Mutex<HashMap<String, Vec<String>>>> = Arc::default();
    let worker = async || {
        loop {
            let items = pulled(&rig, 3, "0s").await;
            if items.is_empty() {
                if seen.lock().await.values().map(Vec::len).sum::<usize>() == THREADS * EACH {
                    return;
                }
                tokio::task::yield_now().await;
            }
            for item in items {
                let sent: Value = serde_json::from_str(item["body"].as_str().expect("a body")).expect("JSON");
                let id = sent["entry"][0]["changes"][0]["value"]["messages"][0]["id"].as_str().expect("an id").to_owned();
                seen.lock().await.entry(item["thread"].as_str().expect("a thread").to_owned()).or_default().push(id);
                let (status, said) = asked(&rig, "/v1/settle", json!({"lease": item["lease"], "outcome": "done"})).await;
                assert_eq!(status, 200, "{said}");
            }
        }
    };
    in_time("all of it", join_all((0..10).map(|_| worker()))).await;
    let seen = seen.lock().await;
    assert_eq!(seen.len(), THREADS);
    for (thread, ids) in &*seen {
        let number = thread.chars().last().expect("a name");
        let expected: Vec<String> = (0..EACH).map(|n| format!("m{number}-{n}")).collect();
        assert_eq!(ids, &expected, "{thread}");
    }
    rig.stop().await;
}

async fn one_look_serves_all_who_wait(opened: Opened) {
    let rig = Rig::start(opened, vec![channel("jobs", None)]).await;
    let waiting = join_all((0..20).map(|_| pulled(&rig, 1, "30s")));
    let bring = async {
        for n in 0..20 {
            rig.accepted("jobs", text(&format!("m{n}"), &format!("55119{n:02}"))).await;
        }
    };
    let (got, ()) = tokio::join!(in_time("an item for each", waiting), bring);
    let mut ids: Vec<&str> = got.iter().flatten().filter_map(|item| item["event_id"].as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20, "each got one, and no two the same");
    rig.stop().await;
}

/// The embedded store has one owner, and that is killed; the workers are other processes, and go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_hand_stays_so_when_hapax_is_killed_or_stopped() {
    let folder = crate::quick_folder();
    let (program, poster) = (program(folder.path(), None, ""), Poster::new());
    let (process, address) = program.serve().await.expect("it starts");
    for (id, from) in [("m1", "5511"), ("m2", "5512"), ("m3", "5513")] {
        assert_eq!(poster.post_until_taken(address, text(id, from)).await.status, 200);
    }
    let pull = json!({"channel": "shop", "max": 10});
    let pulled = poster.ask(address, "/v1/pull", &pull).await.expect("an answer");
    let items = pulled["items"].as_array().expect("items").clone();
    assert_eq!(items.len(), 3, "{pulled}");
    process.kill_nine().await.expect("it ended");

    let (process, address) = program.serve().await.expect("it starts");
    assert_eq!(poster.ask(address, "/v1/pull", &pull).await, Some(json!({"items": []})), "all of them are in hand");
    let done = |item: &Value| json!({"lease": item["lease"], "outcome": "done"});
    let settled = poster.ask(address, "/v1/settle", &done(&items[0])).await.expect("it counts");
    assert_eq!((&settled["status"], &settled["repeated"]), (&json!("done"), &json!(false)));
    poster.ask(address, "/v1/extend", &json!({"lease": items[1]["lease"]})).await.expect("it lasts");
    assert!(process.stop().await.expect("it stops").success());

    let (process, address) = program.serve().await.expect("it starts");
    let settled = poster.ask(address, "/v1/settle", &done(&items[1])).await.expect("it counts");
    assert_eq!((&settled["status"], &settled["repeated"]), (&json!("done"), &json!(false)));
    let back = json!({"lease": items[2]["lease"], "outcome": "hand_back"});
    poster.ask(address, "/v1/settle", &back).await.expect("it counts");
    let again = poster.ask(address, "/v1/pull", &pull).await.expect("an answer");
    assert_eq!((&again["items"][0]["event_id"], &again["items"][0]["attempt"]), (&items[2]["event_id"], &json!(2)), "{again}");
    assert_eq!(again["items"].as_array().map(Vec::len), Some(1));
    assert!(process.stop().await.expect("it stops").success());
}
