//! One target of a channel: what the request to it looks like, and what was heard of it.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hapax_domain::EventId;
use hapax_domain::limits::ANSWER_MAX_BYTES;
use hapax_providers::build_sending;
use hapax_providers::sending::Sending;
use hapax_providers::settings::Settings;
use hapax_store::{Answer, InboxLease, KeptHeaders};
use http::{HeaderMap, HeaderValue, Method, header};
use tokio::time::Instant;
use url::Url;

use super::circuit::Circuit;
use super::composer::{Composer, Destination};
use super::judge::{Heard, retry_after_ms};
use super::places::Places;
use super::replies;
use crate::channels::Channel;
use crate::http_client::{self, BadCalls, Client, Content, Idle, NoAnswer, Place, Request};
use crate::settings::{self, Mode};
use crate::telemetry::traces::Times;
use crate::telemetry::{CallOfTarget, TargetTelemetry, Telemetry};
use crate::worker::CallGuard;

/// How long an answer that nobody wants is waited for: about what a new connection may cost.
const DRAIN_TIME: Duration = Duration::from_millis(100);

/// As long as the client's own default.
const IDLE: Idle = Idle { most: 1_024, time: Duration::from_secs(90) };

/// The client that all targets share which want no certificate to be shown.
pub(super) fn client() -> Result<Client, BadCalls> {
    Client::new(IDLE)
}

/// The client for a channel's targets.
pub(super) fn client_for(channel: &settings::Channel, shared: &Client) -> Result<Client, BadCalls> {
    match channel.access.tls.is_usual() {
        true => Ok(shared.clone()),
        false => Client::with_tls(IDLE, &channel.access.tls),
    }
}

pub(super) struct Target {
    /// Without a user and password: whoever logs an address would log them.
    url: Url,
    to: Place,
    /// Made of the user and password that stood in it.
    login: Option<HeaderValue>,
    pub(super) composer: Composer,
    /// How replies go out; `None`: this channel only receives.
    pub(super) sending: Option<Arc<dyn Sending>>,
    /// Reads replies in the provider's own form, whether they can be sent or not.
    pub(super) reading: Option<Arc<dyn Sending>>,
    pub(super) settings: Arc<settings::Channel>,
    pub(super) circuit: Circuit,
    pub(super) places: Places,
    pub(super) telemetry: TargetTelemetry,
}

impl Target {
    /// `account` names a target that is not the channel's default, `alone` one that the channel has no other beside.
    pub(super) fn new(
        channel: Channel,
        address: &str,
        account: Option<&str>,
        alone: bool,
        client: &Client,
        telemetry: &Telemetry,
    ) -> Result<Self, BadCalls> {
        let Channel { settings, provider, sending } = channel;
        let url = http_client::read_address("target", &settings.name, address)?;
        let (url, login) = take_login(url);
        let own_form = matches!(settings.provider, Settings::Telegram { .. });
        let reading = || build_sending(&settings.provider, None).filter(|_| own_form);
        Ok(Self {
            to: client.named("target", &settings.name, url.as_str())?,
            url,
            login,
            composer: Composer::new(provider, &settings),
            reading: sending.clone().or_else(reading),
            sending,
            circuit: Circuit::default(),
            places: Places::new(settings.concurrency, alone),
            telemetry: telemetry.target(&settings.name, account),
            settings,
        })
    }

    /// Makes one request; the answer is given back only where it is wanted for repeats.
    pub(super) async fn post(&self, lease: &InboxLease, body: Bytes, guard: &CallGuard, wall_ms: i64) -> (Heard, Option<Answer>) {
        let guarded = guard.body(body.clone());
        let traced = self.telemetry.trace(&lease.headers);
        let mut request = self.request(&lease.headers, body, wall_ms, |headers, body| {
            self.composer.add_our_headers(headers, lease, body, wall_ms);
            traced.inspect(|span| span.context.put(headers));
        });
        request.body = guarded;
        let (event, begun) = (lease.events.first().map(|event| event.id), Instant::now());
        let exchanged = self.exchange(request, event, self.patience(), wall_ms).await;
        self.telemetry.traced(traced, call_of(event, lease.attempt, &exchanged.0), Times::since(begun, wall_ms));
        match exchanged {
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
        let response = match http_client::call(request, deadline).await {
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
            let read = http_client::read(response, Instant::now() + DRAIN_TIME).await;
            if let (Some(event), Content::Whole(body)) = (event, read) {
                self.telemetry.answered(event, status, content_type.as_deref(), &body);
            }
            return (heard, None);
        }
        match http_client::read(response, deadline).await {
            Content::Whole(body) => {
                if let Some(event) = event {
                    self.telemetry.answered(event, status, content_type.as_deref(), &body);
                }
                (heard, Some(Answer { status, content_type, body }))
            }
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
        let (login, own) = (self.login.as_ref(), &self.settings.access.headers);
        let to = Destination { url: Some(self.url.as_str()), login, own: Some(own) };
        let headers = self.composer.headers(to, kept, &body, wall_ms, ours);
        Request { to: self.to.clone(), method: Method::POST, headers, body: http_client::whole(body) }
    }
}

fn call_of(event: Option<EventId>, attempt: u32, heard: &Heard) -> CallOfTarget {
    let (status, failed) = match heard {
        Heard::Status { status, .. } => (Some(*status), (!(200..300).contains(status)).then(|| format!("answered {status}"))),
        Heard::Unreachable(why) | Heard::Broken(why) => (None, Some(why.clone())),
        Heard::TimedOut { after_ms } => (None, Some(format!("no answer within {after_ms} ms"))),
    };
    CallOfTarget { event, attempt, status, failed }
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

/// What the caller hears, each time, in place of an answer that is longer than we keep.
fn too_long() -> Answer {
    let detail = format!("the target took it, and answered with more than {ANSWER_MAX_BYTES} bytes");
    let body = format!(
        r#"{{"type":"about:blank","title":"The target did not take it","status":502,"detail":"{detail}","code":"target_failed"}}"#
    );
    Answer { status: 502, content_type: Some("application/problem+json".to_owned()), body: Bytes::from(body) }
}
