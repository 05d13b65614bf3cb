//! The one place that looks at the environment and at files, so that `config/` need not.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use hapax::StoreUrl;
use rand::RngCore;
use secrecy::{ExposeSecret, SecretString};

use super::{Failure, Global};
use crate::config::{self, Config, Environment, Flags, SourceFile, Sources};

/// The config file that is used when none is named.
pub const DEFAULT_FILE: &str = "hapax.toml";

/// The token that is made at the first start, where the store is no file.
const TOKEN_FILE: &str = "hapax.token";

/// Where the token that is made at the first start is put, and where commands find it: beside the database, and beside the config where the
/// store is a server.
pub(super) fn token_path(store: &StoreUrl, config: Option<&Path>) -> PathBuf {
    match store {
        StoreUrl::Sqlite(path) => path.with_extension("token"),
        _ => config.and_then(Path::parent).unwrap_or(Path::new("")).join(TOKEN_FILE),
    }
}

/// Gathers file, environment and flags. No file is fine unless one was named.
pub fn read_sources(global: &Global, flags: Flags) -> Result<Sources<'static>, Failure> {
    let file = match &global.config {
        Some(path) => Some(read_config_file(path)?),
        None if Path::new(DEFAULT_FILE).exists() => Some(read_config_file(Path::new(DEFAULT_FILE))?),
        None => None,
    };
    Ok(Sources { file, env: environment(), flags })
}

pub(super) fn environment() -> Environment<'static> {
    let vars = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Environment { vars: vars.collect(), read_file: &|path| std::fs::read_to_string(path) }
}

/// The token of `--token-file`. A token itself is never an argument: arguments stand in process lists and histories.
pub(super) fn token_flag(global: &Global) -> Result<Option<SecretString>, Failure> {
    global.token_file.as_deref().map(read_token).transpose()
}

/// The token that a first start left beside its database, or, as earlier versions did, in this directory.
pub(super) fn token_left(store: Option<&StoreUrl>, config: Option<&Path>) -> Result<Option<SecretString>, Failure> {
    let beside = store.map(|store| token_path(store, config));
    let left = [beside, Some(PathBuf::from(TOKEN_FILE))].into_iter().flatten().find(|path| path.exists());
    left.as_deref().map(read_token).transpose()
}

fn read_token(path: &Path) -> Result<SecretString, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(SecretString::from(text.trim().to_owned())),
        Err(why) => Err(Failure::plain(format!("the token file {} cannot be read: {why}", path.display()))),
    }
}

/// Leaves a token where only its owner may read it.
pub(super) fn leave_token(path: &Path, token: &SecretString) -> std::io::Result<()> {
    // A file of an earlier store may lie there: a new one keeps neither its owner's nor its readers' rights.
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    write_private(path, token)
}

/// Writes a token to a new file that only its owner may read.
pub(super) fn write_private(path: &Path, token: &SecretString) -> std::io::Result<()> {
    let mut file = private_file().open(path)?;
    file.write_all(format!("{}\n", token.expose_secret()).as_bytes())?;
    file.sync_all()
}

pub(super) fn private_file() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Names the files of a config that others may look into: they hold secrets, tokens and what people write to each other.
pub(super) fn open_files(file: Option<&str>, config: &Config) -> Vec<String> {
    let store = match &config.store {
        StoreUrl::Sqlite(path) => Some(path.as_path()),
        _ => None,
    };
    let token = token_path(&config.store, file.map(Path::new));
    let files = [file.map(Path::new), store, Some(config.spool.as_path()), Some(token.as_path())];
    let open = files.into_iter().flatten().filter(|path| is_open(path));
    open.map(|path| format!("{} can be read by others on this machine; run `chmod 600 {0}`", path.display())).collect()
}

#[cfg(unix)]
fn is_open(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open(_: &Path) -> bool {
    false
}

/// Reads and checks the whole config.
pub fn load_config(global: &Global, flags: Flags) -> Result<Config, Failure> {
    Ok(config::load(&read_sources(global, flags)?)?)
}

fn read_config_file(path: &Path) -> Result<SourceFile, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(SourceFile { name: path.display().to_string(), text }),
        Err(why) => Err(Failure::NoConfig(format!(
            "the config file {} cannot be read ({why}); name another with --config FILE, or write one with `hapax config init`",
            path.display()
        ))),
    }
}

/// Writes a starter config with fresh secrets that only its owner may read. An existing file is never overwritten.
pub fn write_starter(path: &Path) -> Result<(), Failure> {
    let mut file = match private_file().open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {
            let todo = "edit it, or move it away first: it holds the secrets your providers know";
            return Err(Failure::plain(format!("{} is there already; {todo}", path.display())));
        }
        Err(why) => {
            let todo = "run it in a folder where you may write, or name a config that is there with --config FILE";
            return Err(Failure::plain(format!("cannot write {} ({why}); {todo}", path.display())));
        }
    };
    let text = config::starter(|_| fresh_secret());
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

/// 24 random bytes as 48 hex digits: a secret that every provider takes.
pub fn fresh_secret() -> String {
    let mut bytes = [0; 24];
    rand::rng().fill_bytes(&mut bytes);
    hex::encode(bytes)
}
