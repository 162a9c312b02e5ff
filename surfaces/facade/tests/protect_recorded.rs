//! A program that is killed with stores that no pass has covered, and what is known of them: where
//! first stores are recorded, everything; where they are not, nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

#[path = "all/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use common::{Alone, PAGE};
use holdfast::protect::{
    Durability, ProtectOptions, ProtectedFile, ProtectedMap, Tracking, Unsure, Verified,
};

/// Bytes the file begins with: its last page is not mapped.
const LEN: u64 = 600 * PAGE + 100;
/// What the other half of a test is to do, where, and how.
const PART: &str = "HOLDFAST_TEST_PART";
const PATH: &str = "HOLDFAST_TEST_PATH";
const HOW: &str = "HOLDFAST_TEST_HOW";

impl Alone {
    /// Lets the other half do its part; it is ready, and will go on until it is killed.
    fn program(&self, part: &str, how: &str) -> Killed {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "the_program", "--nocapture"]).stdout(Stdio::piped());
        child.env(PART, part).env(PATH, &self.path).env(HOW, how);
        let mut child = child.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")), "it failed");
        Killed(child)
    }

    fn verify(&self) -> Verified {
        let file = ProtectedFile::look(&self.path, &ProtectOptions::new()).unwrap();
        file.verify(|_, _| true).unwrap()
    }

    /// Opened, closed, and looked at: how many pages are undecided, and that nothing is wrong.
    fn recovered(&self) -> BTreeSet<u64> {
        let before = fs::read(&self.path).unwrap();
        let looked = self.verify();
        assert!(looked.corrupt.is_empty(), "{looked:?}");
        ProtectedFile::open(&self.path, &ProtectOptions::new()).unwrap().close().unwrap();
        let found = self.verify();
        assert_eq!((found.corrupt.len(), found.uncovered, found.gone), (0, 0, 0), "{found:?}");
        assert!(fs::read(&self.path).unwrap() == before, "taken back");
        assert_eq!(looked.undecided.len(), found.undecided.len());
        found.undecided.iter().map(|(page, _)| *page).collect()
    }

    /// Damages pages as rot does, and has them repaired.
    fn gives_back(&self, pages: &[u64]) {
        let before = fs::read(&self.path).unwrap();
        for page in pages {
            self.rot(*page);
        }
        let file = ProtectedFile::open(&self.path, &ProtectOptions::new()).unwrap();
        let done = file.repair(false, |_, _| true).unwrap();
        file.close().unwrap();
        assert_eq!(done.repaired, pages);
        assert!(fs::read(&self.path).unwrap() == before);
    }

    fn rot(&self, page: u64) {
        self.rot_at(page * PAGE + 99);
    }

    fn rot_at(&self, at: u64) {
        let date = fs::metadata(&self.path).unwrap().modified().unwrap();
        let file = File::options().read(true).write(true).open(&self.path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
        file.set_modified(date).unwrap();
    }
}

/// A program that is killed at the end, if not before.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other half of the other tests, which run it in a process of its own.
#[test]
fn the_program() {
    let (Some(part), Some(path)) = (std::env::var_os(PART), std::env::var_os(PATH)) else { return };
    let how = std::env::var(HOW).unwrap();
    let tracking = if how.contains("recorded") { Tracking::Recorded } else { Tracking::FirstStore };
    let power = if how.contains("power") { Durability::Power } else { Durability::Process };
    let options = ProtectOptions::new().tracking(tracking).durability(power).scrub_regions(0);
    if part == "storm" {
        storm(&ProtectedMap::open(&path, &options.period(Duration::from_millis(1))).unwrap());
    }
    let map = ProtectedMap::open(&path, &options.period(Duration::from_secs(3600))).unwrap();
    if part == "short" {
        map.write(20, b"stored").unwrap();
    } else {
        stores(&map);
    }
    if part == "covered" {
        map.update_now().unwrap();
    }
    println!("ready");
    loop {
        std::thread::park();
    }
}

fn store(map: &ProtectedMap, at: u64, value: u64) {
    let (address, len) = map.address().unwrap();
    assert!(at + 8 <= len);
    // SAFETY: aligned and inside of the mapping, which lives as long as `map`.
    unsafe { address.add(at as usize).cast::<u64>().write_volatile(value) };
}

/// Pages of the first and the second region, pages that the file has grown by twice, pages that
/// are stored to before and after a pass, the end that is not mapped, and one that came to be.
const STORED: [u64; 9] = [5, 300, 599, 600, 650, 699, 700, 790, 800];

fn stores(map: &ProtectedMap) {
    store(map, 3 * PAGE, 1);
    store(map, 5 * PAGE, 1);
    map.write(600 * PAGE + 8, b"the end").unwrap();
    map.update_now().unwrap();
    store(map, 4 * PAGE, 1);
    map.write(600 * PAGE + 16, b"the end again").unwrap();
    map.grow(700 * PAGE + 50).unwrap();
    map.grow(800 * PAGE + 50).unwrap();
    // A part without storage is not looked after before it has some.
    store(map, 789 * PAGE, 1);
    map.write(800 * PAGE, b"one").unwrap();
    map.update_now().unwrap();
    for page in STORED {
        if page < 800 {
            store(map, page * PAGE + 8 * page % PAGE, page);
        }
    }
    map.write(800 * PAGE + 20, b"the last end").unwrap();
}

/// Stores everywhere until it is killed, a pass each millisecond, and grows now and then.
fn storm(map: &ProtectedMap) -> ! {
    println!("ready");
    let mut x: u64 = std::process::id().into();
    for turn in 1_u64.. {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let pages = map.address().unwrap().1 / PAGE;
        let page = x % pages;
        store(map, page * PAGE + (x >> 32) % (PAGE / 8) * 8, page << 32 | turn & 0xffff_ffff);
        if turn % 512 == 0 {
            let len = map.len();
            map.write(len - 1, &[turn as u8]).unwrap();
            if pages < 1500 && turn % 8192 == 0 {
                map.grow(len + x % (3 * PAGE)).unwrap();
            }
        }
    }
    unreachable!("it stores until it is killed")
}

#[test]
fn what_is_on_record_is_covered_and_what_is_not_is_undecided() {
    for how in ["recorded", "recorded, power", "not"] {
        let here = Alone::protected(LEN);
        drop(here.program("stores", how));
        let stored = fs::read(&here.path).unwrap();
        assert_eq!(stored.len() as u64, 800 * PAGE + 50);
        let undecided = here.recovered();
        if how == "not" {
            assert_eq!(undecided, BTreeSet::from(STORED), "{how}");
            continue;
        }
        assert_eq!(undecided, BTreeSet::new(), "{how}");
        assert!(here.verify().is_clean() && !here.verify().changed);
        assert!(fs::read(&here.path).unwrap() == stored, "{how}");
        // One of each stripe.
        here.gives_back(&[5, 300, 599, 650, 699, 700, 790]);
    }
}

#[test]
fn damage_beside_what_is_on_record_is_not_covered() {
    let here = Alone::protected(LEN);
    drop(here.program("stores", "recorded"));
    for page in [9, 301] {
        here.rot(page);
    }
    // The stores have changed the date of the file, so nobody knows who changed these.
    File::open(&here.path).unwrap().set_modified(SystemTime::now()).unwrap();
    let found = here.verify();
    let lost: Vec<_> = [9, 301].map(|page| (page, Unsure::TrackingLost)).to_vec();
    assert_eq!((&found.undecided, found.corrupt.len()), (&lost, 0));
    assert_eq!(here.recovered(), BTreeSet::from([9, 301]));
    // For good, and what it was is beside it.
    let file = ProtectedFile::look(&here.path, &ProtectOptions::new()).unwrap();
    assert!(file.before_image(9).unwrap().unwrap() == vec![7; PAGE as usize]);
    drop(file);
    assert_eq!(here.recovered(), BTreeSet::from([9, 301]));
}

/// What a pass has covered is off the record, whether it is mapped or not.
#[test]
fn damage_to_what_was_covered_before_the_death_is_no_store() {
    let here = Alone::protected(LEN);
    drop(here.program("covered", "recorded"));
    let rotten = [5, 650, 800];
    for page in rotten {
        here.rot_at(page * PAGE + 9);
    }
    assert_eq!(here.recovered(), BTreeSet::from(rotten));
}

#[test]
fn a_file_of_less_than_a_page_is_on_record_as_well() {
    for (how, undecided) in [("recorded", BTreeSet::new()), ("not", BTreeSet::from([0]))] {
        let here = Alone::protected(100);
        drop(here.program("short", how));
        assert_eq!(here.recovered(), undecided, "{how}");
        assert!(fs::read(&here.path).unwrap()[20..].starts_with(b"stored"));
    }
}

#[test]
fn a_program_killed_in_its_passes_leaves_nothing_undecided() {
    let here = Alone::protected(LEN);
    let mut passed = 0;
    for round in 0..12_u64 {
        let program = here.program("storm", "recorded");
        std::thread::sleep(Duration::from_millis(20 + round * 37 % 100));
        drop(program);
        let stored = fs::read(&here.path).unwrap();
        for (page, bytes) in (0..).zip(stored.chunks_exact(PAGE as usize)) {
            let words =
                bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            let mine = words.filter(|word| *word >> 32 == page).count();
            passed += mine;
        }
        assert_eq!(here.recovered(), BTreeSet::new(), "round {round}");
        let last = stored.len() as u64 / PAGE / 4 * 4;
        here.gives_back(&[round % 4, 256 + round, 512 + round, last - 1]);
    }
    assert!(passed > 1000, "{passed} words were stored");
}

/// Stores that no pass has covered when the file grows from the middle of a page.
#[test]
fn growth_leaves_nothing_undecided() {
    for tracking in [Tracking::Auto, Tracking::FirstStore, Tracking::Recorded] {
        let here = Alone::protected(LEN);
        let options = ProtectOptions::new().period(Duration::from_secs(3600)).tracking(tracking);
        let map = ProtectedMap::open(&here.path, &options).unwrap();
        for len in [LEN + PAGE, LEN + 2 * PAGE - 100, 768 * PAGE, 900 * PAGE + 1] {
            let last = map.len() / PAGE;
            store(&map, 590 * PAGE, len);
            store(&map, (last - 1) * PAGE, len);
            map.grow(len).unwrap();
            assert_eq!(map.status().unwrap().coverage.undecided, 0, "{tracking:?}: {len}");
            store(&map, last.min(len / PAGE - 1) * PAGE, len);
            let done = map.update_now().unwrap();
            assert_eq!((done.undecided, done.corrupt), (0, 0), "{tracking:?}: {len}");
        }
        map.close().unwrap();
        assert!(here.verify().is_clean());
    }
}
