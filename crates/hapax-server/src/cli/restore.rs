//! `hapax restore`

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use hapax::StoreUrl;
use hapax_store::clock::{Clock, SystemClock};
use hapax_store::{BackupFacts, StoreError};
use serde_json::json;

use super::table::from_now;
use super::{Failure, Global, Output, load_config};
use crate::config::Flags;

/// Put a backup in the place of the store, while hapax does not run
#[derive(Args, Debug)]
#[command(after_help = "\
Everything since the backup is gone then, and before it begins it says what
that means: keys won since are forgotten, so that a copy the provider still
sends counts as new; messages that waited for the bot or to be sent then may
have been handled since. What waited to be sent is taken to be in doubt, and
not simply sent. Fences go on above all that were handed out before.

The store that is there is moved aside, not removed. Where it is not empty,
--force is needed, or your word on the terminal.

Examples:
  hapax restore /mnt/backups/hapax.db
  hapax restore --force hapax-20261118T030000Z.db")]
pub struct Restore {
    /// What `hapax backup` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Which store; stronger than the config
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Put it in the place of a store that is not empty, without asking
    #[arg(long)]
    force: bool,
}

impl Restore {
    pub(super) async fn run(self, global: &Global, output: &Output) -> Result<(), Failure> {
        let config = load_config(global, Flags { store: self.store.clone(), ..Flags::default() })?;
        let StoreUrl::Sqlite(path) = &config.store else {
            let tools = config.store.own_tools().unwrap_or_default();
            return Err(Failure::plain(format!("{tools}; what those have written, they put back")));
        };
        let facts = hapax::look_into_backup(&self.file).map_err(refused)?;
        let now_ms = SystemClock::new().wall_ms();
        warn(&facts, now_ms, output);
        if !hapax::is_empty(path) && !self.force && !agreed(path, output)? {
            return Err(Failure::plain(format!(
                "{} is not empty, and nothing was changed; --force puts the backup in its place",
                path.display()
            )));
        }
        let aside = hapax::restore(&self.file, path, now_ms).map_err(refused)?;
        let aside = aside.map(|aside| aside.display().to_string());
        let kept = aside.as_ref().map_or_else(String::new, |aside| format!("; the store of before is {aside}"));
        output.answer(
            &json!({
                "store": config.store.to_string(), "made_at_ms": facts.made_ms, "events": facts.events, "keys": facts.keys,
                "replaced": aside,
            }),
            format_args!("{} events and {} keys are back in {}{kept}", facts.events, facts.keys, config.store),
        );
        Ok(())
    }
}

/// Says what will be lost, before it is.
fn warn(facts: &BackupFacts, now_ms: i64, output: &Output) {
    let made =
        jiff::Timestamp::from_millisecond(facts.made_ms).map_or_else(|_| facts.made_ms.to_string(), |time| format!("{time:.0}"));
    let ago = from_now(facts.made_ms.min(now_ms), now_ms);
    output.warn(format_args!(
        "the backup is of {made} ({ago}). Keys won since then are gone: a copy of what came since, should the provider send \
         one, counts as new. Messages that waited for the bot then come to it again, with the ids they had"
    ));
    if facts.unsent > 0 {
        let unsent = facts.unsent;
        output.warn(format_args!(
            "{unsent} messages waited to be sent then, and may have been sent since: they are in doubt, and `hapax outbox --unknown` shows \
             those that nothing settles"
        ));
    }
    output.warn("tokens that were revoked since then are valid again: revoke them once more");
}

/// Asks on a terminal; elsewhere nobody can agree.
fn agreed(path: &std::path::Path, output: &Output) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    output.note(format_args!("{} is not empty; it is moved aside. Type yes to go on:", path.display()));
    let mut word = String::new();
    std::io::stdin().lock().read_line(&mut word).map_err(|why| Failure::plain(format!("no answer could be read: {why}")))?;
    Ok(word.trim() == "yes")
}

fn refused(error: StoreError) -> Failure {
    Failure::plain(error.to_string())
}
