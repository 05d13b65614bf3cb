//! Drop-in sending: whether the provider's own API is served for a channel's bot, where, and how.

use std::collections::HashMap;
use std::net::SocketAddr;

use hapax_domain::Replay;
use hapax_gateway::settings::{Channel, DropIn, Send};
use hapax_providers::settings::Settings;
use secrecy::ExposeSecret;

use super::mistake::Mistakes;
use super::section::{Found, Section, join};
use super::targets;
use super::tree::Table;

/// Keys that mean something only with `dropin = true`.
pub(super) const KEYS: [&str; 6] = ["dropin", "dropin_prefix", "wait", "replay", "redo_after_429", "redo_confirmed"];

const SECOND: i64 = 1_000;

/// Those whose API is served.
const PROVIDERS: [&str; 5] = ["telegram", "whatsapp", "gowa", "evolution", "waha"];
/// Those whose paths anybody's could be.
const PREFIXED: [&str; 3] = ["gowa", "evolution", "waha"];
/// First parts of paths that are hapax's own.
const TAKEN: [&str; 8] = ["in", "v1", "healthz", "readyz", "metrics", "openapi.json", "docs", "file"];

/// Reads what a channel says of it; `None`: its bot sends by itself, or through `/v1`.
pub(super) fn read(
    own: &Found<'_>,
    section: &Section<'_>,
    provider: &str,
    send: Option<&Send>,
    mistakes: &mut Mistakes,
) -> Option<DropIn> {
    let is_own = |found: &Found<'_>| found.path.starts_with(&format!("{}.", own.path));
    let wanted = section.get("dropin").filter(|found| found.truth(mistakes).unwrap_or_default());
    let prefix = section.get("dropin_prefix").and_then(|found| read_prefix(&found, mistakes));
    let wait_ms = section.get("wait").and_then(|found| found.ms(100..=300 * SECOND, mistakes));
    let words = Replay::ALL.map(|replay| (replay.name(), replay));
    let replay = section.get("replay").and_then(|found| found.choice(&words, &[], mistakes));
    let redo_after_429 = section.get("redo_after_429").and_then(|found| found.truth(mistakes)).unwrap_or_default();
    let redo_confirmed = section.get("redo_confirmed");
    let redo_confirmed_ms = redo_confirmed.as_ref().and_then(|found| found.ms(SECOND..=300 * SECOND, mistakes));
    let Some(wanted) = wanted else {
        let idle = KEYS.iter().skip(1).filter_map(|key| section.get(key)).filter(is_own);
        idle.for_each(|found| found.refuse(mistakes, "this is for drop-in sending; add dropin = true, or take it out"));
        return None;
    };
    if !PROVIDERS.contains(&provider) {
        // In [defaults] it is meant for the channels that can.
        if is_own(&wanted) {
            let what = format!("drop-in sending is for {}, this is \"{provider}\"; take it out", PROVIDERS.join(", "));
            wanted.refuse(mistakes, what);
        }
        return None;
    }
    if send.is_none() {
        wanted.refuse(mistakes, "what the bot sends goes out with the channel's own `token` and `api_base`; add what is missing");
    }
    if prefix.is_none() && PREFIXED.contains(&provider) && section.get("dropin_prefix").is_none() {
        let what =
            format!("paths of {provider} could be anybody's; add dropin_prefix = \"/{provider}\" and give the bot that address");
        wanted.refuse(mistakes, what);
    }
    let polls = provider == "telegram" && !targets::has_any(section);
    if let Some(found) = redo_confirmed.filter(|found| !polls && is_own(found)) {
        found.refuse(
            mistakes,
            "this is for bots that poll: a telegram channel with dropin = true and without a `target`; take it out",
        );
    }
    Some(DropIn {
        prefix: prefix.unwrap_or_default(),
        wait_ms,
        replay: replay.unwrap_or(Replay::Ordinal),
        redo_after_429,
        redo_confirmed_ms: redo_confirmed_ms.filter(|_| polls),
    })
}

fn read_prefix(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let text = found.text(mistakes)?;
    let plain =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let parts: Vec<&str> = text.strip_prefix('/').unwrap_or_default().split('/').collect();
    if !parts.iter().all(|part| plain(part)) {
        found.refuse(mistakes, "this is no beginning of a path; write \"/gowa\", of letters, digits, `-` and `_`");
        return None;
    }
    if TAKEN.contains(&parts[0]) || parts[0].starts_with("bot") {
        found.refuse(mistakes, format!("/{} is hapax's own, or another provider's; choose another word", parts[0]));
        return None;
    }
    Some(text.to_owned())
}

/// Whose bot calls Telegram's API is told by the token alone: one channel for each.
pub(super) fn check_tokens(table: &Table, channels: &[Channel], mistakes: &mut Mistakes) {
    let mut doors: HashMap<(&str, &str), &str> = HashMap::new();
    for channel in channels.iter().filter(|channel| matches!(channel.provider, Settings::Telegram { .. })) {
        let token = channel.send.as_ref().and_then(|send| send.token.as_ref());
        let (Some(dropin), Some(token)) = (&channel.dropin, token) else { continue };
        let Some(other) = doors.insert((&dropin.prefix, token.expose_secret()), &channel.name) else { continue };
        for (one, two) in [(other, &*channel.name), (&*channel.name, other)] {
            let Some(entry) = table.get(one) else { continue };
            let what = format!(
                "channel.{two} has dropin = true and the same `token`, so nobody can tell which of them a bot calls; take dropin out of one, \
                 or give it a dropin_prefix"
            );
            Found { path: join("channel", one), entry }.refuse(mistakes, what);
        }
    }
}

/// Tokens stand in these paths, and proxies log paths: who opens them to the world must say so.
pub(super) fn check_door(
    listen: Option<&Found<'_>>,
    at: Option<SocketAddr>,
    dropin_listen: Option<SocketAddr>,
    public: bool,
    channels: &[Channel],
    mistakes: &mut Mistakes,
) {
    let Some(channel) = channels.iter().find(|channel| channel.dropin.is_some()) else { return };
    let (Some(listen), Some(at)) = (listen, at) else { return };
    if at.ip().to_canonical().is_loopback() || dropin_listen.is_some() || public {
        return;
    }
    let what = format!(
        "channel.{} has dropin = true, and other machines reach this address: the bot's token would stand in paths that proxies log. Add \
         dropin_listen = \"127.0.0.1:4274\" for the bot, or dropin_public = true if nobody but the bot sees them",
        channel.name
    );
    listen.refuse(mistakes, what);
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Environment, Flags, SourceFile, Sources, load};
    use super::*;

    fn load_text(text: &str) -> Result<Config, String> {
        let read_file: &dyn Fn(&str) -> std::io::Result<String> = &|_| Err(std::io::ErrorKind::NotFound.into());
        let file = Some(SourceFile { name: "hapax.toml".to_owned(), text: text.to_owned() });
        let sources = Sources { file, env: Environment { vars: Default::default(), read_file }, flags: Flags::default() };
        load(&sources).map_err(|mistakes| mistakes.to_string())
    }

    fn telegram(more: &str) -> String {
        format!("[channel.c]\nprovider = 'telegram'\nsecret = 'a-long-secret'\ntoken = '123:abc'\n{more}")
    }

    fn two_bots(token: &str) -> String {
        let other = telegram("dropin = true").replace("channel.c", "channel.d").replace("123:abc", token);
        format!("{}\n{other}", telegram("dropin = true"))
    }

    #[test]
    fn it_is_off_unless_asked_for() {
        let config = load_text(&telegram("")).expect("a good config");
        assert_eq!(config.channels[0].dropin, None);
        let config = load_text(&telegram("dropin = true")).expect("a good config");
        let usual = DropIn {
            prefix: String::new(),
            wait_ms: None,
            replay: Replay::Ordinal,
            redo_after_429: false,
            redo_confirmed_ms: None,
        };
        assert_eq!(config.channels[0].dropin, Some(usual));
        let all = "dropin = true\ndropin_prefix = '/a/b'\nwait = '4s'\nreplay = 'content'\nredo_after_429 = true\nredo_confirmed = '10s'";
        let config = load_text(&telegram(all)).expect("a good config");
        let chosen = DropIn {
            prefix: "/a/b".to_owned(),
            wait_ms: Some(4_000),
            replay: Replay::Content,
            redo_after_429: true,
            redo_confirmed_ms: Some(10_000),
        };
        assert_eq!(config.channels[0].dropin, Some(chosen));
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_line() {
        let github = "[channel.c]\nprovider = 'github'\nsecret = 'a-long-secret'\ndropin = true";
        let gowa = "[channel.c]\nprovider = 'gowa'\nsecret = 'a-long-secret'\napi_base = 'http://127.0.0.1:3'\ndropin = true";
        for (text, said) in [
            (telegram("wait = '4s'"), "hapax.toml:5: channel.c.wait: this is for drop-in sending; add dropin = true"),
            (telegram("redo_after_429 = true"), "hapax.toml:5: channel.c.redo_after_429: this is for drop-in sending"),
            (
                telegram("dropin = true\ntarget = 'http://127.0.0.1:3/'\nredo_confirmed = '10s'"),
                "hapax.toml:7: channel.c.redo_confirmed: this is for bots that poll",
            ),
            (telegram("dropin = 1"), "hapax.toml:5: channel.c.dropin: expected true or false"),
            (telegram("dropin = true\nreplay = 'orinal'"), "`orinal` is none of \"ordinal\", \"content\", \"off\""),
            (
                telegram("dropin = true\ndropin_prefix = 'gowa'"),
                "hapax.toml:6: channel.c.dropin_prefix: this is no beginning of a path",
            ),
            (telegram("dropin = true\ndropin_prefix = '/v1/x'"), "/v1 is hapax's own"),
            (two_bots("123:abc"), "hapax.toml:1: channel.c: channel.d has dropin = true and the same `token`"),
            (two_bots("123:abc"), "hapax.toml:6: channel.d: channel.c has dropin = true and the same `token`"),
            (github.to_owned(), "drop-in sending is for telegram, whatsapp, gowa, evolution, waha, this is \"github\""),
            (gowa.to_owned(), "add dropin_prefix = \"/gowa\""),
            (
                "[channel.c]\nprovider = 'telegram'\nsecret = 'a-long-secret'\ndropin = true".to_owned(),
                "goes out with the channel's own `token`",
            ),
        ] {
            let mistakes = load_text(&text).expect_err("has mistakes");
            assert!(mistakes.contains(said), "{text}\n{mistakes}");
        }
        load_text(&two_bots("456:def")).expect("two bots");
        load_text(&format!("{}\ndropin_prefix = '/d'", two_bots("123:abc"))).expect("two doors of one bot");
        let in_defaults = format!("[defaults]\ndropin = true\nwait = '4s'\n{}", github.replace("\ndropin = true", ""));
        assert_eq!(load_text(&in_defaults).expect("meant for the others").channels[0].dropin, None);
    }

    #[test]
    fn tokens_in_paths_are_not_shown_to_the_world_by_accident() {
        let open = "listen = '0.0.0.0:1'\nadmin_public = true\n";
        let said = load_text(&format!("{open}{}", telegram("dropin = true"))).expect_err("refused");
        for part in ["hapax.toml:1: listen: ", "dropin_listen = \"127.0.0.1:4274\"", "dropin_public = true", "channel.c"] {
            assert!(said.contains(part), "{said}");
        }
        for closed in [format!("{open}dropin_listen = '127.0.0.1:2'\n"), format!("{open}dropin_public = true\n"), String::new()] {
            load_text(&format!("{closed}{}", telegram("dropin = true"))).unwrap_or_else(|said| panic!("{closed}: {said}"));
        }
        load_text(&format!("{open}{}", telegram(""))).expect("nobody is served");
        let twice = format!("listen = '127.0.0.1:1'\ndropin_listen = '127.0.0.1:1'\n{}", telegram("dropin = true"));
        assert!(load_text(&twice).expect_err("refused").contains("something else listens there"));
    }
}
