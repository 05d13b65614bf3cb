//! What real libraries put on the wire: the same three calls, by two runs of the same bot.

use std::collections::BTreeMap;

use base64::Engine;
use serde::Deserialize;

use super::*;

const RECORDED: &str = include_str!("recorded.jsonl");

#[derive(Deserialize)]
struct Recorded {
    library: String,
    run: u32,
    method: String,
    path: String,
    query: Option<String>,
    content_type: Option<String>,
    user_agent: String,
    authorization: Option<String>,
    #[serde(default)]
    body: String,
}

impl Recorded {
    fn all() -> Vec<Recorded> {
        RECORDED.lines().map(|line| serde_json::from_str(line).expect("a recorded call")).collect()
    }

    fn provider(&self) -> &'static str {
        if self.path.starts_with("/bot") { "telegram" } else { "whatsapp" }
    }

    /// What it asks for, its token and, for an effect, what it would send.
    fn read(&self) -> (What, String, Option<Effect>) {
        let (dropin, _) = channel(self.provider());
        let body = base64::engine::general_purpose::STANDARD.decode(&self.body).expect("base64");
        let mut headers = HeaderMap::new();
        if let Some(value) = &self.authorization {
            headers.insert("authorization", value.parse().expect("a value"));
        }
        let method: Method = self.method.parse().expect("a method");
        let (query, content_type) = (self.query.as_deref(), self.content_type.as_deref());
        let mut routed = dropin.route(&Head { method: &method, path: &self.path, query, headers: &headers }).expect("a path");
        if routed.what == What::ByBody {
            routed.what = dropin.by_body(&routed, query, content_type, &body);
        }
        let effect =
            matches!(routed.what, What::Effect { .. }).then(|| match super::super::multipart::is_multipart(content_type) {
                true => {
                    let mut reader = super::super::multipart::Reader::new(content_type.unwrap_or_default()).expect("a boundary");
                    body.chunks(7).for_each(|chunk| reader.feed(chunk).expect("readable parts"));
                    let parts = reader.finish().expect("whole parts");
                    let content_type = content_type.unwrap_or_default();
                    let upload = Upload { name: "shop/1", content_type, length: body.len() as u64, parts: &parts };
                    dropin.effect_with_files(&routed, query, &upload).expect("an effect")
                }
                false => dropin.effect(&routed, query, &Whole { content_type, body: &body, name: "shop/1" }).expect("an effect"),
            });
        (routed.what.clone(), routed.token.map(|token| token.expose_secret().to_owned()).unwrap_or_default(), effect)
    }
}

#[test]
fn a_second_run_sends_the_same() {
    type Sent = (String, [u8; 16]);
    let mut runs: BTreeMap<(String, u32), Vec<Sent>> = BTreeMap::new();
    for call in Recorded::all() {
        if let (_, _, Some(effect)) = call.read() {
            runs.entry((call.library, call.run)).or_default().push((effect.method, effect.content));
        }
    }
    assert_eq!(runs.len(), 14, "seven libraries");
    for ((library, run), sent) in &runs {
        assert_eq!(Some(sent), runs.get(&(library.clone(), 3 - run)), "{library}");
        let different: std::collections::HashSet<_> = sent.iter().collect();
        assert_eq!(different.len(), sent.len(), "{library}");
    }
}

#[test]
fn libraries_are_understood() {
    for call in Recorded::all() {
        let (what, token, effect) = call.read();
        let (expected_token, peers) = match call.provider() {
            "telegram" => ("9:x", "77"),
            _ => ("EAA", "5511988887777"),
        };
        assert_eq!(token, expected_token, "{} {}", call.library, call.path);
        let method = call.path.rsplit('/').next().unwrap_or_default();
        match method {
            "getMe" => assert_eq!(what, What::Through),
            "editMessageText" => assert_eq!(what, What::Repeatable),
            "setWebhook" => assert_eq!(what, What::SetWebhook),
            "messages" if effect.is_none() => assert!(matches!(what, What::Through | What::Repeatable)),
            _ => {
                let effect = effect.expect("an effect");
                assert_eq!(effect.peer, peers, "{} {method}", call.library);
                let in_files = matches!(method, "sendPhoto" | "sendMediaGroup");
                assert_eq!(effect.keeps_body, in_files, "{} {method}", call.library);
                match method {
                    "sendMessage" => assert_eq!(effect.text.as_deref(), Some("a b&c é"), "{}", call.library),
                    "sendPhoto" => assert_eq!(effect.text.as_deref(), Some("c"), "{}", call.library),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn libraries_are_waited_for_as_long_as_they_wait() {
    for call in Recorded::all() {
        // As measured: python-telegram-bot and pywa give up after 5 s; whatsapp-api-js shows no name of its own.
        let library = call.library.split(' ').next().unwrap_or_default();
        let hasty = matches!(library, "python-telegram-bot" | "pywa" | "whatsapp-api-js");
        assert_eq!(wait_of(Some(&call.user_agent)).as_secs(), if hasty { 4 } else { 25 }, "{library} {}", call.user_agent);
    }
}
