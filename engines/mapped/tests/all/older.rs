//! After a stop of the machine with nothing synced, each sector of both files may be of any time:
//! what the side file notes as new, or as stored to, may be older than the cover of it, and the
//! page older than its repair. None of it is taken over unasked.

use holdfast_mapped::{AtRest, Durability, Force, Mended, Writing};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::{PageVerdict, Unsure};

use crate::common::{Machine, boot, content, tiny, verdict};

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
