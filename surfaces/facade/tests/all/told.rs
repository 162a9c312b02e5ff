//! What a file in use leaves uncovered is known to whoever keeps it only, so that process is asked.
//! It answers without being disturbed; what answers in its place, or nonsense, is not believed.

use std::fs::File;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast::Pool;
use holdfast::protect::{
    Durability, ProtectOptions, ProtectStatus, ProtectedFile, ProtectedMap, Told,
};

const PAGE: u64 = 4096;
const PAGES: u64 = 600;
const SOON: Duration = Duration::from_secs(20);

/// A folder with a file of its own.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.bin");
    std::fs::write(&path, vec![7; (PAGES * PAGE) as usize]).unwrap();
    (folder, path)
}

/// Passes by hand only.
fn by_hand() -> ProtectOptions {
    ProtectOptions::new().period(Duration::from_secs(3600))
}

fn told(path: &Path) -> Option<Told> {
    // An answer is good for a moment.
    std::thread::sleep(Duration::from_millis(150));
    Told::ask(path, &ProtectOptions::new(), SOON)
}

#[test]
fn what_only_the_keeper_knows_is_told() {
    let (_folder, path) = file();
    ProtectedFile::protect(&path, &by_hand()).unwrap().close().unwrap();
    assert!(told(&path).is_none(), "nobody keeps it");
    let map = ProtectedMap::open(&path, &by_hand()).unwrap();
    map.update_now().unwrap();
    map.scrub().unwrap();
    for page in [3, 4, 500] {
        map.write(page * PAGE + 9, b"stored").unwrap();
    }
    let now = told(&path).unwrap();
    assert_eq!(now.process, std::process::id());
    let live = &now.live;
    assert_eq!((live.coverage.pages, live.coverage.without_sum), (PAGES, 3));
    assert_eq!(live.coverage.without_parity, 12, "with the stripes of each");
    assert!(live.coverage.oldest_ns > 0);
    assert_eq!((live.verdicts.good, live.verdicts.left(), live.found), (PAGES, 0, [0; 4]));
    assert!(live.verdicts.at_ns > 0 && !live.contested);
    assert_eq!((live.keeping.period_ns, live.keeping.guards), (3_600_000_000_000, false));
    assert_eq!(live.keeping.tracking, map.tracking());
    // Whoever reads the side file beside it knows none of that.
    let beside = ProtectedFile::look_beside(&path, &ProtectOptions::new()).unwrap();
    assert_eq!(beside.status().unwrap().coverage.without_sum, 0);
    map.update_now().unwrap();
    let live = told(&path).unwrap().live;
    assert_eq!((live.coverage.without_sum, live.coverage.oldest_ns), (0, 0));
    let last = live.windows.last().unwrap();
    assert_eq!((last.pages, last.stored, last.in_stripes), (PAGES, 3, 12), "{live:?}");
    map.close().unwrap();
    assert!(told(&path).is_none(), "it is over");
    let found = ProtectedFile::look(&path, &ProtectOptions::new()).unwrap();
    assert!(found.verify(|_, _| true).unwrap().is_clean());
}

#[test]
fn damage_that_a_scrub_left_is_told() {
    let (_folder, path) = file();
    ProtectedFile::protect(&path, &by_hand()).unwrap().close().unwrap();
    // More than parity gives back, and one page that it does, as rot leaves them.
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    let rotten = File::options().write(true).open(&path).unwrap();
    for page in [8, 9, 500] {
        rotten.write_all_at(b"rotten", page * PAGE + 5).unwrap();
    }
    rotten.set_modified(time).unwrap();
    drop(rotten);
    let map = ProtectedMap::open(&path, &by_hand()).unwrap();
    assert_eq!(ProtectStatus::of_told(told(&path).unwrap()).left, 0, "nobody looked yet");
    let done = map.scrub().unwrap();
    assert_eq!((done.report.corrupt.len(), done.repaired, done.lost), (3, 1, 2));
    let now = told(&path).unwrap();
    let found = &now.live.verdicts;
    assert_eq!((found.corrupt, found.repaired, found.lost, found.good), (3, 1, 2, PAGES - 3));
    assert_eq!((now.live.found, now.live.damaged), ([3, 1, 2, 0], 2));
    assert_eq!(ProtectStatus::of_told(now).left, 2);
    // The program gives one of them other content: the next scrub finds it good.
    map.write(8 * PAGE, &[1; PAGE as usize]).unwrap();
    map.update_now().unwrap();
    map.scrub().unwrap();
    let now = told(&path).unwrap();
    // What a program stored is in no journal, so the scrub counts.
    assert_eq!((now.live.verdicts.left(), now.live.damaged), (1, 1), "{now:?}");
    assert_eq!(ProtectStatus::of_told(now).left, 1);
    map.close().unwrap();
    // Opened again, nobody looked at all of it; the program gives the other one other content, too.
    let map = ProtectedMap::open(&path, &by_hand()).unwrap();
    assert_eq!(ProtectStatus::of_told(told(&path).unwrap()).left, 1);
    assert_eq!(map.status().unwrap().left, 1);
    map.write(9 * PAGE, &[1; PAGE as usize]).unwrap();
    map.update_now().unwrap();
    let now = told(&path).unwrap();
    assert_eq!((now.live.found, now.live.verdicts.at_ns), ([3, 1, 3, 0], 0));
    assert_eq!(ProtectStatus::of_told(now).left, 0, "the journal says lost, and it is not");
    assert_eq!((map.status().unwrap().left, map.status().unwrap().unclear), (0, 0));
    map.close().unwrap();
}

#[test]
fn a_keeper_that_is_asked_without_end_goes_on() {
    let (_folder, path) = file();
    ProtectedFile::protect(&path, &by_hand()).unwrap().close().unwrap();
    let often = ProtectOptions::new().period(Duration::from_millis(20));
    let map = ProtectedMap::open(&path, &often).unwrap();
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let began = Instant::now();
                    let mut answers = 0;
                    while began.elapsed() < Duration::from_millis(600) {
                        let told = Told::ask(&path, &ProtectOptions::new(), SOON);
                        answers += u32::from(told.is_some());
                    }
                    answers
                })
            })
            .collect();
        for round in 0..200 {
            map.write(round % PAGES * PAGE, &[round as u8; 100]).unwrap();
            std::thread::sleep(Duration::from_millis(3));
        }
        for one in asking {
            assert!(one.join().unwrap() > 0);
        }
    });
    let status = map.status().unwrap();
    assert!(status.last_pass.is_some() && status.last_error.is_none(), "{status:?}");
    assert_eq!((status.counts.undecided, status.contested), (0, None));
    map.close().unwrap();
    let found = ProtectedFile::look(&path, &ProtectOptions::new()).unwrap();
    assert!(found.verify(|_, _| true).unwrap().is_clean());
}

#[test]
fn a_file_whose_redundancy_is_in_a_pool_tells_too() {
    let (folder, path) = file();
    let pool = folder.path().join("keep.pool");
    Pool::options().size(32 << 20).create(&pool).unwrap().close();
    let options = by_hand().pool(&pool).durability(Durability::Power);
    ProtectedFile::protect(&path, &options).unwrap().close().unwrap();
    let map = ProtectedMap::open(&path, &options).unwrap();
    map.update_now().unwrap();
    map.write(9 * PAGE, b"stored").unwrap();
    // The pool is in use, so nobody else can look what is in it.
    ProtectedFile::look_beside(&path, &ProtectOptions::new()).unwrap_err();
    let now = told(&path).unwrap();
    assert_eq!(now.live.coverage.without_sum, 1);
    assert_eq!(now.pool.as_deref(), Some(pool.canonicalize().unwrap().as_path()));
    let status = ProtectStatus::of_told(now);
    assert_eq!((status.in_use, status.left), (Some(Some(std::process::id())), 0));
    map.close().unwrap();
}

/// Takes the name under which whoever keeps the file would tell of it.
fn impostor(path: &Path) -> UnixListener {
    let found = std::fs::metadata(path).unwrap();
    let name = format!("holdfast-kept-{:x}-{:x}", found.dev(), found.ino());
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
}

#[test]
fn what_answers_nonsense_or_nothing_is_not_believed() {
    let (_folder, path) = file();
    ProtectedFile::protect(&path, &by_hand()).unwrap().close().unwrap();
    let good = {
        let map = ProtectedMap::open(&path, &by_hand()).unwrap();
        let good = told(&path).unwrap().live.words();
        map.close().unwrap();
        good
    };
    let listener = impostor(&path);
    let answers = [
        "\n".to_owned(),
        "holdfast-kept-2\n".to_owned(),
        "holdfast-kept-2 1 2 3\n".to_owned(),
        format!("{}\n", good.replace("kept-2", "kept-9")),
        format!("{good} 5\n"),
        "holdfast-kept-2 ".to_owned() + &"7 ".repeat(100_000) + "\n",
        good.clone(),
        "\u{0}\u{ff}\n".to_owned(),
    ];
    let count = answers.len() + 1;
    let lies = std::thread::spawn(move || {
        for answer in answers.into_iter().chain([format!("{good}\n")]) {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(answer.as_bytes());
        }
        // Nothing at all.
        let (_silent, _) = listener.accept().unwrap();
        std::thread::sleep(Duration::from_millis(500));
    });
    for which in 0..count - 1 {
        assert_eq!(Told::ask(&path, &ProtectOptions::new(), SOON), None, "{which}");
    }
    // What makes sense is not believed either of somebody who has not got the side file.
    assert_eq!(Told::ask(&path, &ProtectOptions::new(), SOON), None);
    let began = Instant::now();
    assert_eq!(Told::ask(&path, &ProtectOptions::new(), Duration::from_millis(100)), None);
    assert!(began.elapsed() < Duration::from_secs(5));
    lies.join().unwrap();
    // A keeper whose name is taken works all the same.
    let taken = impostor(&path);
    let map = ProtectedMap::open(&path, &by_hand()).unwrap();
    map.write(0, b"stored").unwrap();
    map.close().unwrap();
    drop(taken);
}
