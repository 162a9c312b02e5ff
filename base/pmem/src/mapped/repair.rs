//! Bad pages: what an error means, rewriting in place, serving a frame from elsewhere, the list
//! of what is known to be bad, and making pages bad on purpose.

use core::sync::atomic::Ordering;
use std::os::fd::AsFd;
use std::path::Path;

use super::{Layout, Mapped, SYSFS};
use crate::badblocks::{Device, bad_file_ranges, extents, whole_pages};
use crate::inject::{Poison, empty_file, memory_file};
use crate::medium::{MediaCause, MediaError, MediumKind, PAGE};
use crate::options::Access;
use crate::site::Site;
use crate::space::Miss;

/// Bytes of a page, as an array length.
const PAGE_BYTES: usize = PAGE as usize;
/// What a poisoned page holds behind its hole: nothing a repair could use.
const DESTROYED: [u8; PAGE_BYTES] = [0xdb; PAGE_BYTES];

impl Mapped {
    /// Why an access to `[at, at + len)` failed.
    #[cold]
    #[inline(never)]
    pub(super) fn explain(&self, miss: Miss, at: u64, len: u64) -> MediaError {
        let outcome = match miss {
            Miss::Trapped(outcome) if !self.forked() => outcome,
            // A forked child has no medium at all.
            _ => return MediaError { at, len, cause: MediaCause::OutOfRange },
        };
        let entry = self.registration.entry();
        // Normally inside the range; elsewhere if the caller's own buffer was the bad one.
        let place = entry.offset_of(outcome.address as usize).unwrap_or(at);
        let page = place - place % PAGE;
        if self.is_cut_off(&self.layout(), page) {
            return MediaError { at, len, cause: MediaCause::Truncated };
        }
        entry.note_bad(page);
        let extent = outcome.extent();
        let first = place - place % extent;
        let len = extent.min(self.space.len().saturating_sub(first)).max(PAGE);
        MediaError { at: first, len, cause: MediaCause::Poison }
    }

    /// Whether the file ends before the place that serves this page, or did at some time. Pages
    /// that a private copy has grown by are not the file's.
    fn is_cut_off(&self, layout: &Layout, page: u64) -> bool {
        let (physical, _) = layout.frames.locate(page, PAGE);
        physical < self.backing.relied_on()
            && self.backing.cut_off()
            && !layout.holes.contains_key(&physical)
    }

    /// Checks that `[at, at + len)` are whole pages open to stores.
    fn whole_pages(&self, at: u64, len: u64) -> Result<(), MediaError> {
        let bound = self.space.store_len();
        let whole = at.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && len > 0;
        if !self.forked() && whole && len <= bound && at <= bound - len {
            return Ok(());
        }
        Err(MediaError { at, len, cause: MediaCause::OutOfRange })
    }

    /// See [`Medium::heal`](crate::Medium::heal).
    pub(super) fn rewrite(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.whole_pages(at, bytes.len() as u64)?;
        let bad = |cause| MediaError { at, len: PAGE, cause };
        if bytes.len() != PAGE_BYTES {
            return Err(bad(MediaCause::OutOfRange));
        }
        let mut layout = self.layout();
        // Writing to a file that was cut off would lengthen it, and so hide what happened.
        if self.backing.cut_off() {
            return Err(bad(MediaCause::Truncated));
        }
        if layout.stand_ins.contains(&at) {
            // It would be checked by what stands in for it.
            return Err(bad(MediaCause::Unclearable));
        }
        let (physical, _) = layout.frames.locate(at, PAGE);
        let poison = layout.holes.get(&physical).copied();
        if self.access == Access::Write {
            // Platforms that cannot clear refuse the write itself; injected poison does as well.
            if poison == Some(Poison::Unclearable) {
                return Err(bad(MediaCause::Unclearable));
            }
            let rewritten = self.backing.rewrite_page(site, physical, bytes);
            rewritten.map_err(|error| bad(MediaCause::of_rewrite(&error)))?;
        }
        if poison == Some(Poison::Clearable) {
            layout.holes.remove(&physical);
        }
        // A page that reads as written needs no new mapping, and keeps the views in one piece.
        let good = poison.is_none() && self.reads_as(at, bytes);
        if !good {
            for (place, len) in layout.frames.places_of(physical, PAGE) {
                self.place(&layout, place, physical, len)
                    .map_err(|_| bad(MediaCause::Unclearable))?;
            }
            if self.access == Access::PrivateCopy {
                // Fails like the check below if the page stays bad.
                let _ = self.space.put(at, bytes);
            }
            if !self.reads_as(at, bytes) {
                return Err(bad(MediaCause::Unclearable));
            }
        }
        self.registration.entry().note_good(at, PAGE);
        Ok(())
    }

    /// Whether both views show `bytes` at `at`, where one page lies.
    fn reads_as(&self, at: u64, bytes: &[u8]) -> bool {
        let mut found = [0; PAGE_BYTES];
        let through_ours = self.space.read(at, &mut found).is_ok() && found == bytes;
        through_ours && self.space.read_view(at, &mut found).is_ok() && found == bytes
    }

    /// Maps the file range at `physical` over `[at, at + len)`, with the poison that lies in it.
    fn place(&self, layout: &Layout, at: u64, physical: u64, len: u64) -> std::io::Result<()> {
        self.space.place(self.backing.fd(), at, physical, len)?;
        for bad in layout.holes.range(physical..physical + len).map(|(bad, _)| *bad) {
            self.space.place_shared(empty_file()?, at + (bad - physical), PAGE)?;
        }
        Ok(())
    }

    /// See [`Medium::remap`](crate::Medium::remap).
    pub(super) fn serve_from(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        if self.forked() {
            return Err(MediaError { at, len, cause: MediaCause::OutOfRange });
        }
        let mut layout = self.layout();
        // An observer follows the writer's table: for it the bound is what it can load.
        let bound = self.space.len();
        let whole = [at, physical, len].iter().all(|value| value.is_multiple_of(PAGE)) && len > 0;
        let inside = len <= bound && at <= bound - len && physical <= bound - len;
        if !whole || !inside {
            return Err(MediaError { at, len, cause: MediaCause::OutOfRange });
        }
        layout.frames.set(at, physical, len);
        layout.stand_ins.retain(|page| !(at..at + len).contains(page));
        self.moved.store(true, Ordering::Release);
        self.place(&layout, at, physical, len).map_err(|_| MediaError {
            at,
            len,
            cause: MediaCause::Unclearable,
        })?;
        if self.access == Access::PrivateCopy && at != physical {
            self.copy_private(at, physical, len);
        }
        self.registration.entry().note_good(at, len);
        Ok(())
    }

    /// See [`Medium::stand_in`](crate::Medium::stand_in).
    pub(super) fn serve_from_memory(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.whole_pages(at, bytes.len() as u64)?;
        let bad = |cause| MediaError { at, len: PAGE, cause };
        if bytes.len() != PAGE_BYTES {
            return Err(bad(MediaCause::OutOfRange));
        }
        let mut layout = self.layout();
        // What is gone with the end of the file is no bad page.
        if self.backing.cut_off() {
            return Err(bad(MediaCause::Truncated));
        }
        let memory = memory_file(bytes).map_err(|_| bad(MediaCause::Unclearable))?;
        self.space
            .place_shared(memory.as_fd(), at, PAGE)
            .map_err(|_| bad(MediaCause::Unclearable))?;
        layout.stand_ins.insert(at);
        if !self.reads_as(at, bytes) {
            return Err(bad(MediaCause::Unclearable));
        }
        self.registration.entry().note_good(at, PAGE);
        Ok(())
    }

    /// Pages of a private copy that were changed live in memory, not in the file: the new place
    /// takes over what the spare range showed.
    fn copy_private(&self, at: u64, physical: u64, len: u64) {
        let mut page = [0; PAGE_BYTES];
        for step in (0..len).step_by(PAGE_BYTES) {
            if self.space.read(physical + step, &mut page).is_ok() {
                let _ = self.space.put(at + step, &page);
            }
        }
    }

    /// See [`Medium::bad_ranges`](crate::Medium::bad_ranges).
    pub(super) fn known_bad(&self) -> Vec<(u64, u64)> {
        let len = self.space.len();
        let entry = self.registration.entry();
        let mut ranges: Vec<_> = entry.bad_pages().map(|page| (page, PAGE)).collect();
        if self.kind == MediumKind::Dax && !self.forked() {
            let layout = self.layout();
            for (physical, len) in self.listed_bad() {
                ranges.extend(layout.frames.places_of(physical, len));
            }
        }
        ranges.retain(|(at, _)| *at < len);
        for (at, run) in &mut ranges {
            *run = (*run).min(len - *at);
        }
        whole_pages(ranges)
    }

    /// Bad ranges of the file by the device's list; empty where the system does not tell.
    fn listed_bad(&self) -> Vec<(u64, u64)> {
        let Ok(number) = self.backing.device() else { return Vec::new() };
        let bad = Device::new(Path::new(SYSFS), number).bad_bytes();
        if bad.is_empty() {
            return Vec::new();
        }
        extents(self.backing.fd())
            .map_or_else(|_| Vec::new(), |pieces| bad_file_ranges(&pieces, &bad))
    }

    /// See [`inject::place_in_file`](crate::inject::place_in_file).
    pub(crate) fn place_in_file(&self, at: u64) -> u64 {
        self.layout().frames.locate(at, 1).0
    }

    /// See [`inject::poison`](crate::inject::poison).
    pub(crate) fn poison(&self, at: u64, len: u64, kind: Poison) -> Result<(), MediaError> {
        self.whole_pages(at, len)?;
        let refused = |_| MediaError { at, len, cause: MediaCause::OutOfRange };
        let empty = empty_file().map_err(refused)?;
        let mut layout = self.layout();
        self.registration.entry().forget_turns(at, len);
        for page in (at..at + len).step_by(PAGE_BYTES) {
            let (physical, _) = layout.frames.locate(page, PAGE);
            for (place, run) in layout.frames.places_of(physical, PAGE) {
                self.space.place_shared(empty, place, run).map_err(refused)?;
            }
            layout.holes.insert(physical, kind);
            // Only now: a page that goes bad shows nobody wrong bytes before.
            if self.access == Access::Write {
                self.backing.overwrite(physical, &DESTROYED).map_err(refused)?;
            }
        }
        Ok(())
    }
}
