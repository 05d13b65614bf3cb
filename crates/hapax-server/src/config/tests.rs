use hapax_domain::{Kind, RetryPolicy};
use hapax_gateway::settings::{Deliver, Mode, OnPoison, OnUnknown, Rate};
use hapax_providers::settings::Settings;
use secrecy::ExposeSecret;

use super::*;

mod target_access;
mod targets;
mod turns;
mod typing;

pub(super) fn load_with(text: &str, vars: &[(&str, &str)], flags: Flags) -> Result<Config, Mistakes> {
    load(&sources(text, vars, flags))
}

fn sources(text: &str, vars: &[(&str, &str)], flags: Flags) -> Sources<'static> {
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let read_file: &dyn Fn(&str) -> std::io::Result<String> = &|path| match path {
        "/run/token" => Ok("token-from-a-file\n".to_owned()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let file = Some(SourceFile { name: "hapax.toml".to_owned(), text: text.to_owned() });
    Sources { file, env: Environment { vars, read_file }, flags }
}

fn mistakes_of(text: &str) -> String {
    load_with(text, &[], Flags::default()).expect_err("has mistakes").to_string()
}

pub(super) fn first_mistake(text: &str) -> String {
    mistakes_of(text).lines().next().expect("one").to_owned()
}

fn one(text: &str) -> Channel {
    let mut config = load_with(text, &[], Flags::default()).expect("a good config");
    config.channels.remove(0)
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let config = load_with("", &[], Flags::default()).expect("nothing is a good config");
    assert_eq!(config.listen.to_string(), "127.0.0.1:4272");
    assert_eq!(config.store, StoreUrl::Sqlite("hapax.db".into()));
    assert!(config.admin_token.is_none() && config.admin_listen.is_none() && config.channels.is_empty());
    assert_eq!(config.stop_grace_ms, 30_000);
    assert_eq!(config.limits.connections, hapax_domain::limits::CONNECTIONS_MAX);
    assert_eq!(config.limits.header_timeout_ms, hapax_domain::limits::HEADER_TIMEOUT_MS);
    assert_eq!(config.limits.body_timeout_ms, hapax_domain::limits::BODY_TIMEOUT_MS);
    assert_eq!(config.limits.cache_keys, hapax_domain::limits::CACHE_KEYS);
    assert_eq!(config.log, Log { filter: "info".to_owned(), json: false });
}

#[test]
fn a_channel_needs_only_provider_and_secret() {
    let channel = one("[channel.shop]\nprovider = 'whatsapp'\nsecret = 'a-long-secret'");
    assert_eq!(&*channel.name, "shop");
    assert_eq!(channel.window_ms, 8 * 86_400_000);
    assert_eq!(channel.retry, RetryPolicy { first_ms: 1_000, cap_ms: 60_000, attempts: 10 });
    assert_eq!((channel.timeout_ms, channel.lease_ms), (300_000, 60_000));
    assert_eq!((channel.retention_ms, channel.concurrency), (7 * 86_400_000, 16));
    assert_eq!((channel.mode, channel.on_poison, channel.park_on_4xx), (Mode::Queue, OnPoison::Park, true));
    assert_eq!(channel.deliver, Deliver { kinds: Kind::ALL.to_vec(), echoes: true });
    assert_eq!(channel.max_body, hapax_domain::limits::BODY_MAX_BYTES);
    assert!(channel.target.is_none() && channel.stale_after_ms.is_none() && channel.sign_with.is_none());
}

#[test]
fn windows_and_body_sizes_follow_the_provider() {
    let day = 86_400_000;
    for (provider, window, max_body) in [
        ("telegram", 2 * day, 4 << 20),
        ("stripe", 4 * day, 4 << 20),
        ("gowa", 2 * day, 4 << 20),
        ("github", 2 * day, 26 << 20),
        ("standard", 4 * day, 4 << 20),
        ("shopify", 2 * day, 4 << 20),
        ("slack", 2 * day, 4 << 20),
    ] {
        let channel = one(&format!("[channel.c]\nprovider = '{provider}'\nsecret = 'a-long-secret'"));
        assert_eq!((channel.window_ms, channel.max_body), (window, max_body), "{provider}");
    }
}

#[test]
fn what_a_store_failure_means_follows_the_provider_and_the_store() {
    let with = |store: &str, provider: &str, more: &str| {
        let text = format!(
            "store = '{store}'\n[channel.c]\nprovider = '{provider}'\nsecret = 'a-long-secret'\n{more}\n{}",
            if provider == "twilio" { "public_url = 'https://h/in/c'" } else { "" }
        );
        let config = load_with(&text, &[], Flags::default()).expect("a good config");
        let said = warnings(&config).into_iter().find(|warning| warning.contains("on_store_failure"));
        (config.on_store_failure(&config.channels[0]).name(), said)
    };
    for (provider, chosen) in [
        ("gowa", "spool"),
        ("waha", "spool"),
        ("evolution", "retry"),
        ("github", "spool"),
        ("whatsapp", "retry"),
        ("telegram", "retry"),
        ("stripe", "retry"),
        ("standard", "retry"),
        ("shopify", "retry"),
        ("slack", "spool"),
        ("twilio", "spool"),
        ("generic", "retry"),
    ] {
        assert_eq!(with("postgres://db/x", provider, ""), (chosen, None), "{provider} behind a server");
        for store in ["sqlite:x.db", "memory:"] {
            assert_eq!(with(store, provider, ""), ("retry", None), "{provider} beside {store}");
        }
    }
    let spool = "on_store_failure = 'spool'";
    assert_eq!(with("redis://db/0", "whatsapp", spool), ("spool", None));
    let (does, said) = with("sqlite:x.db", "whatsapp", spool);
    assert_eq!(does, "retry");
    assert!(said.expect("a warning").contains("the same disk; it works as \"retry\""));
    let proxy = "mode = 'proxy'\ntarget = 'http://127.0.0.1:1/'";
    assert_eq!(with("postgres://db/x", "gowa", proxy), ("retry", None), "nobody waits for what is spooled");
    for (word, loses) in [("pass", "copies reach the target"), ("drop", "lost")] {
        let more = format!("target = 'http://127.0.0.1:1/'\non_store_failure = '{word}'");
        let (does, said) = with("sqlite:x.db", "gowa", &more);
        assert!(does == word && said.is_some_and(|said| said.contains(loses)), "{word}");
    }
}

#[test]
fn a_store_failure_cannot_be_met_with_what_is_not_there() {
    let gowa = "[channel.c]\nprovider = 'gowa'\nsecret = 'a-long-secret'\n";
    let said = first_mistake(&format!("{gowa}on_store_failure = 'pass'"));
    assert!(said.contains("there is no `target`"), "{said}");
    let said = first_mistake(&format!("{gowa}mode = 'proxy'\ntarget = 'http://127.0.0.1:1/'\non_store_failure = 'spool'"));
    assert!(said.contains("gets there later"), "{said}");
    let said = first_mistake("spool = 'sqlite:x.db'");
    assert!(said.contains("not the path of a file"), "{said}");
}

#[test]
fn flags_beat_env_beats_file_beats_default() {
    let file = "listen = '127.0.0.1:1'\nstore = 'sqlite:file.db'\nadmin_token = 'token-from-the-toml'";
    let env = [("HAPAX_LISTEN", "127.0.0.1:2"), ("PORT", "3"), ("HAPAX_ADMIN_TOKEN_FILE", "/run/token")];
    let flags = Flags { listen: Some("127.0.0.1:4".to_owned()), ..Flags::default() };
    let at = |flags, env: &[(&str, &str)]| load_with(file, env, flags).expect("a good config");
    assert_eq!(at(flags, &env).listen.port(), 4);
    let from_env = at(Flags::default(), &env);
    assert_eq!(from_env.listen.to_string(), "127.0.0.1:2");
    assert_eq!(from_env.admin_token.expect("set").expose_secret(), "token-from-a-file");
    let on_a_platform = at(Flags::default(), &[("PORT", "3"), ("HAPAX_ADMIN_PUBLIC", "true")]);
    assert_eq!(on_a_platform.listen.to_string(), "0.0.0.0:3");
    assert_eq!(at(Flags::default(), &[]).listen.port(), 1);
    assert_eq!(at(Flags::default(), &[]).store, StoreUrl::Sqlite("file.db".into()));
    assert_eq!(at(Flags::default(), &[("DATABASE_URL", "sqlite:///var/x.db")]).store, StoreUrl::Sqlite("/var/x.db".into()));
    assert_eq!(at(Flags::default(), &[("DATABASE_URL", "sqlite:x"), ("HAPAX_STORE", "memory:")]).store, StoreUrl::Memory);
}

#[test]
fn a_database_address_is_refused_without_showing_its_password() {
    let said = load_with("", &[("DATABASE_URL", "oracle://u:p4ssw0rd@db/x")], Flags::default()).expect_err("refused").to_string();
    assert!(said.starts_with("env DATABASE_URL: store: this names no store; write \"sqlite:hapax.db\""), "{said}");
    assert!(!said.contains("p4ssw0rd"));
}

#[test]
fn defaults_hold_for_channels_that_say_nothing() {
    let text = "[defaults]\nattempts = 3\nsecret = 'shared-by-all'\n[channel.a]\nprovider = 'gowa'\n\
                [channel.b]\nprovider = 'gowa'\nattempts = 4\nsecrets = ['the-new-one', 'the-old-one']";
    let config = load_with(text, &[], Flags::default()).expect("a good config");
    let attempts: Vec<_> = config.channels.iter().map(|channel| channel.retry.attempts).collect();
    assert_eq!(attempts, [3, 4]);
    let Settings::Gowa { secrets } = &config.channels[1].provider else { panic!("gowa") };
    assert_eq!(secrets.len(), 2);
}

#[test]
fn a_wrong_default_is_reported_once() {
    let text = "[defaults]\nlease = '1s'\n[channel.a]\nprovider = 'gowa'\nsecret = 'a-long-secret'\n\
                [channel.b]\nprovider = 'gowa'\nsecret = 'a-long-secret'";
    assert_eq!(
        mistakes_of(text),
        "hapax.toml:2: defaults.lease: 1s is out of range; write \"5s\" to \"1h\"\n1 mistake in the config"
    );
}

#[test]
fn a_channel_sends_when_it_has_what_its_provider_needs() {
    let channel =
        |provider: &str, rest: &str| one(&format!("[channel.c]\nprovider = '{provider}'\nsecret = 'a-long-secret'\n{rest}"));
    let send = |provider: &str, rest: &str| channel(provider, rest).send.expect("it sends");
    for provider in ["whatsapp", "telegram", "gowa", "generic", "stripe", "github", "standard", "shopify", "slack"] {
        assert!(channel(provider, "").send.is_none(), "{provider}");
    }
    let rate = |count, per_ms, burst| Rate { count, per_ms, burst };
    let meta = send("whatsapp", "token = 'EAAx'");
    assert_eq!((meta.api_base.as_str(), meta.on_unknown), ("https://graph.facebook.com", OnUnknown::Reconcile));
    assert_eq!((meta.rate, meta.chat_rate), (rate(80, 1_000, 80), rate(1, 6_000, 45)));
    assert_eq!(meta.retry, RetryPolicy { first_ms: 1_000, cap_ms: 60_000, attempts: 5 });
    assert_eq!((meta.lease_ms, meta.timeout_ms, meta.concurrency), (60_000, 30_000, 32));
    assert_eq!(meta.token.expect("given").expose_secret(), "EAAx");
    let bot = send("telegram", "token = '123:abc'\napi_base = 'http://127.0.0.1:8081/'\nsend_timeout = '5s'\nsend_attempts = 2");
    assert_eq!((bot.api_base.as_str(), bot.on_unknown), ("http://127.0.0.1:8081", OnUnknown::Hold));
    assert_eq!((bot.rate, bot.chat_rate), (rate(30, 1_000, 30), rate(1, 1_000, 1)));
    assert_eq!((bot.timeout_ms, bot.retry.attempts), (5_000, 2));
    let gowa = send("gowa", "api_base = 'http://gowa:3000/base'\nrate = '2/m'\nchat_rate = '1/s burst 3'\non_unknown = 'resend'");
    assert_eq!((gowa.rate, gowa.chat_rate), (rate(2, 60_000, 2), rate(1, 1_000, 3)));
    assert!(gowa.token.is_none() && gowa.on_unknown == OnUnknown::Resend);
    let slack = send("slack", "token = 'xoxb-1'");
    assert_eq!((slack.api_base.as_str(), slack.on_unknown), ("https://slack.com", OnUnknown::Reconcile));
    assert_eq!(slack.chat_rate, rate(1, 1_000, 3));
    assert_eq!(send("generic", "api_base = 'https://x.example/send'").on_unknown, OnUnknown::Hold);
}

#[test]
fn defaults_about_sending_hold_only_where_they_can() {
    let text = "[defaults]\non_unknown = 'reconcile'\nsend_attempts = 7\ntoken = '1:a'\n\
                [channel.a]\nprovider = 'telegram'\nsecret = 'a-long-secret'\n\
                [channel.b]\nprovider = 'stripe'\nsecret = 'a-long-secret'\n[channel.c]\nprovider = 'gowa'\nsecret = 'a-long-secret'";
    let config = load_with(text, &[], Flags::default()).expect("a good config");
    let send = config.channels[0].send.as_ref().expect("it sends");
    assert_eq!((send.on_unknown, send.retry.attempts), (OnUnknown::Hold, 7));
    assert!(config.channels[1].send.is_none() && config.channels[2].send.is_none());
}

#[test]
fn mistakes_about_sending_say_what_to_do() {
    for (provider, rest, says) in [
        ("whatsapp", "token = ''", "token: the token is empty"),
        ("whatsapp", "token = 'a\u{a0}b'", "token: the token holds spaces around it"),
        ("telegram", "token = 'bot 123'", "token: this is no bot token"),
        ("whatsapp", "api_base = 'https://x'", "api_base: sending needs `token` too"),
        ("gowa", "token = 'a:b'", "token: sending needs `api_base` too"),
        ("gowa", "api_base = 'gowa:3000'", "api_base: this is not an http:// or https:// address"),
        ("gowa", "api_base = 'http://me:pass@gowa'", "api_base: a password does not belong in the address"),
        ("generic", "api_base = 'http://x/?a=b'", "api_base: paths are put behind it"),
        ("telegram", "on_unknown = 'reconcile'", "on_unknown: telegram has no way to ask"),
        ("gowa", "on_unknown = 'retry'", "on_unknown: `retry` is none of \"reconcile\", \"hold\", \"resend\""),
        ("gowa", "rate = '80'", "rate: `80` is not a rate; write \"80/s\""),
        ("gowa", "chat_rate = 5", "chat_rate: expected a text in quotes"),
        ("gowa", "send_timeout = '60s'", "send_timeout: 1m is not shorter than the lease (1m)"),
        ("gowa", "send_attempts = 0", "send_attempts: 0 is out of range"),
        (
            "stripe",
            "token = 'x'",
            "token: `token` is for providers that send (whatsapp, messenger, instagram, telegram, gowa, evolution, waha, slack, twilio, generic), this is \"stripe\"",
        ),
    ] {
        let said = first_mistake(&format!("[channel.c]\nprovider = '{provider}'\nsecret = 'a-long-secret'\n{rest}"));
        assert!(said.starts_with(&format!("hapax.toml:4: channel.c.{says}")), "{said}");
        assert!(!said.contains("pass@"), "{said}");
    }
}

#[test]
fn risky_ways_to_send_are_warned_of() {
    let warned = |rest: &str| {
        let text = format!("[channel.c]\nprovider = 'gowa'\nsecret = 'a-secret-of-24-characters'\ntarget = 'https://b'\n{rest}");
        warnings(&load_with(&text, &[], Flags::default()).expect("a good config"))
    };
    assert!(warned("api_base = 'http://127.0.0.1:1'\ntoken = 'a:b'").is_empty());
    assert!(warned("api_base = 'http://127.0.0.1:1'\non_unknown = 'resend'")[0].contains("may arrive twice"));
    assert!(warned("api_base = 'http://gowa:1'\ntoken = 'a:b'")[0].contains("can be read on the way"));
}

/// The mistakes a person makes, all in one file.
const MISTAKEN: &str = r#"listen = "here"
store = "oracle://u:p@h/d"
admin_token = "short"
chanel = 1
[limits]
connections = "many"
[otel]
sample = 101
[log]
filter = "a=b=c"
[channel.shop]
provider = "whatsapp"
secret = "secret"
window = "400d"
coalesce = "3s"
lease = 30
mode = "push"
[channel.Tele]
provider = "telegramm"
secret = "${TG_SECRET}"
timeout = "soon"
deliver = ["messages"]
[channel.pay]
provider = "stripe"
secret = "a-long-secret"
secrets = ["another-secret"]
verify_token = "x"
target = "ftp://bot"
on_store_failure = "spol"
[channel.open]
provider = "gowa"
mode = "proxy"
max_body = "1TB"
[channel.own]
provider = "generic"
secret = "a-long-secret"
id = "data.id"
signature = { type = "hmac-md5", headr = "X-Sig" }
"#;

/// What is said about them: each with its line and its way out.
const SAID: &str = r#"hapax.toml:1: listen: `here` is not an address and a port; write "127.0.0.1:4272"
hapax.toml:2: store: this names no store; write "sqlite:hapax.db", "postgres://..", "mysql://..", "redis://..", "firestore://project" or "memory:"
hapax.toml:3: admin_token: the admin token is too short (5 bytes, at least 16); make one with `openssl rand -hex 24`, or leave it out and hapax makes one
hapax.toml:4: chanel: `chanel` is not a key here; did you mean `channel`?
hapax.toml:6: limits.connections: expected a whole number, found a text
hapax.toml:8: otel.sample: 101 is out of range; write 0 to 100
hapax.toml:10: log.filter: `a=b=c` is not a log filter; write "info" or "hapax=debug,info"
hapax.toml:13: channel.shop.secret: `secret` is GOWA's default and known to everybody; make one with `openssl rand -hex 24` and set it at the provider too
hapax.toml:14: channel.shop.window: 400d is out of range; write "1s" to "365d"
hapax.toml:16: channel.shop.lease: expected a time with its unit, like "30s", "5m" or "8d", found a number
hapax.toml:17: channel.shop.mode: `push` is none of "queue", "proxy", "pull"; did you mean `pull`?
hapax.toml:18: channel.Tele: the name is part of the address /in/NAME; use 1 to 64 of a-z, 0-9, `-` and `_`
hapax.toml:19: channel.Tele.provider: `telegramm` is none of PROVIDERS; did you mean `telegram`?
hapax.toml:20: channel.Tele.secret: `${TG_SECRET}` is not set; set it in the environment, or `TG_SECRET_FILE`
hapax.toml:21: channel.Tele.timeout: `soon` is not a time with its unit, like "30s", "5m" or "8d"
hapax.toml:22: channel.Tele.deliver: `messages` is none of "message", "status", "reaction", "edit", "delete", "action", "notice", "echo"; did you mean `message`?
hapax.toml:26: channel.pay.secrets: both `secret` and `secrets` are set; keep `secrets = [..]` while rotating, else `secret`
hapax.toml:27: channel.pay.verify_token: `verify_token` is for Meta's providers (whatsapp, messenger, instagram), this is "stripe"; take it out
hapax.toml:28: channel.pay.target: the target is not an http:// or https:// address; write "http://127.0.0.1:3000/webhook"
hapax.toml:29: channel.pay.on_store_failure: `spol` is none of "retry", "spool", "pass", "drop"; did you mean `spool`?
hapax.toml:30: channel.open: no `secret`: anybody could post here; add the one that the provider signs with
hapax.toml:32: channel.open.mode: mode "proxy" answers with what the target says, and channel.open has no `target`; add one
hapax.toml:33: channel.open.max_body: `1TB` is not a size with its unit, like "4MB"
hapax.toml:37: channel.own.id: `data.id` is none of `header:Name`, `/json/pointer`, `$.json.path`
hapax.toml:38: channel.own.signature.headr: `headr` is not a key here; did you mean `header`?
hapax.toml:38: channel.own.signature.type: `hmac-md5` is none of "hmac-sha256", "hmac-sha512", "token", "basic", "none"
26 mistakes in the config"#;

#[test]
fn all_mistakes_are_reported_at_once() {
    let said = mistakes_of(MISTAKEN);
    let names: Vec<String> = super::channel::provider_names().map(|name| format!("\"{name}\"")).collect();
    let expected = SAID.replace("PROVIDERS", &names.join(", "));
    for (said, expected) in said.lines().zip(expected.lines()) {
        assert_eq!(said, expected);
    }
    assert_eq!(said, expected);
}

#[test]
fn a_window_that_ends_before_the_retries_is_taken_and_warned_about() {
    for (provider, short, enough) in [
        ("whatsapp", "24h", "169h"),
        ("stripe", "3d", "73h"),
        ("standard", "76h", "77h"),
        ("shopify", "4h", "5h"),
        ("slack", "10m", "11m"),
        ("telegram", "24h", "25h"),
        ("gowa", "2m", "3m"),
        ("evolution", "40m", "41m"),
        ("waha", "2m", "3m"),
        ("messenger", "36h", "37h"),
    ] {
        let said = |window| {
            let text = format!("[channel.c]\nprovider = '{provider}'\nsecret = 'a-long-secret'\nwindow = '{window}'");
            let config = load_with(&text, &[], Flags::default()).expect("a good config");
            warnings(&config).into_iter().find(|warning| warning.contains("window"))
        };
        assert!(said(short).is_some_and(|said| said.contains("taken for new")), "{provider}");
        assert_eq!(said(enough), None, "{provider}");
    }
}

#[test]
fn the_replay_guard_is_on_for_github_and_refused_where_ids_are_signed() {
    let with = |provider: &str, rest: &str| format!("[channel.c]\nprovider = '{provider}'\nsecret = 'a-long-secret'\n{rest}");
    assert!(one(&with("github", "")).replay_guard);
    assert!(!one(&with("github", "replay_guard = false")).replay_guard);
    assert!(!one(&with("generic", "")).replay_guard);
    assert!(one(&with("generic", "replay_guard = true")).replay_guard);
    assert!(first_mistake(&with("whatsapp", "replay_guard = true")).contains("channel.c.replay_guard"));
}

#[test]
fn generic_signatures_are_read_and_none_needs_permission() {
    let generic = |rest: &str| format!("[channel.c]\nprovider = 'generic'\n{rest}");
    let rule = |rest: &str| match one(&generic(rest)).provider {
        Settings::Generic(generic) => generic.signature,
        _ => panic!("generic"),
    };
    use hapax_providers::settings::{Encoding, HmacAlgorithm, SignatureRule};
    assert!(matches!(
        rule("secret = 'a-long-secret'\nsignature = { type = 'hmac-sha512', header = 'X-Sig', encoding = 'base64', prefix = 'v1,' }"),
        SignatureRule::Hmac { algorithm: HmacAlgorithm::Sha512, encoding: Encoding::Base64, prefix, .. } if prefix == "v1,"
    ));
    assert!(matches!(rule("secret = 'a-long-secret'"), SignatureRule::Hmac { header, .. } if header == "x-hub-signature-256"));
    assert!(matches!(rule("allow_unsigned = true"), SignatureRule::None));
    assert!(matches!(rule("secret = 'a-long-secret'\nsignature = { type = 'basic', user = 'me' }"), SignatureRule::Basic { .. }));
    assert!(first_mistake(&generic("signature = { type = 'none' }")).contains("allow_unsigned = true"));
    assert!(first_mistake(&generic("")).contains("no `secret`"));
}

#[test]
fn a_provider_that_signs_cannot_be_told_not_to() {
    let text = |word| format!("[channel.c]\nprovider = 'gowa'\nsecret = 'a-long-secret'\nallow_unsigned = {word}");
    one(&text("false"));
    assert!(
        first_mistake(&text("true"))
            .starts_with("hapax.toml:4: channel.c.allow_unsigned: `allow_unsigned` is for provider \"generic\"")
    );
}

#[test]
fn evolution_proves_itself_by_a_token_or_a_header_and_never_by_a_signature() {
    use hapax_providers::settings::{EvolutionProof, SignatureRule};
    let evolution = |rest: &str| format!("[channel.c]\nprovider = 'evolution'\n{rest}");
    let proof = |rest: &str| match one(&evolution(rest)).provider {
        Settings::Evolution { proof, .. } => proof,
        other => panic!("{other:?}"),
    };
    assert!(matches!(proof("secret = 'a-long-secret'"), EvolutionProof::Jwt { secrets } if secrets.len() == 1));
    let header = "secret = 'a-long-secret'\nsignature = { type = 'token', header = 'X-Key' }";
    assert!(matches!(proof(header), EvolutionProof::Header(SignatureRule::Token { .. })));
    assert!(matches!(proof("allow_unsigned = true"), EvolutionProof::Header(SignatureRule::None)));
    let open = load_with(&evolution("allow_unsigned = true"), &[], Flags::default()).expect("a good config");
    assert!(warnings(&open).iter().any(|warning| warning.contains("takes unsigned webhooks")));
    for (rest, says) in [
        ("", "hapax.toml:1: channel.c: no `secret`: anybody could post here"),
        (
            "secret = 'a-long-secret'\nsignature = { type = 'hmac-sha256', header = 'X-Key' }",
            "hapax.toml:4: channel.c.signature: Evolution signs no bodies",
        ),
        ("secret = 'a-long-secret'\nid = '/id'", "hapax.toml:4: channel.c.id: `id` is for provider \"generic\" only"),
        ("secret = 'a-long-secret'\ntoken = 'x'", "hapax.toml:4: channel.c.token: sending needs `api_base` too"),
    ] {
        let said = first_mistake(&evolution(rest));
        assert!(said.starts_with(says), "{said}");
    }
    let sends = one(&evolution("secret = 'a-long-secret'\ntoken = 'my-key'\napi_base = 'http://127.0.0.1:8080'"));
    let Settings::Evolution { token: Some(token), .. } = &sends.provider else { panic!("the key that webhooks may carry") };
    assert_eq!((token.expose_secret(), sends.send.map(|send| send.on_unknown)), ("my-key", Some(OnUnknown::Reconcile)));
}

#[test]
fn telegram_secrets_keep_to_its_alphabet() {
    let said = first_mistake("[channel.c]\nprovider = 'telegram'\nsecret = 'not for telegram!'");
    assert!(said.starts_with("hapax.toml:3: channel.c.secret: Telegram takes only"), "{said}");
}

#[test]
fn standard_keys_are_keys_and_a_public_one_needs_sign_with() {
    let with = |rest: &str| format!("[channel.c]\nprovider = 'standard'\n{rest}");
    let public = "secret = 'whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4='";
    let said = first_mistake(&with("secret = 'whsec_not-base64'"));
    assert!(said.starts_with("hapax.toml:3: channel.c.secret: behind `whsec_`"), "{said}");
    let said = first_mistake(&with(&format!("{public}\ntarget = 'http://bot'")));
    assert!(said.starts_with("hapax.toml:3: channel.c.secret: with a public key nothing can be signed"), "{said}");
    one(&with(public));
    one(&with(&format!("{public}\ntarget = 'http://bot'\nsign_with = 'a-long-secret'")));
}

#[test]
fn twilio_needs_the_address_that_it_was_given() {
    let with = |rest: &str| format!("[channel.c]\nprovider = 'twilio'\nsecret = 'a-long-secret'\n{rest}");
    let said = first_mistake(&with(""));
    assert!(said.starts_with("hapax.toml:1: channel.c: `public_url` is missing: Twilio signs the address"), "{said}");
    for (url, says) in [
        ("your.host/in/sms", "this is not an http:// or https:// address"),
        ("https://your.host", "this is the host alone"),
        ("https://your.host/", "this is the host alone"),
        ("https://your.host/in/sms?x=1", "leave out what follows `?` and `#`"),
        ("https://your.host/in/sms#rc=5", "leave out what follows `?` and `#`"),
        ("https://me:hush@your.host/in/sms", "a password does not belong in the address"),
    ] {
        let said = first_mistake(&with(&format!("public_url = '{url}'")));
        assert!(said.starts_with(&format!("hapax.toml:4: channel.c.public_url: {says}")), "{said}");
        assert!(!said.contains("hush"), "{said}");
    }
    let url = "public_url = 'https://your.host/in/sms'";
    assert!(one(&with(url)).send.is_none());
    let said = first_mistake(&with(&format!("{url}\ntoken = 'AC1:x'")));
    assert!(said.starts_with("hapax.toml:5: channel.c.token: this is no Twilio login"), "{said}");
    let send = one(&with(&format!("{url}\ntoken = 'AC{}:x'", "0".repeat(32)))).send.expect("it sends");
    assert_eq!((send.api_base.as_str(), send.on_unknown), ("https://api.twilio.com", OnUnknown::Reconcile));
    let said = first_mistake("[channel.c]\nprovider = 'gowa'\nsecret = 'a-long-secret'\npublic_url = 'https://x/y'");
    assert!(said.starts_with("hapax.toml:4: channel.c.public_url: `public_url` is for provider \"twilio\" only"), "{said}");
}

#[test]
fn the_starter_is_a_good_config_with_every_provider_and_a_fresh_secret_each() {
    let mut asked = Vec::new();
    let text = starter(|name| {
        asked.push(name.to_owned());
        format!("{:0>32}", asked.len())
    });
    let config = load_with(&text, &[], Flags::default()).expect("a good config");
    let mut names: Vec<_> = config.channels.iter().map(|channel| (&*channel.name, channel.provider.provider())).collect();
    names.sort_unstable();
    let mut all: Vec<_> = super::channel::provider_names().map(|name| (name, name)).collect();
    all.sort_unstable();
    assert_eq!(names, all);
    assert_eq!(asked.iter().filter(|name| !name.contains('.')).count(), all.len());
    assert!(config.channels.iter().all(|channel| channel.target.is_none()));
    assert!(!warnings(&config).iter().any(|warning| warning.contains("verify_token")));
}

#[test]
fn a_channel_of_meta_without_a_verify_token_is_told_what_to_do() {
    for provider in ["whatsapp", "messenger", "instagram"] {
        let text = format!("[channel.a]\nprovider = \"{provider}\"\nsecret = \"0123456789abcdef0123456789abcdef\"\n");
        let config = load_with(&text, &[], Flags::default()).expect("a good config");
        let said = warnings(&config).into_iter().find(|warning| warning.contains("verify_token")).expect("a warning");
        assert!(said.contains("401") && said.contains("set verify_token to a word of your own"), "{said}");
    }
}

#[test]
fn debug_hides_secrets() {
    let text = "admin_token = 'an-admin-token-of-mine'\n[channel.c]\nprovider = 'whatsapp'\nsecret = 'a-long-secret'\n\
                verify_token = 'my-verify-token'\nsign_with = 'my-signing-key'\ntoken = 'my-api-token'\n\
                target = 'http://me:my-password@bot/?key=my-query'";
    let config = load_with(text, &[], Flags::default()).expect("a good config");
    let secrets =
        ["an-admin-token", "a-long-secret", "my-verify-token", "my-signing-key", "my-api-token", "my-password", "my-query"];
    for secret in secrets {
        assert!(!format!("{config:?}").contains(secret), "Debug shows {secret}");
    }
}

#[test]
fn a_server_is_found_without_the_channels_secrets() {
    let text = "listen = '127.0.0.1:1'\nadmin_listen = '127.0.0.1:2'\n[channel.c]\nsecret = '${NOT_HERE}'";
    let admin = load_admin(&sources(text, &[("HAPAX_ADMIN_TOKEN", "t")], Flags::default())).expect("an address");
    assert_eq!(admin.address.port(), 2);
    assert_eq!(admin.token.expect("set").expose_secret(), "t");
}

#[test]
fn the_admin_surface_is_not_opened_to_the_world_by_accident() {
    let said = |text: &str, env: &[(&str, &str)]| load_with(text, env, Flags::default()).map_err(|mistakes| mistakes.to_string());
    for open in
        ["listen = '0.0.0.0:1'", "listen = '[::]:1'", "listen = '192.0.2.1:1'", "listen = '0.0.0.0:1'\nadmin_public = false"]
    {
        let said = said(open, &[]).expect_err("refused");
        let names =
            ["hapax.toml:1: listen: ", "admin_listen = \"127.0.0.1:4273\"", "admin_public = true", "-p 127.0.0.1:4273:4273"];
        assert!(names.iter().all(|name| said.contains(name)), "{said}");
    }
    assert!(said("", &[("PORT", "3")]).is_err());
    for closed in [
        "listen = '127.0.0.1:1'",
        "listen = '[::1]:1'",
        "listen = '0.0.0.0:1'\nadmin_listen = '127.0.0.1:2'",
        "listen = '0.0.0.0:1'\nadmin_public = true",
    ] {
        assert!(said(closed, &[]).is_ok(), "{closed}");
    }
    let docker = [("HAPAX_LISTEN", "0.0.0.0:4272"), ("HAPAX_ADMIN_LISTEN", "0.0.0.0:4273")];
    assert_eq!(said("", &docker).expect("fine").admin_listen.expect("set").port(), 4273);
}

#[test]
fn trusted_proxies_are_addresses_or_blocks() {
    let config = load_with("trusted_proxies = ['10.0.0.0/8', '::1']", &[], Flags::default()).expect("a good config");
    assert!(config.trusted_proxies[0].holds("10.1.2.3".parse().expect("an address")));
    let said = first_mistake("trusted_proxies = ['nginx']");
    assert!(said.contains("`nginx` is not an address or a block of them"), "{said}");
}

#[test]
fn origins_have_a_scheme_and_no_path() {
    let config = load_with("cors_origins = ['https://app.example.com', 'http://localhost:3000']", &[], Flags::default());
    assert_eq!(config.expect("a good config").cors_origins, ["https://app.example.com", "http://localhost:3000"]);
    for odd in ["*", "app.example.com", "https://app.example.com/", "https://App.example.com", "https://a,b", "https://"] {
        let said = first_mistake(&format!("cors_origins = ['{odd}']"));
        assert!(said.contains("is not an origin"), "{odd}: {said}");
    }
}
