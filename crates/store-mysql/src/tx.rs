//! One transaction: begun with its numbers, written in one packet together with its commit, and never left in doubt.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hapax_domain::ids;
use hapax_store::steps::records::{ItemPlace, ItemRec, KeyRec, LaneRec, Queue};
use hapax_store::steps::{Ahead, Changes, Due, First, FirstKey, Loaded, RecentCopies, Tx, TxError, Wanted};
use hapax_store::{Redrive, StoreError};
use tokio::time::{Instant, sleep};

use super::link::{Failure, Link, Links, Packet, Sets};
use super::load::{Asked, qualified};
use super::rows::{InTable, put};
use super::save;
use super::sql::{List, Literal, PACKET_BYTES, ROWS_MAX, Raw, Sql, account_key, channel_key};

/// Numbers that one row of `hapax_numbers` stands for.
pub(super) const BLOCK: u64 = 1_024;
/// How long a commit that was not answered is asked after, beyond the time it was waited for.
const ASK_AFTER: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// What goes with a body in its packet.
const BESIDE_BODY: usize = 1_024;

pub struct MysqlTx {
    /// `None` once the transaction has ended.
    link: Option<Link>,
    now_ms: i64,
    /// The row of `hapax_numbers` that this transaction inserted: there when it was committed, and never when not.
    id: u64,
    /// Drawn by lot, and in that row: after a crash of the server the same id may be handed out again, to somebody else.
    nonce: u128,
    /// How many rows of numbers it draws at a time.
    blocks: u64,
    next: u64,
    end: u64,
    /// Written with the commit, or before the next question.
    pending: Vec<Packet>,
    /// When the keys it won expire; nobody looks at that before the commit, so it goes with it.
    expiring: Sql,
    /// There is something to keep; without it the end costs no fsync.
    wrote: bool,
    packet_max: usize,
    ahead: Ahead,
    copies: Arc<RecentCopies>,
}

/// What a transaction is begun with.
pub(super) struct Beginning<'b> {
    pub(super) links: &'b Arc<Links>,
    pub(super) numbers: usize,
    pub(super) first: &'b First,
    /// The store's clock.
    pub(super) now: &'b str,
    pub(super) packet_max: usize,
    pub(super) copies: &'b Arc<RecentCopies>,
}

impl MysqlTx {
    /// Begins with as many numbers as are wanted. The ids come from one counter that is not rolled back, and is read inside the transaction:
    /// whatever ended before has lower ones.
    pub(super) async fn begin(how: &Beginning<'_>) -> Result<MysqlTx, TxError> {
        let blocks = (how.numbers as u64).div_ceil(BLOCK).max(1);
        let nonce = rand::random();
        let sql = format!(
            "START TRANSACTION READ WRITE; {}; SET @hapax_first = LAST_INSERT_ID() * {BLOCK}, @hapax_now = {}; \
             SELECT LAST_INSERT_ID(), @hapax_now",
            draw(blocks, nonce),
            how.now
        );
        let claimed = (1..=ROWS_MAX).contains(&how.first.claimed.len()) && blocks == 1 && !how.copies.are_many();
        let (wanted, sql) = if claimed {
            let wanted = Ahead::wanted(how.first);
            let asked = Asked::new(&wanted, true);
            let sql = format!("{sql}; {}; {}", claim_first(&how.first.claimed), asked.sql.into_packets().concat());
            (Some((wanted, asked.parts)), sql)
        } else {
            (None, sql)
        };
        let begun = how.links.open_with(&sql).await;
        let (link, mut sets) = begun.map_err(|failure| failure.into_trouble("mysql: begin a transaction"))?;
        (0..3).for_each(|_| sets.skip());
        let (id, now_ms): (u64, i64) = sets.one(|fields| Ok((fields.next()?, fields.next()?)))?;
        let mut tx = MysqlTx {
            link: Some(link),
            now_ms,
            id,
            nonce,
            blocks,
            next: id * BLOCK,
            end: (id + blocks) * BLOCK,
            pending: Vec::new(),
            expiring: Sql::default(),
            wrote: false,
            packet_max: how.packet_max,
            ahead: Ahead::default(),
            copies: Arc::clone(how.copies),
        };
        if let Some((wanted, parts)) = wanted {
            let keys = how.first.claimed.iter().map(|key| key.key);
            let won = if sets.all_were_new(keys.len()) { keys.collect() } else { HashSet::new() };
            tx.ahead = Ahead::new(how.first, won, &wanted, Asked::read(&parts, sets, Loaded::default())?);
        }
        Ok(tx)
    }

    /// Sends what was written so far and then asks. After a failure the transaction is over, and its locks are free.
    async fn ask(&mut self, sql: Sql) -> Result<Sets, TxError> {
        let Some(mut link) = self.link.take() else { return Err(ended()) };
        let pending = std::mem::take(&mut self.pending);
        let answered = match link.run_all(pending).await {
            Ok(()) => link.ask(sql).await,
            Err(failure) => Err(failure),
        };
        match answered {
            Ok(sets) => {
                self.link = Some(link);
                Ok(sets)
            }
            Err(failure) => {
                link.undo().await;
                link.give_back();
                Err(failure.into_trouble("mysql: a transaction"))
            }
        }
    }

    async fn settle_doubt(&self, links: &Links, failure: Failure) -> Result<(), TxError> {
        let took_place = self.took_place(links).await;
        tracing::warn!(error = %failure, ?took_place, "mysql: a commit was not answered; asked whether it took place");
        match took_place {
            Ok(true) => Ok(()),
            Ok(false) => Err(failure.into_trouble("mysql: commit")),
            Err(why) => Err(failed(format!("it is not known whether it took place, and nobody can be asked: {why}"))),
        }
    }

    /// Finds out by the transaction's own row whether a commit took place that was not answered.
    ///
    /// Inserting the same row waits for the transaction if it still runs; afterwards the row is there with its nonce, so it was committed, or
    /// it is ours or somebody else's, so it never can be. When the server cannot be asked for so long, nobody knows: the caller is told to try again, and a webhook
    /// whose commit took place after all is then answered as a copy of itself, which it is.
    async fn took_place(&self, links: &Links) -> Result<bool, String> {
        let claim = format!(
            "INSERT INTO hapax_numbers (id, at_s) VALUES ({id}, UNIX_TIMESTAMP()) ON DUPLICATE KEY UPDATE id = id;
             SELECT COUNT(*) FROM hapax_numbers WHERE id = {id} AND nonce = X'{nonce:032x}'",
            id = self.id,
            nonce = self.nonce,
        );
        let give_up = Instant::now() + ASK_AFTER;
        loop {
            let failure = match links.ask_on_new(&claim).await {
                Ok(mut sets) => {
                    sets.skip();
                    return sets.one(|fields| fields.next::<bool>()).map_err(|error| error.to_string());
                }
                Err(failure) => failure,
            };
            if Instant::now() > give_up {
                return Err(failure.to_string());
            }
            sleep(ASK_AGAIN).await;
        }
    }
}

#[async_trait]
impl Tx for MysqlTx {
    fn now_ms(&self) -> i64 {
        self.now_ms
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn keeps_alone(&self) -> bool {
        true
    }

    /// The insert decides: it waits for whoever holds the key, takes it over when its window is past, and else leaves the row as it is. Whose
    /// number the row has then has won; numbers are never handed out twice. When the server counted nothing but new rows, there are no others to ask for.
    async fn claim(&mut self, keys: &[KeyRec]) -> Result<Vec<Option<KeyRec>>, TxError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let take_over = take_over(&self.now_ms.to_string());
        let mut tried = self.ahead.won(keys);
        let mut holders = HashMap::new();
        for some in keys.chunks(ROWS_MAX) {
            let all_were_new = match tried.take() {
                Some(won) => won.len() == some.len(),
                None => {
                    let mut rows = Sql::default();
                    rows.add_rows(&KeyRec::texts().insert, some, &take_over, put);
                    self.ask(rows).await?.all_were_new(some.len())
                }
            };
            if all_were_new {
                continue;
            }
            let mut held = Sql::default();
            let wanted: Vec<_> = some.iter().map(|key| key.key).collect();
            let others = "SELECT ? FROM hapax_keys FORCE INDEX (PRIMARY) WHERE k IN ? AND event NOT BETWEEN ? AND ?";
            held.add(
                others,
                &[&Raw(KeyRec::columns()), &List(&wanted), &(self.id * BLOCK), &((self.id + self.blocks) * BLOCK - 1)],
            );
            let mut sets = self.ask(held).await?;
            holders.extend(sets.records::<KeyRec>()?.into_iter().map(|holder| (holder.key, holder)));
        }
        let held = keys.iter().map(|key| holders.remove(&key.key).filter(|holder: &KeyRec| holder.event != key.event));
        let held: Vec<Option<KeyRec>> = held.collect();
        self.copies.note(&held);
        let won: Vec<&KeyRec> = keys.iter().zip(&held).filter(|(_, held)| held.is_none()).map(|(key, _)| key).collect();
        self.wrote |= !won.is_empty();
        save::put_expiring(&mut self.expiring, &won);
        Ok(held)
    }

    async fn load(&mut self, wanted: &Wanted) -> Result<Loaded, TxError> {
        let (seen, left) = self.ahead.answer(wanted);
        let Asked { sql, parts } = Asked::new(&left, true);
        if sql.is_empty() {
            return Ok(seen);
        }
        let sets = self.ask(sql).await?;
        Ok(Asked::read(&parts, sets, seen)?)
    }

    /// Numbers are drawn anew once the lanes are locked: another transaction that began later may have leased one of them, and ended, before
    /// we came to it, and every lease of a lane must have a higher fence than the one before.
    async fn due_lanes(&mut self, due: &Due<'_>) -> Result<Vec<LaneRec>, TxError> {
        if due.max == 0 {
            return Ok(Vec::new());
        }
        let mut sql = due_lanes(due, self.now_ms);
        sql.add(&draw(self.blocks, self.nonce), &[]);
        sql.add("SELECT LAST_INSERT_ID()", &[]);
        let mut sets = self.ask(sql).await?;
        let lanes = sets.records()?;
        sets.skip();
        let id: u64 = sets.one(|fields| fields.next())?;
        (self.next, self.end) = (id * BLOCK, (id + self.blocks) * BLOCK);
        Ok(lanes)
    }

    async fn parked(&mut self, which: &Redrive, after: u64, max: usize) -> Result<Vec<ItemRec>, TxError> {
        let mut sql = Sql::default();
        let parked = ItemPlace::Parked.code();
        let columns = ItemRec::columns();
        let mut select = |index: &str, condition: &str, value: &dyn Literal| {
            let statement = format!(
                "SELECT {columns} FROM hapax_items FORCE INDEX ({index}) WHERE place = {parked} AND number > {after}{condition} ORDER BY number LIMIT {max} FOR UPDATE"
            );
            sql.add(&statement, &[value]);
        };
        let statements = match which {
            Redrive::All => {
                select("of_place", "", &0_u64);
                1
            }
            Redrive::Channel(channel) => {
                select("of_place", " AND channel_key = ?", &channel_key(channel));
                1
            }
            Redrive::Item(item) => {
                select("PRIMARY", " AND number = ?", &ids::number_of(item.0));
                1
            }
            // In the item it was first put into, or at the head of one of its replays.
            Redrive::Event(event) => {
                let event = ids::number_of(event.0);
                select("PRIMARY", " AND number = (SELECT item FROM hapax_events WHERE hapax_events.number = ?)", &event);
                select("of_event", " AND first_event = ?", &event);
                2
            }
        };
        let mut sets = self.ask(sql).await?;
        let mut items = Vec::new();
        for _ in 0..statements {
            items.extend(sets.records::<ItemRec>()?);
        }
        items.sort_unstable_by_key(|item| item.number);
        items.dedup_by_key(|item| item.number);
        items.truncate(max);
        Ok(items)
    }

    async fn save(&mut self, changes: Changes) -> Result<(), TxError> {
        if self.link.is_none() {
            return Err(ended());
        }
        for event in &changes.new_events {
            let bytes = event.carried.as_ref().map_or(0, |carried| carried.body.len());
            if bytes + BESIDE_BODY > self.packet_max {
                return Err(too_large(bytes, self.packet_max).into());
            }
        }
        self.pending.extend(save::packets(&changes));
        self.ahead = Ahead::default();
        self.wrote = true;
        Ok(())
    }

    async fn commit(mut self) -> Result<(), TxError> {
        let Some(mut link) = self.link.take() else { return Err(ended()) };
        let overdrawn = self.next > self.end;
        if !self.wrote || overdrawn {
            link.undo().await;
            link.give_back();
            return if overdrawn { Err(failed("it used more numbers than it had asked for".to_owned())) } else { Ok(()) };
        }
        let mut packets = std::mem::take(&mut self.pending);
        let expiring = std::mem::take(&mut self.expiring).into_packets();
        for text in expiring.into_iter().chain(["COMMIT".to_owned()]) {
            match packets.last_mut() {
                Some(Packet::Text(sql)) if sql.len() + text.len() < 2 * PACKET_BYTES => sql.push_str(&text),
                _ => packets.push(Packet::Text(text)),
            }
        }
        match link.run_all(packets).await {
            Ok(()) => {
                link.give_back();
                Ok(())
            }
            Err(failure) if failure.in_the_way() => {
                link.undo().await;
                link.give_back();
                Err(failure.into_trouble("mysql: write"))
            }
            Err(failure) => {
                let links = Arc::clone(link.links());
                // Closes a broken connection, so that the server ends what it never heard the end of.
                link.undo().await;
                link.give_back();
                self.settle_doubt(&links, failure).await
            }
        }
    }
}

/// The end of a transaction that nobody committed: undone at once, so that its locks do not wait for the connection to be used again.
impl Drop for MysqlTx {
    fn drop(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        // Without a runtime the connection is closed, which undoes it too.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                link.undo().await;
                link.give_back();
            });
        }
    }
}

/// Takes over keys whose window is past. `expires_ms` is set last: assignments are made from left to right, and all of them look at what it was.
fn take_over(now: &str) -> String {
    let columns = ["event", "at_ms", "fingerprint", "expires_ms"];
    let assigned = columns.map(|column| format!("{column}=IF(expires_ms<={now},VALUES({column}),{column})"));
    format!(" ON DUPLICATE KEY UPDATE {}", assigned.join(","))
}

/// Claims keys with the numbers and at the time that the packet has just learned.
fn claim_first(keys: &[FirstKey]) -> String {
    let mut sql = KeyRec::texts().insert.clone();
    for (n, FirstKey { key, nth, fingerprint, window_ms }) in keys.iter().enumerate() {
        sql.push_str(if n == 0 { "(" } else { ",(" });
        key.put(&mut sql);
        sql.push_str(&format!(",@hapax_first+{nth},@hapax_now,{fingerprint},@hapax_now+{window_ms})"));
    }
    sql.push_str(&take_over("@hapax_now"));
    sql
}

/// Draws numbers: the ids of rows that are inserted together follow each other.
fn draw(blocks: u64, nonce: u128) -> String {
    let row = format!("(UNIX_TIMESTAMP(), X'{nonce:032x}')");
    let rows = vec![row; blocks as usize].join(",");
    format!("INSERT INTO hapax_numbers (at_s, nonce) VALUES {rows}")
}

/// Asks for lanes in the order of their index, of which each priority is a range: lanes that are not due are never looked at.
fn due_lanes(due: &Due<'_>, now_ms: i64) -> Sql {
    let mut statement = "SELECT ? FROM hapax_lanes l FORCE INDEX (due) WHERE queue = ? AND l.channel_key = ?
                         AND priority IN (0, 1, 2) AND due_ms <= ?"
        .to_owned();
    let (lane, queue, channel) = (qualified("l", LaneRec::columns()), due.queue.code(), channel_key(due.channel));
    let resting: Vec<_> = due.resting.iter().map(|account| account_key(account)).collect();
    let (columns, resting_list, nobody) = (Raw(&lane), List(&resting), account_key(""));
    let mut values: Vec<&dyn Literal> = vec![&columns, &queue, &channel, &now_ms];
    if !resting.is_empty() && due.others {
        statement.push_str(" AND (l.account_key IN ? OR l.account_key = ?)");
        values.extend([&resting_list as &dyn Literal, &nobody]);
    } else if !resting.is_empty() {
        statement.push_str(" AND l.account_key NOT IN ?");
        values.push(&resting_list);
    }
    if due.queue == Queue::Outbox {
        statement.push_str(
            " AND NOT EXISTS (SELECT 1 FROM hapax_paused p WHERE p.channel_key = l.channel_key AND p.account_key = l.account_key)",
        );
    }
    statement.push_str(" ORDER BY priority, due_ms, first LIMIT ? FOR UPDATE SKIP LOCKED");
    values.push(&due.max);
    let mut sql = Sql::default();
    sql.add(&statement, &values);
    sql
}

/// Found out before it is sent: the server would close the connection, and nobody could tell that from an outage.
fn too_large(bytes: usize, packet_max: usize) -> StoreError {
    StoreError::Refused(format!(
        "a body of {bytes} bytes does not fit into the server's max_allowed_packet of {packet_max}; set that to 64M, or the channel's \
         max_body lower"
    ))
}

fn ended() -> TxError {
    failed("the transaction has ended already".to_owned())
}

fn failed(why: String) -> TxError {
    TxError::Failed(StoreError::Failed { what: "mysql: commit", retryable: true, source: why.into() })
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::*;
    use hapax_store::steps::records::thread_hash;
    use hapax_testkit::servers::Engine as Servers;

    /// The server dies between a draw and its sync, and draws the same again for somebody else.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lost_commit_is_not_taken_for_one_that_was_made_under_the_same_number() {
        let Some(mut server) = Servers::Mariadb.private().await else { return };
        let opened = open::server(&server.fresh().await).await.expect("tables");
        let links = Links::new(opened.opts.clone(), opened.setup.clone(), 4);
        let (first, copies) = (First::default(), Arc::default());
        let how =
            Beginning { links: &links, numbers: 1, first: &first, now: "0", packet_max: opened.packet_max, copies: &copies };
        let begin = async || MysqlTx::begin(&how).await.expect("begun");
        let mut lost = begin().await;
        lost.wrote = true;
        server.kill9().await;
        server.restart().await;

        // Whether it comes again by itself depends on what was synced by chance: here it does.
        let set = format!("ALTER TABLE hapax_numbers AUTO_INCREMENT = {}", lost.id);
        links.ask_on_new(&set).await.expect("set");
        let mut other = begin().await;
        other.wrote = true;
        assert_eq!(other.id, lost.id);
        assert_ne!(other.nonce, lost.nonce, "a nonce never comes again");
        assert_eq!(other.number(), lost.number(), "the same fence, if both were handed out");
        let (id, nonce) = (other.id, other.nonce);
        other.commit().await.expect("committed");
        let told = lost.commit().await;
        assert!(told.is_err(), "the one that was lost hands out nothing");
        let mut made = begin().await;
        (made.id, made.nonce) = (id, nonce);
        assert_eq!(made.took_place(&links).await, Ok(true), "the one that was made is known");
    }

    /// Whoever comes by that name later waits for the thread it leads to, and must not be waited for.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn looking_for_a_thread_does_not_lock_a_name_that_leads_elsewhere() {
        let Some(server) = Servers::Mariadb.shared().await else { return };
        let url = server.fresh().await;
        let opened = open::server(&url).await.expect("tables");
        let links = Links::new(opened.opts.clone(), opened.setup.clone(), 4);
        let (own, other) = (thread_hash("7", "phone"), thread_hash("7", "lid"));
        let mut sql = Sql::default();
        let put = "INSERT INTO hapax_peers (hash, account, name, peer, thread) VALUES (?, '7', ?, 'phone', ?)";
        sql.add(put, &[&own, &"phone", &own]);
        sql.add(put, &[&other, &"lid", &own]);
        links.ask_on_new(&sql.into_packets().concat()).await.expect("names");
        let (first, copies) = (First::default(), Arc::default());
        let how =
            Beginning { links: &links, numbers: 1, first: &first, now: "0", packet_max: opened.packet_max, copies: &copies };
        for threads in [vec![other], vec![own, other]] {
            let mut tx = MysqlTx::begin(&how).await.expect("begun");
            tx.load(&Wanted { threads: threads.clone(), ..Wanted::default() }).await.expect("looked for");
            for (name, is_locked) in [(own, threads.contains(&own)), (other, false)] {
                let mut sql = Sql::default();
                sql.add("SELECT 1 FROM hapax_peers WHERE hash = ? FOR UPDATE NOWAIT", &[&name]);
                let asked = links.ask_on_new(&sql.into_packets().concat()).await;
                assert_eq!(asked.is_err(), is_locked, "of {} threads", threads.len());
            }
            drop(tx);
        }
        server.remove(&url).await;
    }
}
