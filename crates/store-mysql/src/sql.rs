//! Statements as text, many to a packet: the driver does not pipeline, and a packet of statements costs one round trip.
//!
//! Byte strings and texts are written as hex literals. That doubles their size and leaves nothing to escape: whatever the server's `sql_mode` or
//! character set makes of a quote or a backslash, a value can never end where its statement goes on. Texts of letters, digits and a few signs have
//! nothing that could be taken for an end, and stand between quotes as they are. What is large goes beside the text, as a parameter ([`super::link::Packet::Body`]).

use std::fmt::Write as _;

use hapax_domain::key::KeyHasher;
use hapax_store::StoreError;
use hapax_store::steps::record::Value;
use hapax_store::steps::records::Hash;
use mysql_async::Row;
use mysql_async::prelude::FromValue;

/// Rows of one statement of many, and values of one list: MariaDB makes a list of a thousand and more into a join of its own liking.
pub(super) const ROWS_MAX: usize = 500;
/// A statement of many rows is cut here, and a packet of statements at four times that; the server takes at least 16 MB.
const STATEMENT_BYTES: usize = 1 << 20;
pub(super) const PACKET_BYTES: usize = 4 << 20;

/// A value that can be written into a statement.
pub(super) trait Literal {
    fn put(&self, sql: &mut String);
}

macro_rules! plain_literals {
    ($($kind:ty),*) => {$(
        impl Literal for $kind {
            fn put(&self, sql: &mut String) {
                // Writing to a text cannot fail.
                let _ = write!(sql, "{self}");
            }
        }
    )*};
}

plain_literals!(i16, i64, u16, u32, u64, usize);

impl Literal for bool {
    fn put(&self, sql: &mut String) {
        sql.push(if *self { '1' } else { '0' });
    }
}

/// Names and numbers mean the same to every server between quotes; they are half as long so, and read faster.
impl Literal for str {
    fn put(&self, sql: &mut String) {
        if self.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'@' | b'+' | b'-')) {
            sql.push('\'');
            sql.push_str(self);
            sql.push('\'');
            return;
        }
        sql.push_str("_utf8mb4 ");
        self.as_bytes().put(sql);
    }
}

impl Literal for String {
    fn put(&self, sql: &mut String) {
        self.as_str().put(sql);
    }
}

impl Literal for [u8] {
    fn put(&self, sql: &mut String) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        sql.reserve(self.len() * 2 + 3);
        sql.push_str("X'");
        let mut hex = [0; 128];
        for some in self.chunks(hex.len() / 2) {
            for (byte, digits) in some.iter().zip(hex.as_chunks_mut::<2>().0) {
                *digits = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
            }
            sql.push_str(str::from_utf8(&hex[..some.len() * 2]).unwrap_or_default());
        }
        sql.push('\'');
    }
}

impl<const N: usize> Literal for [u8; N] {
    fn put(&self, sql: &mut String) {
        self.as_slice().put(sql);
    }
}

impl<T: Literal + ?Sized> Literal for &T {
    fn put(&self, sql: &mut String) {
        (**self).put(sql);
    }
}

impl<T: Literal> Literal for Option<T> {
    fn put(&self, sql: &mut String) {
        match self {
            Some(value) => value.put(sql),
            None => sql.push_str("NULL"),
        }
    }
}

/// What a record has in a column.
impl Literal for Value<'_> {
    fn put(&self, sql: &mut String) {
        match self {
            Value::Null => sql.push_str("NULL"),
            Value::Int(number) => number.put(sql),
            Value::Bool(flag) => flag.put(sql),
            Value::Text(text) => text.as_ref().put(sql),
            Value::Bytes(bytes) => bytes.as_ref().put(sql),
        }
    }
}

/// A list for `IN`; never empty.
pub(super) struct List<'l, T>(pub(super) &'l [T]);

impl<T: Literal> Literal for List<'_, T> {
    fn put(&self, sql: &mut String) {
        for (n, value) in self.0.iter().enumerate() {
            sql.push(if n == 0 { '(' } else { ',' });
            value.put(sql);
        }
        sql.push(')');
    }
}

/// SQL of our own, put as it is.
pub(super) struct Raw<'r>(pub(super) &'r str);

impl Literal for Raw<'_> {
    fn put(&self, sql: &mut String) {
        sql.push_str(self.0);
    }
}

/// Statements on their way, cut into packets.
#[derive(Default)]
pub(super) struct Sql {
    packets: Vec<String>,
    text: String,
    statements: usize,
}

impl Sql {
    /// Adds a statement, each `?` of which stands for the next value.
    pub(super) fn add(&mut self, statement: &str, values: &[&dyn Literal]) {
        let mut values = values.iter();
        for (n, part) in statement.split('?').enumerate() {
            if n > 0
                && let Some(value) = values.next()
            {
                value.put(&mut self.text);
            }
            self.text.push_str(part);
        }
        self.end();
    }

    /// Adds statements that put one row for each of `rows`: `head`, the rows, `tail`.
    pub(super) fn add_rows<T>(&mut self, head: &str, rows: &[T], tail: &str, put: impl Fn(&T, &mut Values<'_>)) {
        let mut rows = rows.iter().peekable();
        while rows.peek().is_some() {
            self.text.push_str(head);
            let begun = self.text.len();
            for (n, row) in rows.by_ref().take(ROWS_MAX).enumerate() {
                self.text.push_str(if n == 0 { "(" } else { ",(" });
                put(row, &mut Values::Text { sql: &mut self.text, first: true });
                self.text.push(')');
                if self.text.len() - begun > STATEMENT_BYTES {
                    break;
                }
            }
            self.text.push_str(tail);
            self.end();
        }
    }

    fn end(&mut self) {
        self.text.push(';');
        self.statements += 1;
        if self.text.len() > PACKET_BYTES {
            self.packets.push(std::mem::take(&mut self.text));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.statements == 0
    }

    pub(super) fn into_packets(mut self) -> Vec<String> {
        if !self.text.is_empty() {
            self.packets.push(self.text);
        }
        self.packets
    }
}

/// The values of one row, in a statement or beside it.
pub(super) enum Values<'v> {
    Text { sql: &'v mut String, first: bool },
    Beside(&'v mut Vec<mysql_async::Value>),
}

impl Values<'_> {
    pub(super) fn put(&mut self, value: Value<'_>) {
        match self {
            Values::Text { sql, first } => {
                if !std::mem::take(first) {
                    sql.push(',');
                }
                value.put(sql);
            }
            Values::Beside(values) => values.push(match value {
                Value::Null => mysql_async::Value::NULL,
                Value::Int(number) => number.into(),
                Value::Bool(flag) => flag.into(),
                Value::Text(text) => text.into_owned().into(),
                Value::Bytes(bytes) => bytes.into_owned().into(),
            }),
        }
    }
}

/// `column = VALUES(column)` for all columns, to put rows that are there already.
pub(super) fn over(columns: &str) -> String {
    let assign = |column: &str| format!("{column}=VALUES({column})");
    let all: Vec<String> = columns.split(',').map(|column| assign(column.trim())).collect();
    format!(" ON DUPLICATE KEY UPDATE {}", all.join(","))
}

/// Reads a row's fields in the order they were asked for.
pub(super) struct Fields {
    row: Row,
    at: usize,
}

impl Fields {
    pub(super) fn new(row: Row) -> Self {
        Self { row, at: 0 }
    }

    pub(super) fn next<T: FromValue>(&mut self) -> Result<T, StoreError> {
        let at = self.at;
        self.at += 1;
        match self.row.take_opt::<T, usize>(at) {
            Some(Ok(value)) => Ok(value),
            _ => Err(unreadable(format!("field {at} of a row is missing or of another kind"))),
        }
    }

    /// Whether a field is null, counted from the first.
    pub(super) fn is_null(&self, at: usize) -> bool {
        self.row.as_ref(at).is_none_or(|value| *value == mysql_async::Value::NULL)
    }

    pub(super) fn hash(&mut self) -> Result<Hash, StoreError> {
        self.next::<Vec<u8>>()?.try_into().map_err(|_| unreadable("a hash that has not 32 bytes".to_owned()))
    }

    pub(super) fn has_more(&self) -> bool {
        self.at < self.row.len()
    }
}

/// Something in the database that we did not write, or not so.
pub(super) fn unreadable(what: String) -> StoreError {
    StoreError::Failed { what: "mysql: a row cannot be read", retryable: false, source: what.into() }
}

/// What lists of a channel or an account are narrowed by: half a hash, because many indexes hold it, and nothing is claimed by it.
fn short_key(purpose: &str, name: &str) -> [u8; 16] {
    let mut hasher = KeyHasher::new(purpose);
    hasher.part(name.as_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finish()[..16]);
    short
}

pub(super) fn channel_key(channel: &str) -> [u8; 16] {
    short_key("channel key", channel)
}

pub(super) fn account_key(account: &str) -> [u8; 16] {
    short_key("account key", account)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_can_leave_its_literal() {
        let mut sql = Sql::default();
        sql.add("SELECT ?, ?, ?", &[&"it's \\' a trap; --", &None::<u64>, &List(&[1_u64, 2])]);
        let [packet] = sql.into_packets().try_into().expect("one packet");
        assert_eq!(
            packet,
            "SELECT _utf8mb4 X'69742773205C2720612074726170\
3B202D2D', NULL, (1,2);"
        );
        assert!(!packet.contains("trap"));
        let mut plain = String::new();
        "BR.0001_a:b@c+d-e".put(&mut plain);
        assert_eq!(plain, "'BR.0001_a:b@c+d-e'");
        for other in ["a b", "a'", "a\\", "a\n", "é", "a%", "a\0", "`"] {
            let mut hex = String::new();
            other.put(&mut hex);
            assert!(hex.starts_with("_utf8mb4 X'"), "{other:?}");
        }
    }

    #[test]
    fn every_byte_has_its_digits() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut sql = String::new();
        bytes.as_slice().put(&mut sql);
        assert_eq!(sql, format!("X'{}'", hex::encode_upper(&bytes)));
    }

    #[test]
    fn many_rows_become_several_statements_and_packets() {
        let rows: Vec<String> = (0..2_000).map(|n| format!("{n} {}", "x".repeat(4_000))).collect();
        let mut sql = Sql::default();
        sql.add_rows("INSERT INTO t VALUES ", &rows, "", |row, values| {
            values.put(Value::Text(row.as_str().into()));
        });
        let packets = sql.into_packets();
        assert_eq!(packets.iter().map(|packet| packet.matches("_utf8mb4").count()).sum::<usize>(), 2_000);
        assert!(packets.len() > 2 && packets.iter().all(|packet| packet.len() < 6 << 20), "{}", packets.len());
    }
}
