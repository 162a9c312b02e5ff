//! Where the redundancy of a file lies: in a side file beside it, or in a region of a pool that a
//! pointer beside it names. How it comes to be, is found, and goes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_mapped::{Facts, State};
use holdfast_object::VerifyReads;
use holdfast_pmem::{Access, Durability as Survive, ForeignFile, Making, PutAside};
use holdfast_redundancy::events::Outcome;

use crate::error::{Error, ErrorKind, Result};
use crate::options::random_uuid;
use crate::pool::Pool;
use crate::protect::Engine;
use crate::protect::extent::{Named, Points, Stage, real};
use crate::protect::medium::SideMedium;
use crate::protect::pointer::Pointer;
use crate::protect::region::PoolRegion;
use crate::protect::side;

/// A region, and the pool it is in.
#[derive(Debug, Clone)]
pub(crate) struct InPool {
    pub(crate) pool: Pool,
    pub(crate) path: PathBuf,
    /// The pointer that it belongs to, if the one it was found by is a copy.
    pub(crate) original: Option<PathBuf>,
    region: [u8; 16],
}

/// An area that is being made. Dropped before it is kept, nothing is left of it.
#[derive(Debug)]
pub(crate) struct Area {
    making: Making,
    to: PathBuf,
    region: Option<InPool>,
}

impl Area {
    /// Begins to make an area for `len` bytes of `data` in stripes of so many pages: the side file
    /// `to`, or a region of `pool` with a pointer of that name. With `instead`, it is to take the
    /// place of one that is there.
    pub(crate) fn begin(
        data: &Path,
        to: &Path,
        (len, stripe): (u64, (u32, u32)),
        pool: Option<&Path>,
        instead: bool,
    ) -> Result<(Self, SideMedium)> {
        let Some(path) = pool else {
            end_left(to, None)?;
            let making = side::begin(to, instead)?;
            let medium = side::map(&making, to, len, stripe)?;
            let this = Self { making, to: to.to_path_buf(), region: None };
            return Ok((this, SideMedium::File(Arc::new(medium))));
        };
        refuse_itself(data, path)?;
        let pool = open_pool(path, Access::Write)?;
        let path = real(path);
        let uuid = pool.superblock().uuid;
        // Before what a maker or an ending has left of pointers is cleared away: they tell.
        PoolRegion::sweep(&pool)?;
        end_left(to, Some(uuid))?;
        let making = side::begin(to, instead)?;
        let region = random_uuid()?;
        Pointer { pool: path.clone(), uuid, region }.write(&making, to)?;
        let old = Pointer::load(to).ok().filter(|old| instead && old.uuid == uuid);
        let replaces = old.map(|old| old.region);
        let named = Named::of(to, making.file());
        let there = InPool { pool: pool.clone(), path, original: None, region };
        // From here on it is removed with this.
        let this = Self { making, to: to.to_path_buf(), region: Some(there) };
        let medium = PoolRegion::create(&pool, &region, named, replaces).map_err(no_room)?;
        Ok((this, SideMedium::Region(Box::new(medium))))
    }

    /// What its making failed of, for whoever can do something about it.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if self.region.is_some() { no_room(error) } else { error }
    }

    /// Gives it its name. With `instead`, that of one that may be there. Once it has it, it is
    /// kept, and what is still to be tidied up is: now, or by whoever makes the next one.
    pub(crate) fn keep(mut self, medium: &SideMedium, instead: bool) -> Result<Option<InPool>> {
        // An error after the name: what a power cut leaves may be either of the two, so both stay.
        side::keep(&mut self.making, &self.to, instead)?;
        let there = self.region.take();
        if let SideMedium::Region(region) = medium
            && region.set_stage(Stage::Kept).is_ok()
        {
            let _ = region.remove_replaced();
        }
        Ok(there)
    }
}

/// Ends what was left where `to` is to be made, by somebody who was killed: the next maker clears
/// the pointer away that tells of it, and nobody else knows whose the region is. A pool of the
/// identity `swept` is seen to already.
fn end_left(to: &Path, swept: Option<[u8; 16]>) -> Result<()> {
    let Ok(pointer) = Pointer::load(&Making::name_of(to)) else { return Ok(()) };
    if swept == Some(pointer.uuid) {
        return Ok(());
    }
    match open_pool(&pointer.pool, Access::Write) {
        Ok(pool) if pool.superblock().uuid == pointer.uuid => PoolRegion::sweep(&pool),
        Err(error) if error.kind() == ErrorKind::Locked => {
            let remedy = "it has what is left of an earlier protection of the file; wait until \
                          that is done; nothing was changed";
            Err(error.with_remedy(remedy))
        }
        // Elsewhere, `pool sweep` shows what it still has.
        _ => Ok(()),
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if let Some(region) = self.region.take().filter(|_| !self.making.is_kept()) {
            // What cannot be removed is marked as being made: the next one that is made there does.
            let _ = PoolRegion::remove(&region.pool, &region.region);
        }
    }
}

/// Opens the area of `data` of which `side` is the side file or the pointer; `moved` says where the
/// pool is, if it is not where it was. By a pointer that is a copy it is only looked at.
pub(crate) fn open(
    data: &ForeignFile,
    side: &Path,
    access: Access,
    survive: Survive,
    moved: Option<&Path>,
) -> Result<(SideMedium, Option<InPool>)> {
    if !Pointer::is_at(side) {
        if let (Some(_), true) = (moved, side.exists()) {
            let what = "its redundancy is in a side file, not in a pool";
            let remedy = "leave out --in, or unprotect it first; nothing was changed";
            return Err(Error::new(ErrorKind::Refused, what).with_remedy(remedy).at(side));
        }
        let opened = side::open(side, access, survive);
        return opened.map(|medium| (SideMedium::File(Arc::new(medium)), None));
    }
    let pointer = Pointer::load(side)?;
    let path = moved.unwrap_or(&pointer.pool);
    let pool = open_pool(path, access).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let what = "the pool that has the redundancy of the file is not there";
            let remedy = "say where it is with --in, or put it back; `unprotect --force` gives up \
                          what is in it";
            Error::new(ErrorKind::Damaged, what).with_remedy(remedy).at(path)
        }
        _ => error,
    })?;
    if pool.superblock().uuid != pointer.uuid {
        let what = "this is not the pool that has the redundancy of the file";
        let remedy = "say where that is with --in; nothing was changed";
        return Err(Error::new(ErrorKind::Damaged, what).with_remedy(remedy).at(path));
    }
    let medium = PoolRegion::open(&pool, &pointer.region)?;
    let original = original(&medium, Some(data), side);
    if access == Access::Write {
        if let Some(original) = &original {
            return Err(copied(side, original));
        }
        // A pool without room for a longer path knows where it was made.
        let _ = medium.set_pointer(Named::at(side));
    }
    let path = path.to_path_buf();
    let there = InPool { pool, path, original, region: pointer.region };
    Ok((SideMedium::Region(Box::new(medium)), Some(there)))
}

/// The pointer that a region belongs to, if it is another one than `side`: that one is a copy then,
/// and what is done by it would be done to the file that it was copied from. A file that was moved
/// is itself all the same, as is one that was put back where its original is no more.
fn original(region: &PoolRegion, data: Option<&ForeignFile>, side: &Path) -> Option<PathBuf> {
    let known = region.extent().pointer?;
    let here = Named::at(side)?;
    if here.path == known.path || same_file(&here.path, &known.path) {
        return None;
    }
    let left = holdfast_mapped::left(region).ok();
    let inode = data.and_then(|data| Some(data.identity().ok()?.inode));
    let same_data = left.is_some_and(|left| Some(left.identity.inode) == inode);
    let moved = same_data && (here.device, here.inode) == (known.device, known.inode);
    match region.points(&known) {
        Points::Here => (!moved).then_some(known.path),
        // What is not mounted now is not gone.
        Points::Unknown | Points::Gone { sure: false } => (!same_data).then_some(known.path),
        Points::Elsewhere | Points::Gone { sure: true } => None,
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    let numbers =
        |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    numbers(a).is_some_and(|a| Some(a) == numbers(b))
}

/// What is said of a pointer that is a copy.
pub(crate) fn copied(side: &Path, original: &Path) -> Error {
    let what = format!(
        "it is a copy: the redundancy it points to is that of the file of {}",
        original.display()
    );
    let remedy = "`unprotect --force` removes this pointer only, and `protect` begins anew; \
                  nothing was changed";
    Error::new(ErrorKind::Refused, what).with_remedy(remedy).at(side)
}

/// Sees to the pointer of a region that was opened for change: a copy that is damaged is written
/// anew, which the events tell, and where its pool is now is noted.
pub(crate) fn tend(side: &Path, there: &InPool, engine: &Engine) {
    // One that cannot be changed says what it did: the next one has to say where the pool is, too.
    if let Some((copy, whole)) = Pointer::tend(side, &real(&there.path)) {
        engine.tell_copy(copy, if whole { Outcome::Repaired } else { Outcome::Detected });
    }
}

/// Takes the name from an area whose protection is to end. Nobody finds it from here on.
pub(crate) fn put_aside(side: &Path) -> Result<PutAside> {
    PutAside::begin(side).map_err(|error| {
        let error = Error::from(error).at(side);
        match error.kind() {
            ErrorKind::Locked => error.with_remedy("wait until that is done; nothing was changed"),
            ErrorKind::Permission => {
                error.with_remedy("ask who may write to the folder; it is protected as before")
            }
            _ => error,
        }
    })
}

/// Removes an area that was put aside and says nothing any more. What cannot be removed is by
/// whoever makes the next one there.
pub(crate) fn remove(aside: PutAside, region: Option<&InPool>) {
    if let Some(there) = region {
        let ended = PoolRegion::open(&there.pool, &there.region).and_then(|region| {
            // Nobody would know of it once this is gone.
            let _ = region.remove_replaced();
            region.set_stage(Stage::Ended)
        });
        if ended.is_err() {
            // What is left of the pointer tells that it is over.
            return;
        }
    }
    aside.remove();
    if let Some(there) = region {
        let _ = PoolRegion::remove(&there.pool, &there.region);
    }
}

/// Removes what is left where the protection of `data` has ended already. Whether it had.
pub(crate) fn remove_ended(data: &Path, side: &Path, moved: Option<&Path>) -> bool {
    let opened = crate::protect::file::open(data, false)
        .and_then(|data| open(&data, side, Access::Write, Survive::Process, moved));
    let Ok((medium, region)) = opened else { return false };
    let ended = holdfast_mapped::left(&medium).is_ok_and(|left| left.state == State::Ended);
    let aside = if ended { PutAside::begin(side).ok() } else { None };
    drop(medium);
    aside.map(|aside| remove(aside, region.as_ref())).is_some()
}

/// Removes a pointer, and what it points to if that can be had and is its own. Where it may be
/// still, if it was left.
pub(crate) fn remove_pointer(side: &Path, moved: Option<&Path>) -> Result<Option<PathBuf>> {
    let Ok(pointer) = Pointer::load(side) else { return side::remove(side).map(|()| None) };
    let mut refused = None;
    for path in moved.into_iter().chain([pointer.pool.as_path()]) {
        let pool = match open_pool(path, Access::Write) {
            Ok(pool) if pool.superblock().uuid == pointer.uuid => pool,
            Ok(_) => continue,
            Err(error) => {
                // It may be had later.
                if error.kind() == ErrorKind::Locked {
                    refused.get_or_insert(error);
                }
                continue;
            }
        };
        let region = PoolRegion::open(&pool, &pointer.region).ok();
        if region.as_ref().is_some_and(|region| original(region, None, side).is_some()) {
            return side::remove(side).map(|()| None);
        }
        let aside = put_aside(side)?;
        // Nobody would know of it once this is gone.
        let _ = region.map(|region| region.remove_replaced());
        let gone = PoolRegion::remove(&pool, &pointer.region);
        aside.remove();
        return Ok(gone.err().map(|_| path.to_path_buf()));
    }
    if let Some(error) = refused {
        return Err(error);
    }
    // Another pool, or none.
    side::remove(side)?;
    Ok(Some(pointer.pool))
}

pub(crate) fn open_pool(path: &Path, access: Access) -> Result<Pool> {
    let options = Pool::options().verify_reads(VerifyReads::Always);
    match access {
        Access::Write => options.open(path),
        Access::ReadOnly | Access::PrivateCopy => options.open_read_only(path),
    }
}

/// A pool does not keep its own redundancy.
fn refuse_itself(data: &Path, pool: &Path) -> Result<()> {
    if same_file(data, pool) {
        let what = "this is the file to be protected itself";
        let remedy = "name another pool; nothing was changed";
        return Err(Error::new(ErrorKind::Refused, what).with_remedy(remedy).at(pool));
    }
    Ok(())
}

fn no_room(error: Error) -> Error {
    if error.kind() != ErrorKind::NoSpace {
        return error;
    }
    error.with_remedy(
        "`holdfast pool grow POOL SIZE` makes room, about a third of the file; it is not protected",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protect::region::name;
    use crate::protect::{ProtectOptions, ProtectedFile};

    /// A file with its redundancy in a pool; its name, that of its pointer, and of the pool.
    fn protected(folder: &Path) -> (PathBuf, PathBuf, PathBuf) {
        let (data, pool) = (folder.join("a.db"), folder.join("keep.pool"));
        std::fs::write(&data, [7; 9000]).unwrap();
        Pool::options().size(16 << 20).create(&pool).unwrap().close();
        ProtectedFile::protect(&data, &ProtectOptions::new().pool(&pool)).unwrap().close().unwrap();
        (data.clone(), side::side_path(&data), pool)
    }

    #[test]
    fn what_fails_once_it_has_its_name_takes_nothing_back() {
        let folder = tempfile::tempdir().unwrap();
        let (data, to, path) = protected(folder.path());
        let old = Pointer::load(&to).unwrap();
        let (area, medium) = Area::begin(&data, &to, (9000, (4, 1)), Some(&path), true).unwrap();
        let new = area.region.clone().unwrap();
        let begun = PoolRegion::open(&new.pool, &new.region).unwrap().extent();
        assert_eq!(begun.replaces, Some(old.region));
        // The old one cannot be removed, nor can anything be noted of the new one.
        for id in [old.region, new.region] {
            new.pool.drop_map::<u64, [u8]>(&name(&id)).unwrap();
            new.pool.map::<u64, u64>(&name(&id)).unwrap();
        }
        assert!(area.keep(&medium, true).unwrap().is_some());
        assert_eq!(Pointer::load(&to).unwrap().region, new.region);
        assert_eq!(new.pool.maps().unwrap().len(), 2);
    }

    #[test]
    fn what_is_replaced_goes_with_the_name_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let (data, to, path) = protected(folder.path());
        let old = Pointer::load(&to).unwrap().region;
        // Killed when its pointer had no name yet, and when it had.
        for named in [false, true] {
            let begun = Area::begin(&data, &to, (9000, (4, 1)), Some(&path), true);
            let (mut area, medium) = begun.unwrap();
            let pool = area.region.take().unwrap().pool;
            let known = PoolRegion::open(&pool, &old).unwrap().extent();
            assert_eq!(known.stage, Stage::Kept, "it is what it was");
            if named {
                side::keep(&mut area.making, &to, true).unwrap();
            }
            drop((area, medium));
            assert_eq!(pool.maps().unwrap().len(), 2);
            PoolRegion::sweep(&pool).unwrap();
            let left = Pointer::load(&to).unwrap().region;
            assert_eq!(left == old, !named);
            assert_eq!(pool.maps().unwrap().len(), 1);
            PoolRegion::open(&pool, &left).unwrap();
        }
    }
}
