//! A private copy takes every change and lets none of them reach the file.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use common::{HERE, filled, folders, numbered, protected};
use holdfast_pmem::inject::{Poison, poison};
use holdfast_pmem::{Access, Mapped, MediaCause, MediaError, Medium, Options, PAGE, Protect};

#[test]
fn no_call_changes_the_file() {
    for folder in folders() {
        let (path, writer) = numbered(&folder, 8, &protected(Protect::Alias));
        let before = std::fs::read(&path).unwrap();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        // Beside the writer, who holds the lock.
        let copy = Mapped::open(&path, Access::PrivateCopy, &Options::default()).unwrap();
        copy.put(HERE, 0, &filled(0x11)).unwrap();
        copy.xor(HERE, PAGE, &[0xff; 300]).unwrap();
        copy.zero(HERE, 2 * PAGE + 5, 600).unwrap();
        copy.append(HERE, 3 * PAGE, b"recovered").unwrap();
        copy.drain(HERE);
        copy.sync(HERE).unwrap();
        poison(&copy, 4 * PAGE, PAGE, Poison::Clearable).unwrap();
        assert!(copy.read(4 * PAGE, &mut [0]).is_err());
        copy.heal(HERE, 4 * PAGE, &filled(0x44)).unwrap();
        // A frame moved to a spare that was filled in memory only.
        copy.put(HERE, 7 * PAGE, &filled(0x77)).unwrap();
        poison(&copy, 5 * PAGE, PAGE, Poison::Unclearable).unwrap();
        assert!(copy.heal(HERE, 5 * PAGE, &filled(0x55)).is_err());
        copy.remap(5 * PAGE, 7 * PAGE, PAGE).unwrap();
        copy.grow(10 * PAGE).unwrap();
        copy.put(HERE, 9 * PAGE, &filled(0x99)).unwrap();

        let shown = |page: u64| {
            let mut found = filled(0);
            copy.read(page * PAGE, &mut found).unwrap();
            found
        };
        assert_eq!(shown(0), filled(0x11));
        assert_eq!(shown(1)[299..301], [0xfe, 1]);
        assert_eq!(shown(2)[4..6], [2, 0]);
        assert_eq!(shown(3)[..9], *b"recovered");
        assert_eq!(shown(4), filled(0x44));
        assert_eq!(shown(5), filled(0x77));
        assert_eq!(shown(8), filled(0));
        assert_eq!(shown(9), filled(0x99));
        drop(copy);

        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), modified);
        let mut found = filled(0);
        writer.read(PAGE, &mut found).unwrap();
        assert_eq!(found, filled(1));
    }
}

#[test]
fn pages_that_only_the_copy_has_go_bad_and_move_like_the_files() {
    for folder in folders() {
        let (path, writer) = numbered(&folder, 8, &protected(Protect::Alias));
        let copy = Mapped::open(&path, Access::PrivateCopy, &Options::default()).unwrap();
        copy.fill_holes().unwrap();
        copy.grow(10 * PAGE).unwrap();
        let bad = |at| Err(MediaError { at, len: PAGE, cause: MediaCause::Poison });
        poison(&copy, 9 * PAGE, PAGE, Poison::Clearable).unwrap();
        assert_eq!(copy.read(9 * PAGE, &mut [0]), bad(9 * PAGE), "the file has no such page");
        // There is nothing to be taken over from it.
        copy.remap(3 * PAGE, 9 * PAGE, PAGE).unwrap();
        assert_eq!(copy.read(3 * PAGE, &mut [0]), bad(3 * PAGE));
        copy.remap(3 * PAGE, 3 * PAGE, PAGE).unwrap();
        let mut found = filled(0);
        copy.read(3 * PAGE, &mut found).unwrap();
        assert_eq!(found, filled(3));
        drop(copy);
        writer.fill_holes().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 * PAGE);
    }
}

#[test]
fn an_observer_can_store_nothing() {
    for folder in folders() {
        let (path, _writer) = numbered(&folder, 4, &protected(Protect::Alias));
        let before = std::fs::read(&path).unwrap();
        let observer = Mapped::open(&path, Access::ReadOnly, &Options::default()).unwrap();
        assert!(observer.put(HERE, 0, &[1]).is_err());
        assert!(observer.xor(HERE, 0, &[1]).is_err());
        assert!(observer.zero(HERE, 0, 1).is_err());
        assert!(observer.append(HERE, 0, &[1]).is_err());
        assert!(observer.heal(HERE, 0, &filled(9)).is_err());
        assert!(poison(&observer, 0, PAGE, Poison::Clearable).is_err());
        observer.sync(HERE).unwrap();
        let mut found = filled(0);
        observer.read(3 * PAGE, &mut found).unwrap();
        assert_eq!(found, filled(3));
        // It sees what the writer moved if it is told where.
        observer.remap(0, 2 * PAGE, PAGE).unwrap();
        observer.read(0, &mut found).unwrap();
        assert_eq!(found, filled(2));
        drop(observer);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
