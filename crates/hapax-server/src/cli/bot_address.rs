//! Where a bot is, as people write it: a port, a path, an address.

use reqwest::Url;

/// The path that is tried where none is named.
const USUAL_PATH: &str = "/webhook";
const USUAL_PORT: u16 = 3000;

/// A bot's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BotAddress {
    pub(super) url: String,
    /// No path was named: the usual one is tried.
    pub(super) guessed: bool,
}

/// Reads `3000`, `3000/webhook`, `/webhook`, `localhost:3000/webhook` or a whole address.
pub(super) fn read(text: &str) -> Result<BotAddress, String> {
    let bad = || "write a port (3000), a port and a path (3000/webhook), or an http(s) address".to_owned();
    let named = text.trim_start_matches(':');
    let (place, path) = named.find('/').map_or((named, ""), |at| named.split_at(at));
    let whole = match (text.contains("://"), place.parse::<u16>()) {
        (true, _) => text.to_owned(),
        (false, Ok(0)) => return Err(bad()),
        (false, Ok(port)) => format!("http://127.0.0.1:{port}{path}"),
        (false, Err(_)) if place.is_empty() && !path.is_empty() => format!("http://127.0.0.1:{USUAL_PORT}{path}"),
        // A name alone may be a slip of the finger; with a port it is meant.
        (false, Err(_)) if place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            format!("http://{named}")
        }
        (false, Err(_)) => return Err(bad()),
    };
    let url = Url::parse(&whole).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()).ok_or_else(bad)?;
    let behind_host = whole.split_once("://").map_or("", |(_, rest)| rest);
    let guessed = !behind_host.contains(['/', '?', '#']);
    let url = if guessed { format!("{whole}{USUAL_PATH}") } else { url.to_string() };
    Ok(BotAddress { url, guessed })
}

/// Reads a port or an address where the path is the caller's.
pub(super) fn read_server(text: &str) -> Result<String, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(format!("http://127.0.0.1:{port}/"));
    }
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(text.to_owned()),
        _ => Err("neither a port nor an http(s) address".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bot_is_a_port_a_path_or_an_address() {
        for (text, url, guessed) in [
            ("3000", "http://127.0.0.1:3000/webhook", true),
            (":3000", "http://127.0.0.1:3000/webhook", true),
            ("3000/", "http://127.0.0.1:3000/", false),
            ("3000/telegram/x?y=1", "http://127.0.0.1:3000/telegram/x?y=1", false),
            ("/hook", "http://127.0.0.1:3000/hook", false),
            ("localhost:8080", "http://localhost:8080/webhook", true),
            ("localhost:8080/hook", "http://localhost:8080/hook", false),
            ("https://bot.example", "https://bot.example/webhook", true),
            ("https://bot.example/", "https://bot.example/", false),
            ("https://bot.example/x", "https://bot.example/x", false),
        ] {
            assert_eq!(read(text), Ok(BotAddress { url: url.to_owned(), guessed }), "{text}");
        }
        assert_eq!(read_server("3000").as_deref(), Ok("http://127.0.0.1:3000/"));
        assert_eq!(read_server("https://bot.example/x").as_deref(), Ok("https://bot.example/x"));
        assert!(read_server("bot.example").is_err());
        for wrong in ["", "0", "bot.example", "70000", "ftp://x/", "bot.example/x", "http://"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
