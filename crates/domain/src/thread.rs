//! Thread ids: account and peer in one text that reads back into the same two parts.

use std::fmt;
use std::str::FromStr;

/// One conversation: an account of ours and a peer. Written `{account}__{peer}`.
///
/// Inside a part, `%` and control characters become `%XX`, and every `_` that stands next to another `_` or at an edge of the part
/// becomes `%5F`; so `__` occurs exactly once and no two threads share a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId {
    pub account: String,
    pub peer: String,
}

/// A text that is no thread id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a thread id: expected `account__peer`")]
pub struct BadThreadId(String);

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_part(f, &self.account)?;
        f.write_str("__")?;
        write_part(f, &self.peer)
    }
}

impl FromStr for ThreadId {
    type Err = BadThreadId;

    fn from_str(text: &str) -> Result<Self, BadThreadId> {
        let bad = || BadThreadId(text.chars().take(80).collect());
        let (account, peer) = text.split_once("__").ok_or_else(bad)?;
        let thread = ThreadId { account: read_part(account).ok_or_else(bad)?, peer: read_part(peer).ok_or_else(bad)? };
        // Only the canonical text is an id: otherwise one thread would have many.
        if thread.to_string() == text { Ok(thread) } else { Err(bad()) }
    }
}

fn write_part(f: &mut fmt::Formatter<'_>, part: &str) -> fmt::Result {
    let mut rest = part.chars().peekable();
    let mut before = None;
    while let Some(c) = rest.next() {
        let lonely = before.is_some_and(|b| b != '_') && rest.peek().is_some_and(|&n| n != '_');
        if c == '%' || c.is_ascii_control() || (c == '_' && !lonely) {
            write!(f, "%{:02X}", u32::from(c))?;
        } else {
            fmt::Write::write_char(f, c)?;
        }
        before = Some(c);
    }
    Ok(())
}

fn read_part(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 3)?;
        let byte = u8::from_str_radix(code, 16).ok().filter(u8::is_ascii)?;
        out.push(char::from(byte));
        rest = &rest[at + 3..];
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn thread(account: &str, peer: &str) -> ThreadId {
        ThreadId { account: account.into(), peer: peer.into() }
    }

    #[test]
    fn plain_parts_stay_readable() {
        assert_eq!(thread("700001", "5511988887777").to_string(), "700001__5511988887777");
        assert_eq!(thread("shop_bot", "77").to_string(), "shop_bot__77");
    }

    #[test]
    fn separators_inside_parts_cannot_move_the_border() {
        assert_ne!(thread("a__b", "c").to_string(), thread("a", "b__c").to_string());
        assert_ne!(thread("a_", "b").to_string(), thread("a", "_b").to_string());
    }

    proptest! {
        #[test]
        fn every_thread_reads_back(account in "[a_%\\x00é]{0,6}|.{0,12}", peer in "[a_%\\x00é]{0,6}|.{0,12}") {
            let id = thread(&account, &peer);
            prop_assert_eq!(id.to_string().parse::<ThreadId>(), Ok(id));
        }

        #[test]
        fn any_text_reads_or_is_refused(text in ".{0,24}") {
            if let Ok(id) = text.parse::<ThreadId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
