//! Stores around other stores. A wrapper writes down only the calls that it treats in its own way; all others go through.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax_domain::{Claim, ClaimAnswer, ClaimKey, ClaimOp, EventId, Fence, ItemId, MessageId, ThreadId};

use super::{
    Accepted, Answer, Arrival, Changed, ClaimQuery, Claims, Copies, EntryId, EventDetail, EventQuery, EventRow, Forget,
    Forgotten, Inbox, InboxLease, InboxQuery, InboxRow, LaneRef, LeaseRequest, MessageRow, Moving, NewMessage, Outbox,
    OutboxLease, OutboxLeaseRequest, OutboxQuery, Outcome, Page, PausedAccount, Pieces, Promise, Purged, Reads, Redrive,
    Registers, SendOutcome, Settled, Stats, Store, StoreError, Submitted, ThreadMessage, ThreadQuery, ThreadRow, Upkeep, WithBot,
};

/// Makes, from one line for each method of the contract: the wrapper's trait, in which each has a body that passes the call on, and the
/// contract, group by group, for every wrapper. A line that is missing here does not compile. What does not wait for the store behind it
/// stands whole in the second braces.
macro_rules! pass_on {
    ($($group:ident {
        $($method:ident($($arg:ident: $type:ty),*) -> $out:ty;)*
    } { $($beside:tt)* })*) => {
        /// A store around another one.
        pub trait StoreWrapper: Send + Sync + 'static {
            /// The store behind it, or why a call does not get there.
            fn reach(&self) -> impl Future<Output = Result<&dyn Store, StoreError>> + Send;

            fn wait(&self) -> BoxFuture<'static, ()>;

            fn promise(&self) -> Promise;

            fn limit_outbox(&self, most: usize);

            fn limit_claims(&self, most: usize);

            fn moving(&self) -> Result<&dyn Moving, StoreError>;

            $($(fn $method(&self, $($arg: $type),*) -> impl Future<Output = Result<$out, StoreError>> + Send {
                async move { self.reach().await?.$method($($arg),*).await }
            })*)*
        }

        $(#[async_trait]
        impl<W: StoreWrapper> $group for W {
            $(async fn $method(&self, $($arg: $type),*) -> Result<$out, StoreError> {
                StoreWrapper::$method(self, $($arg),*).await
            })*

            $($beside)*
        })*
    };
}

pass_on! {
    Inbox {
        accept(arrival: Arc<Arrival>) -> Vec<Accepted>;
        note_copies(copies: Vec<Copies>) -> ();
        lease_inbox(ask: LeaseRequest) -> Vec<InboxLease>;
        extend(leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Vec<bool>;
        settle_inbox(lane: LaneRef, fence: Fence, outcome: Outcome) -> Settled;
        redrive(which: Redrive, max: usize) -> usize;
        replay(event: EventId) -> Option<ItemId>;
        mark_read(thread: &ThreadId) -> bool;
    } {}
    Outbox {
        submit(message: NewMessage) -> Submitted;
        lease_outbox(ask: OutboxLeaseRequest) -> Vec<OutboxLease>;
        begin(lane: LaneRef, fence: Fence) -> Settled;
        extend_outbox(leases: Vec<(LaneRef, Fence)>, hold_ms: i64) -> Vec<bool>;
        settle_outbox(lane: LaneRef, fence: Fence, outcome: SendOutcome) -> Settled;
        settle_late(id: MessageId, attempt: u32, outcome: SendOutcome) -> Changed;
        retry_message(id: MessageId) -> Changed;
        cancel_message(id: MessageId) -> Changed;
        pause_account(channel: &str, account: &str, why: Option<&str>) -> ();
    } {
        fn limit_outbox(&self, most: usize) {
            StoreWrapper::limit_outbox(self, most);
        }
    }
    Claims {
        claims(ops: Vec<(ClaimKey, ClaimOp)>) -> Vec<ClaimAnswer>;
        claim(key: &ClaimKey) -> Option<Claim>;
        list_claims(query: ClaimQuery) -> Page<Claim>;
    } {
        fn limit_claims(&self, most: usize) {
            StoreWrapper::limit_claims(self, most);
        }
    }
    Registers {
        remember(name: &str, value: &str) -> String;
        amend(name: &str, expected: Option<&str>, new: Option<&str>, keep_ms: Option<i64>) -> Option<String>;
    } {}
    Pieces {
        put_piece(name: &str, n: u32, bytes: Bytes, keep_ms: i64) -> ();
        piece(name: &str, n: u32) -> Option<Bytes>;
        drop_pieces(name: &str) -> ();
        pieces_held() -> Vec<(String, u64)>;
    } {}
    Upkeep {
        purge(retention: &[(String, i64)], max: usize) -> Purged;
        forget(what: Forget) -> Forgotten;
        backup(to: &Path) -> ();
        ping() -> ();
    } {
        fn wait(&self) -> BoxFuture<'static, ()> {
            StoreWrapper::wait(self)
        }

        fn promise(&self) -> Promise {
            StoreWrapper::promise(self)
        }

        fn moving(&self) -> Result<&dyn Moving, StoreError> {
            StoreWrapper::moving(self)
        }
    }
    Reads {
        events(query: EventQuery) -> Page<EventRow>;
        details(ids: Vec<EventId>) -> Vec<Option<EventDetail>>;
        inbox(query: InboxQuery) -> Page<InboxRow>;
        with_bot(channel: &str) -> Vec<WithBot>;
        answer(id: EventId) -> Option<Answer>;
        threads(query: ThreadQuery) -> Page<ThreadRow>;
        thread(id: &ThreadId) -> Option<ThreadRow>;
        person(name: &ThreadId) -> Option<ThreadRow>;
        thread_messages(id: &ThreadId, before: Option<EntryId>, limit: usize) -> Page<ThreadMessage>;
        message(id: MessageId) -> Option<MessageRow>;
        message_by_provider_id(account: &str, provider_id: &str) -> Option<MessageId>;
        outbox(query: OutboxQuery) -> Page<MessageRow>;
        paused_accounts() -> Vec<PausedAccount>;
        stats() -> Stats;
    } {}
}
