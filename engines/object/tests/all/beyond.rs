//! What is lost costs what it must and no more: a directory entry its chunk, notes about repairs
//! and scrubs nothing, a copy that stays bad the other one's twin; and a transaction that failed
//! half way is no part of another.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{
    Filled, TestPool, clock, crash, create, create_with, filled, get, pattern, put, quick,
};
use crate::no_spare::spoil_spares;
use holdfast_faultmem::{Clear, Config, FailMode, FaultKind, FaultMedium, When};
use holdfast_heap::ZoneTable;
use holdfast_layout::format::{
    EVENTS_START, INTENT_PAGE, PROGRESS_PAGE, REGIONS_PAGE, REMAP_PAGE, SUPERBLOCK_PAGE,
};
use holdfast_layout::{Ptr, RawPtr, Region, RegionKind, TypeNumber};
use holdfast_logs::format::ADJACENT_MARK_PAGES;
use holdfast_object::{CreateOptions, Error, Parity, Pool, ScrubControl, ScrubOptions, Scrubbed};
use holdfast_pmem::{Medium, MediumKind, PAGE};
use holdfast_redundancy::events::{Journal, Outcome};
use holdfast_txn::{Transaction, TxError};

fn scrub(pool: &TestPool) -> Scrubbed {
    pool.scrub(ScrubOptions::default(), &ScrubControl::default(), |_, _| {}).unwrap()
}

fn zone(pool: &TestPool) -> Region {
    *pool.regions().iter().find(|r| r.kind == RegionKind::Zone).unwrap()
}

fn outcomes(pool: &TestPool) -> Vec<Outcome> {
    let journal = Journal::open(pool.medium(), &pool.superblock());
    journal.read_all(pool.medium()).iter().map(|event| event.outcome).collect()
}

/// The medium of a pool that is closed, or left as it is if `close` is false.
pub(crate) fn reopen(pool: TestPool, close: bool) -> FaultMedium {
    let mut image = pool.medium().crash_point().persisted();
    if close {
        let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
        let last = std::sync::Arc::clone(&kept);
        pool.medium().on_barrier(Box::new(move |_, _, point| {
            *last.lock().unwrap() = Some(point.newest());
        }));
        drop(pool);
        image = kept.lock().unwrap().take().unwrap();
    } else {
        drop(pool);
    }
    FaultMedium::from_crash(image, MediumKind::Dax, &Config::default())
}

#[test]
fn lost_notes_about_repairs_and_scrubs_do_not_keep_a_pool_closed() {
    let pool = create(MediumKind::Dax);
    let object = put(&pool, &pattern(1, 300));
    let side_len = pool.superblock().side_len;
    let m = reopen(pool, false);
    for place in [INTENT_PAGE, PROGRESS_PAGE] {
        for at in [place, side_len + place] {
            m.stray(at, &[0x5a; 64]).unwrap();
        }
    }
    let (pool, opened) = Pool::open(m, quick(), clock()).unwrap();
    assert_eq!(opened.mended, 2);
    assert_eq!(outcomes(&pool), [Outcome::Lost, Outcome::Lost]);
    assert_eq!(get(&pool, object).unwrap(), pattern(1, 300));
    assert!(scrub(&pool).report.is_clean());
    let (pool, opened) = crash(pool);
    assert_eq!(opened.mended, 0, "both are whole again");
    assert_eq!(get(&pool, object).unwrap(), pattern(1, 300));
}

/// What a pool in use knows of itself it writes again where both copies are gone: a crash after a
/// scrub costs nothing.
#[test]
fn records_whose_copies_are_both_gone_are_written_again_from_memory() {
    let places = [SUPERBLOCK_PAGE, REGIONS_PAGE, REMAP_PAGE, INTENT_PAGE, PROGRESS_PAGE];
    for (place, poison) in places.into_iter().flat_map(|place| [(place, false), (place, true)]) {
        let pool = create(MediumKind::Dax);
        let object = put(&pool, &pattern(1, 300));
        let side_len = pool.superblock().side_len;
        for at in [place, side_len + place] {
            match poison {
                true => pool.medium().poison(at, PAGE, Clear::Able).unwrap(),
                false => pool.medium().stray(at, &[0x5a; PAGE as usize]).unwrap(),
            }
        }
        scrub(&pool);
        assert!(scrub(&pool).report.is_clean(), "page {place}");
        // Its own progress a scrub writes by the way, over whatever lies there.
        let told = place == PROGRESS_PAGE || !outcomes(&pool).is_empty();
        assert!(told, "page {place}");
        let (pool, opened) = crash(pool);
        assert_eq!(opened.mended, 0, "page {place}: both are whole again");
        assert_eq!(get(&pool, object).unwrap(), pattern(1, 300));
    }
}

/// What a log held of which neither copy can be read nobody knows: that is told.
#[test]
fn a_log_that_cannot_be_read_in_both_copies_is_called_lost() {
    for both in [false, true] {
        let pool = create(MediumKind::Dax);
        put(&pool, &pattern(1, 300));
        let superblock = pool.superblock();
        let m = reopen(pool, false);
        for page in (superblock.log_start..superblock.side_len).step_by(PAGE as usize) {
            m.poison(page, PAGE, Clear::Able).unwrap();
            if both {
                m.poison(superblock.side_len + page, PAGE, Clear::Able).unwrap();
            }
        }
        let (pool, opened) = Pool::open(m, quick(), clock()).unwrap();
        assert_eq!(opened.recovered.lost > 0, both, "{opened:?}");
        assert_eq!(outcomes(&pool).contains(&Outcome::Lost), both);
        let (pool, opened) = crash(pool);
        assert_eq!(opened.recovered.lost, 0, "{opened:?}");
        let object = put(&pool, &pattern(2, 300));
        assert_eq!(get(&pool, object).unwrap(), pattern(2, 300));
    }
}

#[test]
fn a_lost_directory_entry_costs_its_chunk() {
    let options = CreateOptions { parity: Parity::None, ..CreateOptions::tiny(1 << 20) };
    for close in [false, true] {
        let pool = create_with(MediumKind::Dax, &options);
        let objects: Vec<RawPtr> = (0..100).map(|i| put(&pool, &pattern(i + 1, 300))).collect();
        let zone = zone(&pool);
        let table = ZoneTable::new(0, &zone);
        let lost = table.chunk_of(objects[50].offset()).unwrap();
        let m = reopen(pool, close);
        m.stray(table.entry_at(lost), &[0xa5; 8]).unwrap();
        let (pool, _) = Pool::open(m, quick(), clock()).unwrap();
        assert!(outcomes(&pool).contains(&Outcome::Lost));
        for (i, object) in objects.iter().enumerate() {
            let there = table.chunk_of(object.offset()) != Some(lost);
            let found = get(&pool, *object);
            let gone = matches!(found, Err(Error::Tx(TxError::Lost { .. })));
            assert_eq!((found.is_ok(), gone), (there, !there), "object {i}: {found:?}");
        }
        // Nothing new is put where nobody knows what is there.
        for i in 0..100 {
            let fresh = put(&pool, &pattern(i + 1, 300));
            assert_ne!(table.chunk_of(fresh.offset()), Some(lost));
        }
    }
}

#[test]
fn a_lost_slot_write_is_brought_back_with_one_parity() {
    let options = CreateOptions { parity: Parity::P, ..CreateOptions::tiny(1 << 20) };
    let pool = create_with(MediumKind::Dax, &options);
    let kept = put(&pool, &pattern(1, 300));
    let slot = |object: RawPtr| {
        let table = ZoneTable::new(0, &zone(&pool));
        let chunk = table.chunk_of(object.offset()).unwrap();
        let place = (object.offset() - kept.offset()) / 320;
        table.chunk_at(chunk) + place * 16
    };
    // The device keeps the old, free slot of a new object.
    pool.medium().arm(FaultKind::Lost, When::touching(slot(kept) + 16, 16));
    let object = put(&pool, &pattern(2, 300));
    assert_eq!(pool.medium().armed(), 0);
    assert_eq!(get(&pool, object).unwrap(), pattern(2, 300), "its pointer is newer than the slot");
    // And the live one of an object that was freed.
    pool.medium().arm(FaultKind::Lost, When::touching(slot(kept) + 16, 16));
    pool.run(|tx| tx.free(object)).unwrap();
    assert_eq!(pool.medium().armed(), 0);
    let done = scrub(&pool);
    assert_eq!((done.lost, done.report.is_clean()), (0, false));
    assert!(get(&pool, object).is_err(), "it stays freed");
    assert!(scrub(&pool).report.is_clean());
    assert_eq!(get(&pool, kept).unwrap(), pattern(1, 300));
}

#[test]
fn a_copy_that_stays_bad_does_not_stop_a_scrub() {
    let pool = create(MediumKind::Dax);
    let object = put(&pool, &pattern(1, 300));
    pool.medium().poison(REGIONS_PAGE, PAGE, Clear::Unable).unwrap();
    pool.medium().poison(PROGRESS_PAGE, PAGE, Clear::Unable).unwrap();
    let done = scrub(&pool);
    assert!(done.lost > 0, "one copy is left, which is reported");
    assert_eq!(get(&pool, object).unwrap(), pattern(1, 300));
    put(&pool, &pattern(2, 300));
    let (pool, _) = crash(pool);
    assert_eq!(get(&pool, object).unwrap(), pattern(1, 300));
}

#[test]
fn a_transaction_that_failed_half_way_is_no_part_of_another() {
    let pool = create(MediumKind::Shm);
    let object = put(&pool, &[1; 64]);
    let outer = pool.run(|tx| {
        let inner = pool.run(|inner| {
            inner.write_bytes(object, 0, &[9; 64])?;
            Err::<(), _>(TxError::cancel("half way"))
        });
        assert!(inner.is_err());
        tx.alloc_bytes(TypeNumber::BYTES, 64)
    });
    assert!(outer.is_err(), "the outer one cannot commit half of the inner one");
    assert_eq!(get(&pool, object).unwrap(), [1; 64]);
    // One that failed before it changed anything is no harm.
    let fresh = pool.run(|tx| {
        let dangling = RawPtr::new(object.offset(), object.generation() ^ 1);
        assert!(pool.run(|inner| inner.len_of(dangling)).is_err());
        tx.alloc_bytes(TypeNumber::BYTES, 64)
    });
    assert!(fresh.is_ok());
}

#[test]
fn a_lost_append_to_the_log_of_a_file_is_told() {
    let pool = create(MediumKind::File);
    let (object, other) = (put(&pool, &[1; 64]), put(&pool, &[1; 64]));
    let write = |of, byte| pool.run(|tx| tx.write_bytes(of, 0, &[byte; 64])).unwrap();
    write(object, 2);
    // The device keeps what was there: record and replica are gone, and later ones are not.
    let superblock = pool.superblock();
    let first = superblock.log_start + ADJACENT_MARK_PAGES * PAGE;
    let batches = When::touching(first, 2 * superblock.side_len - first);
    pool.medium().arm(FaultKind::Lost, batches);
    write(object, 3);
    assert_eq!(pool.medium().armed(), 0);
    write(other, 4);
    let (pool, opened) = crash(pool);
    assert_eq!(opened.recovered.lost, 1, "a transaction is lost, and that is known");
    assert!(outcomes(&pool).contains(&Outcome::Lost));
    assert_eq!(get(&pool, other).unwrap(), [4; 64]);
}

#[test]
fn however_much_of_an_object_is_damaged_one_run_reads_it() {
    let options = CreateOptions { parity: Parity::P, rows: 16, ..CreateOptions::tiny(8 << 20) };
    let pool = create_with(MediumKind::Dax, &options);
    pool.set_verify_reads(holdfast_object::VerifyReads::Always);
    let bytes = pattern(5, 100_000);
    let object = put(&pool, &bytes);
    // A hundred granules, each of which would take a run of its own.
    pool.medium().stray(object.offset(), &[0; 100_000]).unwrap();
    assert_eq!(get(&pool, object).unwrap(), bytes);
}

#[test]
fn a_journal_page_that_stays_bad_keeps_nobody_busy() {
    let pool = create(MediumKind::Dax);
    let object = put(&pool, &pattern(1, 300));
    let spare = pool.regions().iter().find(|r| r.kind == RegionKind::Spare).copied();
    let spare = spare.expect("every pool has a spare frame");
    pool.medium().poison(spare.start, spare.len, Clear::Unable).unwrap();
    pool.medium().poison(EVENTS_START, PAGE, Clear::Unable).unwrap();
    pool.set_verify_reads(holdfast_object::VerifyReads::Always);
    pool.medium().flip_bit(object.offset() + 7, 3).unwrap();
    assert_eq!(get(&pool, object).unwrap(), pattern(1, 300));
    put(&pool, &pattern(2, 300));
}

#[test]
fn a_type_is_compared_also_where_bytes_were_verified_before() {
    let pool = create(MediumKind::Shm);
    let narrow: Ptr<[u64; 1]> = pool.run(|tx| tx.alloc([7])).unwrap();
    assert_eq!(pool.read(narrow).unwrap(), [7]);
    let wide = pool.read::<[u64; 8]>(narrow.raw().typed());
    assert!(matches!(wide, Err(holdfast_object::Error::Tx(TxError::WrongType { .. }))));
}

/// Parity and a page over it are gone, and a commit meets the parity first: what that is made of
/// must not count as what the page was, also where the page stays bad and its frame moves.
#[test]
fn a_page_that_goes_with_its_parity_is_called_lost_whichever_is_met_first() {
    for stays in [Clear::Able, Clear::Unable] {
        let (f, page) = two_rows();
        let (gone, parity) = (f.zone.at(0, page * PAGE), f.zone.p_at(page * PAGE));
        f.pool.medium().poison(gone, PAGE, stays).unwrap();
        f.pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
        let other = over(&f, 1, page)[0];
        f.pool.run(|tx| tx.write_bytes(other, 8, &[7; 8])).unwrap();
        assert_eq!(outcomes_of(&f.pool, gone), [Outcome::Lost], "{stays:?}");
        assert_eq!(outcomes_of(&f.pool, parity), [Outcome::Repaired], "{stays:?}");
        for of in over(&f, 0, page) {
            assert!(matches!(get(&f.pool, of), Err(Error::Tx(TxError::Lost { .. }))), "{of:?}");
        }
        assert_eq!(outcomes_of(&f.pool, gone), [Outcome::Lost], "{stays:?}");
        assert_eq!(f.pool.medium().bad_ranges(), [], "what is lost is zeros");
        // Parity goes with what is there now, and gives that back.
        let bytes = get(&f.pool, other).unwrap();
        f.pool.medium().flip_bit(other.offset() + 20, 3).unwrap();
        assert_eq!(get(&f.pool, other).unwrap(), bytes);
    }
}

/// A scrub counts what it found once, as what became of the worst of it: the page is met before its
/// parity, which is back afterwards without it and is not counted as repaired.
#[test]
fn a_scrub_of_a_page_that_goes_with_its_parity_counts_one_loss_and_no_repair() {
    let (f, slots) = two_rows();
    // A page without slots, which are met before and each count as lost.
    let page = slots + 1;
    for of in over(&f, 0, page) {
        f.pool.run(|tx| tx.free(of)).unwrap();
    }
    let (gone, parity) = (f.zone.at(0, page * PAGE), f.zone.p_at(page * PAGE));
    for at in [gone, parity] {
        f.pool.medium().poison(at, PAGE, Clear::Able).unwrap();
    }
    let done = scrub(&f.pool);
    assert_eq!((done.repaired, done.lost), (0, 1), "{:?}", done.report.findings);
    assert_eq!(outcomes_of(&f.pool, gone), [Outcome::Lost]);
    assert_eq!(outcomes_of(&f.pool, parity), [Outcome::Repaired]);
}

/// The same where the parity goes along with a frame that moves for another page.
#[test]
fn a_page_whose_parity_moves_along_with_a_frame_is_called_lost() {
    const FRAME: u64 = 4 * PAGE;
    let options = CreateOptions { rows: 10, frame: FRAME, ..CreateOptions::tiny(32 << 20) };
    let f = filled(&options, 700);
    let beside = |page: &u64| {
        let at = f.zone.p_at(page * PAGE);
        !at.is_multiple_of(FRAME) && over(&f, 0, *page).len() > 3
    };
    let page = (0..f.zone.row_len() / PAGE).find(beside).unwrap();
    let (gone, parity) = (f.zone.at(0, page * PAGE), f.zone.p_at(page * PAGE));
    let stays = parity - parity % FRAME;
    f.pool.medium().poison(gone, PAGE, Clear::Able).unwrap();
    f.pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
    f.pool.medium().poison(stays, PAGE, Clear::Unable).unwrap();
    assert!(f.pool.heal_load(stays, PAGE));
    assert_eq!(outcomes_of(&f.pool, stays), [Outcome::Relocated]);
    for of in over(&f, 0, page) {
        assert!(matches!(get(&f.pool, of), Err(Error::Tx(TxError::Lost { .. }))), "{of:?}");
    }
    assert_eq!(outcomes_of(&f.pool, gone), [Outcome::Lost]);
}

/// Two pages of rows over one column of P are gone. What the second one is made up from is zeros
/// where the first one was.
#[test]
fn a_page_that_is_made_up_beside_a_lost_one_is_lost_as_well() {
    for (stays, by_scrub) in
        [Clear::Able, Clear::Unable].map(|it| [(it, true), (it, false)]).concat()
    {
        let (f, page) = two_rows();
        let gone = [0, 2].map(|row| f.zone.at(row, page * PAGE));
        f.pool.medium().poison(gone[0], PAGE, stays).unwrap();
        f.pool.medium().poison(gone[1], PAGE, Clear::Able).unwrap();
        if by_scrub {
            assert!(scrub(&f.pool).lost > 1, "{stays:?}");
        } else {
            assert!(gone.iter().all(|gone| !f.pool.heal_load(*gone, PAGE)));
        }
        for gone in gone {
            // The journal forgets what came before many objects.
            let told = outcomes_of(&f.pool, gone);
            assert!(told.iter().all(|it| *it == Outcome::Lost), "{stays:?}, {by_scrub}: {told:?}");
            assert!(by_scrub || told.len() == 1, "{stays:?}: {told:?}");
        }
        // What is there now adds up, and gives back what goes bad later.
        let third = over(&f, 1, page)[0];
        let bytes = get(&f.pool, third).unwrap();
        f.pool.medium().poison(f.zone.at(1, page * PAGE), PAGE, Clear::Able).unwrap();
        assert_eq!(get(&f.pool, third).unwrap(), bytes, "{stays:?}");
        let told = outcomes_of(&f.pool, f.zone.at(1, page * PAGE));
        assert_eq!(told, [Outcome::Repaired], "{stays:?}");
    }
}

/// The same with no spare frame: the page stays bad, and parity over it is healed without it.
#[test]
fn a_lost_page_that_stays_bad_is_not_called_right_from_what_parity_became() {
    let (f, page) = two_rows();
    spoil_spares(f.pool.medium(), &f.pool.regions());
    let (gone, parity) = (f.zone.at(0, page * PAGE), f.zone.p_at(page * PAGE));
    f.pool.medium().poison(gone, PAGE, Clear::Unable).unwrap();
    f.pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
    f.pool.run(|tx| tx.write_bytes(over(&f, 1, page)[0], 8, &[7; 8])).unwrap();
    for of in over(&f, 0, page) {
        assert!(matches!(get(&f.pool, of), Err(Error::Tx(TxError::Lost { .. }))), "{of:?}");
    }
    let told = outcomes_of(&f.pool, gone);
    assert!(!told.is_empty() && told.iter().all(|told| *told == Outcome::Lost), "{told:?}");
}

/// The same where a commit that is durable meets both, and completes itself.
#[test]
fn a_page_that_a_commit_makes_up_is_called_lost_wherever_it_is_moved() {
    for stays in [Clear::Able, Clear::Unable] {
        let (f, page) = two_rows();
        let (gone, parity) = (f.zone.at(0, page * PAGE), f.zone.p_at(page * PAGE));
        let written = over(&f, 1, page)[0];
        f.pool.medium().poison(gone, PAGE, stays).unwrap();
        let (pool, once) = (f.pool.clone(), AtomicBool::new(true));
        f.pool.medium().on_step(Box::new(move |site| {
            if site.name() == "object.commit.step-columns" && once.swap(false, Ordering::Relaxed) {
                pool.medium().poison(parity, PAGE, Clear::Able).unwrap();
            }
        }));
        f.pool.run(|tx| tx.write_bytes(written, 8, &[7; 8])).unwrap();
        f.pool.medium().clear_on_step();
        assert_eq!(get(&f.pool, written).unwrap()[8..16], [7; 8], "{stays:?}");
        let told = outcomes_of(&f.pool, gone);
        assert_eq!(told, [Outcome::Lost], "{stays:?}");
    }
}

/// While a page comes back, one call after the other fails for once: none of that makes it zeros.
#[test]
fn what_cannot_be_read_for_once_is_not_lost() {
    for nth in 1..150 {
        let (f, page) = two_rows();
        let (of, medium) = (over(&f, 0, page)[0], f.pool.medium());
        let (_, bytes) = f.objects.iter().find(|(other, _)| *other == of).unwrap();
        medium.poison(f.zone.at(0, page * PAGE), PAGE, Clear::Able).unwrap();
        medium.fail_nth(medium.calls() + nth, FailMode::Once);
        let _ = get(&f.pool, of);
        medium.fail_none();
        assert_eq!(get(&f.pool, of).unwrap(), *bytes, "call {nth}");
    }
}

/// A pool with P, and the number of a page with several objects in row 0 and one in row 1.
pub(crate) fn two_rows() -> (Filled, u64) {
    let f = filled(&CreateOptions { rows: 10, ..CreateOptions::tiny(1 << 20) }, 700);
    let both = |page: &u64| over(&f, 0, *page).len() > 3 && !over(&f, 1, *page).is_empty();
    let page = (0..f.zone.row_len() / PAGE).find(both).unwrap();
    (f, page)
}

/// Objects that lie wholly in a page of a row.
pub(crate) fn over(f: &Filled, row: u32, page: u64) -> Vec<RawPtr> {
    let inside = |at| f.zone.place(at).is_some_and(|p| (p.row, p.col / PAGE) == (row, page));
    let whole = |of: &RawPtr| inside(of.offset()) && inside(of.offset() + f.len - 1);
    f.objects.iter().map(|(of, _)| *of).filter(whole).collect()
}

/// What the journal says became of what was wrong at a place.
pub(crate) fn outcomes_of(pool: &TestPool, at: u64) -> Vec<Outcome> {
    let journal = Journal::open(pool.medium(), &pool.superblock());
    let events = journal.read_all(pool.medium());
    events.iter().filter(|event| event.at == at).map(|event| event.outcome).collect()
}
