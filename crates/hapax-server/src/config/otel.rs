//! `[otel]`: who collects traces.

use hapax_gateway::settings::Otel;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::mistake::Mistakes;
use super::section::{Found, Section, join, refuse_unknown};
use super::tree::Table;

const KEYS: &[&str] = &["endpoint", "headers", "service_name", "sample"];
const HEADERS_MAX: usize = 32;

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

/// Headers with their values, which are never shown.
pub(super) fn read_headers(found: &Found<'_>, mistakes: &mut Mistakes) -> HeaderMap {
    let Some(table) = found.table(mistakes) else { return HeaderMap::new() };
    if table.len() > HEADERS_MAX {
        found.refuse(mistakes, format!("{} headers are too many; at most {HEADERS_MAX}", table.len()));
    }
    let mut headers = HeaderMap::new();
    for (name, entry) in table {
        let found = Found { path: join(&found.path, name), entry };
        let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
            found.refuse(mistakes, format!("`{name}` is not the name of a header"));
            continue;
        };
        let Some(text) = found.text(mistakes) else { continue };
        match HeaderValue::from_str(text) {
            Ok(mut value) => {
                value.set_sensitive(true);
                if headers.insert(header, value).is_some() {
                    found.refuse(mistakes, format!("`{name}` is there twice, in other letters; keep one"));
                }
            }
            // The value may be a secret: it is not repeated.
            Err(_) => found.refuse(mistakes, "this cannot stand in a header; use signs of ASCII, without line breaks"),
        }
    }
    headers
}
