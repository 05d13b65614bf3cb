//! Where `import-seen` reads from: a list, or what somebody's own dedup has in Redis or a database.

use std::io::BufRead;

use hapax::{StoreError, StoreUrl};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Failure;

/// Rows that wait to be sent.
const AHEAD: usize = 1_000;

/// One thing that was seen.
pub(super) enum Entry {
    /// A line of a list.
    Line(Vec<u8>),
    /// Parts that are told apart already.
    Parts(Vec<String>),
}

pub(super) enum Source {
    List(Box<dyn BufRead>),
    Foreign { rows: mpsc::Receiver<Vec<String>>, reading: JoinHandle<Result<(), StoreError>> },
}

impl Source {
    /// What a query finds: the columns are the parts.
    pub(super) fn query(url: StoreUrl, query: String) -> Result<Self, Failure> {
        if !matches!(url, StoreUrl::Postgres(_) | StoreUrl::Mysql(_)) {
            return Err(Failure::plain("--sql takes the address of a PostgreSQL or MySQL server: postgres://… or mysql://…"));
        }
        let (give, rows) = mpsc::channel(AHEAD);
        let reading = tokio::spawn(async move { hapax::read_rows(&url, &query, give).await });
        Ok(Self::Foreign { rows, reading })
    }

    /// Keys that fit a pattern: what its stars stand for are the parts.
    pub(super) fn keys(url: StoreUrl, pattern: &str) -> Result<Self, Failure> {
        if !matches!(url, StoreUrl::Redis(_)) {
            return Err(Failure::plain("--redis takes the address of a Redis server: redis://… or rediss://…"));
        }
        let pattern = Pattern::read(pattern).map_err(Failure::plain)?;
        let (give, rows) = mpsc::channel(AHEAD);
        let (hand_on, mut keys) = mpsc::channel(AHEAD);
        let asked = pattern.text.clone();
        let reading = tokio::spawn(async move {
            let splitting = async move {
                while let Some(key) = keys.recv().await {
                    let key: String = key;
                    if let Some(parts) = pattern.parts(&key)
                        && give.send(parts).await.is_err()
                    {
                        return;
                    }
                }
            };
            let (read, ()) = tokio::join!(hapax::read_keys(&url, &asked, hand_on), splitting);
            read
        });
        Ok(Self::Foreign { rows, reading })
    }

    /// The next one; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Entry>, Failure> {
        match self {
            Self::List(input) => {
                let mut line = Vec::new();
                let read = input.read_until(b'\n', &mut line);
                let read = read.map_err(|why| Failure::plain(format!("the list cannot be read: {why}")))?;
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                Ok((read > 0).then_some(Entry::Line(line)))
            }
            Self::Foreign { rows, reading } => match rows.recv().await {
                Some(row) => Ok(Some(Entry::Parts(row))),
                None => match reading.await {
                    Ok(Ok(())) => Ok(None),
                    Ok(Err(error)) => Err(Failure::plain(error.to_string())),
                    Err(_) => Err(Failure::plain("the reading broke off")),
                },
            },
        }
    }
}

/// A pattern of Redis in which only `*` is special.
#[derive(Debug)]
struct Pattern {
    text: String,
    /// What stands before, between and after the stars.
    between: Vec<String>,
}

impl Pattern {
    fn read(text: &str) -> Result<Self, String> {
        if text.contains(['?', '[', ']', '\\']) {
            return Err(
                "--pattern knows `*` alone, which stands for the id, or for each part of it: 'seen:*', 'seen:*:*'".to_owned()
            );
        }
        let between: Vec<String> = text.split('*').map(str::to_owned).collect();
        if between.len() < 2 || between[1..between.len() - 1].iter().any(String::is_empty) {
            return Err("--pattern needs a `*` for the id, and something between two of them: 'seen:*', 'seen:*:*'".to_owned());
        }
        Ok(Self { text: text.to_owned(), between })
    }

    /// What the stars stand for in a key: each for as little as it can, and the last for all the rest.
    fn parts(&self, key: &str) -> Option<Vec<String>> {
        let (first, rest) = self.between.split_first()?;
        let (last, middle) = rest.split_last()?;
        let mut left = key.strip_prefix(first.as_str())?.strip_suffix(last.as_str())?;
        let mut parts = Vec::new();
        for between in middle {
            let (part, after) = left.split_once(between.as_str())?;
            parts.push(part.to_owned());
            left = after;
        }
        parts.push(left.to_owned());
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_parts() {
        let parts = |pattern: &str, key: &str| Pattern::read(pattern).expect("a pattern").parts(key);
        let all = |parts: &[&str]| Some(parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        assert_eq!(parts("seen:*", "seen:wamid.A:B"), all(&["wamid.A:B"]));
        assert_eq!(parts("seen:*:*", "seen:7001:wamid.A:B"), all(&["7001", "wamid.A:B"]));
        assert_eq!(parts("*:done", "wamid.A:done"), all(&["wamid.A"]));
        assert_eq!(parts("*", "wamid.A"), all(&["wamid.A"]));
        assert_eq!(parts("seen:*", "other:1"), None);
        assert_eq!(parts("aba*ba", "aba"), None, "what stands before and after does not overlap");
        for odd in ["seen", "seen:**", "seen:?", "seen:[ab]*", "a\\*b*"] {
            assert!(Pattern::read(odd).is_err(), "{odd}");
        }
    }
}
