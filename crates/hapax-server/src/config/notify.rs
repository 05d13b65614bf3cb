//! `notify` and `notify_secret`: who is told what is wrong.

use hapax_gateway::settings::Notify;

use super::mistake::Mistakes;
use super::secret::read_secret;
use super::section::Section;

pub(super) fn read(top: &Section<'_>, mistakes: &mut Mistakes) -> Option<Notify> {
    let (address, secret) = (top.get("notify"), top.get("notify_secret"));
    let Some(found) = address else {
        if let Some(secret) = secret {
            secret.refuse(mistakes, "there is no `notify` that it could sign for; write notify = \"https://..\", or take it out");
        }
        return None;
    };
    let text = found.text(mistakes)?;
    let known = text.parse::<http::Uri>().ok().filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|authority| !authority.host().is_empty())
    });
    if known.is_none() {
        found.refuse(mistakes, "this is not an http:// or https:// address; write \"https://alerts.example.com/hapax\"");
    }
    let Some(secret) = secret else {
        found.refuse(mistakes, "`notify_secret` is missing, which signs the notices; make one with `openssl rand -hex 24`");
        return None;
    };
    let secret = read_secret(&secret, mistakes)?;
    known.map(|_| Notify { url: text.to_owned(), secret })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Environment, Flags, SourceFile, Sources, load};

    fn load_text(text: &str) -> Result<Config, String> {
        let read_file: &dyn Fn(&str) -> std::io::Result<String> = &|_| Err(std::io::ErrorKind::NotFound.into());
        let file = Some(SourceFile { name: "hapax.toml".to_owned(), text: text.to_owned() });
        let sources = Sources { file, env: Environment { vars: Default::default(), read_file }, flags: Flags::default() };
        load(&sources).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn notices_are_signed_or_refused() {
        assert!(load_text("").expect("a good config").notify.is_none());
        let config = load_text("notify = 'https://u:p4ss@h/x'\nnotify_secret = 'a-long-enough-one'").expect("a good config");
        assert_eq!(config.notify.as_ref().map(|notify| notify.url.as_str()), Some("https://u:p4ss@h/x"));
        assert!(!format!("{:?}", config.notify).contains("p4ss"));
        for (text, said) in [
            ("notify = 'https://h/x'", "hapax.toml:1: notify: `notify_secret` is missing"),
            ("notify_secret = 'a-long-enough-one'", "hapax.toml:1: notify_secret: there is no `notify`"),
            ("notify = 'ftp://h'\nnotify_secret = 'a-long-enough-one'", "hapax.toml:1: notify: this is not an http"),
            ("notify = 'https://h'\nnotify_secret = 'secret'", "hapax.toml:2: notify_secret:"),
        ] {
            let mistakes = load_text(text).expect_err("has mistakes");
            assert!(mistakes.contains(said), "{text}\n{mistakes}");
        }
    }
}
