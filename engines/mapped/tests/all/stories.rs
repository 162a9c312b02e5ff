//! Stories for `mutants.rs`: each answers whether it ended wrong with a place switched off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::explore::{Scene, play};
use crate::common::{Chosen, DEATHS, Engine, Machine, Stopped, any_image, boot, content, tiny};
use holdfast_faultmem::{Budget, Clear, CrashPoint, FaultKind, When};
use holdfast_mapped::{
    AtRest, Durability, Force, Mended, OpenOptions, Opened, ProtectOptions, Writing,
};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::{PageVerdict, Unsure};

const SIZE: u64 = 19 * PAGE + 100;
const FOREIGN: Site = Site::new("test.foreign");

pub(crate) fn machine(
    off: &str,
    kind: MediumKind,
    durability: Durability,
    parity: u32,
) -> (Machine, Engine) {
    let machine = Machine::new(kind, SIZE);
    machine.medium.elide_name(off);
    let options = ProtectOptions { open: boot(1, durability), ..tiny(parity) };
    let engine = machine.protect(&options);
    (machine, engine)
}

pub(crate) fn admitted(off: &str, parity: u32) -> (Machine, Engine) {
    let (machine, engine) = machine(off, MediumKind::Shm, Durability::Process, parity);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    (machine, engine)
}

/// The machine after a power cut or a kill, opened again with the same place switched off.
pub(crate) fn again(
    machine: &Machine,
    off: &str,
    power: bool,
    bits: bool,
    read_only: bool,
) -> Option<(Machine, Engine, Opened)> {
    let point = machine.medium.crash_point();
    let image = if power { point.persisted() } else { point.newest() };
    let size = machine.data.window().len();
    let marks = bits.then(|| machine.data.marks());
    let next = Machine::after(image, Medium::kind(&machine.side), size, marks);
    next.medium.elide_name(off);
    let durability = if power { Durability::Power } else { Durability::Process };
    let options = OpenOptions { read_only, ..boot(1, durability) };
    let (engine, opened) = next.try_open(options).ok()?;
    Some((next, engine, opened))
}

pub(crate) fn lives(off: &str, kind: MediumKind, durability: Durability, bits: bool) -> bool {
    lives_so(off, kind, durability, bits, false)
}

pub(crate) fn lives_so(
    off: &str,
    kind: MediumKind,
    durability: Durability,
    bits: bool,
    recorded: bool,
) -> bool {
    let power = kind != MediumKind::Shm;
    [false, true].into_iter().any(|rot| {
        let parity = if rot { 2 } else { 1 };
        let scene = Scene { kind, durability, bits, power, rot, parity, recorded };
        !play(scene, Some(off), 10).is_none()
    })
}

/// The same, bits die, and first stores are on record in the side file.
pub(crate) fn memory_records(off: &str) -> bool {
    lives_so(off, MediumKind::Shm, Durability::Process, false, true)
}

/// The same on a synced file.
pub(crate) fn file_records(off: &str) -> bool {
    lives_so(off, MediumKind::File, Durability::Power, false, true)
}

/// A life on a synced file, bits outlive the power.
pub(crate) fn file_bits_live(off: &str) -> bool {
    lives(off, MediumKind::File, Durability::Power, true)
}

/// The same, bits die.
pub(crate) fn file_bits_die(off: &str) -> bool {
    lives(off, MediumKind::File, Durability::Power, false)
}

/// A life in shared memory, bits outlive the process.
pub(crate) fn memory_bits_live(off: &str) -> bool {
    lives(off, MediumKind::Shm, Durability::Process, true)
}

/// The same, bits die.
pub(crate) fn memory_bits_die(off: &str) -> bool {
    lives(off, MediumKind::Shm, Durability::Process, false)
}

/// Direct access: nothing is believed of another run of the machine.
pub(crate) fn direct(off: &str) -> bool {
    lives(off, MediumKind::Dax, Durability::Power, false)
}

/// A covered page rots, is found, and comes back.
pub(crate) fn rot_is_found(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    for page in [4, 5, 6] {
        machine.store(page, 1);
        engine.pass().unwrap();
    }
    machine.store(4, 2);
    engine.pass().unwrap();
    if !engine.verify_all().unwrap().is_clean() {
        return true;
    }
    machine.rot(4, 5);
    let mended = engine.repair(4, &AtRest, Force::No).unwrap();
    mended != Mended::Repaired || machine.page(4) != content(4, 2)
}

/// A neighbour that rots is told in the pass and still comes back.
pub(crate) fn neighbour_rots(off: &str) -> bool {
    let (machine, engine) = admitted(off, 2);
    machine.rot(5, 100);
    machine.store(6, 1);
    engine.pass().unwrap();
    engine.repair(5, &AtRest, Force::No).unwrap();
    machine.page(5) != content(5, 0)
}

/// What a stranger wrote is no damage once it was heard, though nothing is contested yet.
pub(crate) fn a_stranger_is_heard(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.rot(5, 100);
    machine.world.strange.store(true, Ordering::SeqCst);
    engine.verify(5).unwrap().verdict != PageVerdict::Undecided(Unsure::Contested)
}

/// The same beside a page that is covered: it is left undecided for good.
pub(crate) fn a_stranger_wrote_beside(off: &str) -> bool {
    let (machine, engine) = admitted(off, 2);
    machine.rot(5, 100);
    machine.store(6, 1);
    machine.world.strange.store(true, Ordering::SeqCst);
    engine.pass().unwrap();
    machine.world.strange.store(false, Ordering::SeqCst);
    let verdict = engine.verify(5).unwrap().verdict;
    engine.counts().corrupt > 0 || !matches!(verdict, PageVerdict::Undecided(_))
}

/// A stranger comes after the writers were stopped, and before the page is stored.
pub(crate) fn a_stranger_comes_late(off: &str) -> bool {
    #[derive(Debug)]
    struct Late(Machine);
    impl holdfast_mapped::Writers for Late {
        fn freeze(&self) -> bool {
            self.0.world.strange.store(true, Ordering::SeqCst);
            true
        }

        fn thaw(&self) {}
    }
    let (machine, engine) = admitted(off, 1);
    machine.rot(5, 100);
    let before = machine.page(5);
    engine.repair(5, &Late(machine.clone()), Force::No).unwrap();
    machine.page(5) != before
}

/// A neighbour that is stored to between taking and looking is no damage.
pub(crate) fn neighbour_moves(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.store(6, 1);
    let twin = machine.clone();
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.commit.N" {
            twin.store(5, 9);
        }
    }));
    let done = engine.pass().unwrap();
    machine.medium.clear_on_barrier();
    // Stored back to what its entry says: parity has to follow all the same.
    machine.store(5, 0);
    engine.pass().unwrap();
    machine.rot(4, 4);
    let mended = engine.repair(4, &AtRest, Force::No).unwrap();
    done.corrupt > 0 || mended != Mended::Repaired
}

/// A store after its page was looked at belongs to the next pass.
pub(crate) fn store_while_covering(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.store(6, 1);
    let twin = machine.clone();
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.commit.C" {
            twin.store(6, 2);
        }
    }));
    engine.pass().unwrap();
    machine.medium.clear_on_barrier();
    !engine.verify_all().unwrap().is_clean()
}

/// Tracking is lost, and a page rots: it must not be covered.
pub(crate) fn tracking_is_lost(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.rot(5, 100);
    machine.data.lose(0, 8 * PAGE);
    let early = engine.verify(5).unwrap().verdict == PageVerdict::Corrupt;
    engine.pass().unwrap();
    early || !matches!(engine.verify(5).unwrap().verdict, PageVerdict::Undecided(_))
}

/// A page left undecided stays so, whoever opens the file later.
pub(crate) fn undecided_stays(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::Shm, Durability::Process, 1);
    engine.close().unwrap();
    machine.data.window().put(FOREIGN, 5 * PAGE, &[1; 64]).unwrap();
    machine.world.mtime.store(8, Ordering::SeqCst);
    let options = boot(1, Durability::Process);
    let (engine, _) = machine.open(options);
    engine.close().unwrap();
    for read_only in [true, false] {
        let (engine, _) = machine.open(OpenOptions { read_only, ..options });
        let verdict = engine.verify(5).unwrap().verdict;
        if !matches!(verdict, PageVerdict::Undecided(why) if why.is_doubt()) {
            return true;
        }
    }
    false
}

/// What is known of a region is heeded also by those who only look.
pub(crate) fn looking_after_a_crash(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.store(5, 1);
    drop(engine);
    let (_, engine, _) = again(&machine, off, false, false, true).unwrap();
    engine.verify(5).unwrap().verdict != PageVerdict::Undecided(Unsure::TrackingLost)
}

/// A damaged entry is no damage of its page, and parity says what the page is.
pub(crate) fn an_entry_rots(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::Shm, Durability::Process, 1);
    machine.medium.flip_bit(machine.side.place((128 << 10) + PAGE + 5 * 8), 3).unwrap();
    let verdict = engine.verify(5).unwrap().verdict;
    engine.close().unwrap();
    let (engine, _) = machine.open(boot(1, Durability::Process));
    let whole = engine.verify_all().unwrap().is_clean();
    verdict != PageVerdict::Undecided(Unsure::SumsDamaged) || !whole
}

/// The end comes among the entries of a pass, and a page beside them has rotted: it is damage.
pub(crate) fn rot_beside_a_pass_that_was_cut_off(off: &str) -> bool {
    DEATHS.into_iter().any(|(kind, durability)| {
        let (machine, engine) = machine(off, kind, durability, 1);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.store(5, 1);
        machine.medium.elide_name("mapped.commit.record-b");
        let budget = Budget { exhaustive: 64, singles: 32, pairs: 16, samples: 16, seed: 3 };
        let images = move |point: &CrashPoint| -> Chosen {
            match durability {
                Durability::Process => Box::new(core::iter::once(point.newest())),
                Durability::Power => Box::new(point.images(&budget)),
            }
        };
        let wrong = move |next: &Machine| {
            next.rot(2, 100);
            let (engine, _) = next.try_open(boot(1, durability)).unwrap();
            let found = engine.verify(2).unwrap().verdict == PageVerdict::Corrupt;
            !found || engine.repair(2, &AtRest, Force::No).unwrap() != Mended::Repaired
        };
        any_image(&machine, (off, "mapped.commit.C", true), images, wrong, || {
            engine.pass().unwrap();
        })
    })
}

/// A record whose kind rots in both copies is no reason to call anything corrupt.
pub(crate) fn a_record_rots(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.store(5, 1);
    drop(engine);
    for at in [128 << 10, (128 << 10) + 7 * PAGE] {
        machine.medium.stray(machine.side.place(at + 4), &[1]).unwrap();
    }
    let (_, engine, _) = again(&machine, off, false, false, true).unwrap();
    engine.verify(5).unwrap().verdict == PageVerdict::Corrupt
}

/// A store in the moment of a repair is kept.
pub(crate) fn store_before_a_repair(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.rot(5, 100);
    let writers = Stopped::default();
    let twin = machine.clone();
    *writers.between.lock().unwrap() = Some(Box::new(move || twin.store(5, 9)));
    engine.repair(5, &writers, Force::No).unwrap();
    machine.page(5) != content(5, 9)
}

/// Writers stand while a page is replaced.
pub(crate) fn writers_stand(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.rot(5, 100);
    let frozen = Arc::new(AtomicBool::new(false));
    let lost = Arc::new(AtomicBool::new(false));
    let (twin, stands, stored) = (machine.clone(), Arc::clone(&frozen), Arc::clone(&lost));
    machine.medium.on_step(Box::new(move |site| {
        if site.name() == "mapped.repair.step-intent" && !stands.load(Ordering::SeqCst) {
            twin.store(5, 9);
            stored.store(true, Ordering::SeqCst);
        }
    }));
    let writers = Stopped::default();
    let set = Arc::clone(&frozen);
    *writers.between.lock().unwrap() = Some(Box::new(move || set.store(true, Ordering::SeqCst)));
    engine.repair(5, &writers, Force::No).unwrap();
    machine.medium.clear_on_step();
    lost.load(Ordering::SeqCst) && machine.page(5) != content(5, 9)
}

/// Parity rots together with a page: what comes out is not installed.
pub(crate) fn parity_rots_too(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.rot(5, 100);
    machine.medium.flip_bit(machine.side.place(parity_page(1)), 1).unwrap();
    let rotten = machine.page(5);
    engine.repair(5, &AtRest, Force::No).unwrap();
    machine.page(5) != rotten
}

/// Where the parity of a stripe of the first region is, with one parity page.
pub(crate) fn parity_page(stripe: u64) -> u64 {
    (128 << 10) + (3 + stripe) * PAGE
}

/// A repair that the device drops is not called one.
pub(crate) fn repair_is_dropped(off: &str) -> bool {
    DEATHS.into_iter().any(|(kind, durability)| {
        let (machine, engine) = machine(off, kind, durability, 1);
        machine.rot(5, 100);
        machine.medium.arm(FaultKind::Lost, When::touching(5 * PAGE, PAGE));
        engine.repair(5, &AtRest, Force::No).unwrap() == Mended::Repaired
    })
}

/// A repair is whole, also after a crash right behind it.
pub(crate) fn repair_lasts(off: &str) -> bool {
    DEATHS.into_iter().any(|(kind, durability)| {
        [false, true].into_iter().any(|unreadable| {
            let (machine, engine) = machine(off, kind, durability, 1);
            machine.rot(5, 100);
            if unreadable {
                machine.medium.poison(5 * PAGE, 1, Clear::Able).unwrap();
            }
            let mended = engine.repair(5, &AtRest, Force::No).unwrap();
            let left = machine.medium.crash_point().persisted().into_bytes();
            mended != Mended::Repaired || left[5 * PAGE as usize..][..4096] != content(5, 0)
        })
    })
}

/// Parity that rots, or cannot be read, is made anew by a scrub and lasts.
pub(crate) fn parity_is_scrubbed(off: &str) -> bool {
    [false, true].into_iter().any(|unreadable| {
        let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
        let at = machine.side.place(parity_page(1));
        if unreadable {
            machine.medium.poison(at, 1, Clear::Able).unwrap();
        } else {
            machine.medium.flip_bit(at, 1).unwrap();
        }
        engine.scrub(Some(&AtRest)).unwrap();
        let (next, engine, _) = again(&machine, off, true, false, false).unwrap();
        next.rot(5, 5);
        engine.repair(5, &AtRest, Force::No).unwrap() != Mended::Repaired
    })
}

/// A copy of a record that rots is made anew by a scrub and lasts.
pub(crate) fn records_are_scrubbed(off: &str) -> bool {
    [128 << 10, (128 << 10) + 7 * PAGE].into_iter().any(|copy| {
        let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
        machine.medium.flip_bit(machine.side.place(copy + 9), 1).unwrap();
        engine.scrub(None).unwrap();
        let (_, _, opened) = again(&machine, off, true, false, true).unwrap();
        opened.damaged > 0
    })
}

/// Bad pages of the side file are rewritten by whoever stores there, and what they are rewritten
/// with lasts.
pub(crate) fn bad_pages_are_rewritten(off: &str) -> bool {
    // States in both copies, entries, parity of the stripe stored to.
    [0, PAGE, 3 * PAGE, 7 * PAGE].into_iter().any(|at| {
        let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.medium.poison(machine.side.place((128 << 10) + at), 1, Clear::Able).unwrap();
        machine.store(0, 1);
        let hook = Arc::new(std::sync::Mutex::new(false));
        let (seen, name) = (Arc::clone(&hook), off.to_owned());
        let twin = machine.clone();
        // A page is rewritten whole before anything else of the same batch is durable: what a
        // crash finds right behind it must not be garbage.
        machine.medium.on_barrier(Box::new(move |_, site, _| {
            let sites = ["mapped.commit.B", "mapped.commit.C", "mapped.commit.N"];
            if !sites.contains(&site.name()) {
                return;
            }
            let (_, engine, opened) = again(&twin, &name, true, true, true).unwrap();
            let report = engine.verify_all().unwrap();
            *seen.lock().unwrap() |= opened.damaged > 1 || !report.corrupt.is_empty();
        }));
        engine.pass().unwrap();
        machine.medium.clear_on_barrier();
        let left = machine.medium.crash_point().persisted();
        let wrong = *hook.lock().unwrap();
        wrong || !left.bad_pages().is_empty()
    })
}

/// A header of which one copy is bad has two again after it was opened.
pub(crate) fn header_is_healed(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
    engine.close().unwrap();
    let wrong = Arc::new(AtomicBool::new(false));
    let (seen, twin) = (Arc::clone(&wrong), machine.clone());
    machine.medium.poison(machine.side.place(64 << 10), 1, Clear::Able).unwrap();
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.header.b" {
            let left = twin.medium.crash_point().persisted().into_bytes();
            let (a, b) = (twin.side.place(0) as usize, twin.side.place(64 << 10) as usize);
            seen.fetch_or(left[a..a + 4096] != left[b..b + 4096], Ordering::SeqCst);
        }
    }));
    machine.open(boot(1, Durability::Power));
    machine.medium.clear_on_barrier();
    wrong.load(Ordering::SeqCst)
}

/// A copy of the header turns bad before the file is closed: the close rewrites its page, and that
/// lasts.
pub(crate) fn header_is_cleared(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.medium.poison(machine.side.place(64 << 10), 1, Clear::Able).unwrap();
    engine.close().unwrap();
    !machine.medium.crash_point().persisted().bad_pages().is_empty()
}

/// The file is cut off, and the machine stops at any barrier after that was seen: what was cut off
/// is never put back.
pub(crate) fn cut_off_and_crashed(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.world.set_size(9 * PAGE + 50);
    let wrong = Arc::new(AtomicBool::new(false));
    let (seen, twin, name) = (Arc::clone(&wrong), machine.clone(), off.to_owned());
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() != "mapped.commit.B" {
            return;
        }
        for grown in [false, true] {
            let before = twin.data.window().len();
            twin.data.window().set_len(if grown { 12 * PAGE } else { before });
            let image = twin.medium.crash_point().persisted();
            let len = twin.data.window().len();
            let next = Machine::after(image, MediumKind::File, len, Some(twin.data.marks()));
            twin.data.window().set_len(before);
            next.medium.elide_name(&name);
            // What a truncated file shows behind its end, however long it is made again.
            let rest = vec![0; 30 * PAGE as usize - 50];
            next.medium.stray(9 * PAGE + 50, &rest).unwrap();
            let (engine, _) = next.try_open(boot(1, Durability::Power)).unwrap();
            let report = engine.verify_all().unwrap();
            seen.fetch_or(!report.corrupt.is_empty(), Ordering::SeqCst);
        }
    }));
    engine.pass().unwrap();
    machine.medium.clear_on_barrier();
    wrong.load(Ordering::SeqCst)
}

/// A file that was closed is believed again: what differs is damage.
pub(crate) fn closed_is_believed(off: &str) -> bool {
    DEATHS.into_iter().any(|(kind, durability)| {
        let (machine, engine) = machine(off, kind, durability, 1);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.store(5, 1);
        engine.close().unwrap();
        machine.rot(5, 5);
        let power = durability == Durability::Power;
        let (_, engine, _) = again(&machine, off, power, false, true).unwrap();
        engine.verify(5).unwrap().verdict != PageVerdict::Corrupt
    })
}

/// Writers were seen off, and the file is still open: what rots from then on is damage.
pub(crate) fn seen_off_is_believed(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 1);
    engine.dismiss(0, u64::MAX).unwrap();
    let (next, engine, _) = again(&machine, off, true, false, true).unwrap();
    next.rot(5, 5);
    engine.verify(5).unwrap().verdict != PageVerdict::Corrupt
}

/// Either copy of a record is enough to know that writers were there.
pub(crate) fn one_copy_knows_of_writers(off: &str) -> bool {
    DEATHS.into_iter().any(|(kind, durability)| {
        [128 << 10, (128 << 10) + 7 * PAGE].into_iter().any(|copy| {
            let (machine, engine) = machine(off, kind, durability, 1);
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            machine.store(5, 1);
            // What the kernel wrote back by itself.
            machine.medium.write_back(FOREIGN, 0, 20 * PAGE).unwrap();
            machine.medium.stray(machine.side.place(copy + 9), &[0xee]).unwrap();
            let power = durability == Durability::Power;
            let (_, engine, _) = again(&machine, off, power, false, true).unwrap();
            engine.verify(5).unwrap().verdict == PageVerdict::Corrupt
        })
    })
}

/// Either copy of a record is enough to know what was covered.
pub(crate) fn one_copy_knows_what_is_covered(off: &str) -> bool {
    DEATHS.into_iter().any(|(kind, durability)| {
        [128 << 10, (128 << 10) + 7 * PAGE].into_iter().any(|copy| {
            let (machine, engine) = machine(off, kind, durability, 1);
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            machine.store(5, 1);
            engine.pass().unwrap();
            machine.medium.stray(machine.side.place(copy + 9), &[0xee]).unwrap();
            let power = durability == Durability::Power;
            let (_, _, opened) = again(&machine, off, power, true, true).unwrap();
            opened.doubtful > 0
        })
    })
}

/// Either copy of the header is enough to know that the file was closed.
pub(crate) fn one_copy_knows_of_the_close(off: &str) -> bool {
    let all = [MediumKind::Dax, MediumKind::File].map(|kind| [0, 64 << 10].map(|at| (kind, at)));
    all.into_iter().flatten().any(|(kind, copy)| {
        let (machine, engine) = machine(off, kind, Durability::Power, 1);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        engine.close().unwrap();
        machine.medium.stray(machine.side.place(copy + 9), &[0xee]).unwrap();
        let (_, _, opened) = again(&machine, off, true, false, true).unwrap();
        opened.state != holdfast_mapped::State::Clean
    })
}

/// When pages are not stale any more, what was covered is there: each sector by itself.
pub(crate) fn covered_before_cleared(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 1);
    let budget = Budget { exhaustive: 256, singles: 256, pairs: 64, samples: 16, seed: 1 };
    let images = move |point: &CrashPoint| -> Chosen { Box::new(point.images(&budget)) };
    let wrong = |next: &Machine| {
        let options = OpenOptions { read_only: true, ..boot(1, Durability::Power) };
        let (engine, _) = next.try_open(options).unwrap();
        !engine.verify_all().unwrap().is_clean()
    };
    any_image(&machine, (off, "mapped.commit.E", true), images, wrong, || {
        engine.pass().unwrap();
    })
}

/// A repair is cut off, and the source tells of our own store: it covers nothing.
pub(crate) fn our_own_store_proves_nothing(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.rot(5, 100);
    let wrong = Arc::new(AtomicBool::new(false));
    let (seen, twin, name) = (Arc::clone(&wrong), machine.clone(), off.to_owned());
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.repair.store-sync" {
            let (next, engine, _) = again(&twin, &name, true, true, false).unwrap();
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            engine.pass().unwrap();
            let good = engine.verify(5).unwrap().verdict == PageVerdict::Good;
            seen.fetch_or(good && next.page(5) != content(5, 0), Ordering::SeqCst);
        }
    }));
    engine.repair(5, &AtRest, Force::No).unwrap();
    machine.medium.clear_on_barrier();
    wrong.load(Ordering::SeqCst)
}

/// Reasons are told of the pages they were found out about, and not of those that a crash in the
/// middle of a pass left beside them.
pub(crate) fn reasons_are_of_their_pages(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::Shm, Durability::Process, 1);
    engine.close().unwrap();
    machine.world.mtime.fetch_add(1, Ordering::SeqCst);
    machine.data.window().put(FOREIGN, 4 * PAGE, b"changed").unwrap();
    let (engine, _) = machine.open(boot(1, Durability::Process));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 1);
    let wrong = Arc::new(AtomicBool::new(false));
    let (seen, twin, name) = (Arc::clone(&wrong), machine.clone(), off.to_owned());
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.commit.B" {
            let (_, engine, _) = again(&twin, &name, false, false, false).unwrap();
            let verdict = engine.verify(5).unwrap().verdict;
            let made_up = PageVerdict::Undecided(Unsure::ChangedWhileUnprotected);
            seen.fetch_or(verdict == made_up, Ordering::SeqCst);
        }
    }));
    engine.pass().unwrap();
    machine.medium.clear_on_barrier();
    wrong.load(Ordering::SeqCst)
}

/// A store to a page that was just taken is seen like any other.
pub(crate) fn a_store_after_a_look(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    (1..4).any(|version| {
        machine.store(6, version);
        let early = engine.verify(6).unwrap().verdict == PageVerdict::Corrupt;
        engine.scrub(Some(&AtRest)).unwrap();
        engine.pass().unwrap();
        early || machine.page(6) != content(6, version)
    })
}

/// A pass over one part, or a repair, leaves what is known of the others.
pub(crate) fn a_pass_over_a_part(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.store(3, 1);
    machine.store(9, 1);
    engine.cover(9 * PAGE, 10).unwrap();
    let early = engine.verify(3).unwrap().verdict == PageVerdict::Corrupt;
    engine.scrub(Some(&AtRest)).unwrap();
    early || machine.page(3) != content(3, 1)
}
