//! `[otel]`: who collects traces.

use hapax_gateway::settings::Otel;

use super::headers::read_headers;
use super::mistake::Mistakes;
use super::section::{Section, refuse_unknown};
use super::tree::Table;

const KEYS: &[&str] = &["endpoint", "headers", "service_name", "sample"];

/// Reads what the tables say, the strongest first. `None`: there is no collector.
pub(super) fn read(tables: Vec<(String, &Table)>, mistakes: &mut Mistakes) -> Option<Otel> {
    tables.iter().for_each(|(path, table)| refuse_unknown(table, path, KEYS, &[], mistakes));
    let section = Section::new(tables);
    let service_name = section.get("service_name").and_then(|found| found.text(mistakes)).unwrap_or_default().to_owned();
    let sample = section.get("sample").and_then(|found| found.whole(0..=100, mistakes)).unwrap_or_default();
    let headers = section.get("headers").map(|found| read_headers(&found, mistakes)).unwrap_or_default();
    let Some(found) = section.get("endpoint") else {
        if let Some(found) = section.get("headers") {
            found.refuse(mistakes, "nobody gets these headers; add endpoint = \"http://127.0.0.1:4318\", or take them out");
        }
        return None;
    };
    let endpoint = found.text(mistakes)?;
    let is_address = endpoint.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some_and(|host| !host.as_str().contains('@'))
    });
    if !is_address {
        let what = "this is not an http:// or https:// address; write \"http://127.0.0.1:4318\", and a login into `headers`";
        found.refuse(mistakes, what);
        return None;
    }
    Some(Otel { endpoint: endpoint.to_owned(), headers, service_name, sample_percent: u8::try_from(sample).unwrap_or(100) })
}
