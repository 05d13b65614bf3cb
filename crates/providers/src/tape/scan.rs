//! One pass over a JSON text. It takes what `serde_json` takes when it skips a value, and nothing else.

use hapax_domain::limits::JSON_VALUES_MAX;

use super::{Kind, Node};

/// The parent of the root.
const NOWHERE: u32 = u32::MAX;
/// A text has about one node in so many bytes.
const BYTES_PER_NODE: usize = 10;

struct Scan<'b> {
    bytes: &'b [u8],
    at: usize,
    nodes: Vec<Node>,
    /// The container that is open; the one around it stands in its `next` meanwhile.
    open: u32,
}

/// Where it is no JSON.
type At = usize;

/// Why a text has no nodes.
pub(super) enum Broken {
    At(usize),
    /// It holds more than [`JSON_VALUES_MAX`], or is longer than a place can say.
    TooLarge,
}

pub(super) fn nodes(text: &str) -> Result<Vec<Node>, Broken> {
    if u32::try_from(text.len()).is_err() {
        return Err(Broken::TooLarge);
    }
    let nodes = Vec::with_capacity(text.len() / BYTES_PER_NODE + 8);
    let mut scan = Scan { bytes: text.as_bytes(), at: 0, nodes, open: NOWHERE };
    loop {
        let is_opened = scan.value().map_err(Broken::At)?;
        if scan.nodes.len() > JSON_VALUES_MAX {
            return Err(Broken::TooLarge);
        }
        // In a container that was opened something stands.
        if !is_opened && !scan.goes_on().map_err(Broken::At)? {
            return Ok(scan.nodes);
        }
    }
}

impl Scan<'_> {
    /// Reads a value; true when it is a container that is not empty, and its first value comes next.
    fn value(&mut self) -> Result<bool, At> {
        let start = self.at_next();
        match self.here() {
            b'"' => self.text()?,
            b'{' => {
                self.enter(Kind::Object);
                if self.next_is(b'}') {
                    self.leave();
                } else {
                    self.name()?;
                    return Ok(true);
                }
            }
            b'[' => {
                self.enter(Kind::Array);
                if self.next_is(b']') {
                    self.leave();
                } else {
                    return Ok(true);
                }
            }
            b't' => self.word(b"true", Kind::True)?,
            b'f' => self.word(b"false", Kind::False)?,
            b'n' => self.word(b"null", Kind::Null)?,
            b'-' | b'0'..=b'9' => self.number()?,
            _ => return Err(start),
        }
        Ok(false)
    }

    /// Closes what ends here; true when another value follows, false at the end of the text.
    fn goes_on(&mut self) -> Result<bool, At> {
        loop {
            let at = self.at_next();
            let Some(container) = self.nodes.get(self.open as usize) else {
                return if at == self.bytes.len() { Ok(false) } else { Err(at) };
            };
            match (self.here(), container.kind) {
                (b',', Kind::Object) => {
                    self.at += 1;
                    self.name()?;
                    return Ok(true);
                }
                (b',', _) => {
                    self.at += 1;
                    return Ok(true);
                }
                (b'}', Kind::Object) | (b']', Kind::Array) => {
                    self.at += 1;
                    self.leave();
                }
                _ => return Err(at),
            }
        }
    }

    /// The byte here; 0, which stands nowhere in JSON, at the end.
    fn here(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or_default()
    }

    fn at_next(&mut self) -> usize {
        while matches!(self.here(), b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
        }
        self.at
    }

    /// Goes past the next byte if it is this one.
    fn next_is(&mut self, byte: u8) -> bool {
        self.at_next();
        let is = self.here() == byte;
        self.at += usize::from(is);
        is
    }

    fn push(&mut self, kind: Kind, start: usize) {
        let next = self.nodes.len() as u32 + 1;
        self.nodes.push(Node { kind, start: start as u32, end: self.at as u32, next });
    }

    fn enter(&mut self, kind: Kind) {
        let (start, at) = (self.at as u32, self.nodes.len() as u32);
        self.nodes.push(Node { kind, start, end: start, next: self.open });
        self.open = at;
        self.at += 1;
    }

    fn leave(&mut self) {
        let (end, next) = (self.at as u32, self.nodes.len() as u32);
        if let Some(container) = self.nodes.get_mut(self.open as usize) {
            self.open = std::mem::replace(&mut container.next, next);
            container.end = end;
        }
    }

    /// A member's name and its colon.
    fn name(&mut self) -> Result<(), At> {
        let at = self.at_next();
        if self.here() != b'"' {
            return Err(at);
        }
        self.text()?;
        if self.next_is(b':') { Ok(()) } else { Err(self.at) }
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<(), At> {
        let start = self.at;
        if !self.bytes[start..].starts_with(word) {
            return Err(start);
        }
        self.at += word.len();
        self.push(kind, start);
        Ok(())
    }

    fn number(&mut self) -> Result<(), At> {
        let start = self.at;
        self.at += usize::from(self.here() == b'-');
        match self.here() {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.here() == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.here(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.here(), b'+' | b'-'));
            self.digits()?;
        }
        self.push(Kind::Number, start);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), At> {
        let start = self.at;
        while self.here().is_ascii_digit() {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(start) }
    }

    #[inline]
    fn text(&mut self) -> Result<(), At> {
        let start = self.at;
        self.at = end_of_plain(self.bytes, start + 1);
        if self.here() != b'"' {
            return self.odd_text(start);
        }
        self.at += 1;
        self.push(Kind::Text, start);
        Ok(())
    }

    /// A text in which something does not stand for itself.
    fn odd_text(&mut self, start: usize) -> Result<(), At> {
        loop {
            match self.here() {
                b'"' => break,
                b'\\' => self.escape()?,
                _ => return Err(self.at),
            }
            self.at = end_of_plain(self.bytes, self.at);
        }
        self.at += 1;
        self.push(Kind::EscapedText, start);
        Ok(())
    }

    fn escape(&mut self) -> Result<(), At> {
        self.at += 1;
        let hex = match self.here() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 0,
            b'u' => 4,
            _ => return Err(self.at),
        };
        self.at += 1;
        for _ in 0..hex {
            if !self.here().is_ascii_hexdigit() {
                return Err(self.at);
            }
            self.at += 1;
        }
        Ok(())
    }
}

/// Where the bytes end that stand for themselves in a text: at a quote, a backslash, a control character or the end.
#[inline]
fn end_of_plain(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let found = special(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count()
}

/// Marks the bytes of a text that do not stand for themselves. Only the first mark is to be believed.
#[inline]
fn special(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const QUOTES: u64 = ONES * b'"' as u64;
    const BACKSLASHES: u64 = ONES * b'\\' as u64;
    let less = |word: u64, than: u64| word.wrapping_sub(ONES * than);
    // A byte that is less than the other leaves its high bit set, and so does one that had it before: those are in the middle of a character.
    (less(word ^ QUOTES, 1) | less(word ^ BACKSLASHES, 1) | less(word, 0x20)) & !word & (ONES << 7)
}
