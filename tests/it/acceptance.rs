//! The seven acceptance tests of a backend with several accounts, by name.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use hapax_domain::{Direction, MessageId, Status, ThreadId};
use hapax_server::config::Config;
use hapax_store::clock::SystemClock;
use hapax_store::{Store, Submitted, ThreadQuery};
use hapax_store_sqlite::{Options, SqliteStore};
use hapax_testkit::fake_provider::Play;
use hapax_testkit::process::Program;

use crate::phones::{
    ACCOUNT, OTHER_ACCOUNT, Phones, all_sent, has_status, message, new_message, refuse, sending, submit, with_send,
};
use crate::program::{ADMIN_TOKEN, disk_folder, store_path};
use crate::rig::{Opened, Rig, SECRET, config, text};

on_every_store! {
    a_thread_isolation
    b_send_is_first_class
    c_receive_updates_the_thread
    d_status_transitions
    e_double_click
    g_two_workers_share_one_store
}

const PEER: &str = "5511988887777";

fn thread(account: &str) -> ThreadId {
    ThreadId { account: account.to_owned(), peer: PEER.to_owned() }
}

async fn a_thread_isolation(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    rig.accepted("shop", text("wamid.one", PEER)).await;
    rig.accepted("shop", text("wamid.two", PEER).replace(ACCOUNT, OTHER_ACCOUNT)).await;
    let id = submit(&rig.store, OTHER_ACCOUNT, PEER, "from the other account").await;
    has_status(&rig.store, id, Status::Sent).await;

    let threads = rig.store.threads(ThreadQuery { limit: 10, ..ThreadQuery::default() }).await.expect("threads").rows;
    let ids: HashSet<String> = threads.iter().map(|row| row.id.to_string()).collect();
    assert_eq!(ids, [ACCOUNT, OTHER_ACCOUNT].map(|account| format!("{account}__{PEER}")).into());
    let entries = async |account: &str| rig.store.thread_messages(&thread(account), None, 10).await.expect("messages").rows;
    assert_eq!(entries(ACCOUNT).await.len(), 1);
    assert_eq!(entries(OTHER_ACCOUNT).await.len(), 2);
    let reached = phones.reached();
    assert_eq!((reached.len(), reached[0].account.as_str(), reached[0].to.as_str()), (1, OTHER_ACCOUNT, PEER));
}

async fn b_send_is_first_class(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    rig.store.pause_account("shop", ACCOUNT, Some("for the test")).await.expect("paused");
    let id = submit(&rig.store, ACCOUNT, PEER, "hello").await;
    let before = message(&rig.store, id).await;
    assert_eq!((before.steps.status(), before.provider_id), (Status::Queued, None), "stored before anything leaves");
    assert_eq!(phones.provider.calls().len(), 0);

    rig.store.pause_account("shop", ACCOUNT, None).await.expect("resumed");
    has_status(&rig.store, id, Status::Sent).await;
    let after = message(&rig.store, id).await;
    assert_eq!(after.provider_id, phones.id_of(id));
    assert_eq!((after.outbox, after.tries.len(), after.tries[0].attempt), (None, 1, 1));
    let steps: Vec<Status> = after.steps.iter().map(|(status, _)| status).collect();
    assert_eq!(steps, [Status::Queued, Status::Sending, Status::Sent]);
    assert_eq!(phones.reached()[0].text.as_deref(), Some("hello"));
    assert!(phones.id_of(id).is_some());
}

async fn c_receive_updates_the_thread(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    for id in ["wamid.one", "wamid.two", "wamid.two"] {
        rig.post("shop", text(id, PEER)).await;
    }
    let row = rig.store.thread(&thread(ACCOUNT)).await.expect("answers").expect("a thread");
    assert_eq!((row.unread, row.last_text.as_deref()), (2, Some("this is wamid.two")), "a copy is not a second message");
    assert_eq!(row.last_direction, Direction::In);
    assert!(rig.store.mark_read(&row.id).await.expect("answers"));

    let id = submit(&rig.store, ACCOUNT, PEER, "an answer").await;
    has_status(&rig.store, id, Status::Sent).await;
    let row = rig.store.thread(&row.id).await.expect("answers").expect("a thread");
    assert_eq!((row.unread, row.last_text.as_deref(), row.last_direction), (0, Some("an answer"), Direction::Out));
}

async fn d_status_transitions(opened: Opened) {
    let phones = Phones::start(|_| Play::ActThenLate(Duration::from_secs(1))).await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    let id = submit(&rig.store, ACCOUNT, PEER, "hello").await;
    let arrived = phones.provider.arrived(1).await.remove(0);
    let heard = async |word: &str| {
        let (code, answer) = rig.post("shop", arrived.status_webhook(word, 1_760_000_002_000).expect("a webhook")).await;
        assert_eq!(code, 200, "{answer}");
        message(&rig.store, id).await.steps.status()
    };
    // Meta's webhook overtakes its own answer.
    assert_eq!(heard("delivered").await, Status::Delivered);
    assert!(message(&rig.store, id).await.outbox.is_some(), "the answer is still to come");
    all_sent(&rig.store).await;
    assert_eq!(message(&rig.store, id).await.steps.status(), Status::Delivered);
    for (word, then) in
        [("sent", Status::Delivered), ("read", Status::Read), ("failed", Status::Read), ("delivered", Status::Read)]
    {
        assert_eq!(heard(word).await, then, "after {word}");
    }
    let row = message(&rig.store, id).await;
    assert_eq!(row.provider_id, phones.id_of(id));
    assert!(row.steps.iter().any(|step| step == (Status::Read, 1_760_000_002_000)), "the time of each step is kept");
    assert_eq!(phones.reached().len(), 1);
}

async fn e_double_click(opened: Opened) {
    let phones = Phones::willing().await;
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    let clicks = (0..8).map(|_| rig.store.submit(new_message(ACCOUNT, PEER, "hello", "click")));
    let submitted: Vec<Submitted> = join_all(clicks).await.into_iter().map(|clicked| clicked.expect("taken")).collect();
    assert_eq!(submitted.iter().filter(|clicked| matches!(clicked, Submitted::New(_))).count(), 1);
    let ids: HashSet<MessageId> = submitted.iter().map(|clicked| clicked.message()).collect();
    assert_eq!(ids.len(), 1, "all were told of the same message");
    let other = rig.store.submit(new_message(ACCOUNT, PEER, "another text", "click")).await.expect("answers");
    assert_eq!(other, Submitted::Mismatch(submitted[0].message()));
    all_sent(&rig.store).await;
    let again = rig.store.submit(new_message(ACCOUNT, PEER, "hello", "click")).await.expect("answers");
    assert_eq!(again, Submitted::Replayed(submitted[0].message()), "also after it was sent");
    assert_eq!(phones.provider.calls().len(), 1);
}

async fn g_two_workers_share_one_store(opened: Opened) {
    const MESSAGES: usize = 60;
    let phones = Phones::start(|_| Play::ActThenLate(Duration::from_millis(5))).await;
    let named = |name: &str| Config {
        instance: Some(name.to_owned()),
        ..config(vec![with_send(sending("shop", None, &phones), |send| send.concurrency = 2)])
    };
    let second = Opened { store: Arc::clone(&opened.store), clock: Arc::clone(&opened.clock), folder: opened.folder.clone() };
    let first = Rig::start_with(opened, named("first")).await;
    let second = Rig::start_with(second, named("second")).await;
    let mut ids = Vec::new();
    for number in 0..MESSAGES {
        ids.push(submit(&first.store, ACCOUNT, &format!("55110{number}"), "hello").await);
    }
    all_sent(&first.store).await;
    let mut workers = HashSet::new();
    for id in ids {
        let row = message(&first.store, id).await;
        assert_eq!((row.steps.status(), row.tries.len()), (Status::Sent, 1), "leased by one, once");
        workers.insert(row.tries[0].worker.clone());
    }
    assert_eq!(workers, HashSet::from(["first".to_owned(), "second".to_owned()]), "both had a share");
    assert_eq!(phones.provider.calls().len(), MESSAGES);
    phones.assert_nobody_got_one_twice();
    second.stop().await;
    first.stop().await;
}

/// The real program, killed with signal 9 while messages are queued, leased and begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f_restart_in_mid_queue() {
    const MESSAGES: usize = 200;
    const KILLS: u64 = 12;
    let phones = Phones::start(|asked| match asked.number % 41 {
        40 => refuse(400, "100"),
        39 => Play::Cut,
        number => Play::ActThenLate(Duration::from_millis((number * 37 % 60) as u64)),
    })
    .await;
    let folder = disk_folder();
    let ids = fill(folder.path(), MESSAGES).await;
    let hapax = sending_program(folder.path(), &phones);
    for kill in 0..KILLS {
        let calls = phones.provider.calls().len();
        let (process, _) = hapax.serve().await.expect("it starts");
        phones.provider.called(calls + 1).await;
        let status = process.kill_nine_after(Duration::from_millis(kill * 7 % 50)).await.expect("killed");
        assert_eq!(status.signal(), Some(9), "it ran until it was killed");
    }
    let store = open(folder.path());
    let opened = Opened { store: Arc::clone(&store), clock: Arc::new(SystemClock::new()), folder: None };
    let rig = Rig::start(opened, vec![sending("shop", None, &phones)]).await;
    all_sent(&store).await;
    rig.stop().await;

    phones.assert_nobody_got_one_twice();
    let times = phones.times();
    let mut unknown = 0;
    for id in ids {
        let row = message(&store, id).await;
        let reached = times.get(&id.to_string()).copied().unwrap_or_default();
        match row.steps.status() {
            Status::Sent => assert_eq!((reached, row.provider_id), (1, phones.id_of(id))),
            Status::Failed => assert_eq!(reached, 0),
            Status::Unknown => unknown += 1,
            other => panic!("{id} is {other:?}: {row:?}"),
        }
    }
    assert!(unknown > 0, "kills met messages that were begun");
}

fn sending_program(folder: &Path, phones: &Phones) -> Program {
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin_token = \"{ADMIN_TOKEN}\"\nstore = \"sqlite:{}\"\n[log]\nfilter = \"off\"\n\
         [channel.shop]\nprovider = \"whatsapp\"\nsecret = \"{SECRET}\"\nverify_token = \"knock knock\"\n\
         token = \"a token for tests only\"\napi_base = \"{}\"\non_unknown = \"hold\"\nsend_concurrency = 4\n",
        store_path(folder).display(),
        phones.provider.url(),
    );
    Program::new(env!("CARGO_BIN_EXE_hapax"), folder, &config).expect("a config file")
}

fn open(folder: &Path) -> Arc<dyn Store> {
    let opened = SqliteStore::open(&store_path(folder), Arc::new(SystemClock::new()), &Options::default());
    Arc::new(opened.expect("the store opens"))
}

async fn fill(folder: &Path, messages: usize) -> Vec<MessageId> {
    let store = open(folder);
    let mut ids = Vec::new();
    for number in 0..messages {
        ids.push(submit(&store, ACCOUNT, &format!("55119{number:05}"), "hello").await);
    }
    ids
}
