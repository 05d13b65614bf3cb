//! Sample webhooks for `hapax trigger`: what a provider would send, before it is signed.

use std::ops::Range;

use http::{HeaderName, HeaderValue};
use uuid::Uuid;

/// One webhook, unsigned: the caller adds what [`super::Provider::sign`] gives for `body`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub provider: &'static str,
    pub content_type: &'static str,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Vec<u8>,
}

/// A sample with holes: `<hex>`, `<number>` and `<guid>` come from the nonce, `<s>` and `<iso>` from its time.
struct Template {
    provider: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
}

/// Every sample's name, `provider.kind`, and what it is.
pub fn list() -> &'static [(&'static str, &'static str)] {
    &[
        ("whatsapp.text", "a text message from a customer"),
        ("whatsapp.image", "a picture with a caption"),
        ("whatsapp.status", "a sent message was delivered"),
        ("whatsapp.batch", "two messages and a status in one webhook"),
        ("messenger.text", "a text message to a page"),
        ("messenger.delivery", "two sent messages were delivered"),
        ("instagram.text", "a direct message to an Instagram account"),
        ("telegram.text", "a text message in a private chat"),
        ("telegram.callback", "a pressed inline button"),
        ("gowa.text", "a text message to a GOWA device"),
        ("gowa.ack", "two sent messages were read"),
        ("evolution.text", "a text message to an Evolution instance"),
        ("evolution.status", "a sent message was read"),
        ("waha.text", "a text message to a WAHA session"),
        ("waha.ack", "a sent message was read"),
        ("stripe.invoice_paid", "an invoice was paid"),
        ("github.push", "a push to a branch"),
        ("github.ping", "the first delivery of a new webhook"),
        ("standard.event", "an event in the shape that Standard Webhooks suggests"),
        ("shopify.orders_create", "a new order in a shop"),
        ("twilio.sms", "a text message to a number"),
        ("twilio.status", "a sent message was delivered"),
        ("slack.message", "a message in a channel"),
        ("slack.mention", "a message that mentions the app"),
        ("generic.json", "a JSON body with an id"),
    ]
}

/// A nonce of ours is a second and six digits of chance, `1760000000123456`: it says the sample's time itself. Tools that take all numbers
/// for floating ones read it right.
const NONCES_PER_SECOND: u64 = 1_000_000;
/// From 2020 to 2100: other numbers are somebody's own.
const SECONDS_OF_NONCES: Range<u64> = 1_577_836_800..4_102_444_800;
const DAY_S: i64 = 86_400;

/// A nonce that nobody has used yet, for a sample of now.
pub fn fresh_nonce(now_ms: i64, draw: u64) -> u64 {
    now_ms.div_euclid(1_000).max(0) as u64 * NONCES_PER_SECOND + draw % NONCES_PER_SECOND
}

/// When a sample says it was made. The same nonce means the same time, so that a copy is a copy to the last byte: for nonces of ours for ever,
/// for others for the rest of the day (UTC).
fn made_s(nonce: u64, now_ms: i64) -> i64 {
    let own = Some(nonce / NONCES_PER_SECOND).filter(|second| SECONDS_OF_NONCES.contains(second));
    own.map_or_else(|| now_ms.div_euclid(1_000 * DAY_S) * DAY_S, |second| second as i64)
}

/// Fills in a sample. The same nonce gives the same ids and times, so sending it twice is sending a copy.
pub fn sample(name: &str, nonce: u64, now_ms: i64) -> Option<Sample> {
    let template = template(name)?;
    let made_s = made_s(nonce, now_ms);
    let iso = jiff::Timestamp::from_second(made_s).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let holes = [
        ("<hex>", format!("{nonce:016X}")),
        // Telegram's update ids are positive and fit 31 bits.
        ("<number>", (nonce % (1 << 31)).to_string()),
        ("<guid>", Uuid::from_u64_pair(0x6861_7061_7800_4000, nonce).to_string()),
        ("<s>", made_s.to_string()),
        ("<iso>", iso.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
    ];
    let fill = |text: &str| holes.iter().fold(text.to_owned(), |text, (hole, value)| text.replace(hole, value));
    let header =
        |(name, value): &(&'static str, &str)| Some((HeaderName::from_static(name), HeaderValue::from_str(&fill(value)).ok()?));
    Some(Sample {
        provider: template.provider,
        content_type: if template.provider == "twilio" { "application/x-www-form-urlencoded" } else { "application/json" },
        headers: template.headers.iter().filter_map(header).collect(),
        // The files are laid out for people; providers send one line.
        body: template.body.lines().map(|line| fill(line.trim_start())).collect::<String>().into_bytes(),
    })
}

fn template(name: &str) -> Option<Template> {
    let (headers, body): (&[_], _) = match name {
        "whatsapp.text" => (&[], include_str!("samples/whatsapp.text.json")),
        "whatsapp.image" => (&[], include_str!("samples/whatsapp.image.json")),
        "whatsapp.status" => (&[], include_str!("samples/whatsapp.status.json")),
        "whatsapp.batch" => (&[], include_str!("samples/whatsapp.batch.json")),
        "messenger.text" => (&[], include_str!("samples/messenger.text.json")),
        "messenger.delivery" => (&[], include_str!("samples/messenger.delivery.json")),
        "instagram.text" => (&[], include_str!("samples/instagram.text.json")),
        "telegram.text" => (&[], include_str!("samples/telegram.text.json")),
        "telegram.callback" => (&[], include_str!("samples/telegram.callback.json")),
        "gowa.text" => (&[], include_str!("samples/gowa.text.json")),
        "gowa.ack" => (&[], include_str!("samples/gowa.ack.json")),
        "evolution.text" => (&[], include_str!("samples/evolution.text.json")),
        "evolution.status" => (&[], include_str!("samples/evolution.status.json")),
        "waha.text" => (&[], include_str!("samples/waha.text.json")),
        "waha.ack" => (&[], include_str!("samples/waha.ack.json")),
        "stripe.invoice_paid" => (&[], include_str!("samples/stripe.invoice_paid.json")),
        "github.push" => (GITHUB_PUSH_HEADERS, include_str!("samples/github.push.json")),
        "github.ping" => (GITHUB_PING_HEADERS, include_str!("samples/github.ping.json")),
        "standard.event" => (STANDARD_HEADERS, include_str!("samples/standard.event.json")),
        "shopify.orders_create" => (SHOPIFY_HEADERS, include_str!("samples/shopify.orders_create.json")),
        "slack.message" => (&[], include_str!("samples/slack.message.json")),
        "slack.mention" => (&[], include_str!("samples/slack.mention.json")),
        "twilio.sms" => (TWILIO_HEADERS, include_str!("samples/twilio.sms.form")),
        "twilio.status" => (TWILIO_HEADERS, include_str!("samples/twilio.status.form")),
        "generic.json" => (&[], include_str!("samples/generic.json.json")),
        _ => return None,
    };
    let (name, _) = list().iter().find(|(listed, _)| *listed == name)?;
    let (provider, _) = name.split_once('.')?;
    Some(Template { provider, headers, body })
}

const TWILIO_HEADERS: &[(&str, &str)] = &[("i-twilio-idempotency-token", "<guid>")];
const STANDARD_HEADERS: &[(&str, &str)] = &[("webhook-id", "msg_<hex>")];
const SHOPIFY_HEADERS: &[(&str, &str)] = &[
    ("x-shopify-topic", "orders/create"),
    ("x-shopify-shop-domain", "sample-shop.myshopify.com"),
    ("x-shopify-api-version", "2026-07"),
    ("x-shopify-webhook-id", "<guid>"),
    ("x-shopify-event-id", "event-<hex>"),
    ("x-shopify-triggered-at", "<iso>"),
];
const GITHUB_PUSH_HEADERS: &[(&str, &str)] =
    &[("x-github-event", "push"), ("x-github-delivery", "<guid>"), ("x-github-hook-id", "900001")];
const GITHUB_PING_HEADERS: &[(&str, &str)] =
    &[("x-github-event", "ping"), ("x-github-delivery", "<guid>"), ("x-github-hook-id", "900001")];

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_760_000_000_000;

    #[test]
    fn the_same_nonce_is_the_same_message_to_the_last_byte() {
        let fresh = fresh_nonce(NOW_MS, 987_654_321);
        assert_eq!(fresh, 1_760_000_000_654_321);
        for (name, _) in list() {
            assert_eq!(sample(name, fresh, NOW_MS), sample(name, fresh, NOW_MS + 40 * 86_400_000), "{name}");
            for own in [0, 7, u64::MAX, 1_760_000_000_000] {
                assert_eq!(sample(name, own, NOW_MS), sample(name, own, NOW_MS + 3_600_000), "{name}: on the same day");
            }
        }
        let body =
            |nonce| String::from_utf8(sample("telegram.text", nonce, NOW_MS + 5_000).map_or_else(Vec::new, |one| one.body));
        assert!(body(fresh).is_ok_and(|body| body.contains("1760000000")));
        assert!(body(7).is_ok_and(|body| body.contains("1759968000")));
    }
}
