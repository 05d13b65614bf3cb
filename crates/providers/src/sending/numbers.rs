//! How people write WhatsApp numbers, and what passes for one.

pub(super) fn is_number(peer: &str) -> bool {
    (5..=20).contains(&peer.len()) && peer.bytes().all(|byte| byte.is_ascii_digit())
}

/// The digits of a number as people write it; nothing when it is none.
pub(super) fn digits_of(to: &str) -> Option<String> {
    let digits: String = to.chars().filter(|c| !matches!(c, '+' | ' ' | '-' | '(' | ')')).collect();
    is_number(&digits).then_some(digits)
}

pub(super) fn is_jid(peer: &str) -> bool {
    let Some((user, server)) = peer.split_once('@') else { return false };
    let user_is_plain = user.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'_'));
    let servers = ["s.whatsapp.net", "c.us", "g.us", "lid", "newsletter", "broadcast"];
    !user.is_empty() && user_is_plain && servers.contains(&server)
}
