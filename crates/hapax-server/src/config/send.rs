//! How a channel sends: credentials, rates, and what to do when nobody knows whether it went out.

use hapax_domain::RetryPolicy;
use hapax_domain::units::{read_ms, write_ms};
use hapax_gateway::settings::{OnUnknown, Rate, Send};
use hapax_providers::is_twilio_login;
use secrecy::SecretString;

use super::mistake::Mistakes;
use super::section::{Found, Section};

/// Keys that mean something only where messages can be sent.
pub(super) const KEYS: [&str; 9] =
    ["token", "api_base", "on_unknown", "rate", "chat_rate", "send_attempts", "send_lease", "send_timeout", "send_concurrency"];

const SECOND: i64 = 1_000;
const DAY: i64 = 24 * 3_600 * SECOND;
const RATE_MAX: u32 = 100_000;

/// What differs between the providers that send.
pub(super) struct SendFacts {
    name: &'static str,
    /// `None`: everybody runs their own.
    api_base: Option<&'static str>,
    needs_token: bool,
    /// Can be asked, or tells by itself, what became of a send whose answer was lost.
    reconciles: bool,
    rate: Rate,
    chat_rate: Rate,
}

const fn rate(count: u32, per_ms: i64, burst: u32) -> Rate {
    Rate { count, per_ms, burst }
}

const PROVIDERS: [SendFacts; 10] = [
    SendFacts {
        name: "whatsapp",
        api_base: Some("https://graph.facebook.com"),
        needs_token: true,
        reconciles: true,
        rate: rate(80, SECOND, 80),
        chat_rate: rate(1, 6 * SECOND, 45),
    },
    SendFacts {
        name: "messenger",
        api_base: Some("https://graph.facebook.com"),
        needs_token: true,
        reconciles: true,
        rate: rate(20, SECOND, 20),
        chat_rate: rate(5, SECOND, 5),
    },
    SendFacts {
        name: "instagram",
        api_base: Some("https://graph.instagram.com"),
        needs_token: true,
        reconciles: false,
        rate: rate(20, SECOND, 20),
        chat_rate: rate(5, SECOND, 5),
    },
    SendFacts {
        name: "telegram",
        api_base: Some("https://api.telegram.org"),
        needs_token: true,
        reconciles: false,
        rate: rate(30, SECOND, 30),
        chat_rate: rate(1, SECOND, 1),
    },
    SendFacts {
        name: "gowa",
        api_base: None,
        needs_token: false,
        reconciles: true,
        rate: rate(20, SECOND, 20),
        chat_rate: rate(5, SECOND, 5),
    },
    SendFacts {
        name: "evolution",
        api_base: None,
        needs_token: true,
        reconciles: true,
        rate: rate(20, SECOND, 20),
        chat_rate: rate(5, SECOND, 5),
    },
    SendFacts {
        name: "waha",
        api_base: None,
        needs_token: false,
        reconciles: true,
        rate: rate(20, SECOND, 20),
        chat_rate: rate(5, SECOND, 5),
    },
    SendFacts {
        name: "slack",
        api_base: Some("https://slack.com"),
        needs_token: true,
        reconciles: true,
        rate: rate(5, SECOND, 20),
        chat_rate: rate(1, SECOND, 3),
    },
    SendFacts {
        name: "twilio",
        api_base: Some("https://api.twilio.com"),
        needs_token: true,
        reconciles: true,
        rate: rate(20, SECOND, 20),
        chat_rate: rate(1, SECOND, 5),
    },
    SendFacts {
        name: "generic",
        api_base: None,
        needs_token: false,
        reconciles: false,
        rate: rate(20, SECOND, 20),
        chat_rate: rate(5, SECOND, 5),
    },
];

/// `None` for a provider through which nothing can be sent.
pub(super) fn facts_of(provider: &str) -> Option<&'static SendFacts> {
    PROVIDERS.iter().find(|facts| facts.name == provider)
}

pub(super) fn names() -> String {
    PROVIDERS.map(|facts| facts.name).join(", ")
}

/// Reads the sending side; `None` when too little is given to send, and then the channel only receives.
pub(super) fn read(
    own: &Found<'_>,
    section: &Section<'_>,
    facts: &SendFacts,
    backoff: RetryPolicy,
    mistakes: &mut Mistakes,
) -> Option<Send> {
    let token = section.get("token").and_then(|found| read_token(&found, facts, mistakes));
    let api_base = section.get("api_base").and_then(|found| read_api_base(&found, mistakes));
    let on_unknown = read_on_unknown(own, section, facts, mistakes);
    let rate = read_rate(section, "rate", mistakes).unwrap_or(facts.rate);
    let chat_rate = read_rate(section, "chat_rate", mistakes).unwrap_or(facts.chat_rate);
    let lease_ms = section.get("send_lease").and_then(|found| found.ms(super::channel::LEASE_MS, mistakes)).unwrap_or_default();
    let timeout_ms = read_timeout(section, lease_ms, mistakes);
    let mut whole = |key: &str| section.get(key).and_then(|found| found.whole(1..=1_000, mistakes)).unwrap_or_default();
    let retry = RetryPolicy { attempts: whole("send_attempts") as u32, ..backoff };
    let concurrency = whole("send_concurrency") as usize;
    let base_given = api_base.is_some();
    let api_base = api_base.or_else(|| facts.api_base.map(str::to_owned));
    let (missing, why) = match (&api_base, &token) {
        (None, _) => ("api_base", "where the API is"),
        (_, None) if facts.needs_token => ("token", "who sends"),
        (Some(api_base), _) => {
            let api_base = api_base.clone();
            return Some(Send { token, api_base, on_unknown, retry, lease_ms, timeout_ms, rate, chat_rate, concurrency });
        }
    };
    // Half of it is a slip; nothing of it is a channel that only receives.
    let half = if missing == "token" { base_given } else { token.is_some() };
    let is_own = |found: &Found<'_>| found.path.starts_with(&format!("{}.", own.path));
    if let Some(found) = section.get(if missing == "token" { "api_base" } else { "token" }).filter(is_own).filter(|_| half) {
        found.refuse(mistakes, format!("sending needs `{missing}` too ({why}); add it, or take this out to receive only"));
    }
    None
}

/// Providers that can show that somebody is writing.
const TYPING: [&str; 2] = ["whatsapp", "telegram"];

/// Reads `typing`. In `[defaults]` it is meant for the channels that can.
pub(super) fn read_typing(own: &Found<'_>, section: &Section<'_>, provider: &str, sends: bool, mistakes: &mut Mistakes) -> bool {
    let Some(found) = section.get("typing") else { return false };
    let wanted = found.truth(mistakes).unwrap_or_default();
    let can = TYPING.contains(&provider);
    if wanted && !(can && sends) && found.path.starts_with(&format!("{}.", own.path)) {
        let what = match can {
            true => "that somebody is writing is told through the provider's API; add `token`, or take this out".to_owned(),
            false => format!("`typing` is for {}, this is \"{provider}\"; take it out", TYPING.join(" and ")),
        };
        found.refuse(mistakes, what);
    }
    wanted && can && sends
}

fn read_token(found: &Found<'_>, facts: &SendFacts, mistakes: &mut Mistakes) -> Option<SecretString> {
    let text = found.text(mistakes)?;
    let graphic = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    let trimmed = text.trim() == text;
    // A path is made of it: `123:abc`.
    let fits = facts.name != "telegram" || text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":_-".contains(&byte));
    let fits = fits && (facts.name != "twilio" || is_twilio_login(text));
    if graphic && trimmed && fits {
        return Some(SecretString::from(text));
    }
    let what = match (text.is_empty(), facts.name) {
        (true, _) => "the token is empty; put in the one that the provider's API gave you",
        (_, "twilio") => "this is no Twilio login; write \"AC..:AUTH_TOKEN\", or \"AC..:SK..:SECRET\" for an API key",
        (_, "telegram") => "this is no bot token; copy it whole from @BotFather, like 123456:ABC-xyz",
        _ => "the token holds spaces around it, line breaks or odd letters; copy it again",
    };
    found.refuse(mistakes, what);
    None
}

fn read_api_base(found: &Found<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let text = found.text(mistakes)?;
    let example = "write \"https://HOST\" or \"http://127.0.0.1:3000\"";
    let Some(uri) = text.parse::<http::Uri>().ok().filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|authority| !authority.host().is_empty())
            && !text.contains('#')
    }) else {
        found.refuse(mistakes, format!("this is not an http:// or https:// address; {example}"));
        return None;
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        found.refuse(mistakes, "a password does not belong in the address; write token = \"user:password\"");
        return None;
    }
    if uri.query().is_some() {
        found.refuse(mistakes, format!("paths are put behind it, so it cannot have a `?`; {example}"));
        return None;
    }
    Some(text.trim_end_matches('/').to_owned())
}

fn read_on_unknown(own: &Found<'_>, section: &Section<'_>, facts: &SendFacts, mistakes: &mut Mistakes) -> OnUnknown {
    let usual = if facts.reconciles { OnUnknown::Reconcile } else { OnUnknown::Hold };
    let Some(found) = section.get("on_unknown") else { return usual };
    let words = [("reconcile", OnUnknown::Reconcile), ("hold", OnUnknown::Hold), ("resend", OnUnknown::Resend)];
    match found.choice(&words, &[], mistakes) {
        Some(OnUnknown::Reconcile) if !facts.reconciles => {
            // In [defaults] it is meant for the channels that can.
            if found.path.starts_with(&format!("{}.", own.path)) {
                let what = format!("{} has no way to ask what became of a message; write \"hold\" or \"resend\"", facts.name);
                found.refuse(mistakes, what);
            }
            usual
        }
        chosen => chosen.unwrap_or(usual),
    }
}

fn read_timeout(section: &Section<'_>, lease_ms: i64, mistakes: &mut Mistakes) -> i64 {
    let Some(found) = section.get("send_timeout") else { return 0 };
    let timeout_ms = found.ms(100..=DAY, mistakes).unwrap_or_default();
    if lease_ms > 0 && timeout_ms >= lease_ms {
        let (timeout, lease) = (write_ms(timeout_ms), write_ms(lease_ms));
        let what =
            format!("{timeout} is not shorter than the lease ({lease}): another worker would take over a call that still runs");
        found.refuse(mistakes, format!("{what}; lower it, or raise `send_lease`"));
    }
    timeout_ms
}

fn read_rate(section: &Section<'_>, key: &str, mistakes: &mut Mistakes) -> Option<Rate> {
    let found = section.get(key)?;
    let text = found.text(mistakes)?;
    let rate = rate_in(text);
    if rate.is_none() {
        found.refuse(mistakes, format!("`{text}` is not a rate; write \"80/s\", \"20/m\" or \"1/6s burst 45\""));
    }
    rate
}

/// `COUNT/TIME`, where the time may go without its number, and `burst COUNT` may follow.
fn rate_in(text: &str) -> Option<Rate> {
    let (rate, burst) = match text.split_once("burst") {
        Some((rate, burst)) => (rate, Some(burst)),
        None => (text, None),
    };
    let (count, per) = rate.split_once('/')?;
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| (1..=RATE_MAX).contains(number));
    let per = per.trim();
    let per = if per.starts_with(|c: char| c.is_ascii_digit()) { per.to_owned() } else { format!("1{per}") };
    let count = number(count)?;
    let burst = burst.map_or(Some(count), number)?;
    let per_ms = read_ms(&per).filter(|ms| (1..=DAY).contains(ms))?;
    Some(Rate { count, per_ms, burst })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, expected) in [
            ("80/s", rate(80, 1_000, 80)),
            (" 20 / m ", rate(20, 60_000, 20)),
            ("1/6s burst 45", rate(1, 6_000, 45)),
            ("5/500ms burst 1", rate(5, 500, 1)),
        ] {
            assert_eq!(rate_in(text), Some(expected), "{text}");
        }
        for odd in
            ["", "80", "/s", "0/s", "80/", "80/0s", "80/x", "-1/s", "1/s burst", "1/s burst 0", "1/2d", "100001/s", "1/s x 3"]
        {
            assert_eq!(rate_in(odd), None, "{odd}");
        }
    }
}
