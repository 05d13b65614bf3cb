//! One `[channel.NAME]`: its keys, what they default to, and what contradicts what.

use std::ops::RangeInclusive;
use std::sync::Arc;

use hapax_domain::limits::{BODY_CEILING_BYTES, BODY_MAX_BYTES};
use hapax_domain::units::write_ms;
use hapax_domain::{Kind, RetryPolicy};
use hapax_gateway::settings::{Channel, Deliver, Mode, OnPoison, OnStoreFailure};
use hapax_providers::settings::Settings;
use secrecy::SecretString;

use super::mistake::Mistakes;
use super::secret::{self, Unsigned, read_secret};
use super::section::{Found, Section, refuse_unknown};
use super::tree::{Environment, Node, Table};
use super::{dropin, evolution, generic, send, target_access, targets, turns, twilio};

const KEYS: &[&str] = &[
    "provider",
    "secret",
    "secrets",
    "verify_token",
    "public_url",
    "target",
    "targets",
    "mode",
    "deliver",
    "window",
    "retention",
    "attempts",
    "backoff",
    "backoff_cap",
    "timeout",
    "lease",
    "concurrency",
    "on_poison",
    "park_on_4xx",
    "on_store_failure",
    "typing",
    "replay_guard",
    "stale_after",
    "coalesce",
    "coalesce_max",
    "coalesce_format",
    "sign_with",
    "allow_unsigned",
    "max_body",
    "id",
    "id_parts",
    "thread",
    "signature",
];

/// Keys of the design that this version does not have yet: none.
const KEYS_LATER: &[&str] = &[];

/// Those that ask for a word back before they post.
const META: [&str; 3] = ["whatsapp", "messenger", "instagram"];

/// Keys of "generic" that mean something for "evolution" too.
const EVOLUTION_KEYS: &[&str] = &["signature", "allow_unsigned"];

const GENERIC_KEYS: &[&str] = &["id", "id_parts", "thread", "signature", "allow_unsigned"];

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A lease is extended every third of its length; below this, one slow commit would already cost it.
pub(super) const LEASE_MS: RangeInclusive<i64> = 5 * SECOND..=HOUR;

/// What differs between providers.
struct Facts {
    name: &'static str,
    window_ms: i64,
    max_body: usize,
    on_store_failure: OnStoreFailure,
}

const fn facts(name: &'static str, window_ms: i64) -> Facts {
    Facts { name, window_ms, max_body: BODY_MAX_BYTES, on_store_failure: OnStoreFailure::Retry }
}

/// For providers that send once, or give up within minutes: a 503 would lose the webhook.
const fn once(facts: Facts) -> Facts {
    Facts { on_store_failure: OnStoreFailure::Spool, ..facts }
}

const PROVIDERS: [Facts; 14] = [
    facts("whatsapp", 8 * DAY),
    facts("messenger", 2 * DAY),
    facts("instagram", 2 * DAY),
    facts("telegram", 2 * DAY),
    once(facts("gowa", 2 * DAY)),
    // Media may stand in the body.
    Facts { max_body: 26 << 20, ..facts("evolution", 2 * DAY) },
    once(facts("waha", 2 * DAY)),
    facts("stripe", 4 * DAY),
    Facts { max_body: 26 << 20, ..once(facts("github", 2 * DAY)) },
    facts("standard", 4 * DAY),
    facts("shopify", 2 * DAY),
    once(facts("slack", 2 * DAY)),
    once(facts("twilio", 2 * DAY)),
    facts("generic", 2 * DAY),
];

/// Stands in while the rest of a channel with a wrong provider is looked at.
const UNKNOWN: Facts = facts("unknown", 2 * DAY);

pub fn provider_names() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().map(|facts| facts.name)
}

/// How long a copy is recognised where the config says nothing. `None`: no such provider.
pub fn usual_window_ms(provider: &str) -> Option<i64> {
    PROVIDERS.iter().find(|facts| facts.name == provider).map(|facts| facts.window_ms)
}

fn known_keys() -> Vec<&'static str> {
    [KEYS, &send::KEYS, &dropin::KEYS, &target_access::KEYS].concat()
}

/// Reports keys of `[defaults]` that no channel has.
pub(super) fn check_defaults(table: &Table, mistakes: &mut Mistakes) {
    refuse_unknown(table, "defaults", &known_keys(), KEYS_LATER, mistakes);
}

/// Reads a channel; `None` when it has no usable provider. What is wrong is in `mistakes`, and then the value must not be used.
///
/// `embedded` says that the store lives in this process: what depends on it is chosen accordingly.
pub(super) fn read(
    name: &str,
    own: &Found<'_>,
    section: &Section<'_>,
    embedded: bool,
    env: &Environment<'_>,
    mistakes: &mut Mistakes,
) -> Option<Channel> {
    let table = own.table(mistakes)?;
    check_name(name, own, mistakes);
    refuse_unknown(table, &own.path, &known_keys(), KEYS_LATER, mistakes);
    let facts = read_provider(own, section, mistakes);
    if let Some(facts) = facts {
        refuse_foreign(own, table, facts, mistakes);
    }
    let mut provider = read_settings(name, own, section, facts, mistakes);
    // Everything is read before anything is given up: all mistakes are reported at once.
    let facts = facts.unwrap_or(&UNKNOWN);
    let (target, targets) = targets::read(section, facts.name, mistakes);
    let access = target_access::read(section, target.iter().chain(targets.values()), env, mistakes);
    let mode = read_mode(own, section, mistakes);
    let deliver = section.get("deliver").and_then(|found| read_deliver(&found, mistakes));
    let window_ms = read_window(section, facts, mistakes);
    let retry = read_retry(section, mistakes);
    let (park_on_4xx, on_poison) = read_endings(section, mistakes);
    let on_store_failure = read_on_store_failure(section, facts, mode, embedded, mistakes);
    let sign_with = section.get("sign_with").and_then(|found| read_secret(&found, mistakes));
    let max_body = read_max_body(section, facts, mistakes);
    // Everywhere else the id stands in what was signed.
    let replay_guard = section.get("replay_guard").and_then(|found| found.truth(mistakes)).unwrap_or(facts.name == "github");
    let concurrency = whole(section, "concurrency", 1..=1_000, mistakes) as usize;
    let send = send::facts_of(facts.name).and_then(|facts| send::read(own, section, facts, retry, mistakes));
    let typing = send::read_typing(own, section, facts.name, send.is_some(), mistakes);
    if let Some(Settings::Evolution { token, .. }) = &mut provider {
        *token = send.as_ref().and_then(|send| send.token.clone());
    }
    let dropin = dropin::read(own, section, facts.name, send.as_ref(), mistakes);
    let polled = facts.name == "telegram" && dropin.is_some() && target.is_none() && targets.is_empty();
    let turns = turns::read(section, facts.name, mode, polled, mistakes);
    let mut ms = |key: &str, allowed| section.get(key).and_then(|found| found.ms(allowed, mistakes));
    Some(Channel {
        retention_ms: ms("retention", SECOND..=10 * YEAR).unwrap_or_default(),
        timeout_ms: ms("timeout", 100..=DAY).unwrap_or_default(),
        lease_ms: ms("lease", LEASE_MS).unwrap_or_default(),
        stale_after_ms: ms("stale_after", SECOND..=YEAR),
        name: Arc::from(name),
        provider: provider?,
        target,
        targets,
        access,
        mode,
        deliver: deliver.unwrap_or_else(everything),
        window_ms,
        retry,
        on_poison,
        park_on_4xx,
        on_store_failure,
        replay_guard,
        turns,
        sign_with,
        max_body,
        concurrency,
        typing,
        send,
        dropin,
    })
}

fn check_name(name: &str, own: &Found<'_>, mistakes: &mut Mistakes) {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        own.refuse(mistakes, "the name is part of the address /in/NAME; use 1 to 64 of a-z, 0-9, `-` and `_`");
    }
}

fn read_provider(own: &Found<'_>, section: &Section<'_>, mistakes: &mut Mistakes) -> Option<&'static Facts> {
    let words: Vec<(&str, &'static Facts)> = PROVIDERS.iter().map(|facts| (facts.name, facts)).collect();
    match section.get("provider") {
        Some(found) => found.choice(&words, &[], mistakes),
        None => {
            let list = provider_names().collect::<Vec<_>>().join(", ");
            own.refuse(mistakes, format!("`provider` is missing; add provider = \"..\", one of {list}"));
            None
        }
    }
}

/// Keys that mean nothing for this provider would be believed to do something.
fn refuse_foreign(own: &Found<'_>, table: &Table, facts: &Facts, mistakes: &mut Mistakes) {
    let sends = send::facts_of(facts.name).is_some();
    let foreign = |key: &&str| match *key {
        "public_url" => facts.name != "twilio",
        "verify_token" => !META.contains(&facts.name),
        "replay_guard" => !matches!(facts.name, "github" | "shopify" | "generic"),
        key if send::KEYS.contains(&key) => !sends,
        key if facts.name == "evolution" && EVOLUTION_KEYS.contains(&key) => false,
        key => GENERIC_KEYS.contains(&key) && facts.name != "generic",
    };
    // Saying that a provider which signs must sign is no contradiction.
    let harmless = |key: &str, node: &Node| key == "allow_unsigned" && matches!(node, Node::Truth(false));
    for (key, entry) in table.iter().filter(|(key, entry)| foreign(&key.as_str()) && !harmless(key, &entry.node)) {
        let what = match key.as_str() {
            key if send::KEYS.contains(&key) => {
                format!("`{key}` is for providers that send ({}), this is \"{}\"; take it out", send::names(), facts.name)
            }
            "replay_guard" => format!(
                "`{key}` is for \"github\", \"shopify\" and \"generic\", whose ids may be unsigned; \"{}\" signs them; take it out",
                facts.name
            ),
            "public_url" => format!("`{key}` is for provider \"twilio\" only, this is \"{}\"; take it out", facts.name),
            "verify_token" => {
                format!("`{key}` is for Meta's providers ({}), this is \"{}\"; take it out", META.join(", "), facts.name)
            }
            _ => format!("`{key}` is for provider \"generic\" only, this is \"{}\"; take it out", facts.name),
        };
        mistakes.add(&entry.origin, super::section::join(&own.path, key), what);
    }
}

fn read_settings(
    name: &str,
    own: &Found<'_>,
    section: &Section<'_>,
    facts: Option<&Facts>,
    mistakes: &mut Mistakes,
) -> Option<Settings> {
    let allow_unsigned = section.get("allow_unsigned").and_then(|found| found.truth(mistakes)).unwrap_or_default();
    let secrets = secret::read_secrets(own, section, mistakes);
    let facts = facts?;
    if facts.name == "generic" {
        return generic::read(name, own, section, secrets, allow_unsigned, mistakes).map(Settings::Generic);
    }
    if facts.name == "evolution" {
        let proof = evolution::read(own, section, secrets, allow_unsigned, mistakes)?;
        return Some(Settings::Evolution { proof, token: None });
    }
    let secrets = secret::require(own, secrets, Unsigned::NotPossible, mistakes);
    let verify_token = section.get("verify_token").filter(|_| META.contains(&facts.name));
    let verify_token =
        verify_token.and_then(|found| found.text(mistakes)).filter(|token| !token.is_empty()).map(SecretString::from);
    match facts.name {
        "whatsapp" => Some(Settings::Whatsapp { secrets, verify_token }),
        "messenger" => Some(Settings::Messenger { secrets, verify_token }),
        "instagram" => Some(Settings::Instagram { secrets, verify_token }),
        "telegram" => {
            secret::check_telegram(own, section, &secrets, mistakes);
            // Telegram's updates do not say whose they are; the channel stands for the bot.
            Some(Settings::Telegram { secrets, bot: name.to_owned() })
        }
        "gowa" => Some(Settings::Gowa { secrets }),
        "waha" => Some(Settings::Waha { secrets }),
        "stripe" => Some(Settings::Stripe { secrets }),
        "standard" => {
            secret::check_standard(own, section, &secrets, mistakes);
            Some(Settings::Standard { secrets })
        }
        "shopify" => Some(Settings::Shopify { secrets }),
        "slack" => Some(Settings::Slack { secrets }),
        "twilio" => twilio::read(own, section, secrets, mistakes),
        _ => Some(Settings::Github { secrets }),
    }
}

fn read_mode(own: &Found<'_>, section: &Section<'_>, mistakes: &mut Mistakes) -> Mode {
    let Some(found) = section.get("mode") else { return Mode::Queue };
    let words = [Mode::Queue, Mode::Proxy, Mode::Pull].map(|mode| (mode.name(), mode));
    let mode = found.choice(&words, &[], mistakes);
    if mode == Some(Mode::Proxy) && !targets::has_any(section) {
        let what = format!("mode \"proxy\" answers with what the target says, and {} has no `target`; add one", own.path);
        found.refuse(mistakes, what);
    }
    if mode == Some(Mode::Pull) && targets::has_any(section) {
        let what = format!("mode \"pull\" waits for workers to ask, and {} has a `target`; take one of them out", own.path);
        found.refuse(mistakes, what);
    }
    mode.unwrap_or(Mode::Queue)
}

fn read_endings(section: &Section<'_>, mistakes: &mut Mistakes) -> (bool, OnPoison) {
    let park = section.get("park_on_4xx").and_then(|found| found.truth(mistakes)).unwrap_or_default();
    let words = [("park", OnPoison::Park), ("block", OnPoison::Block)];
    let on_poison = section.get("on_poison").and_then(|found| found.choice(&words, &[], mistakes));
    (park, on_poison.unwrap_or(OnPoison::Park))
}

fn read_on_store_failure(
    section: &Section<'_>,
    facts: &Facts,
    mode: Mode,
    embedded: bool,
    mistakes: &mut Mistakes,
) -> OnStoreFailure {
    let words = [OnStoreFailure::Retry, OnStoreFailure::Spool, OnStoreFailure::Pass, OnStoreFailure::Drop];
    let Some(found) = section.get("on_store_failure") else {
        let can_spool = !embedded && mode != Mode::Proxy;
        return if can_spool { facts.on_store_failure } else { OnStoreFailure::Retry };
    };
    let chosen = found.choice(&words.map(|word| (word.name(), word)), &[], mistakes).unwrap_or(OnStoreFailure::Retry);
    if chosen == OnStoreFailure::Spool && mode == Mode::Proxy {
        let what =
            "mode \"proxy\" answers with what the target says, and what is spooled gets there later; write \"retry\" or \"pass\"";
        found.refuse(mistakes, what);
    }
    if chosen == OnStoreFailure::Pass && !targets::has_any(section) {
        found.refuse(mistakes, "\"pass\" hands webhooks to the target, and there is no `target`; add one");
    }
    chosen
}

fn everything() -> Deliver {
    Deliver { kinds: Kind::ALL.to_vec(), echoes: true }
}

fn read_deliver(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<Deliver> {
    let mut deliver = Deliver { kinds: Vec::new(), echoes: false };
    let mut words: Vec<(&str, Option<Kind>)> = Kind::ALL.iter().map(|kind| (kind.name(), Some(*kind))).collect();
    words.push(("echo", None));
    for (word, _) in found.texts(mistakes)? {
        match word.choice(&words, &[], mistakes)? {
            Some(kind) if deliver.kinds.contains(&kind) => {}
            Some(kind) => deliver.kinds.push(kind),
            None => deliver.echoes = true,
        }
    }
    Some(deliver)
}

fn read_window(section: &Section<'_>, facts: &Facts, mistakes: &mut Mistakes) -> i64 {
    let Some(found) = section.get("window") else { return facts.window_ms };
    found.ms(SECOND..=YEAR, mistakes).unwrap_or_default()
}

fn read_retry(section: &Section<'_>, mistakes: &mut Mistakes) -> RetryPolicy {
    let mut ms = |key: &str| section.get(key).and_then(|found| found.ms(1..=HOUR, mistakes)).unwrap_or_default();
    let (first_ms, cap_ms) = (ms("backoff"), ms("backoff_cap"));
    if let Some(cap) = section.get("backoff_cap").filter(|_| cap_ms > 0 && cap_ms < first_ms) {
        let what = format!("the cap {} is below the first wait {}; raise it", write_ms(cap_ms), write_ms(first_ms));
        cap.refuse(mistakes, what);
    }
    RetryPolicy { first_ms, cap_ms, attempts: whole(section, "attempts", 1..=1_000, mistakes) as u32 }
}

fn read_max_body(section: &Section<'_>, facts: &Facts, mistakes: &mut Mistakes) -> usize {
    match section.get("max_body") {
        Some(found) => found.bytes(1..=BODY_CEILING_BYTES as i64, mistakes).unwrap_or_default() as usize,
        None => facts.max_body,
    }
}

fn whole(section: &Section<'_>, key: &str, allowed: RangeInclusive<i64>, mistakes: &mut Mistakes) -> i64 {
    section.get(key).and_then(|found| found.whole(allowed, mistakes)).unwrap_or_default()
}
