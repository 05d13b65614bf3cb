//! With `log.json`, whatever `hapax serve` says is one JSON object per line, of the same shape as the log's own lines.

use std::io::Write;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use hapax_gateway::telemetry::harmless::harmless;
use serde_json::{Map, Value, json};

use super::{DEFAULT_FILE, Global};

static ON: AtomicBool = AtomicBool::new(false);

/// From now on nothing is said in plain words, panics included.
pub(super) fn begin() {
    if !ON.swap(true, Ordering::Relaxed) {
        std::panic::set_hook(Box::new(|panic| write("ERROR", &words_of(panic), place_of(panic))));
    }
}

pub(super) fn are_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Writes one line, whatever `log.filter` says: a start that failed must not be silent.
pub(super) fn write(level: &str, message: &str, mut fields: Map<String, Value>) {
    fields.insert("message".to_owned(), message.into());
    let line = json!({"timestamp": jiff::Timestamp::now().to_string(), "level": level, "fields": fields, "target": "hapax"});
    let _ = writeln!(std::io::stderr(), "{}", harmless(&line.to_string()));
}

/// True when the config asks for them, as far as it can be read: it may be the config that is wrong.
pub(super) fn are_asked_for(global: &Global) -> bool {
    let file = global.config.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
    let table = std::fs::read_to_string(file).ok().and_then(|text| text.parse::<toml::Table>().ok());
    let json = table.as_ref().and_then(|table| table.get("log")?.get("json")?.as_bool());
    json.unwrap_or_default()
}

fn words_of(panic: &PanicHookInfo<'_>) -> String {
    let payload = panic.payload();
    let words = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("a panic, which is a fault of hapax: {}", words.unwrap_or("without words"))
}

fn place_of(panic: &PanicHookInfo<'_>) -> Map<String, Value> {
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let place = panic.location().map(ToString::to_string);
    Map::from_iter([("thread".to_owned(), thread.into()), ("place".to_owned(), place.into())])
}
