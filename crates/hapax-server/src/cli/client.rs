//! Asks a running hapax over `/v1`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hapax_gateway::settings::TargetTls;
use reqwest::{Method, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::output::text_of;
use super::{Failure, Global, sources};
use crate::config::{self, Flags};

const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<SecretString>,
}

impl Client {
    /// Finds the server and the token: flags, then the environment, then the config.
    pub(super) fn open(global: &Global) -> Result<Self, Failure> {
        let flags = Flags { admin_token: sources::token_flag(global)?, ..Flags::default() };
        let sources = sources::read_sources(global, flags)?;
        let admin = config::load_admin(&sources)?;
        let base = match &global.server {
            Some(url) => read_url(url)?,
            None => read_url(&format!("http://{}", reachable(admin.address)))?,
        };
        let token = match admin.token {
            Some(token) => Some(token),
            None => sources::token_left(admin.store.as_ref(), global.config.as_deref())?,
        };
        Ok(Self { http: http_client(&base, &TargetTls::default())?, base, token })
    }

    /// For what everybody may ask.
    pub(super) fn without_token(global: &Global) -> Result<Self, Failure> {
        let admin = config::load_admin(&sources::read_sources(global, Flags::default())?)?;
        let base = match &global.server {
            Some(url) => read_url(url)?,
            None => read_url(&format!("http://{}", reachable(admin.address)))?,
        };
        Ok(Self { http: http_client(&base, &TargetTls::default())?, base, token: None })
    }

    /// For what is no JSON.
    pub(super) async fn get_text(&self, path: &str) -> Result<String, Failure> {
        let request = self.http.get(self.url(path)?).timeout(TIMEOUT);
        let request = match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        };
        let response = request.send().await.map_err(|why| unreachable(&self.base, &why))?;
        let status = response.status();
        let text = response.text().await.map_err(|why| unreachable(&self.base, &why))?;
        if status.is_success() { Ok(text) } else { Err(refused(status, &serde_json::from_str(&text).unwrap_or_default())) }
    }

    /// What the server answered, whatever that is.
    pub(super) async fn get_any(&self, path: &str) -> Result<(u16, Value), Failure> {
        let (status, answer) = self.answer(Method::GET, self.url(path)?, None, &[]).await?;
        Ok((status.as_u16(), answer))
    }

    pub(super) async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, Failure> {
        let mut url = self.url(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.ask(Method::GET, url, None, &[]).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Result<Value, Failure> {
        self.post_with(path, body, &[]).await
    }

    pub(super) async fn post_with(&self, path: &str, body: Value, headers: &[(&str, &str)]) -> Result<Value, Failure> {
        self.ask(Method::POST, self.url(path)?, Some(body), headers).await
    }

    /// What the server answered, whatever that is.
    pub(super) async fn post_any(&self, path: &str, body: Value, headers: &[(&str, &str)]) -> Result<(u16, Value), Failure> {
        let (status, answer) = self.answer(Method::POST, self.url(path)?, Some(body), headers).await?;
        Ok((status.as_u16(), answer))
    }

    /// What an answer of [`Client::post_any`] means that is none to go on with.
    pub(super) fn refusal(&self, status: u16, problem: &Value) -> Failure {
        refused(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), problem)
    }

    pub(super) async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.ask(Method::DELETE, self.url(path)?, None, &[]).await
    }

    /// Where a path of the server is, for people.
    pub(super) fn address(&self, path: &str) -> Result<String, Failure> {
        self.url(path).map(String::from)
    }

    /// Reads a long answer piece by piece; gives how many bytes it had. One that is shorter than it was to be is a failure.
    pub(super) async fn download(&self, path: &str, mut put: impl FnMut(&[u8]) -> std::io::Result<()>) -> Result<u64, Failure> {
        let mut request = self.http.get(self.url(path)?);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        let mut response = request.send().await.map_err(|why| unreachable(&self.base, &why))?;
        let status = response.status();
        if !status.is_success() {
            let problem = response.json().await.unwrap_or_default();
            return Err(refused(status, &problem));
        }
        let expected = response.content_length();
        let mut bytes = 0;
        let broke_off =
            |why| Failure::Unreachable(format!("the answer of {} broke off ({why}); nothing is kept of it", self.base));
        while let Some(piece) = response.chunk().await.map_err(|why| broke_off(why.to_string()))? {
            put(&piece).map_err(|why| Failure::plain(format!("what the server sent cannot be written: {why}")))?;
            bytes += piece.len() as u64;
        }
        if expected.is_some_and(|expected| expected != bytes) {
            return Err(broke_off(format!("{bytes} bytes came")));
        }
        Ok(bytes)
    }

    fn url(&self, path: &str) -> Result<Url, Failure> {
        self.base.join(path).map_err(|why| Failure::plain(format!("{path} does not fit {}: {why}", self.base)))
    }

    async fn ask(&self, method: Method, url: Url, body: Option<Value>, headers: &[(&str, &str)]) -> Result<Value, Failure> {
        match self.answer(method, url, body, headers).await? {
            (status, answer) if status.is_success() => Ok(answer),
            (status, problem) => Err(refused(status, &problem)),
        }
    }

    async fn answer(
        &self,
        method: Method,
        url: Url,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Result<(StatusCode, Value), Failure> {
        let mut request = self.http.request(method, url).timeout(TIMEOUT);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose_secret());
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(|why| unreachable(&self.base, &why))?;
        let status = response.status();
        let text = response.text().await.map_err(|why| unreachable(&self.base, &why))?;
        match serde_json::from_str(&text) {
            Ok(answer) => Ok((status, answer)),
            Err(_) => {
                Err(Failure::plain(format!("{} answered {status}, and not as hapax does; is it another server?", self.base)))
            }
        }
    }
}

/// Writes any text as one part of a path.
pub(super) fn in_path(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

pub(super) fn read_url(text: &str) -> Result<Url, Failure> {
    let bad = || Failure::Usage(format!("`{text}` is not an address; write --server http://127.0.0.1:4272"));
    let url = Url::parse(text).map_err(|_| bad())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() { Ok(url) } else { Err(bad()) }
}

/// An HTTP client that never takes a proxy to this machine.
/// One for this address, which shows and believes what the config says of a channel's targets.
pub(super) fn http_client(base: &Url, tls: &TargetTls) -> Result<reqwest::Client, Failure> {
    let here = base.host_str().is_some_and(|host| {
        host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    });
    let failed = |why: anyhow::Error| Failure::from(why.context("the HTTP client did not start"));
    let trust = tls.client_config().map_err(|why| failed(why.into()))?;
    let builder = reqwest::Client::builder().tls_backend_preconfigured(trust);
    let builder = builder.connect_timeout(CONNECT_TIMEOUT).redirect(reqwest::redirect::Policy::none());
    let builder = if here { builder.no_proxy() } else { builder };
    builder.build().map_err(|why| failed(why.into()))
}

/// A server that listens everywhere is reached at this machine's own address.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

pub(super) fn unreachable(base: &Url, why: &reqwest::Error) -> Failure {
    let what = if why.is_timeout() { "does not answer in time" } else { "cannot be reached" };
    Failure::Unreachable(format!(
        "{} {what}; is `hapax serve` running? Start it, or name another server with --server URL",
        base.as_str().trim_end_matches('/')
    ))
}

fn refused(status: StatusCode, problem: &Value) -> Failure {
    let detail = match text_of(problem, "detail") {
        detail if detail.is_empty() => format!("the server answered {status}"),
        detail => as_commands(detail),
    };
    match status {
        StatusCode::UNAUTHORIZED => Failure::plain(format!(
            "{detail}. Here: --token-file FILE, HAPAX_ADMIN_TOKEN or HAPAX_ADMIN_TOKEN_FILE in the environment, or run it where the \
             first start has left its token: beside the database"
        )),
        StatusCode::NOT_FOUND => Failure::NothingMatched(detail),
        StatusCode::SERVICE_UNAVAILABLE => Failure::Unreachable(detail),
        _ => Failure::plain(detail),
    }
}

/// The server names what to ask next by its path; whoever types commands types one.
fn as_commands(detail: String) -> String {
    let commands = [
        ("events", "events"),
        ("threads", "threads"),
        ("accounts", "accounts"),
        ("claims", "claims"),
        ("tokens", "token list"),
        ("channels", "config show"),
    ];
    let named = |detail: String, (path, command)| detail.replace(&format!("GET /v1/{path} "), &format!("`hapax {command}` "));
    commands.into_iter().fold(detail, named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_ask_next_is_a_command() {
        let as_commands = |words: &str| as_commands(words.to_owned());
        assert_eq!(as_commands("no such thread; GET /v1/threads lists them"), "no such thread; `hapax threads` lists them");
        assert_eq!(as_commands("GET /v1/tokens lists them"), "`hapax token list` lists them");
        assert_eq!(as_commands("GET /v1/events/evt_1/story tells"), "GET /v1/events/evt_1/story tells", "no list");
    }

    #[test]
    fn any_text_is_one_part_of_a_path() {
        assert_eq!(in_path("700001__5511"), "700001__5511");
        assert_eq!(in_path("a/b__%5Fx?é"), "a%2Fb__%255Fx%3F%C3%A9");
    }
}
