//! The config file as the pages may write it: a channel is added at its end, and everything else stays as it is.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hapax_gateway::web::{ConfigFile, NewChannel};
use secrecy::ExposeSecret;

use super::sources;
use crate::config::{self, Flags, Mistake, SourceFile, Sources};

pub(super) struct ChannelFile {
    path: PathBuf,
    /// `write_config` says so.
    allowed: bool,
    /// Two people may add a channel at once.
    writing: Mutex<()>,
}

impl ChannelFile {
    pub(super) fn new(path: &Path, allowed: bool) -> Self {
        Self { path: path.to_owned(), allowed, writing: Mutex::default() }
    }

    fn mistakes(&self, text: &str) -> Vec<Mistake> {
        let file = SourceFile { name: self.name(), text: text.to_owned() };
        let sources = Sources { file: Some(file), env: sources::environment(), flags: Flags::default() };
        config::load(&sources).err().map(|mistakes| mistakes.iter().cloned().collect()).unwrap_or_default()
    }

    /// What the file would be. What was wrong before may be right with the flags that hapax was started with: only new mistakes count.
    fn with(&self, before: &str, channel: &NewChannel) -> Result<String, String> {
        let after = appended(before, channel)?;
        let known = self.mistakes(before);
        let new: Vec<String> =
            self.mistakes(&after).iter().filter(|mistake| !known.contains(mistake)).map(ToString::to_string).collect();
        if new.is_empty() { Ok(after) } else { Err(new.join("\n")) }
    }

    /// Puts the text in place whole: who reads the file meanwhile sees it as it was or as it is.
    fn replace(&self, before: &str, after: &str) -> io::Result<()> {
        // Where it is a link, what it leads to is replaced.
        let path = self.path.canonicalize()?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let beside = folder.join(format!(".hapax-{}.toml", hex::encode(rand::random::<[u8; 8]>())));
        let written = write_like(&path, &beside, after).and_then(|()| {
            if std::fs::read_to_string(&path)? != before {
                return Err(io::Error::other("somebody else has just changed it; try again"));
            }
            std::fs::rename(&beside, &path)?;
            File::open(folder)?.sync_all()
        });
        if written.is_err() {
            // It may not be there; what went wrong is told already.
            let _ = std::fs::remove_file(&beside);
        }
        written
    }
}

impl ConfigFile for ChannelFile {
    fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    fn closed(&self) -> Option<String> {
        if !self.allowed {
            return Some("write_config = true in it lets them".to_owned());
        }
        OpenOptions::new().append(true).open(&self.path).err().map(|why| format!("hapax may not write it ({why})"))
    }

    fn add(&self, channel: &NewChannel) -> Result<(), String> {
        if let Some(why) = self.closed() {
            return Err(why);
        }
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::fs::read_to_string(&self.path).map_err(|why| format!("it cannot be read: {why}"))?;
        let after = self.with(&before, channel)?;
        self.replace(&before, &after).map_err(|why| why.to_string())
    }
}

/// The file with the channel at its end.
fn appended(before: &str, channel: &NewChannel) -> Result<String, String> {
    let mut text = before.trim_end().to_owned();
    text.push_str(&format!("\n\n[channel.{}]\n", channel.name));
    for (key, value) in &channel.keys {
        let value = value.expose_secret();
        if value.chars().any(char::is_control) {
            return Err(format!("{key}: it has signs in it that cannot be seen"));
        }
        text.push_str(&format!("{key} = {}\n", toml::Value::from(value)));
    }
    Ok(text)
}

/// Writes a new file with the owner and the rights of another.
fn write_like(like: &Path, new: &Path, text: &str) -> io::Result<()> {
    let mut file = sources::private_file().open(new)?;
    let (old, made) = (std::fs::metadata(like)?, file.metadata()?);
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if (old.uid(), old.gid()) != (made.uid(), made.gid()) {
            return Err(io::Error::other("it belongs to somebody else, and would belong to hapax afterwards"));
        }
    }
    file.write_all(text.as_bytes())?;
    file.set_permissions(old.permissions())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# our file\nlisten = \"127.0.0.1:4272\" # here\nwrite_config = true\n\n[channel.shop]\nprovider = \"github\"\nsecret = \"a-secret-of-github\"";

    fn channel(name: &str, secret: &str) -> NewChannel {
        NewChannel {
            name: name.to_owned(),
            keys: vec![("provider", "stripe".to_owned().into()), ("secret", secret.to_owned().into())],
        }
    }

    fn file(text: &str) -> (tempfile::TempDir, ChannelFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hapax.toml");
        std::fs::write(&path, text).expect("written");
        (folder, ChannelFile::new(&path, true))
    }

    #[test]
    fn a_channel_is_added_and_the_rest_stays() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, file) = file(GOOD);
        let path = folder.path().join("hapax.toml");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set");
        let secret = "whsec_\"quoted\\ and # odd";
        file.add(&channel("pay", secret)).expect("added");
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(text.starts_with(GOOD) && text.ends_with('\n'), "{text}");
        let read: toml::Table = text.parse().expect("TOML");
        assert_eq!(read["channel"]["pay"]["secret"].as_str(), Some(secret));
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_bad_channel_changes_nothing_and_shows_no_secret() {
        let (folder, file) = file(GOOD);
        for (name, secret) in [("pay", "${NOT_SET_ANYWHERE}"), ("shop", "whsec_another-secret"), ("pay", "whsec_1\n[channel.x]")]
        {
            let why = file.add(&channel(name, secret)).expect_err("refused");
            assert!(!why.is_empty() && !why.contains("another-secret"), "{why}");
        }
        assert_eq!(std::fs::read_to_string(folder.path().join("hapax.toml")).expect("readable"), GOOD);
    }

    #[test]
    fn what_is_not_allowed_or_not_writable_is_closed() {
        let (folder, open) = file(GOOD);
        assert_eq!(open.closed(), None);
        let path = folder.path().join("hapax.toml");
        assert!(ChannelFile::new(&path, false).closed().is_some_and(|why| why.contains("write_config")));
        assert!(ChannelFile::new(&path, false).add(&channel("pay", "whsec_1234567890")).is_err());
        assert!(ChannelFile::new(&folder.path().join("none.toml"), true).closed().is_some());
    }

    #[test]
    fn what_a_link_leads_to_is_written() {
        let (folder, _) = file(GOOD);
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(folder.path().join("hapax.toml"), &link).expect("a link");
        ChannelFile::new(&link, true).add(&channel("pay", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).expect("added");
        assert!(link.symlink_metadata().expect("there").is_symlink());
        assert!(std::fs::read_to_string(&link).expect("readable").contains("[channel.pay]"));
    }
}
