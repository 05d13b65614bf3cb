//! Reads what scripts answer: lists of values in a fixed order, with nothing where there is nothing.

use bytes::Bytes;
use hapax_store::StoreError;
use redis::Value;

use super::place::Seq;

/// One list of an answer, read from the left.
pub(super) struct Row(std::vec::IntoIter<Value>);

impl Row {
    pub(super) fn new(value: Value) -> Result<Self, StoreError> {
        Self::maybe_of(value)?.ok_or_else(|| odd("nothing"))
    }

    pub(super) fn maybe_of(value: Value) -> Result<Option<Self>, StoreError> {
        match value {
            Value::Array(values) => Ok(Some(Self(values.into_iter()))),
            Value::Nil => Ok(None),
            _ => Err(odd("no list")),
        }
    }

    pub(super) fn value(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Nil)
    }

    pub(super) fn row(&mut self) -> Result<Row, StoreError> {
        Row::new(self.value())
    }

    pub(super) fn maybe_row(&mut self) -> Result<Option<Row>, StoreError> {
        Row::maybe_of(self.value())
    }

    /// All that is left, each a list of its own.
    pub(super) fn rows(self) -> impl Iterator<Item = Result<Row, StoreError>> {
        self.0.map(Row::new)
    }

    pub(super) fn maybe_int(&mut self) -> Result<Option<i64>, StoreError> {
        maybe_int(self.value())
    }

    pub(super) fn int(&mut self) -> Result<i64, StoreError> {
        self.maybe_int()?.ok_or_else(|| odd("no number"))
    }

    pub(super) fn count(&mut self) -> Result<u64, StoreError> {
        Ok(self.int()?.cast_unsigned())
    }

    pub(super) fn small(&mut self) -> Result<u32, StoreError> {
        u32::try_from(self.int()?).map_err(|_| odd("a number out of range"))
    }

    /// What something is called within its account; nothing where there is nothing.
    pub(super) fn maybe_seq(&mut self) -> Result<Option<Seq>, StoreError> {
        match self.value() {
            Value::Int(seq) => Ok(Some(Seq::Own(seq.cast_unsigned()))),
            Value::BulkString(digits) => {
                let seq = std::str::from_utf8(&digits).ok().and_then(Seq::read);
                seq.map(Some).ok_or_else(|| odd("a number that is none"))
            }
            Value::Nil => Ok(None),
            _ => Err(odd("no number")),
        }
    }

    pub(super) fn seq(&mut self) -> Result<Seq, StoreError> {
        self.maybe_seq()?.ok_or_else(|| odd("no number"))
    }

    pub(super) fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.int()? != 0)
    }

    pub(super) fn maybe_bytes(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.value() {
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::Nil => Ok(None),
            _ => Err(odd("no text")),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, StoreError> {
        self.maybe_bytes()?.map(Bytes::from).ok_or_else(|| odd("no text"))
    }

    pub(super) fn maybe_text(&mut self) -> Result<Option<String>, StoreError> {
        self.maybe_bytes()?.map(|bytes| String::from_utf8(bytes).map_err(|_| odd("a text that is none"))).transpose()
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        self.maybe_text()?.ok_or_else(|| odd("no text"))
    }
}

pub(super) fn int(value: Value) -> Result<i64, StoreError> {
    maybe_int(value)?.ok_or_else(|| odd("no number"))
}

fn maybe_int(value: Value) -> Result<Option<i64>, StoreError> {
    match value {
        Value::Int(number) => Ok(Some(number)),
        Value::BulkString(digits) => {
            let number = std::str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok());
            number.map(Some).ok_or_else(|| odd("a number that is none"))
        }
        Value::Nil => Ok(None),
        _ => Err(odd("no number")),
    }
}

/// One letter that says what became of a call.
pub(super) fn letter(value: &Value) -> Result<u8, StoreError> {
    match value {
        Value::BulkString(text) if text.len() == 1 => Ok(text[0]),
        _ => Err(odd("no letter")),
    }
}

pub(super) fn odd(what: &'static str) -> StoreError {
    StoreError::Failed { what: "reading an answer of redis", retryable: false, source: what.into() }
}
