//! The config is read anew while webhooks come in and handlers are at work: nobody is refused, and nobody is called twice.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hapax_testkit::fake_bot::{Call, FakeBot};
use hapax_testkit::gated_bot::GatedBot;
use serde_json::{Value, json};

use crate::program::{ADMIN_TOKEN, Poster, disk_folder, program, program_with};
use crate::rig::{SECRET, eventually, in_time, signature, text};

/// Changes the config file as an editor does.
fn write(folder: &Path, change: impl FnOnce(String) -> String) {
    let path = folder.join("hapax.toml");
    let text = std::fs::read_to_string(&path).expect("a config");
    let beside = folder.join("hapax.toml.new");
    std::fs::write(&beside, change(text)).expect("written");
    std::fs::rename(beside, path).expect("renamed");
}

/// Asks as `hapax reload` does.
async fn reload(address: SocketAddr) -> (u16, Value) {
    post(address, "/v1/reload", json!({})).await
}

async fn post(address: SocketAddr, path: &str, body: Value) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let ask = client.post(format!("http://{address}{path}")).bearer_auth(ADMIN_TOKEN).json(&body);
    let answer = ask.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

/// Posts without a pause until it is told to stop; every webhook must be taken. Half of the posters come with a new connection each time.
async fn storm(address: SocketAddr, poster: usize, stop: Arc<AtomicBool>, sent: Arc<AtomicUsize>) {
    let idle = if poster.is_multiple_of(2) { 0 } else { 8 };
    let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(idle).build().expect("a client");
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        let body = text(&format!("m-{number}-{poster}"), &format!("peer-{poster}-{}", number % 7));
        let signed = signature(body.as_bytes());
        let post = client.post(format!("http://{address}/in/shop")).header("x-hub-signature-256", signed).body(body);
        let answer = post.send().await.expect("no connection is refused");
        assert_eq!(answer.status().as_u16(), 200, "nobody is refused");
        number += 1;
        sent.fetch_add(1, Ordering::SeqCst);
    }
}

/// The thread of a call, and which of its poster's messages it is.
fn place(call: &Call) -> (String, usize) {
    let body = String::from_utf8_lossy(&call.body);
    let number = body.split("\"m-").nth(1).and_then(|rest| rest.split('-').next()).and_then(|number| number.parse().ok());
    (call.header("hapax-thread").to_owned(), number.expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_a_reload_refuses_nobody_and_calls_nobody_twice() {
    let folder = disk_folder();
    // One bot at two addresses: it sees in which order it is called, whichever it is.
    let bot = FakeBot::willing().await.expect("a bot");
    let targets = [bot.url(), format!("{}?moved", bot.url())].map(|url| format!("target = \"{url}\""));
    let (process, address) = program(folder.path(), Some(&bot.url()), "").serve().await.expect("it starts");
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let storms: Vec<_> =
        (0..4).map(|poster| tokio::spawn(storm(address, poster, Arc::clone(&stop), Arc::clone(&sent)))).collect();
    for round in 0..12 {
        let (from, to) = (&targets[round % 2], &targets[(round + 1) % 2]);
        let extra = format!("[channel.extra]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\n");
        write(folder.path(), |text| {
            let text = text.replace(from, to);
            if round % 2 == 0 { text + &extra } else { text.replace(&extra, "") }
        });
        let (status, answer) = reload(address).await;
        assert_eq!((status, &answer["changed"]), (200, &json!(["shop"])), "{answer}");
        assert_eq!(answer[if round % 2 == 0 { "added" } else { "removed" }], json!(["extra"]), "{answer}");
        let goal = sent.load(Ordering::SeqCst) + 40;
        eventually("webhooks go on", async || sent.load(Ordering::SeqCst) >= goal).await;
    }
    stop.store(true, Ordering::SeqCst);
    for storm in storms {
        storm.await.expect("nobody was refused");
    }
    let sent = sent.load(Ordering::SeqCst);
    let poster = Poster::new();
    eventually("all are settled", async || poster.on_their_way(address).await == Some(0)).await;
    let calls = bot.calls();
    let ids: HashSet<_> = calls.iter().map(|call| call.event_id().to_owned()).collect();
    assert_eq!((calls.len(), ids.len()), (sent, sent), "each once");
    assert!(calls.iter().all(|call| call.attempt() == 1));
    let mut last: HashMap<String, usize> = HashMap::new();
    for (thread, number) in calls.iter().map(place) {
        assert!(last.insert(thread.clone(), number).is_none_or(|before| before < number), "{thread} is in order");
    }
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_at_work_ends_under_the_config_it_began_with() {
    let folder = disk_folder();
    let slow = GatedBot::start(|_| true).await;
    let next = FakeBot::willing().await.expect("a bot");
    let (process, address) = program(folder.path(), Some(&slow.fake.url()), "").serve().await.expect("it starts");
    let poster = Poster::new();
    poster.post_until_taken(address, text("first", "ana")).await;
    in_time("the first call", slow.fake.called(1)).await;
    write(folder.path(), |text| text.replace(&slow.fake.url(), &next.url()));
    assert_eq!(reload(address).await.0, 200);
    poster.post_until_taken(address, text("second", "ana")).await;
    poster.post_until_taken(address, text("third", "bob")).await;
    let calls = in_time("another thread goes on", next.called(1)).await;
    assert!(String::from_utf8_lossy(&calls[0].body).contains("third"), "the first of its thread is still at work");
    slow.let_go(1);
    let calls = in_time("its thread goes on", next.called(2)).await;
    assert!(String::from_utf8_lossy(&calls[1].body).contains("second"));
    eventually("all are settled", async || poster.on_their_way(address).await == Some(0)).await;
    assert_eq!((slow.fake.calls().len(), next.calls().len()), (1, 2), "nobody was called twice");
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_config_is_refused_with_all_reasons_and_the_old_one_stays() {
    let folder = disk_folder();
    let (process, address) = program(folder.path(), None, "").serve().await.expect("it starts");
    let good = std::fs::read_to_string(folder.path().join("hapax.toml")).expect("a config");
    write(folder.path(), |text| text.replace("provider = \"whatsapp\"", "provider = \"watsapp\"") + "atempts = 3\n");
    let (status, problem) = reload(address).await;
    let detail = problem["detail"].as_str().expect("words");
    assert_eq!(status, 422, "{problem}");
    assert!(detail.contains("watsapp") && detail.contains("hapax.toml:") && !detail.contains(SECRET), "{detail}");
    assert_eq!(Poster::new().post_until_taken(address, text("m", "ana")).await.word, "accepted", "the old one stays");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hapax"));
    let server = format!("http://{address}");
    command.current_dir(folder.path()).args(["reload", "--server", &server]).env("HAPAX_ADMIN_TOKEN", ADMIN_TOKEN);
    let done = command.output().await.expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!((done.status.code(), said.contains("watsapp")), (Some(3), true), "{said}");
    let shows = async |line: &str| Poster::new().get(address, "/metrics").await.is_some_and(|text| text.contains(line));
    assert!(shows("hapax_config_refused 1").await && shows("hapax_reloads_total{outcome=\"refused\"} 2").await);
    // A change that needs a restart is refused as well, and all of it is named.
    write(folder.path(), |_| {
        let moved = good.replace("sqlite:", "sqlite:elsewhere-").replace("[log]\nfilter", "[log]\njson = true\nfilter");
        moved.replace(SECRET, "another secret for tests")
    });
    let (status, problem) = reload(address).await;
    let wanted = "store was changed, and needs a restart\n[log] was changed, and needs a restart";
    assert_eq!((status, problem["detail"].as_str()), (422, Some(wanted)), "{problem}");
    assert_eq!(Poster::new().post_until_taken(address, text("n", "ana")).await.word, "accepted", "nothing of it was applied");
    // Once it is right again, a signal is enough.
    write(folder.path(), |_| good.replace(SECRET, "another secret for tests"));
    process.hang_up().expect("a signal");
    eventually("the signal was heard", async || shows("hapax_reloads_total{outcome=\"applied\"} 1").await).await;
    assert!(shows("hapax_config_refused 0").await);
    assert_eq!(Poster::new().post(address, text("o", "ana")).await.expect("an answer").status, 401, "the secret is another now");
    eventually("who did it is written down", async || {
        let audit = Poster::new().get(address, "/v1/audit").await.unwrap_or_default();
        let entries: Value = serde_json::from_str(&audit).unwrap_or_default();
        let told = |by: &str, ok: bool| {
            let mut all = entries["entries"].as_array().into_iter().flatten();
            all.any(|entry| entry["action"] == "reload" && entry["by"] == by && entry["ok"] == ok)
        };
        told("SIGHUP", true) && told("admin", false)
    })
    .await;
    assert!(process.stop().await.expect("it stops").success());
}

/// Without one named, hapax takes the `hapax.toml` of its folder, and none at all is fine at a start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_that_is_gone_or_empty_for_a_moment_closes_no_channel() {
    let folder = disk_folder();
    let (process, address) = program(folder.path(), None, "").at_home().serve().await.expect("it starts");
    let path = folder.path().join("hapax.toml");
    let good = std::fs::read_to_string(&path).expect("a config");
    std::fs::remove_file(&path).expect("removed");
    let (status, problem) = reload(address).await;
    assert_eq!((status, problem["code"].as_str()), (422, Some("unprocessable")), "{problem}");
    assert!(problem["detail"].as_str().expect("words").contains("hapax.toml is not there any more"), "{problem}");
    assert_eq!(Poster::new().post_until_taken(address, text("m", "ana")).await.word, "accepted");
    let start = good.split("[channel.shop]").next().expect("what stands before");
    std::fs::write(&path, start).expect("written");
    let (status, problem) = reload(address).await;
    assert_eq!(
        (status, problem["detail"].as_str().is_some_and(|why| why.contains("no channel is left"))),
        (422, true),
        "{problem}"
    );
    assert_eq!(Poster::new().post_until_taken(address, text("n", "ana")).await.word, "accepted");
    std::fs::write(&path, good).expect("written");
    assert_eq!(reload(address).await.0, 200);
    assert!(process.stop().await.expect("it stops").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_secrets_and_channels_are_as_the_file_says_and_what_waits_goes_on() {
    let folder = disk_folder();
    let (process, address) = program_with(folder.path(), None, "", "mode = \"pull\"").serve().await.expect("it starts");
    let poster = Poster::new();
    let ask = json!({"channel": "shop", "wait": 30});
    let waiting = tokio::spawn(async move { post(address, "/v1/pull", ask).await });
    // A smaller body, and both secrets during a rotation.
    let old = format!("secret = \"{SECRET}\"");
    write(folder.path(), |text| text.replace(&old, &format!("max_body = \"2KB\"\nsecrets = [\"another secret\", \"{SECRET}\"]")));
    assert_eq!(reload(address).await, (200, json!({"added": [], "changed": ["shop"], "removed": []})));
    let large = text(&"m".repeat(3_000), "ana");
    assert_eq!(poster.post(address, large).await.map(|said| said.status), Some(413), "the new limit holds");
    assert_eq!(poster.post_until_taken(address, text("first", "ana")).await.word, "accepted", "the old secret still counts");
    let (status, pulled) = in_time("the pull that waited", waiting).await.expect("an answer");
    assert_eq!((status, pulled["items"].as_array().map(Vec::len)), (200, Some(1)), "{pulled}");
    // What was leased before is settled after.
    write(folder.path(), |text| text.replace("attempts = 1000", "attempts = 7"));
    assert_eq!(reload(address).await.0, 200);
    let lease = &pulled["items"][0]["lease"];
    let (status, settled) = post(address, "/v1/settle", json!({"lease": lease, "outcome": "done"})).await;
    assert_eq!(status, 200, "{settled}");
    // A channel that is gone takes nothing in; what waits in it stays, and is there when it comes back.
    assert_eq!(poster.post_until_taken(address, text("second", "ana")).await.word, "accepted");
    write(folder.path(), |text| text.replace("[channel.shop]", "[channel.other]"));
    let (_, answer) = reload(address).await;
    assert_eq!(answer, json!({"added": ["other"], "changed": [], "removed": ["shop"]}));
    assert_eq!(poster.post(address, text("third", "ana")).await.map(|said| said.status), Some(401), "there is no such channel");
    write(folder.path(), |text| text.replace("[channel.other]", "[channel.shop]"));
    assert_eq!(reload(address).await.0, 200);
    let (_, pulled) = post(address, "/v1/pull", json!({"channel": "shop", "wait": 30})).await;
    assert_eq!(pulled["items"].as_array().map(Vec::len), Some(1), "{pulled}");
    assert!(process.stop().await.expect("it stops").success());
}
