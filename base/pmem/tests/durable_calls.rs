//! What is answered as done survives a power cut, as far as the system is asked for that: every
//! sync that this crate asks for is left out in its turn, and the judge must notice.
//!
//! The judge is told each call and knows what POSIX promises: what a call changed of a file is
//! durable once that file was synced, a name once its folder was. One test in a program of its own,
//! since calls are told for the whole process.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_pmem::inject::{Told, listen, taken_back, told};
use holdfast_pmem::{
    ForeignFile, Making, Mapped, Medium, MediumKind, Options, PAGE, PutAside, Site, SyncError,
};

/// What a caller names its own syncs.
const HERE: Site = Site::new("test.here");

/// What is asked for.
struct Deed {
    name: &'static str,
    /// What is there before, which nobody listens to.
    before: fn(&Path),
    act: fn(&Path),
    /// Names of the syncs in it.
    sites: &'static [&'static str],
    /// Whether stores to the file `a` are in it that no call tells, or a name.
    stores: bool,
    names: bool,
}

fn a(folder: &Path) -> PathBuf {
    folder.join("a")
}

fn made(folder: &Path) {
    fs::write(a(folder), vec![1; 4 * PAGE as usize]).unwrap();
}

fn mapped(folder: &Path) {
    drop(Mapped::create(&a(folder), 4 * PAGE, &Options::default()).unwrap());
}

fn open(folder: &Path) -> Mapped {
    Mapped::open(&a(folder), holdfast_pmem::Access::Write, &Options::default()).unwrap()
}

fn foreign(folder: &Path) -> ForeignFile {
    let file = File::options().read(true).write(true).open(a(folder)).unwrap();
    ForeignFile::new(Arc::new(file))
}

/// Stores to a mapping and makes that durable.
fn store(folder: &Path, sync: fn(&Mapped, Site) -> Result<(), SyncError>) {
    let medium = open(folder);
    medium.put(HERE, 0, b"kept").unwrap();
    sync(&medium, HERE).unwrap();
}

/// Makes a file that gets its name when it is whole, perhaps in the place of another.
fn make(folder: &Path, instead: bool) {
    let mut making = Making::begin(&a(folder)).unwrap();
    let medium = making.map(PAGE, holdfast_pmem::Room::Taken, &Options::default()).unwrap();
    medium.put(HERE, 0, b"kept").unwrap();
    medium.sync(HERE).unwrap();
    making.keep(instead).unwrap();
}

const NONE: fn(&Path) = |_| {};

const DEEDS: &[Deed] = &[
    Deed {
        name: "create a mapping",
        before: NONE,
        act: mapped,
        sites: &["pmem.file.made", "pmem.file.named"],
        stores: false,
        names: true,
    },
    Deed {
        name: "grow a mapping",
        before: mapped,
        act: |folder| open(folder).grow(9 * PAGE).unwrap(),
        sites: &["pmem.file.grown"],
        stores: false,
        names: false,
    },
    Deed {
        name: "store to a mapping and sync it",
        before: mapped,
        act: |folder| store(folder, Mapped::sync),
        sites: &["test.here"],
        stores: true,
        names: false,
    },
    Deed {
        name: "store to a mapping and sync it through",
        before: mapped,
        act: |folder| store(folder, Mapped::sync_through),
        sites: &["test.here"],
        stores: true,
        names: false,
    },
    Deed {
        name: "append to a mapping",
        before: mapped,
        act: |folder| open(folder).append(HERE, 100, b"kept").unwrap(),
        sites: &["test.here"],
        stores: false,
        names: false,
    },
    Deed {
        name: "append to a mapping of which a page was moved",
        before: mapped,
        act: |folder| {
            let medium = open(folder);
            medium.remap(0, 3 * PAGE, PAGE).unwrap();
            medium.append(HERE, PAGE - 2, b"kept").unwrap();
        },
        sites: &["test.here"],
        stores: false,
        names: false,
    },
    Deed {
        name: "rewrite a page of a mapping",
        before: mapped,
        act: |folder| open(folder).heal(HERE, PAGE, &[2; PAGE as usize]).unwrap(),
        sites: &["test.here"],
        stores: false,
        names: false,
    },
    Deed {
        name: "make a file that has its name when it is whole",
        before: NONE,
        act: |folder| make(folder, false),
        sites: &["pmem.making.named", "test.here"],
        stores: true,
        names: true,
    },
    Deed {
        name: "make one in the place of another",
        before: made,
        act: |folder| make(folder, true),
        sites: &["pmem.making.named", "test.here"],
        stores: true,
        names: true,
    },
    Deed {
        name: "put a file aside",
        before: made,
        act: |folder| drop(PutAside::begin(&a(folder)).unwrap()),
        sites: &["pmem.making.aside"],
        stores: false,
        names: true,
    },
    Deed {
        name: "put a file aside and back",
        before: made,
        act: |folder| PutAside::begin(&a(folder)).unwrap().back().unwrap(),
        // That it was aside need not be durable any more.
        sites: &["pmem.making.back"],
        stores: false,
        names: true,
    },
    Deed {
        name: "put a file aside and remove it",
        before: made,
        act: |folder| PutAside::begin(&a(folder)).unwrap().remove(),
        sites: &["pmem.making.gone"],
        stores: false,
        names: true,
    },
    Deed {
        name: "change a file of somebody else's",
        before: made,
        act: |folder| {
            let file = foreign(folder);
            file.put(Site::new("test.put"), 100, b"kept").unwrap();
            file.sync(HERE).unwrap();
        },
        sites: &["test.here"],
        stores: true,
        names: false,
    },
    Deed {
        name: "append to a file of somebody else's",
        before: made,
        act: |folder| foreign(folder).append(HERE, 100, b"kept").unwrap(),
        sites: &["test.here"],
        stores: true,
        names: false,
    },
    Deed {
        name: "rewrite a page of a file of somebody else's",
        before: made,
        act: |folder| foreign(folder).heal(HERE, PAGE, &[2; PAGE as usize]).unwrap(),
        sites: &["test.here"],
        stores: true,
        names: false,
    },
    Deed {
        name: "change a file of somebody else's, with its date",
        before: made,
        act: |folder| {
            let file = foreign(folder);
            file.zero(Site::new("test.put"), 100, 50).unwrap();
            file.sync_through(HERE).unwrap();
        },
        sites: &["test.here"],
        stores: true,
        names: false,
    },
];

/// What a power cut after `told` could take back.
fn lost(told: &[Told], folder: &Path, deed: &Deed) -> Option<String> {
    let number = |path: &Path| fs::metadata(path).map(|found| found.ino()).ok();
    let file = number(&a(folder)).filter(|_| deed.stores);
    let files: Vec<u64> = file.into_iter().collect();
    taken_back(told, number(folder).unwrap(), deed.names, &files)
}

/// Does it with a sync left out; what could be taken back, and the names of the syncs there were.
fn play(deed: &Deed, off: Option<&str>) -> (Option<String>, Vec<&'static str>) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    (deed.before)(folder.path());
    listen(off);
    (deed.act)(folder.path());
    let told = told();
    let lost = lost(&told, folder.path(), deed);
    (lost, told.iter().filter_map(|call| Some(call.site?.name())).collect())
}

#[test]
fn without_any_of_its_syncs_something_that_was_answered_could_be_lost() {
    let here = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    mapped(here.path());
    if open(here.path()).kind() != MediumKind::File {
        println!("skipped: the build is in memory, where nothing is synced");
        return;
    }
    for deed in DEEDS {
        let (lost, passed) = play(deed, None);
        assert_eq!(lost, None, "{}: with all of its syncs", deed.name);
        for site in deed.sites {
            assert!(passed.contains(site), "{}: {site} is not passed, but {passed:?}", deed.name);
            let (lost, _) = play(deed, Some(site));
            let lost = lost.unwrap_or_else(|| panic!("{} without {site}: unnoticed", deed.name));
            println!("{} without {site}: {lost}", deed.name);
        }
        let strange: Vec<_> = passed.iter().filter(|site| !deed.sites.contains(site)).collect();
        assert!(strange.iter().all(|site| **site == "pmem.making.aside"), "{strange:?}");
    }
}
