//! What the disk under the store allows.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Keeps some room free, so that work already taken in can still be finished and purged.
pub(super) struct DiskFloor {
    folder: PathBuf,
    floor_bytes: u64,
    looked: Option<(Instant, bool)>,
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

impl DiskFloor {
    pub(super) fn new(folder: PathBuf, floor_bytes: u64) -> Self {
        Self { folder, floor_bytes, looked: None }
    }

    /// True when there is room for new events. Asks the system at most once a second.
    pub(super) fn has_room(&mut self) -> bool {
        if let Some((at, room)) = self.looked
            && at.elapsed() < LOOK_EVERY
        {
            return room;
        }
        // A filesystem that does not tell its free space is not a reason to stop.
        let room = free_bytes(&self.folder).is_none_or(|free| free >= self.floor_bytes);
        self.looked = Some((Instant::now(), room));
        room
    }

    pub(super) fn floor_mb(&self) -> u64 {
        self.floor_bytes >> 20
    }
}

/// What others may still write there, where the filesystem tells.
pub(super) fn free_bytes(folder: &Path) -> Option<u64> {
    rustix::fs::statvfs(folder).ok().map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// Names the network filesystem a folder is on, if it is on one: their locks and syncs cannot be relied on.
#[cfg(target_os = "linux")]
pub(super) fn network_filesystem(folder: &Path) -> Option<&'static str> {
    // f_type is signed on some architectures and unsigned on others.
    let kind = rustix::fs::statfs(folder).ok()?.f_type as u64 & 0xFFFF_FFFF;
    name_of(kind)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn network_filesystem(_folder: &Path) -> Option<&'static str> {
    None
}

/// The magic numbers of statfs(2).
fn name_of(kind: u64) -> Option<&'static str> {
    match kind {
        0x6969 => Some("NFS"),
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Some("SMB"),
        0x0102_1997 => Some("9P"),
        0x00C3_6400 => Some("Ceph"),
        0x5346_414F => Some("AFS"),
        0x0BD0_0BD0 => Some("Lustre"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_above_all_disks_leaves_no_room() {
        let folder = std::env::temp_dir();
        assert!(DiskFloor::new(folder.clone(), 0).has_room());
        assert!(!DiskFloor::new(folder, u64::MAX).has_room());
    }

    #[test]
    fn network_filesystems_are_known_by_their_number() {
        assert_eq!(name_of(0x6969), Some("NFS"));
        assert_eq!(name_of(0xEF53), None);
    }
}
