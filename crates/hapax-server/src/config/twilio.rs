//! What only Twilio asks: under which address it calls us, because it signs that too.

use hapax_providers::settings::Settings;
use secrecy::SecretString;

use super::mistake::Mistakes;
use super::section::{Found, Section};

const EXAMPLE: &str = "write what you gave to Twilio, like \"https://your.host/in/sms\"";

pub(super) fn read(
    own: &Found<'_>,
    section: &Section<'_>,
    secrets: Vec<SecretString>,
    mistakes: &mut Mistakes,
) -> Option<Settings> {
    let Some(found) = section.get("public_url") else {
        let what = format!(
            "`public_url` is missing: Twilio signs the address that it calls, and behind a proxy hapax cannot see it; {EXAMPLE}"
        );
        own.refuse(mistakes, what);
        return None;
    };
    let text = found.text(mistakes)?;
    match objection(text) {
        Some(what) => {
            found.refuse(mistakes, what);
            None
        }
        None => Some(Settings::Twilio { secrets, public_url: text.to_owned() }),
    }
}

fn objection(text: &str) -> Option<String> {
    let uri = text.parse::<http::Uri>().ok().filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|authority| !authority.host().is_empty())
    });
    let Some(uri) = uri else { return Some(format!("this is not an http:// or https:// address; {EXAMPLE}")) };
    if text.contains(['?', '#']) {
        return Some(format!(
            "leave out what follows `?` and `#`: a query is taken from each request, the rest is never sent; {EXAMPLE}"
        ));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Some(format!("a password does not belong in the address; {EXAMPLE}"));
    }
    if matches!(uri.path(), "" | "/") {
        return Some(format!("this is the host alone, and Twilio signs the whole address with its path; {EXAMPLE}"));
    }
    None
}
