//! Opens the door: checks what server this is and what it can promise, and brings the tables up to this version.

use std::time::Duration;

use hapax_domain::key::KeyHasher;
use hapax_store::steps::records::thread_hash;
use hapax_store::steps::{ONE_LANE_SINCE, UPGRADING};
use hapax_store::{Promise, StoreError};
use tokio_postgres::Client;

use super::connect::Server;
use super::failure::Failure;
use super::texts::unescape;

/// Every version of the tables, oldest first; the last is ours.
const VERSIONS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("turns.sql"),
    include_str!("schema_8.sql"),
    include_str!("schema_9.sql"),
    include_str!("schema_10.sql"),
];
/// The version since which names and threads are one table. Names are known by other hashes there, which the server cannot make.
const ONE_TABLE_SINCE: usize = 10;
const ONE_TABLE_END: &str = include_str!("schema_10_end.sql");
/// Names that are brought there at a time.
const NAMES: i32 = 5_000;

/// The longest wait for a first answer.
const TIME: Duration = Duration::from_secs(10);
/// How long migrating may take. Another instance may be at it, and large tables take their time.
const MIGRATE_TIME: Duration = Duration::from_secs(3_600);
const OLDEST_SERVER: i32 = 120_000;

/// What was found out about the server.
pub(super) struct Found {
    pub(super) promise: Promise,
    pub(super) schema: String,
}

/// Looks at the server and migrates, on a connection of its own.
pub(super) async fn prepare(server: &Server) -> Result<Found, StoreError> {
    let first = async {
        let (client, driver) = server.connect(Box::new(|_| ())).await.map_err(Failure::from)?;
        let found = look(&client).await?;
        Ok((client, driver, found))
    };
    let (client, driver, found) = within(TIME, first).await?;
    within(MIGRATE_TIME, migrate(&client, &found.schema)).await?;
    drop(client);
    let _ = driver.await;
    Ok(found)
}

async fn within<T>(longest: Duration, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(longest, work).await.unwrap_or_else(|_| Err(Failure::Silent.into()))
}

async fn look(client: &Client) -> Result<Found, StoreError> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int4, current_setting('server_encoding'), pg_is_in_recovery(),
                    current_setting('default_transaction_read_only'), current_setting('fsync', true),
                    current_setting('full_page_writes', true), current_schema()::text",
            &[],
        )
        .await
        .map_err(Failure::from)?;
    let text = |at: usize| row.try_get::<_, Option<String>>(at).map_err(Failure::from).map(Option::unwrap_or_default);
    let version: i32 = row.try_get(0).map_err(Failure::from)?;
    let standby: bool = row.try_get(2).map_err(Failure::from)?;
    let (encoding, read_only, schema) = (text(1)?, text(3)?, text(6)?);
    let refused = |why: String| Err(StoreError::Refused(format!("postgres: {why}")));
    if version < OLDEST_SERVER {
        return refused(format!("the server is version {}; hapax needs 12 or later", version / 10_000));
    }
    if encoding != "UTF8" {
        return refused(format!("the database is encoded in {encoding}; hapax needs UTF8"));
    }
    if standby || read_only == "on" {
        return refused("the server takes no writes; give the address of the primary".to_owned());
    }
    if schema.is_empty() {
        return refused("the search path names no schema that exists; create it, or leave it out".to_owned());
    }
    let off = [("fsync", text(4)?), ("full_page_writes", text(5)?)].into_iter().filter(|(_, value)| value == "off");
    let reasons: Vec<String> = off
        .map(|(name, _)| format!("postgres: the server runs with {name} = off; a power cut may lose what was accepted"))
        .collect();
    Ok(Found { promise: if reasons.is_empty() { Promise::Full } else { Promise::Degraded(reasons) }, schema })
}

/// One instance at a time. The lock is the session's: it ends with the connection, whatever happens.
async fn migrate(client: &Client, schema: &str) -> Result<(), StoreError> {
    let mut hasher = KeyHasher::new("hapax migration");
    hasher.part(schema.as_bytes());
    let [a, b, c, d, e, f, g, h, ..] = hasher.finish();
    let lock = i64::from_le_bytes([a, b, c, d, e, f, g, h]);
    client.execute("SELECT pg_advisory_lock($1)", &[&lock]).await.map_err(Failure::from)?;
    let known = read_version(client).await?;
    if known > VERSIONS.len() {
        let ours = VERSIONS.len();
        return Err(StoreError::Refused(format!(
            "postgres: the tables were made by a newer hapax (version {known}, this one knows {ours}); run that one, or a newer one"
        )));
    }
    for (at, changes) in VERSIONS.iter().enumerate().skip(known) {
        let version = at + 1;
        let mark = if known > 0 && version == ONE_LANE_SINCE {
            format!("INSERT INTO hapax_settings VALUES ('{UPGRADING}', '') ON CONFLICT DO NOTHING;")
        } else {
            String::new()
        };
        client.batch_execute(&format!("BEGIN; {changes}; {mark}")).await.map_err(Failure::from)?;
        if version == ONE_TABLE_SINCE {
            bring_names(client).await?;
            client.batch_execute(ONE_TABLE_END).await.map_err(Failure::from)?;
        }
        let end = format!("UPDATE hapax_schema SET version = {version}; COMMIT");
        client.batch_execute(&end).await.map_err(Failure::from)?;
    }
    Ok(())
}

/// Brings the names that no thread goes by to the others.
async fn bring_names(client: &Client) -> Result<(), Failure> {
    client
        .batch_execute(
            "DECLARE hapax_others NO SCROLL CURSOR FOR SELECT account, name, peer, thread FROM hapax_names n
             WHERE NOT EXISTS (SELECT 1 FROM hapax_threads t WHERE t.account = n.account AND t.peer = n.name)",
        )
        .await?;
    let fetch = format!("FETCH {NAMES} FROM hapax_others");
    loop {
        let rows = client.query(&fetch, &[]).await?;
        if rows.is_empty() {
            break;
        }
        let mut hashes: Vec<Vec<u8>> = Vec::with_capacity(rows.len());
        let mut texts: [Vec<&str>; 3] = Default::default();
        let mut threads: Vec<&[u8]> = Vec::with_capacity(rows.len());
        for row in &rows {
            let (account, name): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
            hashes.push(thread_hash(&unescape(account), &unescape(name)).to_vec());
            for (at, text) in texts.iter_mut().enumerate() {
                text.push(row.try_get(at)?);
            }
            threads.push(row.try_get(3)?);
        }
        let [accounts, names, peers] = &texts;
        let put = "INSERT INTO hapax_peers (hash, account, name, peer, thread)
            SELECT * FROM UNNEST($1::bytea[], $2::text[], $3::text[], $4::text[], $5::bytea[])";
        client.execute(put, &[&hashes, accounts, names, peers, &threads]).await?;
    }
    client.batch_execute("CLOSE hapax_others").await?;
    Ok(())
}

async fn read_version(client: &Client) -> Result<usize, Failure> {
    client
        .batch_execute(
            "CREATE TABLE IF NOT EXISTS hapax_schema (one INT PRIMARY KEY, version INT NOT NULL, pinged_ms BIGINT NOT NULL);
             INSERT INTO hapax_schema (one, version, pinged_ms) VALUES (1, 0, 0) ON CONFLICT (one) DO NOTHING",
        )
        .await?;
    let row = client.query_one("SELECT version FROM hapax_schema", &[]).await?;
    Ok(row.try_get::<_, i32>(0)?.max(0) as usize)
}

#[cfg(test)]
mod tests {
    use hapax_store::ThreadQuery;
    use hapax_store::steps::records::name_hash;
    use hapax_testkit::servers::Engine;

    use super::*;

    /// Threads, and names with what they lead to, of an account whose name the server cannot hold as it is.
    const THREADS: [&str; 3] = ["phone", "lid", "quiet"];
    const NAMES: [(&str, &str); 4] = [("phone", "phone"), ("bsuid", "phone"), ("lid", "phone"), ("stranger", "nobody")];

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn names_and_threads_of_the_version_before_are_found_again() {
        let Some(server) = Engine::Postgres.shared().await else { return };
        let url = server.fresh().await;
        let address = Server::new(&url).expect("an address");
        let (client, _driver) = address.connect(Box::new(|_| ())).await.expect("it answers");
        read_version(&client).await.expect("its version");
        for changes in &VERSIONS[..ONE_TABLE_SINCE - 1] {
            client.batch_execute(changes).await.expect("a version");
        }
        client.execute("UPDATE hapax_schema SET version = $1", &[&(ONE_TABLE_SINCE as i32 - 1)]).await.expect("its version");
        let account = "7\0";
        let kept = super::super::texts::escape(account);
        for thread in THREADS {
            let put = "INSERT INTO hapax_threads (hash, account, peer, channel, last_ms, last_out, unread, purged_to)
                VALUES ($1, $2, $3, 'shop', 5, false, 1, 0)";
            client.execute(put, &[&&thread_hash(account, thread)[..], &&*kept, &thread]).await.expect("a thread");
        }
        for (name, peer) in NAMES {
            let put = "INSERT INTO hapax_names (hash, account, name, peer, thread) VALUES ($1, $2, $3, $4, $5)";
            let (hash, thread) = (name_hash(account, name), thread_hash(account, peer));
            client.execute(put, &[&&hash[..], &&*kept, &name, &peer, &&thread[..]]).await.expect("a name");
        }
        let store = crate::open(&url, None).await.expect("it is brought up");
        let engine = store.engine();
        use hapax_store::steps::Engine as _;
        assert_eq!(engine.names_of(account, "phone").await.expect("names"), ["bsuid", "lid", "phone"]);
        assert_eq!(engine.names_of(account, "nobody").await.expect("names"), ["stranger"]);
        assert_eq!(engine.names_of(account, "quiet").await.expect("names"), [""; 0]);
        let threads = engine.list_threads(&ThreadQuery::default(), 10).await.expect("threads");
        let peers: Vec<&str> = threads.iter().map(|thread| &*thread.peer).collect();
        assert_eq!(peers, ["quiet", "phone", "lid"]);
        server.remove(&url).await;
    }
}
