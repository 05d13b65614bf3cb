//! `hapax trigger`

use std::time::Instant;

use clap::Args;
use futures_util::StreamExt;
use http::{HeaderName, HeaderValue};
use reqwest::Url;
use serde_json::{Value, json};

use super::client::{http_client, reachable, read_url, unreachable};
use super::output::printable;
use super::{Failure, Global, Output, sources};
use crate::clock::{Clock, SystemClock};
use crate::config::{Channel, Config, Flags};
use crate::providers::samples::{self, Sample};
use crate::providers::{self, Provider};

/// Posts at once with `--concurrent`.
const AT_ONCE_MAX: usize = 256;
const TIMES_MAX: u32 = 100_000;

/// Post a signed sample to a running hapax, as often as you like: copies are suppressed
#[derive(Args, Debug)]
#[command(after_help = "\
The sample is signed with the secret of the channel in your config, so no admin token is needed. All posts carry the same body:
the first is accepted, the others are copies.

Examples:
  hapax trigger whatsapp.text --times 5
  hapax trigger telegram.callback --channel helpbot
  hapax trigger stripe.invoice_paid --times 50 --concurrent
  hapax trigger whatsapp.text --nonce 7        the same message as the last time with --nonce 7

Samples: whatsapp.text, whatsapp.image, whatsapp.status, whatsapp.batch, telegram.text, telegram.callback, gowa.text, gowa.ack,
stripe.invoice_paid, github.push, github.ping, generic.json")]
pub struct Trigger {
    /// What to send
    #[arg(value_name = "PROVIDER.KIND", value_parser = read_name)]
    sample: String,
    /// How often to send it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(TIMES_MAX)))]
    times: u32,
    /// Where to; without it the channel named as the provider, else the only one of that provider
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Send all at the same time instead of one after the other
    #[arg(long)]
    concurrent: bool,
    /// Makes the ids of the sample: the same number is the same message. Without it a random one
    #[arg(long, value_name = "NUMBER")]
    nonce: Option<u64>,
}

/// What the server said to one post.
#[derive(Debug)]
struct Answer {
    status: u16,
    took_ms: u128,
    body: Value,
}

impl Answer {
    /// `accepted`, `duplicate` or `ignored`; for anything else what there is to say.
    fn word(&self) -> String {
        match (self.body["status"].as_str(), self.body["detail"].as_str()) {
            (Some(word), _) => printable(word),
            (None, Some(detail)) => format!("refused: {}", printable(detail)),
            (None, None) if self.is_good() => "answered".to_owned(),
            (None, None) => "refused".to_owned(),
        }
    }

    fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn count(&self, key: &str) -> u64 {
        self.body[key].as_u64().unwrap_or_default()
    }
}

impl Trigger {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let config = sources::load_config(global, Flags::default())?;
        let clock = SystemClock::new();
        let nonce = self.nonce.unwrap_or_else(rand::random);
        let sample = samples::sample(&self.sample, nonce, clock.wall_ms())
            .ok_or_else(|| Failure::Usage(format!("there is no sample `{}`", self.sample)))?;
        let channel = pick(&config, sample.provider, self.channel.as_deref())?;
        let base = match &global.server {
            Some(url) => read_url(url)?,
            None => read_url(&format!("http://{}", reachable(config.listen)))?,
        };
        let url = base.join(&format!("/in/{}", channel.name)).map_err(|why| Failure::plain(format!("{base}: {why}")))?;
        let post = Post { http: http_client(&base)?, base, url, sample, provider: providers::build(&channel.provider), clock };
        let at_once = if self.concurrent { AT_ONCE_MAX } else { 1 };
        let mut answers = Vec::new();
        let mut posts = futures_util::stream::iter(0..self.times).map(|_| post.send()).buffer_unordered(at_once);
        while let Some(answer) = posts.next().await {
            let answer = answer?;
            if !output.json {
                output.line(format_args!(
                    "{:>3}  {}  {}  {} ms",
                    answers.len() + 1,
                    answer.status,
                    answer.word(),
                    answer.took_ms
                ));
            }
            answers.push(answer);
        }
        conclude(&self.sample, channel, nonce, &answers, output)
    }
}

/// One sample on its way to one channel.
struct Post {
    http: reqwest::Client,
    base: Url,
    url: Url,
    sample: Sample,
    provider: std::sync::Arc<dyn Provider>,
    clock: SystemClock,
}

impl Post {
    async fn send(&self) -> Result<Answer, Failure> {
        let signed: Vec<(HeaderName, HeaderValue)> = self.provider.sign(&self.sample.body, self.clock.wall_ms());
        let headers = self.sample.headers.iter().cloned().chain(signed);
        let begun = Instant::now();
        let response = self
            .http
            .post(self.url.clone())
            .header(http::header::CONTENT_TYPE, self.sample.content_type)
            .headers(headers.collect())
            .body(self.sample.body.clone())
            .send()
            .await
            .map_err(|why| unreachable(&self.base, &why))?;
        let status = response.status().as_u16();
        let text = response.text().await.map_err(|why| unreachable(&self.base, &why))?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Answer { status, took_ms: begun.elapsed().as_millis(), body })
    }
}

fn conclude(sample: &str, channel: &Channel, nonce: u64, answers: &[Answer], output: &Output) -> Result<(), Failure> {
    let sum = |key: &str| answers.iter().map(|answer| answer.count(key)).sum::<u64>();
    let (accepted, suppressed) = (sum("accepted"), sum("repeated"));
    let refused = answers.iter().filter(|answer| !answer.is_good()).count();
    if output.json {
        let list: Vec<_> = answers
            .iter()
            .map(|answer| json!({ "status": answer.status, "answer": answer.body, "took_ms": answer.took_ms as u64 }))
            .collect();
        output.json(&json!({
            "sample": sample, "channel": &*channel.name, "nonce": nonce,
            "accepted": accepted, "suppressed": suppressed, "refused": refused, "answers": list,
        }));
    } else {
        let tail = if refused > 0 { format!(", {refused} refused") } else { String::new() };
        output.line(format_args!("{accepted} accepted, {suppressed} suppressed{tail}"));
    }
    match answers.iter().find(|answer| !answer.is_good()) {
        None => Ok(()),
        Some(answer) => Err(Failure::plain(what_to_do(answer.status, &channel.name))),
    }
}

fn what_to_do(status: u16, channel: &str) -> String {
    match status {
        401 => format!(
            "the server knows another secret for channel `{channel}` than this config; restart it, or name its file with --config"
        ),
        404 => format!("the server has no channel `{channel}`; restart it with this config, or name its file with --config"),
        503 => "the server cannot take anything in now; its log and `hapax stats` say why".to_owned(),
        other => format!("the server answered {other}"),
    }
}

/// Finds the channel to post to.
fn pick<'c>(config: &'c Config, provider: &str, wanted: Option<&str>) -> Result<&'c Channel, Failure> {
    if config.channels.is_empty() {
        let todo = "start `hapax serve` once in this directory and it writes one, or name the server's file with --config FILE";
        return Err(Failure::NoConfig(format!("the config has no channels, so there is no secret to sign with; {todo}")));
    }
    let of_provider: Vec<_> = config.channels.iter().filter(|channel| channel.provider.provider() == provider).collect();
    let names = of_provider.iter().map(|channel| &*channel.name).collect::<Vec<_>>().join(", ");
    let found = match wanted {
        Some(name) => of_provider.iter().find(|channel| &*channel.name == name),
        None => of_provider.iter().find(|channel| &*channel.name == provider).or(match of_provider.as_slice() {
            [only] => Some(only),
            _ => None,
        }),
    };
    match (found, wanted) {
        (Some(channel), _) => Ok(channel),
        (None, _) if of_provider.is_empty() => {
            Err(Failure::NothingMatched(format!("no channel of the config has provider = \"{provider}\"; add one")))
        }
        (None, Some(name)) => {
            Err(Failure::NothingMatched(format!("no channel `{name}` with provider = \"{provider}\"; there is {names}")))
        }
        (None, None) => Err(Failure::Usage(format!("several channels are of {provider}; choose with --channel: {names}"))),
    }
}

fn read_name(text: &str) -> Result<String, String> {
    let names = || samples::list().iter().map(|(name, _)| *name);
    match names().find(|name| *name == text) {
        Some(name) => Ok(name.to_owned()),
        None => Err(format!("there is no such sample; use one of {}", names().collect::<Vec<_>>().join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::{Arc, Mutex};

    fn config(text: &str) -> Config {
        let file = Some(crate::config::SourceFile { name: "t".to_owned(), text: text.to_owned() });
        let env =
            crate::config::Environment { vars: Default::default(), read_file: &|_| Err(std::io::ErrorKind::NotFound.into()) };
        crate::config::load(&crate::config::Sources { file, env, flags: Flags::default() }).expect("a good config")
    }

    #[test]
    fn the_channel_is_the_named_the_namesake_or_the_only_one() {
        let entry = |name: &str, provider: &str| format!("[channel.{name}]\nprovider = '{provider}'\nsecret = 'a-long-secret'\n");
        let one = config(&entry("shop", "whatsapp"));
        assert_eq!(&*pick(&one, "whatsapp", None).expect("the only one").name, "shop");
        assert_eq!(pick(&one, "stripe", None).expect_err("none").code(), 5);
        assert_eq!(pick(&one, "whatsapp", Some("nope")).expect_err("none").code(), 5);
        let two = config(&format!("{}{}", entry("a", "gowa"), entry("b", "gowa")));
        assert_eq!(pick(&two, "gowa", None).expect_err("which?").code(), 2);
        assert_eq!(&*pick(&two, "gowa", Some("b")).expect("named").name, "b");
        let namesake = config(&format!("{}{}", entry("a", "gowa"), entry("gowa", "gowa")));
        assert_eq!(&*pick(&namesake, "gowa", None).expect("the namesake").name, "gowa");
        assert_eq!(pick(&config(""), "gowa", None).expect_err("no channels").code(), 3);
    }

    #[test]
    fn the_help_names_every_sample() {
        use clap::CommandFactory;
        let cli = super::super::Cli::command();
        let help = cli.find_subcommand("trigger").and_then(|command| command.get_after_help()).expect("help").to_string();
        let help = help.replace('\n', " ");
        samples::list().iter().for_each(|(name, _)| assert!(help.contains(name), "{name}"));
    }

    /// Every sample, posted three times at once, is signed so that its own provider believes it, and is the same body each time.
    #[tokio::test]
    async fn all_samples_arrive_signed_and_alike() {
        let config = config(&crate::config::starter(|_| "0123456789abcdef".repeat(2)));
        let built = config.channels.iter().map(|channel| (channel.name.to_string(), providers::build(&channel.provider)));
        let built: Arc<std::collections::HashMap<_, _>> = Arc::new(built.collect());
        let seen: Arc<Mutex<HashSet<bytes::Bytes>>> = Arc::default();
        let answer = move |axum::extract::Path(name): axum::extract::Path<String>,
                           headers: http::HeaderMap,
                           body: bytes::Bytes| {
            let request = providers::RawRequest { method: http::Method::POST, query: String::new(), headers, body: body.clone() };
            let believed = built[&name].verify(&request, SystemClock::new().now_ms()).is_ok();
            let new = u64::from(seen.lock().expect("no panic").insert(body));
            let word = if new == 1 { "accepted" } else { "duplicate" };
            let status = if believed { http::StatusCode::OK } else { http::StatusCode::UNAUTHORIZED };
            std::future::ready((status, axum::Json(json!({ "status": word, "accepted": new, "repeated": 1 - new }))))
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        let router = axum::Router::new().route("/in/{name}", axum::routing::post(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let base = read_url(&server).expect("an address");
        for (name, _) in samples::list() {
            let sample = samples::sample(name, 7, SystemClock::new().now_ms()).expect("a sample");
            let channel = pick(&config, sample.provider, None).expect("a channel");
            let url = base.join(&format!("/in/{}", channel.name)).expect("an address");
            let provider = providers::build(&channel.provider);
            let http = http_client(&base).expect("a client");
            let post = Post { http, base: base.clone(), url, sample, provider, clock: SystemClock::new() };
            let answers = futures_util::future::try_join_all([post.send(), post.send(), post.send()]).await.expect("answered");
            assert!(answers.iter().all(Answer::is_good), "{name}: {answers:?}");
            let sum = |key| answers.iter().map(|answer| answer.count(key)).sum::<u64>();
            assert_eq!((sum("accepted"), sum("repeated")), (1, 2), "{name}");
        }
    }
}
