//! The place of a call in a trace, as `traceparent` carries it (W3C Trace Context).

use http::{HeaderMap, HeaderName, HeaderValue};

pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Which trace, which span of it, and whether anybody keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: u128,
    pub span: u64,
    pub sampled: bool,
}

impl TraceContext {
    /// Begins a trace. All-zero ids would be invalid.
    pub fn begin(trace: u128, span: u64, sampled: bool) -> Self {
        Self { trace: trace.max(1), span: span.max(1), sampled }
    }

    /// The next span of the same trace.
    #[must_use]
    pub fn child(self, span: u64) -> Self {
        Self { span: span.max(1), ..self }
    }

    /// Reads the header. Versions that are not known yet begin like the one that is; `None`: it is not one, and counts for nothing.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |part: &str, long: usize| {
            part.len() == long && part.bytes().all(|sign| sign.is_ascii_digit() || (b'a'..=b'f').contains(&sign))
        };
        let known = hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
        if !known || !hex(trace, 32) || !hex(span, 16) || !hex(flags, 2) {
            return None;
        }
        let (trace, span) = (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
        let flags = u8::from_str_radix(flags, 16).ok()?;
        (trace != 0 && span != 0).then_some(Self { trace, span, sampled: flags & 1 == 1 })
    }

    /// The context that a request came with.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        Self::read(headers.get(TRACEPARENT)?.to_str().ok()?)
    }

    pub fn write(self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }

    /// Puts it where a request carries it, in place of any other.
    pub fn put(self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::try_from(self.write()) {
            headers.insert(TRACEPARENT, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_is_written() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::read(text).expect("the example of the standard");
        assert!(context.sampled);
        assert_eq!(context.write(), text);
        assert_eq!(context.child(7).write(), "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-01");
        assert!(!TraceContext::read(&text.replace("-01", "-00")).expect("not sampled").sampled);
        // A later version may have more behind it.
        assert!(TraceContext::read("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes").is_some());
    }

    #[test]
    fn what_is_no_context_counts_for_nothing() {
        for odd in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::read(odd), None, "{odd}");
        }
        assert_eq!(TraceContext::begin(0, 0, true).write(), "00-00000000000000000000000000000001-0000000000000001-01");
    }
}
