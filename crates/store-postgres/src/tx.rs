//! One transaction: few round trips, and an answer to "was it committed?" even when the server's own answer is lost.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use deadpool_postgres::{ClientWrapper, Object};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join, join_all};
use hapax_store::Redrive;
use hapax_store::clock::Clock;
use hapax_store::steps::records::{ItemRec, KeyRec, LaneRec};
use hapax_store::steps::{Ahead, Changes, Due, First, Loaded, Pool, RecentCopies, Tx, TxError, Wanted};
use tokio_postgres::Row;

use super::ahead;
use super::claim::claim;
use super::connect::{CONNECT, Pools};
use super::failure::Failure;
use super::load::load;
use super::rows::Fields;
use super::sql_call::{SqlCall, in_time, prepare, run, run_one, send, together};
use super::{lanes, save};

/// One value of the sequence stands for so many numbers.
pub(super) const BLOCK: u64 = 1_024;

/// As many values of the sequence as are needed, and the server's clock.
const NUMBERS: &str = "SELECT nextval('hapax_numbers'), (extract(epoch FROM clock_timestamp()) * 1000)::int8
    FROM generate_series(1, $1::int4)";

/// How long to look for the server after a commit whose answer was lost.
const RESOLVE: Duration = Duration::from_secs(5);
const RESOLVE_PAUSE: Duration = Duration::from_millis(100);

/// Waits for a transaction that still runs under this nonce, and gives the random part of whoever was committed under it.
const RESOLVE_NONCE: &str = "INSERT INTO hapax_nonces (nonce, at_ms)
    VALUES ($1::int8, (extract(epoch FROM clock_timestamp()) * 1000)::int8)
    ON CONFLICT (nonce) DO UPDATE SET at_ms = hapax_nonces.at_ms RETURNING salt";
const WRITE_NONCE: &str = "INSERT INTO hapax_nonces (nonce, at_ms, salt)
    VALUES ($1::int8, (extract(epoch FROM clock_timestamp()) * 1000)::int8, $2::bytea)";

/// Names a transaction, for ever. The value of the sequence keeps the rows in order; after a crash of the server it may come again, since
/// what was drawn and not committed was not synced. The random part does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Nonce {
    drawn: i64,
    salt: [u8; 16],
}

pub struct PostgresTx {
    connection: Held,
    pools: Pools,
    now_ms: i64,
    nonce: Nonce,
    /// Values of the sequence, lowest first.
    blocks: Vec<u64>,
    handed_out: u64,
    /// What was saved and not sent yet: it goes together with the commit.
    unsent: Option<Changes>,
    /// Something would be lost with it; a transaction that only looked needs no nonce.
    wrote: bool,
    ahead: Ahead,
    copies: Arc<RecentCopies>,
}

/// What a transaction is begun with.
pub(super) struct Beginning<'b> {
    pub(super) pools: &'b Pools,
    pub(super) pool: Pool,
    pub(super) numbers: usize,
    pub(super) first: &'b First,
    pub(super) clock: Option<&'b dyn Clock>,
    pub(super) copies: &'b Arc<RecentCopies>,
}

/// A connection inside a transaction. However it is let go, the transaction does not stay open.
struct Held(Option<Object>);

impl Held {
    fn client(&self) -> Result<&ClientWrapper, Failure> {
        self.0.as_deref().ok_or(Failure::NoConnection("given up".to_owned()))
    }

    /// The transaction has ended: the connection goes back to its pool as it is.
    fn release(&mut self) {
        self.0 = None;
    }

    /// Nobody knows what the connection is doing: it is closed, and the server ends its transaction.
    fn discard(&mut self) {
        self.0.take().map(Object::take);
    }
}

impl Drop for Held {
    /// Sends the end before anybody else can send anything on this connection; nobody has to wait for the answer.
    fn drop(&mut self) {
        if let Some(client) = &self.0 {
            let _ = client.batch_execute("ROLLBACK").now_or_never();
        }
    }
}

impl PostgresTx {
    pub(super) async fn begin(how: &Beginning<'_>) -> Result<PostgresTx, Failure> {
        let mut tx = PostgresTx {
            connection: Held(Some(how.pools.get(how.pool).await?)),
            pools: how.pools.clone(),
            now_ms: 0,
            nonce: Nonce { drawn: 0, salt: rand::random() },
            blocks: Vec::new(),
            handed_out: 0,
            unsent: None,
            wrote: false,
            ahead: Ahead::default(),
            copies: Arc::clone(how.copies),
        };
        let begun = tx.begun(how).await;
        (tx.blocks, tx.now_ms) = tx.checked(begun).await?;
        tx.nonce.drawn = tx.blocks.first().copied().unwrap_or_default() as i64;
        Ok(tx)
    }

    async fn begun(&mut self, how: &Beginning<'_>) -> Result<(Vec<u64>, i64), Failure> {
        let blocks = (how.numbers as u64).div_ceil(BLOCK).max(1);
        let client = self.connection.client()?;
        if how.first.claimed.is_empty() || blocks > 1 || how.copies.are_many() {
            let begun = tokio::time::timeout(CONNECT, begin_on(client, blocks as i32)).await;
            let (blocks, now_ms) = begun.unwrap_or(Err(Failure::Silent))?;
            return Ok((blocks, how.clock.map_or(now_ms, Clock::now_ms)));
        }
        let now_ms = how.clock.map(Clock::now_ms);
        let (block, now_ms, ahead) = in_time(ahead::begin(client, how.first, BLOCK, now_ms)).await?;
        self.ahead = ahead;
        Ok((vec![block], now_ms))
    }

    /// Ends the transaction after a failure, before the step may be run again: its locks must not be in its own way. A connection
    /// that failed in any way the server did not explain is not used again.
    async fn after(&mut self, failure: Failure) -> Failure {
        let rolled_back = match self.connection.client() {
            Ok(client) if failure.is_definite() => in_time(async { Ok(client.batch_execute("ROLLBACK").await?) }).await.is_ok(),
            _ => false,
        };
        if rolled_back {
            self.connection.release();
        } else {
            self.connection.discard();
        }
        failure
    }

    /// Ends the transaction if this went wrong.
    async fn checked<T>(&mut self, done: Result<T, Failure>) -> Result<T, Failure> {
        match done {
            Ok(done) => Ok(done),
            Err(failure) => Err(self.after(failure).await),
        }
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        if let Some(changes) = self.unsent.take() {
            self.ahead = Ahead::default();
            let asks = save::asks(&changes);
            self.wrote |= !asks.is_empty();
            let flushed = run(self.connection.client()?, &asks).await;
            self.checked(flushed).await?;
        }
        Ok(())
    }

    /// Draws numbers anew, as many as before.
    async fn draw_again(&mut self) -> Result<(), Failure> {
        let drawn = in_time(draw(self.connection.client()?, self.blocks.len() as i32)).await;
        (self.blocks, _) = self.checked(drawn).await?;
        self.handed_out = 0;
        Ok(())
    }

    async fn commit_all(&mut self, changes: &Changes) -> Result<(), TxError> {
        let mut asks = save::asks(changes);
        self.wrote |= !asks.is_empty();
        if self.wrote {
            asks.push(SqlCall::new(WRITE_NONCE, vec![Box::new(self.nonce.drawn), Box::new(self.nonce.salt.to_vec())]));
        }
        let sent = in_time(send_and_commit(self.connection.client()?, &together(asks))).await;
        match sent {
            Ok(()) => {
                self.connection.release();
                Ok(())
            }
            Err(failure) if failure.is_definite() || !self.wrote => Err(self.after(failure).await.into()),
            Err(_) => {
                self.connection.discard();
                resolve(&self.pools, self.nonce).await
            }
        }
    }
}

async fn begin_on(client: &ClientWrapper, blocks: i32) -> Result<(Vec<u64>, i64), Failure> {
    // Known to the connection before the transaction begins, so that both go in one round trip.
    client.prepare_cached(NUMBERS).await?;
    let (begun, numbers) = join(client.batch_execute("BEGIN"), draw(client, blocks)).await;
    begun?;
    numbers
}

/// Values of the sequence, lowest first, and the server's time.
async fn draw(client: &ClientWrapper, blocks: i32) -> Result<(Vec<u64>, i64), Failure> {
    let ask = SqlCall::new(NUMBERS, vec![Box::new(blocks)]);
    let statement = client.prepare_cached(NUMBERS).await?;
    let mut blocks = Vec::new();
    let mut now_ms = 0;
    for row in send(client, &statement, &ask).await? {
        let mut fields = Fields::new(&row);
        blocks.push(fields.number()?);
        now_ms = fields.take()?;
    }
    blocks.sort_unstable();
    Ok((blocks, now_ms))
}

/// One round trip. A commit after a statement that failed is a rollback: the statement's failure is the answer.
async fn send_and_commit(client: &ClientWrapper, asks: &[SqlCall<'_>]) -> Result<(), Failure> {
    let statements = prepare(client, asks).await?;
    let commit = async { Ok(client.batch_execute("COMMIT").await.map(|()| Vec::new())?) };
    let mut sent: Vec<BoxFuture<'_, Result<Vec<Row>, Failure>>> = Vec::with_capacity(asks.len() + 1);
    for (ask, statement) in asks.iter().zip(&statements) {
        sent.push(Box::pin(send(client, statement, ask)));
    }
    sent.push(Box::pin(commit));
    join_all(sent).await.into_iter().collect::<Result<Vec<_>, _>>().map(|_| ())
}

/// Finds out what became of a commit whose answer was lost, by writing its nonce on another connection.
///
/// If the nonce is there already, the commit was made. If not, it never will be: the old transaction could only end with its own nonce,
/// which is now taken; if it was taken by somebody else, the server has died since and forgotten that it was drawn before. When the server cannot be reached for the whole time, the error leaves it open: whoever sent the webhook comes
/// again, and the keys decide whether it is a copy.
async fn resolve(pools: &Pools, nonce: Nonce) -> Result<(), TxError> {
    let found_out = async {
        loop {
            if let Ok(committed) = ask_for(pools, nonce).await {
                return committed;
            }
            tokio::time::sleep(RESOLVE_PAUSE).await;
        }
    };
    match tokio::time::timeout(RESOLVE, found_out).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(TxError::Conflict("the connection was lost before the commit".to_owned())),
        Err(_) => Err(Failure::InDoubt.into()),
    }
}

async fn ask_for(pools: &Pools, nonce: Nonce) -> Result<bool, Failure> {
    let client = pools.get(Pool::Admin).await?;
    let asked = run_one(&client, SqlCall::new(RESOLVE_NONCE, vec![Box::new(nonce.drawn)])).await;
    match asked {
        Ok(rows) => {
            let salt: Option<Vec<u8>> = rows.first().map_or(Ok(None), |row| Fields::new(row).take())?;
            Ok(salt.is_some_and(|salt| salt == nonce.salt))
        }
        Err(failure) => {
            drop(Object::take(client));
            Err(failure)
        }
    }
}

#[async_trait]
impl Tx for PostgresTx {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn number(&mut self) -> u64 {
        let block = self.blocks.get((self.handed_out / BLOCK) as usize).or(self.blocks.last()).copied().unwrap_or_default();
        self.handed_out += 1;
        block * BLOCK + (self.handed_out - 1) % BLOCK
    }

    fn keeps_alone(&self) -> bool {
        true
    }

    async fn claim(&mut self, keys: &[KeyRec]) -> Result<Vec<Option<KeyRec>>, TxError> {
        let tried = self.ahead.won(keys);
        let claimed = claim(self.connection.client()?, keys, self.now_ms, tried).await;
        let claimed = self.checked(claimed).await?;
        self.copies.note(&claimed);
        self.wrote |= claimed.iter().any(Option::is_none);
        Ok(claimed)
    }

    async fn load(&mut self, wanted: &Wanted) -> Result<Loaded, TxError> {
        self.flush().await?;
        let (seen, left) = self.ahead.answer(wanted);
        if left.is_empty() {
            return Ok(seen);
        }
        let loaded = load(self.connection.client()?, &left, true, seen).await;
        Ok(self.checked(loaded).await?)
    }

    async fn due_lanes(&mut self, due: &Due<'_>) -> Result<Vec<LaneRec>, TxError> {
        self.flush().await?;
        let lanes = lanes::due(self.connection.client()?, due, self.now_ms).await;
        let lanes = self.checked(lanes).await?;
        // Another transaction that began later may have leased one of them, and ended, before we came to it.
        if !lanes.is_empty() {
            self.draw_again().await?;
        }
        Ok(lanes)
    }

    async fn parked(&mut self, which: &Redrive, after: u64, max: usize) -> Result<Vec<ItemRec>, TxError> {
        self.flush().await?;
        let items = lanes::parked(self.connection.client()?, which, after, max).await;
        Ok(self.checked(items).await?)
    }

    async fn save(&mut self, changes: Changes) -> Result<(), TxError> {
        self.flush().await?;
        self.unsent = Some(changes);
        Ok(())
    }

    async fn commit(mut self) -> Result<(), TxError> {
        let changes = self.unsent.take().unwrap_or_default();
        self.commit_all(&changes).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::connect::Server;
    use super::super::migrate;
    use super::*;
    use hapax_testkit::servers::Engine as Servers;

    async fn begin(pools: &Pools) -> Result<PostgresTx, Failure> {
        let (first, copies) = (First::default(), Arc::default());
        PostgresTx::begin(&Beginning { pools, pool: Pool::Workers, numbers: 1, first: &first, clock: None, copies: &copies })
            .await
    }

    /// The server dies between a draw and its sync, and draws the same again for somebody else.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lost_commit_is_not_taken_for_one_that_was_made_under_the_same_number() {
        let Some(mut server) = Servers::Postgres.private().await else { return };
        let address = Server::new(&server.fresh().await).expect("an address");
        migrate::prepare(&address).await.expect("tables");
        let pools = address.pools().expect("connections");
        let mut lost = begin(&pools).await.expect("begun");
        lost.wrote = true;
        server.kill9().await;
        server.restart().await;

        // Whether it comes again by itself depends on what was synced by chance: here it does.
        let client = pools.get(Pool::Admin).await.expect("a connection");
        let set = format!("SELECT setval('hapax_numbers', {}, false)", lost.nonce.drawn);
        client.batch_execute(&set).await.expect("set");
        let mut other = begin(&pools).await.expect("begun");
        other.wrote = true;
        assert_eq!(other.nonce.drawn, lost.nonce.drawn);
        assert_ne!(other.nonce, lost.nonce, "a nonce never comes again");
        assert_eq!(other.number(), lost.number(), "the same fence, if both were handed out");
        let nonce = other.nonce;
        other.commit().await.expect("committed");
        let told = lost.commit().await;
        assert!(matches!(told, Err(TxError::Conflict(_))), "the one that was lost hands out nothing: {told:?}");
        assert!(ask_for(&pools, nonce).await.expect("answered"), "the one that was made is known");
    }
}
