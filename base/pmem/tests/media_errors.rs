//! A page that raises a real `SIGBUS` under the library's own accesses is an error value, can be
//! rewritten or relocated, and takes nothing else with it.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod common;

use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use common::{HERE, filled, folders, numbered, protected};
use holdfast_pmem::inject::{Poison, handler_count, poison};
use holdfast_pmem::{
    Access, Mapped, MediaCause, MediaError, Medium, MediumKind, Options, PAGE, Protect,
};

/// The handler counts for the whole process, so these tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn at_page(page: u64) -> MediaError {
    MediaError { at: page * PAGE, len: PAGE, cause: MediaCause::Poison }
}

fn page_of(medium: &Mapped, page: u64) -> Vec<u8> {
    let mut found = filled(0xee);
    medium.read(page * PAGE, &mut found).unwrap();
    found
}

#[test]
fn every_kind_of_access_meets_the_page_and_returns() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders() {
        for protection in [Protect::Auto, Protect::Alias, Protect::Mprotect, Protect::None] {
            let folder = tempfile::tempdir_in(folder.path()).unwrap();
            let (_, medium) = numbered(&folder, 8, &protected(protection));
            poison(&medium, 3 * PAGE, PAGE, Poison::Clearable).unwrap();
            let before = handler_count();
            let mut accesses = 0;
            let mut bytes = vec![0; 5000];
            // Aligned words, odd tails, whole lines, ranges that run into the page and out of it.
            for (at, len) in [
                (3 * PAGE, 8),
                (3 * PAGE + 13, 3),
                (3 * PAGE + 4064, 64),
                (3 * PAGE - 64, 128),
                (3 * PAGE - 5, 300),
                (2 * PAGE + 100, 5000),
                (4 * PAGE - 1, 1),
            ] {
                let delta = vec![0x55; len];
                assert_eq!(medium.read(at, &mut bytes[..len]), Err(at_page(3)), "{at}+{len}");
                assert_eq!(medium.put(HERE, at, &delta), Err(at_page(3)), "{at}+{len}");
                assert_eq!(medium.xor(HERE, at, &delta), Err(at_page(3)), "{at}+{len}");
                assert_eq!(medium.zero(HERE, at, len as u64), Err(at_page(3)), "{at}+{len}");
                accesses += 4;
            }
            assert_eq!(handler_count() - before, accesses, "one signal per access");
            assert_eq!(medium.bad_ranges(), [(3 * PAGE, PAGE)]);
            // The rest of the pool is untouched where no access of ours went, and usable.
            assert_eq!(page_of(&medium, 5), filled(5));
            medium.put(HERE, 4 * PAGE, &filled(9)).unwrap();
            assert_eq!(page_of(&medium, 4), filled(9));
        }
    }
}

#[test]
fn a_clearable_page_is_healed_in_both_views_and_in_the_file() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders() {
        let (path, medium) = numbered(&folder, 4, &protected(Protect::Alias));
        poison(&medium, PAGE, PAGE, Poison::Clearable).unwrap();
        // What lay there is gone: no repair can fetch it from the file behind.
        let mut raw = [0; 16];
        std::fs::File::open(&path).unwrap().read_exact_at(&mut raw, PAGE).unwrap();
        assert_ne!(raw, [1; 16]);
        let before = handler_count();
        medium.heal(HERE, PAGE, &filled(1)).unwrap();
        assert_eq!(handler_count(), before);
        assert_eq!(page_of(&medium, 1), filled(1));
        let view = medium.view(PAGE, PAGE).unwrap();
        // SAFETY: a page of the mapping, which outlives this block; nobody stores to it.
        assert_eq!(unsafe { view.add(77).read() }, 1);
        assert_eq!(std::fs::read(&path).unwrap()[PAGE as usize..2 * PAGE as usize], filled(1));
        assert!(medium.bad_ranges().is_empty());
        // A second time, and a page that was never bad.
        medium.heal(HERE, PAGE, &filled(7)).unwrap();
        medium.put(HERE, PAGE + 8, &[1]).unwrap();
        assert_eq!(page_of(&medium, 1)[7..10], [7, 1, 7]);
    }
}

#[test]
fn healing_leaves_no_trace_in_the_table_of_mappings() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let pieces = |path: &std::path::Path| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains(path.to_str().unwrap())).count()
    };
    for folder in folders() {
        let (path, medium) = numbered(&folder, 64, &protected(Protect::Alias));
        assert_eq!(pieces(&path), 2, "a view and an alias");
        for page in (0..64).step_by(3) {
            poison(&medium, page * PAGE, PAGE, Poison::Clearable).unwrap();
        }
        assert!(pieces(&path) > 20);
        for page in (0..64).step_by(3) {
            medium.heal(HERE, page * PAGE, &filled(page as u8)).unwrap();
        }
        medium.grow(128 * PAGE).unwrap();
        assert_eq!(pieces(&path), 2);
    }
}

#[test]
fn an_unclearable_page_is_relocated_and_file_writes_follow() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders() {
        let (path, medium) = numbered(&folder, 8, &protected(Protect::Alias));
        poison(&medium, 2 * PAGE, PAGE, Poison::Unclearable).unwrap();
        let before = handler_count();
        let unclearable = MediaError { at: 2 * PAGE, len: PAGE, cause: MediaCause::Unclearable };
        for _ in 0..3 {
            assert_eq!(medium.heal(HERE, 2 * PAGE, &filled(2)), Err(unclearable));
        }
        assert_eq!(handler_count(), before);
        assert_eq!(medium.read(2 * PAGE, &mut [0]), Err(at_page(2)));

        // Serve pages 2 and 3 from 6 and 7, and rewrite what was in them.
        medium.remap(2 * PAGE, 6 * PAGE, 2 * PAGE).unwrap();
        assert!(medium.bad_ranges().is_empty());
        assert_eq!(page_of(&medium, 2), filled(6));
        medium.heal(HERE, 2 * PAGE, &filled(2)).unwrap();
        medium.put(HERE, 3 * PAGE, &filled(3)).unwrap();
        let site = HERE;
        medium.append(site, 3 * PAGE - 4, b"borderline").unwrap();
        medium.append(site, 2 * PAGE - 2, b"edge").unwrap();
        medium.sync(site).unwrap();
        assert_eq!(&page_of(&medium, 1)[4094..], b"ed");
        assert_eq!(&page_of(&medium, 2)[..3], b"ge\x02");
        assert_eq!(&page_of(&medium, 2)[4092..], b"bord");
        assert_eq!(&page_of(&medium, 3)[..7], b"erline\x03");
        let raw = std::fs::read(&path).unwrap();
        let page = |number: usize| &raw[number * PAGE as usize..(number + 1) * PAGE as usize];
        assert_eq!(&page(1)[4094..], b"ed");
        assert_eq!(&page(6)[..3], b"ge\x02");
        assert_eq!(&page(7)[..6], b"erline");
        assert_ne!(page(2)[..2], [2, 2], "the bad place was left behind");

        // The bad place itself stays bad wherever it is served.
        medium.remap(2 * PAGE, 2 * PAGE, PAGE).unwrap();
        assert_eq!(medium.read(2 * PAGE, &mut [0]), Err(at_page(2)));
    }
}

#[test]
fn memory_stands_in_for_a_page_that_stays_bad_and_the_file_sees_nothing_of_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders() {
        for protection in [Protect::Auto, Protect::Alias, Protect::Mprotect, Protect::None] {
            let folder = tempfile::tempdir_in(folder.path()).unwrap();
            let (path, medium) = numbered(&folder, 8, &protected(protection));
            poison(&medium, 2 * PAGE, PAGE, Poison::Unclearable).unwrap();
            medium.stand_in(2 * PAGE, &filled(0x22)).unwrap();
            assert!(medium.bad_ranges().is_empty());
            let before = handler_count();
            medium.put(HERE, 2 * PAGE - 4, b"borderline").unwrap();
            medium.xor(HERE, 2 * PAGE + 100, &[0xff]).unwrap();
            medium.drain(HERE);
            medium.sync(HERE).unwrap();
            assert_eq!(page_of(&medium, 2)[..7], *b"erline\x22");
            assert_eq!(page_of(&medium, 2)[100], !0x22);
            let view = medium.view(2 * PAGE, PAGE).unwrap();
            // SAFETY: one page of the mapping, which lives, and which nobody stores to.
            let seen = unsafe { std::slice::from_raw_parts(view, 6) };
            assert_eq!(seen, b"erline");
            assert_eq!(handler_count(), before, "it is a page like any other");
            let raw = std::fs::read(&path).unwrap();
            let place = 2 * PAGE as usize;
            assert_eq!(&raw[place - 4..place], b"bord");
            assert_ne!(&raw[place..place + 6], b"erline", "what memory holds is not in the file");
            // What is not looked at cannot be cured; what moves away ends the stand-in.
            assert!(medium.heal(HERE, 2 * PAGE, &filled(2)).is_err());
            assert_eq!(page_of(&medium, 2)[..6], *b"erline");
            medium.remap(2 * PAGE, 6 * PAGE, PAGE).unwrap();
            assert_eq!(page_of(&medium, 2), filled(6));
            medium.heal(HERE, 2 * PAGE, &filled(9)).unwrap();
            let two = vec![1; 2 * PAGE as usize];
            let odd = [(PAGE + 1, filled(1)), (8 * PAGE, filled(1)), (PAGE, vec![1; 8]), (0, two)];
            for (at, bytes) in odd {
                assert!(medium.stand_in(at, &bytes).is_err(), "{at:#x}+{}", bytes.len());
            }
        }
    }
}

#[test]
fn a_file_cut_off_below_its_mapping_is_not_taken_for_a_bad_page() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders() {
        let (path, medium) = numbered(&folder, 8, &protected(Protect::Alias));
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(4 * PAGE).unwrap();
        let cut = MediaError { at: 5 * PAGE + 8, len: 16, cause: MediaCause::Truncated };
        assert_eq!(medium.read(5 * PAGE + 8, &mut [0; 16]), Err(cut));
        assert_eq!(medium.put(HERE, 5 * PAGE + 8, &[0; 16]), Err(cut));
        let refused = medium.heal(HERE, 5 * PAGE, &filled(5)).unwrap_err();
        assert_eq!(refused.cause, MediaCause::Truncated);
        let refused = medium.stand_in(5 * PAGE, &filled(5)).unwrap_err();
        assert_eq!(refused.cause, MediaCause::Truncated);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 * PAGE, "healing lengthened it");
        assert!(medium.bad_ranges().is_empty());
        assert_eq!(page_of(&medium, 3), filled(3));
        assert!(medium.cut_off());
        // Nothing else lengthens it, and what it was is not forgotten once it is long again.
        if medium.kind() == MediumKind::File {
            let refused = medium.append(HERE, 6 * PAGE, b"late").unwrap_err();
            assert!(refused.to_string().contains("cut off"), "{refused}");
            assert!(medium.sync(HERE).is_err());
        }
        assert!(medium.grow(16 * PAGE).is_err());
        assert!(poison(&medium, 5 * PAGE, PAGE, Poison::Clearable).is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 * PAGE);
        file.set_len(8 * PAGE).unwrap();
        assert!(medium.cut_off());
    }
}

#[test]
fn looking_at_a_file_that_is_cut_off_is_told_as_well() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders() {
        for access in [Access::ReadOnly, Access::PrivateCopy] {
            let (path, medium) = numbered(&folder, 8, &protected(Protect::Alias));
            drop(medium);
            let medium = Mapped::open(&path, access, &Options::default()).unwrap();
            if access == Access::PrivateCopy {
                medium.grow(9 * PAGE).unwrap();
            }
            assert!(!medium.cut_off());
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(4 * PAGE).unwrap();
            let cut = MediaError { at: 5 * PAGE, len: 1, cause: MediaCause::Truncated };
            assert_eq!(medium.read(5 * PAGE, &mut [0]), Err(cut));
            assert!(medium.cut_off());
            // Its own memory is not the file's.
            let own = medium.read(8 * PAGE, &mut [0]);
            assert_eq!(own.is_ok(), access == Access::PrivateCopy);
            drop(medium);
            std::fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn ranges_outside_the_medium_never_reach_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let (path, medium) = numbered(&folder, 4, &protected(Protect::Alias));
    let before = handler_count();
    let len = 4 * PAGE;
    for (at, run) in [(len, 1), (len - 1, 2), (u64::MAX, 1), (u64::MAX - 3, 8), (0, len + 1)] {
        let mut bytes = vec![0; run as usize];
        let beyond = MediaError { at, len: run, cause: MediaCause::OutOfRange };
        assert_eq!(medium.read(at, &mut bytes), Err(beyond));
        assert_eq!(medium.put(HERE, at, &bytes), Err(beyond));
        assert_eq!(medium.xor(HERE, at, &bytes), Err(beyond));
        assert_eq!(medium.zero(HERE, at, run), Err(beyond));
        assert!(medium.view(at, run).is_none());
        assert!(medium.append(HERE, at, &bytes).is_err());
        medium.prefetch(at, run);
    }
    assert!(medium.zero(HERE, 1, u64::MAX).is_err());
    for (at, physical, run) in [
        (1, 0, PAGE),
        (0, 1, PAGE),
        (0, PAGE, 1),
        (0, PAGE, 0),
        (len, 0, PAGE),
        (0, len, PAGE),
        (0, u64::MAX - PAGE + 1, PAGE),
        (u64::MAX - PAGE + 1, 0, PAGE),
        (0, 0, len + PAGE),
    ] {
        assert!(medium.remap(at, physical, run).is_err(), "{at} {physical} {run}");
    }
    assert!(medium.heal(HERE, len, &filled(0)).is_err());
    assert!(medium.heal(HERE, 8, &filled(0)).is_err());
    assert!(medium.heal(HERE, 0, &[0; 64]).is_err());
    assert!(medium.heal(HERE, 0, &vec![0; 2 * PAGE as usize]).is_err());
    assert!(poison(&medium, len, PAGE, Poison::Clearable).is_err());
    assert_eq!(medium.read(len, &mut []), Ok(()), "nothing at the end is something");
    assert_eq!(handler_count(), before);
    assert!(!medium.failed(), "a caller's mistake is no failed write");
    drop(medium);
    let raw = std::fs::read(&path).unwrap();
    assert!((0..4).all(|page| raw[page * PAGE as usize..][..PAGE as usize] == filled(page as u8)));
}

#[test]
fn what_lies_behind_is_found_out() {
    let [disk, memory] = folders().try_into().unwrap();
    let kind = |folder| numbered(folder, 1, &protected(Protect::Auto)).1.kind();
    // Set where the folder for temporary files is known to offer direct access.
    let dax = std::env::var_os("HOLDFAST_DAX").is_some();
    assert_eq!(kind(&disk), if dax { MediumKind::Dax } else { MediumKind::File });
    assert_eq!(kind(&memory), MediumKind::Shm);
}
