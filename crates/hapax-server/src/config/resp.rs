//! The Redis door: whether it is open, where, and who can listen in.

use std::net::SocketAddr;

use hapax_gateway::resp::tls::{BadTls, Tls};

use super::mistake::Mistakes;
use super::section::{Found, Section};
use super::tree::Environment;

/// Keys that mean something only with `resp_listen`.
const KEYS: [&str; 3] = ["resp_public", "resp_tls_cert", "resp_tls_key"];

/// Where the door is, and how it is kept.
#[derive(Clone, Debug)]
pub struct Resp {
    pub listen: SocketAddr,
    /// Other machines may reach it though nothing is encrypted.
    pub public: bool,
    pub tls: Option<RespTls>,
}

/// The files, by name, and what was read from them.
#[derive(Clone, Debug)]
pub struct RespTls {
    pub cert: String,
    pub key: String,
    pub tls: Tls,
}

/// Reads what the config says of it; `None`: there is no door. `taken` are the other addresses.
pub(super) fn read(
    top: &Section<'_>,
    listen: Option<SocketAddr>,
    taken: &[Option<SocketAddr>],
    env: &Environment<'_>,
    mistakes: &mut Mistakes,
) -> Option<Resp> {
    let Some(found) = top.get("resp_listen") else {
        let idle = KEYS.iter().filter_map(|key| top.get(key));
        idle.for_each(|found| {
            found.refuse(mistakes, "this is for the Redis door; add resp_listen = \"127.0.0.1:6379\", or take it out")
        });
        return None;
    };
    let public = top.get("resp_public").and_then(|found| found.truth(mistakes)).unwrap_or_default();
    let tls = read_tls(top, env, mistakes);
    let listen = listen?;
    if taken.contains(&Some(listen)) {
        found.refuse(mistakes, "something else listens there; choose another port");
    }
    let is_open = !listen.ip().to_canonical().is_loopback() && !public;
    if is_open && top.get("resp_tls_cert").is_none() && top.get("resp_tls_key").is_none() {
        let what = "other machines reach this address, and tokens and values could be read on the way; add resp_tls_cert and resp_tls_key, \
                    or resp_public = true if the network between is safe, or stay on 127.0.0.1";
        found.refuse(mistakes, what);
    }
    Some(Resp { listen, public, tls })
}

fn read_tls(top: &Section<'_>, env: &Environment<'_>, mistakes: &mut Mistakes) -> Option<RespTls> {
    let (cert, key) = (top.get("resp_tls_cert"), top.get("resp_tls_key"));
    let (cert, key) = match (cert, key) {
        (Some(cert), Some(key)) => (cert, key),
        (None, None) => return None,
        (Some(alone), None) => return refuse_half(&alone, "resp_tls_key", mistakes),
        (None, Some(alone)) => return refuse_half(&alone, "resp_tls_cert", mistakes),
    };
    let (cert_text, key_text) = (read_pem(&cert, env, mistakes), read_pem(&key, env, mistakes));
    let ((cert_path, cert_text), (key_path, key_text)) = (cert_text?, key_text?);
    match Tls::read(&cert_text, &key_text) {
        Ok(tls) => Some(RespTls { cert: cert_path.to_owned(), key: key_path.to_owned(), tls }),
        Err(BadTls::Certificate(what)) => {
            cert.refuse(mistakes, what);
            None
        }
        Err(BadTls::Key(what)) => {
            key.refuse(mistakes, what);
            None
        }
    }
}

fn refuse_half(alone: &Found<'_>, other: &str, mistakes: &mut Mistakes) -> Option<RespTls> {
    alone.refuse(mistakes, format!("TLS takes a certificate and its key; add {other}"));
    None
}

fn read_pem<'t>(found: &Found<'t>, env: &Environment<'_>, mistakes: &mut Mistakes) -> Option<(&'t str, String)> {
    let path = found.text(mistakes)?;
    match (env.read_file)(path) {
        Ok(text) => Some((path, text)),
        Err(why) => {
            found.refuse(mistakes, format!("this file cannot be read: {why}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::{Config, Flags, SourceFile, Sources, load};
    use super::*;

    fn load_text(text: &str, read_file: &dyn Fn(&str) -> std::io::Result<String>) -> Result<Config, String> {
        let file = Some(SourceFile { name: "hapax.toml".to_owned(), text: text.to_owned() });
        let sources = Sources { file, env: Environment { vars: Default::default(), read_file }, flags: Flags::default() };
        load(&sources).map_err(|mistakes| mistakes.to_string())
    }

    fn no_file(_: &str) -> std::io::Result<String> {
        Err(std::io::ErrorKind::NotFound.into())
    }

    #[test]
    fn there_is_no_door_unless_asked_for() {
        assert!(load_text("", &no_file).expect("a good config").resp.is_none());
        let door = load_text("resp_listen = '127.0.0.1:6379'", &no_file).expect("a good config").resp.expect("a door");
        assert_eq!((door.listen.port(), door.public, door.tls.is_none()), (6379, false, true));
        let open = "resp_listen = '0.0.0.0:6379'\nresp_public = true";
        assert!(load_text(open, &no_file).expect("a good config").resp.expect("a door").public);
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_line() {
        let files = |path: &str| match path {
            "empty.pem" => Ok(String::new()),
            "odd.pem" => Ok("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n".to_owned()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        for (text, said) in [
            ("resp_listen = 6379", "hapax.toml:1: resp_listen: expected a text in quotes"),
            ("resp_listen = ':6379'", "hapax.toml:1: resp_listen: `:6379` is not an address and a port"),
            ("resp_listen = '127.0.0.1:4272'", "hapax.toml:1: resp_listen: something else listens there"),
            ("resp_listen = '0.0.0.0:6379'", "hapax.toml:1: resp_listen: other machines reach this address"),
            ("\nresp_public = true", "hapax.toml:2: resp_public: this is for the Redis door; add resp_listen"),
            (
                "resp_listen = '127.0.0.1:1'\nresp_tls_key = 'a'",
                "hapax.toml:2: resp_tls_key: TLS takes a certificate and its key",
            ),
            (
                "resp_listen = '0.0.0.0:1'\nresp_tls_cert = 'a'",
                "hapax.toml:2: resp_tls_cert: TLS takes a certificate and its key",
            ),
            (
                "resp_listen = '0.0.0.0:1'\nresp_tls_cert = 'none.pem'\nresp_tls_key = 'empty.pem'",
                "hapax.toml:2: resp_tls_cert: this file cannot be read",
            ),
            (
                "resp_listen = '0.0.0.0:1'\nresp_tls_cert = 'empty.pem'\nresp_tls_key = 'empty.pem'",
                "hapax.toml:2: resp_tls_cert: there is no certificate in this file",
            ),
            (
                "resp_listen = '0.0.0.0:1'\nresp_tls_cert = 'odd.pem'\nresp_tls_key = 'empty.pem'",
                "hapax.toml:2: resp_tls_cert: this is no certificate in PEM",
            ),
            ("resp_listn = 'x'", "did you mean `resp_listen`?"),
        ] {
            let mistakes = load_text(text, &files).expect_err("has mistakes");
            assert!(mistakes.contains(said), "{text}\n{mistakes}");
            assert!(mistakes.ends_with("1 mistake in the config"), "{text}\n{mistakes}");
        }
    }

    /// A certificate for `127.0.0.1`, and its key; `None` where there is no `openssl` to make one.
    fn certificate() -> Option<(String, String)> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let (cert, key) = (file("cert.pem"), file("key.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
            .args(["-subj", "/CN=door", "-keyout", &key, "-out", &cert])
            .output();
        made.ok().filter(|made| made.status.success())?;
        Some((std::fs::read_to_string(&cert).ok()?, std::fs::read_to_string(&key).ok()?))
    }

    #[test]
    fn a_certificate_needs_its_own_key() {
        let (Some((cert, key)), Some((_, other_key))) = (certificate(), certificate()) else { return };
        let files = move |path: &str| match path {
            "cert.pem" => Ok(cert.clone()),
            "key.pem" => Ok(key.clone()),
            _ => Ok(other_key.clone()),
        };
        let text = |key: &str| format!("resp_listen = '0.0.0.0:6379'\nresp_tls_cert = 'cert.pem'\nresp_tls_key = '{key}'");
        let door = load_text(&text("key.pem"), &files).expect("a good config").resp.expect("a door");
        assert_eq!(door.tls.map(|tls| (tls.cert, tls.key)), Some(("cert.pem".to_owned(), "key.pem".to_owned())));
        for wrong in ["other.pem", "cert.pem"] {
            let said = load_text(&text(wrong), &files).expect_err("refused");
            assert!(said.contains("hapax.toml:3: resp_tls_key: "), "{said}");
        }
    }
}
