//! Moving everything from one store to another, in records that no engine calls its own.
//!
//! Numbers and times are kept, and so all ids: a provider's retry after the move is still a copy, and a delivery still carries the same
//! `Idempotency-Key`. Leases are not moved: what was leased waits again, with the attempt counted; what was begun stays begun, in doubt.

use async_trait::async_trait;
use hapax_domain::ids;

use super::pieces::Piece;
use super::registers::Register;
use super::steps::records::{
    AnswerRec, AttemptRec, ClaimRec, EventRec, Hash, ItemRec, KeyRec, MessageRec, NameRec, OutRec, ProviderNameRec, Queue,
    ThreadRec,
};
use super::{Copies, PausedAccount, StoreError};

/// One record on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    Setting {
        name: String,
        register: Register,
    },
    Paused(PausedAccount),
    Key(KeyRec),
    Thread(ThreadRec),
    Name(NameRec),
    /// With what it carries.
    Event(EventRec),
    Copies(Copies),
    Answer(AnswerRec),
    Item(ItemRec),
    Message(MessageRec),
    ProviderName(ProviderNameRec),
    Out(OutRec),
    Attempt(AttemptRec),
    Piece(Piece),
    /// With its result.
    Claim(Box<ClaimRec>),
}

/// The kinds of record, in the order in which they are moved: what a record refers to comes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Settings,
    Paused,
    Keys,
    Threads,
    Names,
    Events,
    Copies,
    Answers,
    Items,
    Messages,
    ProviderNames,
    Outs,
    Attempts,
    Pieces,
    Claims,
}

impl Table {
    pub const ALL: [Table; 15] = [
        Table::Settings,
        Table::Paused,
        Table::Keys,
        Table::Threads,
        Table::Names,
        Table::Events,
        Table::Copies,
        Table::Answers,
        Table::Items,
        Table::Messages,
        Table::ProviderNames,
        Table::Outs,
        Table::Attempts,
        Table::Pieces,
        Table::Claims,
    ];

    fn next(self) -> Option<Table> {
        Table::ALL.into_iter().skip_while(|table| *table != self).nth(1)
    }
}

/// Where to go on with an export. Of one store and one run: nobody else can read it.
#[derive(Clone, Debug)]
pub struct Bookmark {
    pub table: Table,
    pub after: Option<After>,
}

impl Bookmark {
    /// Where every export begins.
    pub fn start() -> Self {
        Self { table: Table::ALL[0], after: None }
    }

    /// Goes on in the same kind of record, or with the next kind; nothing after the last.
    pub fn then(self, after: Option<After>) -> Option<Self> {
        match after {
            Some(after) => Some(Self { after: Some(after), ..self }),
            None => Some(Self { table: self.table.next()?, after: None }),
        }
    }
}

/// The last record of a page, by the key in whose order the engine reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    Number(u64),
    Pair(u64, u64),
    Triple(u64, u64, u64),
    Hash(Hash),
    /// The name of a setting.
    Setting(String),
    /// The name and number of a piece.
    Piece(String, u32),
    Attempt(Queue, u64, u64),
    /// Account and name; `None` stands before the first.
    Name(Option<(String, String)>),
    /// A period of keys, and the last one read of it.
    Period(i64, Option<Vec<u8>>),
}

/// One page: its records, and where to go on if there may be more of this kind.
pub type Dumped = (Vec<Moved>, Option<After>);

/// The setting that marks a store which is being filled; it is gone when the store is whole.
pub const IMPORTING: &str = "importing";

/// The setting of an export that says a number above all that its store handed out: also above the fences of claims that are gone.
pub const NUMBERS: &str = "numbers";

/// Settings or pieces of one page at most: each may be as long as a register is.
pub const LONG_PAGE: usize = 16;

/// Bodies of one page; its last may go beyond.
pub const PAGE_BYTES: u64 = 8 << 20;

/// What a store can do that can be moved. Nobody else may use it meanwhile.
#[async_trait]
pub trait Moving: Send + Sync {
    /// The next records, at most about `limit`, and where to go on; a page may be empty. `None`: that was the last one.
    ///
    /// Keys whose window is over are left out, and so are settings that have ended. A store that is only half filled is refused.
    async fn export(&self, from: Option<Bookmark>, limit: usize) -> Result<(Vec<Moved>, Option<Bookmark>), StoreError>;

    /// Marks the store as being filled. Refused when there is anything in it.
    async fn begin_import(&self) -> Result<(), StoreError>;

    /// Puts records, in the order in which they were exported. When it fails, or is cut off, the store is of no use: one begins again
    /// with an empty one.
    async fn import(&self, records: Vec<Moved>) -> Result<(), StoreError>;

    /// Says that all is there. From here on it is a store like any other, and hands out only numbers above all that were moved.
    async fn end_import(&self) -> Result<(), StoreError>;

    /// True from [`Moving::begin_import`] to [`Moving::end_import`], over restarts too.
    async fn is_half_filled(&self) -> Result<bool, StoreError>;
}

impl Moved {
    /// The highest number, or fence, in the record.
    pub fn highest(&self) -> u64 {
        match self {
            Moved::Setting { name, register } if name == NUMBERS => register.value.parse().unwrap_or_default(),
            Moved::Setting { .. } | Moved::Paused(_) | Moved::Name(_) | Moved::Piece(_) => 0,
            Moved::Key(key) => key.event,
            Moved::Thread(thread) => thread.purged_to.max(thread.read_to),
            Moved::Event(event) => event.number,
            Moved::Copies(copies) => ids::number_of(copies.event.0),
            Moved::Answer(answer) => answer.event,
            Moved::Item(item) => item.number,
            Moved::Message(message) => message.number,
            Moved::ProviderName(name) => name.message.unwrap_or_default(),
            Moved::Out(out) => out.number,
            Moved::Claim(claim) => claim.fence,
            Moved::Attempt(attempt) => attempt.of.max(attempt.item).max(attempt.fence),
        }
    }
}

/// Why a store cannot be filled.
pub fn not_empty() -> StoreError {
    StoreError::Refused("the store is not empty; everything can only be moved into a new one".to_owned())
}

/// Why a store that an import was cut off from is of no use.
pub fn half_filled() -> StoreError {
    StoreError::Refused(
        "the store is half filled: an import into it was cut off or is still under way. Empty it, and import again".to_owned(),
    )
}
