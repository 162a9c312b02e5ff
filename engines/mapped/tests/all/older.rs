//! What lies in a file and what its side file says of it may be older than each other.
//!
//! After a stop of the machine with nothing synced, each sector of both files may be of any time:
//! what the side file notes as new, or as stored to, may be older than the cover of it, and the
//! page older than its repair. None of it is taken over unasked. And where the write of an entry
//! was lost, a page that is set back agrees with what is left there.

use holdfast_mapped::{AtRest, Durability, Force, Mended, Writing};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::{PageVerdict, Unsure};

use crate::common::{Engine, Machine, boot, content, tiny, verdict};
use crate::stories;

/// Where the regions begin in the side file.
const REGIONS: u64 = 128 << 10;
/// Pages of the file at first, and once it has grown: of the same region, and of one more.
const FEW: u64 = 5;
const MANY: u64 = 11;

fn side_of(machine: &Machine) -> Vec<u8> {
    let mut bytes = vec![0; machine.side.len() as usize];
    machine.side.read(0, &mut bytes).unwrap();
    bytes
}

/// Puts back what the side file once held, from `from` on.
fn throw_back(machine: &Machine, old: &[u8], from: u64) {
    for at in (from..old.len() as u64).step_by(PAGE as usize) {
        let page = &old[at as usize..][..PAGE as usize];
        machine.medium.stray(machine.side.place(at), page).unwrap();
    }
}

/// Another run of the machine, in which the bits of the source are known, or not.
fn after_the_stop(machine: &Machine, size: u64, bits: bool) -> Machine {
    let image = machine.medium.crash_point().newest();
    let marks = bits.then(|| machine.data.marks());
    Machine::after(image, MediumKind::File, size, marks)
}

/// Whoever looks, lets writers in and covers finds the page in doubt, each time.
fn stays_in_doubt(machine: &Machine, page: u64) {
    let options = boot(2, Durability::Process);
    let lost = PageVerdict::Undecided(Unsure::TrackingLost);
    let found = machine.page(page);
    let looking = holdfast_mapped::OpenOptions { read_only: true, ..options };
    assert_eq!(verdict(&machine.open(looking).0, page), lost, "who only looks");
    let (engine, _) = machine.open(options);
    assert_eq!(verdict(&engine, page), lost);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    assert_eq!(verdict(&engine, page), lost, "covered by a pass");
    engine.close().unwrap();
    let (engine, _) = machine.open(options);
    assert_eq!(verdict(&engine, page), lost, "opened once more");
    assert_eq!(machine.page(page), found);
    // A store makes it the program's, as ever.
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(page, 7);
    engine.pass().unwrap();
    assert_eq!(verdict(&engine, page), PageVerdict::Good);
}

/// A file has grown and is covered; of what says so, the sectors from `from` on did not get to the
/// disk. Damage to `page`, which was covered, is not taken for what the file grew by.
fn damage_to_what_had_grown(page: u64, from: u64) {
    let machine = Machine::new(MediumKind::File, MANY * PAGE);
    machine.world.set_size(FEW * PAGE);
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    let old = side_of(&machine);
    machine.world.set_size(MANY * PAGE);
    engine.pass().unwrap();
    assert_eq!(verdict(&engine, page), PageVerdict::Good, "covered");
    drop(engine);
    throw_back(&machine, &old, from);
    machine.rot(page, 100);
    stays_in_doubt(&after_the_stop(&machine, MANY * PAGE, false), page);
}

#[test]
fn an_older_record_of_a_region_makes_no_page_new() {
    damage_to_what_had_grown(FEW + 1, REGIONS);
}

#[test]
fn an_older_header_makes_no_page_new() {
    for page in [FEW + 1, MANY - 1] {
        damage_to_what_had_grown(page, 0);
    }
}

/// A page was damaged and repaired, and stored to since: neither the repair nor the store got to
/// the disk, nor what the side file noted. That the source tells of a store does not make what lies
/// there the program's.
#[test]
fn a_store_that_the_source_tells_of_need_not_have_outlived_the_stop() {
    const PAGE_5: u64 = 5;
    let machine = Machine::new(MediumKind::File, MANY * PAGE);
    let engine = machine.protect(&tiny(1));
    let old = side_of(&machine);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    engine.pass().unwrap();
    machine.rot(PAGE_5, 100);
    let rotten = machine.page(PAGE_5);
    assert_eq!(engine.repair(PAGE_5, &AtRest, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(PAGE_5), content(PAGE_5, 0));
    machine.store(PAGE_5, 1);
    drop(engine);
    throw_back(&machine, &old, REGIONS);
    machine.medium.stray(PAGE_5 * PAGE, &rotten).unwrap();
    stays_in_doubt(&after_the_stop(&machine, MANY * PAGE, true), PAGE_5);
}

/// Page 5 and its entry are what they were a pass ago, both: a write of each was lost.
fn set_back_with_its_entry(off: &str) -> (Machine, Engine) {
    let (machine, engine) = stories::machine(off, MediumKind::File, Durability::Power, 1);
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.store(5, 1);
    engine.pass().unwrap();
    let at = REGIONS + PAGE + 5 * 8;
    let mut entry = [0; 8];
    machine.side.read(at, &mut entry).unwrap();
    machine.store(5, 2);
    engine.pass().unwrap();
    machine.medium.stray(machine.side.place(at), &entry).unwrap();
    machine.medium.stray(5 * PAGE, &content(5, 1)).unwrap();
    (machine, engine)
}

const DAMAGED: PageVerdict = PageVerdict::Undecided(Unsure::SumsDamaged);

/// A look does not call it good, nor does a scrub make parity of it, by which it could be known.
pub(crate) fn agreeing_is_no_proof(off: &str) -> bool {
    let (_, engine) = set_back_with_its_entry(off);
    let scrubbed = engine.scrub(Some(&AtRest)).unwrap();
    verdict(&engine, 5) != DAMAGED || scrubbed.parity > 0
}

/// Nor is it good once openings have gone through the region, whose sum is of what is there then.
pub(crate) fn parity_says_otherwise(off: &str) -> bool {
    let (machine, engine) = set_back_with_its_entry(off);
    engine.close().unwrap();
    (0..3).any(|_| {
        let (engine, _) = machine.open(boot(1, Durability::Power));
        let said = verdict(&engine, 5);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        engine.pass().unwrap();
        engine.close().unwrap();
        said != DAMAGED
    })
}

/// An entry that rots takes the other pages of its region with it only where parity cannot tell:
/// beside it, and beside what was stored to since.
#[test]
fn pages_beside_a_rotten_entry_are_good_if_parity_says_so() {
    let machine = Machine::new(MediumKind::File, MANY * PAGE);
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.medium.flip_bit(machine.side.place(REGIONS + PAGE + 5 * 8), 3).unwrap();
    for page in [0, 1, 2, 3, 4, 6, 7, 8] {
        assert_eq!(verdict(&engine, page), PageVerdict::Good, "page {page}");
    }
    assert_eq!(verdict(&engine, 5), DAMAGED);
    machine.store(1, 1);
    assert_eq!(verdict(&engine, 2), DAMAGED);
    engine.pass().unwrap();
    let report = engine.verify_all().unwrap();
    assert!(report.is_clean(), "{report:?}");
}

/// Nor once other pages of its stripe were stored to before a pass gets there: parity, which is
/// made anew then, does not give back what these were.
pub(crate) fn not_blessed_by_a_store_beside(off: &str) -> bool {
    [&[4][..], &[4, 6]].iter().any(|stored| {
        let (machine, engine) = set_back_with_its_entry(off);
        stored.iter().for_each(|page| machine.store(*page, 3));
        engine.pass().unwrap();
        let passed = verdict(&engine, 5);
        engine.scrub(Some(&AtRest)).unwrap();
        engine.close().unwrap();
        let (engine, _) = machine.open(boot(1, Durability::Power));
        let opened = verdict(&engine, 5);
        engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
        machine.store(5, 4);
        engine.pass().unwrap();
        let stored = verdict(&engine, 5);
        [passed, opened, stored] != [DAMAGED, DAMAGED, PageVerdict::Good]
    })
}
