//! `[backup]`: copies of the embedded store that are made by themselves.

use std::path::PathBuf;

use hapax::StoreUrl;
use hapax_gateway::settings::BackupSchedule;

use super::mistake::Mistakes;
use super::section::{Section, refuse_unknown};

const KEYS: &[&str] = &["to", "every", "keep"];
const MINUTE: i64 = 60_000;
const DAY: i64 = 1_440 * MINUTE;
const KEEP: i64 = 7;

pub(super) fn read(top: &Section<'_>, store: Option<&StoreUrl>, mistakes: &mut Mistakes) -> Option<BackupSchedule> {
    let found = top.get("backup")?;
    let table = found.table(mistakes)?;
    refuse_unknown(table, "backup", KEYS, &[], mistakes);
    if let Some(tools) = store.and_then(StoreUrl::own_tools) {
        found.refuse(mistakes, format!("{tools}; take `backup` out"));
    }
    let section = Section::new(vec![("backup".to_owned(), table)]);
    let every_ms = section.get("every").map_or(Some(DAY), |found| found.ms(MINUTE..=366 * DAY, mistakes))?;
    let keep = section.get("keep").map_or(Some(KEEP), |found| found.whole(1..=10_000, mistakes))?;
    let Some(to) = section.get("to") else {
        found
            .refuse(mistakes, "`to` is missing; write the folder for backups, best on another disk: to = \"/mnt/backups/hapax\"");
        return None;
    };
    let folder = to.text(mistakes)?;
    if folder.is_empty() {
        to.refuse(mistakes, "this is no folder; write to = \"/mnt/backups/hapax\"");
        return None;
    }
    Some(BackupSchedule { to: PathBuf::from(folder), every_ms, keep: keep as usize })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Environment, Flags, SourceFile, Sources, load};
    use super::*;

    fn load_text(text: &str) -> Result<Config, String> {
        let read_file: &dyn Fn(&str) -> std::io::Result<String> = &|_| Err(std::io::ErrorKind::NotFound.into());
        let file = Some(SourceFile { name: "hapax.toml".to_owned(), text: text.to_owned() });
        let sources = Sources { file, env: Environment { vars: Default::default(), read_file }, flags: Flags::default() };
        load(&sources).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn a_folder_is_enough() {
        assert_eq!(load_text("").expect("a good config").backup, None);
        let usual = BackupSchedule { to: "b".into(), every_ms: DAY, keep: 7 };
        assert_eq!(load_text("[backup]\nto = 'b'").expect("a good config").backup, Some(usual.clone()));
        let set = load_text("backup = { to = 'b', every = '6h', keep = 3 }").expect("a good config").backup;
        assert_eq!(set, Some(BackupSchedule { every_ms: DAY / 4, keep: 3, ..usual }));
    }

    #[test]
    fn what_makes_no_sense_is_told_with_its_line() {
        for (text, said) in [
            ("[backup]\nevery = '1d'", "hapax.toml:1: backup: `to` is missing"),
            ("[backup]\nto = ''", "hapax.toml:2: backup.to: this is no folder"),
            ("[backup]\nto = 'b'\nevery = '1s'", "hapax.toml:3: backup.every: 1s is out of range"),
            ("[backup]\nto = 'b'\nkeep = 0", "hapax.toml:3: backup.keep: 0 is out of range"),
            ("[backup]\ntoo = 'b'", "did you mean `to`?"),
            ("backup = 'b'", "hapax.toml:1: backup: expected a table"),
            ("store = 'postgres://h/d'\n[backup]\nto = 'b'", "hapax.toml:2: backup: this store is a PostgreSQL server"),
        ] {
            let mistakes = load_text(text).expect_err("has mistakes");
            assert!(mistakes.contains(said), "{text}\n{mistakes}");
        }
    }
}
