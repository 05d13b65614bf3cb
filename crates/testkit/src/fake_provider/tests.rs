use std::collections::HashMap;

use hapax_domain::{MessageId, Status};
use hapax_providers::sending::{CallAnswer, CallBody, Found, Outgoing, Sending, Verdict};
use hapax_providers::settings::{GenericSettings, Settings, SignatureRule};
use hapax_providers::{RawRequest, Unsigned, build, build_sending};
use secrecy::SecretString;

use super::*;
use crate::hand_clock::HandClock;

const JID: &str = "551188887777@s.whatsapp.net";

fn settings(api: Api) -> Settings {
    let secrets = vec![SecretString::from("a-long-secret")];
    match api {
        Api::Whatsapp => Settings::Whatsapp { secrets, verify_token: None },
        Api::Telegram => Settings::Telegram { secrets, bot: "bot".to_owned() },
        Api::Gowa => Settings::Gowa { secrets },
        Api::Generic => Settings::Generic(GenericSettings {
            channel: "own".to_owned(),
            signature: SignatureRule::None,
            id: None,
            id_parts: vec![],
            thread: None,
        }),
    }
}

fn sending(api: Api) -> Arc<dyn Sending> {
    build_sending(&settings(api), Some(&SecretString::from("1:a"))).expect("it sends")
}

fn id(number: u128) -> MessageId {
    MessageId(uuid::Uuid::from_u128(number))
}

fn outgoing<'m>(account: &'m str, peer: &'m str, payload: &'m Bytes, number: u128) -> Outgoing<'m> {
    Outgoing { id: id(number), account, peer, payload, begun_ms: Some(1_000_000_000_000) }
}

/// Makes the call for real; `None` when the answer was lost.
async fn perform(fake: &FakeProvider, client: &reqwest::Client, call: hapax_providers::sending::Call) -> Option<CallAnswer> {
    let headers = call.headers.into_iter().collect();
    let CallBody::Whole(body) = call.body else { panic!("kept in pieces") };
    let request = client.request(call.method, fake.url() + &call.path).headers(headers).body(body);
    let response = request.send().await.ok()?;
    let (status, headers) = (response.status(), response.headers().clone());
    Some(CallAnswer { status, headers, body: response.bytes().await.ok()? })
}

async fn send(fake: &FakeProvider, api: Api, account: &str, to: &str, payload: &str) -> Option<Verdict> {
    let (sending, payload) = (sending(api), Bytes::from(payload.to_owned()));
    let message = outgoing(account, to, &payload, 7);
    let call = sending.call(&message).expect("a call");
    perform(fake, &reqwest::Client::new(), call).await.map(|answer| sending.classify(&message, &answer))
}

#[tokio::test]
async fn each_provider_takes_its_own_calls_and_the_journal_shows_them() {
    let fake = FakeProvider::willing().await.expect("a port");
    for (api, account, to, provider_id) in [
        (Api::Whatsapp, "106", "5511988887777", "wamid.OUT1"),
        (Api::Telegram, "1:a", "-77", "-77:2"),
        (Api::Gowa, "shop@s.whatsapp.net", JID, "3EB00000000000000003"),
        (Api::Generic, "", "ana", "out-4"),
    ] {
        let verdict = send(&fake, api, account, to, r#"{"text":"oi"}"#).await;
        assert_eq!(verdict, Some(Verdict::Sent { provider_id: provider_id.to_owned() }));
        let phone = fake.phone(to);
        assert_eq!(phone.len(), 1, "{api:?}");
        let arrived = &phone[0];
        assert_eq!((arrived.api, arrived.account.as_str(), arrived.text.as_deref()), (api, account, Some("oi")));
        assert_eq!(arrived.provider_id, provider_id);
        let handle = matches!(api, Api::Whatsapp | Api::Generic).then(|| id(7).to_string());
        assert_eq!(arrived.handle, handle);
    }
    assert_eq!((fake.called(4).await.len(), fake.arrived(4).await.len()), (4, 4));
}

#[tokio::test]
async fn notices_put_nothing_on_a_phone() {
    let fake = FakeProvider::willing().await.expect("a port");
    for (api, to, payload) in [
        (Api::Whatsapp, "5511988887777", r#"{"status":"read","message_id":"wamid.A"}"#),
        (Api::Telegram, "77", r#"{"method":"sendChatAction","action":"typing"}"#),
        (Api::Gowa, JID, r#"{"method":"chat-presence","action":"start"}"#),
        (Api::Gowa, JID, r#"{"method":"read","message_id":"3EB0"}"#),
    ] {
        let verdict = send(&fake, api, "1", to, payload).await;
        assert_eq!(verdict, Some(Verdict::Sent { provider_id: id(7).to_string() }), "{payload}");
    }
    assert!(fake.journal().is_empty());
}

#[tokio::test]
async fn faults_are_told_apart_by_what_reached_the_phone() {
    let refuse = |status, code: &str| Play::Refuse { status, code: code.to_owned() };
    for (api, play, reaches, expected) in [
        (Api::Whatsapp, Play::TooMany { retry_after_s: Some(3) }, 0, "Retry"),
        (Api::Telegram, Play::TooMany { retry_after_s: Some(3) }, 0, "SlowDown"),
        (Api::Gowa, Play::TooMany { retry_after_s: Some(3) }, 0, "Retry"),
        (Api::Whatsapp, Play::Down(503), 0, "Unknown"),
        (Api::Whatsapp, Play::ActThenFail(500), 1, "Unknown"),
        (Api::Whatsapp, refuse(400, "131047"), 0, "Failed"),
        (Api::Whatsapp, refuse(401, "190"), 0, "StopAccount"),
        (Api::Telegram, refuse(403, "Forbidden: bot was blocked by the user"), 0, "Failed"),
        (Api::Gowa, refuse(404, "DEVICE_NOT_FOUND"), 0, "StopAccount"),
        (Api::Whatsapp, Play::Cut, 0, "None"),
        (Api::Whatsapp, Play::ActThenCut, 1, "None"),
        (Api::Whatsapp, Play::ActThenLate(Duration::from_millis(1)), 1, "Sent"),
    ] {
        let fake = FakeProvider::playing(vec![play.clone()]).await.expect("a port");
        let to = if api == Api::Gowa { JID } else { "5511988887777" };
        let verdict = send(&fake, api, "1", to, r#"{"text":"oi"}"#).await;
        let shown = verdict.as_ref().map_or("None".to_owned(), |verdict| format!("{verdict:?}"));
        assert!(shown.starts_with(expected), "{play:?}: {shown}");
        if let Some(Verdict::Retry { after_ms, .. } | Verdict::SlowDown { after_ms, .. }) = verdict {
            assert_eq!(after_ms, Some(3_000));
        }
        assert_eq!((fake.calls().len(), fake.phone(to).len()), (1, reaches), "{play:?}");
        send(&fake, api, "1", to, r#"{"text":"oi"}"#).await.expect("the script is over");
        assert_eq!(fake.phone(to).len(), reaches + 1);
    }
}

#[tokio::test]
async fn a_lost_answer_is_found_in_gowas_history() {
    let clock = HandClock::at(1_000_000_000_500);
    let script = |asked: Asked| -> BoxFuture<'static, Play> {
        Box::pin(async move { if asked.number == 0 { Play::ActThenCut } else { Play::Act } })
    };
    let fake = FakeProvider::start_slow(Arc::new(clock.clone()), script).await.expect("a port");
    let (account, client, sending) = ("shop@s.whatsapp.net", reqwest::Client::new(), sending(Api::Gowa));
    assert_eq!(send(&fake, Api::Gowa, account, JID, r#"{"text":"Olá & tchau"}"#).await, None);
    let look = async |text: &str, to: &str| {
        let payload = Bytes::from(serde_json::json!({ "text": text }).to_string());
        let message = outgoing(account, to, &payload, 7);
        let answer = perform(&fake, &client, sending.lookup(&message).expect("a search")).await.expect("an answer");
        sending.found(&message, &answer)
    };
    let provider_ids = vec![fake.journal()[0].provider_id.clone()];
    assert_eq!(look("Olá & tchau", JID).await, Found::OneOf { provider_ids });
    assert_eq!(look("Olá", JID).await, Found::Nothing);
    assert_eq!(look("Olá & tchau", "552199999999@s.whatsapp.net").await, Found::Nothing);
    assert_eq!(fake.journal().len(), 1);
}

#[tokio::test]
async fn cutting_takes_about_the_share_it_was_told_and_the_same_for_a_seed() {
    let asked = |number| Asked {
        number,
        api: Api::Whatsapp,
        purpose: Purpose::Message,
        account: String::new(),
        to: String::new(),
        text: None,
        handle: None,
        method: Method::POST,
        path_and_query: String::new(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let cuts = |seed| -> Vec<usize> {
        let script = cutting(5, seed);
        (0..2_000).filter(|number| script(&asked(*number)) == Play::ActThenCut).collect()
    };
    for seed in 0..20 {
        assert!((60..=140).contains(&cuts(seed).len()), "{seed}: {}", cuts(seed).len());
    }
    assert_eq!(cuts(3), cuts(3));
    assert_ne!(cuts(3), cuts(4));
    let lookup = Asked { purpose: Purpose::Lookup, ..asked(0) };
    assert_eq!(cutting(100, 0)(&lookup), Play::Act);
}

#[tokio::test]
async fn its_webhooks_are_read_by_the_adapters() {
    let fake = FakeProvider::willing().await.expect("a port");
    send(&fake, Api::Whatsapp, "106", "5511988887777", r#"{"text":"oi","biz_opaque_callback_data":"order 7"}"#).await;
    send(&fake, Api::Gowa, "shop@s.whatsapp.net", JID, r#"{"text":"oi"}"#).await;
    send(&fake, Api::Telegram, "1:a", "77", r#"{"text":"oi"}"#).await;
    let arrived: HashMap<String, Arrived> = fake.journal().into_iter().map(|one| (format!("{:?}", one.api), one)).collect();
    let events = |api, body: &str| {
        let provider = build(&settings(api));
        let unsigned = Unsigned { url: None, headers: &http::HeaderMap::new(), body: body.as_bytes() };
        let headers = provider.sign(unsigned, 0).into_iter().collect();
        let request = RawRequest { method: Method::POST, query: String::new(), headers, body: Bytes::from(body.to_owned()) };
        let mut parsed = provider.parse(&provider.verify(&request, 0).expect("signed"));
        assert_eq!((parsed.events.len(), parsed.problems.len()), (1, 0), "{body}");
        parsed.events.remove(0)
    };
    for (api, name, handle) in [(Api::Whatsapp, "Whatsapp", Some(id(7))), (Api::Gowa, "Gowa", None)] {
        let arrived = &arrived[name];
        for (word, status) in [("delivered", Status::Delivered), ("read", Status::Read)] {
            let event = events(api, &arrived.status_webhook(word, 5_000).expect("a webhook"));
            assert_eq!((event.status, event.at_ms, event.handle), (Some(status), Some(5_000), handle));
            assert_eq!(
                (&event.account, &event.id, event.peer.as_ref()),
                (&arrived.account, &arrived.provider_id, Some(&arrived.to))
            );
        }
        let echo = events(api, &arrived.echo_webhook().expect("a webhook"));
        assert!(echo.echo && echo.text.as_deref() == Some("oi"));
        assert_eq!((&echo.id, echo.peer.as_ref()), (&arrived.provider_id, Some(&arrived.to)));
    }
    assert_eq!(arrived["Telegram"].status_webhook("read", 0), None);
    let restored =
        build(&settings(Api::Whatsapp)).restore(arrived["Whatsapp"].status_webhook("read", 0).expect("one").as_bytes());
    assert!(
        String::from_utf8(restored.expect("ours is in it")).expect("text").contains(r#""biz_opaque_callback_data":"order 7""#)
    );
}
