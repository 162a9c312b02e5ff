//! What is on a disk, block by block, and changes to it that may be there or not.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::log::SECTOR;

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;

type Block = Box<[u8; BLOCK as usize]>;

/// A disk. Blocks that nobody wrote are zero.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(BTreeMap<u64, Block>);

impl Disk {
    /// Writes those sectors, counted from the first of `bytes`, that `arrived` names.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8], arrived: impl Fn(u64) -> bool) {
        self.over(None, at, bytes, arrived);
    }

    /// The same on top of another disk, which stays as it is.
    pub(super) fn write_over(
        &mut self,
        below: &Self,
        at: u64,
        bytes: &[u8],
        arrived: impl Fn(u64) -> bool,
    ) {
        self.over(Some(below), at, bytes, arrived);
    }

    fn over(&mut self, below: Option<&Self>, at: u64, bytes: &[u8], arrived: impl Fn(u64) -> bool) {
        for (number, sector) in (0..).zip(bytes.chunks(SECTOR as usize)) {
            if !arrived(number) {
                continue;
            }
            let at = at + number * SECTOR;
            let place = (at % BLOCK) as usize;
            let block = self.0.entry(at / BLOCK).or_insert_with(|| {
                let found = below.and_then(|below| below.0.get(&(at / BLOCK)));
                found.cloned().unwrap_or_else(|| Box::new([0; BLOCK as usize]))
            });
            block[place..place + sector.len()].copy_from_slice(sector);
        }
    }

    /// Writes this disk, with the blocks of `above` in place of its own, to a new file of `len`
    /// bytes that takes no room for what is zero.
    pub(super) fn save(&self, above: &Self, path: &Path, len: u64) -> Result<()> {
        let cannot = || format!("cannot write {}", path.display());
        let file = File::create(path).with_context(cannot)?;
        file.set_len(len).with_context(cannot)?;
        let own = self.0.iter().filter(|(number, _)| !above.0.contains_key(number));
        for (number, block) in own.chain(&above.0) {
            let at = number * BLOCK;
            if at < len && block.iter().any(|byte| *byte != 0) {
                file.write_all_at(&block[..], at).with_context(cannot)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_that_did_not_arrive_are_as_they_were() {
        let mut disk = Disk::default();
        disk.write(BLOCK, &[1; 2048], |_| true);
        let mut above = Disk::default();
        above.write_over(&disk, BLOCK + 512, &[2; 1024], |sector| sector == 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        disk.save(&above, &path, 4 * BLOCK).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 4 * BLOCK as usize);
        let sector = |number: usize| bytes[number * 512];
        assert_eq!([8, 9, 10, 11, 12].map(sector), [1, 1, 2, 1, 0]);
        // What lies below is untouched.
        disk.save(&Disk::default(), &path, 4 * BLOCK).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[10 * 512], 1);
    }
}
