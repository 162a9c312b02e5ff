//! The pointer beside a protected file whose redundancy is in a pool: read from real files, since
//! what it names is opened. Each thread has a folder of its own.
//!
//! The first byte of the head says how the file is met: looked at, opened for repair, or, most
//! often, looked at beside others, which does not search all processes for whoever has it. The pool
//! and the data file are as they were made before each run.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use holdfast::Pool;
use holdfast::protect::{ProtectOptions, ProtectedFile, side_path};
use holdfast_campaign::object::fields::verbs::Verb;
use holdfast_campaign::object::raw::sums::crc;
use holdfast_layout::Field;
use holdfast_layout::format::{FIELDS_MIRRORED, MIRRORED_LEN, PAGE_LEN, SEQUENCE_MAX};
use holdfast_workloads::Rng;
use tempfile::TempDir;

use crate::bed::{SEALED, STEPS};
use crate::lie::lie;
use crate::script::{Script, Step};

/// Ways to meet it: all but the first two are the same.
pub(super) const WAYS: u8 = 16;
/// Ways in which a step damages.
pub(super) const VERBS: u8 = 11;
/// Both copies are hit.
const EACH: u8 = 2;
/// The second copy is hit, if not both are.
const SECOND: u8 = 4;

/// Fields of the body, as `docs/formats/pointer.md` has them; the path follows.
const BODY: [Field; 5] = [
    Field::new("magic", 0, 8),
    Field::new("version", 8, 4),
    Field::new("path_len", 12, 4),
    Field::new("pool", 16, 16),
    Field::new("region", 32, 16),
];
/// Kind word of the page.
const KIND: u32 = 0x2052_5450;
const PATH_LEN: usize = MIRRORED_LEN + 12;
const PATH: usize = MIRRORED_LEN + 48;
/// Pages of the data file.
const PAGES: usize = 4;
/// Bytes of the pools: as few as may be.
const POOL: u64 = 2 << 20;

/// A protected file, and what it was when it was made.
struct Bed {
    _folder: TempDir,
    data: PathBuf,
    side: PathBuf,
    pool: PathBuf,
    /// What each of them holds.
    whole: [Vec<u8>; 3],
    /// The last run may have changed them.
    used: bool,
    /// Paths that a pointer may name.
    paths: Vec<Vec<u8>>,
}

thread_local! {
    static BED: RefCell<Option<Bed>> = const { RefCell::new(None) };
}

impl Bed {
    fn new() -> io::Result<Self> {
        // In memory, where it is the same file system for all that is done here.
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }?;
        let place = |name: &str| folder.path().join(name);
        let (data, pool) = (place("a.db"), place("a.pool"));
        let mut content = vec![0; PAGES * PAGE_LEN];
        Rng::new(5).fill(&mut content);
        fs::write(&data, &content)?;
        for path in [&pool, &place("other.pool")] {
            let options = Pool::options().size(POOL).frame(PAGE_LEN as u64).lanes(1);
            options.create(path).map_err(io::Error::other)?.close();
        }
        let options = ProtectOptions::new().pool(&pool);
        let made = ProtectedFile::protect(&data, &options).map_err(io::Error::other)?;
        made.close().map_err(io::Error::other)?;
        fs::write(place("text"), "no pool\n")?;
        rustix::fs::mkfifoat(rustix::fs::CWD, place("pipe"), 0o600.into())?;
        let names = ["a.pool", "other.pool", "a.db", "a.db.holdfast", "text", "pipe", "none", "."];
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let mut paths: Vec<Vec<u8>> = names.iter().map(|name| bytes(&place(name))).collect();
        paths.extend([b"".to_vec(), b"a.pool".to_vec(), b"/dev/null".to_vec(), vec![b'/'; 4000]]);
        let side = side_path(&data);
        let whole = [fs::read(&data)?, fs::read(&side)?, fs::read(&pool)?];
        Ok(Self { _folder: folder, data, side, pool, whole, used: false, paths })
    }

    /// Puts back what a run has changed.
    fn restore(&self) -> io::Result<()> {
        let all = [&self.data, &self.side, &self.pool].into_iter().zip(&self.whole);
        for (path, whole) in all.filter(|(path, whole)| fs::read(path).ok().as_ref() != Some(whole))
        {
            // The same inode: a pointer is known by it.
            fs::write(path, whole)?;
        }
        Ok(())
    }
}

/// Target `pointer`.
pub(super) fn run(input: &[u8]) {
    let script = Script::read(input);
    BED.with_borrow_mut(|bed| {
        let bed = match bed {
            Some(bed) => bed,
            None => bed.insert(Bed::new().unwrap_or_else(|why| panic!("no bed: {why}"))),
        };
        // Before and not after: a run that broke the law left something.
        if bed.used {
            bed.restore().unwrap_or_else(|why| panic!("not put back: {why}"));
        }
        bed.used = true;
        let mut bytes = bed.whole[1].clone();
        for step in script.steps.iter().take(STEPS) {
            damage(bed, &mut bytes, step);
        }
        fs::write(&bed.side, &bytes).unwrap_or_else(|why| panic!("no pointer: {why}"));
        let way = script.head[0] % WAYS;
        meet(bed, &bytes, way);
        // Beside others nothing can be written: the pool is mapped for reading.
        bed.used = way < 2;
    });
}

/// Opens it and uses it. An error is an answer; that it can be told is all there is to ask.
fn meet(bed: &Bed, bytes: &[u8], way: u8) {
    let options = ProtectOptions::new();
    let opened = match way {
        0 => ProtectedFile::look(&bed.data, &options),
        1 => ProtectedFile::open(&bed.data, &options),
        _ => ProtectedFile::look_beside(&bed.data, &options),
    };
    let told = opened.map_err(|error| error.to_string()).and_then(|file| {
        let _ = (file.status().map_err(|error| error.to_string()), file.events());
        if way > 1 {
            return Ok(true);
        }
        let found = file.verify(|_, _| true).map_err(|error| error.to_string())?;
        if way == 1 {
            let done = file.repair(false, |_, _| true);
            let _ = done.map_err(|error| error.to_string());
        }
        file.close().map_err(|error| error.to_string())?;
        Ok(found.is_clean())
    });
    let told = lie("told", told, |_| Err("a lie".to_owned()));
    let good = believed(bytes) == Some(&bed.whole[1][MIRRORED_LEN..PAGE_LEN]);
    assert!(!good || told == Ok(true), "a good pointer, and {told:?}");
    let read = |path: &Path| fs::read(path).unwrap_or_default();
    if lie("stray", false, |_| true) {
        let _ = fs::write(&bed.data, "x");
    }
    assert!(read(&bed.data) == bed.whole[0], "the data file was changed");
    if way != 1 {
        let side = lie("pointer", read(&bed.side), |_| Vec::new());
        assert!(side == bytes, "a look changed the pointer");
    }
    if way == 0 {
        let pool = lie("pool", read(&bed.pool), |_| Vec::new());
        assert!(pool == bed.whole[2], "a look changed the pool");
    }
}

/// The body of the newer one of the copies that verify.
fn believed(bytes: &[u8]) -> Option<&[u8]> {
    let sequence = |copy: &&[u8]| copy[8..16].try_into().map_or(0, u64::from_le_bytes);
    let good = |copy: &&[u8]| {
        let word = |at: usize| copy[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
        let known = (1..=SEQUENCE_MAX).contains(&sequence(copy));
        word(0) == certificate(copy) && word(4) == KIND && known
    };
    let (first, second) = bytes.split_at(PAGE_LEN);
    // The first of two that are as new: the last one is what is answered here.
    [second, first].into_iter().filter(good).max_by_key(sequence).map(|copy| &copy[MIRRORED_LEN..])
}

/// The sum that a copy has to have.
fn certificate(copy: &[u8]) -> u32 {
    crc(crc(0, &0_u64.to_le_bytes()), &copy[4..])
}

fn damage(bed: &Bed, bytes: &mut [u8], step: &Step) {
    let (first, second) = bytes.split_at_mut(PAGE_LEN);
    let one = if step.has(SECOND) { [false, true] } else { [true, false] };
    let hit = if step.has(EACH) { [true; 2] } else { one };
    for (copy, _) in [first, second].into_iter().zip(hit).filter(|(_, hit)| *hit) {
        spoil(bed, copy, step);
        if step.has(SEALED) {
            let sum = lie("seal", certificate(copy), |sum| !sum);
            copy[..4].copy_from_slice(&sum.to_le_bytes());
            let sealed = copy[..4] == certificate(copy).to_le_bytes();
            assert!(sealed, "sealed, and does not verify");
        }
    }
}

fn spoil(bed: &Bed, copy: &mut [u8], step: &Step) {
    let inside = |field: &Field| (MIRRORED_LEN as u64 + field.at, field.len);
    let head = FIELDS_MIRRORED.iter().map(|field| (field.at, field.len));
    let path = [(PATH as u64, 16)];
    let spots: Vec<(u64, u64)> = head.chain(BODY.iter().map(inside)).chain(path).collect();
    let spot = |number: u64| spots[(number % spots.len() as u64) as usize];
    let (at, len) = spot(step.place.into());
    let (from, end) = (at as usize, (at + len) as usize);
    let mut rng = Rng::new(step.value);
    match step.verb % VERBS {
        verb @ 0..8 => {
            let (other, most) = spot(u64::from(step.place) + 1);
            let next = copy[other as usize..(other + most) as usize].to_vec();
            let new = Verb::ALL[usize::from(verb)].apply(&copy[from..end], &next, &mut rng);
            copy[from..end].copy_from_slice(&new);
        }
        8 => {
            let value = step.value.to_le_bytes();
            let most = value.len().min(end - from);
            copy[from..from + most].copy_from_slice(&value[..most]);
        }
        9 => {
            let path = rng.pick(&bed.paths).map_or(&[][..], |path| &path[..]);
            copy[PATH_LEN..PATH_LEN + 4].copy_from_slice(&(path.len() as u32).to_le_bytes());
            copy[PATH..PATH + path.len()].copy_from_slice(path);
        }
        _ => {
            let at = (step.value % PAGE_LEN as u64) as usize;
            let len = (usize::from(step.place) % 200 + 1).min(PAGE_LEN - at);
            rng.fill(&mut copy[at..at + len]);
        }
    }
}
