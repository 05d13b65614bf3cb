//! Connections: made, set up, shared out, and thrown away when in doubt.
//!
//! The driver's own pool is not used: it takes back connections that are in the middle of a transaction it did not begin itself, and waits for
//! the rest of an answer without end. Here a connection comes back only when whoever had it says that it is clean; all others are closed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hapax_store::StoreError;
use hapax_store::steps::TxError;
use hapax_store::steps::record::Record;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, Params, Row, ServerError, Value};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::sql::{Fields, Sql, unreadable};

/// The longest wait for a free connection.
const ACQUIRE: Duration = Duration::from_secs(2);
/// The longest wait for a new one: a server under load takes its time to make it.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest wait for the answer to one packet.
const CALL: Duration = Duration::from_secs(5);
/// A connection that lay idle longer than this is asked whether it still lives.
const TRUSTED: Duration = Duration::from_secs(1);

/// Why a packet came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{0}")]
    Server(ServerError),
    /// The connection broke, or nothing was heard in time. Nobody knows how far the server came.
    #[error("{0}")]
    Lost(String),
    #[error("no connection was free for {} s", ACQUIRE.as_secs())]
    Busy,
}

impl Failure {
    fn of(error: Error) -> Self {
        match error {
            Error::Server(error) => Failure::Server(error),
            other => Failure::Lost(other.to_string()),
        }
    }

    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Failure::Server(error) => Some(error.code),
            Failure::Lost(_) | Failure::Busy => None,
        }
    }

    /// Somebody else was in the way: a deadlock (1213), a lock waited for too long (1205), a row that changed (1020), or a row that is there
    /// already although it was not a moment ago (1062). Never a duplicate of anything.
    pub(super) fn in_the_way(&self) -> bool {
        matches!(self.code(), Some(1213 | 1205 | 1020 | 1062))
    }

    /// Wrong password (1045, 1698), no right to (1044, 1142, 1227), no such database (1049), a packet or body that is too large (1153, 1105): what a
    /// person has to put right. So is a statement or a value that the server does not take, whatever its number.
    fn retryable(&self) -> bool {
        let refused = |error: &ServerError| ["22", "23", "42", "0A"].iter().any(|class| error.state.starts_with(class));
        let known = matches!(self.code(), Some(1044 | 1045 | 1049 | 1105 | 1142 | 1153 | 1227 | 1698));
        !(known || matches!(self, Failure::Server(error) if refused(error)))
    }

    pub(super) fn into_error(self, what: &'static str) -> StoreError {
        match self {
            Failure::Busy => StoreError::Busy,
            failure => StoreError::Failed { what, retryable: failure.retryable(), source: Box::new(failure) },
        }
    }

    pub(super) fn into_trouble(self, what: &'static str) -> TxError {
        if self.in_the_way() { TxError::Conflict(self.to_string()) } else { TxError::Failed(self.into_error(what)) }
    }
}

/// What one packet of statements answered: the rows of each statement.
pub(super) struct Sets(std::vec::IntoIter<Answer>);

struct Answer {
    rows: Vec<Row>,
    /// How many rows an `INSERT` put or changed, and whether the server says that none of several was there.
    affected: u64,
    no_duplicates: bool,
}

impl Sets {
    /// The rows of the next statement, read by `read`.
    pub(super) fn read<T>(&mut self, read: impl Fn(&mut Fields) -> Result<T, StoreError>) -> Result<Vec<T>, StoreError> {
        let rows = self.0.next().map(|answer| answer.rows).unwrap_or_default();
        rows.into_iter().map(|row| read(&mut Fields::new(row))).collect()
    }

    /// The records of the next statement.
    pub(super) fn records<R: Record>(&mut self) -> Result<Vec<R>, StoreError> {
        self.read(R::read)
    }

    /// The only row of the next statement.
    pub(super) fn one<T>(&mut self, read: impl Fn(&mut Fields) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.read(read)?.pop().ok_or_else(|| unreadable("a row that is always there is missing".to_owned()))
    }

    /// The answers of several packets as those of one.
    pub(super) fn chain(all: Vec<Sets>) -> Sets {
        Sets(all.into_iter().flat_map(|sets| sets.0).collect::<Vec<_>>().into_iter())
    }

    /// Passes over a statement that answers no rows.
    pub(super) fn skip(&mut self) {
        let _ = self.0.next();
    }

    /// Whether the next statement, an `INSERT … ON DUPLICATE KEY UPDATE` of so many rows, found none of them there.
    ///
    /// A row that is new counts once, one that is changed twice and is told of as a duplicate too, and one that is left as it is not at all. Of a
    /// single row the server tells only the count.
    pub(super) fn all_were_new(&mut self, rows: usize) -> bool {
        self.0.next().is_some_and(|answer| answer.affected == rows as u64 && (rows == 1 || answer.no_duplicates))
    }
}

/// What is sent in one go.
pub(super) enum Packet {
    Text(String),
    /// A statement that the server has read before, and the values it is run with.
    Prepared(&'static str, Vec<Value>),
    /// A large body, put into the row of its event, which is there by then.
    Body(u64, Bytes),
}

/// A few connections for one kind of work.
pub(super) struct Links {
    opts: Opts,
    /// Run on every new connection.
    setup: String,
    idle: Mutex<Vec<(Conn, Instant)>>,
    slots: Arc<Semaphore>,
}

impl Links {
    pub(super) fn new(opts: Opts, setup: String, max: usize) -> Arc<Self> {
        Arc::new(Self { opts, setup, idle: Mutex::default(), slots: Arc::new(Semaphore::new(max)) })
    }

    /// A connection that lived a moment ago, or a new one.
    pub(super) async fn link(self: &Arc<Self>) -> Result<Link, Failure> {
        let slot = timeout(ACQUIRE, Arc::clone(&self.slots).acquire_owned()).await;
        let slot = slot.map_err(|_| Failure::Busy)?.map_err(|closed| Failure::Lost(closed.to_string()))?;
        let conn = match self.idle_one().await {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        Ok(Link { conn, links: Arc::clone(self), broken: false, _slot: slot })
    }

    /// Runs a packet as the first on a connection, and once more on a new one if that turns out to be dead: so it must be one that may be run twice.
    pub(super) async fn open_with(self: &Arc<Self>, sql: &str) -> Result<(Link, Sets), Failure> {
        let mut link = self.link().await?;
        let answer = match link.run(sql).await {
            Err(Failure::Lost(_)) => {
                drop(link);
                link = self.link().await?;
                link.run(sql).await
            }
            answer => answer,
        };
        match answer {
            Ok(sets) => Ok((link, sets)),
            Err(failure) => {
                link.undo().await;
                link.give_back();
                Err(failure)
            }
        }
    }

    /// Asks on a connection of its own, beyond those that are shared out.
    pub(super) async fn ask_on_new(&self, sql: &str) -> Result<Sets, Failure> {
        let mut conn = self.connect().await?;
        timeout(CALL, query(&mut conn, sql)).await.map_err(|_| silence(CALL))?.map_err(Failure::of)
    }

    async fn idle_one(&self) -> Option<Conn> {
        let (mut conn, since) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        if since.elapsed() < TRUSTED || matches!(timeout(TRUSTED, conn.ping()).await, Ok(Ok(()))) {
            return Some(conn);
        }
        self.forget_idle();
        None
    }

    /// A new connection, set up.
    async fn connect(&self) -> Result<Conn, Failure> {
        let connecting = async {
            let mut conn = Conn::new(self.opts.clone()).await.map_err(Failure::of)?;
            conn.query_drop(&self.setup).await.map_err(Failure::of)?;
            Ok(conn)
        };
        timeout(CONNECT, connecting).await.unwrap_or_else(|_| Err(Failure::Lost("the server does not answer".to_owned())))
    }

    /// When one connection is broken the others most likely are too.
    fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A connection in somebody's hands. Closed when dropped, which ends its transaction; see [`Link::give_back`].
pub(super) struct Link {
    conn: Conn,
    links: Arc<Links>,
    broken: bool,
    _slot: OwnedSemaphorePermit,
}

impl Link {
    pub(super) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// Sends a packet of statements and waits for all answers. The first statement that fails is the last one that was run.
    pub(super) async fn run(&mut self, sql: &str) -> Result<Sets, Failure> {
        self.run_within(sql, CALL).await
    }

    /// For what may take longer than a call.
    pub(super) async fn run_within(&mut self, sql: &str, longest: Duration) -> Result<Sets, Failure> {
        let answer = timeout(longest, query(&mut self.conn, sql)).await;
        self.heard(answer.map_err(|_| silence(longest)).and_then(|answer| answer.map_err(Failure::of)))
    }

    /// Sends statements that answer, in as many packets as they are cut into.
    pub(super) async fn ask(&mut self, sql: Sql) -> Result<Sets, Failure> {
        self.ask_within(sql, CALL).await
    }

    /// The same, each packet of which may take longer than a call.
    pub(super) async fn ask_within(&mut self, sql: Sql, longest: Duration) -> Result<Sets, Failure> {
        let mut all = Vec::new();
        for packet in sql.into_packets() {
            all.push(self.run_within(&packet, longest).await?);
        }
        Ok(Sets::chain(all))
    }

    /// Sends packets one after the other; their answers are not looked at.
    pub(super) async fn run_all(&mut self, packets: Vec<Packet>) -> Result<(), Failure> {
        for packet in packets {
            match packet {
                Packet::Text(sql) => {
                    self.run(&sql).await?;
                }
                Packet::Prepared(statement, values) => self.exec(statement, Params::Positional(values)).await?,
                Packet::Body(event, body) => {
                    let values = (&*body, event).into();
                    self.exec("UPDATE hapax_events SET body = ? WHERE number = ?", values).await?;
                }
            }
        }
        Ok(())
    }

    async fn exec(&mut self, statement: &str, values: Params) -> Result<(), Failure> {
        let answer = timeout(CALL, self.conn.exec_drop(statement, values)).await;
        self.heard(answer.map_err(|_| silence(CALL)).and_then(|answer| answer.map_err(Failure::of)))
    }

    fn heard<T>(&mut self, answer: Result<T, Failure>) -> Result<T, Failure> {
        if matches!(answer, Err(Failure::Lost(_))) {
            self.broken = true;
            self.links.forget_idle();
        }
        answer
    }

    /// Ends the transaction without effect. A connection that is broken ends it by being closed.
    pub(super) async fn undo(&mut self) {
        if !self.broken {
            self.broken = self.run("ROLLBACK").await.is_err();
        }
    }

    /// Says that the connection is in no transaction, and may be used by the next one.
    pub(super) fn give_back(self) {
        if !self.broken {
            self.links.idle.lock().unwrap_or_else(PoisonError::into_inner).push((self.conn, Instant::now()));
        }
    }
}

fn silence(longest: Duration) -> Failure {
    Failure::Lost(format!("the server did not answer for {} s", longest.as_secs()))
}

async fn query(conn: &mut Conn, sql: &str) -> Result<Sets, Error> {
    let mut result = conn.query_iter(sql).await?;
    let mut sets = Vec::new();
    while !result.is_empty() {
        // What is told of a statement without rows is there before they would be, and gone with the next one.
        let (affected, no_duplicates) = (result.affected_rows(), result.info().contains("Duplicates: 0 "));
        sets.push(Answer { rows: result.collect::<Row>().await?, affected, no_duplicates });
    }
    // An error of the last statement may still be waiting to be told.
    result.drop_result().await?;
    Ok(Sets(sets.into_iter()))
}
