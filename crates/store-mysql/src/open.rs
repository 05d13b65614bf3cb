//! Opening the database: a server that can keep the promise, sessions that mean what we write, a schema we know.

use std::collections::HashMap;
use std::time::Duration;

use hapax_store::StoreError;
use hapax_store::steps::record::Value;
use hapax_store::steps::records::{Hash, thread_hash};
use hapax_store::steps::{ONE_LANE_SINCE, UPGRADING};
use mysql_async::{Opts, OptsBuilder};

use super::link::{Failure, Link, Links, Sets};
use super::registers::setting_hash;
use super::rows::{LISTED, ListKey, lists, put_listed};
use super::sql::{ROWS_MAX, Sql, over};

/// Each entry brings the schema from its index to the next. Every statement can be run again: MySQL commits each of them by itself, and a
/// migration that was cut off is done over from its start.
const MIGRATIONS: &[&str] = &[
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

/// Bodies are 4 MB at most where a channel does not ask for more.
const PACKET_MIN_BYTES: u64 = 16 << 20;
/// Instances that open at once wait for the one that migrates.
const MIGRATE_TURN_S: u32 = 3;
const MIGRATE_TURNS: u32 = 10;
/// The longest wait for one statement of a migration, which may have to go through a whole table.
const MIGRATE_STATEMENT: Duration = Duration::from_secs(3_600);
/// The version since which names and threads are one table.
const ONE_TABLE_SINCE: usize = 9;
const THREADS_AT_ONCE: usize = 2_000;
/// The version that lists events.
const LISTED_SINCE: usize = 3;

/// What every session is told, whatever the server's own settings say.
///
/// - READ COMMITTED takes no locks on gaps: rows that are not there keep nobody waiting.
/// - `time_zone`: `NOW` goes through the session's zone, which must not have an hour twice a year.
/// - The modes are ours alone: strict, and none that changes what a quote or an assignment means.
/// - A lock is waited for at most 2 s; a session that falls silent in a transaction loses its locks after a while, on MySQL with
///   `wait_timeout` and on MariaDB sooner.
/// - The rest undoes settings of the server under which rows would be cut off, not checked, or a COMMIT would mean something else.
const SETUP: &str = "SET NAMES utf8mb4 COLLATE utf8mb4_bin;
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET SESSION sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION',
        time_zone = '+00:00', autocommit = 1, completion_type = 0, unique_checks = 1, sql_safe_updates = 0,
        sql_select_limit = 18446744073709551615, auto_increment_increment = 1, auto_increment_offset = 1, max_sort_length = 8400,
        innodb_lock_wait_timeout = 2, lock_wait_timeout = 5, wait_timeout = 60;";
const SETUP_MARIADB: &str = "SET SESSION max_statement_time = 5, idle_transaction_timeout = 10;";
const SETUP_MYSQL: &str = "SET SESSION max_execution_time = 5000, information_schema_stats_expiry = 0;";

/// How the server at an address is spoken to.
pub(super) struct Server {
    pub(super) opts: Opts,
    pub(super) setup: String,
    /// What it cannot promise, and why.
    pub(super) degraded: Vec<String>,
    /// The largest packet it takes; it closes the connection over a larger one.
    pub(super) packet_max: usize,
}

/// Reads the address, looks at the server, and brings the schema up to date.
pub(super) async fn server(address: &str) -> Result<Server, StoreError> {
    let opts = read_address(address)?;
    let bare = Links::new(opts.clone(), SETUP.to_owned(), 1);
    let mut link = bare.link().await.map_err(cannot_open)?;
    let settings = settings(&mut link).await?;
    let degraded = judge(&settings).map_err(StoreError::Refused)?;
    migrate(&mut link).await?;
    link.give_back();
    let own = if is_mariadb(&settings) { SETUP_MARIADB } else { SETUP_MYSQL };
    let packet_max = settings.get("max_allowed_packet").and_then(|bytes| bytes.parse().ok()).unwrap_or_default();
    Ok(Server { opts, setup: format!("{SETUP}{own}"), degraded, packet_max })
}

pub(super) fn read_address(address: &str) -> Result<Opts, StoreError> {
    let address = match address.strip_prefix("mariadb://") {
        Some(rest) => format!("mysql://{rest}"),
        None => address.to_owned(),
    };
    let refused = |why: &str| {
        let example = "mysql://user:password@host/database";
        StoreError::Refused(format!("the address of the mysql store {why}; write it like {example}"))
    };
    // The driver's error may repeat parts of the address.
    let opts = Opts::from_url(&address).map_err(|_| refused("cannot be read"))?;
    if opts.db_name().is_none_or(str::is_empty) {
        return Err(refused("names no database"));
    }
    // Without `prefer_socket(false)` the driver leaves the address it was given for a socket file that it was not.
    let builder = OptsBuilder::from_opts(opts).prefer_socket(false).tcp_keepalive(Some(std::time::Duration::from_secs(10)));
    Ok(builder.into())
}

type Settings = HashMap<String, String>;

async fn settings(link: &mut Link) -> Result<Settings, StoreError> {
    // The session's own, as the server understood what it was told, and the server's where the session has none.
    let show = "SHOW VARIABLES WHERE Variable_name IN ('version', 'sql_mode', 'character_set_client', 'character_set_connection',
        'character_set_results', 'transaction_isolation', 'tx_isolation', 'max_allowed_packet', 'innodb_flush_log_at_trx_commit',
        'read_only', 'super_read_only', 'innodb_read_only', 'wsrep_on', 'wsrep_provider', 'log_bin', 'binlog_format',
        'group_replication_group_name', 'group_replication_single_primary_mode')";
    let mut sets = link.run(show).await.map_err(cannot_open)?;
    let read = sets.read(|fields| Ok((fields.next::<String>()?.to_ascii_lowercase(), fields.next::<String>()?)))?;
    Ok(read.into_iter().collect())
}

fn is_mariadb(settings: &Settings) -> bool {
    settings.get("version").is_some_and(|version| version.to_ascii_lowercase().contains("mariadb"))
}

/// Decides from its settings whether a server can be used, and what it cannot promise.
fn judge(settings: &Settings) -> Result<Vec<String>, String> {
    let of = |name: &str| settings.get(name).map_or("", String::as_str);
    let on = |name: &str| matches!(of(name).to_ascii_uppercase().as_str(), "ON" | "1" | "TRUE");
    judge_version(of("version"), is_mariadb(settings))?;
    let provider = of("wsrep_provider");
    if on("wsrep_on") || !(provider.is_empty() || provider.eq_ignore_ascii_case("none")) {
        return Err("this server is a node of a Galera cluster, which hapax does not run on: its row locks hold on one node only, so two \
                    nodes could hand out the same work, and a conflict shows at COMMIT at the earliest. Use a server with plain \
                    replication"
            .to_owned());
    }
    if !of("group_replication_group_name").is_empty() && !on("group_replication_single_primary_mode") {
        return Err(
            "this server is one of several primaries (group replication), and its row locks hold on one of them only. Set \
                    group_replication_single_primary_mode=ON"
                .to_owned(),
        );
    }
    if let Some(name) = ["read_only", "super_read_only", "innodb_read_only"].into_iter().find(|name| on(name)) {
        return Err(format!("the server only lets itself be read ({name} is on): give the address of the primary"));
    }
    if !of("sql_mode").contains("STRICT_TRANS_TABLES") {
        return Err(format!(
            "the server does not take strict mode (sql_mode is `{}`): it would cut off what is too long",
            of("sql_mode")
        ));
    }
    for name in ["character_set_client", "character_set_connection", "character_set_results"] {
        if of(name) != "utf8mb4" {
            return Err(format!("the server does not speak utf8mb4 ({name} is `{}`)", of(name)));
        }
    }
    let isolation = [of("transaction_isolation"), of("tx_isolation")];
    if !isolation.contains(&"READ-COMMITTED") {
        return Err(format!("the server does not take READ COMMITTED (it has `{}`)", isolation.join("")));
    }
    if on("log_bin") && of("binlog_format").eq_ignore_ascii_case("STATEMENT") {
        return Err("the server logs statements (binlog_format=STATEMENT), which cannot be done under READ COMMITTED: set it to ROW or MIXED".to_owned());
    }
    let packet: u64 = of("max_allowed_packet").parse().unwrap_or(0);
    if packet < PACKET_MIN_BYTES {
        return Err(format!(
            "max_allowed_packet is {packet}, too small for the bodies of webhooks: set it to {PACKET_MIN_BYTES} at least"
        ));
    }
    let mut degraded = Vec::new();
    if of("innodb_flush_log_at_trx_commit") != "1" {
        degraded.push(format!(
            "mysql: innodb_flush_log_at_trx_commit is {}, so the last second is lost in a power cut although it was acknowledged; set it to 1",
            of("innodb_flush_log_at_trx_commit")
        ));
    }
    Ok(degraded)
}

fn judge_version(version: &str, mariadb: bool) -> Result<(), String> {
    // Some MariaDB servers put `5.5.5-` before their version, for old clients.
    let shown = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut parts = shown.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let (name, least) = if mariadb { ("MariaDB", (10, 6)) } else { ("MySQL", (8, 0)) };
    if found < least {
        return Err(format!(
            "the server is {name} {shown}; hapax needs {name} {}.{} or newer, for SKIP LOCKED",
            least.0, least.1
        ));
    }
    Ok(())
}

/// Does the migrations that are missing, while no other instance does.
async fn migrate(link: &mut Link) -> Result<(), StoreError> {
    // The name is the server's, not the database's. Asked for in short turns: every packet must be answered within a few seconds.
    let lock = "CONCAT('hapax:', LEFT(SHA2(DATABASE(), 256), 40))";
    for turn in 0.. {
        let mut asked = link.run(&format!("SELECT GET_LOCK({lock}, {MIGRATE_TURN_S})")).await.map_err(cannot_open)?;
        if asked.one(|fields| fields.next::<Option<i64>>())? == Some(1) {
            break;
        }
        if turn == MIGRATE_TURNS {
            let why = "another hapax has been preparing this database for half a minute; try again";
            return Err(StoreError::Failed { what: "the mysql store cannot be opened", retryable: true, source: why.into() });
        }
    }
    let done = migrate_locked(link).await;
    link.run(&format!("SELECT RELEASE_LOCK({lock})")).await.map_err(cannot_open)?;
    done
}

async fn migrate_locked(link: &mut Link) -> Result<(), StoreError> {
    let versions = "CREATE TABLE IF NOT EXISTS hapax_schema (one TINYINT NOT NULL PRIMARY KEY, version INT UNSIGNED NOT NULL,
                        pinged_ms BIGINT NOT NULL) ENGINE=InnoDB;
                    INSERT INTO hapax_schema VALUES (1, 0, 0) ON DUPLICATE KEY UPDATE one = one;
                    SELECT version FROM hapax_schema WHERE one = 1";
    let mut sets = link.run(versions).await.map_err(cannot_open)?;
    sets.skip();
    sets.skip();
    let version: usize = sets.one(|fields| fields.next())?;
    if version > MIGRATIONS.len() {
        return Err(StoreError::Refused(format!(
            "the database was written by a newer hapax (schema {version}, this one knows {}); use that version",
            MIGRATIONS.len()
        )));
    }
    for (done, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        for statement in migration.split(";\n").filter(|statement| !statement.trim().is_empty()) {
            link.run_within(statement, MIGRATE_STATEMENT).await.map_err(cannot_open)?;
        }
        if done + 1 == LISTED_SINCE {
            list_events(link).await?;
        }
        if done + 1 == ONE_TABLE_SINCE {
            bring_threads(link).await?;
            bring_names(link).await?;
        }
        if version > 0 && done + 1 == ONE_LANE_SINCE {
            begin_upgrade(link).await?;
        }
        link.run(&format!("UPDATE hapax_schema SET version = {} WHERE one = 1", done + 1)).await.map_err(cannot_open)?;
    }
    Ok(())
}

async fn begin_upgrade(link: &mut Link) -> Result<(), StoreError> {
    let mut sql = Sql::default();
    let put = "INSERT INTO hapax_settings (hash, name, value) VALUES (?, ?, '') ON DUPLICATE KEY UPDATE hash = hash";
    sql.add(put, &[&setting_hash(UPGRADING), &UPGRADING]);
    ask(link, sql).await?;
    Ok(())
}

/// Lists the events that came before there were lists.
async fn list_events(link: &mut Link) -> Result<(), StoreError> {
    let mut after = 0_u64;
    loop {
        let mut sql = Sql::default();
        // Written out: later versions add columns that are not there yet.
        let page = "SELECT number, webhook, account, peer, thread FROM hapax_events FORCE INDEX (PRIMARY)
                    WHERE number > ? ORDER BY number LIMIT ?";
        sql.add(page, &[&after, &ROWS_MAX]);
        let events = ask(link, sql).await?.read(|fields| {
            let (number, webhook): (u64, u64) = (fields.next()?, fields.next()?);
            let (account, peer): (String, Option<String>) = (fields.next()?, fields.next()?);
            let thread = fields.next::<Option<Vec<u8>>>()?.and_then(|thread| thread.try_into().ok());
            Ok((number, webhook, peer.map(|peer| thread_hash(&account, &peer)), thread))
        })?;
        let Some((last, ..)) = events.last() else { return Ok(()) };
        after = *last;
        let listed = events.iter().flat_map(|(number, webhook, peer, thread)| lists(*number, *webhook, *peer, *thread));
        let listed: Vec<(ListKey, u64)> = listed.collect();
        let mut sql = Sql::default();
        sql.add_rows(&format!("INSERT INTO hapax_event_lists ({LISTED}) VALUES "), &listed, &over(LISTED), put_listed);
        ask(link, sql).await?;
    }
}

/// Brings threads to the table that they share with names; some at a time, since the server may have bounds for one transaction.
async fn bring_threads(link: &mut Link) -> Result<(), StoreError> {
    let mut after: Hash = [0; 32];
    loop {
        let mut sql = Sql::default();
        let page = "SELECT MAX(hash) FROM (SELECT hash FROM hapax_threads WHERE hash > ? ORDER BY hash LIMIT ?) AS page";
        sql.add(page, &[&after, &THREADS_AT_ONCE]);
        let last = ask(link, sql).await?.one(|fields| fields.next::<Option<Vec<u8>>>())?;
        let Some(last) = last.and_then(|last| Hash::try_from(last).ok()) else { return Ok(()) };
        let mut sql = Sql::default();
        let columns = "channel, last_ms, last_text, last_out, unread, purged_to, read_to, channel_key, account_key";
        let bring = format!(
            "INSERT INTO hapax_peers (hash, account, name, {columns}) SELECT hash, account, peer, {columns} FROM hapax_threads
             WHERE hash > ? AND hash <= ?"
        );
        sql.add(&bring, &[&after, &last]);
        ask(link, sql).await?;
        after = last;
    }
}

/// Brings names to the threads that go by them.
async fn bring_names(link: &mut Link) -> Result<(), StoreError> {
    let mut after: Hash = [0; 32];
    loop {
        let mut sql = Sql::default();
        let page = "SELECT hash, account, name, peer, thread FROM hapax_names WHERE hash > ? ORDER BY hash LIMIT ?";
        sql.add(page, &[&after, &ROWS_MAX]);
        let names: Vec<(Hash, String, String, String, Hash)> = ask(link, sql)
            .await?
            .read(|fields| Ok((fields.hash()?, fields.next()?, fields.next()?, fields.next()?, fields.hash()?)))?;
        let Some((last, ..)) = names.last() else { return Ok(()) };
        after = *last;
        let mut sql = Sql::default();
        let head = "INSERT INTO hapax_peers (hash, account, name, peer, thread) VALUES ";
        sql.add_rows(head, &names, &over("peer, thread"), |(_, account, name, peer, thread), values| {
            values.put(Value::hash(thread_hash(account, name)));
            for text in [account, name, peer] {
                values.put(Value::Text(text.as_str().into()));
            }
            values.put(Value::hash(*thread));
        });
        ask(link, sql).await?;
    }
}

/// Asks for a part of a migration: thousands of rows in no order that the disk likes.
async fn ask(link: &mut Link, sql: Sql) -> Result<Sets, StoreError> {
    link.ask_within(sql, MIGRATE_STATEMENT).await.map_err(cannot_open)
}

fn cannot_open(failure: Failure) -> StoreError {
    failure.into_error("the mysql store cannot be opened")
}

#[cfg(test)]
mod tests {
    use hapax_store::steps::records::name_hash;

    use super::*;

    fn good() -> Settings {
        let settings = [
            ("version", "10.11.4-MariaDB-1"),
            ("sql_mode", "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"),
            ("character_set_client", "utf8mb4"),
            ("character_set_connection", "utf8mb4"),
            ("character_set_results", "utf8mb4"),
            ("tx_isolation", "READ-COMMITTED"),
            ("max_allowed_packet", "16777216"),
            ("innodb_flush_log_at_trx_commit", "1"),
            ("read_only", "OFF"),
            ("wsrep_on", "OFF"),
            ("wsrep_provider", "none"),
            ("log_bin", "OFF"),
            ("binlog_format", "MIXED"),
        ];
        settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn with(name: &str, value: &str) -> Settings {
        let mut settings = good();
        settings.insert(name.to_owned(), value.to_owned());
        settings
    }

    #[test]
    fn a_server_that_can_keep_the_promise_is_taken_as_it_is() {
        for version in ["10.6.0-MariaDB", "11.4.2-MariaDB-log", "5.5.5-10.11.6-MariaDB", "8.0.36", "8.4.0", "9.1.0-commercial"] {
            assert_eq!(judge(&with("version", version)), Ok(vec![]), "{version}");
        }
        let mut on_statements = with("binlog_format", "ROW");
        on_statements.insert("log_bin".to_owned(), "ON".to_owned());
        assert_eq!(judge(&on_statements), Ok(vec![]));
    }

    #[test]
    fn a_server_that_cannot_is_refused_with_the_reason() {
        for (name, value, says) in [
            ("version", "10.5.22-MariaDB", "10.6"),
            ("version", "5.7.44", "8.0"),
            ("wsrep_on", "ON", "Galera"),
            ("wsrep_provider", "/usr/lib/galera/libgalera_smm.so", "Galera"),
            ("group_replication_group_name", "aaaa", "primaries"),
            ("read_only", "ON", "primary"),
            ("super_read_only", "1", "primary"),
            ("sql_mode", "NO_ENGINE_SUBSTITUTION", "strict"),
            ("character_set_connection", "utf8mb3", "utf8mb4"),
            ("tx_isolation", "REPEATABLE-READ", "READ COMMITTED"),
            ("max_allowed_packet", "1048576", "max_allowed_packet"),
        ] {
            let refused = judge(&with(name, value)).expect_err(name);
            assert!(refused.contains(says), "{refused}");
        }
        let mut logged = with("binlog_format", "STATEMENT");
        logged.insert("log_bin".to_owned(), "ON".to_owned());
        assert!(judge(&logged).is_err_and(|why| why.contains("ROW")));
    }

    #[test]
    fn commits_that_are_not_synced_are_shown_as_degraded() {
        let degraded = judge(&with("innodb_flush_log_at_trx_commit", "2")).expect("it can be used");
        assert!(degraded[0].contains("power cut"), "{degraded:?}");
    }

    #[test]
    fn addresses_name_a_database() {
        for good in ["mysql://u:p@h:3307/d", "mariadb://u:p@h/d", "mysql://h/d?socket=/run/s.sock"] {
            assert!(read_address(good).is_ok(), "{good}");
        }
        for bad in ["mysql://h", "mysql://h/", "mysql://h/d?unknown=1"] {
            assert!(matches!(read_address(bad), Err(StoreError::Refused(_))), "{bad}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn names_and_threads_of_the_version_before_are_found_again() {
        let Some(server) = hapax_testkit::servers::Engine::Mariadb.shared().await else { return };
        let url = server.fresh().await;
        let bare = Links::new(read_address(&url).expect("an address"), SETUP.to_owned(), 1);
        let mut link = bare.link().await.expect("it answers");
        for migration in &MIGRATIONS[..ONE_TABLE_SINCE - 1] {
            for statement in migration.split(";\n").filter(|statement| !statement.trim().is_empty()) {
                link.run(statement).await.expect("a version");
            }
        }
        let version = ONE_TABLE_SINCE - 1;
        let mut sql = Sql::default();
        sql.add(
            "CREATE TABLE hapax_schema (one TINYINT PRIMARY KEY, version INT UNSIGNED NOT NULL, pinged_ms BIGINT NOT NULL)",
            &[],
        );
        sql.add("INSERT INTO hapax_schema VALUES (1, ?, 0)", &[&version]);
        for peer in ["phone", "lid", "quiet"] {
            let put = "INSERT INTO hapax_threads (hash, account, peer, channel, last_ms, last_out, unread, purged_to, channel_key, account_key)
                       VALUES (?, '7', ?, 'shop', 5, 0, 1, 0, X'00', X'00')";
            sql.add(put, &[&thread_hash("7", peer), &peer]);
        }
        for (name, peer) in [("phone", "phone"), ("bsuid", "phone"), ("lid", "phone"), ("stranger", "nobody")] {
            let put = "INSERT INTO hapax_names (hash, account, name, peer, thread) VALUES (?, '7', ?, ?, ?)";
            sql.add(put, &[&name_hash("7", name), &name, &peer, &thread_hash("7", peer)]);
        }
        // It was begun before, and the version before went on.
        let begun = MIGRATIONS[ONE_TABLE_SINCE - 1].split(";\n").filter(|statement| !statement.trim().is_empty());
        begun.for_each(|statement| sql.add(statement, &[]));
        let stale = "INSERT INTO hapax_peers (hash, account, name, channel, last_ms, last_text, last_out, unread, purged_to)
                     VALUES (?, '7', ?, 'shop', 9, 'forgotten', 0, 7, 0)";
        sql.add(stale, &[&thread_hash("7", "phone"), &"phone"]);
        sql.add(stale, &[&thread_hash("7", "purged"), &"purged"]);
        link.ask(sql).await.expect("it is filled");
        let store = crate::open(&url, None).await.expect("it is brought up");
        let engine = store.engine();
        use hapax_store::steps::Engine as _;
        assert_eq!(engine.names_of("7", "phone").await.expect("names"), ["bsuid", "lid", "phone"]);
        assert_eq!(engine.names_of("7", "nobody").await.expect("names"), ["stranger"]);
        assert_eq!(engine.names_of("7", "quiet").await.expect("names"), [""; 0]);
        let threads = engine.list_threads(&hapax_store::ThreadQuery::default(), 10).await.expect("threads");
        let peers: Vec<&str> = threads.iter().map(|thread| &*thread.peer).collect();
        assert_eq!(peers, ["quiet", "phone", "lid"]);
        assert!(threads.iter().all(|thread| thread.last_text.is_none() && thread.last_ms == 5), "{threads:?}");
        server.remove(&url).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_migration_asks_may_take_longer_than_a_call() {
        let Some(server) = hapax_testkit::servers::Engine::Mariadb.shared().await else { return };
        let url = server.fresh().await;
        let bare = Links::new(read_address(&url).expect("an address"), SETUP.to_owned(), 1);
        let mut link = bare.link().await.expect("it answers");
        let mut sql = Sql::default();
        sql.add("SELECT SLEEP(6)", &[]);
        let slept: i64 = ask(&mut link, sql).await.expect("it waits").one(|fields| fields.next()).expect("an answer");
        assert_eq!(slept, 0, "it was not cut off");
        server.remove(&url).await;
    }
}
