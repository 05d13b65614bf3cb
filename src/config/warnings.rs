//! What a config may mean, and probably does not.

use super::{Channel, Config, OnStoreFailure, OnUnknown, Send, StoreUrl};
use crate::providers::settings::{Settings, SignatureRule};

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
    for channel in &config.channels {
        let name = &channel.name;
        if matches!(&channel.provider, Settings::Whatsapp { verify_token: None, .. }) {
            said.push(format!("channel.{name}: without `verify_token` Meta's handshake fails when you save the callback URL"));
        }
        if channel.send.as_ref().is_some_and(|send| send.on_unknown == OnUnknown::Resend) {
            said.push(format!("channel.{name}: on_unknown = \"resend\": a message whose answer was lost may arrive twice"));
        }
        if channel.send.as_ref().is_some_and(is_open_to_all) {
            said.push(format!("channel.{name}: `api_base` is http:// and not on this machine: the token can be read on the way"));
        }
        said.extend(on_store_failure(config, channel));
        let unsigned =
            matches!(&channel.provider, Settings::Generic(generic) if matches!(generic.signature, SignatureRule::None));
        if unsigned {
            said.push(format!("channel.{name}: takes unsigned webhooks: whoever can reach it can post to it"));
        }
    }
    let waiting: Vec<_> =
        config.channels.iter().filter(|channel| channel.target.is_none()).map(|channel| &*channel.name).collect();
    if !waiting.is_empty() {
        said.push(format!("no `target` in channel {}: its events are kept waiting until there is one", waiting.join(", ")));
    }
    said
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
    let Some(rest) = send.api_base.strip_prefix("http://") else { return false };
    let at_home = ["127.", "localhost", "[::1]"].iter().any(|home| rest.starts_with(home));
    send.token.is_some() && !at_home
}
