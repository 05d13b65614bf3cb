//! `multipart/form-data`, read while it comes: fields are kept, files are only measured and hashed.
//!
//! What is held is bounded, whatever is fed: one field, one head of a part, and the fields together have their limits.

use std::fmt;

/// A field longer than any that providers take; longer things are files.
const FIELD_MAX_BYTES: usize = 64 << 10;
/// As much as Telegram's own server takes of parameters in one request.
const FIELDS_MAX_BYTES: usize = 1 << 20;
const PARTS_MAX: usize = 256;
const HEAD_MAX_BYTES: usize = 8 << 10;
/// RFC 2046 has 70; some libraries draw longer ones.
const BOUNDARY_MAX_BYTES: usize = 200;
/// Everything before the first part.
const PROLOGUE_MAX_BYTES: usize = 64 << 10;

/// What a body in parts has brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    pub fields: Vec<Field>,
    pub files: Vec<FilePart>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub value: Vec<u8>,
    /// Its own content type says that it is a whole form, `a=1&b=2`.
    pub is_form: bool,
}

impl fmt::Debug for Field {
    /// The value is somebody's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field").field("name", &self.name).field("bytes", &self.value.len()).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The name of the part, not of the file.
    pub name: String,
    pub length: u64,
    pub hash: [u8; 32],
}

/// A body in parts whose bytes were kept, as they came, under a name.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'u> {
    pub name: &'u str,
    /// The caller's, with the boundary.
    pub content_type: &'u str,
    /// Of the whole body.
    pub length: u64,
    pub parts: &'u Parts,
}

/// Why a body cannot be read in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadParts {
    #[error("the content type has no usable boundary")]
    NoBoundary,
    #[error("a field, a part's head or all fields together are too long, or there are too many parts")]
    TooLarge,
    #[error("{0}")]
    Malformed(&'static str),
    #[error("the body ends before its last boundary")]
    CutOff,
}

/// True for bodies that [`Reader`] is for.
pub fn is_multipart(content_type: Option<&str>) -> bool {
    content_type.is_some_and(|sort| sort.to_ascii_lowercase().contains("multipart/form-data"))
}

/// Reads a body that is there already. The product streams; this is for what is small and whole.
pub fn read_whole(content_type: &str, body: &[u8]) -> Result<Parts, BadParts> {
    let mut reader = Reader::new(content_type)?;
    reader.feed(body)?;
    reader.finish()
}

/// Takes a body in chunks of any size.
pub struct Reader {
    /// Line break, two dashes, boundary.
    delimiter: Vec<u8>,
    state: State,
    /// What was fed and not understood yet.
    rest: Vec<u8>,
    passed_over: usize,
    fields_bytes: usize,
    parts: Parts,
}

enum State {
    Prologue,
    /// Behind a delimiter: another part, or the end.
    AfterDelimiter,
    Head,
    InField(Field),
    InFile {
        name: String,
        length: u64,
        hasher: Box<blake3::Hasher>,
    },
    Epilogue,
}

impl Reader {
    pub fn new(content_type: &str) -> Result<Self, BadParts> {
        let boundary = parameter(content_type, "boundary").ok_or(BadParts::NoBoundary)?;
        if !(1..=BOUNDARY_MAX_BYTES).contains(&boundary.len()) {
            return Err(BadParts::NoBoundary);
        }
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first delimiter may stand at the very beginning, without the line break that belongs to it.
        let rest = b"\r\n".to_vec();
        Ok(Self { delimiter, state: State::Prologue, rest, passed_over: 0, fields_bytes: 0, parts: Parts::default() })
    }

    /// Reads on. After an error the reader is of no further use.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), BadParts> {
        if matches!(self.state, State::Epilogue) {
            return Ok(());
        }
        let mut fed = std::mem::take(&mut self.rest);
        fed.extend_from_slice(chunk);
        let mut at = 0;
        while let Some(taken) = self.step(&fed[at..])? {
            at += taken;
        }
        if !matches!(self.state, State::Epilogue) {
            self.rest = fed.split_off(at);
        }
        Ok(())
    }

    /// What came, if the last boundary did.
    pub fn finish(self) -> Result<Parts, BadParts> {
        match self.state {
            State::Epilogue => Ok(self.parts),
            _ => Err(BadParts::CutOff),
        }
    }

    /// How many bytes were understood; `None`: more are needed to go on.
    fn step(&mut self, fed: &[u8]) -> Result<Option<usize>, BadParts> {
        match self.state {
            State::Prologue => {
                let (passed, found) = self.scan(fed);
                self.passed_over += passed;
                if self.passed_over > PROLOGUE_MAX_BYTES {
                    return Err(BadParts::Malformed("no part begins"));
                }
                if found {
                    self.state = State::AfterDelimiter;
                    return Ok(Some(passed + self.delimiter.len()));
                }
                Ok(Some(passed).filter(|passed| *passed > 0))
            }
            State::AfterDelimiter => self.after_delimiter(fed),
            State::Head => self.head(fed),
            State::InField(_) | State::InFile { .. } => self.value(fed),
            State::Epilogue => Ok(None),
        }
    }

    /// How many bytes are surely no part of a delimiter, and whether one begins behind them.
    fn scan(&self, fed: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while let Some(found) = fed[at..].iter().position(|byte| *byte == b'\r') {
            at += found;
            let here = &fed[at..];
            if here.len() < self.delimiter.len() {
                if self.delimiter.starts_with(here) {
                    return (at, false);
                }
            } else if here.starts_with(&self.delimiter) {
                return (at, true);
            }
            at += 1;
        }
        (fed.len(), false)
    }

    fn after_delimiter(&mut self, fed: &[u8]) -> Result<Option<usize>, BadParts> {
        if fed.starts_with(b"--") {
            self.state = State::Epilogue;
            return Ok(Some(fed.len()));
        }
        // Blanks may stand between a boundary and the end of its line.
        let blanks = fed.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        match &fed[blanks..] {
            [b'\r', b'\n', ..] => {
                self.state = State::Head;
                Ok(Some(blanks + 2))
            }
            [] | [b'\r'] if blanks < HEAD_MAX_BYTES => Ok(None),
            [b'-'] if blanks == 0 => Ok(None),
            _ => Err(BadParts::Malformed("something stands behind a boundary")),
        }
    }

    fn head(&mut self, fed: &[u8]) -> Result<Option<usize>, BadParts> {
        let Some(end) = fed.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            return if fed.len() > HEAD_MAX_BYTES { Err(BadParts::TooLarge) } else { Ok(None) };
        };
        if end > HEAD_MAX_BYTES || self.parts.fields.len() + self.parts.files.len() >= PARTS_MAX {
            return Err(BadParts::TooLarge);
        }
        let head = std::str::from_utf8(&fed[..end]).map_err(|_| BadParts::Malformed("a part's head is not UTF-8"))?;
        let disposition = header(head, "content-disposition").ok_or(BadParts::Malformed("a part says not what it is"))?;
        let name = parameter(disposition, "name").filter(|name| !name.is_empty());
        let name = name.ok_or(BadParts::Malformed("a part has no name"))?;
        let is_file = ["filename", "filename*"].iter().any(|word| parameter(disposition, word).is_some());
        let sort = header(head, "content-type").unwrap_or_default().to_ascii_lowercase();
        self.state = match is_file {
            true => State::InFile { name, length: 0, hasher: Box::default() },
            false => {
                let is_form = sort.starts_with("application/x-www-form-urlencoded");
                State::InField(Field { name, value: Vec::new(), is_form })
            }
        };
        Ok(Some(end + 4))
    }

    fn value(&mut self, fed: &[u8]) -> Result<Option<usize>, BadParts> {
        let (passed, ended) = self.scan(fed);
        match &mut self.state {
            State::InField(field) => {
                self.fields_bytes += passed;
                if field.value.len() + passed > FIELD_MAX_BYTES || self.fields_bytes > FIELDS_MAX_BYTES {
                    return Err(BadParts::TooLarge);
                }
                field.value.extend_from_slice(&fed[..passed]);
            }
            State::InFile { length, hasher, .. } => {
                *length += passed as u64;
                hasher.update(&fed[..passed]);
            }
            State::Prologue | State::AfterDelimiter | State::Head | State::Epilogue => {}
        }
        if !ended {
            return Ok(Some(passed).filter(|passed| *passed > 0));
        }
        match std::mem::replace(&mut self.state, State::AfterDelimiter) {
            State::InField(field) => self.parts.fields.push(field),
            State::InFile { name, length, hasher } => {
                self.parts.files.push(FilePart { name, length, hash: *hasher.finalize().as_bytes() });
            }
            State::Prologue | State::AfterDelimiter | State::Head | State::Epilogue => {}
        }
        Ok(Some(passed + self.delimiter.len()))
    }
}

/// The value of a header of a part. Names are written in any case.
fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.split("\r\n").find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.trim_ascii().eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

/// A parameter of a header, with or without quotes. Semicolons and escaped quotes may stand between quotes.
fn parameter(header: &str, name: &str) -> Option<String> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let (found, after) = rest.split_once('=')?;
        // A parameter without a value stands in front of the one that has it.
        let found = found.rsplit(';').next().unwrap_or_default().trim_ascii();
        let after = after.trim_ascii_start();
        let (value, behind) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim_ascii_end().to_owned(), &after[end..])
            }
        };
        if found.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = behind.split_once(';')?.1;
    }
}

/// The text up to the closing quote, and what is behind it.
fn unquote(quoted: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            // Only quotes and backslashes are escaped: Windows paths are not.
            '\\' => match quoted[at + 1..].chars().next() {
                Some(escaped @ ('"' | '\\')) => {
                    value.push(escaped);
                    letters.next();
                }
                _ => value.push('\\'),
            },
            other => value.push(other),
        }
    }
    (value, "")
}
