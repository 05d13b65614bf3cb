//! What an event's handler sent by its provider's own API, for the event's story.

use std::collections::BTreeSet;

use hapax_domain::run_book::{Call, State};
use hapax_domain::{ItemId, RunBook};
use hapax_store::EventDetail;

use super::story::{Step, step};
use super::{Api, Problem};

/// Replays whose sends are told, and sends of each whose time is looked up.
const ITEMS_MAX: usize = 20;
const TIMES_MAX: usize = 50;

/// The sends of all runs, each when it was first made.
pub(super) async fn steps(api: &Api, detail: &EventDetail, hides: bool) -> Result<Vec<Step>, Problem> {
    let served = api.channels.get(&detail.row.channel).is_some_and(|channel| channel.settings.dropin.is_some());
    if !served {
        return Ok(Vec::new());
    }
    let attempted = detail.attempts.iter().map(|row| row.item);
    let items: BTreeSet<ItemId> = attempted.chain(detail.open.iter().map(|row| row.item)).collect();
    let mut steps = Vec::new();
    for item in items.into_iter().take(ITEMS_MAX) {
        if let Some(mut book) = api.books.of_item(item).await? {
            if hides {
                book.calls.iter_mut().for_each(|call| (call.text, call.reworded) = (None, None));
            }
            steps.extend(of_item(api, detail, item, &book).await?);
        }
    }
    Ok(steps)
}

async fn of_item(api: &Api, detail: &EventDetail, item: ItemId, book: &RunBook) -> Result<Vec<Step>, Problem> {
    let mut steps = Vec::new();
    let mut at_ms = detail.row.received_ms;
    for (number, call) in book.calls.iter().enumerate() {
        if let Some(id) = call.message.filter(|_| number < TIMES_MAX) {
            at_ms = api.store.message(id).await?.map_or(at_ms, |row| row.created_ms);
        }
        steps.push(step(at_ms, "sent by the handler", words(call)));
    }
    if book.answered_early {
        let last = detail.attempts.iter().filter(|row| row.item == item).map(|row| row.ended_ms).max();
        let words = "the bot answered before it worked on it, and sent afterwards: if it dies there, nobody runs its handler again. Its \
                     library has a setting for that (docs/dropin.md)";
        steps.push(step(last.unwrap_or(at_ms), "answered early", words.to_owned()));
    }
    Ok(steps)
}

fn words(call: &Call) -> String {
    let as_message = call.message.map(|id| format!(" as {id}")).unwrap_or_default();
    let text = call.text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    let so_far = match call.state {
        State::Open(_) => "; its caller waits",
        State::Over => "; its caller has not heard what became of it",
        State::Sent => "",
        State::Refused => "; the provider refused it",
    };
    let again = match call.again {
        0 => String::new(),
        1 => "; asked for once more, and not sent again".to_owned(),
        times => format!("; asked for {times} more times, and not sent again"),
    };
    let reworded = call.reworded.as_ref().map(|words| format!("; run {} said it so: {words}", call.run)).unwrap_or_default();
    format!("{}{as_message}{text}{so_far}{again}{reworded}", call.method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_wordings_are_told() {
        let call = Call {
            method: "sendMessage".to_owned(),
            to: [0; 8],
            content: [0; 16],
            run: 2,
            state: State::Sent,
            message: None,
            again: 1,
            text: Some("Hello".to_owned()),
            reworded: Some("Hi there".to_owned()),
            reworded_content: None,
        };
        assert_eq!(words(&call), "sendMessage: Hello; asked for once more, and not sent again; run 2 said it so: Hi there");
    }
}
