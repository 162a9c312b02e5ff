//! What the third thread damages: a page that stays bad, so that its frame moves or memory stands
//! in for it, beside commits; and an object that no commit is near, with a crash on top.

use holdfast_faultmem::Clear;
use holdfast_layout::format::REMAP_PAGE;
use holdfast_layout::{RawPtr, Region, RegionKind};
use holdfast_object::{ScrubControl, ScrubOptions};
use holdfast_pmem::{Medium as _, MediumKind, PAGE};
use holdfast_redundancy::Zone;
use holdfast_txn::Transaction as _;
use shuttle::rand::{Rng, thread_rng};

use super::super::{LAW, Reached};
use super::{Objects, TestPool, World, filled, get};

/// Frames that were moved.
pub(in super::super) static MOVED: Reached = Reached::new("frames moved");
/// Those of them that hold a part of the log: nobody may write there meanwhile.
pub(in super::super) static LOG_MOVED: Reached = Reached::new("frames of the log moved");
/// Pages that memory stood in for.
pub(in super::super) static STOOD_IN: Reached = Reached::new("pages served from memory");
/// Objects that were repaired far from all commits.
pub(in super::super) static ASIDE: Reached = Reached::new("repairs with a crash");

/// Bytes of an object that no writer touches; of several sizes, so that one lies elsewhere.
const SIZES: [u64; 4] = [192, 640, 1600, 3000];

/// Page columns of the chunk that a byte lies in.
fn columns(zone: &Zone, at: u64) -> Vec<u64> {
    let chunk = zone.data_start() + (at - zone.data_start()) / zone.chunk() * zone.chunk();
    let pages = (chunk..chunk + zone.chunk()).step_by(PAGE as usize);
    pages.filter_map(|page| zone.place(page)).map(|place| place.col / PAGE).collect()
}

fn zone(regions: &[Region]) -> Zone {
    let region = regions.iter().find(|region| region.kind == RegionKind::Zone);
    Zone::new(region.expect("a pool has a zone"), 0).expect("the region is a zone")
}

/// An object in columns that no other one touches.
pub(super) fn bystander(pool: &TestPool, others: &[RawPtr]) -> RawPtr {
    let zone = zone(&pool.regions());
    let taken: Vec<u64> = others.iter().flat_map(|of| columns(&zone, of.offset())).collect();
    let made = SIZES.map(|len| {
        let bytes = filled(7).repeat(len as usize / 64 + 1);
        let number = holdfast_layout::TypeNumber::BYTES;
        pool.run(|tx| tx.alloc_from(number, &bytes)).expect("there is room for it")
    });
    let apart = |of: &RawPtr| !columns(&zone, of.offset()).iter().any(|col| taken.contains(col));
    made.into_iter().find(apart).expect("one of them lies in other columns")
}

/// What of a pool turns bad for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// A page of a ring. In a file, the log would stop: an append fails there.
    Log,
    /// A page of the records or of the journal, in one side.
    Side,
    /// A page of objects, or of their parity.
    Zone,
    /// The same, and no frame can move.
    Stuck,
}

impl World {
    /// Makes a page bad for good, and scrubs; or lets the others find it first.
    pub(super) fn relocate(&self) {
        let m = self.pool.medium();
        let in_file = m.kind() == MediumKind::File;
        let target = match thread_rng().gen_range(0..4) {
            0 if !in_file => Target::Log,
            0 | 1 => Target::Side,
            2 => Target::Zone,
            _ => Target::Stuck,
        };
        if matches!(target, Target::Zone | Target::Stuck) {
            // A commit in flight over that column and a crash: the promise is another one.
            m.forget_crash();
        }
        if target == Target::Stuck {
            for spare in self.pool.regions().iter().filter(|r| r.kind == RegionKind::Spare) {
                m.inner.poison(spare.start, spare.len, Clear::Unable).expect("it is in the pool");
            }
        }
        let page = self.page_of(target);
        let before = self.copies();
        m.inner.poison(page, PAGE, Clear::Unable).expect("it is in the pool");
        if thread_rng().r#gen() {
            self.look();
        }
        let options = ScrubOptions::default();
        let done = self.pool.scrub(options, &ScrubControl::default(), |_, _| {});
        let Ok(done) = done else { panic!("{LAW}: a scrub comes to its end: {done:?}") };
        let whole = done.lost == 0;
        assert!(whole, "{LAW}: one page that stays bad loses nothing: {target:?}: {done:?}");
        let (stuck, moved) = (self.pool.stand_ins().len() as u64, self.copies() - before);
        // A page that memory stands in for counts as undecided, and what is over it may, too.
        let cured = target == Target::Stuck || done.undecided == 0 && stuck == 0;
        assert!(cured, "{LAW}: {target:?} at {page}: {stuck} served from memory: {done:?}");
        STOOD_IN.add(stuck);
        MOVED.add(moved);
        LOG_MOVED.add(if target == Target::Log { moved } else { 0 });
    }

    /// How often a frame was copied to a spare one.
    fn copies(&self) -> u64 {
        let seen = self.pool.medium().inner.sites_seen();
        let copied = seen.iter().filter(|(site, ..)| site.name() == "redundancy.remap.copied");
        copied.map(|(.., times)| times).sum()
    }

    fn page_of(&self, target: Target) -> u64 {
        let superblock = self.pool.superblock();
        let side = thread_rng().gen_range(0..2) * superblock.side_len;
        match target {
            Target::Log => {
                let len = u64::from(superblock.lanes) * superblock.ring_len;
                superblock.log_start + side + thread_rng().gen_range(0..len / PAGE) * PAGE
            }
            Target::Side => {
                let first = REMAP_PAGE / PAGE + 1;
                side + thread_rng().gen_range(first..superblock.log_start / PAGE) * PAGE
            }
            Target::Zone | Target::Stuck => {
                let at = self.objects.accounts[0].offset();
                let zone = zone(&self.pool.regions());
                let place = zone.place(at).expect("objects lie in the zone");
                let col = place.col / PAGE * PAGE;
                if thread_rng().r#gen() { at / PAGE * PAGE } else { zone.p_at(col) }
            }
        }
    }

    /// Damages an object that no commit is near, and reads it. A crash at any instant of that is
    /// within the promise.
    pub(super) fn repair_aside(&self) {
        let at = self.objects.bystander.offset();
        let bit = thread_rng().gen_range(0..8_u8);
        self.pool.medium().inner.flip_bit(at + 13, bit).expect("it is in the pool");
        bystander_is_whole(&self.pool, &self.objects);
        ASIDE.add(1);
    }
}

/// What no writer touches is as it was.
pub(super) fn bystander_is_whole(pool: &TestPool, objects: &Objects) {
    let found = pool.run(|tx| get(tx, objects.bystander));
    assert_eq!(found.ok(), Some(7), "{LAW}: an object that nobody changes is what it was");
}
