//! Registers and pieces in plain maps.

use std::collections::BTreeMap;

use hapax_store::registers::Register;

use super::Data;

impl Data {
    fn register(&self, name: &str, now_ms: i64) -> Option<String> {
        self.registers.get(name).filter(|register| !register.is_over(now_ms)).map(|register| register.value.clone())
    }

    pub(super) fn amend(
        &mut self,
        name: &str,
        expected: Option<&str>,
        new: Option<&str>,
        keep_ms: Option<i64>,
        now_ms: i64,
    ) -> Option<String> {
        if self.register(name, now_ms).as_deref() == expected {
            self.registers.remove(name);
            let ends_ms = keep_ms.map(|keep_ms| now_ms + keep_ms);
            self.registers.extend(new.map(|new| (name.to_owned(), Register { value: new.to_owned(), ends_ms })));
        }
        self.register(name, now_ms)
    }

    pub(super) fn purge_registers(&mut self, max: usize, now_ms: i64) -> u64 {
        let over = self.registers.iter().filter(|(_, register)| register.is_over(now_ms)).map(|(name, _)| name.clone());
        let over: Vec<String> = over.take(max).collect();
        over.iter().for_each(|name| drop(self.registers.remove(name)));
        over.len() as u64
    }

    pub(super) fn pieces_held(&self) -> Vec<(String, u64)> {
        let mut held: BTreeMap<String, u64> = BTreeMap::new();
        for piece in self.pieces.values() {
            *held.entry(piece.channel().to_owned()).or_default() += piece.bytes.len() as u64;
        }
        held.into_iter().collect()
    }

    pub(super) fn purge_pieces(&mut self, max: usize, now_ms: i64) -> u64 {
        let over = self.pieces.iter().filter(|(_, piece)| piece.ends_ms <= now_ms).map(|(key, _)| key.clone());
        let over: Vec<(String, u32)> = over.take(max).collect();
        over.iter().for_each(|key| drop(self.pieces.remove(key)));
        over.len() as u64
    }
}
