use super::*;
use crate::resp::codec::Protocol;

fn words(line: &str) -> Words {
    line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

fn said(line: &str) -> String {
    match read(&words(line)) {
        Err(Reply::Error(text)) => text.into_owned(),
        other => panic!("{line}: {other:?}"),
    }
}

fn set(line: &str) -> Set {
    match read(&words(line)) {
        Ok(Command::Set(set)) => set,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn set_with_its_options() {
    for (line, condition, lifetime, answer) in [
        ("SET k v", When::Always, Lifetime::Usual, Answer::OkOrNil),
        ("set k v nx ex 10", When::IfAbsent, Lifetime::ForMs(10_000), Answer::OkOrNil),
        ("SET k v PX 10 NX", When::IfAbsent, Lifetime::ForMs(10), Answer::OkOrNil),
        ("SET k v XX KEEPTTL", When::IfPresent, Lifetime::Kept, Answer::OkOrNil),
        ("SET k v EXAT 2000000000", When::Always, Lifetime::UntilMs(2_000_000_000_000), Answer::OkOrNil),
        ("SET k v PXAT 5 GET", When::Always, Lifetime::UntilMs(5), Answer::Before),
        ("SET k v NX GET", When::IfAbsent, Lifetime::Usual, Answer::Before),
        ("SETNX k v", When::IfAbsent, Lifetime::Usual, Answer::OneOrZero),
        ("SETEX k 7 v", When::Always, Lifetime::ForMs(7_000), Answer::OkOrNil),
    ] {
        let expected = Set { key: Key("k".to_owned()), value: Bytes::from_static(b"v"), condition, lifetime, answer };
        assert_eq!(set(line), expected, "{line}");
    }
}

#[test]
fn mistakes_are_told_as_redis_tells_them() {
    let long = "k".repeat(256);
    for (line, expected) in [
        ("SET k", "ERR wrong number of arguments for 'set' command"),
        ("SET k v NX XX", "ERR syntax error"),
        ("SET k v EX 1 PX 1", "ERR syntax error"),
        ("SET k v KEEPTTL EX 1", "ERR syntax error"),
        ("SET k v EX 1 KEEPTTL", "ERR syntax error"),
        ("SET k v EX", "ERR syntax error"),
        ("SET k v EX ten", "ERR value is not an integer or out of range"),
        ("SET k v EX +1", "ERR value is not an integer or out of range"),
        ("SET k v EX 0", "ERR invalid expire time in 'set' command"),
        ("SET k v PX -1", "ERR invalid expire time in 'set' command"),
        ("SET k v EX 9223372036854775807", "ERR invalid expire time in 'set' command"),
        ("SETEX k 0 v", "ERR invalid expire time in 'setex' command"),
        ("GET a b", "ERR wrong number of arguments for 'get' command"),
        ("EXPIRE k soon", "ERR value is not an integer or out of range"),
        ("EXPIRE k 1 YY", "ERR Unsupported option YY"),
        ("EXPIRE k 9223372036854775807", "ERR invalid expire time in 'expire' command"),
        ("SELECT 1", "ERR DB index is out of range"),
        ("HELLO 4", "NOPROTO unsupported protocol version"),
        ("HELLO three", "ERR Protocol version is not an integer or out of range"),
        ("HELLO 3 AUTH u", "ERR Syntax error in HELLO option 'AUTH'"),
        ("EVAL return 2 a", "ERR Number of keys can't be greater than number of args"),
        ("EVAL return -1 a", "ERR Number of keys can't be negative"),
        ("SCRIPT FLUSH", "ERR unknown subcommand 'FLUSH'. Try SCRIPT HELP."),
        ("CLIENT KILL x", "ERR unknown subcommand 'KILL'. Try CLIENT HELP."),
        ("CLIENT ID x", "ERR wrong number of arguments for 'client|id' command"),
        ("FLUSHALL now", "ERR unknown command 'FLUSHALL', with args beginning with: 'now' "),
        (&format!("GET {long}"), "ERR a key is a UTF-8 text of 1 to 255 bytes here"),
        ("GET ", "ERR a key is a UTF-8 text of 1 to 255 bytes here"),
    ] {
        assert_eq!(said(line), expected, "{line}");
    }
    let binary = vec![Bytes::from_static(b"GET"), Bytes::from_static(b"\xff")];
    assert!(matches!(read(&binary), Err(Reply::Error(text)) if text.contains("UTF-8")));
}

#[test]
fn the_connection_is_spoken_of_too() {
    let token = |token: &str| Credentials { token: token.to_owned() };
    let greeting = Hello { protocol: Some(Protocol::Resp3), credentials: Some(token("t")), name: Some(Bytes::from_static(b"n")) };
    for (line, expected) in [
        ("HELLO 3 AUTH user t SETNAME n", Command::Hello(greeting)),
        ("AUTH t", Command::Auth(token("t"))),
        ("AUTH default t", Command::Auth(token("t"))),
        ("PING", Command::Ping(None)),
        ("ping x", Command::Ping(Some(Bytes::from_static(b"x")))),
        ("CLIENT SETINFO LIB-NAME redis-py", Command::Client(Client::Noted)),
        ("SELECT 0", Command::Select),
        ("COMMAND DOCS", Command::Commands(Commands::Docs)),
        ("QUIT", Command::Quit),
        ("POST / HTTP/1.1", Command::NotRedis),
        ("Host: 127.0.0.1:6379", Command::NotRedis),
        ("EXPIRE k -1", Command::Expire(Expire { key: Key("k".to_owned()), ms: -1_000, applies: true })),
        ("PEXPIRE k 5 nx", Command::Expire(Expire { key: Key("k".to_owned()), ms: 5, applies: false })),
    ] {
        assert_eq!(read(&words(line)), Ok(expected), "{line}");
    }
    assert!(!format!("{:?}", token("secret")).contains("secret"));
}
