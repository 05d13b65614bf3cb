//! Collects what a webhook carried, one part after the other.

use bytes::Bytes;
use hapax_domain::Event;
use hapax_domain::limits::{EVENTS_PER_WEBHOOK, NAME_MAX_BYTES};

use super::lenient::Text;
use super::{Parsed, Problem, json};

/// A webhook while it is being read. Numbers events and problems together, in order.
pub(super) struct Reading<'r> {
    body: &'r Bytes,
    parsed: Parsed,
    next: u32,
}

impl<'r> Reading<'r> {
    pub(super) fn new(body: &'r Bytes) -> Self {
        Self { body, parsed: Parsed::default(), next: 0 }
    }

    /// Reads a body that is one single part.
    pub(super) fn whole(body: &'r Bytes, read: impl FnOnce(&'r str) -> Result<Event, String>) -> Parsed {
        let mut reading = Reading::new(body);
        match std::str::from_utf8(body) {
            Ok(text) => reading.take(body, || read(text)),
            Err(_) => reading.take(body, || Err("the body is not UTF-8".to_owned())),
        }
        reading.finish()
    }

    /// Takes one part: an event, or the reason why it is none. Past the limit on events, one problem stands for all the rest.
    pub(super) fn take(&mut self, part: &[u8], read: impl FnOnce() -> Result<Event, String>) {
        let room = EVENTS_PER_WEBHOOK as u32;
        let (part, read) = match self.next {
            next if next < room => (part, read()),
            next if next == room => (&self.body[..], Err(format!("more than {room} events: those after them were not read"))),
            _ => return,
        };
        let index = self.next;
        self.next += 1;
        match read {
            Ok(event) => self.parsed.events.push(Event { index, ..event }),
            Err(why) => self.parsed.problems.push(Problem { index, why, part: self.share(part) }),
        }
    }

    /// Counts a part that is nothing to us.
    pub(super) fn ignore(&mut self) {
        self.parsed.ignored += 1;
    }

    pub(super) fn finish(self) -> Parsed {
        self.parsed
    }

    fn share(&self, part: &[u8]) -> Bytes {
        let (whole, inner) = (self.body.as_ptr_range(), part.as_ptr_range());
        if whole.start <= inner.start && inner.end <= whole.end {
            self.body.slice_ref(part)
        } else {
            Bytes::copy_from_slice(part)
        }
    }
}

/// Checks an id, account or peer: it must be there and short enough to be kept readable; any other text is legal.
pub(super) fn name<'n>(what: &str, found: Option<&'n str>) -> Result<&'n str, String> {
    match found {
        None | Some("") => Err(format!("{what} is missing")),
        Some(name) if name.len() > NAME_MAX_BYTES => Err(format!("{what} is longer than {NAME_MAX_BYTES} bytes")),
        Some(name) => Ok(name),
    }
}

/// Splits the names of one peer, best first, into the peer and its aliases.
pub(super) fn peer_of(names: &[Option<&str>]) -> Result<(Option<String>, Vec<String>), String> {
    let mut found = names.iter().flatten().filter(|name| !name.is_empty());
    let Some(peer) = found.next() else {
        return Ok((None, Vec::new()));
    };
    let peer = name("the peer", Some(peer))?.to_owned();
    let mut aliases: Vec<String> = Vec::new();
    for alias in found {
        if **alias != peer && !aliases.iter().any(|known| known == alias) {
            aliases.push(name("another name of the peer", Some(alias))?.to_owned());
        }
    }
    Ok((Some(peer), aliases))
}

/// All that an event without an id is known by: its word, and what it says without what changes between copies.
pub(super) fn content_of(word: &Text<'_>, part: &str, volatile: &[&str]) -> Result<Vec<u8>, String> {
    let mut content = word.get().unwrap_or_default().as_bytes().to_vec();
    content.push(b'\n');
    content.extend(json::canonical(part, volatile).ok_or("nested too deeply")?);
    Ok(content)
}

/// Milliseconds from the seconds that providers count in.
pub(super) fn seconds_to_ms(seconds: Option<i64>) -> Option<i64> {
    seconds?.checked_mul(1_000)
}
