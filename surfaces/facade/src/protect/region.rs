//! A region of a pool as the medium of a redundancy area: parity and sums of a file lie in a pool,
//! and so does parity of that parity.
//!
//! A region is a map of the pool, from the numbers of pages to their bytes; a page that is not in
//! it is zeros. What is stored is kept here until it is synced, then committed, so a region is
//! what it was at a sync, whatever ends the process. That is what a page-cache file is after a
//! power cut; so the engine has to take it for one and to sync its notes, for the death of the
//! process, too.
//!
//! | step of making | crash after it leaves |
//! |---|---|
//! | 1 the map, *making* for a pointer of some name | a region that nobody points to |
//! | 2 pages | the same |
//! | 3 the pointer gets its name | a protected file |
//! | 4 *kept*, for whatever name | the same |
//!
//! Ending goes the other way: *ended*, the pointer, the map. Regions that nobody points to are
//! removed by whoever makes the next one there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_layout::bytes::{get_u32, get_u64, put_u32, put_u64};
use holdfast_pmem::{MediaCause, MediaError, Medium, MediumKind, PAGE, Site, SyncError};

use crate::error::{Error, ErrorKind, Result};
use crate::maps::NamedMap;
use crate::pool::Pool;
use crate::protect::format::{EXTENT_KEY, EXTENT_LEN, LEN_MAX};
use crate::protect::pointer::Pointer;

/// What the names of their maps begin with.
const PREFIX: &str = "holdfast.side.";
/// Pages of one transaction.
const PAGES_AT_ONCE: usize = 32;

/// How far a region is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is to be pointed to by this file.
    Making(PathBuf),
    Kept,
    Ended,
}

/// An open region.
#[derive(Debug)]
pub(crate) struct PoolRegion {
    pool: Pool,
    pages: NamedMap<u64, [u8]>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    extent: Extent,
    /// Pages stored to since the last commit.
    dirty: BTreeMap<u64, Vec<u8>>,
    /// Length or stage changed since.
    moved: bool,
    /// The page that was read last.
    seen: Option<(u64, Vec<u8>)>,
    /// A commit failed: nothing more is written.
    failed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Extent {
    len: u64,
    stage: Stage,
}

impl Extent {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; EXTENT_LEN];
        put_u64(&mut bytes, 0, self.len);
        let (stage, path) = match &self.stage {
            Stage::Making(path) => (1, path.as_os_str().as_bytes()),
            Stage::Kept => (2, &[][..]),
            Stage::Ended => (3, &[][..]),
        };
        put_u32(&mut bytes, 8, stage);
        put_u32(&mut bytes, 12, path.len() as u32);
        bytes.extend_from_slice(path);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, path) = bytes.split_at_checked(EXTENT_LEN)?;
        if get_u32(head, 12) as usize != path.len() {
            return None;
        }
        let stage = match get_u32(bytes, 8) {
            1 => Stage::Making(PathBuf::from(OsStr::from_bytes(path))),
            2 => Stage::Kept,
            3 => Stage::Ended,
            _ => return None,
        };
        let len = get_u64(bytes, 0);
        (len <= LEN_MAX && len.is_multiple_of(PAGE)).then_some(Self { len, stage })
    }
}

/// The name of a region's map.
fn name(id: &[u8; 16]) -> String {
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{digits}")
}

/// Whether the file at `path` points to the region of this name in the pool.
fn points(path: &Path, pool: &Pool, region: &str) -> bool {
    let pointer = Pointer::load(path);
    pointer.is_ok_and(|to| to.uuid == pool.superblock().uuid && name(&to.region) == region)
}

impl PoolRegion {
    /// An empty region, which `pointer` is to point to.
    pub(crate) fn create(pool: &Pool, id: &[u8; 16], pointer: &Path) -> Result<Self> {
        let pages = pool.map(&name(id))?;
        let stage = Stage::Making(pointer.to_path_buf());
        let this = Self::of(pool, pages, Extent { len: 0, stage }, true);
        this.commit(&mut this.lock()).map_err(Error::from)?;
        Ok(this)
    }

    /// The region that a pointer names.
    pub(crate) fn open(pool: &Pool, id: &[u8; 16]) -> Result<Self> {
        let gone = |what: &str| {
            let error = Error::new(ErrorKind::Damaged, what);
            let error = error.with_remedy(
                "`holdfast unprotect --force` and `holdfast protect` begin anew; the data file was \
                 not changed",
            );
            pool.fail(error)
        };
        let Some(pages) = pool.existing_map::<u64, [u8]>(&name(id))? else {
            return Err(gone("the pool has no such region any more"));
        };
        let extent = pages.get(&EXTENT_KEY)?.and_then(|bytes| Extent::decode(&bytes));
        let Some(extent) = extent else { return Err(gone("the region in the pool is no region")) };
        Ok(Self::of(pool, pages, extent, false))
    }

    fn of(pool: &Pool, pages: NamedMap<u64, [u8]>, extent: Extent, moved: bool) -> Self {
        let dirty = BTreeMap::new();
        let state = Mutex::new(State { extent, dirty, moved, seen: None, failed: false });
        Self { pool: pool.clone(), pages, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how far it is, durably.
    pub(crate) fn set_stage(&self, stage: Stage) -> Result<()> {
        let mut state = self.lock();
        (state.extent.stage, state.moved) = (stage, true);
        self.commit(&mut state).map_err(Error::from)
    }

    /// Removes a region, in steps that fit the log. Whether there was one.
    pub(crate) fn remove(pool: &Pool, id: &[u8; 16]) -> Result<bool> {
        remove_map(pool, &name(id))
    }

    /// Whether it is still to be told that it is pointed to.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.lock().extent.stage, Stage::Making(_))
    }

    /// Removes what was being made, or given up, by somebody who was killed, unless it is pointed
    /// to. Nobody else has the pool.
    pub(crate) fn sweep(pool: &Pool) -> Result<()> {
        for (name, _) in pool.maps()? {
            if !name.starts_with(PREFIX) {
                continue;
            }
            // One of other types is somebody's own.
            let Ok(Some(pages)) = pool.existing_map::<u64, [u8]>(&name) else { continue };
            let extent = pages.get(&EXTENT_KEY)?.and_then(|bytes| Extent::decode(&bytes));
            match extent.map(|extent| extent.stage) {
                Some(Stage::Making(path)) if !points(&path, pool, &name) => {}
                Some(Stage::Ended) => {}
                _ => continue,
            }
            remove_map(pool, &name)?;
        }
        Ok(())
    }

    /// A page, zeros if it was never stored to.
    fn page<'a>(&self, state: &'a mut State, number: u64) -> Result<&'a [u8], MediaError> {
        if !state.dirty.contains_key(&number) {
            let seen = state.seen.as_ref().is_some_and(|(seen, _)| *seen == number);
            if !seen {
                let lost =
                    || MediaError { at: number * PAGE, len: PAGE, cause: MediaCause::Poison };
                let bytes = match self.pages.get(&number) {
                    Ok(Some(bytes)) if bytes.len() as u64 == PAGE => bytes,
                    Ok(None) => vec![0; PAGE as usize],
                    Ok(Some(_)) | Err(_) => return Err(lost()),
                };
                state.seen = Some((number, bytes));
            }
        }
        let seen = state.seen.as_ref().map_or(&[][..], |(_, bytes)| bytes);
        Ok(state.dirty.get(&number).map_or(seen, |bytes| bytes))
    }

    /// Changes bytes page by page: `change` is told where in the range they are.
    fn change(
        &self,
        at: u64,
        len: u64,
        mut change: impl FnMut(usize, &mut [u8]),
    ) -> Result<(), MediaError> {
        let mut state = self.lock();
        let state = &mut *state;
        self.each(state.extent.len, at, len, |number, from, inside, count| {
            if !state.dirty.contains_key(&number) {
                let whole = count as u64 == PAGE;
                let page = match self.page(state, number) {
                    Ok(page) => page.to_vec(),
                    // All of it is replaced.
                    Err(_) if whole => vec![0; PAGE as usize],
                    Err(error) => return Err(error),
                };
                state.dirty.insert(number, page);
            }
            if let Some(page) = state.dirty.get_mut(&number) {
                change(from, &mut page[inside..inside + count]);
            }
            Ok(())
        })
    }

    /// Goes over the pages of a range: number, where in the range, where in the page, bytes.
    fn each(
        &self,
        len_all: u64,
        at: u64,
        len: u64,
        mut each: impl FnMut(u64, usize, usize, usize) -> Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        if at.checked_add(len).is_none_or(|end| end > len_all) {
            return Err(MediaError { at, len, cause: MediaCause::OutOfRange });
        }
        let mut done = 0;
        while done < len {
            let here = at + done;
            let inside = here % PAGE;
            let count = (PAGE - inside).min(len - done);
            each(here / PAGE, done as usize, inside as usize, count as usize)?;
            done += count;
        }
        Ok(())
    }

    /// Makes everything that was stored durable, in transactions.
    fn commit(&self, state: &mut State) -> Result<(), SyncError> {
        let failed = |kind, text: String| SyncError {
            call: "transaction",
            source: io::Error::new(kind, text),
        };
        if state.failed {
            return Err(failed(io::ErrorKind::Other, "an earlier one failed".to_owned()));
        }
        while state.moved || !state.dirty.is_empty() {
            let some: Vec<u64> = state.dirty.keys().copied().take(PAGES_AT_ONCE).collect();
            let done = self.pool.run(|tx| {
                for number in &some {
                    if let Some(page) = state.dirty.get(number) {
                        self.pages.map().put(tx, number, page)?;
                    }
                }
                if state.moved {
                    self.pages.map().put(tx, &EXTENT_KEY, &state.extent.encode()[..])?;
                }
                Ok(())
            });
            if let Err(error) = done {
                state.failed = true;
                let kind = match error.kind() {
                    ErrorKind::NoSpace => io::ErrorKind::StorageFull,
                    ErrorKind::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
                    _ => io::ErrorKind::Other,
                };
                return Err(failed(kind, error.cause()));
            }
            state.moved = false;
            for number in some {
                let page = state.dirty.remove(&number);
                state.seen = page.map(|page| (number, page)).or(state.seen.take());
            }
        }
        Ok(())
    }
}

/// Empties a map in steps, then removes it. Whether there was one.
fn remove_map(pool: &Pool, name: &str) -> Result<bool> {
    let Some(pages) = pool.existing_map::<u64, [u8]>(name)? else { return Ok(false) };
    // What is being removed is not to be taken for one that is kept.
    let ended = Extent { len: 0, stage: Stage::Ended }.encode();
    pages.put(&EXTENT_KEY, &ended[..])?;
    loop {
        let some = pages.scan(..EXTENT_KEY, PAGES_AT_ONCE)?;
        if some.is_empty() {
            break;
        }
        pool.run(|tx| {
            some.iter().try_for_each(|(number, _)| pages.map().remove(tx, number).map(drop))
        })?;
    }
    pool.drop_map::<u64, [u8]>(name)
}

impl Medium for PoolRegion {
    fn len(&self) -> u64 {
        self.lock().extent.len
    }

    fn kind(&self) -> MediumKind {
        MediumKind::File
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), MediaError> {
        let mut state = self.lock();
        let state = &mut *state;
        self.each(state.extent.len, at, into.len() as u64, |number, from, inside, count| {
            let page = self.page(state, number)?;
            into[from..from + count].copy_from_slice(&page[inside..inside + count]);
            Ok(())
        })
    }

    fn put(&self, _site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.change(at, bytes.len() as u64, |from, page| {
            page.copy_from_slice(&bytes[from..from + page.len()]);
        })
    }

    fn put_is_cached(&self, _len: u64) -> bool {
        true
    }

    fn zero(&self, _site: Site, at: u64, len: u64) -> Result<(), MediaError> {
        self.change(at, len, |_, page| page.fill(0))
    }

    /// Orders nothing, as on any file.
    fn drain(&self, _site: Site) {}

    fn append(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), SyncError> {
        self.put(site, at, bytes).map_err(|error| SyncError {
            call: "transaction",
            source: io::Error::other(error.to_string()),
        })?;
        self.sync(site)
    }

    fn sync(&self, _site: Site) -> Result<(), SyncError> {
        self.commit(&mut self.lock())
    }

    fn view(&self, _at: u64, _len: u64) -> Option<*const u8> {
        None
    }

    fn grow(&self, len: u64) -> Result<(), SyncError> {
        let mut state = self.lock();
        if len > LEN_MAX || !len.is_multiple_of(PAGE) {
            let source = io::Error::from(io::ErrorKind::FileTooLarge);
            return Err(SyncError { call: "growth of a region", source });
        }
        if len > state.extent.len {
            (state.extent.len, state.moved) = (len, true);
        }
        Ok(())
    }

    fn heal(&self, site: Site, at: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.put(site, at, bytes)?;
        let unclearable = MediaError { at, len: PAGE, cause: MediaCause::Unclearable };
        self.sync(site).map_err(|_| unclearable)
    }

    fn remap(&self, at: u64, _physical: u64, len: u64) -> Result<(), MediaError> {
        Err(MediaError { at, len, cause: MediaCause::Unclearable })
    }

    fn bad_ranges(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: Site = Site::new("holdfast.region.test");
    const ID: [u8; 16] = [7; 16];

    fn read(region: &PoolRegion, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        region.read(at, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_was_synced_stays_and_what_was_not_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let pool = Pool::options().size(16 << 20).create(&path).unwrap();
        let region = PoolRegion::create(&pool, &ID, Path::new("/none")).unwrap();
        assert!(region.put(SITE, 0, b"early").is_err(), "it has no bytes yet");
        region.grow(100 * PAGE).unwrap();
        region.put(SITE, PAGE - 2, b"over two pages").unwrap();
        region.zero(SITE, PAGE + 1, 2).unwrap();
        region.xor(SITE, 70 * PAGE, &[5; 3]).unwrap();
        region.append(SITE, 9 * PAGE, b"appended").unwrap();
        let now = |region: &PoolRegion| {
            assert_eq!(region.len(), 100 * PAGE);
            assert_eq!(read(region, PAGE - 2, 14), b"ove\0\0two pages");
            assert_eq!(read(region, 70 * PAGE - 1, 5), [0, 5, 5, 5, 0]);
            assert_eq!(read(region, 9 * PAGE, 9), b"appended\0");
            assert_eq!(read(region, 99 * PAGE, PAGE as usize), [0; PAGE as usize]);
        };
        now(&region);
        // Not synced; a drain orders nothing on a file.
        region.put(SITE, PAGE - 2, b"newer").unwrap();
        region.grow(200 * PAGE).unwrap();
        region.drain(SITE);
        assert_eq!(read(&region, PAGE - 2, 5), b"newer");
        drop(region);
        now(&PoolRegion::open(&pool, &ID).unwrap());
        for (at, len) in [(100 * PAGE - 1, 2), (u64::MAX, 2), (u64::MAX - 1, 1)] {
            let region = PoolRegion::open(&pool, &ID).unwrap();
            assert!(region.read(at, &mut vec![0; len]).is_err(), "{at:#x}");
            assert!(region.put(SITE, at, &vec![0; len]).is_err(), "{at:#x}");
        }
        drop(pool);
        let pool = Pool::open(&path).unwrap();
        now(&PoolRegion::open(&pool, &ID).unwrap());
        assert!(
            PoolRegion::remove(&pool, &ID).unwrap() && !PoolRegion::remove(&pool, &ID).unwrap()
        );
        assert!(PoolRegion::open(&pool, &ID).is_err());
    }

    #[test]
    fn nothing_is_written_after_a_commit_that_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let pool = Pool::options().size(8 << 20).frame(4096).create(&path).unwrap();
        let region = PoolRegion::create(&pool, &ID, Path::new("/none")).unwrap();
        region.grow(1 << 30).unwrap();
        for page in 0..4096 {
            region.put(SITE, page * PAGE, &[1; PAGE as usize]).unwrap();
        }
        let error = region.sync(SITE).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull, "{error}");
        assert!(region.sync(SITE).is_err());
        assert!(region.append(SITE, 0, b"x").is_err());
    }

    #[test]
    fn extents_that_cannot_be_are_refused() {
        let making = Stage::Making(PathBuf::from("/a/b"));
        for stage in [making, Stage::Kept, Stage::Ended] {
            let good = Extent { len: 5 * PAGE, stage };
            assert_eq!(Extent::decode(&good.encode()), Some(good));
        }
        let good = Extent { len: 5 * PAGE, stage: Stage::Kept };
        for (at, byte) in [(0, 1), (7, 1), (8, 0), (8, 4), (9, 1), (12, 1), (15, 1)] {
            let mut bytes = good.encode();
            bytes[at] = byte;
            assert_eq!(Extent::decode(&bytes), None, "{at}");
        }
        assert_eq!(Extent::decode(&good.encode()[1..]), None);
    }
}
