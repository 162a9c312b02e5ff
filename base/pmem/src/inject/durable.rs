//! What a power cut can take back of what the system was asked for.

use std::collections::BTreeSet;

use super::Told;

/// What a power cut after these calls could take back, by what POSIX promises: what changed of a
/// file is durable once that file was synced, and a name once its folder (of this inode number)
/// was. No file has its name before it is durable. `files` are those to which the caller stored
/// without calls, and `names` says that it changed names so. `None`: nothing.
#[must_use]
pub fn taken_back(told: &[Told], folder: u64, names: bool, files: &[u64]) -> Option<String> {
    let mut changed: BTreeSet<u64> = BTreeSet::new();
    let mut unsynced: BTreeSet<u64> = files.iter().copied().collect();
    let mut named = names;
    for Told { call, inode, .. } in told {
        match (*call, *inode) {
            ("fsync" | "fdatasync", Some(inode)) => {
                changed.remove(&inode);
                unsynced.remove(&inode);
                named &= inode != folder;
            }
            ("ftruncate" | "fallocate" | "pwritev2" | "pwrite", Some(inode)) => {
                changed.insert(inode);
            }
            ("rename" | "renameat2", _) => {
                if let Some(file) = changed.union(&unsynced).next() {
                    return Some(format!("file {file} is named before it is durable"));
                }
                named = true;
            }
            ("unlink", _) => named = true,
            _ => {}
        }
    }
    if named {
        return Some("a name is not durable".to_owned());
    }
    changed.union(&unsynced).next().map(|file| format!("file {file} is not durable"))
}
