//! How the list of paused threads stands in its register.

use serde_json::{Map, Value, json};

use super::{Mode, Pause, Pauses};

pub(super) fn write(pauses: &Pauses) -> String {
    let entry = |pause: &Pause| json!({"mode": pause.mode.name(), "since_ms": pause.since_ms, "by": pause.by});
    let entries: Map<String, Value> = pauses.iter().map(|(thread, pause)| (thread.to_string(), entry(pause))).collect();
    Value::Object(entries).to_string()
}

/// What a later version wrote otherwise still waits: a person has taken it over.
pub(super) fn read(text: Option<&str>) -> Pauses {
    let entries: Map<String, Value> = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let entry = |(thread, entry): (String, Value)| {
        let mode = entry["mode"].as_str().and_then(Mode::from_name).unwrap_or(Mode::Wait);
        let by = entry["by"].as_str().unwrap_or_default().to_owned();
        Some((thread.parse().ok()?, Pause { mode, since_ms: entry["since_ms"].as_i64().unwrap_or_default(), by }))
    };
    entries.into_iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::ThreadId;

    #[test]
    fn a_list_is_read_as_it_was_written_whatever_people_are_called() {
        let thread = |peer: &str| ThreadId { account: "7__\"\n".to_owned(), peer: peer.to_owned() };
        let pause = |mode| Pause { mode, since_ms: 5, by: "ana \"\\ \u{1f980}".to_owned() };
        let pauses = Pauses::from([(thread("__"), pause(Mode::Wait)), (thread("a\u{0}b"), pause(Mode::Done))]);
        assert_eq!(read(Some(&write(&pauses))), pauses);
        assert_eq!(read(Some("[")), Pauses::new());
        let later = read(Some(r#"{"7__1":{"mode":"whisper"}}"#));
        assert_eq!(later.values().next().map(|pause| pause.mode), Some(Mode::Wait));
    }
}
