//! The medium's calls: loads and stores, durability, growth.

use std::io;

use super::Mapped;
use crate::asm;
use crate::medium::{MediaError, Medium, MediumKind, PAGE, SyncError};
use crate::options::Access;
use crate::site::Site;

/// Pages that were made dirty beforehand. A matter of speed alone: what is not synced here is
/// synced by the next [`Medium::sync`].
const PREPARED: Site = Site::new("pmem.serve.prepared");

impl Medium for Mapped {
    #[inline]
    fn len(&self) -> u64 {
        self.space.len()
    }

    #[inline(always)]
    fn inherited(&self) -> bool {
        self.forked()
    }

    fn cut_off(&self) -> bool {
        self.backing.cut_off()
    }

    #[inline]
    fn kind(&self) -> MediumKind {
        self.kind
    }

    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        match self.space.read(at, into) {
            Ok(()) => Ok(()),
            Err(miss) => Err(self.explain(miss, at, into.len() as u64)),
        }
    }

    #[inline]
    fn put(&self, _site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        match self.space.put(at, bytes) {
            Ok(()) => Ok(()),
            Err(miss) => Err(self.explain(miss, at, bytes.len() as u64)),
        }
    }

    #[inline]
    fn put_aside(&self, _site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        match self.space.put_aside(at, bytes) {
            Ok(()) => Ok(()),
            Err(miss) => Err(self.explain(miss, at, bytes.len() as u64)),
        }
    }

    #[inline]
    fn put_is_cached(&self, len: u64) -> bool {
        self.space.put_is_cached(len)
    }

    /// Goes through the cache, so other threads see it in program order.
    #[inline]
    fn xor(&self, _site: Site, at: u64, delta: &[u8]) -> Result<(), MediaError> {
        match self.space.xor(at, delta) {
            Ok(()) => Ok(()),
            Err(miss) => Err(self.explain(miss, at, delta.len() as u64)),
        }
    }

    #[inline]
    fn zero(&self, _site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        match self.space.zero(at, len) {
            Ok(()) => Ok(()),
            Err(miss) => Err(self.explain(miss, at, len)),
        }
    }

    #[inline]
    fn drain(&self, _site: Site) {
        if self.fenced {
            asm::fence();
        }
    }

    #[inline]
    fn begin_write(&self) {
        self.space.begin_write();
    }

    #[inline]
    fn end_write(&self) {
        self.space.end_write();
    }

    #[inline]
    fn prefetch(&self, at: u64, len: u64) {
        self.space.prefetch(at, len);
    }

    fn prepare(&self, at: u64, len: u64) {
        if self.kind != MediumKind::File || self.access != Access::Write || self.forked() {
            return;
        }
        // Every page is made dirty by a store that leaves it as it is.
        for page in (at..at.saturating_add(len)).step_by(PAGE as usize) {
            if self.space.xor(page, &[0; 8]).is_err() {
                return;
            }
        }
        // If that fails, the failure is kept: the next write or sync says so.
        let _ = self.backing.sync(PREPARED);
    }

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        if self.kind != MediumKind::File || self.access != Access::Write {
            self.put(site, at, bytes)
                .map_err(|error| SyncError { call: "store", source: io::Error::other(error) })?;
            self.drain(site);
            return Ok(());
        }
        if self.forked() {
            return Err(inherited("append"));
        }
        let bound = self.space.store_len();
        let len = bytes.len() as u64;
        if len > bound || at > bound - len {
            return Err(invalid("append", "the range lies beyond the end of the medium"));
        }
        if !self.is_moved() {
            return self.backing.write_durably(site, at, bytes);
        }
        let mut done = 0;
        while done < len {
            let (physical, run) = self.layout().frames.locate(at + done, len - done);
            let part = &bytes[done as usize..(done + run) as usize];
            self.backing.write_durably(site, physical, part)?;
            done += run;
        }
        Ok(())
    }

    fn sync(&self, site: Site) -> Result<(), SyncError> {
        if self.access != Access::Write {
            return Ok(()); // nothing of ours can be in the file
        }
        if self.kind != MediumKind::File {
            self.drain(site);
            return Ok(());
        }
        if self.forked() {
            return Err(inherited("sync"));
        }
        self.backing.sync(site)
    }

    fn sync_through(&self, site: Site) -> Result<(), SyncError> {
        if self.access != Access::Write {
            return Ok(()); // nothing of ours can be in the file
        }
        if self.forked() {
            return Err(inherited("sync"));
        }
        self.drain(site);
        self.backing.sync(site)
    }

    #[inline]
    fn view(&self, at: u64, len: u64) -> Option<*const u8> {
        self.space.view(at, len)
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        if self.forked() {
            return Err(inherited("grow"));
        }
        // One at a time; loads and stores go on meanwhile.
        let _layout = self.layout();
        let now = self.space.len();
        if len == now {
            return Ok(());
        }
        if self.access == Access::ReadOnly {
            return Err(invalid("grow", "the medium is open read-only"));
        }
        if len < now || !len.is_multiple_of(PAGE) {
            return Err(invalid("grow", "the new size is smaller or no multiple of a page"));
        }
        if len > self.space.span() {
            let text = format!(
                "{} bytes of address space are reserved; reopen the pool to reserve more",
                self.space.span()
            );
            return Err(SyncError {
                call: "grow",
                source: io::Error::new(io::ErrorKind::OutOfMemory, text),
            });
        }
        let failed = |source| SyncError { call: "mmap", source };
        if self.access == Access::PrivateCopy {
            self.space.place_memory(now, len - now).map_err(failed)?;
        } else {
            let before = self.backing.extend(now, len)?;
            let placed = self.space.place(self.backing.fd(), now, now, len - now);
            if let Err(source) = placed {
                self.backing.cut(before, len);
                return Err(failed(source));
            }
        }
        if self.access == Access::Write {
            if self.backing.is_memory() {
                self.space.gather(now, len - now);
            }
            self.backing.rely_on(len);
        }
        self.registration.entry().set_mapped(len as usize);
        self.space.set_len(len);
        Ok(())
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.rewrite(site, at, bytes)
    }

    fn remap(&self, at: u64, physical: u64, len: u64) -> Result<(), MediaError> {
        self.serve_from(at, physical, len)
    }

    fn stand_in(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.serve_from_memory(at, bytes)
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        self.known_bad()
    }

    fn storage_from(&self, at: u64) -> Option<u64> {
        // Of what is served from elsewhere, the file says nothing at this place.
        let found =
            if self.forked() || self.is_moved() { Some(at) } else { self.backing.data_from(at) };
        found.filter(|found| *found < self.len())
    }
}

/// What a forked child is told: it must not touch the file, whose locks and contents are its
/// parent's.
fn inherited(call: &'static str) -> SyncError {
    let text = "the pool belongs to the process that forked this one; open it here";
    SyncError { call, source: io::Error::new(io::ErrorKind::PermissionDenied, text) }
}

fn invalid(call: &'static str, why: &'static str) -> SyncError {
    SyncError { call, source: io::Error::new(io::ErrorKind::InvalidInput, why) }
}
