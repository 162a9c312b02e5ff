//! Where the redundancy of a file lies: in a side file beside it, or in a region of a pool that a
//! pointer beside it names. How it comes to be, is found, and goes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use holdfast_object::VerifyReads;
use holdfast_pmem::{Access, Durability as Survive, Making};

use crate::error::{Error, ErrorKind, Result};
use crate::options::random_uuid;
use crate::pool::Pool;
use crate::protect::medium::SideMedium;
use crate::protect::pointer::Pointer;
use crate::protect::region::{PoolRegion, Stage};
use crate::protect::side;

/// A region, and the pool it is in.
#[derive(Debug, Clone)]
pub(crate) struct InPool {
    pub(crate) pool: Pool,
    pub(crate) path: PathBuf,
    region: [u8; 16],
}

/// An area that is being made. Dropped before it is kept, nothing is left of it.
#[derive(Debug)]
pub(crate) struct Area {
    making: Making,
    to: PathBuf,
    region: Option<InPool>,
    kept: bool,
}

impl Area {
    /// Begins to make an area for `len` bytes of `data` in stripes of so many pages: the side file
    /// `to`, or a region of `pool` with a pointer of that name.
    pub(crate) fn begin(
        data: &Path,
        to: &Path,
        (len, stripe): (u64, (u32, u32)),
        pool: Option<&Path>,
    ) -> Result<(Self, SideMedium)> {
        let making = side::begin(to)?;
        let mut this = Self { making, to: to.to_path_buf(), region: None, kept: false };
        let Some(path) = pool else {
            let medium = side::map(&this.making, to, len, stripe)?;
            return Ok((this, SideMedium::File(medium)));
        };
        refuse_itself(data, path)?;
        let pool = open_pool(path, Access::Write)?;
        let path = real(path);
        PoolRegion::sweep(&pool)?;
        let (uuid, region) = (pool.superblock().uuid, random_uuid()?);
        Pointer { pool: path.clone(), uuid, region }.write(&this.making, to)?;
        this.region = Some(InPool { pool: pool.clone(), path, region });
        let medium = PoolRegion::create(&pool, &region, &real(to)).map_err(no_room)?;
        Ok((this, SideMedium::Region(Box::new(medium))))
    }

    /// What its making failed of, for whoever can do something about it.
    pub(crate) fn explain(&self, error: Error) -> Error {
        if self.region.is_some() { no_room(error) } else { error }
    }

    /// Gives it its name. With `instead`, that of one that may be there.
    pub(crate) fn keep(mut self, medium: &SideMedium, instead: bool) -> Result<Option<InPool>> {
        let old = if instead { self.old()? } else { None };
        side::keep(&mut self.making, &self.to, instead)?;
        self.kept = true;
        if let SideMedium::Region(region) = medium {
            region.set_stage(Stage::Kept)?;
        }
        let region = self.region.take();
        if let Some((old, new)) = old.zip(region.as_ref()) {
            PoolRegion::remove(&new.pool, &old)?;
        }
        Ok(region)
    }

    /// The region that is about to be replaced, if it is in the same pool. From here on the pointer
    /// says which of the two is one that was left.
    fn old(&self) -> Result<Option<[u8; 16]>> {
        let (Some(new), Ok(old)) = (&self.region, Pointer::load(&self.to)) else {
            return Ok(None);
        };
        if old.uuid != new.pool.superblock().uuid {
            return Ok(None);
        }
        let region = PoolRegion::open(&new.pool, &old.region)?;
        region.set_stage(Stage::Making(real(&self.to)))?;
        Ok(Some(old.region))
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if let Some(region) = self.region.take().filter(|_| !self.kept) {
            // What cannot be removed is marked as being made: the next one that is made there does.
            let _ = PoolRegion::remove(&region.pool, &region.region);
        }
    }
}

/// Opens the area of which `side` is the side file or the pointer; `moved` says where the pool is,
/// if it is not where it was.
pub(crate) fn open(
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
        return side::open(side, access, survive).map(|medium| (SideMedium::File(medium), None));
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
    if access == Access::Write && medium.is_new() {
        medium.set_stage(Stage::Kept)?;
    }
    let there = InPool { pool, path: path.to_path_buf(), region: pointer.region };
    Ok((SideMedium::Region(Box::new(medium)), Some(there)))
}

/// Removes an area that says nothing any more.
pub(crate) fn remove(side: &Path, region: Option<&InPool>) -> Result<()> {
    if let Some(there) = region {
        // From here on, whoever makes one there removes what is left of it.
        PoolRegion::open(&there.pool, &there.region)?.set_stage(Stage::Ended)?;
    }
    side::remove(side)?;
    if let Some(there) = region {
        PoolRegion::remove(&there.pool, &there.region)?;
    }
    Ok(())
}

/// Removes a pointer, and what it points to if that can be had.
pub(crate) fn remove_pointer(side: &Path, moved: Option<&Path>) -> Result<()> {
    let pointed = Pointer::load(side).ok().map(|pointer| {
        let path = moved.map_or_else(|| pointer.pool.clone(), Path::to_path_buf);
        (pointer, path)
    });
    if let Some((pointer, path)) = pointed {
        match open_pool(&path, Access::Write) {
            Ok(pool) if pool.superblock().uuid == pointer.uuid => {
                PoolRegion::remove(&pool, &pointer.region)?;
            }
            // It may be had later.
            Err(error) if error.kind() == ErrorKind::Locked => return Err(error),
            // Another pool, or none: what it pointed to is gone.
            Ok(_) | Err(_) => {}
        }
    }
    side::remove(side)
}

/// The name of a file from the root, where that can be had; its folder's, if it is not there yet.
fn real(path: &Path) -> PathBuf {
    let whole = || std::fs::canonicalize(path).ok();
    let folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = std::fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    whole().or_else(folder).unwrap_or_else(|| path.to_path_buf())
}

fn open_pool(path: &Path, access: Access) -> Result<Pool> {
    let options = Pool::options().verify_reads(VerifyReads::Always);
    match access {
        Access::Write => options.open(path),
        Access::ReadOnly | Access::PrivateCopy => options.open_read_only(path),
    }
}

/// A pool does not keep its own redundancy.
fn refuse_itself(data: &Path, pool: &Path) -> Result<()> {
    let numbers =
        |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    if numbers(data).is_some_and(|data| Some(data) == numbers(pool)) {
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
