//! The pointer beside a file whose redundancy lies in a pool: which pool, which region of it.
//!
//! It has the name that the side file would have, so that whoever looks for one finds it, and a
//! build or a guard that knows no pointers refuses it for what it is: no side file.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use holdfast_layout::bytes::{get_u32, put, put_u32};
use holdfast_pmem::{
    Access, Durability as Survive, Making, Mapped as Mapping, Medium, Options, Room, Site,
};
use holdfast_redundancy::{Mirror, MirrorSites, Record, Side};

use crate::error::{Error, ErrorKind, Result};
use crate::protect::file;
use crate::protect::format::{KIND_POINTER, MAGIC, PATH_START, SIDE_LEN, VERSION};

const SITES: MirrorSites = MirrorSites {
    b: Site::new("facade.pointer.b"),
    drain_b: Site::new("facade.pointer.drain-b"),
    a: Site::new("facade.pointer.a"),
    drain_a: Site::new("facade.pointer.drain-a"),
    clear: Site::new("facade.pointer.clear"),
    heal: Site::new("facade.pointer.heal"),
};
/// Most bytes of a path.
const PATH_MAX: usize = 4000;
/// Both copies are found without knowing anything.
const MIRROR: Mirror = Mirror { seed: 0, side_len: SIDE_LEN, copies: 2 };

/// Where the redundancy of a file is, if it is in a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) pool: PathBuf,
    /// Identity of the pool: another one under its name is not taken for it.
    pub(crate) uuid: [u8; 16],
    pub(crate) region: [u8; 16],
}

impl Pointer {
    /// Whether there is one at `path`, damaged or not.
    pub(crate) fn is_at(path: &Path) -> bool {
        let mut head = [0; 64];
        let start = holdfast_layout::format::MIRRORED_LEN;
        let Ok(file) = file::look(path) else { return false };
        [0, SIDE_LEN].into_iter().any(|at| {
            let read = std::os::unix::fs::FileExt::read_exact_at(&file, &mut head, at);
            read.is_ok() && head.get(start..start + MAGIC.len()) == Some(&MAGIC)
        })
    }

    /// Reads the pointer at `path`.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        Self::read(path).map(|(pointer, _)| pointer)
    }

    /// The same, and the record that it is the body of.
    fn read(path: &Path) -> Result<(Self, Record)> {
        let damaged = |what: &str| {
            Error::new(ErrorKind::Damaged, what)
                .with_remedy(
                    "`holdfast unprotect --force` and `holdfast protect` begin anew; the data file \
                     was not changed",
                )
                .at(path)
        };
        let medium = Mapping::open(path, Access::ReadOnly, &how());
        let medium = medium.map_err(|error| Error::from(error).at(path))?;
        let record = load(&medium)
            .map_err(|_| damaged("the pointer to the pool is damaged in both copies"))?;
        let body = &record.page().body;
        if body.get(..MAGIC.len()) != Some(&MAGIC) || body.len() < PATH_START {
            return Err(damaged("the pointer to the pool is none"));
        }
        match get_u32(body, 8) {
            VERSION => {}
            version => {
                let what = format!("the pointer to the pool has format version {version}");
                return Err(Error::new(ErrorKind::NewerVersion, what).at(path));
            }
        }
        let len = get_u32(body, 12) as usize;
        let Some(text) = body.get(PATH_START..PATH_START.saturating_add(len)) else {
            return Err(damaged("the pointer to the pool has an impossible length"));
        };
        let array = |at: usize| core::array::from_fn(|i| body[at + i]);
        let pool = PathBuf::from(OsString::from_vec(text.to_vec()));
        Ok((Self { pool, uuid: array(16), region: array(32) }, record))
    }

    /// Writes it into a file that is being made.
    pub(crate) fn write(&self, making: &Making, to: &Path) -> Result<()> {
        let body = self.encode()?;
        let medium = making.map(2 * SIDE_LEN, Room::Taken, &how());
        let medium = medium.map_err(|error| Error::from(error).at(to))?;
        begin(&medium, &body).map_err(|error| Error::from(error).at(to))
    }

    /// Sees to it that the one at `path` is whole in both copies and names `pool`. Nothing is
    /// stored if it is and does. Which copy was damaged, if one was, and whether it is whole now.
    pub(crate) fn tend(path: &Path, pool: &Path) -> Option<(Side, bool)> {
        let (found, record) = Self::read(path).ok()?;
        let tended = if found.pool != pool {
            Self { pool: pool.to_path_buf(), ..found }
                .encode()
                .and_then(|body| changed(path, |medium| replace(medium, &body)))
        } else if record.needs_heal() {
            changed(path, heal)
        } else {
            Ok(())
        };
        Some((record.damaged()?, tended.is_ok()))
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let text = self.pool.as_os_str().as_bytes();
        if text.len() > PATH_MAX {
            let what = format!("a path of {} bytes is too long to be kept", text.len());
            return Err(Error::new(ErrorKind::Invalid, what).at(&self.pool));
        }
        let mut body = vec![0; PATH_START];
        put(&mut body, 0, &MAGIC);
        put_u32(&mut body, 8, VERSION);
        put_u32(&mut body, 12, text.len() as u32);
        put(&mut body, 16, &self.uuid);
        put(&mut body, 32, &self.region);
        body.extend_from_slice(text);
        Ok(body)
    }
}

/// Changes the pointer at `path`.
fn changed(path: &Path, change: impl FnOnce(&Mapping) -> Done<()>) -> Result<()> {
    let medium = Mapping::open(path, Access::Write, &how());
    let medium = medium.map_err(|error| Error::from(error).at(path))?;
    change(&medium).map_err(|error| Error::from(error).at(path))
}

type Done<T> = core::result::Result<T, holdfast_redundancy::Error>;

fn load(medium: &impl Medium) -> Done<Record> {
    Record::load(medium, MIRROR, 0, KIND_POINTER, SITES)
}

/// Writes both copies of the first pointer there.
fn begin(medium: &impl Medium, body: &[u8]) -> Done<()> {
    Record::create(MIRROR, 0, KIND_POINTER, SITES).write(medium, 1, body)
}

/// Writes both copies over those of another pointer.
fn replace(medium: &impl Medium, body: &[u8]) -> Done<()> {
    load(medium)?.write(medium, 1, body)
}

/// Writes the copy that is damaged, or older, anew from the other.
fn heal(medium: &impl Medium) -> Done<()> {
    load(medium)?.heal(medium).map(drop)
}

fn how() -> Options {
    Options { durability: Survive::Auto, ..Options::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use holdfast_faultmem::{Budget, Clear, Config, CrashPoint, FaultMedium};
    use holdfast_pmem::MediumKind;

    use super::*;

    fn body(pool: &str) -> Vec<u8> {
        Pointer { pool: pool.into(), uuid: [3; 16], region: [5; 16] }.encode().expect("it is short")
    }

    /// Replaces one pointer by another, one copy of which may be bad before, with a place switched
    /// off. Counts images in which neither is found, and what is wrong once it is done.
    fn wrong(kind: MediumKind, off: &str, bad: Option<u64>) -> usize {
        let medium = FaultMedium::new(2 * SIDE_LEN, kind, &Config::default());
        let (old, new) = (body("/old.pool"), body("/new.pool"));
        begin(&medium, &old).expect("nothing fails");
        if let Some(at) = bad {
            medium.poison(at, 1, Clear::Able).expect("there is such a page");
        }
        medium.elide_name(off);
        let points: Arc<Mutex<Vec<CrashPoint>>> = Arc::default();
        let sink = Arc::clone(&points);
        medium.on_barrier(Box::new(move |_, _, point| {
            sink.lock().expect("nobody panicked").push(point.clone());
        }));
        replace(&medium, &new).expect("nothing fails");
        medium.clear_on_barrier();
        let points = std::mem::take(&mut *points.lock().expect("nobody panicked"));
        let found = |medium: &FaultMedium| load(medium).map(|record| record.page().body.clone());
        let after = |image| FaultMedium::from_crash(image, kind, &Config::default());
        let is = |found: &Done<Vec<u8>>, body: &Vec<u8>| {
            found.as_ref().is_ok_and(|found| found.starts_with(body))
        };
        let images = points.iter().flat_map(|point| point.images(&Budget::default()));
        let lost = images.filter(|image| {
            let found = found(&after(image.clone()));
            !is(&found, &old) && !is(&found, &new)
        });
        let mut count = lost.count();
        // Once it is done, each copy is enough.
        for at in [0, SIDE_LEN] {
            let medium = after(medium.crash_point().persisted());
            medium.poison(at, 1, Clear::Able).expect("there is such a page");
            count += usize::from(!is(&found(&medium), &new));
        }
        count
    }

    #[test]
    fn a_crash_leaves_one_pointer_or_the_other_and_every_step_is_needed_for_that() {
        for kind in [MediumKind::Dax, MediumKind::Shm, MediumKind::File] {
            for bad in [None, Some(0), Some(SIDE_LEN)] {
                assert_eq!(wrong(kind, "nothing", bad), 0, "{kind} {bad:?}");
            }
        }
        for (kind, off, bad) in [
            (MediumKind::Dax, "facade.pointer.b", None),
            (MediumKind::Dax, "facade.pointer.drain-b", None),
            (MediumKind::Dax, "facade.pointer.a", None),
            (MediumKind::Dax, "facade.pointer.drain-a", None),
            (MediumKind::Dax, "facade.pointer.heal", Some(0)),
            (MediumKind::Dax, "facade.pointer.clear", Some(SIDE_LEN)),
            (MediumKind::File, "facade.pointer.b", None),
            (MediumKind::File, "facade.pointer.a", None),
        ] {
            assert!(wrong(kind, off, bad) > 0, "{kind}: nobody needs {off}");
        }
    }

    /// With a place switched off, heals the pointer of which the copy at `bad` is damaged. Counts
    /// copies that are not enough by themselves after a power cut.
    fn left_bad(kind: MediumKind, off: &str, bad: u64, poison: bool) -> usize {
        let medium = FaultMedium::new(2 * SIDE_LEN, kind, &Config::default());
        let body = body("/a.pool");
        begin(&medium, &body).expect("nothing fails");
        if poison {
            medium.poison(bad, 1, Clear::Able).expect("there is such a page");
        } else {
            medium.flip_bit(bad + 40, 2).expect("there is such a byte");
        }
        medium.elide_name(off);
        heal(&medium).expect("nothing fails");
        let enough = |at: &u64| {
            let image = medium.crash_point().persisted();
            let after = FaultMedium::from_crash(image, kind, &Config::default());
            after.flip_bit(SIDE_LEN - at + 40, 2).expect("there is such a byte");
            load(&after).is_ok_and(|record| record.page().body.starts_with(&body))
        };
        [0, SIDE_LEN].iter().filter(|at| !enough(at)).count()
    }

    #[test]
    fn a_damaged_copy_is_written_anew_durably() {
        for kind in [MediumKind::Dax, MediumKind::Shm, MediumKind::File] {
            for (bad, poison) in [(0, false), (0, true), (SIDE_LEN, false), (SIDE_LEN, true)] {
                assert_eq!(left_bad(kind, "nothing", bad, poison), 0, "{kind} {bad} {poison}");
                let off = left_bad(kind, "facade.pointer.heal", bad, poison);
                assert!(off > 0, "{kind} {bad} {poison}: nobody needs that");
            }
        }
    }
}
