//! `hapax trigger`

use std::time::Instant;

use clap::Args;
use futures_util::StreamExt;
use hapax_providers::samples;
use hapax_store::clock::{Clock, SystemClock};
use serde_json::{Value, json};

use super::client::{Client, in_path};
use super::output::{counted, printable, text_of};
use super::{Failure, Global, Output};

/// Posts at once with `--concurrent`.
const AT_ONCE_MAX: usize = 256;
const TIMES_MAX: u32 = 100_000;

/// Have a running hapax post a signed sample at its own door, as often as you like: copies are suppressed
#[derive(Args, Debug)]
#[command(after_help = "\
The server signs with the channel's own secret, which never leaves it; so this
needs a token of scope `admin`. All posts are the same message: the first is
accepted, the others are copies.

Examples:
  hapax trigger whatsapp.text --times 5
  hapax trigger telegram.callback --channel helpbot
  hapax trigger stripe.invoice_paid --times 50 --concurrent
  hapax trigger whatsapp.text --nonce 7
      the same message as the last time with --nonce 7 today

A nonce makes the ids and the times of a sample. One that is made here (it is
printed at the end) says its own second: with it, the sample is the same
message whenever you repeat it. With any other number it is the same for the
rest of the day (UTC); on the next day it has the same id and another time,
which is a conflict.

Samples: whatsapp.text, whatsapp.image, whatsapp.status, whatsapp.batch,
messenger.text, messenger.delivery, instagram.text, telegram.text,
telegram.callback, gowa.text, gowa.ack, evolution.text, evolution.status,
waha.text, waha.ack, stripe.invoice_paid, github.push, github.ping,
standard.event, shopify.orders_create, slack.message, slack.mention,
twilio.sms, twilio.status, generic.json")]
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
    /// Makes the ids and times of the sample: the same number is the same message. Without it one that was never used
    #[arg(long, value_name = "NUMBER")]
    nonce: Option<u64>,
}

/// What the webhook door said to one post.
#[derive(Debug)]
struct WebhookAnswer {
    status: u64,
    took_ms: u128,
    body: Value,
}

impl WebhookAnswer {
    /// What became of it, in one word for one thing: what programs know as `duplicate` is a suppressed copy to people.
    fn word(&self) -> String {
        match (self.body["status"].as_str(), self.body["detail"].as_str()) {
            (Some("duplicate"), _) => "copy suppressed".to_owned(),
            (Some("conflict"), _) => "copy with another content suppressed".to_owned(),
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
        let client = Client::open(global)?;
        let nonce = self.nonce.unwrap_or_else(|| samples::fresh_nonce(SystemClock::new().wall_ms(), rand::random()));
        let provider = self.sample.split('.').next().unwrap_or_default();
        let channel = pick(&client.get("/v1/channels", &[]).await?, provider, self.channel.as_deref())?;
        let path = format!("/v1/channels/{}/trigger", in_path(&channel));
        let post = async || {
            let begun = Instant::now();
            let said = client.post(&path, json!({ "kind": self.sample, "nonce": nonce })).await?;
            let (status, body) = (said["status"].as_u64().unwrap_or_default(), said["answer"].clone());
            Ok::<_, Failure>(WebhookAnswer { status, took_ms: begun.elapsed().as_millis(), body })
        };
        let at_once = if self.concurrent { AT_ONCE_MAX } else { 1 };
        let mut answers = Vec::new();
        let mut posts = futures_util::stream::iter(0..self.times).map(|_| post()).buffer_unordered(at_once);
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
        conclude(&self.sample, &channel, nonce, &answers, output)
    }
}

fn conclude(sample: &str, channel: &str, nonce: u64, answers: &[WebhookAnswer], output: &Output) -> Result<(), Failure> {
    let sum = |key: &str| answers.iter().map(|answer| answer.count(key)).sum::<u64>();
    let (accepted, suppressed) = (sum("accepted"), sum("repeated"));
    let refused = answers.iter().filter(|answer| !answer.is_good()).count();
    if output.json {
        let list: Vec<_> = answers
            .iter()
            .map(|answer| json!({ "status": answer.status, "answer": answer.body, "took_ms": answer.took_ms as u64 }))
            .collect();
        output.json(&json!({
            "sample": sample, "channel": channel, "nonce": nonce,
            "accepted": accepted, "suppressed": suppressed, "refused": refused, "answers": list,
        }));
    } else {
        let tail = if refused > 0 { format!(", {refused} refused") } else { String::new() };
        let copies = counted(suppressed, "copy", "copies");
        output.say(format_args!("{accepted} accepted, {copies} suppressed{tail}"));
        output.note(format_args!("--nonce {nonce} sends this message again"));
    }
    match answers.iter().find(|answer| !answer.is_good()) {
        None => Ok(()),
        Some(answer) if answer.status == 503 => {
            Err(Failure::plain("the server cannot take anything in now; its log and `hapax stats` say why"))
        }
        Some(answer) => Err(Failure::plain(format!("the server answered {}", answer.status))),
    }
}

/// Finds the channel to post to among those the server has.
fn pick(listed: &Value, provider: &str, wanted: Option<&str>) -> Result<String, Failure> {
    let channels = listed["channels"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_provider = channels.iter().filter(|channel| text_of(channel, "provider") == provider);
    let of_provider: Vec<String> = of_provider.map(|channel| text_of(channel, "name")).collect();
    let names = of_provider.join(", ");
    let found = match wanted {
        Some(name) => of_provider.iter().find(|channel| *channel == name),
        None => of_provider.iter().find(|channel| *channel == provider).or(match of_provider.as_slice() {
            [only] => Some(only),
            _ => None,
        }),
    };
    match (found, wanted) {
        (Some(channel), _) => Ok(channel.clone()),
        (None, _) if of_provider.is_empty() => {
            Err(Failure::NothingMatched(format!("no channel of the server has provider = \"{provider}\"; add one to its config")))
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

    #[test]
    fn the_channel_is_the_named_the_namesake_or_the_only_one() {
        let listed = |channels: &[(&str, &str)]| {
            let one = |(name, provider): &(&str, &str)| json!({ "name": name, "provider": provider });
            json!({ "channels": channels.iter().map(one).collect::<Vec<_>>() })
        };
        let one = listed(&[("shop", "whatsapp")]);
        assert_eq!(pick(&one, "whatsapp", None).expect("the only one"), "shop");
        assert_eq!(pick(&one, "stripe", None).expect_err("none").code(), 5);
        assert_eq!(pick(&one, "whatsapp", Some("nope")).expect_err("none").code(), 5);
        let two = listed(&[("a", "gowa"), ("b", "gowa")]);
        assert_eq!(pick(&two, "gowa", None).expect_err("which?").code(), 2);
        assert_eq!(pick(&two, "gowa", Some("b")).expect("named"), "b");
        let namesake = listed(&[("a", "gowa"), ("gowa", "gowa")]);
        assert_eq!(pick(&namesake, "gowa", None).expect("the namesake"), "gowa");
        assert_eq!(pick(&listed(&[]), "gowa", None).expect_err("no channels").code(), 5);
    }

    #[test]
    fn the_help_names_every_sample() {
        use clap::CommandFactory;
        let cli = super::super::Cli::command();
        let help = cli.find_subcommand("trigger").and_then(|command| command.get_after_help()).expect("help").to_string();
        let help = help.replace('\n', " ");
        samples::list().iter().for_each(|(name, _)| assert!(help.contains(name), "{name}"));
    }
}
