//! A file system without space: nothing is left behind and nothing is changed. A table of mappings
//! without room.

use std::path::Path;

use holdfast_pmem::{Access, Mapped, Medium, OpenError, Options, PAGE};

use crate::common::{filled, folders, numbered};
use crate::{DONE, Role, Story, ends_with};

pub(crate) const STORIES: &[Story] = &[
    ("no_space_is_an_error", no_space_is_an_error),
    ("the_table_of_mappings_is_given_back", the_table_of_mappings_is_given_back),
];
pub(crate) const ROLES: &[Role] = &[("no-space", no_space)];

fn no_space_is_an_error() {
    for folder in folders() {
        ends_with("no-space", folder.path(), DONE);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

/// The largest file this process may have stands in for a full disk.
fn no_space(folder: &Path) -> i32 {
    const LIMIT: u64 = 64 * PAGE;
    // SAFETY: both calls change settings of this process only.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
    let path = folder.join("large");
    let refused = Mapped::create(&path, LIMIT + PAGE, &Options::default()).unwrap_err();
    assert!(matches!(refused, OpenError::NoSpace { wanted, .. } if wanted == LIMIT + PAGE));
    assert!(!path.exists(), "a partial file was left");

    let inside = tempfile::tempdir_in(folder).unwrap();
    let (path, medium) = numbered(&inside, 8, &Options::default());
    let refused = medium.grow(LIMIT + PAGE).unwrap_err();
    assert_eq!(refused.call, "fallocate");
    assert_eq!(medium.len(), 8 * PAGE);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8 * PAGE);
    assert!(!medium.failed(), "no byte was lost, so writing may go on");
    medium.grow(LIMIT).unwrap();
    let mut page = filled(0);
    medium.read(7 * PAGE, &mut page).unwrap();
    assert_eq!(page, filled(7));
    DONE
}

/// It is one of the whole process: whoever opens a file while it is full is refused.
fn the_table_of_mappings_is_given_back() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("pool");
    drop(Mapped::create(&path, PAGE, &Options::default()).unwrap());
    for _ in 0..600 {
        drop(Mapped::open(&path, Access::Write, &Options::default()).unwrap());
    }
    let mut many = Vec::new();
    let refused = loop {
        match Mapped::open(&path, Access::ReadOnly, &Options::default()) {
            Ok(medium) => many.push(medium),
            Err(error) => break error,
        }
        assert!(many.len() < 1000, "the table has an end");
    };
    assert!(matches!(refused, OpenError::TooManyMappings), "{refused}");
    drop(many);
    Mapped::open(&path, Access::ReadOnly, &Options::default()).unwrap();
}
