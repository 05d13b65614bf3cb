//! Plain data and pure rules: what the words of the design mean.
//!
//! *Invariant:* nothing in here does I/O, reads a clock, draws a random number or awaits.

pub mod address;
pub mod age;
pub mod draft;
pub mod event;
pub mod fingerprint;
pub mod ids;
pub mod key;
pub mod limits;
pub mod message;
pub mod outgoing;
pub mod retry;
pub mod send_at;
pub mod status;
pub mod thread;
pub mod units;

pub use draft::{BadDraft, Draft};
pub use event::{Event, Identity, Kind};
pub use ids::{EventId, Fence, ItemId, MessageId};
pub use key::{ChannelKey, EventKey};
pub use message::{Direction, Priority, Steps, status_of_inbound};
pub use outgoing::{Changed, Outgoing, Past, PendingSend, Round, SendOutcome, Word};
pub use retry::RetryPolicy;
pub use send_at::SendAt;
pub use status::Status;
pub use thread::ThreadId;
