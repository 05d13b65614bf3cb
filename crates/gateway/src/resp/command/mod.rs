//! What a client may ask of the door, read from its words. Mistakes are answered in Redis' own.

mod expire;
mod session;
mod set;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::codec::{Reply, Words};

/// Longest key.
pub(super) const KEY_MAX_BYTES: usize = 255;

pub(super) use expire::Expire;
pub(super) use session::{Client, Credentials, Hello};
pub(super) use set::{Answer, Lifetime, Set, When};

/// A command that can be carried out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Set(Set),
    Get(Key),
    GetMany(Vec<Key>),
    Remove(Vec<Key>),
    Exists(Vec<Key>),
    Expire(Expire),
    TimeLeft {
        key: Key,
        unit: Unit,
    },
    /// A script by its text.
    Eval {
        script: Bytes,
        call: Call,
    },
    /// .. by its hash, which was made when its text came.
    EvalSha {
        sha: String,
        call: Call,
    },
    ScriptLoad(Bytes),
    ScriptExists(Vec<String>),
    Hello(Hello),
    Auth(Credentials),
    Ping(Option<Bytes>),
    Echo(Bytes),
    Client(Client),
    Info,
    /// What is known of the commands themselves.
    Commands(Commands),
    Select,
    Quit,
    /// A request of HTTP: somebody makes a browser talk to us.
    NotRedis,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Commands {
    All,
    Count,
    Named(Vec<String>),
    /// Nothing more is told.
    Docs,
}

/// Whether a time is told in seconds or in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
}

impl Unit {
    /// In milliseconds, unless no clock goes that far.
    fn ms(self, count: i64) -> Option<i64> {
        match self {
            Unit::Seconds => count.checked_mul(1_000),
            Unit::Milliseconds => Some(count),
        }
    }
}

/// A key that the store takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) String);

impl Key {
    fn read(word: &Bytes) -> Result<Self, Reply> {
        let text = std::str::from_utf8(word).ok().filter(|text| (1..=KEY_MAX_BYTES).contains(&text.len()));
        match text {
            Some(text) => Ok(Self(text.to_owned())),
            None => Err(Reply::error(format!("ERR a key is a UTF-8 text of 1 to {} bytes here", KEY_MAX_BYTES))),
        }
    }

    fn read_all(words: &[Bytes]) -> Result<Vec<Self>, Reply> {
        words.iter().map(Self::read).collect()
    }
}

/// The keys and arguments that a script is called with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) keys: Vec<Key>,
    pub(super) arguments: Vec<Bytes>,
}

/// Reads a command; the error is what to answer. Nobody has been asked who they are yet.
pub(super) fn read(words: &Words) -> Result<Command, Reply> {
    let (name, rest) = (&words[0], &words[1..]);
    let known = KNOWN.iter().find(|known| known.name.as_bytes().eq_ignore_ascii_case(name));
    let Some(known) = known else { return not_known(name, rest) };
    if !known.takes(words.len()) {
        return Err(wrong_number(known.name));
    }
    match known.name {
        "set" => Set::read(rest).map(Command::Set),
        "setnx" => Set::if_absent(rest).map(Command::Set),
        "setex" => Set::with_seconds(rest).map(Command::Set),
        "get" => Ok(Command::Get(Key::read(&rest[0])?)),
        "mget" => Ok(Command::GetMany(Key::read_all(rest)?)),
        "del" | "unlink" => Ok(Command::Remove(Key::read_all(rest)?)),
        "exists" => Ok(Command::Exists(Key::read_all(rest)?)),
        "expire" => Expire::read("expire", Unit::Seconds, rest).map(Command::Expire),
        "pexpire" => Expire::read("pexpire", Unit::Milliseconds, rest).map(Command::Expire),
        "ttl" => Ok(Command::TimeLeft { key: Key::read(&rest[0])?, unit: Unit::Seconds }),
        "pttl" => Ok(Command::TimeLeft { key: Key::read(&rest[0])?, unit: Unit::Milliseconds }),
        "eval" => Ok(Command::Eval { script: rest[0].clone(), call: call(&rest[1..])? }),
        "evalsha" => Ok(Command::EvalSha { sha: text_of(&rest[0]).to_ascii_lowercase(), call: call(&rest[1..])? }),
        "script" => script(rest),
        "command" => Ok(Command::Commands(commands(rest))),
        "hello" => session::hello(rest).map(Command::Hello),
        "auth" => session::auth(rest).map(Command::Auth),
        "client" => session::client(rest).map(Command::Client),
        "ping" => Ok(Command::Ping(rest.first().cloned())),
        "echo" => Ok(Command::Echo(rest[0].clone())),
        "info" => Ok(Command::Info),
        "select" => match integer(&rest[0])? {
            0 => Ok(Command::Select),
            _ => Err(Reply::error("ERR DB index is out of range")),
        },
        "quit" => Ok(Command::Quit),
        "post" | "host:" => Ok(Command::NotRedis),
        _ => not_known(&words[0], rest),
    }
}

/// A command by its name, and how many words it has, the name counted; negative: at least so many.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) arity: i64,
    /// The places of its keys among the words: first, last and step.
    pub(super) keys: (i64, i64, i64),
    pub(super) writes: bool,
}

impl Known {
    const fn new(name: &'static str, arity: i64, keys: (i64, i64, i64), writes: bool) -> Self {
        Self { name, arity, keys, writes }
    }

    fn takes(&self, words: usize) -> bool {
        let words = words as i64;
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// What is not spoken of: it is known only so that it can be hung up on.
    pub(super) fn is_shown(&self) -> bool {
        !matches!(self.name, "post" | "host:")
    }
}

const ONE: (i64, i64, i64) = (1, 1, 1);
const ALL: (i64, i64, i64) = (1, -1, 1);
const NONE: (i64, i64, i64) = (0, 0, 0);

pub(super) const KNOWN: &[Known] = &[
    Known::new("set", -3, ONE, true),
    Known::new("setnx", 3, ONE, true),
    Known::new("setex", 4, ONE, true),
    Known::new("get", 2, ONE, false),
    Known::new("mget", -2, ALL, false),
    Known::new("del", -2, ALL, true),
    Known::new("unlink", -2, ALL, true),
    Known::new("exists", -2, ALL, false),
    Known::new("expire", -3, ONE, true),
    Known::new("pexpire", -3, ONE, true),
    Known::new("ttl", 2, ONE, false),
    Known::new("pttl", 2, ONE, false),
    Known::new("eval", -3, NONE, true),
    Known::new("evalsha", -3, NONE, true),
    Known::new("script", -2, NONE, false),
    Known::new("hello", -1, NONE, false),
    Known::new("auth", -2, NONE, false),
    Known::new("client", -2, NONE, false),
    Known::new("command", -1, NONE, false),
    Known::new("ping", -1, NONE, false),
    Known::new("echo", 2, NONE, false),
    Known::new("info", -1, NONE, false),
    Known::new("select", 2, NONE, false),
    Known::new("quit", -1, NONE, false),
    Known::new("post", -1, NONE, false),
    Known::new("host:", -1, NONE, false),
];

fn script(words: &[Bytes]) -> Result<Command, Reply> {
    let name = text_of(&words[0]);
    match (name.to_ascii_lowercase().as_str(), &words[1..]) {
        ("load", [script]) => Ok(Command::ScriptLoad(script.clone())),
        ("exists", shas) if !shas.is_empty() => {
            Ok(Command::ScriptExists(shas.iter().map(|sha| text_of(sha).to_ascii_lowercase()).collect()))
        }
        ("load", _) => Err(wrong_number("script|load")),
        ("exists", _) => Err(wrong_number("script|exists")),
        _ => Err(unknown_subcommand(&words[0], "SCRIPT")),
    }
}

fn commands(words: &[Bytes]) -> Commands {
    let names = |words: &[Bytes]| words.iter().map(|word| text_of(word).to_ascii_lowercase()).collect();
    match words.first().map(|word| text_of(word).to_ascii_lowercase()).as_deref() {
        None => Commands::All,
        Some("count") => Commands::Count,
        Some("info") if words.len() == 1 => Commands::All,
        Some("info") => Commands::Named(names(&words[1..])),
        Some(_) => Commands::Docs,
    }
}

/// The keys and arguments of a script: their number comes first.
fn call(words: &[Bytes]) -> Result<Call, Reply> {
    let (count, rest) = (integer(&words[0])?, &words[1..]);
    let Ok(count) = usize::try_from(count) else { return Err(Reply::error("ERR Number of keys can't be negative")) };
    if count > rest.len() {
        return Err(Reply::error("ERR Number of keys can't be greater than number of args"));
    }
    Ok(Call { keys: Key::read_all(&rest[..count])?, arguments: rest[count..].to_vec() })
}

fn not_known(name: &Bytes, rest: &[Bytes]) -> Result<Command, Reply> {
    let arguments: String = rest.iter().take(8).map(|word| format!("'{}' ", shortened(word))).collect();
    Err(Reply::error(format!("ERR unknown command '{}', with args beginning with: {arguments}", shortened(name))))
}

fn unknown_subcommand(name: &Bytes, of: &str) -> Reply {
    Reply::error(format!("ERR unknown subcommand '{}'. Try {of} HELP.", shortened(name)))
}

fn wrong_number(name: &str) -> Reply {
    Reply::error(format!("ERR wrong number of arguments for '{name}' command"))
}

fn syntax() -> Reply {
    Reply::error("ERR syntax error")
}

/// Arguments are repeated only in their beginning: they may be long, and other people's.
fn shortened(word: &Bytes) -> String {
    text_of(word).chars().take(32).collect()
}

fn text_of(word: &Bytes) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(word)
}

/// A whole number as Redis writes it: no blanks, no plus sign, no leading zeros.
pub(super) fn integer(word: &Bytes) -> Result<i64, Reply> {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let is_plain = word.as_ref() == b"0" || matches!(digits, [b'1'..=b'9', ..]);
    let number = std::str::from_utf8(word).ok().filter(|_| is_plain).and_then(|text| text.parse().ok());
    number.ok_or_else(|| Reply::error("ERR value is not an integer or out of range"))
}
