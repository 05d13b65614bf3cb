//! Spans as OTLP wants them: the protobuf of `ExportTraceServiceRequest`, written by hand because it is a handful of fields.
//!
//! Numbers are those of opentelemetry-proto 1, `trace/v1/trace.proto` and `common/v1/common.proto`.

use super::{Kind, Span, Value};

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const BYTES: u32 = 2;
const FIXED32: u32 = 5;

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, VARINT);
        self.varint(value);
        self
    }

    fn fixed64(&mut self, field: u32, value: u64) -> &mut Self {
        self.tag(field, FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn fixed32(&mut self, field: u32, value: u32) -> &mut Self {
        self.tag(field, FIXED32);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(&mut self, field: u32, value: &[u8]) -> &mut Self {
        self.tag(field, BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn within(&mut self, field: u32, inner: &Message) -> &mut Self {
        self.bytes(field, &inner.0)
    }
}

fn attribute(key: &str, value: &Value) -> Message {
    let (mut pair, mut any) = (Message::default(), Message::default());
    match value {
        Value::Text(text) => any.bytes(1, text.as_bytes()),
        Value::Whole(whole) => any.number(3, whole.cast_unsigned()),
    };
    pair.bytes(1, key.as_bytes()).within(2, &any);
    pair
}

fn span(span: &Span) -> Message {
    let mut message = Message::default();
    message.bytes(1, &span.context.trace.to_be_bytes()).bytes(2, &span.context.span.to_be_bytes());
    if let Some(parent) = span.parent {
        message.bytes(4, &parent.to_be_bytes());
    }
    let kind = match span.kind {
        Kind::Server => 2,
        Kind::Client => 3,
    };
    message.bytes(5, span.name.as_bytes()).number(6, kind).fixed64(7, span.start_ns).fixed64(8, span.end_ns);
    for (key, value) in &span.attributes {
        message.within(9, &attribute(key, value));
    }
    if let Some(why) = &span.failed {
        let mut status = Message::default();
        status.bytes(2, why.as_bytes()).number(3, 2);
        message.within(15, &status);
    }
    message.fixed32(16, span.context.sampled.into());
    message
}

/// One request with all of them.
pub(super) fn request(service: &str, instance: &str, spans: &[Span]) -> Vec<u8> {
    let mut resource = Message::default();
    for (key, value) in [
        ("service.name", service),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", instance),
        ("telemetry.sdk.language", "rust"),
    ] {
        resource.within(1, &attribute(key, &Value::Text(value.to_owned())));
    }
    let mut scope = Message::default();
    scope.bytes(1, b"hapax").bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
    let mut of_scope = Message::default();
    of_scope.within(1, &scope);
    for one in spans {
        of_scope.within(2, &span(one));
    }
    let (mut of_resource, mut request) = (Message::default(), Message::default());
    of_resource.within(1, &resource).within(2, &of_scope);
    request.within(1, &of_resource);
    request.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::traces::TraceContext;

    #[test]
    fn a_span_is_these_bytes() {
        let one = Span {
            context: TraceContext { trace: 0x0102, span: 3, sampled: true },
            parent: Some(2),
            name: "x".to_owned(),
            kind: Kind::Client,
            start_ns: 1,
            end_ns: 300,
            attributes: vec![("n", Value::Whole(-1)), ("s", Value::Text("é".to_owned()))],
            failed: Some("no".to_owned()),
        };
        // What the package `opentelemetry-proto` of Python makes of the same.
        let expected = "0a1000000000000000000000000000000102\
                        12080000000000000003\
                        22080000000000000002\
                        2a0178\
                        3003\
                        390100000000000000\
                        412c01000000000000\
                        4a100a016e120b18ffffffffffffffffff01\
                        4a090a017312040a02c3a9\
                        7a0612026e6f1802\
                        850101000000";
        assert_eq!(hex::encode(span(&one).0), expected);
    }
}
