//! What a channel's targets want to see beside the webhook: `target_headers`, `target_cert` with `target_key`, and whom to believe, `target_ca`.

use hapax_gateway::settings::{BadTargetTls, TargetAccess, TargetTls};
use http::header;

use super::headers::read_headers;
use super::mistake::Mistakes;
use super::section::{Found, Section, join};
use super::tree::Environment;

pub(super) const KEYS: [&str; 4] = ["target_headers", "target_cert", "target_key", "target_ca"];

/// They describe one connection, and the client sets them as they are.
const OF_THE_CONNECTION: [&str; 13] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
    "host",
    "content-length",
    "accept-encoding",
];

/// Set by hapax for each webhook; one value for all of them would be wrong for all of them.
const OURS: [&str; 6] =
    ["idempotency-key", "traceparent", "webhook-id", "webhook-timestamp", "webhook-signature", "content-type"];

/// `addresses` are those of the channel's targets.
pub(super) fn read<'a>(
    section: &Section<'_>,
    addresses: impl Iterator<Item = &'a String>,
    env: &Environment<'_>,
    mistakes: &mut Mistakes,
) -> TargetAccess {
    let addresses: Vec<&str> = addresses.map(String::as_str).collect();
    let headers = section.get("target_headers").map(|found| {
        let headers = read_headers(&found, mistakes);
        check_names(&found, &addresses, mistakes);
        headers
    });
    let tls = read_tls(section, env, mistakes);
    if let Some(found) = KEYS.iter().filter(|_| addresses.is_empty()).find_map(|key| own(section, key)) {
        found.refuse(mistakes, "this is for the channel's targets, and it has none; add `target`, or take it out");
    }
    let in_the_open = |address: &&str| address.starts_with("http://");
    if let Some(found) = KEYS[1..].iter().find_map(|key| section.get(key))
        && addresses.iter().any(in_the_open)
    {
        found
            .refuse(mistakes, "certificates are for https:// targets, and one here is http://; correct `target`, or take it out");
    }
    TargetAccess { headers: headers.unwrap_or_default(), tls }
}

/// A key of the channel itself: what `[defaults]` says need not fit every channel.
fn own<'t>(section: &Section<'t>, key: &str) -> Option<Found<'t>> {
    section.get(key).filter(|found| !found.path.starts_with("defaults."))
}

fn check_names(found: &Found<'_>, addresses: &[&str], mistakes: &mut Mistakes) {
    // What is no table has been refused already.
    for (name, entry) in found.table(&mut Mistakes::default()).into_iter().flatten() {
        let found = Found { path: join(&found.path, name), entry };
        let small = name.to_ascii_lowercase();
        if OF_THE_CONNECTION.contains(&small.as_str()) {
            found.refuse(mistakes, format!("`{name}` belongs to the connection, and hapax sets it; take it out"));
        } else if OURS.contains(&small.as_str()) || small.starts_with("hapax-") {
            found.refuse(mistakes, format!("`{name}` tells the bot about each webhook, and hapax sets it; take it out"));
        }
        let has_login = |address: &&str| address.split('/').nth(2).is_some_and(|authority| authority.contains('@'));
        if small == header::AUTHORIZATION.as_str() && addresses.iter().any(has_login) {
            found.refuse(mistakes, "a `target` has a user and password in its address, which become the same header; keep one");
        }
    }
}

fn read_tls(section: &Section<'_>, env: &Environment<'_>, mistakes: &mut Mistakes) -> TargetTls {
    let (cert, key, ca) = (section.get("target_cert"), section.get("target_key"), section.get("target_ca"));
    let mut text = |found: &Option<Found<'_>>| found.as_ref().and_then(|found| read_pem(found, env, mistakes));
    let (cert_text, key_text, ca_text) = (text(&cert), text(&key), text(&ca));
    match (&cert, &key) {
        (Some(alone), None) => alone.refuse(mistakes, "a certificate needs its key; add target_key = \"FILE\""),
        (None, Some(alone)) => alone.refuse(mistakes, "a key needs its certificate; add target_cert = \"FILE\""),
        _ => {}
    }
    match TargetTls::read(cert_text.as_deref().zip(key_text.as_deref()), ca_text.as_deref()) {
        Ok(tls) => tls,
        Err(why) => {
            let wrong = match why {
                BadTargetTls::Identity => cert.as_ref(),
                BadTargetTls::Authority => ca.as_ref(),
            };
            wrong.inspect(|found| found.refuse(mistakes, why.to_string()));
            TargetTls::default()
        }
    }
}

fn read_pem(found: &Found<'_>, env: &Environment<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let path = found.text(mistakes)?;
    (env.read_file)(path).map_err(|why| found.refuse(mistakes, format!("this file cannot be read: {why}"))).ok()
}
