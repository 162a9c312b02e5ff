//! Two files on one medium: a sync of one says nothing of the other, and stores are noticed where
//! they are made.

use std::sync::Arc;

use holdfast_faultmem::{Config, FaultMedium, Watched, Window};
use holdfast_pmem::track::{DirtySource, SourceKind};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};

const PUT: Site = Site::new("windows.put");
const SYNC: Site = Site::new("windows.sync");

fn two(kind: MediumKind) -> (Arc<FaultMedium>, Window, Window) {
    let shared = Arc::new(FaultMedium::new(6 * PAGE, kind, &Config::default()));
    let first = Window::new(Arc::clone(&shared), 0, 2 * PAGE, 3 * PAGE);
    let second = Window::new(Arc::clone(&shared), 3 * PAGE, PAGE, 3 * PAGE);
    (shared, first, second)
}

#[test]
fn a_sync_of_one_file_leaves_the_other_to_the_crash() {
    let (shared, first, second) = two(MediumKind::File);
    first.put(PUT, 0, &[1; 8]).unwrap();
    second.put(PUT, 0, &[2; 8]).unwrap();
    second.sync(SYNC).unwrap();
    let image = shared.crash_point().persisted().into_bytes();
    assert_eq!((image[0], image[3 * PAGE as usize]), (0, 2));
    first.sync(SYNC).unwrap();
    assert_eq!(shared.crash_point().persisted().into_bytes()[0], 1);
}

#[test]
fn a_window_ends_where_its_file_does() {
    let (shared, first, second) = two(MediumKind::Shm);
    let error = first.put(PUT, 2 * PAGE - 4, &[1; 8]).unwrap_err();
    assert_eq!(error.at, 2 * PAGE - 4);
    first.grow(3 * PAGE).unwrap();
    first.put(PUT, 2 * PAGE, &[7; 8]).unwrap();
    assert!(first.grow(4 * PAGE).is_err());
    second.set_len(10);
    assert!(second.read(0, &mut [0; 11]).is_err());
    shared.poison(3 * PAGE, 1, holdfast_faultmem::Clear::Able).unwrap();
    assert_eq!(second.read(0, &mut [0; 4]).unwrap_err().at, 0);
    assert_eq!(second.bad_ranges(), [(0, 10)]);
    assert_eq!(first.bad_ranges(), []);
    second.heal(PUT, 0, &[3; PAGE as usize]).unwrap();
    let mut byte = [0];
    second.read(9, &mut byte).unwrap();
    assert_eq!(byte, [3]);
}

#[test]
fn stores_set_bits_until_they_are_taken() {
    let (_, first, _) = two(MediumKind::Shm);
    first.grow(3 * PAGE).unwrap();
    let watched = Watched::new(first, SourceKind::AsyncProtect);
    let taken = |watched: &Watched| {
        let mut runs = Vec::new();
        watched.take(0, 3 * PAGE, &mut |at, len| runs.push((at, len))).unwrap();
        runs
    };
    watched.put(PUT, 0, &[1]).unwrap();
    assert_eq!(taken(&watched), [], "not armed");
    assert!(!watched.intact(0, PAGE));
    watched.arm(0, 3 * PAGE).unwrap();
    assert_eq!(taken(&watched), [(0, 3 * PAGE)], "everything counts at first");
    watched.put(PUT, PAGE - 1, &[1, 2]).unwrap();
    watched.window().put(PUT, 2 * PAGE, &[9]).unwrap();
    let mut peeked = 0;
    watched.peek(0, 3 * PAGE, &mut |_, len| peeked += len).unwrap();
    assert_eq!(peeked, 2 * PAGE);
    let again =
        Watched::surviving(watched.window().clone(), DirtySource::kind(&watched), watched.marks());
    assert_eq!(taken(&watched), [(0, 2 * PAGE)], "the untracked store is not seen");
    assert_eq!(taken(&watched), []);
    assert_eq!(taken(&again), [(0, 2 * PAGE)], "bits that outlived");
    watched.lose(PAGE, PAGE);
    assert!(watched.intact(0, PAGE) && !watched.intact(0, 2 * PAGE));
}
