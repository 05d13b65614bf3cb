//! What tests of sending share: a channel that sends to a fake provider, and questions about what became of it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax_domain::{MessageId, Priority, RetryPolicy, Status};
use hapax_gateway::settings::{Channel, OnUnknown, Rate};
use hapax_store::clock::SystemClock;
use hapax_store::{MessageRow, NewMessage, Store, Submitted};
use hapax_testkit::fake_provider::{Arrived, Asked, FakeProvider, Play};

use crate::rig::{channel, eventually};

pub(crate) const ACCOUNT: &str = "700001";
pub(crate) const OTHER_ACCOUNT: &str = "700002";
pub(crate) const FAST: Rate = Rate { count: 1_000_000, per_ms: 1_000, burst: 1_000_000 };

/// The provider, and what reached the phones so far.
pub(crate) struct Phones {
    pub(crate) provider: FakeProvider,
}

impl Phones {
    pub(crate) async fn willing() -> Self {
        Self::start(|_| Play::Act).await
    }

    pub(crate) async fn start(script: impl Fn(&Asked) -> Play + Send + Sync + 'static) -> Self {
        Self { provider: FakeProvider::start(script).await.expect("a provider") }
    }

    /// The message is on the phone, if it gets there, only when the future is ready.
    pub(crate) async fn start_slow(script: impl Fn(Asked) -> BoxFuture<'static, Play> + Send + Sync + 'static) -> Self {
        let provider = FakeProvider::start_slow(Arc::new(SystemClock::new()), script);
        Self { provider: provider.await.expect("a provider") }
    }

    pub(crate) fn reached(&self) -> Vec<Arrived> {
        self.provider.journal()
    }

    /// What the provider calls a message that reached its phone.
    pub(crate) fn id_of(&self, id: MessageId) -> Option<String> {
        let handle = id.to_string();
        self.reached().into_iter().find(|arrived| arrived.handle.as_ref() == Some(&handle)).map(|arrived| arrived.provider_id)
    }

    /// How often each message reached its phone.
    pub(crate) fn times(&self) -> HashMap<String, usize> {
        let mut times = HashMap::new();
        for arrived in self.reached() {
            *times.entry(arrived.handle.expect("our handle")).or_default() += 1;
        }
        times
    }

    pub(crate) fn assert_nobody_got_one_twice(&self) {
        let twice: Vec<_> = self.times().into_iter().filter(|(_, times)| *times > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}

pub(crate) fn refuse(status: u16, code: &str) -> Play {
    Play::Refuse { status, code: code.to_owned() }
}

/// A WhatsApp channel that sends without limits and tries again soon.
pub(crate) fn sending(name: &str, target: Option<String>, phones: &Phones) -> Channel {
    let mut channel = channel(name, target);
    channel.send = Some(hapax_gateway::settings::Send {
        token: Some("a token for tests only".into()),
        api_base: phones.provider.url(),
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

pub(crate) fn with_send(mut channel: Channel, change: impl FnOnce(&mut hapax_gateway::settings::Send)) -> Channel {
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
        send_at_ms: None,
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
