//! The tables of the records: what they are called here, which columns are called otherwise, and what follows from a record and stands
//! beside it to be searched. All other columns are those of the description.

use hapax_store::steps::record::{Field, Type, Value};
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, ClaimRec, EventRec, ItemRec, KeyRec, LaneRec, MessageRec, NameRec, OutRec, ProviderNameRec, ThreadRec,
    name_hash, request_hash, thread_hash,
};

use super::rows::InTable;

impl InTable for KeyRec {
    const TABLE: &'static str = "hapax_keys";
    const KEY: &'static str = "key";
}

impl InTable for EventRec {
    const TABLE: &'static str = "hapax_events";
    const KEY: &'static str = "number";
    const NAMES: &'static [(&'static str, &'static str)] = &[("index", "ordinal")];
    const BESIDE: &'static [Field<Self>] = &[Field::derived("apart", Type::Bool, |event| Value::Bool(is_apart(event)))];
    const EVEN: &'static [&'static str] =
        &["received_ms", "channel", "kind", "account", "echo", "index", "part", "replays", "webhook_events", "apart"];
}

/// Its peer's name is not the one its thread goes by, or it is in no thread.
fn is_apart(event: &EventRec) -> bool {
    event.peer.as_ref().is_some_and(|peer| event.thread != Some(thread_hash(&event.account, peer)))
}

impl InTable for ItemRec {
    const TABLE: &'static str = "hapax_items";
    const KEY: &'static str = "number";
    const BESIDE: &'static [Field<Self>] =
        &[Field::derived("first", Type::Number, |item| Value::Int(item.events.first().copied().unwrap_or_default() as i64))];
}

impl InTable for LaneRec {
    const TABLE: &'static str = "hapax_lanes";
    const KEY: &'static str = "hash";
    /// A new lane is nobody's yet.
    const EVEN: &'static [&'static str] = &[
        "queue",
        "channel",
        "account",
        "priority",
        "due_ms",
        "joined_to",
        "joined",
        "turn",
        "alone_ms",
        "held_number",
        "held_attempt",
        "held_fence",
        "held_worker",
        "held_leased_ms",
        "held_until_ms",
    ];
}

/// One half of the row of a name; see `peers.rs`.
impl InTable for ThreadRec {
    const TABLE: &'static str = "hapax_peers";
    const KEY: &'static str = "hash";
    const THERE: &'static str = "last_ms IS NOT NULL";
    const NAMES: &'static [(&'static str, &'static str)] = &[("peer", "name")];
    const BESIDE: &'static [Field<Self>] =
        &[Field::derived("hash", Type::Hash, |thread| Value::hash(thread_hash(&thread.account, &thread.peer)))];
}

/// The other half.
impl InTable for NameRec {
    const TABLE: &'static str = "hapax_peers";
    const KEY: &'static str = "hash";
    const THERE: &'static str = "thread IS NOT NULL";
    const BESIDE: &'static [Field<Self>] = &[
        Field::derived("hash", Type::Hash, |name| Value::hash(thread_hash(&name.account, &name.name))),
        Field::derived("thread", Type::Hash, |name| Value::hash(thread_hash(&name.account, &name.peer))),
    ];
}

impl InTable for ProviderNameRec {
    const TABLE: &'static str = "hapax_provider_names";
    const KEY: &'static str = "hash";
    const BESIDE: &'static [Field<Self>] =
        &[Field::derived("hash", Type::Hash, |name| Value::hash(name_hash(&name.account, &name.provider_id)))];
}

impl InTable for MessageRec {
    const TABLE: &'static str = "hapax_messages";
    const KEY: &'static str = "number";
    const BESIDE: &'static [Field<Self>] =
        &[Field::derived("request", Type::Hash, |message| Value::hash(request_hash(&message.account, &message.request_id)))];
}

impl InTable for OutRec {
    const TABLE: &'static str = "hapax_outs";
    const KEY: &'static str = "number";
}

impl InTable for AttemptRec {
    const TABLE: &'static str = "hapax_attempts";
    const KEY: &'static str = "made_for";
    const NAMES: &'static [(&'static str, &'static str)] = &[("of", "made_for")];
}

impl InTable for AnswerRec {
    const TABLE: &'static str = "hapax_answers";
    const KEY: &'static str = "event";
}

impl InTable for ClaimRec {
    const TABLE: &'static str = "hapax_claims";
    const KEY: &'static str = "hash";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hapax_testkit::servers::Engine;
    use tokio_postgres::NoTls;

    use super::super::rows::{name_of, type_of, written};
    use super::*;

    /// Tables that keep no records.
    const OTHERS: [&str; 6] = ["hapax_copies", "hapax_nonces", "hapax_paused", "hapax_pieces", "hapax_schema", "hapax_settings"];

    fn described<R: InTable>() -> impl Iterator<Item = String> {
        written::<R>().map(|field| {
            let (name, kind) = (name_of::<R>(&field.column), type_of(field.column.kind));
            format!("{}.{name} {kind} {}", R::TABLE, if field.column.nullable { "YES" } else { "NO" })
        })
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_tables_are_as_the_records_are_described() {
        let Some(server) = Engine::Postgres.shared().await else { return };
        let url = server.fresh().await;
        drop(crate::open(&url, None).await.expect("a fresh database opens"));
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it answers");
        tokio::spawn(connection);
        let columns = "SELECT table_name::text, column_name::text, udt_name::text, is_nullable::text
            FROM information_schema.columns WHERE table_schema = current_schema()";
        let rows = client.query(columns, &[]).await.expect("the columns");
        // The halves of a row that is a name and a thread may be missing.
        let may_be_missing = |line: String| match line.strip_prefix("hapax_peers.").map(|column| column.split(' ').next()) {
            None | Some(Some("hash" | "account" | "name")) => line,
            Some(_) => line.replace(" NO", " YES"),
        };
        let found = rows.iter().map(|row| [0, 1, 2, 3].map(|at| row.get::<_, String>(at)));
        let found: BTreeSet<String> = found
            .filter(|[table, ..]| !OTHERS.contains(&table.as_str()))
            .map(|[table, name, kind, nullable]| format!("{table}.{name} {kind} {nullable}"))
            .collect();
        let mut ours: BTreeSet<String> = described::<KeyRec>().chain(described::<EventRec>()).collect();
        ours.extend(described::<ItemRec>().chain(described::<LaneRec>()).chain(described::<ThreadRec>()));
        ours.extend(described::<NameRec>().chain(described::<ProviderNameRec>()).chain(described::<MessageRec>()));
        ours.extend(described::<ClaimRec>());
        ours.extend(described::<OutRec>().chain(described::<AttemptRec>()).chain(described::<AnswerRec>()));
        let ours: BTreeSet<String> = ours.into_iter().map(may_be_missing).collect();
        assert_eq!(ours.difference(&found).collect::<Vec<_>>(), [""; 0], "described, and not so in the tables");
        assert_eq!(found.difference(&ours).collect::<Vec<_>>(), [""; 0], "in the tables, and not described");
    }
}
