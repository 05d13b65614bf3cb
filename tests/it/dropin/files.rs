//! Files that a bot sends: kept in pieces beside the message, sent as they came, and gone afterwards.

use hapax_testkit::fake_bot::{Call, Say};
use hapax_testkit::fake_provider::FakeProvider;
use hapax_testkit::process::Program;

use super::program::config;
use super::{Answer, Library, TOKEN, chat_of, served, update};
use crate::phones::Phones;
use crate::rig::{Opened, Rig, eventually, in_time};

on_every_store! {
    a_file_is_sent_once_however_it_is_wrapped_and_is_gone_afterwards
    what_is_no_whole_file_is_refused_and_leaves_nothing
}

/// As libraries write it, each time with another boundary.
fn in_parts(boundary: &str, chat: i64, file: &[u8]) -> Vec<u8> {
    let mut body = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"chat_id\"\r\n\r\n{chat}\r\n").into_bytes();
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"document\"; filename=\"a.bin\"\r\nContent-Type: application/octet-stream\r\n\r\n"
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(file);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

async fn send_file(library: &Library, boundary: &str, body: Vec<u8>) -> Answer {
    let asked = library.client.post(library.url("sendDocument"));
    let asked = asked.header("content-type", format!("multipart/form-data; boundary={boundary}"));
    let answer = asked.body(body).send().await.expect("an answer");
    Answer { status: answer.status().as_u16(), body: answer.text().await.expect("a body") }
}

async fn a_file_is_sent_once_however_it_is_wrapped_and_is_gone_afterwards(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let handle = |library: Library, call: Call| -> futures_util::future::BoxFuture<'static, Say> {
        Box::pin(async move {
            let boundary = format!("drawn-by-lot-{}", call.attempt());
            let body = in_parts(&boundary, chat_of(&call), &vec![call.attempt().min(1) as u8; 700_000]);
            let answer = send_file(&library, &boundary, body).await;
            library.heard.lock().expect("no panic").push(serde_json::json!(["file", answer.status, answer.body]));
            if call.attempt() == 1 { Say::Hang } else { Say::Status(200) }
        })
    };
    let bot = library.bot(handle).await;
    let rig = Rig::start(opened, vec![served("helpbot", Some(bot.url()), &phones)]).await;
    library.is_given(&rig);
    update(&rig, "helpbot", 1, 77).await;
    rig.settled().await;
    let calls = phones.provider.calls();
    assert_eq!(calls.len(), 1, "sent once");
    assert_eq!(calls[0].body, in_parts("drawn-by-lot-1", 77, &vec![1; 700_000]), "as it came");
    assert!(calls[0].headers["content-type"].to_str().expect("text").contains("drawn-by-lot-1"));
    let heard = library.heard("file");
    assert_eq!(heard.len(), 2);
    assert_eq!(heard[0], heard[1]);
    eventually("all pieces are gone", async || {
        rig.store.pieces_held().await.expect("an answer").iter().all(|(_, bytes)| *bytes == 0)
    })
    .await;
}

async fn what_is_no_whole_file_is_refused_and_leaves_nothing(opened: Opened) {
    let (phones, library) = (Phones::willing().await, Library::default());
    let rig = Rig::start(opened, vec![served("helpbot", None, &phones)]).await;
    library.is_given(&rig);
    let mut cut = in_parts("b", 77, &vec![5; 600_000]);
    cut.truncate(550_000);
    let answer = send_file(&library, "b", cut).await;
    assert_eq!((answer.status, &answer.json()["ok"]), (400, &false.into()), "{answer:?}");
    assert_eq!(phones.provider.calls().len(), 0);
    eventually("nothing is left", async || {
        rig.store.pieces_held().await.expect("an answer").iter().all(|(_, bytes)| *bytes == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_megabytes_are_sent_in_bounded_memory() {
    const LENGTH: usize = 20 << 20;
    let (phones, folder) = (FakeProvider::willing().await.expect("a provider"), crate::quick_folder());
    let store = format!("sqlite:{}", folder.path().join("hapax.db").display());
    let text = format!("{}wait = \"120s\"\n", config(&store, "", &phones.url()));
    let hapax = Program::new(env!("CARGO_BIN_EXE_hapax"), folder.path(), &text).expect("a config");
    let (process, at) = hapax.serve().await.expect("it starts");
    let client = reqwest::Client::new();
    let send = async |byte: u8, length: usize| {
        let asked = client.post(format!("http://{at}/bot{TOKEN}/sendDocument"));
        let asked = asked.header("content-type", "multipart/form-data; boundary=b");
        asked.body(in_parts("b", 77, &vec![byte; length])).send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(send(1, 1 << 20).await, 200, "to warm up");
    let before = process.resident_mb().unwrap_or_default();
    let statuses = in_time("all of them", futures_util::future::join_all((2..14).map(|byte| send(byte, LENGTH)))).await;
    assert_eq!(statuses, [200; 12]);
    let after = process.resident_mb().unwrap_or_default();
    assert!(after < before + 128, "240 MB were sent: {before} MB before, {after} MB after");
    let lengths: Vec<usize> = phones.calls().iter().map(|call| call.body.len()).collect();
    assert!(lengths[1..].iter().all(|length| *length > LENGTH), "{lengths:?}");
    process.stop().await.expect("it stops");
}
