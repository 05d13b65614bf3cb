//! `hapax backup`

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::client::Client;
use super::output::megabytes;
use super::{Failure, Global, Output, sources};
use crate::config::{self, Flags};

/// Copy the whole store to a file while hapax runs
#[derive(Args, Debug)]
#[command(after_help = "\
The copy is of one moment, and nobody waits for it: webhooks are taken in
meanwhile. It is written under another name first, synced, and given its own
when it is whole; a file that is there is never overwritten. It holds
everything, bodies and phone numbers among it: its owner alone may read it.
`hapax restore FILE` puts it back. To have one made every day, see `[backup]`
in the config.

This is for the embedded store (sqlite:). Where the store is a server, hapax
says which of its tools to use, and ends with exit code 1.

Examples:
  hapax backup /mnt/backups/hapax.db
  hapax backup --server https://hapax.internal:4273 hapax-$(date +%F).db")]
pub struct Backup {
    /// Where to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Backup {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let sources = sources::read_sources(global, Flags::default())?;
        // A server that was named may keep its things elsewhere; then it says so itself.
        let store = config::load_admin(&sources).ok().and_then(|admin| admin.store).filter(|_| global.server.is_none());
        if let Some(tools) = store.as_ref().and_then(hapax::StoreUrl::own_tools) {
            return Err(Failure::plain(tools));
        }
        let path = &self.file;
        let refused = |why: std::io::Error| Failure::plain(format!("cannot write {}: {why}", path.display()));
        if path.exists() {
            return Err(Failure::plain(format!("{} is there already; choose another name", path.display())));
        }
        let client = Client::open(global)?;
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let _ = std::fs::remove_file(&partial);
        let mut file = sources::private_file().open(&partial).map_err(refused)?;
        let copied = client.download("/v1/backup", |bytes| file.write_all(bytes)).await;
        let bytes = match copied {
            Ok(bytes) => bytes,
            Err(failure) => {
                let _ = std::fs::remove_file(&partial);
                return Err(failure);
            }
        };
        file.sync_all().map_err(refused)?;
        drop(file);
        // Unlike a rename it replaces nothing that somebody else has put there meanwhile.
        std::fs::hard_link(&partial, path).or_else(|_| rename_new(&partial, path)).map_err(refused)?;
        let _ = std::fs::remove_file(&partial);
        sync_folder(path).map_err(refused)?;
        output.answer(
            &json!({ "file": path.display().to_string(), "bytes": bytes }),
            format_args!("{} in {}; `hapax restore` puts it back", megabytes(bytes), path.display()),
        );
        note_spool(&client, output).await;
        Ok(())
    }
}

/// Where the disk knows no links.
fn rename_new(from: &Path, to: &Path) -> std::io::Result<()> {
    if to.exists() { Err(std::io::ErrorKind::AlreadyExists.into()) } else { std::fs::rename(from, to) }
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// What an earlier config has left in the spool is not in the store yet.
async fn note_spool(client: &Client, output: &Output) {
    let Ok(stats) = client.get("/v1/stats", &[]).await else { return };
    let rows = stats["spool"].as_array();
    let count = |row: &serde_json::Value| row["waiting"].as_u64().unwrap_or(0) + row["parked"].as_u64().unwrap_or(0);
    let left: u64 = rows.into_iter().flatten().map(count).sum();
    if left > 0 {
        output.warn(format_args!("{left} webhooks wait in the spool file, which is no part of the backup"));
    }
}
