//! Stores around other stores. A wrapper writes down only the calls that it treats in its own way; all others go through.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use hapax_domain::{EventId, Fence, ItemId, MessageId, ThreadId};

use super::{
    Accepted, Answer, Arrival, Changed, Copies, EntryId, EventDetail, EventQuery, EventRow, InboxLease, InboxQuery, InboxRow,
    LaneRef, LeaseRequest, MessageRow, Moving, NewMessage, OutboxLease, OutboxLeaseRequest, OutboxQuery, Outcome, Page,
    PausedAccount, Promise, Purged, Reads, Redrive, SendOutcome, Settled, Spelling, Stats, Store, StoreError, Submitted,
    ThreadMessage, ThreadQuery, ThreadRow,
};

/// Makes, from one line for each method of the contract: the wrapper's trait, in which each has a body that passes the call on, and the
/// contract for every wrapper. A line that is missing here does not compile.
macro_rules! pass_on {
    (
        Reads { $($read:ident($($read_arg:ident: $read_type:ty),*) -> $read_out:ty;)* }
        Store { $($write:ident($($write_arg:ident: $write_type:ty),*) -> $write_out:ty;)* }
    ) => {
        /// A store around another one.
        pub trait StoreWrapper: Send + Sync + 'static {
            /// The store behind it, or why a call does not get there.
            fn reach(&self) -> impl Future<Output = Result<&dyn Store, StoreError>> + Send;

            fn wait(&self) -> BoxFuture<'static, ()>;

            fn promise(&self) -> Promise;

            fn limit_outbox(&self, most: usize);

            fn learn_spelling(&self, spelling: Spelling);

            fn moving(&self) -> Result<&dyn Moving, StoreError>;

            $(fn $read(&self, $($read_arg: $read_type),*) -> impl Future<Output = Result<$read_out, StoreError>> + Send {
                async move { self.reach().await?.$read($($read_arg),*).await }
            })*

            $(fn $write(&self, $($write_arg: $write_type),*) -> impl Future<Output = Result<$write_out, StoreError>> + Send {
                async move { self.reach().await?.$write($($write_arg),*).await }
            })*
        }

        #[async_trait]
        impl<W: StoreWrapper> Reads for W {
            $(async fn $read(&self, $($read_arg: $read_type),*) -> Result<$read_out, StoreError> {
                StoreWrapper::$read(self, $($read_arg),*).await
            })*
        }

        #[async_trait]
        impl<W: StoreWrapper> Store for W {
            fn wait(&self) -> BoxFuture<'static, ()> {
                StoreWrapper::wait(self)
            }

            fn promise(&self) -> Promise {
                StoreWrapper::promise(self)
            }

            fn limit_outbox(&self, most: usize) {
                StoreWrapper::limit_outbox(self, most);
            }

            fn learn_spelling(&self, spelling: Spelling) {
                StoreWrapper::learn_spelling(self, spelling);
            }

            fn moving(&self) -> Result<&dyn Moving, StoreError> {
                StoreWrapper::moving(self)
            }

            $(async fn $write(&self, $($write_arg: $write_type),*) -> Result<$write_out, StoreError> {
                StoreWrapper::$write(self, $($write_arg),*).await
            })*
        }
    };
}

pass_on! {
    Reads {
        events(query: EventQuery) -> Page<EventRow>;
        event(id: EventId) -> Option<EventDetail>;
        inbox(query: InboxQuery) -> Page<InboxRow>;
        answer(id: EventId) -> Option<Answer>;
        threads(query: ThreadQuery) -> Page<ThreadRow>;
        thread(id: &ThreadId) -> Option<ThreadRow>;
        thread_messages(id: &ThreadId, before: Option<EntryId>, limit: usize) -> Page<ThreadMessage>;
        message(id: MessageId) -> Option<MessageRow>;
        message_by_provider_id(account: &str, provider_id: &str) -> Option<MessageId>;
        outbox(query: OutboxQuery) -> Page<MessageRow>;
        paused_accounts() -> Vec<PausedAccount>;
        stats() -> Stats;
    }
    Store {
        accept(arrival: Arc<Arrival>) -> Vec<Accepted>;
        note_copies(copies: Vec<Copies>) -> ();
        lease_inbox(ask: LeaseRequest) -> Vec<InboxLease>;
        extend(leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Vec<bool>;
        settle_inbox(lane: LaneRef, fence: Fence, outcome: Outcome) -> Settled;
        submit(message: NewMessage) -> Submitted;
        lease_outbox(ask: OutboxLeaseRequest) -> Vec<OutboxLease>;
        begin(lane: LaneRef, fence: Fence) -> Settled;
        extend_outbox(leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Vec<bool>;
        settle_outbox(lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Settled;
        retry_message(id: MessageId) -> Changed;
        cancel_message(id: MessageId) -> Changed;
        pause_account(channel: &str, account: &str, why: Option<&str>) -> ();
        mark_read(thread: &ThreadId) -> bool;
        redrive(which: Redrive, max: usize) -> usize;
        replay(event: EventId) -> Option<ItemId>;
        purge(retention: &[(String, i64)], max: usize) -> Purged;
        remember(name: &str, value: &str) -> String;
        amend(name: &str, expected: Option<&str>, new: Option<&str>) -> Option<String>;
        ping() -> ();
    }
}
