//! Records in pages, to be moved to another store.

use std::collections::BTreeMap;

use hapax_store::steps::records::{AttemptRec, ClaimRec, EventRec, NameRec, name_hash};
use hapax_store::{After, Moved, Table};

use super::Data;

impl Data {
    pub(super) fn dump(&self, table: Table, after: Option<&After>, limit: usize) -> Vec<Moved> {
        let hash = match after {
            Some(After::Hash(hash)) => Some(*hash),
            Some(After::Name(Some((account, name)))) => Some(name_hash(account, name)),
            _ => None,
        };
        let number = match after {
            Some(After::Number(number)) => Some(*number),
            _ => None,
        };
        let name = |((account, name), peer): (&(String, String), &String)| {
            let rec = NameRec { account: account.clone(), name: name.clone(), peer: peer.clone() };
            (name_hash(account, name), rec)
        };
        match table {
            Table::Keys => page(&self.keys, hash, limit, Moved::Key),
            Table::Threads => page(&self.threads, hash, limit, Moved::Thread),
            Table::Names => page(&self.names.iter().map(name).collect(), hash, limit, Moved::Name),
            Table::ProviderNames => page(&self.provider_names, hash, limit, Moved::ProviderName),
            Table::Events => page(&self.events, number, limit, |event| Moved::Event(EventRec { carried: None, ..event })),
            Table::Copies => page(&self.copies, number, limit, Moved::Copies),
            Table::Answers => page(&self.answers, number, limit, Moved::Answer),
            Table::Messages => page(&self.messages, number, limit, Moved::Message),
            Table::Attempts => {
                let key = |row: &AttemptRec| (row.queue.code(), row.of, row.fence);
                let after = match after {
                    Some(After::Attempt(queue, of, fence)) => Some((queue.code(), *of, *fence)),
                    _ => None,
                };
                page(&self.attempts.iter().map(|row| (key(row), row.clone())).collect(), after, limit, Moved::Attempt)
            }
            Table::Settings => {
                let after = match after {
                    Some(After::Setting(name)) => Some(name),
                    _ => None,
                };
                let behind = self.registers.iter().filter(|(name, _)| after.is_none_or(|after| *name > after)).take(limit);
                behind.map(|(name, register)| Moved::Setting { name: name.clone(), register: register.clone() }).collect()
            }
            Table::Claims => page(&self.claims, hash, limit, |claim| Moved::Claim(Box::new(ClaimRec { result: None, ..claim }))),
            Table::Pieces => {
                let after = match after {
                    Some(After::Piece(name, n)) => Some((name.clone(), *n)),
                    _ => None,
                };
                let behind = self.pieces.iter().filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after));
                behind.take(limit).map(|(_, piece)| Moved::Piece(piece.clone())).collect()
            }
            Table::Paused | Table::Items | Table::Outs => Vec::new(),
        }
    }
}

fn page<K: Ord + Copy, V: Clone>(map: &BTreeMap<K, V>, after: Option<K>, limit: usize, moved: impl Fn(V) -> Moved) -> Vec<Moved> {
    map.iter()
        .filter(|(key, _)| after.is_none_or(|after| **key > after))
        .take(limit)
        .map(|(_, record)| moved(record.clone()))
        .collect()
}
