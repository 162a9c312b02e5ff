//! The log of a disk's writes, in the format of the kernel's `dm-log-writes`, which the emulator's
//! driver `blklogwrites` writes as well.
//!
//! ```text
//!   sector 0   magic, version, entries: u64; bytes of a sector: u32
//!   then each  first sector, sectors, flags, length of a mark: u64; filled up to a sector
//!              and the sectors written, unless it is a discard
//! ```
//!
//! All little-endian. An entry is appended when its write is done and before the guest is told so:
//! the order of the log is one in which they were completed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Bytes of a sector, of the disk and of the log.
pub(super) const SECTOR: u64 = 512;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;

const FLUSH: u64 = 1;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;

/// One thing that was done to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// First byte on the disk.
    pub(super) at: u64,
    /// Bytes.
    pub(super) len: u64,
    /// What was completed before it is durable. Comes before the entry's own bytes.
    pub(super) flush: bool,
    /// Its own bytes are durable.
    pub(super) durable: bool,
    /// Its bytes are not needed any more: there is nothing to be read.
    pub(super) discard: bool,
    /// Where its bytes are in the log.
    data: u64,
}

/// A log, read.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    pub(super) entries: Vec<Entry>,
}

impl Log {
    /// Reads the log of a disk of so many bytes.
    pub(super) fn open(path: &Path, disk: u64) -> Result<Self> {
        let name = || format!("the log {} cannot be read", path.display());
        let file = File::open(path).with_context(name)?;
        let len = file.metadata().with_context(name)?.len();
        let [magic, version, count] = words(&file, 0, len).with_context(name)?;
        let mut size = [0; 4];
        file.read_exact_at(&mut size, 24).with_context(name)?;
        ensure!(magic == MAGIC && version == VERSION, "{} is no log of writes", path.display());
        ensure!(u64::from(u32::from_le_bytes(size)) == SECTOR, "a log of other sectors");
        let mut log = Self { file, entries: Vec::new() };
        let mut at = SECTOR;
        for number in 0..count {
            let entry = log.entry(&mut at, len, disk);
            log.entries.push(entry.with_context(|| format!("entry {number} of the log"))?);
        }
        Ok(log)
    }

    /// The entry at a place of the file; goes on to the next one.
    fn entry(&self, at: &mut u64, len: u64, disk: u64) -> Result<Entry> {
        let [sector, sectors, flags] = words(&self.file, *at, len)?;
        ensure!(flags & !(FLUSH | FUA | DISCARD | MARK) == 0, "flags {flags:#x} mean nothing");
        ensure!(flags != 0 || sectors != 0, "nothing was done: the log has a hole");
        let bytes = |sectors: u64| sectors.checked_mul(SECTOR);
        let range = bytes(sector).zip(bytes(sectors));
        let range = range.filter(|(at, len)| at.checked_add(*len).is_some_and(|end| end <= disk));
        let (first, length) = range.context("lies beyond the end of the disk")?;
        let discard = flags & DISCARD != 0;
        let data = *at + SECTOR;
        let stored = if discard { 0 } else { length };
        *at = data.checked_add(stored).filter(|end| *end <= len).context("the log is cut off")?;
        Ok(Entry {
            at: first,
            len: if flags & MARK == 0 { length } else { 0 },
            flush: flags & FLUSH != 0,
            durable: flags & FUA != 0,
            discard,
            data,
        })
    }

    /// What an entry wrote.
    pub(super) fn data(&self, entry: &Entry) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(entry.len).context("an entry too long")?];
        if !entry.discard {
            self.file.read_exact_at(&mut bytes, entry.data).context("the log cannot be read")?;
        }
        Ok(bytes)
    }
}

/// The three words at a place.
fn words(file: &File, at: u64, len: u64) -> Result<[u64; 3]> {
    ensure!(at.checked_add(SECTOR).is_some_and(|end| end <= len), "the log is cut off");
    let mut bytes = [0; 24];
    file.read_exact_at(&mut bytes, at)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok([0, 1, 2].map(|word: usize| u64::from_le_bytes(words[word])))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const DISK: u64 = 1 << 20;

    fn sector(words: &[u64]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(SECTOR as usize, 0);
        bytes
    }

    /// A log of these entries: first sector, sectors, flags, and the byte that fills them.
    pub(crate) fn written(entries: &[(u64, u64, u64, u8)]) -> Vec<u8> {
        let mut bytes = sector(&[MAGIC, VERSION, entries.len() as u64, SECTOR]);
        for (first, sectors, flags, fill) in entries {
            bytes.extend(sector(&[*first, *sectors, *flags, 0]));
            if flags & DISCARD == 0 {
                bytes.resize(bytes.len() + (sectors * SECTOR) as usize, *fill);
            }
        }
        bytes
    }

    pub(crate) fn log(bytes: &[u8]) -> Result<Log> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, bytes).unwrap();
        Log::open(&path, DISK)
    }

    #[test]
    fn entries_are_read_in_order_with_their_bytes() {
        let bytes = written(&[(8, 2, 0, 7), (0, 0, FLUSH, 0), (4, 8, DISCARD, 0), (1, 1, FUA, 9)]);
        let log = log(&bytes).unwrap();
        let found: Vec<_> = log.entries.iter().map(|it| (it.at, it.len, it.flush)).collect();
        assert_eq!(
            found,
            [(4096, 1024, false), (0, 0, true), (2048, 4096, false), (512, 512, false)]
        );
        assert_eq!(log.data(&log.entries[0]).unwrap(), vec![7; 1024]);
        assert_eq!(log.data(&log.entries[2]).unwrap(), vec![0; 4096]);
        assert_eq!(log.data(&log.entries[3]).unwrap(), vec![9; 512]);
        assert!(log.entries[3].durable && !log.entries[0].durable);
    }

    #[test]
    fn hostile_logs_are_refused() {
        let fine = written(&[(8, 2, 0, 7)]);
        assert!(log(&fine).is_ok());
        for cut in [0, 20, 511, 600, fine.len() - 1] {
            assert!(log(&fine[..cut]).is_err(), "cut off at {cut}");
        }
        let with = |at: usize, word: u64| {
            let mut bytes = fine.clone();
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            log(&bytes)
        };
        for (at, word) in [
            (0, 1),
            (8, 2),
            (16, 2),
            (16, u64::MAX),
            (24, 4096),
            (512, DISK / SECTOR),
            (512, u64::MAX),
            (520, u64::MAX),
            (520, u64::MAX / SECTOR + 1),
            (520, 0),
            (528, 16),
        ] {
            assert!(with(at, word).is_err(), "{word:#x} at {at}");
        }
    }
}
