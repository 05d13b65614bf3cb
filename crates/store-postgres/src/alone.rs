//! Items that are kept in the rows of their lanes, read as items.

use std::sync::LazyLock;

use hapax_store::steps::record::Record;
use hapax_store::steps::records::ItemRec;

use super::rows::{name_of, plain_columns};

/// What a column of an item is in the row of its lane.
fn in_lane(column: &str) -> &'static str {
    match column {
        "number" | "webhook" => "first",
        "received_ms" | "events_ms" | "due_ms" => "alone_ms",
        "channel" => "channel",
        "lane" => "hash",
        "place" => "0::int2",
        "events" => "decode(lpad(to_hex(first), 16, '0'), 'hex')",
        "attempt" | "failures" => "0::int4",
        "replay" => "NULL::int4",
        "why" => "NULL::text",
        "replies" => "NULL::bytea",
        _ => "unknown_column",
    }
}

/// The columns of an item, from the row of its lane.
pub(super) static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    let columns = ItemRec::plain_fields().iter().map(|field| in_lane(name_of::<ItemRec>(&field.column)));
    columns.collect::<Vec<_>>().join(", ")
});

/// Items by a condition on their own rows, and those alone by one on the rows of their lanes.
pub(super) fn items_sql(found: &str, alone: &str) -> String {
    format!(
        "SELECT {} FROM hapax_items WHERE {found} UNION ALL SELECT {} FROM hapax_lanes WHERE alone_ms IS NOT NULL AND {alone}",
        plain_columns::<ItemRec>(""),
        *COLUMNS
    )
}
