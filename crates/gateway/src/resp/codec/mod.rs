//! The Redis protocol on the wire: commands in, replies out. Sans-I/O, incremental and bounded: nothing is allocated because a client has
//! announced it.

mod inline;
mod reply;
#[cfg(test)]
mod tests;

use bytes::{Buf, Bytes, BytesMut};

pub(super) use reply::{Protocol, Reply};

/// The longest line that announces a number.
const NUMBER_LINE_MAX: usize = 32;
/// Most words of a command that is taken at once. `SET` with all its options has fewer.
const WORDS_AT_ONCE: usize = 16;

/// What one command may be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) arguments: usize,
    /// Bytes of one argument.
    pub(super) argument_bytes: usize,
    /// Bytes of all arguments together.
    pub(super) command_bytes: usize,
    /// Bytes of a command that is written as a line.
    pub(super) line_bytes: usize,
}

impl Bounds {
    /// Enough to prove who one is.
    pub(super) const STRANGER: Bounds =
        Bounds { arguments: 10, argument_bytes: 4 << 10, command_bytes: 8 << 10, line_bytes: 4 << 10 };
    /// A key and a value, or many keys.
    pub(super) const KNOWN: Bounds =
        Bounds { arguments: 1_026, argument_bytes: 1 << 20, command_bytes: (1 << 20) + (256 << 10), line_bytes: 16 << 10 };
}

/// Name and arguments of a command; never empty.
pub(super) type Words = Vec<Bytes>;

/// What came is no command. The connection cannot go on: nobody knows where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("invalid multibulk length")]
    ArrayLength,
    #[error("invalid bulk length")]
    BulkLength,
    #[error("the arguments of one command are too long together")]
    CommandLength,
    #[error("expected '$', got '{}'", char::from(*.0).escape_default())]
    NoBulk(u8),
    #[error("expected CRLF after a bulk string")]
    BulkEnd,
    #[error("too big inline request")]
    LineLength,
    #[error("unbalanced quotes in request")]
    Quotes,
}

/// Takes commands out of the bytes of a connection, whatever pieces these come in.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    state: State,
    words: Words,
    words_bytes: usize,
    /// How far the line that is being read was searched for its end.
    searched: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Start,
    /// So many arguments are still to come.
    Arguments(usize),
    /// .. and the first of them has this length.
    Bulk(usize, usize),
}

impl Decoder {
    /// The next whole command, taken out of `bytes`; `None`: more bytes are needed.
    pub(super) fn next(&mut self, bytes: &mut BytesMut, bounds: &Bounds) -> Result<Option<Words>, ProtocolError> {
        loop {
            let whole = match self.state {
                State::Start => match bytes.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        if let Some(words) = whole(bytes, bounds) {
                            self.searched = 0;
                            return Ok(Some(words));
                        }
                        self.array(bytes, bounds)?
                    }
                    Some(_) => {
                        let Some(line) = self.line(bytes, bounds.line_bytes).map_err(|_| ProtocolError::LineLength)? else {
                            return Ok(None);
                        };
                        self.words = inline::split(&line, bounds.arguments)?;
                        true
                    }
                },
                State::Arguments(left) => self.announced(left, bytes, bounds)?,
                State::Bulk(left, length) => self.bulk(left, length, bytes)?,
            };
            match (whole, self.state) {
                (false, _) => return Ok(None),
                (true, State::Start) if !self.words.is_empty() => {
                    self.words_bytes = 0;
                    return Ok(Some(std::mem::take(&mut self.words)));
                }
                (true, _) => {}
            }
        }
    }

    /// How many more bytes the argument that has begun needs; a hint for how much to read at once.
    pub(super) fn wants(&self, bytes: &BytesMut) -> usize {
        match self.state {
            State::Bulk(_, length) => (length + 2).saturating_sub(bytes.len()),
            _ => 0,
        }
    }

    /// True when a command has begun to come in.
    pub(super) fn is_within(&self) -> bool {
        !matches!(self.state, State::Start)
    }

    /// What is held of a command that is not whole yet: the arguments that there is room for, and the bytes of those that came.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn held(&self) -> (usize, usize) {
        (self.words.capacity(), self.words.iter().map(Bytes::len).sum())
    }

    fn array(&mut self, bytes: &mut BytesMut, bounds: &Bounds) -> Result<bool, ProtocolError> {
        let Some(line) = self.line(bytes, NUMBER_LINE_MAX).map_err(|_| ProtocolError::ArrayLength)? else { return Ok(false) };
        let count = number(&line).ok_or(ProtocolError::ArrayLength)?;
        // An empty array is no command, and no mistake.
        if count > 0 {
            let count = usize::try_from(count).ok().filter(|count| *count <= bounds.arguments);
            self.state = State::Arguments(count.ok_or(ProtocolError::ArrayLength)?);
        }
        Ok(true)
    }

    fn announced(&mut self, left: usize, bytes: &mut BytesMut, bounds: &Bounds) -> Result<bool, ProtocolError> {
        match bytes.first() {
            None => return Ok(false),
            Some(b'$') => {}
            Some(other) => return Err(ProtocolError::NoBulk(*other)),
        }
        let Some(line) = self.line(bytes, NUMBER_LINE_MAX).map_err(|_| ProtocolError::BulkLength)? else { return Ok(false) };
        let length = number(&line).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| *length <= bounds.argument_bytes).ok_or(ProtocolError::BulkLength)?;
        self.words_bytes += length;
        if self.words_bytes > bounds.command_bytes {
            return Err(ProtocolError::CommandLength);
        }
        self.state = State::Bulk(left, length);
        Ok(true)
    }

    fn bulk(&mut self, left: usize, length: usize, bytes: &mut BytesMut) -> Result<bool, ProtocolError> {
        if bytes.len() < length + 2 {
            return Ok(false);
        }
        if &bytes[length..length + 2] != b"\r\n" {
            return Err(ProtocolError::BulkEnd);
        }
        self.words.push(bytes.split_to(length).freeze());
        bytes.advance(2);
        self.state = if left == 1 { State::Start } else { State::Arguments(left - 1) };
        Ok(true)
    }

    /// Takes a line without its end; `Err` when it is longer than it may be, whether its end has come or not.
    fn line(&mut self, bytes: &mut BytesMut, most: usize) -> Result<Option<Bytes>, ()> {
        let Some(end) = bytes[self.searched..].iter().position(|byte| *byte == b'\n').map(|at| self.searched + at) else {
            self.searched = bytes.len();
            return if bytes.len() > most { Err(()) } else { Ok(None) };
        };
        self.searched = 0;
        if end > most {
            return Err(());
        }
        let mut line = bytes.split_to(end + 1).freeze();
        line.truncate(if line[..end].ends_with(b"\r") { end - 1 } else { end });
        Ok(Some(line))
    }
}

/// Takes a command that has come in whole, as nearly all do, with one cut for all its words. `None` leaves everything as it is: then it is taken
/// piece by piece, and what is wrong with it is told there.
fn whole(bytes: &mut BytesMut, bounds: &Bounds) -> Option<Words> {
    let (mut places, mut at) = ([(0, 0); WORDS_AT_ONCE], 0);
    let count = plain_number(bytes, b'*', &mut at).filter(|count| *count <= bounds.arguments)?;
    let places = places.get_mut(..count).filter(|places| !places.is_empty())?;
    let mut words_bytes = 0;
    for place in places.iter_mut() {
        let length = plain_number(bytes, b'$', &mut at).filter(|length| *length <= bounds.argument_bytes)?;
        words_bytes += length;
        *place = (at, at + length);
        at += length;
        at += bytes.get(at..)?.starts_with(b"\r\n").then_some(2)?;
    }
    if words_bytes > bounds.command_bytes {
        return None;
    }
    let command = bytes.split_to(at).freeze();
    Some(places.iter().map(|(from, to)| command.slice(*from..*to)).collect())
}

/// The number that is announced at `at`, if it is written in one to seven digits; moves on to behind its line.
fn plain_number(bytes: &[u8], kind: u8, at: &mut usize) -> Option<usize> {
    let (first, rest) = bytes.get(*at..)?.split_first()?;
    let digits = rest.iter().take(8).position(|byte| !byte.is_ascii_digit())?;
    if *first != kind || digits == 0 || !rest[digits..].starts_with(b"\r\n") {
        return None;
    }
    *at += 1 + digits + 2;
    Some(rest[..digits].iter().fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}

/// The number behind the first byte of a line.
fn number(line: &[u8]) -> Option<i64> {
    std::str::from_utf8(line.get(1..)?).ok()?.parse().ok()
}
