//! Reads `firestore://PROJECT[/DATABASE][?emulator=HOST:PORT]`.

use hapax_store::StoreError;

/// Where the documents are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) project: String,
    pub(super) database: String,
    /// `HOST:PORT` of an emulator, which wants no credentials.
    pub(super) emulator: Option<String>,
}

impl Address {
    /// An emulator named in the address comes before the one that `FIRESTORE_EMULATOR_HOST` names.
    pub(super) fn read(text: &str, emulator: Option<String>) -> Result<Self, StoreError> {
        let wrong = |why: &str| StoreError::Refused(format!("the store's address {why}; write \"firestore://project/database\""));
        let rest = text.strip_prefix("firestore://").ok_or_else(|| wrong("does not begin with `firestore://`"))?;
        let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (project, database) = path.trim_end_matches('/').split_once('/').unwrap_or((path.trim_end_matches('/'), ""));
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:()".contains(&b));
        if project.is_empty() || !plain(project) || !plain(database) {
            return Err(wrong("names no project, or has characters that no project or database has"));
        }
        let mut named = None;
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("emulator", host)) if !host.is_empty() => named = Some(host.to_owned()),
                _ => return Err(wrong("has an option other than `emulator=HOST:PORT`")),
            }
        }
        let database = if database.is_empty() { "(default)" } else { database }.to_owned();
        let emulator = named.or(emulator.filter(|host| !host.is_empty()));
        Ok(Self { project: project.to_owned(), database, emulator })
    }

    /// What every document's name begins with.
    pub(super) fn root(&self) -> String {
        format!("projects/{}/databases/{}/documents", self.project, self.database)
    }

    pub(super) fn base(&self) -> String {
        match &self.emulator {
            Some(host) => format!("http://{host}/v1/{}", self.root()),
            None => format!("https://firestore.googleapis.com/v1/{}", self.root()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_and_the_emulator_may_be_left_out() {
        let address = Address::read("firestore://shop", None).expect("an address");
        assert_eq!(address.base(), "https://firestore.googleapis.com/v1/projects/shop/databases/(default)/documents");
        let address =
            Address::read("firestore://shop/eu?emulator=127.0.0.1:8080", Some("other:1".to_owned())).expect("an address");
        assert_eq!(address.base(), "http://127.0.0.1:8080/v1/projects/shop/databases/eu/documents");
        let address = Address::read("firestore://shop/", Some("other:1".to_owned())).expect("an address");
        assert_eq!(address.emulator.as_deref(), Some("other:1"));
    }

    #[test]
    fn what_cannot_be_an_address_is_refused() {
        for text in ["firestore://", "firestore:///x", "firestore://a b", "firestore://a/b/c", "firestore://a?x=1", "redis://a"] {
            assert!(Address::read(text, None).is_err(), "{text}");
        }
    }
}
