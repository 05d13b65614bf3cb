use clap::CommandFactory;
use hapax_store::prelude::*;
use hapax_store::{Disposition, Outcome, SendOutcome};

use super::*;
use crate::api_tests::{Fixture, TOKEN};

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn no_argument_takes_a_token() {
    let takes = |command: &clap::Command| {
        let named = |argument: &clap::Arg| argument.get_long().is_some_and(|long| long.contains("token"));
        let bare = |argument: &&clap::Arg| named(argument) && argument.get_long() != Some("token-file");
        command.get_arguments().find(bare).map(ToString::to_string)
    };
    let cli = Cli::command();
    let found: Vec<_> = cli.get_subcommands().chain([&cli]).filter_map(takes).collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn every_command_teaches_with_an_example() {
    for command in Cli::command().get_subcommands().filter(|command| command.get_name() != "help" && !command.is_hide_set()) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Example") && help.contains(&format!("hapax {}", command.get_name())), "{}", command.get_name());
        assert!(command.get_about().is_some(), "{}", command.get_name());
    }
}

#[test]
fn wrong_arguments_are_usage_errors_that_name_what_is_right() {
    for (arguments, hint) in [
        (vec!["story", "nil"], "expected an id as `hapax events` shows it"),
        (vec!["events", "--kind", "messages"], "use one of message, status"),
        (vec!["events", "--limit", "0"], "write 1 to 500"),
        (vec!["redrive"], "--all"),
        (vec!["redrive", "--all", "--channel", "x"], "cannot be used with"),
        (vec!["send", "--to", "55119"], "--text"),
        (vec!["send", "--to", "55119", "--text", "x", "--payload", "{}"], "cannot be used with"),
        (vec!["send", "--to", "55119", "--payload", "[]"], "write an object"),
        (vec!["send", "--to", "55119", "--text", "x", "--wait", "26"], "25"),
        (vec!["send", "--to", "55119", "--text", "x", "--priority", "high"], "use one of reply, normal, bulk"),
        (vec!["messages", "x"], "expected `account__peer`"),
        (vec!["outbox", "retry", "evt_1"], "expected `msg_` and 32 hex digits"),
        (vec!["outbox", "cancel"], "<ID>..."),
        (vec!["accounts", "resume", "shop"], "<ACCOUNT>"),
        (vec!["evnts"], "events"),
    ] {
        let error = Cli::try_parse_from(std::iter::once("hapax").chain(arguments)).err().expect("refused");
        assert!(error.use_stderr());
        assert!(error.to_string().contains(hint), "{error}");
    }
}

#[test]
fn exit_codes_are_those_of_the_manual() {
    assert_eq!(Failure::plain("x").code(), 1);
    assert_eq!(Failure::Usage(String::new()).code(), 2);
    assert_eq!(Failure::BadConfig(Default::default()).code(), 3);
    assert_eq!(Failure::NoConfig(String::new()).code(), 3);
    assert_eq!(Failure::Unreachable(String::new()).code(), 4);
    assert_eq!(Failure::NothingMatched(String::new()).code(), 5);
}

#[test]
fn a_starter_is_private_good_and_never_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hapax.toml");
    write_starter(&path).expect("written");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    }
    let text = std::fs::read_to_string(&path).expect("readable");
    let again = write_starter(&path).expect_err("it is there already");
    assert!(again.to_string().contains("is there already"), "{again}");
    assert_eq!(std::fs::read_to_string(&path).expect("readable"), text);
}

#[test]
fn what_is_shown_hides_secrets() {
    let text = "admin_token = 'an-admin-token-of-mine'\n[channel.c]\nprovider = 'whatsapp'\nsecret = 'a-long-secret'\n\
                verify_token = 'my-verify-token'\ntoken = 'my-sending-token'\nsign_with = 'my-signing-key'\ntarget = 'http://u:pass@h/'";
    let file = Some(crate::config::SourceFile { name: "t".to_owned(), text: text.to_owned() });
    let env = crate::config::Environment { vars: Default::default(), read_file: &|_| Err(std::io::ErrorKind::NotFound.into()) };
    let config = crate::config::load(&crate::config::Sources { file, env, flags: Default::default() }).expect("a good config");
    let shown = toml::to_string(&shown::show(&config)).expect("TOML");
    for secret in ["an-admin-token", "a-long-secret", "my-verify-token", "my-sending-token", "my-signing-key", "pass"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains("window = \"8d\""), "{shown}");
    for sending in ["rate = \"80/s\"", "chat_rate = \"1/6s burst 45\"", "on_unknown = \"reconcile\""] {
        assert!(shown.contains(sending), "{sending}: {shown}");
    }
}

/// Runs a command line against a server and gives its exit code.
async fn exit_code(arguments: &[&str], server: &str, token: &str) -> u8 {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("empty.toml");
    std::fs::write(&file, "").expect("written");
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, format!("{token}\n")).expect("written");
    let (file, token_file) = (file.display().to_string(), token_file.display().to_string());
    let global = ["hapax", "--config", &file, "--server", server, "--token-file", &token_file];
    let cli = Cli::try_parse_from(global.into_iter().chain(arguments.iter().copied())).unwrap_or_else(|said| panic!("{said}"));
    let output = Output::new(cli.global.json);
    cli.command.run(&cli.global, &output).await.map_or_else(|failure| failure.code(), |()| 0)
}

async fn serve(fixture: &Fixture) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    let router = fixture.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    server
}

#[tokio::test]
async fn commands_ask_a_running_server_and_say_by_their_code_how_it_went() {
    let fixture = Fixture::new();
    let server = serve(&fixture).await;

    let unknown = format!("evt_{:032x}", 9);
    let no_message = format!("msg_{:032x}", 9);
    for empty in [
        vec!["threads"],
        vec!["outbox"],
        vec!["outbox", "--unknown"],
        vec!["accounts"],
        vec!["events"],
        vec!["events", "--json"],
        vec!["inbox"],
        vec!["parked"],
    ] {
        assert_eq!(exit_code(&empty, &server, TOKEN).await, 0, "{empty:?}: an empty list is no failure");
    }
    for nothing in [
        vec!["messages", "7__55119"],
        vec!["messages", &no_message],
        vec!["outbox", "retry", &no_message],
        vec!["outbox", "cancel", &no_message],
        vec!["accounts", "resume", "shop", "7"],
        vec!["redrive", "--all"],
        vec!["story", &unknown],
        vec!["story", "latest"],
        vec!["show", &unknown],
        vec!["replay", &unknown],
        vec!["replay", "evt_0199"],
    ] {
        assert_eq!(exit_code(&nothing, &server, TOKEN).await, 5, "{nothing:?}");
    }
    let event = fixture.accept("m1", Disposition::Deliver).await;
    let short = event.parse::<hapax_domain::EventId>().expect("an id").short();
    fixture.settle(Outcome::Parked { why: "404".to_owned(), charged: true }).await;
    for good in [
        vec!["events", "--json"],
        vec!["events", "--channel", "shop", "--thread", "7__55119"],
        vec!["parked"],
        vec!["story", &event],
        vec!["story", &short],
        vec!["story", "latest", "--wide"],
        vec!["show", &event[..10]],
        vec!["show", "latest", "--json"],
        vec!["redrive", &short],
        vec!["inbox"],
        vec!["replay", &event],
        vec!["stats"],
        vec!["purge"],
    ] {
        assert_eq!(exit_code(&good, &server, TOKEN).await, 0, "{good:?}");
    }
    assert_eq!(exit_code(&["stats"], &server, "another-token-than-that").await, 1);
}

#[tokio::test]
async fn the_page_that_a_list_names_is_shown_by_it() {
    let fixture = Fixture::new();
    let server = serve(&fixture).await;
    for n in 0..2 {
        fixture.accept(&format!("m{n}"), Disposition::Deliver).await;
        fixture.queue(&format!("5511{n}"), &format!("r{n}")).await;
    }
    for list in ["events", "inbox", "outbox", "threads"] {
        let (_, page) = fixture.get(&format!("/v1/{list}?limit=1")).await;
        let next = page["next"].as_str().unwrap_or_else(|| panic!("one page of {list}"));
        assert_eq!(exit_code(&[list, "--cursor", next], &server, TOKEN).await, 0, "{list}");
    }
}

/// A page may be empty and yet not be the last: there was too much of others to look through.
#[tokio::test]
async fn an_empty_page_with_more_behind_it_is_not_the_end_of_the_list() {
    use axum::routing::get;
    let page = |name: &'static str| get(async move || axum::Json(serde_json::json!({name: [], "next": "abc"})));
    let router = axum::Router::new()
        .route("/v1/threads", page("threads"))
        .route("/v1/threads/{id}/messages", page("messages"))
        .route("/v1/events", get(async || axum::Json(serde_json::json!({"events": []}))));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    for more in [&["threads"][..], &["threads", "--json"], &["messages", "7__55119"]] {
        assert_eq!(exit_code(more, &server, TOKEN).await, 0, "{more:?}");
    }
    assert_eq!(exit_code(&["events"], &server, TOKEN).await, 0);
}

#[tokio::test]
async fn a_message_is_sent_followed_and_cancelled_from_the_command_line() {
    let fixture = Fixture::new();
    let server = serve(&fixture).await;

    let send =
        ["send", "--channel", "shop", "--account", "7", "--to", "55119", "--text", "hi", "--request-id", "r1", "--wait", "0"];
    assert_eq!(exit_code(&send, &server, TOKEN).await, 0);
    assert_eq!(exit_code(&send, &server, TOKEN).await, 0, "the same request again is no failure");
    let other = ["send", "--channel", "shop", "--account", "7", "--to", "55119", "--text", "ho", "--request-id", "r1"];
    assert_eq!(exit_code(&other, &server, TOKEN).await, 1);
    let huge = "x".repeat(100 << 10);
    assert_eq!(exit_code(&["send", "--channel", "help", "--to", "77", "--text", &huge], &server, TOKEN).await, 1);

    let message = fixture.queue("55129", "r2").await;
    fixture.store.pause_account("shop", "7", Some("the token has expired")).await.expect("paused");
    for good in [
        vec!["threads", "--account", "7", "--limit", "1"],
        vec!["messages", "7__55119"],
        vec!["messages", &message],
        vec!["messages", &message, "--json"],
        vec!["outbox"],
        vec!["outbox", "--channel", "shop", "--limit", "1", "--json"],
        vec!["outbox", "cancel", &message],
        vec!["outbox", "retry", &message],
        vec!["accounts"],
        vec!["accounts", "resume", "shop", "7"],
        vec!["stats"],
    ] {
        assert_eq!(exit_code(&good, &server, TOKEN).await, 0, "{good:?}");
    }
    assert_eq!(exit_code(&["outbox", "retry", &message], &server, TOKEN).await, 1, "it waits already");
    fixture.end_message(SendOutcome::Failed { why: "not on WhatsApp".to_owned() }).await;
    let again = [&send[..10], &["r1"]].concat();
    assert_eq!(exit_code(&again, &server, TOKEN).await, 1, "the first one failed");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_code_4() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    assert_eq!(exit_code(&["stats"], &server, TOKEN).await, 4);
    assert_eq!(exit_code(&["stats"], "not an address", TOKEN).await, 2);
}

#[cfg(unix)]
#[test]
fn files_that_others_may_read_are_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let (file, store) = (folder.path().join("hapax.toml"), folder.path().join("hapax.db"));
    let text = format!("store = 'sqlite:{}'\nspool = '{}/spool.db'", store.display(), folder.path().display());
    let source = Some(crate::config::SourceFile { name: "t".to_owned(), text: text.clone() });
    let env = crate::config::Environment { vars: Default::default(), read_file: &|_| Err(std::io::ErrorKind::NotFound.into()) };
    let config = crate::config::load(&crate::config::Sources { file: source, env, flags: Default::default() }).expect("good");
    for path in [&file, &store] {
        std::fs::write(path, "").expect("written");
    }
    let named = |mode: u32| {
        for path in [&file, &store] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
        }
        sources::open_files(file.to_str(), &config)
    };
    assert_eq!(named(0o600), Vec::<String>::new());
    let said = named(0o640);
    assert!(said.len() == 2 && said[0].contains("chmod 600") && said[1].contains("hapax.db"), "{said:?}");
}

/// What is written by hand is not wrapped again: clap breaks only what is one paragraph.
#[test]
fn help_texts_fit_a_terminal_of_eighty_columns() {
    fn look(command: &clap::Command, too_long: &mut Vec<String>) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let long = after.lines().filter(|line| line.chars().count() > 80);
        too_long.extend(long.map(|line| format!("{}: {line}", command.get_name())));
        command.get_subcommands().for_each(|below| look(below, too_long));
    }
    let mut too_long = Vec::new();
    look(&Cli::command(), &mut too_long);
    assert!(too_long.is_empty(), "{too_long:#?}");
}
