//! How the book of a polling bot stands in its register.

use hapax_domain::PollBook;
use hapax_domain::poll_book::Given;
use serde::Deserialize;
use serde_json::json;

use super::super::written::Written;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BookText {
    highest: i64,
    offset: i64,
    given: Vec<(String, i64)>,
    confirmed: Vec<String>,
    #[serde(default)]
    allowed: Option<Vec<String>>,
    process: String,
}

impl Written for PollBook {
    fn write(&self) -> String {
        let given: Vec<_> = self.given.iter().map(|given| json!([given.item.to_string(), given.number])).collect();
        let confirmed: Vec<String> = self.confirmed.iter().map(ToString::to_string).collect();
        let process = format!("{:016x}", self.process);
        let (highest, offset, allowed) = (self.highest, self.offset, &self.allowed);
        json!({
            "highest": highest,
            "offset": offset,
            "given": given,
            "confirmed": confirmed,
            "allowed": allowed,
            "process": process,
        })
        .to_string()
    }

    fn read(text: &str) -> Option<Self> {
        let text: BookText = serde_json::from_str(text).ok()?;
        let given = |(item, number): (String, i64)| Some(Given { item: item.parse().ok()?, number });
        Some(Self {
            highest: text.highest,
            offset: text.offset,
            given: text.given.into_iter().map(given).collect::<Option<_>>()?,
            confirmed: text.confirmed.iter().map(|item| item.parse().ok()).collect::<Option<_>>()?,
            allowed: text.allowed,
            process: u64::from_str_radix(&text.process, 16).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hapax_domain::ItemId;
    use hapax_domain::limits::REGISTER_MAX_BYTES;
    use uuid::Uuid;

    #[test]
    fn a_book_is_read_as_it_was_written_and_a_full_one_fits() {
        let item = |number| ItemId(Uuid::from_u128(number));
        let mut book = PollBook { process: u64::MAX, ..PollBook::default() };
        assert_eq!(PollBook::read(&book.write()), Some(book.clone()));
        book.give((0..100).map(|number| Given { item: item(number), number: i64::MAX }).collect());
        book.confirmed = (0..PollBook::CONFIRMED_MAX as u128).map(item).collect();
        book.allowed = Some(vec!["message".to_owned(), "callback_query".to_owned()]);
        assert_eq!(PollBook::read(&book.write()), Some(book.clone()));
        assert!(book.write().len() < REGISTER_MAX_BYTES / 4, "{}", book.write().len());
        assert_eq!(PollBook::read(r#"{"more":1}"#), None, "what a later version wrote is not guessed at");
    }
}
