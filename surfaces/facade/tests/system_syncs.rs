//! What a protected file was asked for and answered as done survives a power cut, as far as the
//! system is asked for that: every sync that the facade asks for is left out in its turn, and the
//! judge must notice. Those of the engines are left out on a medium that a test makes, those of
//! the medium in the tests of its crate.
//!
//! One test in a program of its own: calls are told for the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast::Pool;
use holdfast::protect::{KeptRegion, ProtectOptions, ProtectedFile, ProtectedMap, side_path};
use holdfast_pmem::inject::{Told, listen, taken_back, told};
use holdfast_pmem::{Access, Making, Mapped, Medium, MediumKind, Options, Site};

const PAGE: u64 = 4096;
const PAGES: u64 = 24;

/// What is asked for.
struct Deed {
    name: &'static str,
    before: fn(&Path),
    act: fn(&Path),
    /// A sync behind which the side file is stored to: earlier ones count for nothing.
    after: Option<&'static str>,
    /// Where what is asked for would be too late: later syncs count for nothing.
    too_late: Option<fn(&[Told], &Path) -> usize>,
    /// Names of syncs that it needs.
    sites: &'static [&'static str],
    /// Files that are stored to, and whether names change.
    stores: fn(&Path) -> Vec<PathBuf>,
    names: bool,
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data.bin")
}

fn earlier(folder: &Path) -> PathBuf {
    folder.join("earlier.bin")
}

/// Nothing is synced but where it has to be.
fn keep() -> ProtectOptions {
    ProtectOptions::new().period(Duration::from_secs(3_600))
}

fn with_a_file(folder: &Path) {
    let content: Vec<u8> = (0..PAGES * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect();
    fs::write(data(folder), content).unwrap();
}

fn with_a_protected_file(folder: &Path) {
    with_a_file(folder);
    ProtectedFile::protect(data(folder), &keep()).unwrap().close().unwrap();
}

fn pool(folder: &Path) -> PathBuf {
    folder.join("keep.pool")
}

/// Its pointer was put aside by somebody who was killed then: the region in the pool is left.
fn with_a_region_that_is_left(folder: &Path) {
    with_a_file(folder);
    Pool::options().size(16 << 20).create(pool(folder)).unwrap().close();
    let within = keep().pool(pool(folder));
    ProtectedFile::protect(data(folder), &within).unwrap().close().unwrap();
    let pointer = side_path(&data(folder));
    fs::rename(&pointer, Making::name_of(&pointer)).unwrap();
}

/// What is written to the pool first, once it was looked where the pointers of its regions are.
fn removal(told: &[Told], folder: &Path) -> usize {
    let pool = number(&pool(folder));
    let looked = told.iter().rposition(|call| call.call == "open").map_or(0, |at| at + 1);
    let written = told[looked..].iter().position(|call| call.inode == Some(pool));
    looked + written.expect("a region is removed by commits")
}

fn number(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

const DEEDS: &[Deed] = &[
    Deed {
        name: "protect a file",
        before: with_a_file,
        act: |folder| ProtectedFile::protect(data(folder), &keep()).unwrap().close().unwrap(),
        after: Some("mapped.protect.date"),
        too_late: None,
        sites: &["facade.rest.sync", "pmem.making.named"],
        stores: |folder| vec![side_path(&data(folder))],
        names: true,
    },
    Deed {
        name: "end the protection of a file",
        before: with_a_protected_file,
        act: |folder| {
            ProtectedFile::open(data(folder), &keep()).unwrap().unprotect().unwrap();
        },
        after: None,
        too_late: None,
        sites: &["pmem.making.gone"],
        stores: |_| Vec::new(),
        names: true,
    },
    Deed {
        name: "remove a side file",
        before: with_a_protected_file,
        act: |folder| drop(ProtectedFile::remove_side(data(folder), &keep()).unwrap()),
        after: None,
        too_late: None,
        sites: &["facade.side.removed"],
        stores: |_| Vec::new(),
        names: true,
    },
    Deed {
        name: "store to a mapped file and sync it",
        before: with_a_protected_file,
        act: |folder| {
            let file = ProtectedMap::open(data(folder), &keep()).unwrap();
            file.write(3 * PAGE + 10, b"stored").unwrap();
            file.sync().unwrap();
            let _ = told_so_far();
            // What the end does is no matter of this deed.
            drop(file);
        },
        after: None,
        too_late: None,
        sites: &["facade.live.sync-data"],
        stores: |folder| vec![data(folder)],
        names: false,
    },
    Deed {
        name: "write what a file was",
        before: with_a_protected_file,
        act: |folder| {
            let file = ProtectedFile::look(data(folder), &keep()).unwrap();
            file.before(&earlier(folder), |_, _| true).unwrap().unwrap();
        },
        after: None,
        too_late: None,
        sites: &["facade.before.written", "pmem.making.named"],
        stores: |folder| vec![earlier(folder)],
        names: true,
    },
    Deed {
        name: "remove a region that was left in a pool",
        before: with_a_region_that_is_left,
        act: |folder| {
            let (removed, kept) = KeptRegion::sweep(&pool(folder), &[]).unwrap();
            assert_eq!((removed.len(), kept.len()), (1, 0));
        },
        after: None,
        too_late: Some(removal),
        sites: &["facade.region.swept"],
        stores: |_| Vec::new(),
        names: true,
    },
];

/// Ends the listening before the deed is over.
fn told_so_far() -> bool {
    let mut heard = HEARD.lock().unwrap();
    let first = heard.is_none();
    if first {
        *heard = Some(told());
    }
    first
}

static HEARD: std::sync::Mutex<Option<Vec<Told>>> = std::sync::Mutex::new(None);

/// Does it with a sync left out; what could be taken back, and the names of the syncs there were.
fn play(deed: &Deed, off: Option<&str>) -> (Option<String>, Vec<&'static str>) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = folder.path();
    (deed.before)(folder);
    *HEARD.lock().unwrap() = None;
    listen(off);
    (deed.act)(folder);
    told_so_far();
    let told = HEARD.lock().unwrap().take().unwrap();
    let files: Vec<u64> = (deed.stores)(folder).iter().map(|path| number(path)).collect();
    let is_it = |call: &Told| deed.after.is_some() && call.site.map(Site::name) == deed.after;
    let from = told.iter().rposition(is_it).map_or(0, |at| at + 1);
    let to = deed.too_late.map_or(told.len(), |too_late| too_late(&told, folder));
    let lost = taken_back(&told[from..to], number(folder), deed.names, &files);
    (lost, told.iter().filter_map(|call| Some(call.site?.name())).collect())
}

#[test]
fn without_any_of_its_syncs_something_that_was_answered_could_be_lost() {
    let here = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let probe = Mapped::create(&here.path().join("probe"), PAGE, &Options::default()).unwrap();
    if probe.kind() != MediumKind::File || probe.access() != Access::Write {
        println!("skipped: the build is in memory, where nothing is synced");
        return;
    }
    for deed in DEEDS {
        let (lost, passed) = play(deed, None);
        println!("{}: passes {passed:?}", deed.name);
        assert_eq!(lost, None, "{}: with all of its syncs: {passed:?}", deed.name);
        for site in deed.sites {
            assert!(passed.contains(site), "{}: {site} is not passed, but {passed:?}", deed.name);
            let (lost, _) = play(deed, Some(site));
            let lost = lost.unwrap_or_else(|| panic!("{} without {site}: unnoticed", deed.name));
            println!("{} without {site}: {lost}", deed.name);
        }
    }
}
