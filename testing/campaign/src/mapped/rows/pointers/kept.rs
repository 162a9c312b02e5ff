//! Two files that are kept in one pool, as they were left, and how what leads there is damaged.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use holdfast::Pool;
use holdfast::protect::{ProtectOptions, ProtectedFile, side_path};
use holdfast_layout::Field;
use holdfast_layout::format::{MIRRORED_LEN, PAGE_LEN};
use holdfast_pmem::ForeignFile;
use holdfast_workloads::Rng;

use crate::mapped::judge::refused;
use crate::object::raw::sums::crc;
use crate::object::wrong::{Lie, told};
use crate::tally::{Fault, Judged, Violation};

/// Bytes before the body of a mirrored page.
pub(super) const HEAD: usize = MIRRORED_LEN;
/// What is stored where the file is used.
pub(super) const STORED: &[u8] = b"stored";
pub(super) const STORED_AT: u64 = 3;
/// Pages of the files, and the byte that rots where one is to be repaired.
const PAGES: usize = 12;
const ROTTEN: usize = 7 * PAGE_LEN + 5;
/// Bytes of the pool: few, since it is put back before each run.
const POOL: u64 = 4 << 20;
/// Where the identity of the region is in the pointer.
const REGION: usize = HEAD + 32;

/// A file as it was left: where, what it holds, and its date.
type Left = (PathBuf, Vec<u8>, SystemTime);

/// The two files and what they are kept in.
#[derive(Debug)]
pub struct Kept {
    _folder: tempfile::TempDir,
    /// The file that is damaged.
    pub data: PathBuf,
    pub(super) other: PathBuf,
    /// The pool.
    pub pool: PathBuf,
    /// Whether stores have dates there: rot at rest is in doubt else.
    pub(super) dated: bool,
    /// Data, pointer, pool; then data and pointer of the other.
    left: [Left; 5],
}

fn read(path: &Path) -> Judged<Vec<u8>> {
    fs::read(path).map_err(|error| refused("a file", &error))
}

/// Puts bytes into a file where they differ, and gives it that date.
fn put(path: &Path, bytes: &[u8], date: SystemTime) -> Judged<()> {
    let put = || {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let now = fs::read(path)?;
        if now.len() != bytes.len() {
            file.set_len(bytes.len() as u64)?;
        }
        for (number, page) in bytes.chunks(PAGE_LEN).enumerate() {
            let at = number * PAGE_LEN;
            if now.get(at..at + page.len()) != Some(page) {
                file.write_all_at(page, at as u64)?;
            }
        }
        file.set_modified(date)
    };
    put().map_err(|error: std::io::Error| refused("a file", &error))
}

/// The sum of a copy of the pointer, as its source has it.
pub fn seal(copy: &[u8]) -> [u8; 4] {
    crc(crc(0, &0_u64.to_le_bytes()), &copy[4..]).to_le_bytes()
}

impl Kept {
    /// Keeps two files of random bytes in a new pool, and leaves them.
    ///
    /// # Errors
    /// The system refuses a file, or the engine to protect it.
    pub fn new(rng: &mut Rng) -> Judged<Self> {
        let folder = tempfile::Builder::new().prefix("holdfast-campaign-").tempdir();
        let folder = folder.map_err(|error| refused("a folder", &error))?;
        let at = |name: &str| folder.path().join(name);
        let (data, other, pool) = (at("data.bin"), at("other.bin"), at("keep.pool"));
        let made = Pool::options().size(POOL).frame(PAGE_LEN as u64).create(&pool);
        made.map_err(|error| refused("the pool", &error))?.close();
        for path in [&data, &other] {
            let mut content = vec![0; PAGES * PAGE_LEN];
            rng.fill(&mut content);
            fs::write(path, content).map_err(|error| refused("a file", &error))?;
            ProtectedFile::protect(path, &ProtectOptions::new().pool(&pool))
                .and_then(ProtectedFile::close)
                .map_err(|error| refused("protect", &error))?;
        }
        let file = File::open(&data).map_err(|error| refused("the file", &error))?;
        let dated = ForeignFile::new(file.into()).dates_stores();
        let left = |path: PathBuf| -> Judged<Left> {
            let date = fs::metadata(&path).and_then(|found| found.modified());
            let date = date.map_err(|error| refused("a date", &error))?;
            Ok((path.clone(), read(&path)?, date))
        };
        let left = [
            left(data.clone())?,
            left(side_path(&data))?,
            left(pool.clone())?,
            left(other.clone())?,
            left(side_path(&other))?,
        ];
        Ok(Self { _folder: folder, data, other, pool, dated, left })
    }

    /// Everything is again what it was. The files stay the same ones: they are known by that.
    ///
    /// # Errors
    /// The system refuses a file.
    pub fn restore(&self) -> Judged<()> {
        self.left.iter().try_for_each(|(path, bytes, date)| put(path, bytes, *date))
    }

    pub(super) fn content(&self) -> Vec<u8> {
        self.left[0].1.clone()
    }

    /// The data after what is stored where it is used.
    pub(super) fn stored(&self) -> Vec<u8> {
        let mut bytes = self.content();
        bytes[STORED_AT as usize..][..STORED.len()].copy_from_slice(STORED);
        bytes
    }

    /// The data after a bit of it rotted.
    pub(super) fn rotten(&self) -> Vec<u8> {
        let mut bytes = self.content();
        bytes[ROTTEN] ^= 0x20;
        bytes
    }

    pub(super) fn rot(&self) -> Judged<()> {
        put(&self.data, &self.rotten(), self.left[0].2)
    }

    pub(super) fn data(&self) -> Judged<Vec<u8>> {
        read(&self.data)
    }

    pub(super) fn other_is_same(&self) -> Judged<bool> {
        let (path, bytes, _) = &self.left[3];
        Ok(read(path)? == *bytes)
    }

    /// Pointer and pool, as they are now.
    pub(super) fn bytes(&self) -> Judged<[Vec<u8>; 2]> {
        Ok([read(&self.left[1].0)?, read(&self.pool)?])
    }

    /// Damages the pointer: one copy, or both and their sums with them. Whether they differ now.
    pub(super) fn damage_pointer(
        &self,
        at: u64,
        len: u64,
        sealed: bool,
        rng: &mut Rng,
        verb: impl Fn(&[u8], &[u8], &mut Rng) -> Vec<u8>,
    ) -> Judged<bool> {
        let (path, whole, date) = &self.left[1];
        let mut bytes = whole.clone();
        let (at, end) = (at as usize, (at + len) as usize);
        let new = verb(&whole[at..end], &whole[end..end + end - at], rng);
        let one = rng.below(2) as usize;
        for (number, copy) in bytes.chunks_mut(PAGE_LEN).enumerate() {
            if sealed || number == one {
                copy[at..end].copy_from_slice(&new);
            }
            if sealed {
                let sum = seal(copy);
                copy[..4].copy_from_slice(&sum);
            }
        }
        put(path, &bytes, *date)?;
        Ok(bytes != *whole)
    }

    /// Changes what the pool has of the region of the first file, by a transaction.
    pub(super) fn put_extent(
        &self,
        field: &Field,
        rng: &mut Rng,
        verb: impl Fn(&[u8], &[u8], &mut Rng) -> Vec<u8>,
    ) -> Judged<bool> {
        let (pool, map) = self.region()?;
        let extent = map.get(&u64::MAX).map_err(|error| refused("the region", &error))?;
        let missing = || Violation::new(Fault::Refused, "the pool has no such region");
        let mut extent = extent.ok_or_else(missing)?;
        let differs = damage(&mut extent, field, rng, verb);
        map.put(&u64::MAX, &extent[..]).map_err(|error| refused("the region", &error))?;
        pool.close();
        Ok(differs)
    }

    /// The same as rot does: the bytes of it in the pool, no sum with them.
    ///
    /// # Errors
    /// The region is not found, or the system refuses the file.
    pub fn rot_extent(
        &self,
        field: &Field,
        rng: &mut Rng,
        verb: impl Fn(&[u8], &[u8], &mut Rng) -> Vec<u8>,
    ) -> Judged<bool> {
        let (path, whole, date) = &self.left[2];
        // Its path is the pointer's, which nothing else in the pool has.
        let named = self.left[1].0.as_os_str().as_encoded_bytes();
        let missing = || Violation::new(Fault::Refused, "the region is nowhere in the pool");
        // The log may have it as well, before the zone.
        let found = whole.windows(named.len()).rposition(|bytes| bytes == named);
        let from = found.and_then(|at| at.checked_sub(48)).ok_or_else(missing)?;
        let mut bytes = whole.clone();
        let differs = damage(&mut bytes[from..from + 48 + named.len()], field, rng, verb);
        put(path, &bytes, *date)?;
        Ok(differs)
    }

    fn region(&self) -> Judged<(Pool, holdfast::NamedMap<u64, [u8]>)> {
        let region = &self.left[1].1[REGION..REGION + 16];
        let digits: String = region.iter().map(|byte| format!("{byte:02x}")).collect();
        let pool = Pool::open(&self.pool).map_err(|error| refused("the pool", &error))?;
        let map = pool.map::<u64, [u8]>(&format!("holdfast.side.{digits}"));
        Ok((pool, map.map_err(|error| refused("the region", &error))?))
    }

    /// Both copies of the pointer verify and say what they said.
    ///
    /// # Errors
    /// They do not, or cannot be read.
    pub fn pointer_is_whole(&self) -> Judged<()> {
        let (path, whole, _) = &self.left[1];
        let now = read(path)?;
        let same = now.len() == whole.len()
            && now
                .chunks(PAGE_LEN)
                .zip(whole.chunks(PAGE_LEN))
                .all(|(now, whole)| now[..4] == seal(now) && now[HEAD..] == whole[HEAD..]);
        let story = "a copy of the pointer is as damaged as it was";
        if same { Ok(()) } else { Err(Violation::new(Fault::Exposed, story)) }
    }

    /// Changes something, if a lie says so.
    pub(super) fn change_as_told(&self) -> Judged<()> {
        let (data, pointer) = (&self.left[0], &self.left[1]);
        let flip = |(path, _, date): &Left, at: usize| {
            let mut bytes = read(path)?;
            bytes[at] ^= 1;
            put(path, &bytes, *date)
        };
        if told(Lie::Reverts) {
            flip(data, 2 * PAGE_LEN)?;
        }
        if told(Lie::StaysBad) || told(Lie::Scribbles) {
            flip(pointer, PAGE_LEN - 1)?;
        }
        Ok(())
    }
}

/// Damages a field; whether it is another now.
fn damage(
    bytes: &mut [u8],
    field: &Field,
    rng: &mut Rng,
    verb: impl Fn(&[u8], &[u8], &mut Rng) -> Vec<u8>,
) -> bool {
    let (at, end) = (field.at as usize, (field.at + field.len) as usize);
    let new = verb(&bytes[at..end], &bytes[end..], rng);
    let differs = new != bytes[at..end];
    bytes[at..end].copy_from_slice(&new);
    differs
}
