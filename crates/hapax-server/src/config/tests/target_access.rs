//! Headers and certificates for targets.

use super::*;

fn mistakes(lines: &str) -> String {
    let text = format!("[channel.c]\nprovider = 'gowa'\nsecret = 'a-secret-of-24-characters'\n{lines}");
    load_with(&text, &[], Flags::default()).expect_err("a mistake").to_string()
}

#[test]
fn headers_that_hapax_sets_are_refused_with_their_line() {
    let said = mistakes(
        "target = 'https://b'\n[channel.c.target_headers]\nHost = 'x'\nHapax-Attempt = '1'\nTE = 'trailers'\nX-Own = 'fine'",
    );
    assert!(said.contains("hapax.toml:6: channel.c.target_headers.Host: `Host` belongs to the connection"), "{said}");
    assert!(said.contains("hapax.toml:7: channel.c.target_headers.Hapax-Attempt: `Hapax-Attempt` tells the bot"), "{said}");
    assert!(said.contains("hapax.toml:8: channel.c.target_headers.TE: `TE` belongs to the connection"), "{said}");
    assert!(!said.contains("X-Own"), "{said}");
}

#[test]
fn a_secret_value_is_never_repeated() {
    let said = mistakes("target = 'https://b'\ntarget_headers = { X-Key = \"se\\ncret\", \"a b\" = 'se-cret' }");
    assert!(said.contains("this cannot stand in a header"), "{said}");
    assert!(said.contains("`a b` is not the name of a header"), "{said}");
    assert!(!said.contains("cret'") && !said.contains("se-cret") && !said.contains("se\ncret"), "{said}");
}

#[test]
fn what_contradicts_itself_is_refused() {
    for (lines, what) in [
        ("target_headers = { X-Own = 'x' }", "it has none; add `target`"),
        ("target = 'https://u:p@b'\ntarget_headers = { Authorization = 'x' }", "keep one"),
        ("target = 'https://b'\ntarget_headers = { X-Own = 'x', x-own = 'y' }", "is there twice"),
        ("target = 'https://b'\ntarget_cert = 'nowhere.pem'", "add target_key"),
        ("target = 'https://b'\ntarget_key = 'nowhere.pem'", "add target_cert"),
        ("target = 'https://b'\ntarget_ca = 'nowhere.pem'", "this file cannot be read"),
        ("target = 'http://b'\ntarget_ca = 'nowhere.pem'", "certificates are for https:// targets"),
    ] {
        let said = mistakes(lines);
        assert!(said.contains(what), "{lines}: {said}");
    }
}

#[test]
fn headers_are_kept_and_hidden() {
    let text = "[channel.c]\nprovider = 'gowa'\nsecret = 'a-secret-of-24-characters'\ntarget = 'https://b'\ntarget_headers = { X-Key = 'deep-secret' }";
    let config = load_with(text, &[], Flags::default()).expect("a good config");
    assert_eq!(config.channels[0].access.headers["x-key"], "deep-secret");
    assert!(!format!("{config:?} {:?}", config.channels[0].access).contains("deep-secret"));
}
