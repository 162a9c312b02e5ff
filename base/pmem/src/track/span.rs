//! Which addresses show which bytes of a file, and whether they still do.

use core::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::SeekFrom;

use super::bits::PageBits;
use super::error::TrackError;
use super::maps::{self, Vma};
use crate::fork::Stamp;
use crate::medium::PAGE;

/// Addresses `[address, address + len)` of this process, which show the bytes `[at, at + len)` of
/// a file. All three are multiples of a page. The end may lie where nothing is mapped yet: it is
/// room for the file to grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First address.
    pub address: usize,
    /// Bytes.
    pub len: u64,
    /// First byte of the file.
    pub at: u64,
}

/// What a forked child gets of the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forks {
    /// Nothing: its loads and stores there end it. For programs whose children need not the file.
    Excluded,
    /// The same file under the same addresses, and nobody sees its stores.
    Inherit,
}

impl Span {
    /// Checks that the numbers are whole pages and do not wrap around.
    ///
    /// # Errors
    /// [`TrackError::OutOfRange`].
    pub fn new(address: usize, len: u64, at: u64) -> Result<Self, TrackError> {
        let whole = [address as u64, len, at].iter().all(|number| number.is_multiple_of(PAGE));
        let fits = (address as u64).checked_add(len).is_some() && at.checked_add(len).is_some();
        if whole && fits && len > 0 { Ok(Self { address, len, at }) } else { Err(out(at, len)) }
    }

    /// Pages.
    pub(crate) fn pages(&self) -> u64 {
        self.len / PAGE
    }

    /// The pages, counted from the span's first, that hold `[at, at + len)` of the file.
    pub(crate) fn pages_of(&self, at: u64, len: u64) -> Result<Range<u64>, TrackError> {
        let whole = at.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        let inside = at
            .checked_sub(self.at)
            .filter(|inside| whole && *inside <= self.len && len <= self.len - inside);
        let first = inside.ok_or(out(at, len))? / PAGE;
        Ok(first..first + len / PAGE)
    }

    /// The address of a page.
    pub(crate) fn address_of(&self, page: u64) -> usize {
        self.address + (page * PAGE) as usize
    }

    /// The pages of the span that lie in an address range.
    pub(crate) fn pages_in(&self, addresses: Range<usize>) -> Range<u64> {
        let clip =
            |address: usize| (address.saturating_sub(self.address) as u64).min(self.len) / PAGE;
        clip(addresses.start)..clip(addresses.end)
    }
}

pub(crate) fn out(at: u64, len: u64) -> TrackError {
    TrackError::OutOfRange { at, len }
}

/// A span together with the file that was found under it, and the process that found it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) span: Span,
    device: (u32, u32),
    inode: u64,
    pub(crate) stamp: Stamp,
}

impl Place {
    /// Looks what is mapped at the first page, which must be a file, shared. The rest may be mapped
    /// later, as the file grows; whether it is the same file is asked when it is armed.
    pub(crate) fn find(span: Span) -> Result<Self, TrackError> {
        let refuse = |why| TrackError::NotTrackable { address: span.address, len: span.len, why };
        let stamp = Stamp::take().map_err(|source| TrackError::Io { call: "madvise", source })?;
        let mut first: Option<Vma> = None;
        maps::walk(None, |vma| {
            if vma.end > span.address && first.is_none() {
                first = Some(*vma);
            }
        })?;
        let first = first
            .filter(|vma| vma.start <= span.address)
            .ok_or_else(|| refuse("nothing is mapped there"))?;
        if !first.shared {
            return Err(refuse("it is private memory, whose stores never reach a file"));
        }
        let place = Self { span, device: first.device, inode: first.inode, stamp };
        if !place.shows(&first) {
            return Err(refuse("it shows another part of the file"));
        }
        Ok(place)
    }

    /// What must hold before pages are armed: the process is the one that made the source, and the
    /// file is there all over, shared, in the order of its offsets. Then keeps it from children, if
    /// so wished.
    pub(crate) fn ready(&self, pages: Range<u64>, forks: Forks) -> Result<(), TrackError> {
        self.mine()?;
        let start = self.span.address_of(pages.start);
        let len = (pages.end - pages.start) * PAGE;
        if !self.holds(core::slice::from_ref(&pages), |_| true)? {
            let why = "the file is not mapped there all over, in the order of its offsets; map it \
                       (again) first";
            return Err(TrackError::NotTrackable { address: start, len, why });
        }
        if forks == Forks::Excluded && len > 0 {
            // SAFETY: `lost` has just found a shared mapping of the file all over the range; the
            // advice changes only what children inherit.
            let done = unsafe { libc::madvise(address(start), len as usize, libc::MADV_DONTFORK) };
            if done != 0 {
                return Err(TrackError::last("madvise(MADV_DONTFORK)"));
            }
        }
        Ok(())
    }

    /// Fails in a forked child, whose system calls would reach the parent's pages.
    pub(crate) fn mine(&self) -> Result<(), TrackError> {
        if self.stamp.forked() { Err(TrackError::Forked) } else { Ok(()) }
    }

    /// Pages of the range under which the file does not lie any more, or whose mapping `good`
    /// refuses.
    pub(crate) fn lost(
        &self,
        pages: Range<u64>,
        mut good: impl FnMut(&Vma) -> bool,
    ) -> Result<PageBits, TrackError> {
        let mut lost = PageBits::new();
        lost.set(pages.clone());
        let asked = self.span.address_of(pages.start)..self.span.address_of(pages.end);
        maps::walk(None, |vma| {
            if vma.end <= asked.start || vma.start >= asked.end || !self.shows(vma) {
                return;
            }
            if good(vma) {
                let found = self.span.pages_in(vma.start..vma.end);
                lost.clear(found.start.max(pages.start)..found.end.min(pages.end));
            }
        })?;
        Ok(lost)
    }

    /// Whether the file lies under all of these ranges of pages, which are ascending, in mappings
    /// that `good` accepts. Each is asked about once, and only if a range needs it.
    pub(crate) fn holds(
        &self,
        ranges: &[Range<u64>],
        mut good: impl FnMut(&Vma) -> bool,
    ) -> Result<bool, TrackError> {
        let mut rest = ranges.iter().filter(|pages| !pages.is_empty()).cloned().peekable();
        let mut broken = false;
        maps::walk(None, |vma| {
            if broken || !self.shows(vma) {
                return;
            }
            let shown = self.span.pages_in(vma.start..vma.end);
            let mut asked = None;
            while let Some(pages) = rest.peek_mut().filter(|pages| pages.start < shown.end) {
                // Mappings come in ascending order: what lies before this one is not there.
                broken |= pages.start < shown.start || !*asked.get_or_insert_with(|| good(vma));
                pages.start = shown.end.min(pages.end);
                if broken || !pages.is_empty() {
                    return;
                }
                rest.next();
            }
        })?;
        Ok(!broken && rest.peek().is_none())
    }

    /// Whether a mapping that overlaps the span shows the file's bytes where the span says.
    fn shows(&self, vma: &Vma) -> bool {
        let same = vma.shared && vma.device == self.device && vma.inode == self.inode;
        // Both sides name the file's byte that would lie at address 0.
        let base = vma.at.wrapping_sub(vma.start as u64);
        same && base == self.span.at.wrapping_sub(self.span.address as u64)
    }
}

/// An address as the kernel's calls want it.
pub(crate) fn address(address: usize) -> *mut core::ffi::c_void {
    core::ptr::with_exposed_provenance_mut(address)
}

/// The parts of `[at, at + len)` of a file that have storage, rounded out to whole pages: what is
/// worth arming. The rest is holes, known to be zeros, for which page tables would be paid in vain.
///
/// # Errors
/// What the system said; a file system that cannot tell answers one part, all of it.
pub fn allocated(
    file: BorrowedFd<'_>,
    at: u64,
    len: u64,
    each: &mut dyn FnMut(u64, u64),
) -> Result<(), TrackError> {
    let end = at.checked_add(len).ok_or(out(at, len))?;
    let failed =
        |call| move |error: rustix::io::Errno| TrackError::Io { call, source: error.into() };
    let mut from = at;
    while from < end {
        let data = match rustix::fs::seek(file, SeekFrom::Data(from)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => return Ok(()), // a hole up to the end
            Err(error) => return Err(failed("lseek(SEEK_DATA)")(error)),
        };
        if data >= end {
            return Ok(());
        }
        let hole =
            rustix::fs::seek(file, SeekFrom::Hole(data)).map_err(failed("lseek(SEEK_HOLE)"))?;
        let first = (data - data % PAGE).max(from);
        let stop = hole.max(data + 1).next_multiple_of(PAGE).min(end.next_multiple_of(PAGE));
        each(first, stop - first);
        from = stop;
    }
    Ok(())
}
