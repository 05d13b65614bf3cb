//! `hapax doctor`

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use hapax::StoreUrl;
use hapax_domain::address::hide_userinfo;
use hapax_gateway::delivery::likely_cause;
use hapax_gateway::http_client::innermost;
use hapax_gateway::settings::{Channel, TargetTls};
use hapax_providers::sending::{Call, CallBody};
use hapax_providers::{Unsigned, build, checkup};
use http::HeaderMap;
use reqwest::{Method, Request, Response, Url};
use serde_json::json;

use super::client::{Client, http_client};
use super::output::{counted, printable, text_of};
use super::{Failure, Global, Output, sources};
use crate::config::{self, Config, Flags};

const PATIENCE: Duration = Duration::from_secs(10);
/// Signatures with a time in them are refused by most providers after five minutes.
const CLOCK_OFF_S: i64 = 30;

/// Look for what keeps messages from arriving: config, server, store, disk, clock, bots and credentials
#[derive(Args, Debug)]
#[command(after_help = "\
Every target gets one signed webhook without an event in it, as its provider
might send at any time: a bot has nothing to do for it, and its answer shows
whether it is there and believes the signature. Every channel with a token asks
its provider who it is (getMe and the like). Nothing is sent to anybody, and
nothing is stored. It is run where hapax runs, with the same config. Exit code
1 if something fails.

Examples:
  hapax doctor
  hapax doctor --channel shop
  hapax doctor --offline          only what this machine knows by itself")]
pub struct Doctor {
    /// Only this channel
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Call neither bots nor providers
    #[arg(long)]
    offline: bool,
}

/// What was found, in the order in which it was looked at.
#[derive(Default)]
struct Findings(Vec<(&'static str, String, String)>);

impl Findings {
    fn ok(&mut self, what: impl Into<String>, words: impl Into<String>) {
        self.0.push(("ok", what.into(), words.into()));
    }

    fn warn(&mut self, what: impl Into<String>, words: impl Into<String>) {
        self.0.push(("warn", what.into(), words.into()));
    }

    fn fail(&mut self, what: impl Into<String>, words: impl Into<String>) {
        self.0.push(("fail", what.into(), words.into()));
    }
}

impl Doctor {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let sources = sources::read_sources(global, Flags::default())?;
        let mut config = config::load(&sources)?;
        if let Some(name) = self.channel.as_deref().filter(|name| !config.channels.iter().any(|channel| &*channel.name == *name))
        {
            return Err(Failure::NothingMatched(format!("the config has no channel `{name}`")));
        }
        let mut found = Findings::default();
        as_it_runs(global, &mut config).await;
        let file = sources.file.as_ref().map(|file| file.name.as_str());
        match file {
            Some(name) => {
                found.ok("config", format!("{name} is good: {}", counted(config.channels.len() as u64, "channel", "channels")))
            }
            None => found.ok("config", "there is no hapax.toml here, so the defaults hold"),
        }
        for warning in config::warnings(&config).into_iter().chain(sources::open_files(file, &config)) {
            found.warn("config", warning);
        }
        disk(&config, &mut found);
        server(global, &mut found).await;
        let mut skews = Vec::new();
        for channel in config.channels.iter().filter(|channel| self.channel.as_deref().is_none_or(|name| name == &*channel.name))
        {
            if self.offline {
                continue;
            }
            for address in channel.addresses() {
                target(channel, address, &mut found).await;
            }
            skews.extend(credentials(channel, &mut found).await);
            registration(channel, &mut found).await;
        }
        clock(&skews, &mut found);
        conclude(&found, output)
    }
}

/// Channels that the running server has given a target, as `hapax listen 3000` does, have one: they are tried there.
async fn as_it_runs(global: &Global, config: &mut Config) {
    let Ok(client) = Client::open(global) else { return };
    let Ok(running) = client.get("/v1/channels", &[]).await else { return };
    for channel in config.channels.iter_mut().filter(|channel| channel.target.is_none()) {
        let mut rows = running["channels"].as_array().into_iter().flatten();
        let row = rows.find(|row| row["name"] == *channel.name);
        channel.target = row.and_then(|row| row["target"].as_str()).map(str::to_owned);
    }
}

/// Free room where the store and the spool are.
fn disk(config: &Config, found: &mut Findings) {
    let StoreUrl::Sqlite(path) = &config.store else { return };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let megabytes = |bytes: u64| bytes >> 20;
    match rustix::fs::statvfs(folder) {
        Ok(disk) => {
            let (free, floor) = (disk.f_bavail.saturating_mul(disk.f_frsize), config.engine.disk_floor_bytes);
            let words = format!(
                "{} MB free in {}; below {} MB webhooks are refused",
                megabytes(free),
                folder.display(),
                megabytes(floor)
            );
            match free {
                free if free < floor => found.fail("disk", words),
                free if free < 4 * floor => found.warn("disk", words),
                _ => found.ok("disk", words),
            }
        }
        Err(why) => found.fail("disk", format!("{} cannot be looked at: {why}", folder.display())),
    }
}

/// The running server, and what its store promises.
async fn server(global: &Global, found: &mut Findings) {
    let asked = match Client::open(global) {
        Ok(client) => client.get("/v1/stats", &[]).await,
        Err(failure) => Err(failure),
    };
    match asked {
        Err(Failure::Unreachable(_)) => {
            found.warn("server", "no hapax runs here, so its store was not looked at; `hapax serve` starts it")
        }
        Err(failure) => found.fail("server", failure.to_string()),
        Ok(stats) if stats["store"] == "down" => found.fail("store", format!("down: {}", text_of(&stats, "why"))),
        Ok(stats) => {
            found.ok("server", "it runs, and takes this token");
            let reasons = stats["not_kept"].as_array().into_iter().flatten().filter_map(|reason| reason.as_str());
            let reasons: Vec<&str> = reasons.collect();
            match text_of(&stats, "promise").as_str() {
                "degraded" => found.warn("store", format!("degraded: {}", reasons.join("; "))),
                _ => found.ok("store", "the full promise: what is answered 200 is on disk"),
            }
            let sum = |key: &str| {
                let rows = stats["channels"].as_array().into_iter().flatten();
                rows.map(|row| row[key].as_u64().unwrap_or_default()).sum::<u64>()
            };
            if sum("parked") + sum("quarantined") > 0 {
                found.warn(
                    "inbox",
                    format!("{} items wait for you; `hapax parked` lists them", sum("parked") + sum("quarantined")),
                );
            }
        }
    }
}

/// Posts a webhook without an event in it to a bot.
async fn target(channel: &Channel, address: &str, found: &mut Findings) {
    let what = format!("{} bot", channel.name);
    let shown = hide_userinfo(address).split(['?', '#']).next().unwrap_or_default().to_owned();
    let Some(sample) = checkup::probe(channel.provider.provider()) else {
        return found.warn(what, format!("{shown}: its provider has no webhook without an event in it to try it with"));
    };
    let Ok(url) = Url::parse(address) else { return found.fail(what, format!("{shown} is not an address")) };
    let mut headers: HeaderMap = sample.headers.into_iter().collect();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(sample.content_type));
    let wall_ms = jiff::Timestamp::now().as_millisecond();
    let signed = build(&channel.provider).sign(Unsigned { url: Some(address), headers: &headers, body: &sample.body }, wall_ms);
    headers.extend(channel.access.headers.clone());
    headers.extend(signed);
    let mut request = Request::new(Method::POST, url);
    *request.headers_mut() = headers;
    *request.body_mut() = Some(sample.body.into());
    let client = http_client(request.url(), &channel.access.tls).map_err(|failure| failure.to_string());
    let answered = match client {
        Ok(client) => call(&client, request).await,
        Err(why) => Err(why),
    };
    let (why, failed) = match answered {
        Ok(answer) if answer.status().is_success() => {
            return found.ok(what, format!("{shown} answered {}", answer.status().as_u16()));
        }
        Ok(answer) => {
            let status = answer.status().as_u16();
            // A bot may stumble over a webhook with nothing in it; what it does not believe or know, it never will.
            (format!("the target answered {status}"), matches!(status, 300..=399 | 401 | 403 | 404 | 405))
        }
        Err(why) => (why, true),
    };
    let words = match likely_cause(&why, &shown) {
        Some(cause) => format!("{why}: {cause}"),
        None => format!("{shown}: {why}, to a webhook without an event in it"),
    };
    if failed { found.fail(what, words) } else { found.warn(what, words) }
}

/// Asks the provider who we are; gives how far its clock is from ours, in seconds.
async fn credentials(channel: &Channel, found: &mut Findings) -> Option<i64> {
    let send = channel.send.as_ref()?;
    let what = format!("{} token", channel.name);
    let question = checkup::who_am_i(&channel.provider, send.token.as_ref())?;
    let answer = match ask(&send.api_base, question).await {
        Ok(answer) => answer,
        Err(why) => {
            found.fail(what, format!("{}: {why}", hide_userinfo(&send.api_base)));
            return None;
        }
    };
    let skew = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok()).and_then(skew_s);
    let status = answer.status().as_u16();
    let body = answer.bytes().await.unwrap_or_default();
    match checkup::read_who_am_i(status, &body) {
        Ok(name) => found.ok(what, format!("{} knows it: {name}", channel.provider.provider())),
        Err(why) => found.fail(what, format!("{} does not take it: {why}", channel.provider.provider())),
    }
    skew
}

/// Asks the provider where it posts, where it tells.
async fn registration(channel: &Channel, found: &mut Findings) {
    let Some(send) = &channel.send else { return };
    let Some(question) = checkup::where_registered(&channel.provider, send.token.as_ref()) else { return };
    let what = format!("{} webhook", channel.name);
    let Ok(answer) = ask(&send.api_base, question).await else { return };
    let Some(told) = checkup::read_where_registered(&answer.bytes().await.unwrap_or_default()) else { return };
    let path = format!("/in/{}", channel.name);
    let trouble = told.trouble.map(|words| format!("; its last try failed: {words}")).unwrap_or_default();
    let waiting = if told.waiting > 0 { format!("; {} updates wait there", told.waiting) } else { String::new() };
    match told.url.as_str() {
        "" => found
            .fail(what, format!("none is registered; call setWebhook with https://your.host{path} and this channel's secret")),
        url if !url.ends_with(&path) => found.fail(what, format!("it goes to {url}, past hapax, which waits at {path}")),
        url if trouble.is_empty() => found.ok(what, format!("it goes to {url}{waiting}")),
        url => found.warn(what, format!("it goes to {url}{waiting}{trouble}")),
    }
}

fn clock(skews: &[i64], found: &mut Findings) {
    match skews.iter().copied().min_by_key(|skew| skew.abs()) {
        None => found.warn("clock", "no provider was asked, so it was compared with nobody's"),
        Some(skew) if skew.abs() > CLOCK_OFF_S => found.fail(
            "clock",
            format!(
                "{} s off from a provider's: signatures with a time in them are refused; let the system keep its time",
                skew.abs()
            ),
        ),
        Some(skew) => found.ok("clock", format!("within {} s of a provider's", skew.abs().max(1))),
    }
}

/// How far a `Date` is ahead of this machine's clock.
fn skew_s(date: &str) -> Option<i64> {
    let theirs = jiff::fmt::rfc2822::parse(date).ok()?.timestamp().as_second();
    Some(theirs - jiff::Timestamp::now().as_second())
}

async fn ask(base: &str, question: Call) -> Result<Response, String> {
    let url = Url::parse(&format!("{base}{}", question.path)).map_err(|_| "`api_base` makes no address".to_owned())?;
    let mut request = Request::new(question.method, url);
    request.headers_mut().extend(question.headers);
    if let CallBody::Whole(body) = question.body {
        *request.body_mut() = Some(body.into());
    }
    let client = http_client(request.url(), &TargetTls::default()).map_err(|failure| failure.to_string())?;
    call(&client, request).await
}

/// Makes one call. An address may hold a token: no error repeats it.
async fn call(client: &reqwest::Client, mut request: Request) -> Result<Response, String> {
    *request.timeout_mut() = Some(PATIENCE);
    client.execute(request).await.map_err(|error| match error.source() {
        _ if error.is_timeout() => format!("no answer within {} s", PATIENCE.as_secs()),
        None => "it cannot be reached".to_owned(),
        Some(cause) => format!("it cannot be reached: {}", innermost(cause)),
    })
}

/// What was found of several channels in the same words is told once, for all of them.
fn together(found: &[(&'static str, String, String)]) -> Vec<(&'static str, String, String)> {
    let mut groups: Vec<(&'static str, &str, Vec<&str>, &str)> = Vec::new();
    for (state, what, words) in found {
        let (channel, kind) = what.rsplit_once(' ').unwrap_or(("", what));
        match groups.iter_mut().find(|group| !channel.is_empty() && (group.0, group.1, group.3) == (*state, kind, words)) {
            Some((_, _, channels, _)) => channels.push(channel),
            None => groups.push((state, kind, vec![channel], words)),
        }
    }
    let row = |(state, kind, channels, words): (&'static str, &str, Vec<&str>, &str)| match channels.as_slice() {
        [channel] => (state, format!("{channel} {kind}").trim_start().to_owned(), words.to_owned()),
        many => (state, format!("{kind}s"), format!("{}: {words}", many.join(", "))),
    };
    groups.into_iter().map(row).collect()
}

fn conclude(found: &Findings, output: &Output) -> Result<(), Failure> {
    let failures = found.0.iter().filter(|(state, ..)| *state == "fail").count();
    if output.json {
        let checks = found.0.iter().map(|(state, what, words)| json!({"state": state, "what": what, "words": words}));
        output.json(&json!({"ok": failures == 0, "checks": checks.collect::<Vec<_>>()}));
    } else {
        let row = |(state, what, words): &(&str, String, String)| vec![(*state).to_owned(), what.clone(), printable(words)];
        output.steps(&["", "", ""], together(&found.0).iter().map(row).collect());
    }
    match failures {
        0 => Ok(()),
        1 => Err(Failure::plain("1 thing needs you; it is marked `fail` above")),
        many => Err(Failure::plain(format!("{many} things need you; they are marked `fail` above"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_everywhere_is_told_once() {
        let mut found = Findings::default();
        found.ok("config", "good");
        found.fail("shop bot", "answered 404");
        found.warn("shop token", "answered 404");
        found.fail("desk bot", "answered 404");
        found.fail("help bot", "answered 401");
        found.warn("config", "good");
        let told: Vec<String> =
            together(&found.0).into_iter().map(|(state, what, words)| format!("{state} {what}: {words}")).collect();
        assert_eq!(
            told,
            [
                "ok config: good",
                "fail bots: shop, desk: answered 404",
                "warn shop token: answered 404",
                "fail help bot: answered 401",
                "warn config: good",
            ]
        );
    }
}
