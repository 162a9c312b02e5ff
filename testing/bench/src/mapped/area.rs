//! The bytes a program stores to: a file on a folder of one's choice, mapped plainly.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use holdfast_mapped::{Facts, Identity};
use holdfast_pmem::track::{allocated, folios};
use holdfast_pmem::{Access, Durability, Mapped, Medium, Options, Protect};

/// A file of zeros, mapped for stores; it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) medium: Arc<Mapped>,
    pub(crate) folios: folios::FolioReport,
    base: *mut u8,
    len: usize,
    path: PathBuf,
}

// SAFETY: `base` is the address of the mapping that `medium` keeps, as long as this value lives.
// Nothing here hands out references into it, only copies; threads that store to the same bytes see
// each other's, as with any shared mapping.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

/// How a file is mapped whose stores are never flushed or synced by us.
fn plainly() -> Options {
    Options { durability: Durability::Process, protection: Protect::None, ..Options::default() }
}

impl Area {
    /// Makes a file of `len` bytes of storage.
    pub(crate) fn new(path: &Path, len: u64, asked: folios::Folios) -> anyhow::Result<Self> {
        Self::sparse(path, len, &[(0, len)], asked)
    }

    /// The same with storage only where `parts` (first byte, bytes) says. A program's file is made
    /// by plain means, not by our medium, which asks for large pages in memory.
    pub(crate) fn sparse(
        path: &Path,
        len: u64,
        parts: &[(u64, u64)],
        asked: folios::Folios,
    ) -> anyhow::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(len)?;
        for (at, len) in parts {
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), *at, *len)?;
        }
        drop(file);
        let medium = Mapped::open(path, Access::Write, &plainly())?;
        let folios = folios::apply_to(&medium, asked)?;
        let len = medium.len();
        let base = medium.view(0, len).context("the file is not mapped")?.cast_mut();
        let path = path.to_owned();
        Ok(Self { medium: Arc::new(medium), folios, base, len: len as usize, path })
    }

    /// Touches every page, so that none is met for the first time while time is taken.
    pub(crate) fn touch(&self) {
        self.touch_parts(&[(0, self.len())]);
    }

    /// The same of parts (first byte, bytes).
    pub(crate) fn touch_parts(&self, parts: &[(u64, u64)]) {
        for (at, len) in parts {
            for page in (*at..at + len).step_by(4096) {
                self.store(page, 0_u64);
            }
        }
    }

    /// Stores back to every page what it holds. The first store to a page after tracking has ended
    /// meets a fault of its own, which is no part of running without protection.
    pub(crate) fn settle(&self) {
        for page in (0..self.len()).step_by(4096) {
            self.store_back(page);
        }
    }

    /// Stores what is there. A compiler that saw that would leave it out.
    pub(crate) fn store_back(&self, at: u64) {
        let word: u64 = self.load(at);
        self.store(at, std::hint::black_box(word));
    }

    /// All of it, for whoever knows that nobody stores.
    pub(crate) fn still(&self) -> &[u8] {
        // SAFETY: the mapping has `len` bytes and lives as long as this value. While a benchmark
        // reads them this way it has no thread that stores.
        unsafe { core::slice::from_raw_parts(self.base, self.len) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[inline(always)]
    fn at<T>(&self, at: u64) -> *mut T {
        let inside = (at as usize).checked_add(size_of::<T>()).is_some_and(|end| end <= self.len);
        assert!(inside, "an access beyond the file");
        // SAFETY: the whole value lies in the mapping: checked in the line before.
        unsafe { self.base.add(at as usize).cast() }
    }

    /// Loads a plain value.
    #[inline(always)]
    pub(crate) fn load<T: Plain>(&self, at: u64) -> T {
        // SAFETY: `at` has checked the range; any bytes are a value of a plain type.
        unsafe { self.at::<T>(at).read_unaligned() }
    }

    /// Stores one.
    #[inline(always)]
    pub(crate) fn store<T: Plain>(&self, at: u64, value: T) {
        // SAFETY: `at` has checked the range, which is mapped for writing.
        unsafe { self.at::<T>(at).write_unaligned(value) }
    }

    /// Writes the lines of a range back from the caches and waits: what a program does whose
    /// caches do not survive a power cut.
    #[inline(always)]
    pub(crate) fn flush(&self, at: u64, len: u64) {
        let last = at + len.max(1) - 1;
        for line in at / 64..=last / 64 {
            let address = self.at::<u8>(line * 64);
            // SAFETY: writes back a line of the mapping, whose bytes stay what they are. The
            // processor has the instruction: asked by `can_flush` before this is ever called.
            unsafe {
                core::arch::asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags));
            }
        }
        // SAFETY: an instruction every processor of this architecture has.
        unsafe { core::arch::x86_64::_mm_sfence() };
    }
}

/// Whether [`Area::flush`] may be called.
pub(crate) fn can_flush() -> bool {
    holdfast_pmem::Cpu::detect().flush == holdfast_pmem::cpu::FlushInstruction::Clwb
}

/// Types of which any bytes are a value.
pub(crate) trait Plain: Copy {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for [u8; 100] {}
impl Plain for [u64; 8] {}

impl Drop for Area {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// What the system says of the file.
#[derive(Debug)]
pub(crate) struct Told(File);

impl Told {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?))
    }
}

impl Facts for Told {
    fn identity(&self) -> io::Result<Identity> {
        let found = self.0.metadata()?;
        Ok(Identity {
            inode: found.ino(),
            size: found.len(),
            mtime_ns: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
        })
    }

    fn sync_identity(&self, _: holdfast_pmem::Site) -> io::Result<()> {
        self.0.sync_all()
    }

    fn allocated(&self, at: u64, len: u64, each: &mut dyn FnMut(u64, u64)) {
        if allocated(self.0.as_fd(), at, len, each).is_err() {
            each(at, len);
        }
    }
}
