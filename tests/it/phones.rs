//! WhatsApp's send side, with a journal of what reached the phones, and what tests of sending share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::config::{self, Channel, OnUnknown, Rate};
use hapax::domain::{MessageId, Priority, RetryPolicy, Status};
use hapax::store::{MessageRow, NewMessage, Store, Submitted};
use hapax::testkit::fake_bot::{Call, FakeBot, Say};

use crate::rig::{Rig, change, channel, eventually, webhook};

pub(crate) const ACCOUNT: &str = "700001";
pub(crate) const OTHER_ACCOUNT: &str = "700002";
pub(crate) const FAST: Rate = Rate { count: 1_000_000, per_ms: 1_000, burst: 1_000_000 };

/// One request to send, as the provider saw it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Counts from 0.
    pub(crate) number: usize,
    pub(crate) account: String,
    pub(crate) to: String,
    pub(crate) text: String,
    pub(crate) handle: String,
}

/// What the provider does with it.
pub(crate) enum Fate {
    /// It reaches the phone, and we hear of it.
    Take,
    /// It reaches the phone, and the connection breaks.
    Cut,
    /// It reaches no phone.
    Refuse(u16, &'static str),
}

/// The provider, and what reached the phones so far.
pub(crate) struct Phones {
    pub(crate) provider: FakeBot,
    journal: Arc<Mutex<Vec<Asked>>>,
}

impl Phones {
    pub(crate) async fn willing() -> Self {
        Self::start(|_| Fate::Take).await
    }

    pub(crate) async fn start(fate: impl Fn(&Asked) -> Fate + Send + Sync + 'static) -> Self {
        Self::start_slow(move |asked| {
            let fate = fate(&asked);
            Box::pin(async move { fate })
        })
        .await
    }

    /// The message is on the phone, if it gets there, only when the future is ready.
    pub(crate) async fn start_slow(fate: impl Fn(Asked) -> BoxFuture<'static, Fate> + Send + Sync + 'static) -> Self {
        let journal: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let provider = FakeBot::start_slow({
            let journal = Arc::clone(&journal);
            move |call| {
                let (asked, journal) = (read(&call), Arc::clone(&journal));
                let fate = fate(asked.clone());
                Box::pin(async move {
                    let fate = fate.await;
                    if !matches!(fate, Fate::Refuse(..)) {
                        journal.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
                    }
                    match fate {
                        Fate::Take => answer(200, serde_json::json!({"messages": [{"id": wamid(&asked.handle)}]}).to_string()),
                        Fate::Cut => Say::Hang,
                        Fate::Refuse(status, body) => answer(status, body.to_owned()),
                    }
                })
            }
        });
        Self { provider: provider.await.expect("a provider"), journal }
    }

    pub(crate) fn api_base(&self) -> String {
        format!("http://{}", self.provider.address)
    }

    pub(crate) fn reached(&self) -> Vec<Asked> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often each message reached its phone.
    pub(crate) fn times(&self) -> HashMap<String, usize> {
        let mut times = HashMap::new();
        for asked in self.reached() {
            *times.entry(asked.handle).or_default() += 1;
        }
        times
    }

    pub(crate) fn assert_nobody_got_one_twice(&self) {
        let twice: Vec<_> = self.times().into_iter().filter(|(_, times)| *times > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}

/// What the provider calls a message.
pub(crate) fn wamid(handle: &str) -> String {
    format!("wamid.of.{handle}")
}

fn answer(status: u16, body: String) -> Say {
    Say::Answer { status, headers: vec![("content-type", "application/json".to_owned())], body }
}

fn read(call: &Call) -> Asked {
    let body: serde_json::Value = serde_json::from_slice(&call.body).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    Asked {
        number: call.number,
        account: call.path.split('/').nth(2).expect("an account in the path").to_owned(),
        to: text(&body["to"]),
        text: text(&body["text"]["body"]),
        handle: text(&body["biz_opaque_callback_data"]),
    }
}

/// A WhatsApp channel that sends without limits and tries again soon.
pub(crate) fn sending(name: &str, target: Option<String>, phones: &Phones) -> Channel {
    let mut channel = channel(name, target);
    channel.send = Some(config::Send {
        token: Some("a token for tests only".into()),
        api_base: phones.api_base(),
        on_unknown: OnUnknown::Hold,
        retry: RetryPolicy { first_ms: 20, cap_ms: 50, attempts: 5 },
        lease_ms: 10_000,
        timeout_ms: 5_000,
        rate: FAST,
        chat_rate: FAST,
        concurrency: 16,
    });
    channel
}

pub(crate) fn with_send(mut channel: Channel, change: impl FnOnce(&mut config::Send)) -> Channel {
    change(channel.send.as_mut().expect("it sends"));
    channel
}

pub(crate) fn new_message(account: &str, peer: &str, text: &str, request_id: &str) -> NewMessage {
    let payload = Bytes::from(serde_json::json!({ "text": text }).to_string());
    NewMessage {
        channel: "shop".into(),
        account: account.to_owned(),
        peer: peer.to_owned(),
        request_id: request_id.to_owned(),
        fingerprint: *blake3::hash(format!("{peer} {text}").as_bytes()).as_bytes(),
        text: Some(text.to_owned()),
        payload,
        priority: Priority::Normal,
        reply_to: None,
    }
}

pub(crate) async fn submit(store: &Arc<dyn Store>, account: &str, peer: &str, text: &str) -> MessageId {
    let request_id = format!("{account} {peer} {text}");
    match store.submit(new_message(account, peer, text, &request_id)).await.expect("submitted") {
        Submitted::New(id) => id,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn message(store: &Arc<dyn Store>, id: MessageId) -> MessageRow {
    store.message(id).await.expect("answers").expect("it is there")
}

pub(crate) async fn has_status(store: &Arc<dyn Store>, id: MessageId, status: Status) {
    eventually(status.name(), async || message(store, id).await.steps.status() == status).await;
}

/// Resolves when nothing waits in the outbox or is being sent; what is in doubt stays.
pub(crate) async fn all_sent(store: &Arc<dyn Store>) {
    eventually("an empty outbox", async || store.stats().await.expect("stats").outbox_waiting == 0).await;
}

/// Posts statuses as Meta does, with our handle.
pub(crate) async fn post_statuses(rig: &Rig, handle: &str, words: &[&str]) {
    let statuses: Vec<_> = words.iter().map(|word| status(handle, word)).collect();
    rig.accepted("shop", webhook(&[change(&[], &statuses)])).await;
}

pub(crate) fn status(handle: &str, word: &str) -> serde_json::Value {
    serde_json::json!({
        "id": wamid(handle), "status": word, "timestamp": "1760000002", "recipient_id": "5511988887777",
        "biz_opaque_callback_data": handle,
    })
}
