//! The names that lead to a thread besides its peer's own, as they stand in its row: `5:maria2:jo`, each after its length in bytes.

/// What stands in the row of a thread that has these names.
pub(super) fn write<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let mut text = String::new();
    for name in names {
        text.push_str(&name.len().to_string());
        text.push(':');
        text.push_str(name);
    }
    Some(text).filter(|text| !text.is_empty())
}

pub(super) fn read(text: Option<&str>) -> impl Iterator<Item = &str> {
    let mut rest = text.unwrap_or_default();
    std::iter::from_fn(move || {
        let (length, after) = rest.split_once(':')?;
        let (name, later) = after.split_at_checked(length.parse().ok()?)?;
        rest = later;
        Some(name)
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        for names in [vec![], vec!["ana"], vec!["BR.7", "", "3:x", "ção"]] {
            let text = write(names.iter().copied());
            assert_eq!(text.is_none(), names.is_empty());
            assert_eq!(read(text.as_deref()).collect::<Vec<_>>(), names);
        }
    }

    #[test]
    fn an_upgrade_puts_them_into_the_row() {
        let db = Connection::open_in_memory().expect("a database");
        let (upgrade, before) = crate::open::MIGRATIONS[..11].split_last().expect("eleven");
        before.iter().for_each(|migration| db.execute_batch(migration).expect("the schema"));
        db.execute_batch(
            "INSERT INTO threads (thread, channel, account, peer, last, last_at, last_out, unread)
                 VALUES (1, 1, 'acc', 'ana', 9, 9, 0, 0), (2, 1, 'acc', 'bob', 9, 9, 0, 0), (3, 1, 'acc', 'eve', 9, 9, 0, 0);
             INSERT INTO thread_names VALUES (1, 'ana'), (1, 'ção'), (1, '3:x'), (2, 'bob')",
        )
        .expect("people");
        db.execute_batch(upgrade).expect("upgraded");
        let names = |thread: i64| {
            let text: Option<String> =
                db.query_row("SELECT names FROM threads WHERE thread = ?1", [thread], |row| row.get(0)).expect("a thread");
            read(text.as_deref()).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!([names(1), names(2), names(3)], [vec!["3:x".to_owned(), "ção".to_owned()], vec![], vec![]]);
    }
}
