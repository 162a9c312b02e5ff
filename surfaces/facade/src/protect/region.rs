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
//! | 1 the map | an empty map |
//! | 2 *making*, for some pointer, instead of another region | a region that nobody points to |
//! | 3 pages | the same |
//! | 4 the pointer gets its name | a protected file; what was replaced is left |
//! | 5 *kept* | the same |
//! | 6 what it replaces is removed | the same, and nothing is left |
//!
//! Ending goes the other way: the pointer put aside, *ended*, the pointer, the map. What is left is
//! removed by whoever makes the next one there: if that is sure, not if it only seems so.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_pmem::{Making, MediaCause, MediaError, Medium, MediumKind, PAGE, Site, SyncError};

use crate::error::{Error, ErrorKind, Result};
use crate::maps::NamedMap;
use crate::pool::Pool;
use crate::protect::extent::{Extent, Named, Points, Stage};
use crate::protect::format::{EXTENT_KEY, LEN_MAX};
use crate::protect::side;

/// What the names of their maps begin with.
const PREFIX: &str = "holdfast.side.";
/// Pages of one transaction.
const PAGES_AT_ONCE: usize = 32;

/// An open region.
#[derive(Debug)]
pub(crate) struct PoolRegion {
    pool: Pool,
    id: [u8; 16],
    pages: NamedMap<u64, [u8]>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    extent: Extent,
    /// Pages stored to since the last commit.
    dirty: BTreeMap<u64, Vec<u8>>,
    /// The length changed since.
    moved: bool,
    /// The page that was read last.
    seen: Option<(u64, Vec<u8>)>,
    /// A commit failed: nothing more is written.
    failed: bool,
}

/// The name of a region's map.
pub(crate) fn name(id: &[u8; 16]) -> String {
    format!("{PREFIX}{}", digits(id))
}

/// The digits of an identity.
pub(crate) fn digits(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The region whose map has this name.
fn id_of(name: &str) -> Option<[u8; 16]> {
    let pairs = name.strip_prefix(PREFIX)?.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
    let id = pairs.map(byte).collect::<Option<Vec<u8>>>()?.try_into().ok()?;
    (self::name(&id) == name).then_some(id)
}

/// What became of a region that is found in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its pointer points to it.
    Pointed,
    /// It was left by somebody who was killed: whoever makes the next one removes it.
    Left,
    /// It is kept, and nothing points to it from where its pointer was: that was moved, or is gone.
    Lost,
    /// Nobody can tell just now: its pointer cannot be read, or its folder is not there.
    Unsure,
}

/// A region as it is found in a pool.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) id: [u8; 16],
    /// Nothing if it has no pages either, or it cannot be read.
    pub(crate) extent: Option<Extent>,
    pub(crate) standing: Standing,
}

/// The name of a pointer, before what a power cut could bring it back to is removed.
const SWEPT: holdfast_pmem::Site = holdfast_pmem::Site::new("facade.region.swept");

impl PoolRegion {
    /// An empty region, which `pointer` is to point to, instead of to another one.
    pub(crate) fn create(
        pool: &Pool,
        id: &[u8; 16],
        pointer: Option<Named>,
        replaces: Option<[u8; 16]>,
    ) -> Result<Self> {
        let pages = pool.map(&name(id))?;
        let extent = Extent { len: 0, stage: Stage::Making, pointer, replaces };
        let this = Self::of(pool, id, pages, extent);
        this.lock().moved = true;
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
        Ok(Self::of(pool, id, pages, extent))
    }

    fn of(pool: &Pool, id: &[u8; 16], pages: NamedMap<u64, [u8]>, extent: Extent) -> Self {
        let (dirty, moved) = (BTreeMap::new(), false);
        let state = Mutex::new(State { extent, dirty, moved, seen: None, failed: false });
        Self { pool: pool.clone(), id: *id, pages, state }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is, and whose.
    pub(crate) fn extent(&self) -> Extent {
        self.lock().extent.clone()
    }

    /// What became of the pointer that it was made for.
    pub(crate) fn points(&self, pointer: &Named) -> Points {
        pointer.points(&self.pool.superblock().uuid, &self.id)
    }

    /// Notes how far it is, durably. Whatever that fails of, its pages are what they were.
    pub(crate) fn set_stage(&self, stage: Stage) -> Result<()> {
        self.note(|extent| extent.stage = stage)
    }

    /// Notes that `pointer` points to it, if that is not known; one that has ended stays so.
    pub(crate) fn set_pointer(&self, pointer: Option<Named>) -> Result<()> {
        let known = self.extent();
        let pointer = pointer.or_else(|| known.pointer.clone());
        if known.stage == Stage::Ended || (known.stage, &known.pointer) == (Stage::Kept, &pointer) {
            return Ok(());
        }
        self.note(|extent| (extent.stage, extent.pointer) = (Stage::Kept, pointer))
    }

    /// Removes what it has replaced: its pointer has its name, durably.
    pub(crate) fn remove_replaced(&self) -> Result<()> {
        let Some(replaced) = self.extent().replaces else { return Ok(()) };
        Self::remove(&self.pool, &replaced)?;
        self.note(|extent| extent.replaces = None)
    }

    /// Changes what is noted of it, in a transaction of its own: nothing else depends on it.
    fn note(&self, change: impl FnOnce(&mut Extent)) -> Result<()> {
        let mut state = self.lock();
        let mut extent = state.extent.clone();
        change(&mut extent);
        self.pages.put(&EXTENT_KEY, &extent.encode()[..])?;
        state.extent = extent;
        Ok(())
    }

    /// Removes a region, in steps that fit the log. Whether there was one.
    pub(crate) fn remove(pool: &Pool, id: &[u8; 16]) -> Result<bool> {
        remove_map(pool, &name(id))
    }

    /// The regions in a pool.
    pub(crate) fn all(pool: &Pool) -> Result<Vec<Found>> {
        let maps = pool.maps()?;
        let found = maps.iter().filter_map(|(name, _)| find(pool, name, id_of(name)?));
        Ok(found.collect())
    }

    /// Removes what was being made, replaced or given up by somebody who was killed. Nobody else
    /// has the pool. What cannot be removed stays: it is no matter of whoever wants the next one.
    pub(crate) fn sweep(pool: &Pool) -> Result<()> {
        Self::sweep_after(pool, &|path| side::sync_folder(SWEPT, path))
    }

    /// The same. `sync` makes the names in the folder of a pointer durable: what a power cut may
    /// still bring back to where it points from is not removed before.
    fn sweep_after(pool: &Pool, sync: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        for Found { id, extent, standing } in Self::all(pool)? {
            let known = extent.as_ref();
            let kept = known.is_some_and(|extent| extent.stage == Stage::Kept);
            let named = kept || standing == Standing::Pointed;
            let replaced = known.and_then(|extent| extent.replaces).filter(|_| named);
            if replaced.is_none() && standing != Standing::Left {
                continue;
            }
            let pointer = known.and_then(|extent| extent.pointer.as_ref());
            let synced = pointer.map_or(Ok(()), |pointer| sync(&pointer.path));
            let durable = synced.is_ok();
            // Where there is no folder, there is no name that could come back.
            let gone = synced.is_err_and(|error| error.kind() == ErrorKind::NotFound);
            if let Some(replaced) = replaced.filter(|_| durable) {
                let _ = Self::remove(pool, &replaced);
            }
            if standing == Standing::Left && (durable || gone) {
                let _ = Self::remove(pool, &id);
            }
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

/// What a map is that has the name of a region; nothing if it is somebody's own.
fn find(pool: &Pool, name: &str, id: [u8; 16]) -> Option<Found> {
    // One of other types is.
    let pages = pool.existing_map::<u64, [u8]>(name).ok()??;
    let unsure = Some(Found { id, extent: None, standing: Standing::Unsure });
    let Ok(bytes) = pages.get(&EXTENT_KEY) else { return unsure };
    let Some(bytes) = bytes else {
        // Killed before it knew what it was for. One with pages is not ours.
        let empty = pages.is_empty().is_ok_and(|empty| empty);
        return empty.then_some(Found { id, extent: None, standing: Standing::Left });
    };
    let Some(extent) = Extent::decode(&bytes) else { return unsure };
    let standing = standing(&extent, &pool.superblock().uuid, &id);
    Some(Found { id, extent: Some(extent), standing })
}

fn standing(extent: &Extent, pool: &[u8; 16], id: &[u8; 16]) -> Standing {
    let made = extent.stage == Stage::Making;
    let Some(pointer) = &extent.pointer else {
        return if made { Standing::Left } else { Standing::Unsure };
    };
    // Whoever ends it takes its name from the pointer first.
    let aside = || {
        let aside = Named { path: Making::name_of(&pointer.path), ..pointer.clone() };
        aside.points(pool, id) == Points::Here
    };
    match (extent.stage, pointer.points(pool, id)) {
        (Stage::Ended, _) => Standing::Left,
        (_, Points::Here) => Standing::Pointed,
        (_, Points::Unknown) | (Stage::Making, Points::Gone { sure: false }) => Standing::Unsure,
        (Stage::Making, _) => Standing::Left,
        (Stage::Kept, _) if aside() => Standing::Left,
        (Stage::Kept, Points::Gone { sure: false }) => Standing::Unsure,
        (Stage::Kept, _) => Standing::Lost,
    }
}

/// Empties a map in steps, then removes it. Whether there was one. What is lost of it cannot be
/// given back to the pool: then as much as can be is, and the rest is told.
fn remove_map(pool: &Pool, name: &str) -> Result<bool> {
    let Some(pages) = pool.existing_map::<u64, [u8]>(name)? else { return Ok(false) };
    // What is being removed is not to be taken for one that is kept. What cannot be read is not.
    if let Ok(known) = pages.get(&EXTENT_KEY) {
        let none = Extent { len: 0, stage: Stage::Ended, pointer: None, replaces: None };
        let known = known.and_then(|bytes| Extent::decode(&bytes)).unwrap_or(none);
        pages.put(&EXTENT_KEY, &Extent { stage: Stage::Ended, ..known }.encode()[..])?;
    }
    let (mut last, mut lost) = (None, 0);
    loop {
        let mut some = pool.run(|tx| pages.map().keys_after(tx, last.as_ref(), PAGES_AT_ONCE))?;
        some.retain(|number| *number != EXTENT_KEY);
        let Some(end) = some.last().copied() else { break };
        let remove = |some: &[u64]| {
            pool.run(|tx| {
                some.iter().try_for_each(|number| pages.map().remove(tx, number).map(drop))
            })
        };
        if remove(&some).is_err() {
            lost += some.iter().filter(|number| remove(&[**number]).is_err()).count();
        }
        last = Some(end);
    }
    if lost > 0 {
        let what =
            format!("{lost} pages of a region are lost, and cannot be given back to the pool");
        let remedy = "the rest of it is; `holdfast check` shows what is lost";
        return Err(pool.fail(Error::new(ErrorKind::Damaged, what).with_remedy(remedy)));
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
    use crate::protect::pointer::Pointer;

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
        let region = PoolRegion::create(&pool, &ID, None, None).unwrap();
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

    /// A pointer of this name to a region.
    fn point(pool: &Pool, to: &Path, region: [u8; 16]) -> Named {
        let mut making = side::begin(to, false).unwrap();
        let named = Named::of(to, making.file()).unwrap();
        let (pool, uuid) = ("/p".into(), pool.superblock().uuid);
        Pointer { pool, uuid, region }.write(&making, to).unwrap();
        side::keep(&mut making, to, true).unwrap();
        named
    }

    #[test]
    fn nothing_is_removed_before_the_names_of_pointers_are_durable() {
        let folder = tempfile::tempdir().unwrap();
        let pool = Pool::options().size(16 << 20).create(folder.path().join("a.pool")).unwrap();
        let (to, none) = (folder.path().join("a.holdfast"), folder.path().join("b.holdfast"));
        let (old, new, left) = ([1; 16], [2; 16], [3; 16]);
        // Killed when the new pointer had its name and the folder was not synced; and before.
        let named = point(&pool, &to, new);
        PoolRegion::create(&pool, &old, Some(named.clone()), None).unwrap();
        PoolRegion::open(&pool, &old).unwrap().set_stage(Stage::Kept).unwrap();
        PoolRegion::create(&pool, &new, Some(named), Some(old)).unwrap();
        let making = Named { path: none.clone(), ..Named::at(&to).unwrap() };
        PoolRegion::create(&pool, &left, Some(making), None).unwrap();
        let there = |id| PoolRegion::open(&pool, id).is_ok();
        let failed = |path: &Path| Err(Error::new(ErrorKind::System, "no sync").at(path));
        PoolRegion::sweep_after(&pool, &failed).unwrap();
        assert!(there(&old) && there(&new) && there(&left));
        let synced = Mutex::new(Vec::new());
        let sync = |path: &Path| {
            synced.lock().unwrap().push(path.to_path_buf());
            let waits = if path.ends_with("b.holdfast") { &left } else { &old };
            assert!(there(waits), "{path:?}");
            Ok(())
        };
        PoolRegion::sweep_after(&pool, &sync).unwrap();
        assert!(!there(&old) && there(&new) && !there(&left));
        assert_eq!(synced.lock().unwrap().len(), 2);
    }

    #[test]
    fn nothing_is_written_after_a_commit_that_failed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pool");
        let pool = Pool::options().size(8 << 20).frame(4096).create(&path).unwrap();
        let region = PoolRegion::create(&pool, &ID, None, None).unwrap();
        region.grow(1 << 30).unwrap();
        for page in 0..4096 {
            region.put(SITE, page * PAGE, &[1; PAGE as usize]).unwrap();
        }
        let error = region.sync(SITE).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull, "{error}");
        assert!(region.sync(SITE).is_err());
        assert!(region.append(SITE, 0, b"x").is_err());
    }
}
