//! Every field of a pointer, and of what a pool keeps of a region, is damaged in eight ways and
//! met in five: nothing panics, nobody's data changes, and what lies beside it in the pool is as
//! sound as before. A pointer of which one copy is damaged is as good as ever.
//!
//! The fields are those of `docs/formats/pointer.md`, which `cargo xtask formats` holds against the
//! sources.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{PAGE, content};
use holdfast::Pool;
use holdfast::protect::{
    Durability, ProtectOptions, ProtectedFile, ProtectedMap, Tracking, side_path,
};

/// Pages of the files, and the one that rots where one is to be repaired.
const PAGES: u64 = 40;
const ROTTEN: usize = 7;
/// Bytes before the body of a mirrored page.
const HEAD: usize = 32;
/// Longest time one run may take: the same without damage takes milliseconds.
/// It finds what never ends; a disk may keep one that does for long.
const SLOW: Duration = Duration::from_secs(300);

/// A field: its name, first byte, bytes.
type Field = (String, usize, usize);

/// The fields of a structure, as the page about it has them.
fn fields(structure: &str) -> Vec<Field> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/pointer.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once(&format!("<!-- format: facade {structure} -->")).unwrap();
    let rows = table.trim_start().lines().skip(2).take_while(|line| line.starts_with('|'));
    let found: Vec<Field> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            (
                cells[3].trim_matches('`').to_owned(),
                cells[1].parse().unwrap(),
                cells[2].parse().unwrap(),
            )
        })
        .collect();
    assert!(found.len() >= 5, "{structure}: {found:?}");
    found
}

/// The eight ways: as in the campaigns.
fn damaged(way: usize, bytes: &[u8], beside: &[u8]) -> Vec<u8> {
    let mut new = bytes.to_vec();
    let step = |new: &mut Vec<u8>, full: u8, empty: u8, by: u8| {
        for byte in new {
            let carries = *byte == full;
            *byte = if carries { empty } else { byte.wrapping_add(by) };
            if !carries {
                break;
            }
        }
    };
    match way {
        0 => new.fill(0),
        1 => new.fill(0xff),
        2 => step(&mut new, 0xff, 0, 1),
        3 => step(&mut new, 0, 0xff, 0xff),
        4 => new[bytes.len() / 2] ^= 4,
        5 => *new.last_mut().unwrap() ^= 0x80,
        6 => {
            let len = new.len().min(beside.len());
            new[..len].copy_from_slice(&beside[..len]);
        }
        _ => new.iter_mut().zip(1_u8..).for_each(|(byte, i)| *byte ^= i.wrapping_mul(167)),
    }
    new
}

/// The ways in which a field is damaged: two, other fields in others, since all of them take a
/// minute; `HOLDFAST_ALL=1` asks for that.
fn ways(field: &Field) -> impl Iterator<Item = usize> + use<> {
    let all = std::env::var_os("HOLDFAST_ALL").is_some();
    let turn = field.1 / 4 % 4;
    (0..8).filter(move |way| all || way % 4 == turn)
}

/// CRC-32C, bit by bit.
fn crc(seed: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78))
    };
    !bytes.iter().fold(!seed, step)
}

/// How the damage is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meeting {
    Open,
    Check,
    Scrub,
    /// A page of the data rots as well.
    Repair,
    Use,
}

const MEETINGS: [Meeting; 5] =
    [Meeting::Open, Meeting::Check, Meeting::Scrub, Meeting::Repair, Meeting::Use];

/// Two files that are kept in one pool, as they were left.
struct Kept {
    _folder: tempfile::TempDir,
    data: PathBuf,
    other: PathBuf,
    pool: PathBuf,
    /// All files, with what they held and their dates.
    left: Vec<(PathBuf, Vec<u8>, SystemTime)>,
}

impl Kept {
    fn new() -> Self {
        // On a disk: memory dates no stores, so what rots at rest there is in doubt.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let at = |name: &str| folder.path().join(name);
        let (data, other, pool) = (at("data.bin"), at("other.bin"), at("keep.pool"));
        Pool::options().size(4 << 20).frame(4096).create(&pool).unwrap().close();
        for path in [&data, &other] {
            fs::write(path, content(PAGES)).unwrap();
            ProtectedFile::protect(path, &ProtectOptions::new().pool(&pool))
                .unwrap()
                .close()
                .unwrap();
        }
        let files =
            [data.clone(), other.clone(), pool.clone(), side_path(&data), side_path(&other)];
        let left = files.map(|path| {
            let date = fs::metadata(&path).unwrap().modified().unwrap();
            (path.clone(), fs::read(&path).unwrap(), date)
        });
        Self { _folder: folder, data, other, pool, left: left.to_vec() }
    }

    /// Everything is again what it was. The files stay the same ones, unless one is gone.
    fn restore(&self) {
        for (path, bytes, date) in &self.left {
            fs::write(path, bytes).unwrap();
            File::options().write(true).open(path).unwrap().set_modified(*date).unwrap();
        }
    }

    fn pointer(&self) -> PathBuf {
        side_path(&self.data)
    }

    fn rot(&self) {
        let mut bytes = content(PAGES);
        bytes[ROTTEN * PAGE as usize + 5] ^= 0x20;
        fs::write(&self.data, bytes).unwrap();
        let (_, _, date) = &self.left[0];
        File::options().write(true).open(&self.data).unwrap().set_modified(*date).unwrap();
    }

    /// Damages the pointer: one copy, or both and their sums with them.
    fn damage_pointer(&self, field: &Field, way: usize, sealed: bool) -> bool {
        let mut bytes = fs::read(self.pointer()).unwrap();
        let (_, at, len) = field;
        let at = HEAD + at;
        let new = damaged(way, &bytes[at..at + len], &bytes[at + len..at + 2 * len]);
        if new == bytes[at..at + len] {
            return false;
        }
        for copy in 0..if sealed { 2 } else { 1 } {
            let page = &mut bytes[copy * PAGE as usize..][..PAGE as usize];
            page[at..at + len].copy_from_slice(&new);
            if sealed {
                let sum = crc(crc(0, &0_u64.to_le_bytes()), &page[4..]);
                page[..4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        fs::write(self.pointer(), bytes).unwrap();
        true
    }

    /// Changes what the pool has of the region of the first file, by a transaction.
    fn damage_extent(&self, field: &Field, way: usize) -> bool {
        let named = fs::read(self.pointer()).unwrap();
        let digits: String =
            named[HEAD + 32..HEAD + 48].iter().map(|b| format!("{b:02x}")).collect();
        let pool = Pool::open(&self.pool).unwrap();
        let map = pool.map::<u64, [u8]>(&format!("holdfast.side.{digits}")).unwrap();
        let mut extent = map.get(&u64::MAX).unwrap().unwrap();
        let (_, at, len) = field;
        let new = damaged(way, &extent[*at..at + len], &extent[at + len..]);
        if new == extent[*at..at + len] {
            return false;
        }
        extent[*at..at + len].copy_from_slice(&new);
        map.put(&u64::MAX, &extent[..]).unwrap();
        true
    }

    /// Meets it. What comes of it, if that is no error.
    fn meet(&self, meeting: Meeting) -> holdfast::Result<()> {
        let options = ProtectOptions::new();
        match meeting {
            Meeting::Open => ProtectedFile::open(&self.data, &options)?.close(),
            Meeting::Check => {
                ProtectedFile::look(&self.data, &options)?.verify(|_, _| true).map(drop)
            }
            Meeting::Scrub | Meeting::Repair => {
                let file = ProtectedFile::open(&self.data, &options)?;
                file.repair(false, |_, _| true)?;
                file.close()
            }
            Meeting::Use => {
                let options = options.durability(Durability::Power).scrub_regions(0);
                let options = options.tracking(Tracking::Notified);
                let options = options.period(Duration::from_secs(3_600));
                let file = ProtectedMap::open(&self.data, &options)?;
                file.write(3, b"stored")?;
                file.update_now()?;
                file.close()
            }
        }
    }

    /// Nothing but what was stored, or given back, has changed; the other file is kept as before.
    fn judge(&self, meeting: Meeting, answer: &holdfast::Result<()>, tolerated: bool, what: &str) {
        let now = fs::read(&self.data).unwrap();
        let mut stored = content(PAGES);
        stored[3..9].copy_from_slice(b"stored");
        let same = now == content(PAGES);
        match meeting {
            Meeting::Use => assert!(now == stored || same && answer.is_err(), "{what}: the file"),
            Meeting::Repair => {
                let mut rotten = content(PAGES);
                rotten[ROTTEN * PAGE as usize + 5] ^= 0x20;
                assert!(same || !tolerated && now == rotten, "{what}: the file");
            }
            _ => assert!(same, "{what}: the file changed"),
        }
        if tolerated {
            assert!(answer.is_ok(), "{what}: {answer:?}");
            let file = ProtectedFile::look(&self.data, &ProtectOptions::new()).unwrap();
            assert!(file.verify(|_, _| true).unwrap().is_clean(), "{what}");
        }
        let other = ProtectedFile::look(&self.other, &ProtectOptions::new()).unwrap();
        assert!(other.verify(|_, _| true).unwrap().is_clean(), "{what}: the other file");
        drop(other);
        assert!(fs::read(&self.other).unwrap() == content(PAGES), "{what}: the other file");
        let report = Pool::open(&self.pool).unwrap().check(|_, _| {}).unwrap();
        assert!(report.is_clean(), "{what}: the pool: {report:?}");
    }

    /// One run; whether it damaged anything.
    fn play(
        &self,
        meeting: Meeting,
        tolerated: bool,
        what: &str,
        damage: impl Fn() -> bool,
    ) -> bool {
        self.restore();
        if !damage() {
            return false;
        }
        if meeting == Meeting::Repair {
            self.rot();
        }
        let begun = Instant::now();
        let answer = self.meet(meeting);
        let what = format!("{what}, met by {meeting:?}, answered {answer:?}");
        self.judge(meeting, &answer, tolerated, &what);
        assert!(begun.elapsed() < SLOW, "{what}: took {:?}", begun.elapsed());
        true
    }
}

#[test]
fn every_field_of_a_pointer_may_be_damaged() {
    let kept = Kept::new();
    let mut runs = 0;
    for field in fields("POINTER") {
        let mut hit = 0;
        for way in ways(&field) {
            for sealed in [false, true] {
                let what = format!("{}, way {way}, sealed {sealed}", field.0);
                for meeting in MEETINGS {
                    let damage = || kept.damage_pointer(&field, way, sealed);
                    hit += u64::from(kept.play(meeting, !sealed, &what, damage));
                }
            }
        }
        assert!(hit >= 10, "{}: damaged {hit} times", field.0);
        runs += hit;
    }
    println!("pointers: {runs} runs");
}

#[test]
fn every_field_of_a_region_in_a_pool_may_be_damaged() {
    let kept = Kept::new();
    let mut runs = 0;
    for field in fields("EXTENT") {
        let mut hit = 0;
        for way in ways(&field) {
            let what = format!("{}, way {way}", field.0);
            for meeting in MEETINGS {
                let damage = || kept.damage_extent(&field, way);
                hit += u64::from(kept.play(meeting, false, &what, damage));
            }
        }
        assert!(hit >= 5, "{}: damaged {hit} times", field.0);
        runs += hit;
    }
    println!("regions: {runs} runs");
}

/// The sum that is computed here is the one that pointers have: else nothing would be hostile.
#[test]
fn a_pointer_that_is_sealed_as_it_was_is_the_same() {
    let kept = Kept::new();
    let bytes = fs::read(kept.pointer()).unwrap();
    for page in bytes.chunks(PAGE as usize) {
        let sum = crc(crc(0, &0_u64.to_le_bytes()), &page[4..]);
        assert_eq!(page[..4], sum.to_le_bytes());
    }
    kept.restore();
    assert!(kept.meet(Meeting::Check).is_ok());
}
