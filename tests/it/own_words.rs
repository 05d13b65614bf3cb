//! Providers whose signature covers more than the body, or who want to hear words of their own: through the door and to the bot.

use std::sync::Arc;

use hapax_gateway::settings::Channel;
use hapax_providers::settings::Settings;
use hapax_providers::{Provider, RawRequest, Unsigned, build};
use hapax_testkit::fake_bot::{Call, FakeBot};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::rig::{Opened, Rig, SECRET, channel};

on_every_store! {
    slack_hears_its_challenge_only_when_it_is_signed
    twilio_hears_empty_twiml_and_the_bot_checks_against_its_own_address
    the_bot_gets_the_same_webhook_id_signed_again
}

/// Posts what the provider would sign, and gives back status, content type and body.
async fn post(rig: &Rig, now_ms: i64, channel: &Channel, headers: &[(&'static str, &str)], body: &str) -> (u16, String, String) {
    let header = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header value"))
    };
    let mut headers: HeaderMap = headers.iter().map(header).collect();
    let unsigned = Unsigned { url: None, headers: &headers, body: body.as_bytes() };
    let signed = build(&channel.provider).sign(unsigned, now_ms);
    headers.extend(signed);
    let request = rig.client.post(rig.url(&format!("/in/{}", channel.name))).headers(headers).body(body.to_owned());
    let answer = request.send().await.expect("an answer");
    let content_type = answer.headers()["content-type"].to_str().expect("text").to_owned();
    (answer.status().as_u16(), content_type, answer.text().await.expect("a body"))
}

/// The check that an unmodified bot makes, with the provider's own rules and the address that it has itself.
fn bot_believes(provider: &Arc<dyn Provider>, call: &Call, now_ms: i64) -> bool {
    let request =
        RawRequest { method: Method::POST, query: String::new(), headers: call.headers.clone(), body: call.body.clone() };
    provider.verify(&request, now_ms).is_ok()
}

async fn slack_hears_its_challenge_only_when_it_is_signed(opened: Opened) {
    let team = Channel { provider: Settings::Slack { secrets: vec![SECRET.into()] }, ..channel("team", None) };
    let now_ms = opened.clock.wall_ms();
    let rig = Rig::start(opened, vec![team.clone()]).await;
    let asked = r#"{"type":"url_verification","token":"x","challenge":"3eZbrw1a"}"#;
    assert_eq!(post(&rig, now_ms, &team, &[], asked).await, (200, "text/plain".to_owned(), "3eZbrw1a".to_owned()));
    let stranger = Channel { provider: Settings::Slack { secrets: vec!["another secret".into()] }, ..team };
    let (status, _, said) = post(&rig, now_ms, &stranger, &[], asked).await;
    assert!(status == 401 && !said.contains("3eZbrw1a"), "{said}");
    assert!(rig.events().await.is_empty(), "a challenge is no event");
}

async fn twilio_hears_empty_twiml_and_the_bot_checks_against_its_own_address(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let at = |public_url: &str| Settings::Twilio { secrets: vec![SECRET.into()], public_url: public_url.to_owned() };
    let sms = Channel { provider: at("https://your.host/in/sms"), ..channel("sms", Some(bot.url())) };
    let now_ms = opened.clock.wall_ms();
    let rig = Rig::start(opened, vec![sms.clone()]).await;
    let account = format!("AC{}", "0".repeat(32));
    let body = format!("MessageSid=SM1&SmsStatus=received&From=%2B15550001&To=%2B15550009&Body=oi&AccountSid={account}");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    for _ in 0..2 {
        let (status, content_type, said) = post(&rig, now_ms, &sms, &form, &body).await;
        assert_eq!((status, content_type.as_str()), (200, "text/xml"));
        assert!(said.ends_with("<Response/>"), "{said}");
    }
    rig.settled().await;
    let calls = bot.calls();
    assert_eq!(calls.len(), 1, "the second was a copy");
    assert!(bot_believes(&build(&at(&bot.url())), &calls[0], now_ms), "{:?}", calls[0]);
    assert!(!bot_believes(&build(&sms.provider), &calls[0], now_ms), "it was signed for the bot's address");
}

async fn the_bot_gets_the_same_webhook_id_signed_again(opened: Opened) {
    let bot = FakeBot::willing().await.expect("a bot");
    let secrets = vec!["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3".into()];
    let billing = Channel { provider: Settings::Standard { secrets }, ..channel("billing", Some(bot.url())) };
    let now_ms = opened.clock.wall_ms();
    let rig = Rig::start(opened, vec![billing.clone()]).await;
    for (name, id) in [("webhook-id", "msg_1"), ("svix-id", "msg_2"), ("webhook-id", "msg_1")] {
        assert_eq!(post(&rig, now_ms, &billing, &[(name, id)], r#"{"type":"invoice.paid"}"#).await.0, 200);
    }
    rig.settled().await;
    let calls = bot.calls();
    assert_eq!(calls.len(), 2, "the third was a copy");
    for (name, id) in [("webhook-id", "msg_1"), ("svix-id", "msg_2")] {
        let call = calls.iter().find(|call| call.headers.get(name).is_some_and(|value| value == id)).expect("a call");
        assert!(bot_believes(&build(&billing.provider), call, now_ms), "{call:?}");
    }
}
