//! What may be lost in a storm beyond tolerance: objects with a part in a page that was hurt.

use std::collections::BTreeMap;

use holdfast_layout::RawPtr;
use holdfast_pmem::PAGE;

use crate::object::driver::Driver;
use crate::object::raw::Bytes;
use crate::object::rows::spared::Range;
use crate::object::targets::{Area, Targets, parts_at};

/// Where slot and sums are of what may lie at a place, by its first byte.
pub(super) type Places = BTreeMap<u64, (u64, u64)>;

/// The places of a pool as it is now.
pub(super) fn places(driver: &Driver) -> Places {
    Targets::places(&Bytes::of(&driver.medium))
}

/// Pages that were hurt, and what lies there.
#[derive(Debug)]
pub(super) struct Exposed {
    pages: Vec<Range>,
    /// An entry of the directory was hurt: of its chunk nothing need be known any more.
    directory: bool,
    places: [Places; 2],
}

impl Exposed {
    /// Of a pool in which these ranges were hurt, with its places before and after that.
    pub(super) fn by(hurt: Vec<Range>, places: [Places; 2], whole: &Targets) -> Self {
        let page = |(at, len): Range| {
            let from = at / PAGE * PAGE;
            (from, (at + len).next_multiple_of(PAGE) - from)
        };
        let pages: Vec<Range> = hurt.into_iter().map(page).collect();
        let entry = |area| area == Area::Directory;
        let directory = pages.iter().any(|(at, len)| whole.any_in(entry, *at, *len));
        Self { pages, directory, places }
    }

    /// Whether entries of the directory were hurt: then anything may be lost.
    pub(super) fn is_everything(&self) -> bool {
        self.directory
    }

    /// Whether an object of so many bytes has a part in a page that was hurt: its bytes, its slot
    /// or its sums. Where nothing says where these are, it may have.
    pub(super) fn has(&self, word: u64, len: u64) -> bool {
        let at = RawPtr::from_word(word).offset();
        let hurt = |(at, len): Range| self.pages.iter().any(|(p, n)| *p < at + len && at < p + n);
        let mut places = self.places.iter().filter_map(|places| places.get(&at)).peekable();
        self.directory
            || places.peek().is_none()
            || places.any(|place| parts_at(at, *place, len).into_iter().any(hurt))
    }

    /// Where an object of so many bytes has its parts, as far as that was known before or is now:
    /// of one whose slot is gone the pool itself says nothing any more.
    pub(super) fn parts(&self, word: u64, len: u64) -> Vec<Range> {
        let at = RawPtr::from_word(word).offset();
        let places = self.places.iter().filter_map(|places| places.get(&at));
        let parts = places.flat_map(|place| parts_at(at, *place, len));
        std::iter::once((at, len)).chain(parts).collect()
    }
}
