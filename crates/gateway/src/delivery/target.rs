//! One channel's target: what the request to it looks like, and what was heard of it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hapax_domain::limits::ANSWER_MAX_BYTES;
use hapax_domain::{EventId, ThreadId};
use hapax_providers::build_sending;
use hapax_providers::sending::Sending;
use hapax_providers::settings::Settings;
use hapax_providers::{Provider, Unsigned};
use hapax_store::{Answer, InboxLease, KeptHeaders};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::{Client, Request, Url};
use tokio::time::Instant;

use super::circuit::Circuit;
use super::judge::{Heard, retry_after_ms};
use super::replies;
use super::standard::StandardSigner;
use crate::channels::Channel;
use crate::http_client::{self, BadCalls, Content, Idle, NoAnswer};
use crate::settings::{self, Mode};
use crate::telemetry::{ChannelTelemetry, Telemetry};
use crate::worker::CallGuard;

/// How long an answer that nobody wants is waited for: about what a new connection may cost.
const DRAIN_TIME: Duration = Duration::from_millis(100);

const EVENT_ID: HeaderName = HeaderName::from_static("hapax-event-id");
const ATTEMPT: HeaderName = HeaderName::from_static("hapax-attempt");
const FENCE: HeaderName = HeaderName::from_static("hapax-fence");
const THREAD: HeaderName = HeaderName::from_static("hapax-thread");
const REPLAY: HeaderName = HeaderName::from_static("hapax-replay");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// As long as the client's own default.
const IDLE: Idle = Idle { most: 1_024, time: Duration::from_secs(90) };

/// The client that all targets share.
pub(super) fn client() -> Result<Client, BadCalls> {
    http_client::new(&IDLE)
}

pub(super) struct Target {
    /// Without a user and password: whoever logs an address would log them.
    url: Url,
    /// Made of the user and password that stood in it.
    login: Option<HeaderValue>,
    client: Client,
    provider: Arc<dyn Provider>,
    /// How replies go out; `None`: this channel only receives.
    pub(super) sending: Option<Arc<dyn Sending>>,
    /// Reads replies in the provider's own form, whether they can be sent or not.
    pub(super) reading: Option<Arc<dyn Sending>>,
    signer: Option<StandardSigner>,
    pub(super) settings: Arc<settings::Channel>,
    pub(super) circuit: Circuit,
    /// Outcomes that are known and that the store did not take yet.
    pub(super) unsettled: AtomicUsize,
    pub(super) telemetry: ChannelTelemetry,
}

impl Target {
    /// `None` for a channel whose events wait to be pulled.
    pub(super) fn new(channel: Channel, client: &Client, telemetry: &Telemetry) -> Result<Option<Self>, BadCalls> {
        let Channel { settings, provider, sending } = channel;
        let Some(address) = &settings.target else { return Ok(None) };
        let url = http_client::read_address("target", &settings.name, address)?;
        let (url, login) = take_login(url);
        let own_form = matches!(settings.provider, Settings::Telegram { .. });
        let reading = || build_sending(&settings.provider, None).filter(|_| own_form);
        Ok(Some(Self {
            url,
            login,
            client: client.clone(),
            provider,
            reading: sending.clone().or_else(reading),
            sending,
            signer: settings.sign_with.as_ref().and_then(StandardSigner::new),
            circuit: Circuit::default(),
            unsettled: AtomicUsize::new(0),
            telemetry: telemetry.channel(&settings.name),
            settings,
        }))
    }

    /// Makes one request; the answer is given back only where it is wanted for repeats.
    pub(super) async fn post(&self, lease: &InboxLease, body: Bytes, guard: &CallGuard, wall_ms: i64) -> (Heard, Option<Answer>) {
        let guarded = guard.body(body.clone());
        let mut request = self.request(&lease.headers, body, wall_ms, |headers, body| {
            self.add_our_headers(headers, lease, body, wall_ms);
        });
        *request.body_mut() = Some(guarded);
        match self.exchange(request, lease.events.first().map(|event| event.id), self.patience(), wall_ms).await {
            // Its body was never asked for: there was no connection to write it to.
            (Heard::TimedOut { after_ms }, _) if !guard.let_go() && !guard.refused() => {
                (Heard::Unreachable(format!("the target cannot be reached: no connection within {after_ms} ms")), None)
            }
            heard => heard,
        }
    }

    /// How long one request may take.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.settings.timeout_ms.max(1) as u64)
    }

    pub(super) async fn exchange(
        &self,
        request: Request,
        event: Option<EventId>,
        patience: Duration,
        wall_ms: i64,
    ) -> (Heard, Option<Answer>) {
        let deadline = Instant::now() + patience;
        let timed_out = Heard::TimedOut { after_ms: patience.as_millis() as i64 };
        let response = match http_client::call(&self.client, request, deadline).await {
            Ok(response) => response,
            Err(NoAnswer::Unreachable(why)) => {
                return (Heard::Unreachable(format!("the target cannot be reached: {why}")), None);
            }
            Err(NoAnswer::Broken(why)) => {
                return (Heard::Broken(format!("the connection to the target broke: {why}")), None);
            }
            Err(NoAnswer::TimedOut) => return (timed_out, None),
        };
        let status = response.status().as_u16();
        let asked = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let heard = Heard::Status { status, retry_after_ms: asked.and_then(|text| retry_after_ms(text, wall_ms)) };
        let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let declared = (200..300).contains(&status) && replies::are_declared(content_type.as_deref());
        let proxied = self.settings.mode == Mode::Proxy;
        if !(proxied || declared || replies::are_possible(content_type.as_deref(), self.reading.as_ref())) {
            // The status was said and decides. What follows is read only so that the connection can be used again.
            http_client::read(response, Instant::now() + DRAIN_TIME).await;
            return (heard, None);
        }
        match http_client::read(response, deadline).await {
            Content::Whole(body) => (heard, Some(Answer { status, content_type, body })),
            // The bot took the event and is not asked twice, but what it said cannot be passed on.
            Content::TooLong => {
                self.telemetry.answer_too_long(event, ANSWER_MAX_BYTES);
                (heard, proxied.then(too_long))
            }
            // The status decides, unless an answer or messages were to follow it: then its word is not whole.
            Content::BrokeOff | Content::TimedOut if !(proxied || declared) => (heard, None),
            Content::BrokeOff => (Heard::Broken("the target's answer broke off".to_owned()), None),
            Content::TimedOut => (timed_out, None),
        }
    }

    /// What the provider would have sent, signed again, with `ours` on top.
    pub(super) fn request(
        &self,
        kept: &KeptHeaders,
        body: Bytes,
        wall_ms: i64,
        ours: impl FnOnce(&mut HeaderMap, &Bytes),
    ) -> Request {
        let mut headers = HeaderMap::with_capacity(24);
        for (name, value) in kept.iter() {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value)) {
                headers.append(name, value);
            }
        }
        let unsigned = Unsigned { url: Some(self.url.as_str()), headers: &headers, body: &body };
        let proof = self.provider.sign(unsigned, wall_ms);
        if let Some(login) = &self.login {
            headers.insert(header::AUTHORIZATION, login.clone());
        }
        // Last: what the channel signs with is what the bot checks.
        for (name, value) in proof {
            headers.insert(name, value);
        }
        ours(&mut headers, &body);
        let mut request = Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into());
        request
    }

    /// What the provider would have sent: only the events that are new, and nothing that only we put there. `None` when the item is a
    /// part of a webhook that cannot be split.
    pub(super) fn body(&self, lease: &InboxLease) -> Option<Bytes> {
        let whole = lease.events.len() as u64 == u64::from(lease.webhook_events);
        self.cut(&lease.body, whole, || lease.events.iter().map(|event| event.index).collect())
    }

    /// The part of a webhook that holds the events with the indexes `keep`.
    pub(super) fn cut(&self, body: &Bytes, whole: bool, keep: impl FnOnce() -> Vec<u32>) -> Option<Bytes> {
        let body = match whole {
            true => body.clone(),
            false => Bytes::from(self.provider.rewrap(body, &keep())?),
        };
        Some(self.provider.restore(&body).map_or(body, Bytes::from))
    }

    fn add_our_headers(&self, headers: &mut HeaderMap, lease: &InboxLease, body: &Bytes, wall_ms: i64) {
        let Some(first) = lease.events.first() else { return };
        let event_id = first.id.to_string();
        // A replay must not look like a copy to a bot that remembers ids.
        let once = lease.replay.map_or_else(|| event_id.clone(), |number| format!("{event_id}.r{number}"));
        self.add_names(headers, &once, first.thread.as_ref(), body, wall_ms);
        set(headers, EVENT_ID, &event_id);
        headers.insert(ATTEMPT, HeaderValue::from(lease.attempt));
        headers.insert(FENCE, HeaderValue::from(lease.fence.0));
        if let Some(number) = lease.replay {
            headers.insert(REPLAY, HeaderValue::from(number));
        }
    }

    /// What tells the bot which webhook this is, and that it is ours.
    pub(super) fn add_names(&self, headers: &mut HeaderMap, once: &str, thread: Option<&ThreadId>, body: &Bytes, wall_ms: i64) {
        if let Some(thread) = thread {
            set(headers, THREAD, &thread.to_string());
        }
        set(headers, IDEMPOTENCY_KEY, once);
        if self.signer.is_some() {
            set(headers, WEBHOOK_ID, once);
        }
        // A trace that the provider began goes on in the bot.
        if !headers.contains_key(TRACEPARENT)
            && let Ok(value) = HeaderValue::from_str(&traceparent(rand::random(), rand::random()))
        {
            headers.insert(TRACEPARENT, value);
        }
        let at_s = wall_ms / 1_000;
        if let Some(signature) = self.signer.as_ref().and_then(|signer| signer.sign(once, at_s, body)) {
            headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(at_s));
            headers.insert(WEBHOOK_SIGNATURE, signature);
        }
    }
}

/// Takes a user and password out of an address, as the header that is made of them. They are bytes, and need not be text.
fn take_login(mut url: Url) -> (Url, Option<HeaderValue>) {
    let mut login = unescape(url.username());
    login.push(b':');
    login.extend(unescape(url.password().unwrap_or_default()));
    // Neither can fail: the address has a host.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    let value = (login.len() > 1).then(|| HeaderValue::try_from(format!("Basic {}", STANDARD.encode(login))).ok()).flatten();
    let hidden = value.map(|mut value| {
        value.set_sensitive(true);
        value
    });
    (url, hidden)
}

/// Undoes percent encoding; a percent sign that begins none stands for itself.
fn unescape(text: &str) -> Vec<u8> {
    let (mut rest, mut bytes) = (text.as_bytes(), Vec::with_capacity(text.len()));
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after.get(..2).filter(|_| first == b'%').and_then(|digits| hex::decode(digits).ok());
        bytes.push(escaped.as_ref().map_or(first, |byte| byte[0]));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    bytes
}

fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
        headers.insert(name, value);
    }
}

/// Begins a W3C trace. All-zero ids would be invalid.
fn traceparent(trace: u128, span: u64) -> String {
    format!("00-{:032x}-{:016x}-01", trace.max(1), span.max(1))
}

/// What the caller hears, each time, in place of an answer that is longer than we keep.
fn too_long() -> Answer {
    let detail = format!("the target took it, and answered with more than {ANSWER_MAX_BYTES} bytes");
    let body = format!(r#"{{"type":"about:blank","title":"Bad Gateway","status":502,"detail":"{detail}"}}"#);
    Answer { status: 502, content_type: Some("application/problem+json".to_owned()), body: Bytes::from(body) }
}
