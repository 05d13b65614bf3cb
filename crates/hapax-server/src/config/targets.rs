//! Where a channel's events go: `target` for all, `[channel.NAME.targets]` for single accounts.

use std::collections::BTreeMap;

use hapax_domain::limits::NAME_MAX_BYTES;

use super::mistake::Mistakes;
use super::section::{Found, Section, join};

/// Where events go whose account `targets` does not name, and where those go that it names.
pub(super) type Targets = (Option<String>, BTreeMap<String, String>);

const TARGETS_MAX: usize = 1_000;

/// Providers whose webhooks do not say whose they are: all are of one account.
const ONE_ACCOUNT: [&str; 3] = ["telegram", "standard", "generic"];

/// Those whose accounts are Meta's numbers for them: a phone number typed here would match nothing.
const NUMBERED: [&str; 3] = ["whatsapp", "messenger", "instagram"];

pub(super) fn read(section: &Section<'_>, provider: &str, mistakes: &mut Mistakes) -> Targets {
    let target = section.get("target").and_then(|found| read_address(&found, mistakes));
    let targets = section.get("targets").map(|found| read_table(&found, provider, mistakes)).unwrap_or_default();
    (target, targets)
}

/// True when some events of the channel are to go somewhere, rightly written or not.
pub(super) fn has_any(section: &Section<'_>) -> bool {
    section.get("target").is_some() || section.get("targets").is_some()
}

fn read_table(found: &Found<'_>, provider: &str, mistakes: &mut Mistakes) -> BTreeMap<String, String> {
    let Some(table) = found.table(mistakes) else { return BTreeMap::new() };
    if ONE_ACCOUNT.contains(&provider) {
        found.refuse(
            mistakes,
            format!("webhooks of \"{provider}\" do not name an account; make a channel for each target instead"),
        );
        return BTreeMap::new();
    }
    if table.is_empty() {
        found.refuse(
            mistakes,
            "it names no account; write \"ACCOUNT\" = \"http://127.0.0.1:3000/webhook\" below it, or take it out",
        );
    }
    if table.len() > TARGETS_MAX {
        found.refuse(mistakes, format!("{} targets are too many; at most {TARGETS_MAX}", table.len()));
    }
    let mut targets = BTreeMap::new();
    for (account, entry) in table {
        let found = Found { path: join(&found.path, account), entry };
        check_account(account, &found, provider, mistakes);
        targets.extend(read_address(&found, mistakes).map(|address| (account.clone(), address)));
    }
    targets
}

fn check_account(account: &str, found: &Found<'_>, provider: &str, mistakes: &mut Mistakes) {
    if account.is_empty() || account.len() > NAME_MAX_BYTES {
        found.refuse(mistakes, "this is no account; write it as `hapax events` shows it");
    } else if NUMBERED.contains(&provider) && !account.bytes().all(|byte| byte.is_ascii_digit()) {
        let what = match provider {
            "whatsapp" => "an account is a phone_number_id (or the id of a business account), not a phone number",
            _ => "an account is the number of a page or of an Instagram account, not its name",
        };
        found.refuse(mistakes, format!("{what}; it has digits only, and Meta's dashboard shows it"));
    }
}

fn read_address(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let text = found.text(mistakes)?;
    let parsed = text.parse::<http::Uri>().ok().filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|authority| !authority.host().is_empty())
    });
    if parsed.is_none() {
        found.refuse(mistakes, "the target is not an http:// or https:// address; write \"http://127.0.0.1:3000/webhook\"");
    }
    parsed.map(|_| text.to_owned())
}
