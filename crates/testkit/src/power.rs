//! A folder on a disk that can lose power. A shim under the program (`tests/power/shim.c`) keeps a journal of all it does to the files of
//! the folder; from that, a cut is worked out: what was synced is there, and of the rest some is lost, some is torn, and some had luck.
//!
//! A killed process loses nothing: the next one sees all that was written, synced or not. Only a cut does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::Rng;
use rand::rngs::StdRng;

use super::process::Program;

/// A disk writes this much or nothing.
const SECTOR: u64 = 512;

/// What becomes of what was not synced.
pub enum Cut<'r> {
    /// All of it is lost.
    Everything,
    /// Each write is kept, lost or torn.
    Random(&'r mut StdRng),
}

/// How the shim behaves.
#[derive(Clone, Copy, Default)]
pub struct Disk {
    /// How long each sync takes, so that kills meet one under way.
    pub sync_us: u32,
    /// Syncs are answered and not done.
    pub lies: bool,
}

/// The folder, its journal, and what has reached the disk so far.
pub struct PowerRig {
    folder: PathBuf,
    /// Beside the folder: the shim, its journal, and the file that holds syncs up.
    beside: PathBuf,
    files: Vec<Content>,
    /// The content that an inode stands for now.
    inodes: HashMap<u64, usize>,
    /// Names that have reached the disk, and changes of names since, in their order.
    names: BTreeMap<String, usize>,
    renamed: Vec<(u64, Naming)>,
}

#[derive(Default)]
struct Content {
    synced: Vec<u8>,
    /// With their places in the journal.
    since: Vec<(u64, Change)>,
}

enum Change {
    Write { at: u64, bytes: Vec<u8> },
    Resize(u64),
}

#[derive(Clone)]
enum Naming {
    Add(String, usize),
    Remove(String),
    Move(String, String),
}

impl PowerRig {
    /// Compiles the shim; all that is in `folder` now counts as synced. `beside` is a folder of its own.
    pub fn new(shim_source: &Path, folder: &Path, beside: &Path) -> io::Result<Self> {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(beside.join("shim.so")).arg(shim_source).args(["-ldl", "-lpthread"]);
        let compiled = cc.output()?;
        if !compiled.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&compiled.stderr).into_owned()));
        }
        let mut rig = Self {
            folder: folder.canonicalize()?,
            beside: beside.canonicalize()?,
            files: Vec::new(),
            inodes: HashMap::new(),
            names: BTreeMap::new(),
            renamed: Vec::new(),
        };
        rig.all_is_synced()?;
        Ok(rig)
    }

    /// Puts the program on this disk.
    #[must_use]
    pub fn under(&self, program: Program, disk: Disk) -> Program {
        let mut set = vec![
            ("LD_PRELOAD", self.beside.join("shim.so").to_string_lossy().into_owned()),
            ("POWER_DIR", self.folder.to_string_lossy().into_owned()),
            ("POWER_JOURNAL", self.journal().to_string_lossy().into_owned()),
            ("POWER_HOLD", self.hold().to_string_lossy().into_owned()),
            ("POWER_FAIL", self.failing().to_string_lossy().into_owned()),
            ("POWER_SYNC_US", disk.sync_us.to_string()),
        ];
        set.extend(disk.lies.then(|| ("POWER_LIE", "1".to_owned())));
        let set: Vec<String> = set.iter().map(|(name, value)| format!("export {name}='{value}'")).collect();
        program.after(&set.join("; "))
    }

    /// From now on no sync of a file ends, until [`Self::release_syncs`].
    pub fn hold_syncs(&self) -> io::Result<()> {
        let _ = std::fs::remove_file(self.held());
        std::fs::write(self.hold(), "")
    }

    /// True when a sync has begun that is held.
    pub fn holds_a_sync(&self) -> bool {
        self.held().exists()
    }

    pub fn release_syncs(&self) -> io::Result<()> {
        std::fs::remove_file(self.hold())
    }

    /// From now on every sync of a file fails, until [`Self::heal`].
    pub fn fail_syncs(&self) -> io::Result<()> {
        std::fs::write(self.failing(), "")
    }

    /// The same of every sync but those of a log.
    pub fn fail_syncs_but_of_logs(&self) -> io::Result<()> {
        std::fs::write(self.failing(), "but of logs")
    }

    pub fn heal(&self) -> io::Result<()> {
        std::fs::remove_file(self.failing())
    }

    /// After a kill, and while nothing runs: takes over the journal. The files stay as they are.
    pub fn killed(&mut self) -> io::Result<()> {
        let journal = match std::fs::read(self.journal()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut at = 0;
        while let Some(record) = Record::read(&journal, at) {
            let next = at + record.size();
            self.take(at as u64, record);
            at = next;
        }
        if at > 0 {
            std::fs::write(self.journal(), "")?;
        }
        self.make_up_for_the_kill()?;
        for change in self.files.iter_mut().flat_map(|file| &mut file.since) {
            change.0 = 0;
        }
        self.renamed.iter_mut().for_each(|naming| naming.0 = 0);
        Ok(())
    }

    /// The power goes, while nothing runs: the folder holds what a disk would.
    pub fn cut(&mut self, mut cut: Cut<'_>) -> io::Result<()> {
        self.killed()?;
        let kept = match &mut cut {
            Cut::Everything => 0,
            // A filesystem keeps the order of names.
            Cut::Random(random) => random.random_range(0..=self.renamed.len()),
        };
        let mut names = std::mem::take(&mut self.names);
        for (_, naming) in self.renamed.drain(..).take(kept) {
            rename(&mut names, naming);
        }
        for name in self.there()? {
            std::fs::remove_file(self.folder.join(name))?;
        }
        for (name, file) in names {
            std::fs::write(self.folder.join(name), self.files[file].after(&mut cut))?;
        }
        self.all_is_synced()
    }

    fn journal(&self) -> PathBuf {
        self.beside.join("journal")
    }

    fn hold(&self) -> PathBuf {
        self.beside.join("hold")
    }

    fn failing(&self) -> PathBuf {
        self.beside.join("fail")
    }

    fn held(&self) -> PathBuf {
        self.beside.join("hold.held")
    }

    /// The names in the folder, with those that the shim leaves out.
    fn there(&self) -> io::Result<Vec<String>> {
        let names =
            std::fs::read_dir(&self.folder)?.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn all_is_synced(&mut self) -> io::Result<()> {
        (self.files, self.inodes, self.names) = Default::default();
        for name in self.there()? {
            let path = self.folder.join(&name);
            self.inodes.insert(std::fs::metadata(&path)?.ino(), self.files.len());
            self.names.insert(name, self.files.len());
            self.files.push(Content { synced: std::fs::read(&path)?, since: Vec::new() });
        }
        Ok(())
    }

    fn take(&mut self, at: u64, record: Record<'_>) {
        let Record { kind, file, place, bytes } = record;
        let name = || String::from_utf8_lossy(bytes).into_owned();
        match kind {
            b'C' => {
                self.inodes.insert(file, self.files.len());
                self.renamed.push((at, Naming::Add(name(), self.files.len())));
                self.files.push(Content::default());
            }
            b'W' => self.change(file, at, Change::Write { at: place, bytes: bytes.to_vec() }),
            b'T' => self.change(file, at, Change::Resize(place)),
            b'S' => {
                if let Some(&file) = self.inodes.get(&file) {
                    self.files[file].sync(place);
                }
            }
            b'D' => {
                let kept = self.renamed.iter().take_while(|(made, _)| *made < place).count();
                for (_, naming) in self.renamed.drain(..kept) {
                    rename(&mut self.names, naming);
                }
            }
            b'U' => self.renamed.push((at, Naming::Remove(name()))),
            b'R' => {
                let both = name();
                if let Some((old, new)) = both.split_once('/') {
                    self.renamed.push((at, Naming::Move(old.to_owned(), new.to_owned())));
                }
            }
            other => panic!("the journal of the power rig has a record of kind {other}"),
        }
    }

    fn change(&mut self, inode: u64, at: u64, change: Change) {
        // A file that was there before the folder was watched by this rig would be a mistake of the rig.
        let file = *self.inodes.get(&inode).expect("the journal told where this file comes from");
        self.files[file].since.push((at, change));
    }

    /// A kill may have come between what was done and its record: what the files hold beyond the journal was written and not synced.
    fn make_up_for_the_kill(&mut self) -> io::Result<()> {
        let mut names = self.names.clone();
        for (_, naming) in &self.renamed {
            rename(&mut names, naming.clone());
        }
        let there: BTreeSet<String> = self.there()?.into_iter().filter(|name| !name.ends_with("-shm")).collect();
        for gone in names.keys().filter(|name| !there.contains(*name)) {
            self.renamed.push((0, Naming::Remove(gone.clone())));
        }
        for name in there {
            let path = self.folder.join(&name);
            let file = names.get(&name).copied().unwrap_or_else(|| {
                self.files.push(Content::default());
                self.renamed.push((0, Naming::Add(name, self.files.len() - 1)));
                self.files.len() - 1
            });
            self.inodes.insert(std::fs::metadata(&path)?.ino(), file);
            self.files[file].catch_up(&std::fs::read(&path)?);
        }
        Ok(())
    }
}

fn rename(names: &mut BTreeMap<String, usize>, naming: Naming) {
    match naming {
        Naming::Add(name, file) => {
            names.insert(name, file);
        }
        Naming::Remove(name) => {
            names.remove(&name);
        }
        Naming::Move(old, new) => {
            if let Some(file) = names.remove(&old) {
                names.insert(new, file);
            }
        }
    }
}

impl Content {
    /// What was done before this place of the journal has reached the disk.
    fn sync(&mut self, began: u64) {
        let done = self.since.iter().take_while(|(at, _)| *at < began).count();
        for (_, change) in self.since.drain(..done) {
            change.make(&mut self.synced);
        }
    }

    /// What a process sees.
    fn seen(&self) -> Vec<u8> {
        let mut image = self.synced.clone();
        self.since.iter().for_each(|(_, change)| change.make(&mut image));
        image
    }

    fn catch_up(&mut self, now: &[u8]) {
        let seen = self.seen();
        if seen.len() != now.len() {
            self.since.push((0, Change::Resize(now.len() as u64)));
        }
        let same = seen.iter().zip(now).take_while(|(seen, now)| seen == now).count();
        if same < now.len() {
            self.since.push((0, Change::Write { at: same as u64, bytes: now[same..].to_vec() }));
        }
    }

    fn after(&self, cut: &mut Cut<'_>) -> Vec<u8> {
        let mut image = self.synced.clone();
        let Cut::Random(random) = cut else { return image };
        for (_, change) in &self.since {
            match (random.random_range(0..3), change) {
                (0, _) => {}
                (1, Change::Write { at, bytes }) => tear(*at, bytes, random, &mut image),
                (_, change) => change.make(&mut image),
            }
        }
        image
    }
}

impl Change {
    fn make(&self, image: &mut Vec<u8>) {
        match self {
            Change::Resize(size) => image.resize(*size as usize, 0),
            Change::Write { at, bytes } => put(*at, bytes, image),
        }
    }
}

fn put(at: u64, bytes: &[u8], image: &mut Vec<u8>) {
    let end = at as usize + bytes.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    image[at as usize..end].copy_from_slice(bytes);
}

/// Some sectors arrive and some do not.
fn tear(at: u64, bytes: &[u8], random: &mut StdRng, image: &mut Vec<u8>) {
    let (mut from, end) = (at, at + bytes.len() as u64);
    while from < end {
        let to = ((from / SECTOR + 1) * SECTOR).min(end);
        if random.random() {
            put(from, &bytes[(from - at) as usize..(to - at) as usize], image);
        }
        from = to;
    }
}

/// One record, as the shim writes it.
struct Record<'j> {
    kind: u8,
    file: u64,
    place: u64,
    bytes: &'j [u8],
}

const HEAD: usize = 24;

impl<'j> Record<'j> {
    /// `None` at the end, and for one that a kill cut short.
    fn read(journal: &'j [u8], at: usize) -> Option<Self> {
        let head = journal.get(at..at + HEAD)?;
        let word = |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
        let long = |from: usize| u64::from(word(from)) | u64::from(word(from + 4)) << 32;
        let bytes = journal.get(at + HEAD..at + HEAD + word(4) as usize)?;
        Some(Self { kind: head[0], file: long(8), place: long(16), bytes })
    }

    fn size(&self) -> usize {
        HEAD + self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn content(synced: &[u8], writes: &[(u64, u64, &[u8])]) -> Content {
        let since = writes.iter().map(|(place, at, bytes)| (*place, Change::Write { at: *at, bytes: bytes.to_vec() }));
        Content { synced: synced.to_vec(), since: since.collect() }
    }

    #[test]
    fn what_was_written_before_a_sync_began_is_kept_and_nothing_else() {
        let mut file = content(b"old", &[(10, 0, b"new"), (20, 3, b"er")]);
        file.sync(20);
        assert_eq!(file.after(&mut Cut::Everything), b"new");
        assert_eq!(file.seen(), b"newer");
    }

    #[test]
    fn luck_keeps_loses_and_tears() {
        let (old, new) = (vec![0; 1_024], vec![1; 1_024]);
        let file = content(&old, &[(0, 0, &new)]);
        let after: BTreeSet<Vec<u8>> =
            (0..100).map(|seed| file.after(&mut Cut::Random(&mut StdRng::seed_from_u64(seed)))).collect();
        assert!(after.contains(&old) && after.contains(&new));
        assert_eq!(after.len(), 4, "each of two sectors old or new");
    }

    #[test]
    fn what_a_killed_process_did_not_record_counts_as_written() {
        let mut file = content(b"one two", &[]);
        file.catch_up(b"one 2");
        assert_eq!((file.seen(), file.after(&mut Cut::Everything)), (b"one 2".to_vec(), b"one two".to_vec()));
    }

    #[test]
    fn half_a_record_is_none() {
        let mut journal = vec![b'W', 0, 0, 0, 2, 0, 0, 0];
        journal.extend(7_u64.to_le_bytes());
        journal.extend(9_u64.to_le_bytes());
        journal.extend(b"ab");
        let record = Record::read(&journal, 0).expect("a record");
        assert_eq!((record.kind, record.file, record.place, record.bytes), (b'W', 7, 9, &b"ab"[..]));
        assert!(Record::read(&journal[..25], 0).is_none());
    }
}
