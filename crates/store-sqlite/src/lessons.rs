//! What the tables of people do not say yet, as it stands in `learned`: a lesson behind the other, each short where it is of what the one before is of.

use std::ops::Range;

/// One thing that was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lesson<'l> {
    /// A thread that is new.
    Thread { thread: i64, channel: i64, account: &'l str, peer: &'l str },
    /// A name that leads to a thread from now on.
    Name { thread: i64, account: &'l str, name: &'l str },
    /// A thread that is gone, with all names that led there.
    Gone { thread: i64 },
}

const THREAD: u8 = 1;
const NAME: u8 = 2;
const GONE: u8 = 3;
/// A thread of the channel and account that the thread before is of.
const NEXT_THREAD: u8 = 4;
/// A name of the thread before.
const OTHER_NAME: u8 = 5;
/// The peer's own name of the thread before.
const OWN_NAME: u8 = 6;

/// Lessons of one row.
#[derive(Default)]
pub(super) struct Lessons {
    bytes: Vec<u8>,
    /// The thread before, and where its account and peer stand.
    before: Option<(i64, i64, Range<usize>, Range<usize>)>,
}

impl Lessons {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.before = None;
    }

    pub(super) fn add(&mut self, lesson: &Lesson<'_>) {
        match *lesson {
            Lesson::Thread { thread, channel, account, peer } => self.add_thread(thread, channel, account, peer),
            Lesson::Name { thread, account, name } => self.add_name(thread, account, name),
            Lesson::Gone { thread } => self.number(GONE, thread),
        }
    }

    fn add_thread(&mut self, thread: i64, channel: i64, account: &str, peer: &str) {
        let same = self.before.take().filter(|(_, of, at, _)| *of == channel && self.bytes[at.clone()] == *account.as_bytes());
        let account = match same {
            Some((_, _, account, _)) => {
                self.number(NEXT_THREAD, thread);
                account
            }
            None => {
                self.number(THREAD, thread);
                self.bytes.extend_from_slice(&channel.to_le_bytes());
                self.text(account)
            }
        };
        let peer = self.text(peer);
        self.before = Some((thread, channel, account, peer));
    }

    fn add_name(&mut self, thread: i64, account: &str, name: &str) {
        let same = self.before.as_ref().filter(|(of, _, at, _)| *of == thread && self.bytes[at.clone()] == *account.as_bytes());
        match same.map(|(_, _, _, peer)| self.bytes[peer.clone()] == *name.as_bytes()) {
            Some(true) => self.bytes.push(OWN_NAME),
            Some(false) => {
                self.bytes.push(OTHER_NAME);
                self.text(name);
            }
            None => {
                self.number(NAME, thread);
                self.text(account);
                self.text(name);
            }
        }
    }

    fn number(&mut self, kind: u8, number: i64) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) -> Range<usize> {
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        let from = self.bytes.len();
        self.bytes.extend_from_slice(text.as_bytes());
        from..self.bytes.len()
    }
}

/// The lessons of a row. One that several commits added to has several beginnings, each of which repeats what it needs.
pub(super) struct Reader<'l> {
    rest: &'l [u8],
    before: Option<(i64, i64, &'l str, &'l str)>,
}

impl<'l> Reader<'l> {
    pub(super) fn new(row: &'l [u8]) -> Self {
        Self { rest: row, before: None }
    }

    fn number(&mut self) -> Option<i64> {
        let (number, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(i64::from_le_bytes(*number))
    }

    fn text(&mut self) -> Option<&'l str> {
        let (length, rest) = self.rest.split_first_chunk()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.rest = rest;
        std::str::from_utf8(text).ok()
    }

    fn thread(&mut self, is_next: bool) -> Option<Lesson<'l>> {
        let thread = self.number()?;
        let (channel, account) = match self.before.filter(|_| is_next) {
            Some((_, channel, account, _)) => (channel, account),
            None if is_next => return None,
            None => (self.number()?, self.text()?),
        };
        let peer = self.text()?;
        self.before = Some((thread, channel, account, peer));
        Some(Lesson::Thread { thread, channel, account, peer })
    }
}

impl<'l> Iterator for Reader<'l> {
    type Item = Lesson<'l>;

    fn next(&mut self) -> Option<Lesson<'l>> {
        let (kind, rest) = self.rest.split_first()?;
        self.rest = rest;
        match *kind {
            THREAD => self.thread(false),
            NEXT_THREAD => self.thread(true),
            NAME => Some(Lesson::Name { thread: self.number()?, account: self.text()?, name: self.text()? }),
            OTHER_NAME | OWN_NAME => {
                let (thread, _, account, peer) = self.before?;
                let name = if *kind == OWN_NAME { peer } else { self.text()? };
                Some(Lesson::Name { thread, account, name })
            }
            GONE => Some(Lesson::Gone { thread: self.number()? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lessons_are_read_as_they_were_written() {
        let thread = |thread, channel, account, peer| Lesson::Thread { thread, channel, account, peer };
        let name = |thread, account, name| Lesson::Name { thread, account, name };
        let told = [
            name(9, "acc", "eve"),
            thread(7, 1, "acc", "ana"),
            name(7, "acc", "ana"),
            name(7, "acc", ""),
            name(9, "acc", "ana"),
            name(7, "other", "ana"),
            thread(8, 1, "acc", ""),
            name(8, "acc", ""),
            Lesson::Gone { thread: 7 },
            name(8, "acc", "jo"),
            thread(10, 2, "acc", "jo"),
            thread(i64::MAX, 2, "other", "jo"),
        ];
        let (mut lessons, mut row) = (Lessons::default(), Vec::new());
        for commit in told.chunks(5) {
            commit.iter().for_each(|lesson| lessons.add(lesson));
            row.extend_from_slice(lessons.bytes());
            lessons.clear();
        }
        assert_eq!(Reader::new(&row).collect::<Vec<_>>(), told);
    }

    /// As version 9 wrote them.
    #[test]
    fn lessons_of_an_older_version_are_read() {
        let number = |kind: u8, number: i64| [&[kind][..], &number.to_le_bytes()].concat();
        let text = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
        let row = [number(1, 7), 3_i64.to_le_bytes().to_vec(), text("acc"), text("ana"), number(2, 7), text("acc"), text("ana")];
        let read: Vec<_> = Reader::new(&[row.concat(), number(3, 7)].concat()).map(|lesson| format!("{lesson:?}")).collect();
        let told = [
            Lesson::Thread { thread: 7, channel: 3, account: "acc", peer: "ana" },
            Lesson::Name { thread: 7, account: "acc", name: "ana" },
            Lesson::Gone { thread: 7 },
        ];
        assert_eq!(read, told.map(|lesson| format!("{lesson:?}")));
    }
}
