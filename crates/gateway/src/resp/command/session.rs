//! Commands about the connection itself.

use std::fmt;

use bytes::Bytes;

use super::{integer, syntax, text_of, unknown_subcommand, wrong_number};
use crate::resp::codec::{Protocol, Reply};

/// What somebody proves himself with. The user's name says nothing: a token has one of its own.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::resp) struct Credentials {
    pub(in crate::resp) token: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::resp) struct Hello {
    /// `None`: the version stays.
    pub(in crate::resp) protocol: Option<Protocol>,
    pub(in crate::resp) credentials: Option<Credentials>,
    pub(in crate::resp) name: Option<Bytes>,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::resp) enum Client {
    Id,
    GetName,
    SetName(Bytes),
    /// Taken, and of no consequence.
    Noted,
}

pub(super) fn hello(words: &[Bytes]) -> Result<Hello, Reply> {
    let mut hello = Hello { protocol: None, credentials: None, name: None };
    let Some(version) = words.first() else { return Ok(hello) };
    hello.protocol = match integer(version) {
        Ok(2) => Some(Protocol::Resp2),
        Ok(3) => Some(Protocol::Resp3),
        Ok(_) => return Err(Reply::error("NOPROTO unsupported protocol version")),
        Err(_) => return Err(Reply::error("ERR Protocol version is not an integer or out of range")),
    };
    let mut options = &words[1..];
    while let Some(option) = options.first() {
        match (option.to_ascii_uppercase().as_slice(), options) {
            (b"AUTH", [_, _, password, ..]) => {
                hello.credentials = Some(credentials(password));
                options = &options[3..];
            }
            (b"SETNAME", [_, name, ..]) => {
                hello.name = Some(client_name(name)?);
                options = &options[2..];
            }
            _ => return Err(Reply::error(format!("ERR Syntax error in HELLO option '{}'", super::shortened(option)))),
        }
    }
    Ok(hello)
}

/// `AUTH password` and `AUTH user password`.
pub(super) fn auth(words: &[Bytes]) -> Result<Credentials, Reply> {
    match words {
        [password] | [_, password] => Ok(credentials(password)),
        _ => Err(syntax()),
    }
}

fn credentials(password: &Bytes) -> Credentials {
    Credentials { token: text_of(password).into_owned() }
}

pub(super) fn client(words: &[Bytes]) -> Result<Client, Reply> {
    let (name, rest) = (text_of(&words[0]).to_ascii_lowercase(), &words[1..]);
    match (name.as_str(), rest) {
        ("id", []) => Ok(Client::Id),
        ("getname", []) => Ok(Client::GetName),
        ("setname", [name]) => client_name(name).map(Client::SetName),
        ("setinfo", [_, _]) | ("no-evict" | "no-touch", [_]) => Ok(Client::Noted),
        ("id" | "getname" | "setname" | "setinfo" | "no-evict" | "no-touch", _) => Err(wrong_number(&format!("client|{name}"))),
        _ => Err(unknown_subcommand(&words[0], "CLIENT")),
    }
}

fn client_name(name: &Bytes) -> Result<Bytes, Reply> {
    if name.len() <= 255 && name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(name.clone());
    }
    Err(Reply::error("ERR Client names cannot contain spaces, newlines or special characters."))
}
