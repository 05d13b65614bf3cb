//! Addresses that may be shown to anybody who may see the rest.

const HIDDEN: &str = "(hidden)";

/// An address may carry a password (`http://user:password@host`) or a key in its query: neither is shown.
pub fn hide_userinfo(address: &str) -> String {
    let Ok(uri) = address.parse::<http::Uri>() else { return HIDDEN.to_owned() };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return HIDDEN.to_owned() };
    let host = match authority.as_str().rsplit_once('@') {
        Some((_, host)) => format!("{HIDDEN}@{host}"),
        None => authority.to_string(),
    };
    let query = if uri.query().is_some() { format!("?{HIDDEN}") } else { String::new() };
    format!("{scheme}://{host}{}{query}", uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_or_a_key_in_an_address_is_not_shown() {
        assert_eq!(hide_userinfo("http://u:p@host:1/x"), "http://(hidden)@host:1/x");
        assert_eq!(hide_userinfo("https://host/x?key=1"), "https://host/x?(hidden)");
        assert_eq!(hide_userinfo("http://127.0.0.1:3000/webhook"), "http://127.0.0.1:3000/webhook");
    }
}
