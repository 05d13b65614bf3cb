//! Nothing that is logged or printed may steer a terminal or turn its text around: C1 controls and bidi marks come from strangers' names.

use std::borrow::Cow;
use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

/// True for characters that no line of ours needs. C0 controls are escaped where texts are put into lines.
pub fn steers(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with a mark in the place of each of them.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if text.contains(steers) { Cow::Owned(text.replace(steers, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// Standard error for the log. What cannot be written there is lost, and nothing else: who logs does not fail over it.
#[derive(Clone, Copy, Debug, Default)]
pub struct HarmlessStderr;

impl Write for HarmlessStderr {
    /// A line comes in one piece.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let _ = io::stderr().write_all(harmless(&text).as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

impl MakeWriter<'_> for HarmlessStderr {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_marked_and_the_rest_stays() {
        assert_eq!(harmless("a\u{9b}2Jb\u{202e}c\u{2066}d\u{85}"), "a\u{fffd}2Jb\u{fffd}c\u{fffd}d\u{fffd}");
        assert!(matches!(harmless("5511 é 👍 \u{200d} عربي\n"), Cow::Borrowed(_)));
    }
}
