//! Webhooks on disk, and how they are compared with what was read from them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use hapax_domain::{Event, Identity};
use hapax_providers::samples::Sample;
use hapax_providers::{Parsed, RawRequest, Unsigned};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

#[derive(Clone)]
pub(super) struct Fixture {
    pub(super) name: String,
    headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) expect: Value,
    provider: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Box<RawValue>>,
    text: Option<String>,
    expect: Value,
}

impl Fixture {
    /// Every fixture of a provider, by name.
    pub(super) fn of(provider: &'static str) -> Vec<Fixture> {
        static READ: Mutex<BTreeMap<&str, Vec<Fixture>>> = Mutex::new(BTreeMap::new());
        READ.lock().expect("no test panics in here").entry(provider).or_insert_with(|| Fixture::read_all(provider)).clone()
    }

    fn read_all(provider: &'static str) -> Vec<Fixture> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures")).join(provider);
        let mut paths: Vec<_> = folder.read_dir().expect("fixtures").map(|entry| entry.expect("a file").path()).collect();
        paths.sort();
        paths.iter().map(|path| Fixture::read(provider, path)).collect()
    }

    pub(super) fn named(provider: &'static str, name: &str) -> Fixture {
        let wanted = format!("{provider}/{name}");
        Fixture::of(provider).into_iter().find(|fixture| fixture.name == wanted).expect("a fixture of this name")
    }

    fn read(provider: &'static str, path: &Path) -> Fixture {
        let name = format!("{provider}/{}", path.file_stem().expect("a name").display());
        let file: File =
            serde_json::from_slice(&std::fs::read(path).expect("readable")).unwrap_or_else(|e| panic!("{name}: {e}"));
        let body = match (file.body, file.text) {
            (Some(body), None) => body.get().to_owned(),
            (None, Some(text)) => text,
            _ => panic!("{name}: exactly one of body and text"),
        };
        let header = |(name, value): (&String, &String)| {
            (HeaderName::try_from(name).expect("a header"), HeaderValue::from_str(value).expect("a value"))
        };
        let headers = file.headers.iter().map(header).collect();
        Fixture { name, headers, body: body.into_bytes(), expect: file.expect, provider }
    }

    pub(super) fn of_sample(sample: Sample) -> Fixture {
        let mut headers: HeaderMap = sample.headers.into_iter().collect();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(sample.content_type));
        let name = format!("sample of {}", sample.provider);
        Fixture { name, headers, body: sample.body, expect: Value::Null, provider: sample.provider }
    }

    pub(super) fn provider(&self) -> &'static str {
        self.provider
    }

    pub(super) fn with_body(&self, body: Vec<u8>) -> Fixture {
        Fixture { body, ..self.clone() }
    }

    pub(super) fn with_header(&self, name: &'static str, value: &[u8]) -> Option<Fixture> {
        let mut fixture = self.clone();
        fixture.headers.insert(name, HeaderValue::from_bytes(value).ok()?);
        Some(fixture)
    }

    /// The fixture with one text of its body exchanged for another, both as JSON strings.
    pub(super) fn with_text(&self, from: &str, to: &str) -> Fixture {
        let quoted = |text: &str| serde_json::to_string(text).expect("a string");
        let body = std::str::from_utf8(&self.body).expect("UTF-8");
        assert!(body.contains(&quoted(from)), "{}: no {from}", self.name);
        self.with_body(body.replace(&quoted(from), &quoted(to)).into_bytes())
    }

    pub(super) fn unsigned(&self) -> Unsigned<'_> {
        Unsigned { url: None, headers: &self.headers, body: &self.body }
    }

    /// The request, unsigned.
    pub(super) fn request(&self) -> RawRequest {
        RawRequest { method: Method::POST, query: String::new(), headers: self.headers.clone(), body: self.body.clone().into() }
    }

    /// The same JSON with the members of every object the other way round; nothing when that changes nothing.
    pub(super) fn reordered(&self) -> Option<Fixture> {
        let body = reversed(std::str::from_utf8(&self.body).ok()?).into_bytes();
        (serde_json::from_slice::<Value>(&self.body).is_ok() && body != self.body).then(|| self.with_body(body))
    }
}

fn reversed(json: &str) -> String {
    if let Ok(members) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(json) {
        let members: Vec<String> = members
            .iter()
            .rev()
            .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), reversed(value.get())))
            .collect();
        return format!("{{ {} }}", members.join(" , "));
    }
    if let Ok(items) = serde_json::from_str::<Vec<Box<RawValue>>>(json) {
        let items: Vec<String> = items.iter().map(|item| reversed(item.get())).collect();
        return format!("[{}]", items.join(", "));
    }
    json.to_owned()
}

/// What was read, in the words of the `expect` member of a fixture.
pub(super) fn summary(parsed: &Parsed) -> Value {
    let mut summary = Map::new();
    summary.insert("events".to_owned(), parsed.events.iter().map(summary_of).collect());
    for (name, count) in [("ignored", parsed.ignored as usize), ("problems", parsed.problems.len())] {
        if count > 0 {
            summary.insert(name.to_owned(), json!(count));
        }
    }
    Value::Object(summary)
}

fn summary_of(event: &Event) -> Value {
    let mut summary = Map::new();
    let mut say = |name: &str, value: Value| summary.insert(name.to_owned(), value);
    say("kind", json!(event.kind.name()));
    say("account", json!(event.account));
    // What stands in for an id is a hash: the mark before it says enough.
    say("id", if event.identity == Identity::Named { json!(event.id) } else { json!(event.identity.mark()) });
    event.peer.as_ref().map(|peer| say("peer", json!(peer)));
    event.status.map(|status| say("status", json!(status.name())));
    event.at_ms.map(|at_ms| say("at_ms", json!(at_ms)));
    event.text.as_ref().map(|text| say("text", json!(text)));
    if !event.aliases.is_empty() {
        say("aliases", json!(event.aliases));
    }
    if event.echo {
        say("echo", json!(true));
    }
    Value::Object(summary)
}
