//! What of a new config can be applied while hapax runs, and what needs a restart.

use std::collections::{BTreeMap, BTreeSet};

use hapax::StoreUrl;
use hapax_gateway::server::Reloaded;
use hapax_gateway::settings::Channel;
use secrecy::{ExposeSecret, SecretString};

use super::Config;

/// Of every channel, by name: see [`super::channel_fingerprints`].
pub(super) type Fingerprints = BTreeMap<String, [u8; 32]>;

/// Says how a new config differs from the one that runs, or everything that keeps it from being applied.
///
/// `started` is what hapax was started with, `running` the fingerprints of what runs now, `new` and `fingerprints` what was read just now.
pub fn differences(
    started: &Config,
    running: &Fingerprints,
    new: &Config,
    fingerprints: &Fingerprints,
) -> Result<Reloaded, Vec<String>> {
    let missing_in = |of: &Fingerprints, other: &Fingerprints| -> Vec<String> {
        of.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
    };
    let changed = fingerprints.iter().filter(|(name, print)| running.get(*name).is_some_and(|before| before != *print));
    let differs = Reloaded {
        added: missing_in(fingerprints, running),
        changed: changed.map(|(name, _)| name.clone()).collect(),
        removed: missing_in(running, fingerprints),
    };
    let keys = fixed_keys(started, new).into_iter().map(|key| format!("{key} was changed, and needs a restart"));
    // A file that is just being written is empty for a moment, and a provider that hears 401 may not come again.
    let emptied = !running.is_empty() && fingerprints.is_empty();
    let emptied = emptied
        .then(|| "no channel is left in it, so that every webhook would be refused; if that is meant, stop hapax".to_owned());
    let reasons: Vec<String> = keys.chain(fixed_channels(started, new, &differs)).chain(emptied).collect();
    if reasons.is_empty() { Ok(differs) } else { Err(reasons) }
}

/// Bots that poll are served by what was made at the start, and so is whoever sends by the provider's own API, or through Firestore's documents.
fn fixed_channels(started: &Config, new: &Config, differs: &Reloaded) -> Vec<String> {
    let mut reasons = Vec::new();
    let touched = [&differs.added, &differs.changed, &differs.removed].into_iter().flatten();
    for name in touched {
        let is_polled = |config: &Config| config.channels.iter().any(|channel| *channel.name == **name && channel.is_polled());
        if is_polled(started) || is_polled(new) {
            reasons.push(format!("channel.{name} was changed, and needs a restart: its bot polls"));
        }
    }
    let serves_bots = |config: &Config| config.channels.iter().any(|channel| channel.dropin.is_some());
    if serves_bots(new) && !serves_bots(started) {
        reasons.push("`dropin` needs a restart where no channel had it before".to_owned());
    }
    if matches!(started.store, StoreUrl::Firestore(_)) && senders(started) != senders(new) {
        reasons.push("channels that send were added or removed, which needs a restart: front ends write for them".to_owned());
    }
    reasons
}

/// Who sends, by which provider.
fn senders(config: &Config) -> BTreeSet<(&str, &str)> {
    let of = |channel: &'_ &Channel| channel.send.is_some();
    config.channels.iter().filter(of).map(|channel| (&*channel.name, channel.provider.provider())).collect()
}

/// Keys that were changed and are looked at only at the start.
fn fixed_keys(started: &Config, new: &Config) -> Vec<&'static str> {
    let token = |token: &Option<SecretString>| token.as_ref().map(|token| token.expose_secret().to_owned());
    let resp = |config: &Config| {
        config.resp.as_ref().map(|resp| (resp.listen, resp.tls.as_ref().map(|tls| (tls.cert.clone(), tls.key.clone()))))
    };
    let notify =
        |config: &Config| config.notify.as_ref().map(|notify| (notify.url.clone(), notify.secret.expose_secret().to_owned()));
    let changed = [
        ("listen", started.listen != new.listen),
        ("admin_listen", started.admin_listen != new.admin_listen),
        ("dropin_listen", started.dropin_listen != new.dropin_listen),
        ("resp_listen", resp(started) != resp(new)),
        ("trusted_proxies", started.trusted_proxies != new.trusted_proxies),
        ("admin_token", token(&started.admin_token) != token(&new.admin_token)),
        ("store", started.store != new.store),
        ("spool", started.spool != new.spool),
        ("[backup]", started.backup != new.backup),
        ("notify", notify(started) != notify(new)),
        ("instance", started.instance != new.instance),
        ("stop_grace", started.stop_grace_ms != new.stop_grace_ms),
        ("limits.connections", started.limits.connections != new.limits.connections),
        ("limits.header_timeout", started.limits.header_timeout_ms != new.limits.header_timeout_ms),
        ("limits.body_timeout", started.limits.body_timeout_ms != new.limits.body_timeout_ms),
        ("limits.cache_keys", started.limits.cache_keys != new.limits.cache_keys),
        ("limits.store_queue", started.engine.queue != new.engine.queue),
        ("limits.disk_floor", started.engine.disk_floor_bytes != new.engine.disk_floor_bytes),
        ("[claims]", started.claims != new.claims),
        ("[log]", started.log != new.log),
        ("[otel]", started.otel != new.otel),
    ];
    changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, Flags, SourceFile, Sources, channel_fingerprints, load};
    use super::*;

    fn read(text: &str) -> (Config, Fingerprints) {
        let read_file: &dyn Fn(&str) -> std::io::Result<String> = &|_| Err(std::io::ErrorKind::NotFound.into());
        let file = Some(SourceFile { name: "hapax.toml".to_owned(), text: text.to_owned() });
        let sources = Sources { file, env: Environment { vars: Default::default(), read_file }, flags: Flags::default() };
        (load(&sources).expect("a good config"), channel_fingerprints(&sources))
    }

    const SHOP: &str = "[channel.shop]\nprovider = 'stripe'\nsecret = 'whsec_one-of-them'\n";
    const BOT: &str = "[channel.bot]\nprovider = 'telegram'\nsecret = 'a-secret-word'\ndropin = true\n\
                       token = '123456:a-hidden-token-of-a-bot-of-35-chars'\n";

    fn reloaded(before: &str, after: &str) -> Result<Reloaded, Vec<String>> {
        let ((started, running), (new, fingerprints)) = (read(before), read(after));
        differences(&started, &running, &new, &fingerprints)
    }

    #[test]
    fn channels_are_told_apart_by_all_that_they_are_told() {
        let more = format!("\n# moved down\n{SHOP}[channel.pay]\nprovider = 'stripe'\nsecret = 'whsec_another'\n");
        assert_eq!(reloaded(SHOP, &more), Ok(Reloaded { added: vec!["pay".to_owned()], ..Reloaded::default() }));
        let shop = || vec!["shop".to_owned()];
        let rotated = SHOP.replace("whsec_one", "whsec_two");
        assert_eq!(reloaded(SHOP, &rotated), Ok(Reloaded { changed: shop(), ..Reloaded::default() }), "a secret");
        let fewer_tries = format!("{SHOP}[defaults]\nattempts = 3\n");
        assert_eq!(reloaded(SHOP, &fewer_tries), Ok(Reloaded { changed: shop(), ..Reloaded::default() }), "what holds for all");
        assert_eq!(reloaded(&more, SHOP), Ok(Reloaded { removed: vec!["pay".to_owned()], ..Reloaded::default() }));
        assert_eq!(reloaded(SHOP, &format!("[limits]\nbodies = '100MB'\noutbox = 9\n{SHOP}")), Ok(Reloaded::default()));
    }

    #[test]
    fn what_is_looked_at_only_at_the_start_is_refused_all_of_it() {
        let after = format!(
            "listen = '127.0.0.1:1'\nstore = 'memory:'\nstop_grace = '5s'\n[limits]\nconnections = 7\noutbox = 9\n{SHOP}"
        );
        let named = ["listen", "store", "stop_grace", "limits.connections"];
        assert_eq!(reloaded(SHOP, &after), Err(named.map(|key| format!("{key} was changed, and needs a restart")).to_vec()));
    }

    #[test]
    fn a_config_without_any_channel_is_no_wish_to_refuse_all() {
        let reasons = reloaded(SHOP, "").expect_err("refused");
        assert!(matches!(reasons.as_slice(), [only] if only.contains("no channel is left")), "{reasons:?}");
        assert_eq!(reloaded("", ""), Ok(Reloaded::default()), "there was none before");
    }

    #[test]
    fn what_serves_bots_that_poll_needs_a_restart() {
        let polls = || vec!["channel.bot was changed, and needs a restart: its bot polls".to_owned()];
        assert_eq!(reloaded(BOT, &BOT.replace("a-secret-word", "another-word")), Err(polls()));
        assert_eq!(reloaded(&format!("{BOT}{SHOP}"), SHOP), Err(polls()));
        assert_eq!(reloaded("", BOT).expect_err("nobody serves it").len(), 2);
        let beside = Reloaded { added: vec!["shop".to_owned()], ..Reloaded::default() };
        assert_eq!(reloaded(BOT, &format!("{BOT}{SHOP}")), Ok(beside));
    }
}
