//! Fleets that send: a bot that answers, a provider that cannot be relied on, and what must be on the phones afterwards.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use hapax_testkit::fake_bot::{Call, Say};
use hapax_testkit::fake_provider::Play;
use serde_json::{Value, json};

use crate::conversation::{id_in, moody};
use crate::phones::{Phones, refuse};
use crate::program::Poster;
use crate::rig::eventually;

/// The lines of a channel that sends to these phones, as fast as it can, and holds what is in doubt.
pub(crate) fn sending_to(phones: &Phones) -> String {
    format!(
        "token = \"a token for tests only\"\napi_base = \"{}\"\non_unknown = \"hold\"\nrate = \"1000/s\"\nchat_rate = \"1000/s\"\n\
         send_attempts = 1000\nsend_lease = \"5s\"\nsend_timeout = \"2s\"\n",
        phones.provider.url()
    )
}

/// One in ten of its answers is lost after or before it acted, and one in ten says to come again.
pub(crate) async fn unreliable() -> Phones {
    Phones::start(|asked| match asked.number % 40 {
        3 | 24 => Play::ActThenCut,
        11 => Play::Cut,
        17 => Play::Down(503),
        5 | 28 => refuse(400, "131016"),
        33 => Play::TooMany { retry_after_s: None },
        _ => Play::Act,
    })
    .await
}

/// Whether the bot has something to say to this message.
fn wants_answer(id: &str) -> bool {
    id.bytes().map(usize::from).sum::<usize>() % 3 == 0
}

fn answer_to(id: &str) -> Say {
    Say::Answer {
        status: 200,
        headers: vec![("content-type", "application/vnd.hapax.replies+json".to_owned())],
        body: json!({ "replies": [{ "text": format!("re {id}") }] }).to_string(),
    }
}

/// As moody as the others, and answers some messages, the same whenever it is asked about one.
pub(crate) fn talkative(call: &Call) -> (Duration, Say) {
    let id = id_in(call);
    let (wait, status) = match moody(call.number) {
        Say::Late(wait, status) => (wait, status),
        Say::Status(status) => (Duration::ZERO, status),
        _ => (Duration::ZERO, 200),
    };
    (wait, if status == 200 && wants_answer(&id) { answer_to(&id) } else { Say::Status(status) })
}

/// Answers everything at once.
pub(crate) fn answers_all(call: &Call) -> Say {
    answer_to(&id_in(call))
}

/// Waits as long as the messages left become fewer.
async fn all_sent(at: SocketAddr) {
    let poster = Poster::new();
    let mut left = u64::MAX;
    while left > 0 {
        let mut now = left;
        eventually("more is sent", async || {
            let stats: Value =
                poster.get(at, "/v1/stats").await.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            now = stats["outbox"]["waiting"].as_u64().unwrap_or(left);
            now < left
        })
        .await;
        left = now;
    }
}

/// What hapax says it does not know about.
async fn in_doubt(at: SocketAddr) -> HashSet<String> {
    let poster = Poster::new();
    let (mut texts, mut after) = (HashSet::new(), String::new());
    loop {
        let page = poster.get(at, &format!("/v1/outbox?unknown=true&limit=500{after}")).await.expect("a page");
        let page: Value = serde_json::from_str(&page).expect("JSON");
        for item in page["items"].as_array().expect("items") {
            assert!(texts.insert(item["text"].as_str().expect("a text").to_owned()), "there is one message for a reply: {item}");
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return texts,
        }
    }
}

/// Each reply is on its phone once, or nobody knows and hapax says so: then it may be there, once.
pub(crate) async fn each_reply_came_once_or_is_in_doubt<'i>(at: SocketAddr, phones: &Phones, ids: impl Iterator<Item = &'i str>) {
    all_sent(at).await;
    let wanted: HashSet<String> = ids.filter(|id| wants_answer(id)).map(|id| format!("re {id}")).collect();
    let (came, doubted) = (came(phones), in_doubt(at).await);
    let twice: Vec<_> = came.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "more than once on a phone: {twice:?}");
    let lost: Vec<_> = wanted.iter().filter(|text| !came.contains_key(*text) && !doubted.contains(*text)).collect();
    assert!(lost.is_empty(), "neither on a phone nor in doubt: {lost:?}");
    let unasked: Vec<_> = came.keys().chain(&doubted).filter(|text| !wanted.contains(*text)).collect();
    assert!(unasked.is_empty(), "nobody answered that: {unasked:?}");
    assert!(came.len() * 2 > wanted.len(), "most came: {} of {}, {} in doubt", came.len(), wanted.len(), doubted.len());
}

/// How often each text came.
pub(crate) fn came(phones: &Phones) -> HashMap<String, usize> {
    let mut times = HashMap::new();
    for arrived in phones.reached() {
        *times.entry(arrived.text.unwrap_or_default()).or_default() += 1;
    }
    times
}
