//! Cookies, as far as pages need them.

use http::{HeaderMap, HeaderValue, header};

/// The value of a cookie; the first one, where there are several.
pub(super) fn read<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(found, _)| *found == name).map(|(_, value)| value).next()
}

/// Sets a cookie for so many seconds; none at all takes it back. Values are letters, digits, `-` and `_`.
pub(super) fn set(name: &str, value: &str, seconds: i64, secure: bool) -> Option<HeaderValue> {
    let secure = if secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).ok()
}
