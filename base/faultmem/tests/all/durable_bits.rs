//! Dirty bits that a medium keeps by itself survive a crash: in every image, a page that differs
//! from what it was when its bit was last taken has its bit set. Without the drain between the bit
//! and the data, some image does not.

use std::sync::{Arc, Mutex};

use crate::common::{D, S};
use holdfast_faultmem::{Budget, Config, FaultMedium, Image};
use holdfast_pmem::track::{Controller, DirtySource};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};

const PAGES: u64 = 4;
const LEN: u64 = PAGES * PAGE;

/// What each page held when it was last taken (as a checksum would have covered it).
type Covered = Arc<Mutex<Vec<Vec<u8>>>>;

/// Images in which a page has changed untold; images in all.
fn judge(images: impl Iterator<Item = Image>, covered: &Covered, kind: MediumKind) -> (u64, u64) {
    let covered = covered.lock().expect("no panic while held").clone();
    let (mut wrong, mut all) = (0, 0);
    for image in images {
        let medium = FaultMedium::from_crash(image, kind, &Config::default());
        let controller = Controller::open(medium, LEN).expect("no page is bad");
        all += 1;
        let mut told = [false; PAGES as usize];
        let mut each = |at: u64, len: u64| {
            told[(at / PAGE) as usize..((at + len) / PAGE) as usize].fill(true);
        };
        controller.peek(0, LEN, &mut each).expect("in range");
        for page in (0..PAGES).filter(|page| !told[*page as usize]) {
            let mut found = vec![0; PAGE as usize];
            controller.read(page * PAGE, &mut found).expect("no page is bad");
            wrong += u64::from(found != covered[page as usize]);
        }
    }
    (wrong, all)
}

/// Stores and takes, with a place switched off; counts images with a page changed untold.
fn run(kind: MediumKind, off: &str) -> (u64, u64) {
    let room = Controller::<FaultMedium>::room_for(LEN);
    let medium = FaultMedium::new(room, kind, &Config::default());
    let controller = Controller::create(medium, LEN).expect("there is room");
    controller.medium().sync(D).expect("no failure armed");
    controller.medium().elide_name(off);
    let covered: Covered = Arc::new(Mutex::new(vec![vec![0; PAGE as usize]; PAGES as usize]));
    let counts = Arc::new(Mutex::new((0, 0)));
    let hook = (Arc::clone(&covered), Arc::clone(&counts));
    controller.medium().on_barrier(Box::new(move |_, _, point| {
        let (wrong, all) = judge(point.images(&Budget::default()), &hook.0, kind);
        let mut counts = hook.1.lock().expect("no panic while held");
        *counts = (counts.0 + wrong, counts.1 + all);
    }));
    let cover = || {
        let mut told = Vec::new();
        controller.take(0, LEN, &mut |at, len| told.push((at, len))).expect("no page is bad");
        for page in told.iter().flat_map(|(at, len)| at / PAGE..(at + len) / PAGE) {
            let mut found = vec![0; PAGE as usize];
            controller.read(page * PAGE, &mut found).expect("no page is bad");
            covered.lock().expect("no panic while held")[page as usize] = found;
        }
    };
    cover();
    for round in 1..=3_u64 {
        let bytes = (round << 40 | round).to_le_bytes();
        controller.put(S, PAGE + 8 * round, &bytes).expect("no page is bad");
        controller.put(S, 3 * PAGE - 8, &[bytes, bytes].concat()).expect("no page is bad");
        controller.zero(S, 64 * round, 8).expect("no page is bad");
        // What is covered must be durable: here, as for real controllers with volatile caches.
        controller.drain(D);
        controller.sync(D).expect("no failure armed");
        controller.put(S, 5, &[round as u8]).expect("no page is bad");
        controller.drain(D);
        controller.sync(D).expect("no failure armed");
        cover();
        // A page that was stored to is told again only after its next store.
        let mut each = |at, len| panic!("{at}+{len}");
        controller.peek(0, LEN, &mut each).expect("in range");
    }
    // The end is a crash as well.
    let (wrong, all) = judge(controller.medium().images(&Budget::default()), &covered, kind);
    let counts = *counts.lock().expect("no panic while held");
    (counts.0 + wrong, counts.1 + all)
}

#[test]
fn no_image_has_a_page_changed_untold() {
    for kind in [MediumKind::Dax, MediumKind::Shm, MediumKind::File] {
        let (wrong, all) = run(kind, "nothing");
        println!("{kind}: {all} images");
        assert_eq!(wrong, 0, "{kind}");
        assert!(all > 20, "{kind}: {all}");
    }
}

#[test]
fn every_step_is_needed() {
    for (kind, off) in [
        (MediumKind::Dax, "pmem.track.ControllerF1"),
        (MediumKind::Dax, "pmem.track.ControllerBit"),
        (MediumKind::File, "pmem.track.ControllerAppend"),
    ] {
        let (wrong, all) = run(kind, off);
        println!("{kind} without {off}: {wrong} of {all} images");
        assert!(wrong > 0, "{kind}: {off} is not needed, or the check is blind");
    }
}

/// Pages told by an image of the instant after everything was taken and drained.
fn told_again(kind: MediumKind, off: &str) -> u64 {
    let room = Controller::<FaultMedium>::room_for(LEN);
    let controller = Controller::create(FaultMedium::new(room, kind, &Config::default()), LEN);
    let controller = controller.expect("there is room");
    controller.medium().elide_name(off);
    controller.put(S, PAGE, &[7]).expect("no page is bad");
    controller.drain(D);
    controller.take(0, LEN, &mut |_, _| {}).expect("no page is bad");
    controller.drain(D);
    let image = controller.medium().crash_point().persisted();
    let medium = FaultMedium::from_crash(image, kind, &Config::default());
    let again = Controller::open(medium, LEN).expect("no page is bad");
    let mut told = 0;
    again.peek(0, LEN, &mut |_, len| told += len / PAGE).expect("in range");
    told
}

#[test]
fn what_was_taken_is_not_told_again_after_a_crash() {
    assert_eq!(told_again(MediumKind::Dax, "nothing"), 0);
    assert_eq!(told_again(MediumKind::Dax, "pmem.track.ControllerClear"), PAGES);
}

/// Between a page's bit and its data, somebody takes: he must wait for the data, or he would have
/// covered a page that changes untold.
#[test]
fn a_store_and_its_bit_are_one_step() {
    let room = Controller::<FaultMedium>::room_for(LEN);
    let medium = FaultMedium::new(room, MediumKind::Dax, &Config::default());
    let controller = Arc::new(Controller::create(medium, LEN).expect("there is room"));
    controller.take(0, LEN, &mut |_, _| {}).expect("no page is bad");
    let (say, hear) = std::sync::mpsc::channel();
    let taker = Arc::clone(&controller);
    let mut once = Some(say);
    controller.medium().on_barrier(Box::new(move |_, site, _| {
        let Some(say) = once.take() else { return };
        assert_eq!(site.name(), "pmem.track.ControllerF1");
        let taker = Arc::clone(&taker);
        let thread = std::thread::spawn(move || {
            let mut told = 0;
            taker.take(0, LEN, &mut |_, len| told += len / PAGE).expect("no page is bad");
            let mut found = [0];
            taker.read(PAGE, &mut found).expect("no page is bad");
            say.send((told, found[0])).expect("the test waits");
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(thread);
    }));
    controller.put(S, PAGE, &[7]).expect("no page is bad");
    controller.drain(D);
    let covered = hear.recv().expect("the taker comes to its end");
    controller.medium().clear_on_barrier();
    assert_eq!(covered, (1, 7), "what was told was read with its data");
}

#[test]
fn a_medium_without_room_and_ranges_outside_are_refused() {
    let medium = || FaultMedium::new(LEN, MediumKind::Shm, &Config::default());
    assert!(Controller::create(medium(), LEN).is_err());
    assert!(Controller::open(medium(), LEN - 7).is_err());
    let controller = Controller::create(medium(), LEN - PAGE).expect("there is room");
    assert!(controller.put(Site::new("test.out"), LEN - PAGE, &[1]).is_err());
    assert!(controller.put(Site::new("test.out"), LEN - PAGE - 1, &[1, 2]).is_err());
    assert!(controller.read(LEN - PAGE, &mut [0]).is_err());
    assert!(controller.take(0, LEN, &mut |_, _| {}).is_err());
    assert!(controller.grow(LEN).is_err());
}
