//! Tables of headers: names with values that are never shown.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::mistake::Mistakes;
use super::section::{Found, join};

const HEADERS_MAX: usize = 32;

/// Reads a table of them. The values are marked as secret.
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
