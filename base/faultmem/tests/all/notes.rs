//! Notes of pages that are about to be stored to survive a crash: in every image, each note is
//! there that was told to be durable and was not forgotten since.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::D;
use holdfast_faultmem::{Budget, Clear, Config, FaultMedium};
use holdfast_pmem::track::{MediumRecord, NOTED, Record, RecordPlaces};
use holdfast_pmem::{Medium, MediumKind, PAGE};

const PAGES: u64 = 24;
const LEN: u64 = PAGES * PAGE;

struct Notes {
    medium: Arc<FaultMedium>,
    record: Arc<MediumRecord<FaultMedium>>,
    promised: BTreeSet<u64>,
    wrong: u64,
    images: u64,
}

impl Notes {
    fn of(kind: MediumKind, off: &str) -> Self {
        let medium = Arc::new(FaultMedium::new(2 * PAGE, kind, &Config::default()));
        let places = RecordPlaces::in_a_row(PAGE - 8);
        let record = MediumRecord::new(Arc::clone(&medium), places, 0, LEN).expect("whole pages");
        medium.sync(D).expect("no failure armed");
        medium.elide_name(off);
        let (record, promised) = (Arc::new(record), BTreeSet::new());
        Self { medium, record, promised, wrong: 0, images: 0 }
    }

    /// On a thread of its own, as the handler of whichever thread stores.
    fn set(&mut self, page: u64) {
        let record = Arc::clone(&self.record);
        let set = std::thread::spawn(move || record.set(page * PAGE));
        if set.join().expect("no panic") {
            self.promised.insert(page);
        }
        self.look();
    }

    fn clear(&mut self, from: u64, count: u64) {
        self.promised.retain(|page| !(from..from + count).contains(page));
        self.record.clear(from * PAGE, count * PAGE);
        self.look();
    }

    fn look(&mut self) {
        for image in self.medium.images(&Budget::default()) {
            self.images += 1;
            let kept = |page: &u64| image.bytes()[(PAGE - 8 + page) as usize] == NOTED;
            self.wrong += u64::from(!self.promised.iter().all(kept));
        }
    }
}

/// Notes and forgets; counts images that lack a note that was promised, and images in all.
fn run(kind: MediumKind, off: &str) -> (u64, u64) {
    let mut notes = Notes::of(kind, off);
    assert!(notes.record.reach(0, LEN));
    for page in [0, 3, 7, 8, 20] {
        notes.set(page);
    }
    for _ in 0..3 {
        notes.clear(2, 12);
        notes.set(7);
        notes.set(13);
        assert!(notes.record.reach(0, LEN));
        notes.set(9);
        notes.clear(9, 1);
        notes.set(9);
    }
    (notes.wrong, notes.images)
}

#[test]
fn no_image_lacks_a_note_that_was_promised() {
    for kind in [MediumKind::Dax, MediumKind::Shm, MediumKind::File] {
        let (wrong, all) = run(kind, "nothing");
        assert_eq!(wrong, 0, "{kind}, of {all}");
        assert!(all > 20, "{kind}: {all}");
    }
}

#[test]
fn every_step_of_a_note_is_needed() {
    let places = [
        (MediumKind::Dax, "pmem.track.Record"),
        (MediumKind::Dax, "pmem.track.RecordF1"),
        (MediumKind::File, "pmem.track.RecordAppend"),
    ];
    for (kind, off) in places {
        let (wrong, all) = run(kind, off);
        println!("{kind} without {off}: {wrong} of {all} images");
        assert!(wrong > 0, "{kind}: {off} is not needed, or the check is blind");
    }
}

/// A note of another thread goes to the same line, and must not be overtaken by what this one had
/// on its way there: bytes written back as they were, zeros.
fn on_its_way(off: &str) -> (usize, usize) {
    let mut notes = Notes::of(MediumKind::Dax, off);
    assert!(notes.record.reach(0, LEN));
    let reached = usize::from(notes.medium.has_outstanding());
    notes.set(7);
    notes.record.clear(0, LEN);
    let kept = notes.medium.crash_point().persisted().bytes()[(PAGE - 1) as usize] == NOTED;
    (reached, usize::from(notes.medium.has_outstanding() || kept))
}

#[test]
fn nothing_is_on_its_way_that_could_overtake_a_note() {
    assert_eq!(on_its_way("nothing"), (0, 0));
    assert_eq!(on_its_way("pmem.track.Reached"), (1, 0));
    assert_eq!(on_its_way("pmem.track.Forgotten"), (0, 1));
    assert_eq!(on_its_way("pmem.track.Forget"), (0, 1));
}

/// What cannot be noted is found out before it would be.
#[test]
fn notes_that_have_no_place_are_refused_beforehand() {
    let found_out = |off| {
        let notes = Notes::of(MediumKind::Dax, off);
        notes.medium.poison(PAGE, PAGE, Clear::Unable).expect("there is such a page");
        assert!(notes.record.reach(0, 8 * PAGE));
        (!notes.record.reach(0, LEN), notes)
    };
    assert!(!found_out("pmem.track.Reach").0, "told, though nobody looked");
    let (refused, notes) = found_out("nothing");
    assert!(refused);
    assert!(!notes.record.set(9 * PAGE) && notes.record.is_set(9 * PAGE));
    assert!(notes.record.set(7 * PAGE) && notes.record.is_set(7 * PAGE));
}
