//! Registers, pieces of files, and who is with the bot.

use bytes::Bytes;
use hapax_store::WithBot;
use rand::Rng;
use rand::rngs::StdRng;

use super::Pair;
use crate::store_fixture::{HOLD_MS, WINDOW_MS};

impl Pair {
    /// Changes a register as it is, or as somebody believes it to be, for ever or for a time.
    pub(super) async fn amend(&mut self, random: &mut StdRng) {
        let name = format!("r{}", random.random_range(0..3));
        let value = |random: &mut StdRng| random.random_bool(0.7).then(|| format!("v{}", random.random_range(0..3)));
        let (believed, new) = (value(random), value(random));
        let keep_ms = [None, Some(1), Some(500), Some(HOLD_MS), Some(HOLD_MS * 3)][random.random_range(0..5)];
        let there = self.fine(self.model.amend(&name, None, None, None).await);
        let expected = if random.random_bool(0.6) { there } else { believed };
        self.call = format!("amend {name} {expected:?} {new:?} {keep_ms:?}");
        let (expected, new) = (expected.as_deref(), new.as_deref());
        let model = self.fine(self.model.amend(&name, expected, new, keep_ms).await);
        let engine = self.fine(self.engine.amend(&name, expected, new, keep_ms).await);
        self.same(model, engine);
    }

    pub(super) async fn look_at_registers(&self) {
        for name in (0..3).map(|number| format!("r{number}")) {
            let model = self.fine(self.model.amend(&name, None, None, None).await);
            let engine = self.fine(self.engine.amend(&name, None, None, None).await);
            self.same(model, engine);
        }
    }

    pub(super) async fn look_who_is_with_the_bot(&self) {
        let told = |row: &WithBot| (row.account.clone(), row.thread.clone(), row.attempt);
        let model = self.fine(self.model.with_bot("shop").await);
        let engine = self.fine(self.engine.with_bot("shop").await);
        let ids = |row: &WithBot| (self.ids.get(&row.item.0).copied(), self.ids.get(&row.event.0).copied());
        let mut model: Vec<_> = model.iter().map(|row| (ids(row), told(row))).collect();
        let mut engine: Vec<_> = engine.iter().map(|row| ((Some(row.item.0), Some(row.event.0)), told(row))).collect();
        // Which of two is told first when the clock was set back between them is the engine's own affair.
        model.sort_unstable();
        engine.sort_unstable();
        self.same(model, engine);
    }

    /// Puts a piece of a file, or removes all of one.
    pub(super) async fn keep_piece(&mut self, random: &mut StdRng) {
        let (name, n) = (["shop/a", "shop/b", "bank/a"][random.random_range(0..3)], random.random_range(0..3));
        if random.random_bool(0.2) {
            self.call = format!("drop {name}");
            self.fine(self.model.drop_pieces(name).await);
            return self.fine(self.engine.drop_pieces(name).await);
        }
        let bytes = Bytes::from(vec![random.random::<u8>(); random.random_range(0..2_000)]);
        let keep_ms = [1, HOLD_MS, WINDOW_MS][random.random_range(0..3)];
        self.call = format!("put {name} {n} for {keep_ms}");
        self.fine(self.model.put_piece(name, n, bytes.clone(), keep_ms).await);
        self.fine(self.engine.put_piece(name, n, bytes, keep_ms).await);
        self.look_at_pieces().await;
    }

    pub(super) async fn look_at_pieces(&self) {
        let (model, engine) = (self.model.pieces_held().await, self.engine.pieces_held().await);
        // A channel with nothing but empty pieces may be listed or not.
        let with_bytes = |held: Vec<(String, u64)>| held.into_iter().filter(|(_, bytes)| *bytes > 0).collect::<Vec<_>>();
        self.same(with_bytes(self.fine(model)), with_bytes(self.fine(engine)));
        for (name, n) in ["shop/a", "shop/b", "bank/a"].into_iter().flat_map(|name| (0..3).map(move |n| (name, n))) {
            let (model, engine) = (self.model.piece(name, n).await, self.engine.piece(name, n).await);
            self.same(self.fine(model), self.fine(engine));
        }
    }
}
