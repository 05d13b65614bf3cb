//! Records as rows and back: the columns of the description, and behind them what follows from a record and only indexes need.

use std::borrow::Cow;
use std::sync::LazyLock;

use hapax_store::steps::record::{Column, Field, Record, Source, Type, Value};
use hapax_store::steps::records::{
    AnswerRec, AttemptRec, ClaimRec, EventRec, Hash, ItemRec, KeyRec, LaneRec, MessageRec, NameRec, OutRec, ProviderNameRec,
    ThreadRec, name_hash, request_hash, thread_hash,
};
use hapax_store::{PausedAccount, StoreError};

use super::sql::{Fields, Values, account_key, channel_key, over, unreadable};

/// A body above this is not put into the text of a statement.
pub(super) const BODY_BESIDE_BYTES: usize = 1 << 20;

/// A kind of record with a table of its own.
pub(super) trait InTable: Record {
    const TABLE: &'static str;
    /// Columns that are called otherwise here.
    const NAMES: &'static [(&'static str, &'static str)];
    /// Columns that follow from the record and are there to be searched.
    const BESIDE: &'static [Field<Self>];

    fn texts() -> &'static Texts;

    /// The columns of a record without its body.
    fn columns() -> &'static str {
        &Self::texts().columns
    }
}

/// Parts of statements, made once.
pub(super) struct Texts {
    columns: String,
    pub(super) with_body: String,
    pub(super) insert: String,
    /// Puts rows that are there already.
    pub(super) over: String,
}

impl Texts {
    fn of<R: InTable>() -> Self {
        let list = |fields: &mut dyn Iterator<Item = &'static Field<R>>| {
            fields.map(|field| name_of::<R>(&field.column)).collect::<Vec<_>>().join(",")
        };
        let written = list(&mut written::<R>());
        Self {
            columns: list(&mut R::plain_fields().iter()),
            with_body: list(&mut R::FIELDS.iter()),
            insert: format!("INSERT INTO {} ({written}) VALUES ", R::TABLE),
            over: over(&written),
        }
    }
}

pub(super) fn name_of<R: InTable>(column: &Column) -> &'static str {
    R::NAMES.iter().find(|(ours, _)| *ours == column.name).map_or(column.name, |(_, here)| here)
}

/// All columns that are written.
pub(super) fn written<R: InTable>() -> impl Iterator<Item = &'static Field<R>> {
    R::FIELDS.iter().chain(R::BESIDE)
}

macro_rules! tables {
    ($(
        $Record:ident in $table:literal
        $(, called $ours:literal as $here:literal)*
        $(, beside $name:literal: $kind:ident = |$record:ident| $value:expr)*;
    )+) => {$(
        impl InTable for $Record {
            const TABLE: &'static str = $table;
            const NAMES: &'static [(&'static str, &'static str)] = &[$(($ours, $here)),*];
            const BESIDE: &'static [Field<Self>] = &[$(Field::derived($name, Type::$kind, |$record| $value)),*];

            fn texts() -> &'static Texts {
                static TEXTS: LazyLock<Texts> = LazyLock::new(Texts::of::<$Record>);
                &TEXTS
            }
        }
    )+};
}

tables! {
    KeyRec in "hapax_keys", called "key" as "k";
    EventRec in "hapax_events", called "index" as "place",
        beside "channel_key": Id = |event| channel(&event.channel);
    ItemRec in "hapax_items",
        beside "channel_key": Id = |item| channel(&item.channel),
        beside "first_event": Number = |item| Value::Int(item.events.first().copied().unwrap_or_default() as i64);
    LaneRec in "hapax_lanes",
        beside "channel_key": Id = |lane| channel(&lane.channel),
        beside "account_key": Id = |lane| account(&lane.account);
    // The halves of the row of a name; see `peers.rs`.
    ThreadRec in "hapax_peers", called "peer" as "name",
        beside "hash": Hash = |thread| Value::hash(thread_hash(&thread.account, &thread.peer)),
        beside "channel_key": Id = |thread| channel(&thread.channel),
        beside "account_key": Id = |thread| account(&thread.account);
    NameRec in "hapax_peers",
        beside "hash": Hash = |name| Value::hash(thread_hash(&name.account, &name.name)),
        beside "thread": Hash = |name| Value::hash(thread_hash(&name.account, &name.peer));
    ProviderNameRec in "hapax_provider_names",
        beside "hash": Hash = |name| Value::hash(name_hash(&name.account, &name.provider_id));
    MessageRec in "hapax_messages",
        beside "request": Hash = |message| Value::hash(request_hash(&message.account, &message.request_id));
    OutRec in "hapax_outs", called "unknown" as "in_doubt",
        beside "channel_key": Id = |out| channel(&out.channel),
        beside "account_key": Id = |out| account(&out.account);
    AttemptRec in "hapax_attempts", called "of" as "of_number";
    AnswerRec in "hapax_answers";
    ClaimRec in "hapax_claims", called "key" as "k";
}

fn channel(name: &str) -> Value<'static> {
    Value::Bytes(Cow::Owned(channel_key(name).to_vec()))
}

fn account(name: &str) -> Value<'static> {
    Value::Bytes(Cow::Owned(account_key(name).to_vec()))
}

/// Puts a row, in the order of [`written`].
pub(super) fn put<R: InTable>(record: &R, values: &mut Values<'_>) {
    for field in written::<R>() {
        values.put((field.value)(record));
    }
}

/// Like [`put`], but for a body that goes beside.
pub(super) fn put_event(event: &EventRec, values: &mut Values<'_>) {
    for field in written::<EventRec>() {
        match (field.value)(event) {
            Value::Bytes(body) if body.len() > BODY_BESIDE_BYTES && field.column.name == "body" => {
                values.put(Value::Bytes(Cow::Borrowed(&[])));
            }
            value => values.put(value),
        }
    }
}

impl Source for Fields {
    type Error = StoreError;

    fn value(&mut self, column: &Column) -> Result<Value<'_>, StoreError> {
        let value = match column.kind {
            Type::Number => self.next::<Option<u64>>()?.map(|number| Value::Int(number as i64)),
            Type::Millis | Type::Small | Type::Code => self.next::<Option<i64>>()?.map(Value::Int),
            Type::Bool => self.next::<Option<bool>>()?.map(Value::Bool),
            Type::Text => self.next::<Option<String>>()?.map(|text| Value::Text(Cow::Owned(text))),
            Type::Hash | Type::Id | Type::Bytes => self.next::<Option<Vec<u8>>>()?.map(|bytes| Value::Bytes(Cow::Owned(bytes))),
        };
        Ok(value.unwrap_or(Value::Null))
    }

    fn has_bodies(&self) -> bool {
        self.has_more()
    }

    fn unreadable(&self, column: &Column) -> StoreError {
        unreadable(format!("`{}` is missing, or nothing that this version knows", column.name))
    }
}

/// Half a hash, or a number: what an event is listed under is looked at again when it is read.
pub(super) type ListKey = [u8; 16];

pub(super) const LISTED: &str = "list,number";

pub(super) fn list_of_webhook(webhook: u64) -> ListKey {
    u128::from(webhook).to_be_bytes()
}

pub(super) fn list_of_thread(thread: &Hash) -> ListKey {
    let mut list = [0; 16];
    list.copy_from_slice(&thread[..16]);
    list
}

/// Where an event is looked for: with its webhook when another event carries that, with its peer, and in its thread, which is its peer's but
/// for those who go by several names.
pub(super) fn lists_of(event: &EventRec) -> impl Iterator<Item = (ListKey, u64)> {
    let peer = event.peer.as_ref().map(|peer| thread_hash(&event.account, peer));
    lists(event.number, event.webhook, peer, event.thread)
}

pub(super) fn lists(number: u64, webhook: u64, peer: Option<Hash>, thread: Option<Hash>) -> impl Iterator<Item = (ListKey, u64)> {
    let webhook = (webhook != number).then(|| list_of_webhook(webhook));
    let peer = peer.as_ref().map(list_of_thread);
    let thread = thread.as_ref().map(list_of_thread).filter(|thread| Some(*thread) != peer);
    [webhook, peer, thread].into_iter().flatten().map(move |list| (list, number))
}

pub(super) fn put_listed(listed: &(ListKey, u64), values: &mut Values<'_>) {
    values.put(Value::Bytes(Cow::Borrowed(&listed.0)));
    values.put(Value::Int(listed.1 as i64));
}

pub(super) const PAUSED: &str = "channel,account,why,since_ms";

pub(super) fn read_paused(fields: &mut Fields) -> Result<PausedAccount, StoreError> {
    Ok(PausedAccount { channel: fields.next()?, account: fields.next()?, why: fields.next()?, since_ms: fields.next()? })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use hapax_testkit::servers::Engine;
    use mysql_async::Conn;
    use mysql_async::prelude::Queryable;

    use super::*;

    /// Tables that keep no records.
    const OTHERS: [&str; 9] = [
        "hapax_clock",
        "hapax_copies",
        "hapax_event_lists",
        "hapax_expiring",
        "hapax_numbers",
        "hapax_paused",
        "hapax_pieces",
        "hapax_schema",
        "hapax_settings",
    ];

    /// What such a column may be here.
    fn fitting(kind: Type) -> &'static [&'static str] {
        match kind {
            Type::Number => &["bigint unsigned"],
            Type::Millis => &["bigint"],
            Type::Small => &["int unsigned", "smallint unsigned"],
            Type::Code | Type::Bool => &["tinyint"],
            Type::Text => &["text", "longtext", "varchar"],
            Type::Hash => &["binary 32"],
            Type::Id => &["binary 16"],
            Type::Bytes => &["blob", "mediumblob", "longblob"],
        }
    }

    /// A column as the server has it: table, name, type, and whether it may be null.
    type Found = (String, String, String, String);

    /// Looks for the columns of a record among those that were found, and takes note of them.
    fn check<R: InTable>(found: &[Found], described: &mut HashSet<(String, String)>) {
        for field in written::<R>() {
            let name = name_of::<R>(&field.column);
            let column = found.iter().find(|(table, column, ..)| table == R::TABLE && column == name);
            let (.., kind, nullable) = column.unwrap_or_else(|| panic!("{}.{name} is not there", R::TABLE));
            assert!(fitting(field.column.kind).contains(&kind.as_str()), "{}.{name} is {kind}", R::TABLE);
            // The halves of a row that is a name and a thread may be missing.
            let is_half = R::TABLE == "hapax_peers" && !["hash", "account", "name"].contains(&name);
            assert_eq!(nullable == "YES", is_half || field.column.nullable, "{}.{name} may be null", R::TABLE);
            described.insert((R::TABLE.to_owned(), name.to_owned()));
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_tables_are_as_the_records_are_described() {
        let Some(server) = Engine::Mariadb.shared().await else { return };
        let url = server.fresh().await;
        drop(crate::open(&url, None).await.expect("a fresh database opens"));
        let mut conn = Conn::from_url(&url).await.expect("the server answers");
        let columns = "SELECT table_name, column_name, CONCAT(data_type, IF(column_type LIKE '%unsigned', ' unsigned', ''),
                IF(data_type = 'binary', CONCAT(' ', character_maximum_length), '')), is_nullable
            FROM information_schema.columns WHERE table_schema = DATABASE()";
        let mut found: Vec<Found> = conn.query(columns).await.expect("the columns");
        found.retain(|(table, ..)| !OTHERS.contains(&table.as_str()));
        let mut described = HashSet::new();
        check::<KeyRec>(&found, &mut described);
        check::<EventRec>(&found, &mut described);
        check::<ItemRec>(&found, &mut described);
        check::<LaneRec>(&found, &mut described);
        check::<ThreadRec>(&found, &mut described);
        check::<NameRec>(&found, &mut described);
        check::<ProviderNameRec>(&found, &mut described);
        check::<MessageRec>(&found, &mut described);
        check::<OutRec>(&found, &mut described);
        check::<AttemptRec>(&found, &mut described);
        check::<AnswerRec>(&found, &mut described);
        check::<ClaimRec>(&found, &mut described);
        found.retain(|(table, column, ..)| !described.contains(&(table.clone(), column.clone())));
        assert!(found.is_empty(), "in the tables, and not described: {found:?}");
    }
}
