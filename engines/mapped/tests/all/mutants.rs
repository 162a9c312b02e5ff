//! Every named place of the engine switched off in turn: some story must then end wrong. The same
//! stories end well with nothing switched off, so each of them can fail, and each place is needed.
//!
//! Among them are the two wrong orders of a pass, taking after looking and taking without a note,
//! and parity that only the last row of a stripe decides about. So are the two ways in which a
//! source of writes may forget: what it did not tell, and the first store after it told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::explore::{Scene, play};
use crate::common::{Engine, Machine, Stopped, boot, content, tiny};
use crate::{busy, dates, lengths, memory, promises, records};
use holdfast_faultmem::{Budget, Clear, FaultKind, When};
use holdfast_mapped::{
    AtRest, Durability, Force, Mended, OpenOptions, Opened, ProtectOptions, Writing,
};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};
use holdfast_redundancy::{PageVerdict, Unsure};

/// A story: whether it ended wrong with this place switched off.
type Story = fn(&str) -> bool;

const SIZE: u64 = 19 * PAGE + 100;
const FOREIGN: Site = Site::new("test.foreign");

fn machine(off: &str, kind: MediumKind, durability: Durability, parity: u32) -> (Machine, Engine) {
    let machine = Machine::new(kind, SIZE);
    machine.medium.elide_name(off);
    let options = ProtectOptions { open: boot(1, durability), ..tiny(parity) };
    let engine = machine.protect(&options);
    (machine, engine)
}

fn admitted(off: &str, parity: u32) -> (Machine, Engine) {
    let (machine, engine) = machine(off, MediumKind::Shm, Durability::Process, parity);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    (machine, engine)
}

/// The machine after a power cut or a kill, opened again with the same place switched off.
fn again(
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

fn lives(off: &str, kind: MediumKind, durability: Durability, bits: bool) -> bool {
    lives_so(off, kind, durability, bits, false)
}

fn lives_so(
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
fn memory_records(off: &str) -> bool {
    lives_so(off, MediumKind::Shm, Durability::Process, false, true)
}

/// The same on a synced file.
fn file_records(off: &str) -> bool {
    lives_so(off, MediumKind::File, Durability::Power, false, true)
}

/// A life on a synced file, bits outlive the power.
fn file_bits_live(off: &str) -> bool {
    lives(off, MediumKind::File, Durability::Power, true)
}

/// The same, bits die.
fn file_bits_die(off: &str) -> bool {
    lives(off, MediumKind::File, Durability::Power, false)
}

/// A life in shared memory, bits outlive the process.
fn memory_bits_live(off: &str) -> bool {
    lives(off, MediumKind::Shm, Durability::Process, true)
}

/// The same, bits die.
fn memory_bits_die(off: &str) -> bool {
    lives(off, MediumKind::Shm, Durability::Process, false)
}

/// Direct access: nothing is believed of another run of the machine.
fn direct(off: &str) -> bool {
    lives(off, MediumKind::Dax, Durability::Power, false)
}

/// A covered page rots, is found, and comes back.
fn rot_is_found(off: &str) -> bool {
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
fn neighbour_rots(off: &str) -> bool {
    let (machine, engine) = admitted(off, 2);
    machine.rot(5, 100);
    machine.store(6, 1);
    engine.pass().unwrap();
    engine.repair(5, &AtRest, Force::No).unwrap();
    machine.page(5) != content(5, 0)
}

/// What a stranger wrote is no damage once it was heard, though nothing is contested yet.
fn a_stranger_is_heard(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.rot(5, 100);
    machine.world.strange.store(true, Ordering::SeqCst);
    engine.verify(5).unwrap().verdict != PageVerdict::Undecided(Unsure::Contested)
}

/// The same beside a page that is covered: it is left undecided for good.
fn a_stranger_wrote_beside(off: &str) -> bool {
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
fn a_stranger_comes_late(off: &str) -> bool {
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
fn neighbour_moves(off: &str) -> bool {
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
fn store_while_covering(off: &str) -> bool {
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
fn tracking_is_lost(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.rot(5, 100);
    machine.data.lose(0, 8 * PAGE);
    let early = engine.verify(5).unwrap().verdict == PageVerdict::Corrupt;
    engine.pass().unwrap();
    early || !matches!(engine.verify(5).unwrap().verdict, PageVerdict::Undecided(_))
}

/// A page left undecided stays so, whoever opens the file later.
fn undecided_stays(off: &str) -> bool {
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
fn looking_after_a_crash(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.store(5, 1);
    drop(engine);
    let (_, engine, _) = again(&machine, off, false, false, true).unwrap();
    engine.verify(5).unwrap().verdict != PageVerdict::Undecided(Unsure::TrackingLost)
}

/// A damaged entry is no damage of its page, and parity says what the page is.
fn an_entry_rots(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::Shm, Durability::Process, 1);
    machine.medium.flip_bit(machine.side.place((128 << 10) + PAGE + 5 * 8), 3).unwrap();
    let verdict = engine.verify(5).unwrap().verdict;
    engine.close().unwrap();
    let (engine, _) = machine.open(boot(1, Durability::Process));
    let whole = engine.verify_all().unwrap().is_clean();
    verdict != PageVerdict::Undecided(Unsure::SumsDamaged) || !whole
}

/// The end comes among the entries of a pass, and a page beside them has rotted: it is damage.
fn rot_beside_a_pass_that_was_cut_off(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.store(5, 1);
    machine.medium.elide_name("mapped.commit.record-b");
    let wrong = Arc::new(AtomicBool::new(false));
    let (seen, twin, name) = (Arc::clone(&wrong), machine.clone(), off.to_owned());
    machine.medium.on_barrier(Box::new(move |_, site, _| {
        if site.name() == "mapped.commit.C" {
            twin.rot(2, 100);
            let (_, engine, _) = again(&twin, &name, false, true, false).unwrap();
            let found = engine.verify(2).unwrap().verdict == PageVerdict::Corrupt;
            let back = engine.repair(2, &AtRest, Force::No).unwrap() == Mended::Repaired;
            seen.fetch_or(!found || !back, Ordering::SeqCst);
        }
    }));
    engine.pass().unwrap();
    machine.medium.clear_on_barrier();
    wrong.load(Ordering::SeqCst)
}

/// A record whose kind rots in both copies is no reason to call anything corrupt.
fn a_record_rots(off: &str) -> bool {
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
fn store_before_a_repair(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.rot(5, 100);
    let writers = Stopped::default();
    let twin = machine.clone();
    *writers.between.lock().unwrap() = Some(Box::new(move || twin.store(5, 9)));
    engine.repair(5, &writers, Force::No).unwrap();
    machine.page(5) != content(5, 9)
}

/// Writers stand while a page is replaced.
fn writers_stand(off: &str) -> bool {
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
fn parity_rots_too(off: &str) -> bool {
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
fn repair_is_dropped(off: &str) -> bool {
    let cases = [(MediumKind::Shm, Durability::Process), (MediumKind::File, Durability::Power)];
    cases.into_iter().any(|(kind, durability)| {
        let (machine, engine) = machine(off, kind, durability, 1);
        machine.rot(5, 100);
        machine.medium.arm(FaultKind::Lost, When::touching(5 * PAGE, PAGE));
        engine.repair(5, &AtRest, Force::No).unwrap() == Mended::Repaired
    })
}

/// A repair is whole, also after a crash right behind it.
fn repair_lasts(off: &str) -> bool {
    let cases = [(MediumKind::Shm, Durability::Process), (MediumKind::File, Durability::Power)];
    cases.into_iter().any(|(kind, durability)| {
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
fn parity_is_scrubbed(off: &str) -> bool {
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
fn records_are_scrubbed(off: &str) -> bool {
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
fn bad_pages_are_rewritten(off: &str) -> bool {
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
fn header_is_healed(off: &str) -> bool {
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

/// The file is cut off, and the machine stops at any barrier after that was seen: what was cut off
/// is never put back.
fn cut_off_and_crashed(off: &str) -> bool {
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
fn closed_is_believed(off: &str) -> bool {
    let cases = [(MediumKind::Shm, Durability::Process), (MediumKind::File, Durability::Power)];
    cases.into_iter().any(|(kind, durability)| {
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

/// Either copy of a record is enough to know that writers were there.
fn one_copy_knows_of_writers(off: &str) -> bool {
    let cases = [(MediumKind::Shm, Durability::Process), (MediumKind::File, Durability::Power)];
    cases.into_iter().any(|(kind, durability)| {
        [128 << 10, (128 << 10) + 7 * PAGE].into_iter().any(|copy| {
            let (machine, engine) = machine(off, kind, durability, 1);
            engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
            machine.store(5, 1);
            // What the kernel wrote back by itself.
            machine.medium.sync_range(FOREIGN, 0, 20 * PAGE).unwrap();
            machine.medium.stray(machine.side.place(copy + 9), &[0xee]).unwrap();
            let power = durability == Durability::Power;
            let (_, engine, _) = again(&machine, off, power, false, true).unwrap();
            engine.verify(5).unwrap().verdict == PageVerdict::Corrupt
        })
    })
}

/// Either copy of a record is enough to know what was covered.
fn one_copy_knows_what_is_covered(off: &str) -> bool {
    [128 << 10, (128 << 10) + 7 * PAGE].into_iter().any(|copy| {
        let (machine, engine) = admitted(off, 1);
        machine.store(5, 1);
        engine.pass().unwrap();
        machine.medium.stray(machine.side.place(copy + 9), &[0xee]).unwrap();
        let (_, _, opened) = again(&machine, off, false, true, true).unwrap();
        opened.doubtful > 0
    })
}

/// Either copy of the header is enough to know that the file was closed.
fn one_copy_knows_of_the_close(off: &str) -> bool {
    [0, 64 << 10].into_iter().any(|copy| {
        let (machine, engine) = machine(off, MediumKind::Dax, Durability::Power, 1);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        engine.close().unwrap();
        machine.medium.stray(machine.side.place(copy + 9), &[0xee]).unwrap();
        let (_, _, opened) = again(&machine, off, true, false, true).unwrap();
        opened.state != holdfast_mapped::State::Clean
    })
}

/// When pages are not stale any more, what was covered is there: each sector by itself.
fn covered_before_cleared(off: &str) -> bool {
    let (machine, engine) = machine(off, MediumKind::File, Durability::Power, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 1);
    let wrong = Arc::new(AtomicBool::new(false));
    let (seen, twin, name) = (Arc::clone(&wrong), machine.clone(), off.to_owned());
    machine.medium.on_barrier(Box::new(move |_, site, point| {
        if site.name() != "mapped.commit.E" {
            return;
        }
        let budget = Budget { exhaustive: 256, singles: 256, pairs: 64, samples: 16, seed: 1 };
        for image in point.images(&budget) {
            let marks = Some(twin.data.marks());
            let next = Machine::after(image, MediumKind::File, SIZE, marks);
            next.medium.elide_name(&name);
            let options = OpenOptions { read_only: true, ..boot(1, Durability::Power) };
            let (engine, _) = next.try_open(options).unwrap();
            let report = engine.verify_all().unwrap();
            seen.fetch_or(!report.is_clean(), Ordering::SeqCst);
        }
    }));
    engine.pass().unwrap();
    machine.medium.clear_on_barrier();
    wrong.load(Ordering::SeqCst)
}

/// A repair is cut off, and the source tells of our own store: it covers nothing.
fn our_own_store_proves_nothing(off: &str) -> bool {
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
fn reasons_are_of_their_pages(off: &str) -> bool {
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

/// Two pages of a stripe rot, and parity has two: neither counts as a row that is there.
fn two_of_a_stripe_rot(off: &str) -> bool {
    let (machine, engine) = admitted(off, 2);
    machine.rot(5, 100);
    machine.rot(6, 7);
    engine.repair(5, &AtRest, Force::No).unwrap();
    machine.page(5) != content(5, 0)
}

/// A store to a page that was just taken is seen like any other.
fn a_store_after_a_look(off: &str) -> bool {
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
fn a_pass_over_a_part(off: &str) -> bool {
    let (machine, engine) = admitted(off, 1);
    machine.store(3, 1);
    machine.store(9, 1);
    engine.cover(9 * PAGE, 10).unwrap();
    let early = engine.verify(3).unwrap().verdict == PageVerdict::Corrupt;
    engine.scrub(Some(&AtRest)).unwrap();
    early || machine.page(3) != content(3, 1)
}

/// What a source of writes may do wrong, and the stories that end wrong then.
const SOURCE: &[(&str, &[Story])] = &[
    ("faultmem.watched.invalidate", &[a_store_after_a_look]),
    ("faultmem.watched.selective", &[a_pass_over_a_part]),
];

/// Each place, and the stories of which at least one must end wrong without it.
const TABLE: &[(&str, &[Story])] = &[
    ("mapped.admit.clean-a", &[closed_is_believed]),
    ("mapped.admit.clean-b", &[closed_is_believed]),
    ("mapped.admit.clean-drain", &[closed_is_believed]),
    ("mapped.admit.records", &[records::old_records_are_cleared]),
    ("mapped.admit.records-drain", &[records::cleared_before_suspect]),
    ("mapped.admit.cut", &[cut_off_and_crashed]),
    ("mapped.admit.cut-drain", &[cut_off_and_crashed]),
    ("mapped.admit.gone", &[lengths::cut_off_and_a_hole]),
    ("mapped.admit.gone-drain", &[lengths::cut_off_and_a_hole]),
    ("mapped.admit.suspect-a", &[one_copy_knows_of_writers]),
    ("mapped.admit.suspect-b", &[one_copy_knows_of_writers]),
    ("mapped.admit.suspect-drain", &[one_copy_knows_of_writers]),
    ("mapped.check.doubt", &[looking_after_a_crash]),
    ("mapped.check.stale", &[undecided_stays]),
    ("mapped.check.vouches", &[a_stranger_is_heard]),
    ("mapped.commit.B", &[file_bits_live]),
    ("mapped.commit.C", &[covered_before_cleared]),
    ("mapped.commit.D", &[file_bits_live]),
    ("mapped.commit.E", &[file_bits_live, file_bits_die]),
    ("mapped.commit.N", &[file_bits_live]),
    ("mapped.check.lost", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.bits", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.drain", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.forget", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.record", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.since", &[memory::a_pass_came_before_the_question]),
    ("mapped.heal.stores", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.look.lost", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.look.again", &[neighbour_moves]),
    ("mapped.look.intact", &[promises::a_source_dies_in_its_answer]),
    ("mapped.side.verify-records", &[records::among_strange_bytes_none_is_a_record]),
    ("mapped.protect.close-date", &[dates::a_file_is_closed_with_its_date]),
    ("mapped.protect.date", &[dates::a_file_is_protected_with_its_date]),
    ("mapped.recover.date", &[dates::a_file_is_opened_with_its_date]),
    ("mapped.repair.date", &[dates::a_repair_leaves_its_date]),
    ("mapped.recover.lower", &[promises::less_is_promised_first]),
    ("mapped.recover.raise", &[promises::more_is_there_before_it_is_promised]),
    ("mapped.recover.raise-data", &[promises::more_is_there_before_it_is_promised]),
    ("mapped.protect.rest", &[promises::rest_is_there_before_it_is_promised]),
    ("mapped.protect.rest-data", &[promises::rest_is_there_before_it_is_promised]),
    ("mapped.recover.wiped", &[promises::a_wiped_region_is_not_a_new_one]),
    ("mapped.commit.any-row", &[rot_is_found]),
    ("mapped.commit.batch", &[memory_bits_live, file_bits_live]),
    ("mapped.commit.blanket", &[tracking_is_lost]),
    ("mapped.commit.clear", &[memory_bits_live, memory_bits_die]),
    ("mapped.commit.entry", &[rot_is_found]),
    ("mapped.commit.forget", &[records::what_is_covered_is_off_the_record]),
    ("mapped.commit.quiet", &[busy::a_page_that_rests_is_decided]),
    ("mapped.commit.records", &[records::recovery_uses_records_up]),
    ("mapped.commit.narrow", &[memory_bits_live, memory_bits_die]),
    ("mapped.look.neighbours", &[neighbour_rots]),
    ("mapped.commit.parity", &[rot_is_found]),
    ("mapped.commit.parity-heal", &[bad_pages_are_rewritten]),
    ("mapped.commit.record-a", &[one_copy_knows_what_is_covered]),
    ("mapped.commit.record-b", &[one_copy_knows_what_is_covered]),
    ("mapped.commit.rest", &[rot_beside_a_pass_that_was_cut_off]),
    ("mapped.commit.take-first", &[store_while_covering]),
    ("mapped.look.vouch", &[an_entry_rots]),
    ("mapped.look.vouches", &[a_stranger_wrote_beside]),
    ("mapped.engine.verify-meta", &[an_entry_rots]),
    ("mapped.engine.verify-page", &[rot_is_found]),
    ("mapped.header.a", &[direct]),
    ("mapped.header.b", &[direct]),
    ("mapped.header.drain-a", &[one_copy_knows_of_the_close]),
    ("mapped.header.drain-b", &[direct]),
    ("mapped.header.heal", &[header_is_healed]),
    ("mapped.recover.interrupted", &[our_own_store_proves_nothing]),
    ("mapped.recover.recorded", &[memory_records, file_records, records::a_record_is_proof]),
    ("mapped.repair.confirm", &[repair_is_dropped]),
    ("mapped.repair.forget-drain", &[records::a_repair_is_off_the_record]),
    ("mapped.repair.freeze", &[writers_stand]),
    ("mapped.repair.heal", &[repair_lasts]),
    ("mapped.repair.judge", &[parity_rots_too]),
    ("mapped.repair.last", &[a_stranger_comes_late]),
    ("mapped.repair.rows", &[two_of_a_stripe_rot]),
    ("mapped.repair.recheck", &[store_before_a_repair]),
    ("mapped.repair.store", &[repair_lasts]),
    ("mapped.repair.store-drain", &[repair_lasts, repair_is_dropped]),
    ("mapped.repair.store-sync", &[repair_lasts, repair_is_dropped]),
    ("mapped.scrub.parity", &[parity_is_scrubbed]),
    ("mapped.scrub.parity-drain", &[parity_is_scrubbed]),
    ("mapped.scrub.parity-heal", &[parity_is_scrubbed]),
    ("mapped.scrub.record-a", &[records_are_scrubbed]),
    ("mapped.scrub.record-b", &[records_are_scrubbed]),
    ("mapped.scrub.record-drain", &[records_are_scrubbed]),
    ("mapped.scrub.verify-parity", &[parity_is_scrubbed]),
    ("mapped.side.entry-heal", &[bad_pages_are_rewritten]),
    ("mapped.side.records-heal", &[records::a_bad_page_is_made_anew]),
    ("mapped.side.state-heal", &[bad_pages_are_rewritten]),
    ("mapped.side.verify-record", &[a_record_rots]),
    ("mapped.side.verify-why", &[reasons_are_of_their_pages]),
];

/// Places that only tests see.
const STEPS: [&str; 2] = ["mapped.repair.step-frozen", "mapped.repair.step-intent"];

#[test]
fn the_table_has_every_place() {
    let mut places = BTreeSet::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let names = text.split("Site::new(\"").skip(1).map(|part| part.split('"').next().unwrap());
        places.extend(names.map(str::to_owned));
    }
    let listed: BTreeSet<String> =
        TABLE.iter().map(|(name, _)| *name).chain(STEPS).map(str::to_owned).collect();
    assert_eq!(places, listed);
}

#[test]
fn every_story_ends_well_with_nothing_switched_off() {
    let all = TABLE.iter().chain(SOURCE);
    let mut stories: Vec<Story> = all.flat_map(|(_, s)| s.iter().copied()).collect();
    stories.sort_by_key(|story| *story as usize);
    stories.dedup_by_key(|story| *story as usize);
    for story in stories {
        assert!(!story("nothing"), "{:?}", TABLE.iter().find(|(_, s)| s.contains(&story)));
    }
}

#[test]
fn every_place_switched_off_is_noticed() {
    let mut missed = Vec::new();
    for (name, stories) in TABLE.iter().chain(SOURCE) {
        let killed = stories.iter().any(|story| {
            let story = || story(name);
            // A story that merely gives up has seen nothing.
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(story)).unwrap_or(false)
        });
        if !killed {
            missed.push(*name);
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
}
