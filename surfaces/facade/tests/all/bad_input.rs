//! Files that are no pools, or no longer: each is told apart, none is changed, nothing panics.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast::{Error, ErrorKind, Observer, Parity, Persist, Pool, Ptr, Transaction};

struct Folder {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

/// A folder and the name of a file in it that is not there yet.
fn place() -> Folder {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pool");
    Folder { _folder: folder, path }
}

/// A closed pool with something in it.
fn pool(path: &Path) {
    let pool = Pool::options().size(16 << 20).create(path).unwrap();
    pool.map::<str, u64>("numbers").unwrap().put("one", &1).unwrap();
}

/// Every way to open a file fails alike, and leaves it as it was.
fn refused(path: &Path, kind: ErrorKind) -> Error {
    let before = fs::read(path).ok();
    let errors = [
        Pool::open(path).map(drop).unwrap_err(),
        Pool::open_read_only(path).map(drop).unwrap_err(),
        Pool::options().open_private(path).map(drop).unwrap_err(),
        Observer::open(path).map(drop).unwrap_err(),
    ];
    for error in &errors {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        assert!(!error.remedy().is_empty(), "{error}");
    }
    assert!(fs::read(path).ok() == before, "the file was changed");
    let [error, ..] = errors;
    error
}

#[test]
fn what_is_not_there_or_no_file() {
    let here = place();
    refused(&here.path, ErrorKind::NotFound);
    refused(&here.path.join("below"), ErrorKind::NotFound);
    fs::create_dir(&here.path).unwrap();
    refused(&here.path, ErrorKind::NotAFile);
    refused(Path::new("/dev/null"), ErrorKind::NotAFile);
}

#[test]
fn what_is_no_pool() {
    let here = place();
    for bytes in [vec![], vec![7; 100], vec![0; 1 << 20], b"text ".repeat(10_000)] {
        fs::write(&here.path, bytes).unwrap();
        refused(&here.path, ErrorKind::NotAPool);
    }
}

#[test]
fn what_was_cut_off() {
    let here = place();
    pool(&here.path);
    let whole = fs::read(&here.path).unwrap();
    for len in [4096, 8192, whole.len() / 2, whole.len() - 4096] {
        fs::write(&here.path, &whole[..len]).unwrap();
        let error = refused(&here.path, ErrorKind::Truncated);
        assert!(error.to_string().contains(&whole.len().to_string()), "{error}");
    }
    // One page more than there has to be: left by a growth that did not get to its end.
    fs::write(&here.path, [whole.as_slice(), &[1; 4096]].concat()).unwrap();
    let pool = Pool::open(&here.path).unwrap();
    assert_eq!(pool.map::<str, u64>("numbers").unwrap().get("one").unwrap(), Some(1));
}

#[test]
fn what_somebody_else_writes_to() {
    let here = place();
    pool(&here.path);
    let owner = Pool::open(&here.path).unwrap();
    for error in [
        Pool::open(&here.path).map(drop).unwrap_err(),
        Pool::open_read_only(&here.path).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    }
    assert!(Observer::open(&here.path).unwrap().is_in_use());
    drop(owner);
    Pool::open(&here.path).unwrap();
}

#[test]
fn a_pool_that_cannot_be_made_leaves_no_file() {
    let here = place();
    let options = Pool::options;
    for (options, kind) in [
        (options().size(0), ErrorKind::Invalid),
        (options().size(100), ErrorKind::Invalid),
        (options().size(1 << 20), ErrorKind::Invalid),
        (options().size(1 << 62), ErrorKind::Invalid),
        (options().rows(1), ErrorKind::Invalid),
        (options().frame(5000), ErrorKind::Invalid),
        (options().label("x".repeat(65)), ErrorKind::Invalid),
        (options().size(1 << 44), ErrorKind::NoSpace),
    ] {
        let error = options.create(&here.path).map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!here.path.exists(), "{error}");
    }
    fs::write(&here.path, b"mine").unwrap();
    let error = options().create(&here.path).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    assert_eq!(fs::read(&here.path).unwrap(), b"mine");
}

#[test]
fn lengths_and_counts_that_no_pool_has_are_refused_by_name() {
    let here = place();
    let options = || Pool::options().size(32 << 20);
    for (options, name) in [
        (options().chunk(3000), "chunk"),
        (options().chunk(2048), "chunk"),
        (options().chunk(1 << 31), "chunk"),
        (options().frame(3 << 20), "frame"),
        (options().frame(u64::MAX), "frame"),
        (options().rows(255), "rows"),
        (options().lanes(1024), "lanes"),
        (options().lanes(u32::MAX), "lanes"),
        (options().log(33 << 20), "log"),
        (options().log(u64::MAX), "log"),
        (options().events((16 << 20) + 1), "events"),
        (options().events(u64::MAX), "events"),
        (options().label("a\0b"), "label"),
    ] {
        let error = options.create(&here.path).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}: {error}");
        assert!(error.to_string().contains(name), "{name}: {error}");
        assert!(!here.path.exists(), "{error}");
    }
}

/// Whatever options are accepted, the pool they make can be used, closed, opened and checked.
#[test]
fn a_pool_is_made_so_that_it_can_be_opened_or_not_at_all() {
    let here = place();
    let mut state = 3_u64;
    let mut pick = |values: &[u64]| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        values[(state >> 33) as usize % values.len()]
    };
    let (mut made, mut refused) = (0, 0);
    for round in 0..150 {
        let options = Pool::options()
            .size(pick(&[40 << 10, 256 << 10, 1 << 20, 4 << 20, (16 << 20) + 5, 24 << 20]))
            .frame(pick(&[4096, 4096, 8192, 64 << 10, 2 << 20, 5000]))
            .chunk(pick(&[0, 0, 4096, 8192, 32 << 10, 1 << 20, 16 << 20, 3000]))
            .rows(pick(&[0, 3, 4, 8, 100, 254]) as u32)
            .lanes(pick(&[0, 0, 1, 3, 70, 1023, 1024]) as u32)
            .log(pick(&[0, 0, 1, 4096, 100_000, 3 << 20, u64::MAX]))
            .events(pick(&[0, 1, 4096, 64 << 10, 1 << 20, u64::MAX - 5]))
            .parity([Parity::None, Parity::P, Parity::PQ][round % 3])
            .metadata_copies(round % 5 > 0);
        match options.create(&here.path) {
            Ok(pool) => {
                made += 1;
                let put = pool.map::<str, u64>("numbers").and_then(|map| map.put("one", &1));
                drop(pool);
                let pool = Pool::open(&here.path).unwrap_or_else(|e| panic!("{options:?}: {e}"));
                let checked = pool.check(|_, _| {}).unwrap();
                assert!(checked.is_clean(), "{options:?}: {checked:?}");
                match put {
                    Ok(_) => {
                        let found = pool.map::<str, u64>("numbers").unwrap().get("one").unwrap();
                        assert_eq!(found, Some(1), "{options:?}");
                    }
                    // So small that nothing fits is allowed, if it is said.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NoSpace, "{options:?}"),
                }
                drop(pool);
                fs::remove_file(&here.path).unwrap();
            }
            Err(error) => {
                refused += 1;
                let known = [ErrorKind::Invalid, ErrorKind::NoSpace].contains(&error.kind());
                assert!(known, "{options:?}: {error}");
                assert!(!here.path.exists(), "{options:?}: {error}");
            }
        }
    }
    assert!(made > 15 && refused > 15, "{made} made, {refused} refused");
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct A {
    a: u64,
}

#[derive(Clone, Copy, Persist)]
#[repr(C)]
struct B {
    b: u64,
}

#[test]
fn wrong_types_and_what_does_not_fit() {
    let here = place();
    let pool = Pool::options().size(16 << 20).create(&here.path).unwrap();
    pool.run(|tx| {
        let a = tx.alloc(A { a: 1 })?;
        tx.set_root(a)
    })
    .unwrap();
    let error = pool.root::<B>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert_eq!(pool.read(pool.root::<A>().unwrap()).unwrap().a, 1);
    let error = pool.read(Ptr::<B>::null()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");

    pool.map::<str, u64>("numbers").unwrap();
    let error = pool.map::<str, str>("numbers").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert!(error.to_string().contains("values of u64"), "{error}");
    for name in ["", &"n".repeat(256)] {
        let error = pool.map::<str, str>(name).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }

    for len in [17 << 20, u64::MAX] {
        let error = pool.run(|tx| tx.alloc_bytes(holdfast::TypeNumber::BYTES, len)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    }
    let filled = (0..100_000).find_map(|_| {
        pool.run(|tx| tx.alloc_bytes(holdfast::TypeNumber::BYTES, 100_000)).map(drop).err()
    });
    assert_eq!(filled.unwrap().kind(), ErrorKind::NoSpace);
}

#[test]
fn read_only_pools_refuse_changes_and_never_reach_the_file() {
    let here = place();
    pool(&here.path);
    let before = fs::read(&here.path).unwrap();
    let looking = Pool::open_read_only(&here.path).unwrap();
    let numbers = looking.map::<str, u64>("numbers").unwrap();
    assert_eq!(numbers.get("one").unwrap(), Some(1));
    let error = numbers.put("two", &2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    drop((numbers, looking));
    // A private pool takes changes, and they go with it.
    let private = Pool::options().open_private(&here.path).unwrap();
    private.map::<str, u64>("numbers").unwrap().put("two", &2).unwrap();
    drop(private);
    assert!(fs::read(&here.path).unwrap() == before, "the file was changed");
}

#[test]
fn growth_that_is_too_small_is_told_as_growth() {
    let here = place();
    let pool = Pool::options().size(16 << 20).create(&here.path).unwrap();
    for size in [0, 1 << 20, 16 << 20, (16 << 20) + 4096] {
        let error = pool.grow(size).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let text = error.to_string();
        assert!(text.contains("cannot grow the pool") && !text.contains("make this"), "{text}");
        // What it asks for is enough.
        let least: u64 = text.split(' ').find_map(|word| word.parse().ok()).unwrap();
        assert!(least > 16 << 20, "{text}");
        let Err(again) = pool.grow(least - 4096) else { panic!("{least} is not the least") };
        assert!(again.to_string().contains(&least.to_string()), "{again}");
    }
    pool.grow(32 << 20).unwrap();
}

#[test]
fn a_file_cut_off_under_its_threads_ends_them_all() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let disk = tempfile::tempdir().unwrap();
    for path in [memory.path().join("a.pool"), disk.path().join("a.pool")] {
        let pool = Pool::options().size(16 << 20).parity(Parity::PQ).create(&path).unwrap();
        let map = pool.map::<u64, [u8]>("numbers").unwrap();
        map.put(&0, b"first").unwrap();
        let ends: Vec<Error> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let map = &map;
                    scope.spawn(move || {
                        // Ends by itself: the places it uses are soon beyond the cut.
                        let mut number = thread;
                        loop {
                            number += 4;
                            if let Err(error) = map.put(&(number % 1000), &[7; 200]) {
                                return error;
                            }
                        }
                    })
                })
                .collect();
            std::thread::sleep(std::time::Duration::from_millis(50));
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for error in ends {
            assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
            assert!(error.to_string().contains("cut off while in use"), "{error}");
        }
        assert!(pool.is_read_only());
        for error in [
            pool.check(|_, _| {}).map(drop).unwrap_err(),
            pool.scrub(holdfast::ScrubOptions::default(), |_, _| {}).map(drop).unwrap_err(),
            map.put(&1, b"late").map(drop).unwrap_err(),
            pool.expect_whole_file().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Truncated, "{error}");
        }
        drop((map, pool));
        assert_not_lengthened(&path, 1 << 20, if path.starts_with("/dev/shm") { 0 } else { 4 });
    }
}

/// A file that was cut off has the length it was cut to. The one exception: writes that were under
/// way on a file system, past their own look at the length, while the file was cut. There is at
/// most one of each thread; it ends where it ends, and nothing is written after it.
fn assert_not_lengthened(path: &Path, to: usize, threads: usize) {
    // Pages of one write: a record of the log.
    const ONE_WRITE: usize = 2;
    let bytes = fs::read(path).unwrap();
    let new = bytes.get(to..).expect("it was shortened");
    let written = new.chunks(4096).filter(|page| page.iter().any(|byte| *byte != 0)).count();
    assert!(written <= threads * ONE_WRITE, "{written} pages were written behind its end");
    assert!(written > 0 || new.is_empty(), "it was lengthened by {}", new.len());
}
