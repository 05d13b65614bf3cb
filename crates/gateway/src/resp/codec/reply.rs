//! What is answered, in either version of the protocol.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

/// Which version a client has asked for by `HELLO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::resp) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Protocol {
    pub(in crate::resp) fn number(self) -> i64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resp) enum Reply {
    /// A word that needs no length: `OK`, `PONG`.
    Simple(&'static str),
    /// Begins with a code in capitals that clients know.
    Error(Cow<'static, str>),
    Number(i64),
    Bulk(Bytes),
    /// A text for people.
    Text(String),
    Nil,
    Array(Vec<Reply>),
    Map(Vec<(&'static str, Reply)>),
}

impl Reply {
    pub(in crate::resp) const OK: Reply = Reply::Simple("OK");

    pub(in crate::resp) fn bulk(text: &'static str) -> Self {
        Reply::Bulk(Bytes::from_static(text.as_bytes()))
    }

    pub(in crate::resp) fn error(text: impl Into<Cow<'static, str>>) -> Self {
        Reply::Error(text.into())
    }

    /// Bytes of the values in it.
    pub(in crate::resp) fn value_bytes(&self) -> usize {
        match self {
            Reply::Bulk(bytes) => bytes.len(),
            Reply::Array(replies) => replies.iter().map(Reply::value_bytes).sum(),
            _ => 0,
        }
    }

    pub(in crate::resp) fn write(&self, protocol: Protocol, out: &mut BytesMut) {
        match self {
            Reply::Simple(word) => line(out, b'+', word),
            // A line break in it would begin the next reply.
            Reply::Error(text) => line(out, b'-', &text.replace(['\r', '\n'], " ")),
            Reply::Number(number) => line(out, b':', &number.to_string()),
            Reply::Bulk(bytes) => bulk(out, b'$', bytes),
            Reply::Text(text) => match protocol {
                Protocol::Resp2 => bulk(out, b'$', text.as_bytes()),
                Protocol::Resp3 => bulk(out, b'=', format!("txt:{text}").as_bytes()),
            },
            Reply::Nil => out.put_slice(match protocol {
                Protocol::Resp2 => b"$-1\r\n",
                Protocol::Resp3 => b"_\r\n",
            }),
            Reply::Array(replies) => {
                line(out, b'*', &replies.len().to_string());
                replies.iter().for_each(|reply| reply.write(protocol, out));
            }
            Reply::Map(pairs) => {
                match protocol {
                    Protocol::Resp2 => line(out, b'*', &(pairs.len() * 2).to_string()),
                    Protocol::Resp3 => line(out, b'%', &pairs.len().to_string()),
                }
                for (name, reply) in pairs {
                    bulk(out, b'$', name.as_bytes());
                    reply.write(protocol, out);
                }
            }
        }
    }
}

fn line(out: &mut BytesMut, kind: u8, text: &str) {
    out.put_u8(kind);
    out.put_slice(text.as_bytes());
    out.put_slice(b"\r\n");
}

fn bulk(out: &mut BytesMut, kind: u8, bytes: &[u8]) {
    line(out, kind, &bytes.len().to_string());
    out.put_slice(bytes);
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: &Reply, protocol: Protocol) -> String {
        let mut out = BytesMut::new();
        reply.write(protocol, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn both_versions_are_written() {
        let map = Reply::Map(vec![("proto", Reply::Number(3))]);
        for (reply, two, three) in [
            (Reply::OK, "+OK\r\n", "+OK\r\n"),
            (Reply::Number(-2), ":-2\r\n", ":-2\r\n"),
            (Reply::Nil, "$-1\r\n", "_\r\n"),
            (Reply::bulk("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n"),
            (Reply::Text("x".to_owned()), "$1\r\nx\r\n", "=5\r\ntxt:x\r\n"),
            (Reply::Array(vec![Reply::Nil, Reply::OK]), "*2\r\n$-1\r\n+OK\r\n", "*2\r\n_\r\n+OK\r\n"),
            (map, "*2\r\n$5\r\nproto\r\n:3\r\n", "%1\r\n$5\r\nproto\r\n:3\r\n"),
            (Reply::error("ERR a\r\n+OK"), "-ERR a  +OK\r\n", "-ERR a  +OK\r\n"),
        ] {
            assert_eq!(written(&reply, Protocol::Resp2), two);
            assert_eq!(written(&reply, Protocol::Resp3), three);
        }
    }
}
