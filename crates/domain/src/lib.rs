//! Plain data and pure rules: what the words of the design mean.
//!
//! *Invariant:* nothing in here does I/O, reads a clock, draws a random number or awaits.

pub mod address;
pub mod age;
pub mod claim;
pub mod draft;
pub mod event;
pub mod filter;
pub mod fingerprint;
pub mod ids;
pub mod key;
pub mod limits;
pub mod message;
pub mod outgoing;
pub mod plain_book;
pub mod poll_book;
pub mod retry;
pub mod run_book;
pub mod send_at;
pub mod status;
pub mod thread;
pub mod turn;
pub mod units;

pub use claim::{Claim, ClaimAnswer, ClaimKey, ClaimOp};
pub use draft::{BadDraft, Draft};
pub use event::{Event, Identity, Kind};
pub use ids::{EventId, Fence, ItemId, MessageId};
pub use key::{ChannelKey, EventKey};
pub use message::{Direction, Priority, Steps, status_of_inbound};
pub use outgoing::{Changed, Outgoing, Past, PendingSend, Round, SendOutcome, Word};
pub use plain_book::PlainBook;
pub use poll_book::PollBook;
pub use retry::RetryPolicy;
pub use run_book::{Replay, RunBook};
pub use send_at::SendAt;
pub use status::Status;
pub use thread::ThreadId;
pub use turn::Coalesce;
