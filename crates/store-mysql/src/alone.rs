//! Items that are kept in the rows of their lanes, read as items.

use std::sync::LazyLock;

use hapax_store::steps::record::Record;
use hapax_store::steps::records::ItemRec;

use super::rows::name_of;

/// What a column of an item is in the row of its lane.
fn in_lane(column: &str) -> &'static str {
    match column {
        "number" | "webhook" => "first",
        "received_ms" | "events_ms" | "due_ms" => "alone_ms",
        "channel" => "channel",
        "lane" => "hash",
        "place" | "attempt" | "failures" => "0",
        "events" => "UNHEX(LPAD(HEX(first), 16, '0'))",
        "replay" | "why" | "replies" => "NULL",
        _ => "unknown_column",
    }
}

/// The columns of an item, from the row of its lane.
pub(super) static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    let columns = ItemRec::plain_fields().iter().map(|field| in_lane(name_of::<ItemRec>(&field.column)));
    columns.collect::<Vec<_>>().join(",")
});
