//! What the threads of this harness know of the file: what the program made of it, what was
//! damaged, and of which damage it is certain that the engine can see it.

use std::ops::Range;

use holdfast_faultmem::Marks;
use holdfast_pmem::PAGE;
use shuttle::rand::{Rng, thread_rng};

/// Pages of the data file at first, a region and a half; and what there is room for.
pub(super) const PAGES: u64 = 12;
pub(super) const SIZE: u64 = PAGES * PAGE;
pub(super) const ROOM: u64 = 16;
/// Data pages of a stripe.
pub(super) const STRIPE: u64 = 4;
/// Whole pages that a file has at the least: more than a stripe, and less than a region.
const LEAST: u64 = 5;

/// What is known of a page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Page {
    /// It was damaged, at any time.
    pub(super) damaged: bool,
    /// It may have been damaged between a store and its covering, and the damage be part of it.
    pub(super) vague: bool,
    /// The file ended here when it became longer or shorter: that counts as a store whenever the
    /// engine comes to see it.
    end: bool,
}

impl Page {
    /// Whether nobody can tell damage from what was stored: it was damaged where the file was cut
    /// off, which counts as a store only if the page agreed with its sum.
    pub(super) fn may_be_doubted(self) -> bool {
        self.damaged && self.end
    }
}

/// What is known of the file.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// Its bytes as the program made them; zeros behind its end.
    pub(super) truth: Vec<u8>,
    /// The same, with damage that nobody undid.
    pub(super) left: Vec<u8>,
    pub(super) size: u64,
    pub(super) pages: [Page; ROOM as usize],
    /// Passes under way.
    pub(super) passes: u32,
    /// The page that was damaged last.
    pub(super) hit: u64,
}

/// The bytes of a page.
pub(super) fn page_of(page: u64) -> Range<usize> {
    (page * PAGE) as usize..((page + 1) * PAGE) as usize
}

/// A length that the file may have: often one that ends with a page.
pub(super) fn size() -> u64 {
    let whole = thread_rng().gen_range(LEAST..ROOM) * PAGE;
    if thread_rng().r#gen() { whole } else { whole + thread_rng().gen_range(1..PAGE) }
}

impl Known {
    /// Nothing is damaged yet.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let (truth, left) = (bytes.to_vec(), bytes.to_vec());
        Self { truth, left, size: SIZE, pages: Default::default(), passes: 0, hit: 0 }
    }

    /// Pages that the file has.
    pub(super) const fn count(&self) -> u64 {
        self.size.div_ceil(PAGE)
    }

    /// Bytes of a page, if the file has it.
    pub(super) fn len_of(&self, page: u64) -> Option<u64> {
        let len = self.size.checked_sub(page * PAGE)?.min(PAGE);
        (len > 0).then_some(len)
    }

    fn stripe(&self, page: u64) -> &[Page] {
        &self.pages[(page / STRIPE * STRIPE) as usize..][..STRIPE as usize]
    }

    /// The program stored within a page.
    pub(super) fn stored(&mut self, at: u64, bytes: &[u8]) {
        let range = at as usize..at as usize + bytes.len();
        self.truth[range.clone()].copy_from_slice(bytes);
        self.left[range].copy_from_slice(bytes);
        let page = &mut self.pages[(at / PAGE) as usize];
        page.vague |= page.damaged;
    }

    /// The file is about to become longer or shorter, which counts as a store to all that lies in
    /// between, and to the pages in which it ended and ends.
    pub(super) fn announced(&mut self, old: u64, new: u64) {
        let ends = [old, new].map(|size| (size - 1) / PAGE);
        let between = old.min(new) / PAGE..old.max(new).div_ceil(PAGE);
        for page in (0..ROOM).filter(|page| between.contains(page) || ends.contains(page)) {
            let page = &mut self.pages[page as usize];
            (page.end, page.vague) = (true, page.vague || page.damaged);
        }
    }

    /// It is: what was cut off is gone, and what was added is zeros.
    pub(super) fn resized(&mut self, size: u64) {
        let old = std::mem::replace(&mut self.size, size);
        self.announced(old, size);
        let from = old.min(size) as usize;
        self.truth[from..].fill(0);
        self.left[from..].fill(0);
    }

    /// A bit of a page is about to be damaged, whose tracking is that of now; each page is only
    /// once: whether this one was not.
    pub(super) fn hit(&mut self, at: u64, bit: u8, marks: &Marks) -> bool {
        let page = at / PAGE;
        // Beside damage, a page may have been taken and put off: stored to, and not covered.
        let beside = self.stripe(page).iter().any(|page| page.damaged);
        let told = marks.dirty.contains(&page) || !marks.armed.contains(&page);
        let of = &mut self.pages[page as usize];
        if of.damaged {
            return false;
        }
        let vague = beside || told || of.end || self.passes > 0;
        *of = Page { damaged: true, vague, ..*of };
        self.hit = page;
        self.left[at as usize] ^= 1 << bit;
        true
    }
}
