//! A target per account, as it stands in the file.

use super::*;

const SHOP: &str = "[channel.shop]\nprovider = 'whatsapp'\nsecret = 'a-long-secret-of-ours'\nverify_token = 'x'\n";

#[test]
fn accounts_may_have_targets_of_their_own() {
    let channel = one(&format!("{SHOP}target = 'http://127.0.0.1:1/a'\n[channel.shop.targets]\n7001 = 'http://127.0.0.1:2/b'\n"));
    let targets: Vec<_> = channel.targets.iter().map(|(account, at)| (account.as_str(), at.as_str())).collect();
    assert_eq!(
        (channel.target.as_deref(), &targets[..]),
        (Some("http://127.0.0.1:1/a"), &[("7001", "http://127.0.0.1:2/b")][..])
    );
    let channel = one(&format!("{SHOP}mode = 'proxy'\n[channel.shop.targets]\n'7001' = 'http://127.0.0.1:2/b'\n"));
    assert!(channel.target.is_none() && channel.has_target(), "a default is not needed, for proxy mode neither");
}

#[test]
fn what_is_wrong_with_a_target_is_told_with_its_line() {
    for (table, said) in [
        ("7001 = 'ftp://x'", "6: channel.shop.targets.7001: the target is not an http:// or https:// address"),
        ("7001 = 7", "6: channel.shop.targets.7001: expected a text in quotes, found a number"),
        ("'+55 11' = 'http://x/'", "6: channel.shop.targets.+55 11: an account is a phone_number_id"),
        ("'' = 'http://x/'", "6: channel.shop.targets.: this is no account"),
        ("", "5: channel.shop.targets: it names no account"),
    ] {
        let text = format!("{SHOP}[channel.shop.targets]\n{table}\n");
        let mistake = first_mistake(&text);
        assert!(mistake.starts_with(&format!("hapax.toml:{said}")), "{table}: {mistake}");
    }
    let text = "[channel.bot]\nprovider = 'telegram'\nsecret = 'a-long-secret-of-ours'\n[channel.bot.targets]\n1 = 'http://x/'\n";
    let mistake = first_mistake(text);
    assert!(
        mistake.starts_with("hapax.toml:4: channel.bot.targets: webhooks of \"telegram\" do not name an account"),
        "{mistake}"
    );
}

#[test]
fn targets_are_looked_at_like_the_one_target() {
    let warned = |text: &str| warnings(&load_with(text, &[], Flags::default()).expect("a good config"));
    let said = warned(&format!("{SHOP}[channel.shop.targets]\n7001 = 'http://bot.example/'\n"));
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("`target` is http:// and not on this machine"), "{said:?}");
    assert!(said[1].contains("accounts that `targets` does not name are kept waiting"), "{said:?}");
    let quiet = format!("{SHOP}target = 'http://127.0.0.1:1/'\n[channel.shop.targets]\n7001 = 'https://bot.example/'\n");
    assert_eq!(warned(&quiet), Vec::<String>::new());
}
