//! The program's view of the medium: page-aligned DRAM at a fixed address.
//!
//! The view is made of atomic words, so that a store by one thread and a read by another through
//! this crate never race, and so that this crate needs no unsafe code. Addresses handed out stay
//! valid for the life of the medium, for the whole reserve is allocated at once.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::{array, fmt};
use std::cell::RefCell;

use holdfast_pmem::PAGE;

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("the persistent format is little-endian and 64-bit; so must the machine be");

/// Bytes of a word: the unit that is stored whole.
pub(crate) const WORD: u64 = 8;
const WORDS_PER_PAGE: usize = (PAGE / WORD) as usize;

#[repr(C, align(4096))]
struct Page([AtomicU64; WORDS_PER_PAGE]);

/// Views kept for the next medium of the same size, and the largest worth keeping, in pages.
const SPARES_KEPT: usize = 4;
const LARGEST_SPARE: usize = 2048;

thread_local! {
    /// Fresh memory costs several times what filling it does, and a campaign opens thousands of
    /// media of one size in a row. With each, how many of its pages may be other than zero.
    static SPARES: RefCell<Vec<(Box<[Page]>, usize)>> = const { RefCell::new(Vec::new()) };
}

/// What the program sees.
pub(crate) struct View {
    pages: Box<[Page]>,
    /// Pages from the first on that were stored to: those behind them are zero.
    reach: AtomicUsize,
}

impl View {
    /// A view of `bytes`, which are whole pages, and zeroes behind them up to `capacity` bytes,
    /// rounded up to whole pages.
    pub(crate) fn new(bytes: &[u8], capacity: u64) -> Self {
        let count = capacity.div_ceil(PAGE).max(bytes.len() as u64 / PAGE) as usize;
        let spare = SPARES.with_borrow_mut(|spares| {
            let fit = spares.iter().position(|(spare, _)| spare.len() == count);
            fit.map(|index| spares.remove(index))
        });
        let blank = || (0..count).map(|_| Page(array::from_fn(|_| AtomicU64::new(0)))).collect();
        let (mut pages, reach): (Box<[Page]>, usize) = spare.unwrap_or_else(|| (blank(), 0));
        let (filled, empty) = pages.split_at_mut(bytes.len() / PAGE as usize);
        for (page, bytes) in filled.iter_mut().zip(bytes.chunks_exact(PAGE as usize)) {
            let (words, _) = bytes.as_chunks::<{ WORD as usize }>();
            for (word, &bytes) in page.0.iter_mut().zip(words) {
                *word.get_mut() = u64::from_le_bytes(bytes);
            }
        }
        // A medium that may grow has far more room than content: what is zero stays as it is.
        let stale = reach.saturating_sub(filled.len()).min(empty.len());
        for page in &mut empty[..stale] {
            page.0.iter_mut().for_each(|word| *word.get_mut() = 0);
        }
        let reach = AtomicUsize::new(filled.len());
        Self { pages, reach }
    }

    /// Bytes the view can hold.
    pub(crate) fn capacity(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    fn word(&self, word: u64) -> &AtomicU64 {
        let word = word as usize;
        &self.pages[word / WORDS_PER_PAGE].0[word % WORDS_PER_PAGE]
    }

    /// The word numbered `word`, counted from the start of the medium.
    pub(crate) fn load(&self, word: u64) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }

    /// Stores a whole word.
    pub(crate) fn store(&self, word: u64, value: u64) {
        let page = word as usize / WORDS_PER_PAGE;
        if page >= self.reach.load(Ordering::Relaxed) {
            self.reach.fetch_max(page + 1, Ordering::Relaxed);
        }
        self.word(word).store(value, Ordering::Release);
    }

    /// Copies bytes out; the caller has checked the range against the capacity. What checks an
    /// image reads all of it, thousands of times in a second: page by page, so that a page is
    /// looked up once and not for each of its words.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        let (mut word, skip) = (at / WORD, (at % WORD) as usize);
        let head = into.len().min((WORD as usize - skip) % WORD as usize);
        let (first, rest) = into.split_at_mut(head);
        if head > 0 {
            first.copy_from_slice(&self.load(word).to_le_bytes()[skip..skip + head]);
            word += 1;
        }
        let (mut whole, tail) = rest.as_chunks_mut::<{ WORD as usize }>();
        while !whole.is_empty() {
            let (page, first) = (word as usize / WORDS_PER_PAGE, word as usize % WORDS_PER_PAGE);
            let words = &self.pages[page].0[first..];
            let (here, behind) = whole.split_at_mut(whole.len().min(words.len()));
            for (eight, word) in here.iter_mut().zip(words) {
                *eight = word.load(Ordering::Acquire).to_le_bytes();
            }
            word += here.len() as u64;
            whole = behind;
        }
        if !tail.is_empty() {
            tail.copy_from_slice(&self.load(word).to_le_bytes()[..tail.len()]);
        }
    }

    /// Copies bytes in; the caller has checked the range against the capacity, and lets nobody else
    /// store meanwhile.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        for (place, byte) in (at..).zip(bytes) {
            let mut word = self.load(place / WORD).to_le_bytes();
            word[(place % WORD) as usize] = *byte;
            self.store(place / WORD, u64::from_le_bytes(word));
        }
    }

    /// Address of a byte. Only computed, never dereferenced here.
    pub(crate) fn address(&self, at: u64) -> *const u8 {
        self.pages.as_ptr().cast::<u8>().wrapping_add(at as usize)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let pages = core::mem::take(&mut self.pages);
        // A thread that is ending has no spares any more; the memory is then simply freed.
        let _ = SPARES.try_with(|spares| {
            let mut spares = spares.borrow_mut();
            if pages.len() <= LARGEST_SPARE {
                spares.truncate(SPARES_KEPT - 1);
                spares.insert(0, (pages, *self.reach.get_mut()));
            }
        });
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("capacity", &self.capacity()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_alignment_and_length() {
        let bytes: Vec<u8> = (0..2 * PAGE).map(|at| (at % 251) as u8).collect();
        let view = View::new(&bytes, 0);
        for at in PAGE as usize - 12..PAGE as usize + 12 {
            for len in 0..32 {
                let mut got = vec![0xee; len];
                view.read(at as u64, &mut got);
                assert_eq!(got, bytes[at..at + len], "at {at} length {len}");
            }
        }
    }

    #[test]
    fn a_spare_shows_nothing_of_its_former_content() {
        drop(View::new(&[9; 3 * PAGE as usize], 0));
        let view = View::new(&[7; PAGE as usize], 3 * PAGE);
        let mut bytes = [1; 3 * PAGE as usize];
        view.read(0, &mut bytes);
        assert_eq!(bytes[..PAGE as usize], [7; PAGE as usize]);
        assert_eq!(bytes[PAGE as usize..], [0; 2 * PAGE as usize]);
    }

    #[test]
    fn a_spare_shows_nothing_of_what_was_stored_behind_its_former_content() {
        let view = View::new(&[9; PAGE as usize], 5 * PAGE);
        view.store(3 * PAGE / WORD + 1, 7);
        drop(view);
        let view = View::new(&[9; PAGE as usize], 5 * PAGE);
        let mut bytes = [1; 4 * PAGE as usize];
        view.read(PAGE, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0));
        drop(view);
        let view = View::new(&[], 5 * PAGE);
        view.read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn is_page_aligned_rounded_up_and_zero_behind_its_content() {
        let view = View::new(&[7; PAGE as usize], PAGE + 1);
        assert_eq!(view.capacity(), 2 * PAGE);
        assert_eq!(view.address(0) as usize % PAGE as usize, 0);
        assert_eq!((view.load(511), view.load(512)), (0x0707_0707_0707_0707, 0));
    }
}
