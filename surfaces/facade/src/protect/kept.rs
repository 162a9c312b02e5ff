//! What a pool has of files: whose each region is, and the removal of those that are nobody's.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::pool::Pool;
use crate::protect::area::open_pool;
use crate::protect::region::{Found, PoolRegion, Standing, digits};

/// Redundancy of a file that is in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRegion {
    /// Its identity, in digits.
    pub id: String,
    /// Bytes it may come to.
    pub len: u64,
    /// Where its pointer was when that was last looked at by whoever repairs or closes its file.
    pub pointer: Option<PathBuf>,
    /// What became of it.
    pub standing: Standing,
}

impl KeptRegion {
    /// What is in a pool.
    ///
    /// # Errors
    /// The pool cannot be read.
    pub fn of(pool: &Pool) -> Result<Vec<Self>> {
        Ok(PoolRegion::all(pool)?.into_iter().map(Self::from).collect())
    }

    /// Removes what was left in a pool by somebody who was killed, and the regions `asked` for,
    /// which no file in its place may point to: they may be those of files that were moved, which
    /// have no redundancy then. What was removed, and what is still there.
    ///
    /// # Errors
    /// The pool cannot be opened; one that is asked for is not there, or is in use.
    pub fn sweep(pool: &Path, asked: &[String]) -> Result<(Vec<Self>, Vec<Self>)> {
        let pool = open_pool(pool, holdfast_pmem::Access::Write)?;
        let before = Self::of(&pool)?;
        for id in asked {
            let found = before.iter().find(|region| &region.id == id).ok_or_else(|| {
                let what = format!("there is no region {id}");
                let remedy = "without it, the regions there are are listed; nothing was changed";
                pool.fail(Error::new(ErrorKind::NotFound, what).with_remedy(remedy))
            })?;
            if found.standing == Standing::Pointed {
                let pointer = found.pointer.as_deref().unwrap_or(Path::new("a file"));
                let what = format!("{} points to the region {id}", pointer.display());
                let remedy = "unprotect its file instead; nothing was changed";
                return Err(pool.fail(Error::new(ErrorKind::Refused, what).with_remedy(remedy)));
            }
        }
        PoolRegion::sweep(&pool)?;
        for found in PoolRegion::all(&pool)? {
            if asked.contains(&digits(&found.id)) {
                PoolRegion::remove(&pool, &found.id)?;
            }
        }
        let kept = Self::of(&pool)?;
        let gone = |region: &Self| kept.iter().all(|kept| kept.id != region.id);
        Ok((before.into_iter().filter(gone).collect(), kept))
    }
}

impl From<Found> for KeptRegion {
    fn from(Found { id, extent, standing }: Found) -> Self {
        let len = extent.as_ref().map_or(0, |extent| extent.len);
        let pointer = extent.and_then(|extent| extent.pointer).map(|pointer| pointer.path);
        Self { id: digits(&id), len, pointer, standing }
    }
}
