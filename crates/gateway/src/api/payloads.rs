//! What people write, kept from those who may only look: rows say how long it is in place of what it says.

use hapax_store::{MessageRow, ThreadMessage, ThreadRow};

use super::{Api, Caller, Scope};

/// In place of why a message was not sent.
const HIDDEN_WHY: &str = "hidden: what a provider answers may repeat what was said";

/// A row with something in it that somebody wrote.
pub(super) trait Payload {
    fn hide(&mut self);
}

impl Payload for ThreadRow {
    fn hide(&mut self) {
        hide_text(&mut self.last_text);
    }
}

impl Payload for ThreadMessage {
    fn hide(&mut self) {
        hide_text(&mut self.text);
    }
}

impl Payload for MessageRow {
    fn hide(&mut self) {
        hide_text(&mut self.text);
        self.payload = Default::default();
        self.tries.iter_mut().for_each(|tried| tried.detail.clear());
        self.why = self.why.take().filter(|why| !why.is_empty()).map(|_| HIDDEN_WHY.to_owned());
    }
}

fn hide_text(text: &mut Option<String>) {
    if let Some(text) = text {
        *text = format!("{} characters", text.chars().count());
    }
}

impl Api {
    /// Whether this caller is shown only how long bodies and texts are.
    pub(crate) fn hides_payloads_from(&self, caller: &Caller) -> bool {
        self.hide_payloads && !caller.may(Scope::Admin)
    }

    /// Rows as this caller may see them.
    pub(super) fn shown<T: Payload>(&self, caller: &Caller, mut rows: Vec<T>) -> Vec<T> {
        if self.hides_payloads_from(caller) {
            rows.iter_mut().for_each(T::hide);
        }
        rows
    }

    /// One row as this caller may see it.
    pub(super) fn shown_one<T: Payload>(&self, caller: &Caller, mut row: T) -> T {
        if self.hides_payloads_from(caller) {
            row.hide();
        }
        row
    }
}
