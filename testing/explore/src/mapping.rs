//! A mapping of the user's own: bytes, with stores, flushes and fences called by hand.

use core::panic::Location;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_faultmem::FaultMedium;
use holdfast_pmem::{MediaError, Medium, Site, SyncError};

/// A medium that several hold: the explorer, and the structure under test.
pub type Shared = Arc<FaultMedium>;

/// Bytes of a word, which is stored whole.
const WORD: u64 = 8;

/// Bytes of persistent memory, used as a program does that calls flushes and fences itself.
///
/// Each call is a site of its own, named by its file, line and column, so reports and elision know
/// it without being told. Cheap to copy.
#[derive(Debug, Clone)]
pub struct Mapping {
    medium: Shared,
}

impl Mapping {
    /// The bytes of this medium.
    #[must_use]
    pub fn new(medium: Shared) -> Self {
        Self { medium }
    }

    /// The medium behind.
    #[must_use]
    pub fn medium(&self) -> &Shared {
        &self.medium
    }

    /// Stores `bytes` at `at`. Aligned 8-byte words are stored whole; nothing is flushed.
    ///
    /// # Errors
    /// A [`MediaError`] if the range ends beyond the mapping.
    #[track_caller]
    pub fn store(&self, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.medium.store(site_of(Location::caller()), at, bytes)
    }

    /// Stores a number, little-endian.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    #[track_caller]
    pub fn store_u64(&self, at: u64, value: u64) -> Result<(), MediaError> {
        self.store(at, &value.to_le_bytes())
    }

    /// Lends `len` bytes at `at` for change and stores each word that changed, in ascending order:
    /// for code that works on a slice. Nothing is flushed.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    #[track_caller]
    pub fn edit<R>(
        &self,
        at: u64,
        len: u64,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, MediaError> {
        let place = Location::caller();
        // A hostile length must not become an allocation; the read refuses it.
        let mut old = vec![0; len.min(self.medium.len() + 1) as usize];
        self.medium.read(at, &mut old)?;
        let mut new = old.clone();
        let answer = change(&mut new);
        let mut done = 0;
        while done < old.len() {
            let step = (WORD - (at + done as u64) % WORD) as usize;
            let end = old.len().min(done + step);
            if old[done..end] != new[done..end] {
                self.medium.store(site_of(place), at + done as u64, &new[done..end])?;
            }
            done = end;
        }
        Ok(answer)
    }

    /// Flushes the lines of a range: the next [`fence`](Self::fence) of this thread waits for what
    /// they hold now.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    #[track_caller]
    pub fn flush(&self, at: u64, len: u64) -> Result<(), MediaError> {
        self.medium.flush(site_of(Location::caller()), at, len)
    }

    /// Waits for what this thread flushed.
    #[track_caller]
    pub fn fence(&self) {
        self.medium.drain(site_of(Location::caller()));
    }

    /// Makes all stores to the mapping of a file durable, as `msync` does.
    ///
    /// # Errors
    /// A [`SyncError`] of the medium.
    #[track_caller]
    pub fn sync(&self) -> Result<(), SyncError> {
        self.medium.sync(site_of(Location::caller()))
    }

    /// Makes the mapping `len` bytes long, whole pages, and waits until that is durable. What is
    /// new is zero. The explorer was told how far it may:
    /// [`Explorer::reserve`](crate::Explorer::reserve).
    ///
    /// # Errors
    /// A [`SyncError`] if `len` is less than the length, no whole pages or beyond the reserve.
    #[track_caller]
    pub fn grow(&self, len: u64) -> Result<(), SyncError> {
        self.medium.grow(len)
    }

    /// Bytes of the mapping now.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.medium.len()
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn load(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        self.medium.read(at, into)
    }

    /// A number, little-endian.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub fn load_u64(&self, at: u64) -> Result<u64, MediaError> {
        let mut le = [0; WORD as usize];
        self.load(at, &mut le)?;
        Ok(u64::from_le_bytes(le))
    }
}

/// The site of a place in the source. The name is kept for good: there are as many as there are
/// calls in the program's text.
fn site_of(place: &'static Location<'static>) -> Site {
    type Names = BTreeMap<(&'static str, u32, u32), &'static str>;
    static NAMES: Mutex<Names> = Mutex::new(BTreeMap::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (place.file(), place.line(), place.column());
    Site::new(names.entry(key).or_insert_with(|| place.to_string().leak()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_faultmem::{Config, SiteKind};
    use holdfast_pmem::MediumKind;

    fn mapping() -> Mapping {
        let config = Config { trace: true, ..Config::default() };
        Mapping::new(Arc::new(FaultMedium::new(4096, MediumKind::Dax, &config)))
    }

    #[test]
    fn an_edit_stores_the_words_that_changed() {
        let m = mapping();
        m.edit(4, 24, |bytes| {
            bytes[0] = 1;
            bytes[20] = 2;
        })
        .unwrap();
        let stores: Vec<_> = m.medium().trace().iter().map(|call| (call.at, call.len)).collect();
        assert_eq!(stores, [(4, 4), (24, 4)]);
        assert!(m.edit(4090, 8, |_| ()).is_err());
    }

    #[test]
    fn each_call_is_a_site_of_its_own() {
        let m = mapping();
        for _ in 0..2 {
            m.store_u64(0, 1).unwrap();
        }
        m.flush(0, 8).unwrap();
        m.fence();
        let seen = m.medium().sites_seen();
        let kinds: Vec<_> = seen.iter().map(|(_, kind, count)| (*kind, *count)).collect();
        assert_eq!(kinds, [(SiteKind::Store, 2), (SiteKind::Flush, 1), (SiteKind::Drain, 1)]);
        assert!(seen[0].0.name().contains("mapping.rs:"), "{seen:?}");
    }
}
