//! Marks on a disk: how many transactions of each thread have ended, a block for each thread.
//!
//! A mark is written around the page cache to blocks that no file system covers. If the disk's
//! writes are logged, the log then has both in one order: what was acknowledged when, and what was
//! on its way.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::victim::WORKERS;

/// Bytes of a mark: one block, of which the first three words say something.
pub const LEN: usize = 4096;

/// The first word of a mark.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hf.marks");

/// A block in memory, where writes around the cache need it.
#[repr(C, align(4096))]
struct Block([u8; LEN]);

/// Where marks are made.
#[derive(Debug)]
pub struct Marks {
    disk: File,
    /// First byte of the first mark.
    at: u64,
    ended: [AtomicU64; WORKERS],
}

impl Marks {
    /// Marks on this disk, from this byte on.
    ///
    /// # Errors
    /// The disk cannot be opened for writes around the cache.
    pub fn new(disk: &Path, at: u64) -> io::Result<Self> {
        let disk = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(disk)?;
        Ok(Self { disk, at, ended: Default::default() })
    }

    /// Marks that the pool is there: the first block.
    ///
    /// # Errors
    /// It could not be written.
    pub fn made(&self) -> io::Result<()> {
        self.write(0, 1)
    }

    /// Marks that one more transaction of a thread was acknowledged or refused: block 1 of thread
    /// 0, and so on. The process ends if that cannot be done, since nothing could be judged then.
    pub fn ended(&self, thread: u8) {
        let Some(ended) = self.ended.get(usize::from(thread)) else { return };
        let count = ended.fetch_add(1, Ordering::Relaxed) + 1;
        if let Err(error) = self.write(1 + u64::from(thread), count) {
            eprintln!("logged: a mark cannot be written: {error}");
            std::process::exit(1);
        }
    }

    fn write(&self, block: u64, count: u64) -> io::Result<()> {
        let mut content = Box::new(Block([0; LEN]));
        for (place, word) in [MAGIC, block, count].into_iter().enumerate() {
            content.0[8 * place..8 * place + 8].copy_from_slice(&word.to_le_bytes());
        }
        self.disk.write_all_at(&content.0, self.at + block * LEN as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_a_block_that_counts() {
        // Where cargo builds is a disk, most likely: not everywhere can the cache be gone around.
        let own = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(own.parent().unwrap()).unwrap();
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![0; 16 * LEN]).unwrap();
        let marks = Marks::new(&path, 2 * LEN as u64).unwrap();
        marks.made().unwrap();
        marks.ended(1);
        marks.ended(1);
        marks.ended(9);
        let bytes = std::fs::read(&path).unwrap();
        let words = |block: usize| {
            let at = |word: usize| block * LEN + 8 * word;
            [0, 1, 2].map(|w| u64::from_le_bytes(bytes[at(w)..at(w) + 8].try_into().unwrap()))
        };
        assert_eq!(words(2), [MAGIC, 0, 1]);
        assert_eq!(words(3), [0; 3]);
        assert_eq!(words(4), [MAGIC, 2, 2]);
    }
}
