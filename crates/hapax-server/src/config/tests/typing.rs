//! `typing`, where it can be had.

use super::*;

#[test]
fn typing_is_for_those_that_can_show_it() {
    let with = |provider: &str, more: &str| format!("[channel.c]\nprovider = '{provider}'\nsecret = 'a-long-secret'\n{more}");
    assert!(!one(&with("telegram", "token = '1:a'")).typing, "off by default");
    assert!(one(&with("telegram", "token = '1:a'\ntyping = true")).typing);
    assert!(one(&with("whatsapp", "token = 'abc'\ntyping = true")).typing);
    let said = first_mistake(&with("telegram", "typing = true"));
    assert!(said.starts_with("hapax.toml:4: channel.c.typing: that somebody is writing is told through"), "{said}");
    let said = first_mistake(&with("stripe", "typing = true"));
    assert!(said.starts_with("hapax.toml:4: channel.c.typing: `typing` is for whatsapp and telegram, this is"), "{said}");
    assert!(!one(&format!("[defaults]\ntyping = true\n{}", with("stripe", ""))).typing, "meant for those that can");
}
