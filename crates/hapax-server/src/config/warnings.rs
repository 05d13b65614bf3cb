//! What a config may mean, and probably does not.

use hapax::StoreUrl;
use hapax_domain::units::write_ms;
use hapax_gateway::settings::{Channel, Mode, OnStoreFailure, OnUnknown, Send};
use hapax_providers::settings::{EvolutionProof, Settings, SignatureRule};
use secrecy::ExposeSecret;

use super::Config;

/// Says, one sentence each, what is allowed and worth a second look.
pub fn warnings(config: &Config) -> Vec<String> {
    let mut said = Vec::new();
    if config.channels.is_empty() {
        said.push("no channel is configured, so nothing can come in; `hapax config init` writes a file to start from".to_owned());
    }
    if config.store == StoreUrl::Memory {
        said.push(
            "store = \"memory:\" forgets everything when hapax stops; use \"sqlite:hapax.db\" to keep the promises".to_owned(),
        );
    }
    said.extend(open_store(config));
    said.extend(open_door(config));
    for channel in &config.channels {
        let name = &channel.name;
        if channel.addresses().any(is_http_elsewhere) {
            said.push(format!(
                "channel.{name}: `target` is http:// and not on this machine: messages can be read and changed on the way"
            ));
        }
        if let Settings::Whatsapp { verify_token: None, .. }
        | Settings::Messenger { verify_token: None, .. }
        | Settings::Instagram { verify_token: None, .. } = &channel.provider
        {
            said.push(format!(
                "channel.{name}: without `verify_token` Meta's check of the callback URL is answered 401, and Meta does not save it; set \
                 verify_token to a word of your own (`openssl rand -hex 16`) and type the same beside the URL"
            ));
        }
        if channel.send.as_ref().is_some_and(|send| send.on_unknown == OnUnknown::Resend) {
            said.push(format!("channel.{name}: on_unknown = \"resend\": a message whose answer was lost may arrive twice"));
        }
        if channel.send.as_ref().is_some_and(is_open_to_all) {
            said.push(format!("channel.{name}: `api_base` is http:// and not on this machine: the token can be read on the way"));
        }
        if let Some(bytes) = shortest_secret(&channel.provider).filter(|bytes| *bytes < SECRET_SOON_BYTES) {
            said.push(format!(
                "channel.{name}: a secret of {bytes} bytes can be guessed; the next version takes {SECRET_SOON_BYTES} and more (`openssl rand -hex 24`)"
            ));
        }
        if signs_by_authorization(&channel.provider) && channel.addresses().any(has_login) {
            said.push(format!(
                "channel.{name}: the user and password in `target` are not sent: webhooks of this channel are signed by the same header, `Authorization`"
            ));
        }
        if channel.target.is_none() && !channel.targets.is_empty() {
            said.push(format!(
                "channel.{name}: without a `target`, events of accounts that `targets` does not name are kept waiting until they have one"
            ));
        }
        said.extend(window(channel));
        said.extend(on_store_failure(config, channel));
        if matches!(rule_of(&channel.provider), Some(SignatureRule::None)) {
            said.push(format!("channel.{name}: takes unsigned webhooks: whoever can reach it can post to it"));
        }
    }
    said.extend(nobody_is_delivered_to(config));
    said
}

/// Who wrote mode = "pull" knows.
fn nobody_is_delivered_to(config: &Config) -> Option<String> {
    let waits = |channel: &&Channel| !channel.has_target() && !channel.is_polled() && channel.mode != Mode::Pull;
    let waiting: Vec<_> = config.channels.iter().filter(waits).map(|channel| &*channel.name).collect();
    let names = Some(waiting.join(", ")).filter(|names| !names.is_empty())?;
    Some(format!(
        "no `target` in channel {names}: its events are kept waiting until there is one (`hapax listen PORT` gives it one), or a worker \
         pulls them (POST /v1/pull)"
    ))
}

/// What a store on another machine without checked TLS means.
fn open_store(config: &Config) -> Option<String> {
    let todo = match config.store {
        StoreUrl::Postgres(_) => "add ?sslmode=require",
        StoreUrl::Mysql(_) => "add ?require_ssl=true",
        _ => "use rediss://",
    };
    let store = &config.store;
    is_open_on_the_way(store).then(|| {
        format!(
            "store = \"{store}\": the connection is not proved to be the server's own, so what is stored can be read and changed on the way; {todo}"
        )
    })
}

/// What an open Redis door without TLS means.
fn open_door(config: &Config) -> Option<String> {
    let resp = config.resp.as_ref().filter(|resp| resp.tls.is_none() && !resp.listen.ip().to_canonical().is_loopback())?;
    let at = resp.listen;
    Some(format!(
        "resp_listen = \"{at}\": other machines reach the Redis door, and nothing is encrypted: tokens and values can be read on the way"
    ))
}

/// Secrets shorter than this will be refused.
const SECRET_SOON_BYTES: usize = 16;

fn shortest_secret(provider: &Settings) -> Option<usize> {
    let secrets = match provider {
        Settings::Whatsapp { secrets, .. }
        | Settings::Messenger { secrets, .. }
        | Settings::Instagram { secrets, .. }
        | Settings::Telegram { secrets, .. }
        | Settings::Gowa { secrets }
        | Settings::Waha { secrets }
        | Settings::Stripe { secrets }
        | Settings::Github { secrets }
        | Settings::Standard { secrets }
        | Settings::Shopify { secrets }
        | Settings::Slack { secrets }
        | Settings::Twilio { secrets, .. } => secrets,
        Settings::Evolution { proof: EvolutionProof::Jwt { secrets }, .. } => secrets,
        Settings::Evolution { .. } | Settings::Generic(_) => match rule_of(provider)? {
            SignatureRule::Hmac { secrets, .. } | SignatureRule::Token { secrets, .. } => secrets,
            SignatureRule::Basic { passwords, .. } => passwords,
            SignatureRule::None => return None,
        },
    };
    secrets.iter().map(|secret| secret.expose_secret().len()).min()
}

/// How webhooks prove themselves, where the channel says so.
fn rule_of(provider: &Settings) -> Option<&SignatureRule> {
    match provider {
        Settings::Generic(generic) => Some(&generic.signature),
        Settings::Evolution { proof: EvolutionProof::Header(rule), .. } => Some(rule),
        _ => None,
    }
}

/// True where what proves a webhook stands in the header in which a login would stand.
fn signs_by_authorization(provider: &Settings) -> bool {
    match provider {
        Settings::Evolution { proof: EvolutionProof::Jwt { .. }, .. } => true,
        _ => match rule_of(provider) {
            Some(SignatureRule::Hmac { header, .. } | SignatureRule::Token { header, .. }) => {
                *header == http::header::AUTHORIZATION
            }
            Some(SignatureRule::Basic { .. }) => true,
            Some(SignatureRule::None) | None => false,
        },
    }
}

fn has_login(address: &str) -> bool {
    let authority = address.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
    authority.contains('@')
}

/// Says what is fine, if it is meant.
pub fn notes(config: &Config) -> Vec<String> {
    let sends = |channel: &&Channel| hapax_providers::build_sending(&channel.provider, None).is_some();
    let mute = config.channels.iter().filter(|channel| channel.send.is_none() && channel.has_target()).filter(sends);
    let note = |channel: &Channel| {
        format!(
            "channel.{}: without `token` (and `api_base`, where the provider is your own) hapax cannot send: replies in the bot's answers \
             are kept in the event's story, and not sent. That is fine if the bot sends by itself",
            channel.name
        )
    };
    mute.map(note).collect()
}

/// What a window costs that ends before the provider has given up.
fn window(channel: &Channel) -> Option<String> {
    let (window_ms, retries_ms) = (channel.window_ms, channel.provider.retries_ms());
    let (name, provider) = (&channel.name, channel.provider.provider());
    let (window, retries) = (write_ms(window_ms), write_ms(retries_ms));
    (window_ms <= retries_ms).then(|| {
        format!(
            "channel.{name}: window = \"{window}\": {provider} may send a webhook again for {retries}; a copy that comes after the window is taken for new"
        )
    })
}

/// What a channel's `on_store_failure` means, where it is not what one might think.
fn on_store_failure(config: &Config, channel: &Channel) -> Option<String> {
    let meaning = match channel.on_store_failure {
        OnStoreFailure::Spool if config.store.is_embedded() => {
            "beside an embedded store a spool would be the same disk; it works as \"retry\""
        }
        OnStoreFailure::Pass => "while the store is down, copies reach the target, and nothing is recorded",
        OnStoreFailure::Drop => "what comes while the store is down is answered 200 and lost",
        OnStoreFailure::Retry | OnStoreFailure::Spool => return None,
    };
    Some(format!("channel.{}: on_store_failure = \"{}\": {meaning}", channel.name, channel.on_store_failure.name()))
}

/// True when a token crosses a network unencrypted.
fn is_open_to_all(send: &Send) -> bool {
    send.token.is_some() && is_http_elsewhere(&send.api_base)
}

fn is_http_elsewhere(address: &str) -> bool {
    address.parse::<http::Uri>().is_ok_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_none_or(|host| !is_here(host)))
}

fn is_here(host: &str) -> bool {
    let bare = host.trim_matches(['[', ']']);
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// True when the store is on another machine, and its address does not ask for TLS with a certificate that is checked.
fn is_open_on_the_way(store: &StoreUrl) -> bool {
    let address = match store {
        StoreUrl::Postgres(address) | StoreUrl::Mysql(address) | StoreUrl::Redis(address) => address.expose(),
        StoreUrl::Memory | StoreUrl::Sqlite(_) | StoreUrl::Firestore(_) => return false,
    };
    let (scheme, rest) = address.split_once("://").unwrap_or_default();
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split(['/', '#']).next().unwrap_or_default();
    let hosts = authority.rsplit('@').next().unwrap_or_default();
    let without_port = |host: &str| match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default().to_owned(),
        None => host.split(':').next().unwrap_or_default().to_owned(),
    };
    // No host, or a path, is a socket of this machine.
    let here = |host: &str| host.is_empty() || host.starts_with("%2F") || host.starts_with("%2f") || is_here(host);
    let asks = |wanted: &str| query.split('&').any(|pair| pair.eq_ignore_ascii_case(wanted));
    let checked = match store {
        StoreUrl::Postgres(_) => asks("sslmode=require"),
        StoreUrl::Mysql(_) => asks("require_ssl=true") && !asks("verify_ca=false") && !asks("verify_identity=false"),
        _ => scheme == "rediss" && !address.ends_with("#insecure"),
    };
    !checked && !hosts.split(',').map(without_port).all(|host| here(&host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_elsewhere_without_checked_tls_is_worth_a_word() {
        for (address, open) in [
            ("postgres://u:p@db.internal/x", true),
            ("postgres://u:p@db.internal/x?sslmode=prefer", true),
            ("postgres://u:p@db.internal/x?application_name=a&sslmode=require", false),
            ("postgres://u@127.0.0.1:5432/x", false),
            ("postgres://u@127.0.0.1,10.0.0.2/x", true),
            ("postgres://%2Fvar%2Frun%2Fpostgresql/x", false),
            ("mysql://u:p@10.0.0.2/x", true),
            ("mysql://u:p@10.0.0.2/x?require_ssl=true", false),
            ("mysql://u:p@10.0.0.2/x?require_ssl=true&verify_ca=false", true),
            ("mysql://u:p@localhost/x", false),
            ("redis://cache:6379/0", true),
            ("rediss://cache:6379/0", false),
            ("rediss://cache:6379/0#insecure", true),
            ("redis://[::1]:6379/0", false),
            ("firestore://project", false),
            ("sqlite:hapax.db", false),
        ] {
            assert_eq!(is_open_on_the_way(&StoreUrl::read(address).expect("an address")), open, "{address}");
        }
    }

    #[test]
    fn a_channel_that_cannot_send_is_worth_a_note() {
        let noted = |lines: &str| {
            let text = format!("[channel.c]\nprovider = 'whatsapp'\nsecret = 'a-long-enough-secret'\n{lines}");
            let file = Some(crate::config::SourceFile { name: "t".to_owned(), text });
            let env =
                crate::config::Environment { vars: Default::default(), read_file: &|_| Err(std::io::ErrorKind::NotFound.into()) };
            let sources = crate::config::Sources { file, env, flags: Default::default() };
            notes(&crate::config::load(&sources).expect("a good config"))
        };
        let said = noted("target = 'http://127.0.0.1:1/'");
        assert!(said.len() == 1 && said[0].contains("`token`"), "{said:?}");
        assert_eq!(noted("target = 'http://127.0.0.1:1/'\ntoken = 'a-token-to-send'"), Vec::<String>::new());
        assert_eq!(noted(""), Vec::<String>::new(), "nobody answers");
    }

    #[test]
    fn short_secrets_are_worth_a_word() {
        let gowa = |secret: &str| Settings::Gowa { secrets: vec!["0123456789abcdef".into(), secret.into()] };
        assert_eq!(shortest_secret(&gowa("12345678")), Some(8));
        assert_eq!(shortest_secret(&gowa("a longer secret than that")), Some(16));
    }

    #[test]
    fn a_login_that_is_not_sent_is_worth_a_word() {
        let evolution = |proof| Settings::Evolution { proof, token: None };
        let token = |header| SignatureRule::Token { header, prefix: String::new(), secrets: vec![] };
        for (provider, same) in [
            (evolution(EvolutionProof::Jwt { secrets: vec![] }), true),
            (evolution(EvolutionProof::Header(token(http::header::AUTHORIZATION))), true),
            (evolution(EvolutionProof::Header(token(http::header::COOKIE))), false),
            (Settings::Gowa { secrets: vec![] }, false),
        ] {
            assert_eq!(signs_by_authorization(&provider), same, "{provider:?}");
        }
        assert!(has_login("https://ana:x@bot.example/a") && !has_login("https://bot.example/a?to=ana@b"));
    }

    #[test]
    fn http_is_for_this_machine() {
        for (address, open) in [
            ("http://bot:3000/", true),
            ("http://10.0.0.3/", true),
            ("https://bot.example/", false),
            ("http://127.0.0.1:3000/x", false),
            ("http://localhost/", false),
            ("http://[::1]:3000/", false),
            ("http://localhost.example/", true),
        ] {
            assert_eq!(is_http_elsewhere(address), open, "{address}");
        }
    }
}
