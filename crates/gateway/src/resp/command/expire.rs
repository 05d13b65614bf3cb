//! `EXPIRE` and `PEXPIRE`.

use bytes::Bytes;
use hapax_domain::limits;

use super::{Key, Unit, integer};
use crate::resp::codec::Reply;

#[derive(Debug, PartialEq, Eq)]
pub(in crate::resp) struct Expire {
    pub(in crate::resp) key: Key,
    /// From now; what is not in the future ends the key at once.
    pub(in crate::resp) ms: i64,
    /// False for `NX`: only what would be kept for ever is given an end, and nothing of the door is.
    pub(in crate::resp) applies: bool,
}

impl Expire {
    pub(super) fn read(command: &str, unit: Unit, words: &[Bytes]) -> Result<Self, Reply> {
        let ms = unit.ms(integer(&words[1])?).filter(|ms| *ms <= limits::KEEP_MAX_MS);
        let ms = ms.ok_or_else(|| Reply::error(format!("ERR invalid expire time in '{command}' command")))?;
        let mut applies = true;
        for option in &words[2..] {
            match option.to_ascii_uppercase().as_slice() {
                b"XX" => {}
                b"NX" => applies = false,
                // Deciding these takes the end that the key has, in the same step.
                b"GT" | b"LT" => return Err(Reply::error("ERR GT and LT are not supported here")),
                _ => return Err(Reply::error(format!("ERR Unsupported option {}", super::shortened(option)))),
            }
        }
        if words.len() > 3 {
            return Err(Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        Ok(Self { key: Key::read(&words[0])?, ms, applies })
    }
}
