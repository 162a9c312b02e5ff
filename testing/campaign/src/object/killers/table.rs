//! Which killers each place is tried with, the likeliest first.
//!
//! A place that does something on both kinds of media is listed once for each. A place of the
//! engine path that is missing here makes the row fail.

use super::played::{How, Scened, Worn};
use super::verified;
use super::{
    Killer, Made, apart, blessed, copies, entries, fallen, healed, journal, marks, mended,
    overflow, recovery, threads,
};
use crate::object::targets::Side;
use crate::object::wrap::Wear;

/// Copies apart, on memory; P.
const SHM: &str = "shm-p";
/// Copies adjacent, on a file; P.
const FILE: &str = "file-p";
/// Copies apart, on memory; P and Q.
const PQ: &str = "shm-pq";

macro_rules! made {
    ($module:ident :: $story:ident, $world:expr) => {
        Killer::Made(Made {
            name: concat!(stringify!($module), " ", stringify!($story)),
            world: $world,
            story: $module::$story,
        })
    };
}

const fn scene(scene: &'static str, world: &'static str) -> Killer {
    Killer::Scened(Scened { scene, world, how: How::Plain })
}

const fn without_log(scene: &'static str, side: Side) -> Killer {
    Killer::Scened(Scened { scene, world: SHM, how: How::LogLost(side) })
}

const WORN: Killer = Killer::Worn(Worn { world: SHM, wear: Wear { jobs: 200, watched: 4 } });

/// A large object is made.
const CREATED: Killer = scene("alloc-large", SHM);
const REPAIR: Killer = made!(copies::repair, SHM);
const REPAIR_FILE: Killer = made!(copies::repair, FILE);
const RELOCATE: Killer = made!(copies::relocate, SHM);
const RELOCATE_FILE: Killer = made!(copies::relocate, FILE);
const GROW: Killer = made!(copies::grow, SHM);
const GROW_FILE: Killer = made!(copies::grow, FILE);
const EVENTS: Killer = made!(journal::events, SHM);
const EVENTS_FILE: Killer = made!(journal::events, FILE);
const RECOVERED: Killer = made!(recovery::sound, SHM);
const RECOVERED_FILE: Killer = made!(recovery::sound, FILE);
const REGROWN: Killer = made!(recovery::regrown, SHM);
const LONG: Killer = made!(overflow::once, SHM);
const LONG_FILE: Killer = made!(overflow::once, FILE);
const FLIPPED: Killer = made!(mended::flipped, SHM);
const FLIPPED_FILE: Killer = made!(mended::flipped, FILE);
const FLIPPED_P: Killer = made!(mended::flipped_p, SHM);
const FLIPPED_Q: Killer = made!(mended::flipped_q, PQ);
const TWO: Killer = made!(mended::two_at_once, PQ);
const MOVING: Killer = made!(mended::moving, SHM);

/// A place, and the killers to try.
pub type Trial = (&'static str, &'static [Killer]);

/// All trials.
pub const TRIALS: &[&[Trial]] = &[LOG, ENGINE, REPAIRS, RECORDS];

/// The heap and the log.
const LOG: &[Trial] = &[
    ("heap.heap.verify-entry", &[made!(verified::directory, SHM)]),
    ("heap.heap.verify-free", &[made!(verified::free_slot, SHM)]),
    ("logs.group.F1", &[RECOVERED_FILE]),
    ("logs.group.heal", &[made!(healed::group, FILE)]),
    ("logs.group.mark-sum", &[made!(marks::two_marks_in_words, FILE)]),
    ("logs.group.marked", &[made!(overflow::second_lost, FILE)]),
    ("logs.group.reuse", &[made!(marks::full_log, FILE)]),
    ("logs.group.sum", &[scene("open-dirty", FILE)]),
    ("logs.group.synced", &[made!(recovery::bad_under_commit, FILE), scene("full", FILE)]),
    ("logs.group.turn", &[made!(marks::two_marks_in_words, FILE)]),
    ("logs.numbers.bound", &[made!(marks::drawn, SHM)]),
    ("logs.numbers.busy", &[made!(marks::reused, SHM)]),
    ("logs.ring.F1", &[RECOVERED]),
    ("logs.ring.heal", &[made!(healed::ring, SHM)]),
    ("logs.ring.heal_twin", &[made!(healed::both_rings, SHM)]),
    ("logs.ring.mark-sum", &[made!(marks::reused, SHM)]),
    ("logs.ring.mark_a", &[made!(marks::reused_without_b, SHM)]),
    ("logs.ring.mark_b", &[made!(marks::reused_without_a, SHM)]),
    ("logs.ring.marked", &[made!(marks::reused, SHM)]),
    ("logs.ring.record_a", &[without_log("write-8", Side::B)]),
    ("logs.ring.record_b", &[without_log("write-8", Side::A)]),
    ("logs.ring.reuse", &[made!(marks::reused, SHM)]),
    ("logs.ring.sum", &[CREATED]),
    ("logs.ring.turn", &[made!(marks::two_marks, SHM)]),
    ("logs.scan.certify", &[scene("open-clean", SHM)]),
    ("logs.scan.complete", &[WORN]),
    ("logs.scan.either", &[without_log("write-8", Side::A)]),
    ("logs.scan.order", &[scene("reuse-place", FILE), scene("open-dirty", FILE)]),
    ("logs.scan.order", &[scene("create", SHM)]),
];

/// Commits, growth, opening and closing.
const ENGINE: &[Trial] = &[
    ("object.chunks.entry-sum", &[CREATED]),
    ("object.chunks.slot-sums", &[CREATED]),
    ("object.chunks.virgin-sums", &[CREATED]),
    ("object.commit.entry-sum", &[CREATED]),
    ("object.commit.freed-sum", &[CREATED]),
    ("object.commit.fresh-sums", &[CREATED]),
    ("object.bring_back.alone", &[made!(fallen::alone, PQ)]),
    ("object.one_sided.note", &[made!(fallen::one_sided, PQ)]),
    ("object.bring_back.directories", &[made!(entries::hit, PQ)]),
    ("object.bring_back.apart-p", &[made!(apart::in_doubt, SHM)]),
    ("object.bring_back.apart-q", &[made!(apart::held, PQ)]),
    ("object.bring_back.entries", &[made!(entries::freed, SHM)]),
    ("object.bring_back.entries-found", &[made!(recovery::entry_lost, SHM)]),
    ("object.bring_back.doubt", &[made!(entries::made, SHM)]),
    ("object.chunks.directory", &[made!(mended::made, SHM)]),
    ("object.chunks.directory-done", &[scene("grow", SHM)]),
    ("object.chunks.directory-p", &[scene("create", SHM)]),
    ("object.chunks.directory-q", &[scene("grow", PQ)]),
    ("object.chunks.directory-sync", &[scene("grow", FILE)]),
    ("object.chunks.look-again", &[made!(blessed::slots, SHM)]),
    ("object.commit.data", &[FLIPPED]),
    ("object.commit.guards", &[made!(threads::overrun, SHM)]),
    ("object.commit.leave", &[made!(overflow::over_freed, SHM)]),
    ("object.commit.leave-p", &[made!(overflow::over_freed, SHM)]),
    ("object.commit.leave-q", &[made!(overflow::over_freed, PQ)]),
    ("object.commit.parity-p", &[made!(marks::idle, SHM)]),
    ("object.commit.parity-q", &[made!(marks::idle, PQ)]),
    ("object.commit.patch", &[REPAIR]),
    ("object.commit.sums", &[RECOVERED]),
    ("object.commit.validate", &[made!(threads::skew, SHM)]),
    ("object.grow.format", &[REGROWN]),
    ("object.grow.left", &[REGROWN]),
    ("object.in_place.FC", &[made!(blessed::in_place, SHM)]),
    ("object.in_place.data", &[FLIPPED]),
    ("object.in_place.parity-p", &[made!(blessed::in_place, SHM)]),
    ("object.in_place.parity-q", &[TWO]),
    ("object.in_place.patch", &[made!(overflow::in_place, SHM)]),
    ("object.in_place.intent", &[CREATED]),
    ("object.in_place.again", &[made!(blessed::in_place, SHM)]),
    ("object.in_place.again-sync", &[made!(blessed::in_place, FILE)]),
    ("object.in_place.reuse", &[made!(overflow::in_place, SHM)]),
    ("object.in_place.sync", &[RECOVERED_FILE]),
    ("object.open.regions-a:put", &[GROW]),
    ("object.open.regions-a:append", &[GROW_FILE]),
    ("object.open.regions-a-drain", &[GROW]),
    ("object.open.regions-b:put", &[GROW]),
    ("object.open.regions-b:append", &[GROW_FILE]),
    ("object.open.regions-b-drain", &[GROW]),
    ("object.open.regions-clear", &[made!(copies::clear_regions, SHM)]),
    ("object.open.regions-heal", &[made!(copies::heal_regions, SHM)]),
    ("object.known.verify", &[made!(mended::read_quickly, SHM)]),
    ("object.overflow.FO", &[LONG]),
    ("object.overflow.copy-a", &[made!(overflow::second_lost, SHM)]),
    ("object.overflow.copy-b", &[made!(overflow::first_lost, SHM)]),
    ("object.overflow.heal-zero", &[made!(overflow::bad_in_use, SHM)]),
    ("object.overflow.retire", &[made!(overflow::held_back, FILE)]),
    ("object.overflow.reuse", &[made!(overflow::over_freed, SHM)]),
    ("object.overflow.sum", &[LONG]),
    ("object.overflow.sync", &[LONG_FILE]),
    ("object.overflow.zero", &[LONG]),
    ("object.overflow.zeroed", &[LONG]),
    ("object.overflow.zeroed-sync", &[LONG_FILE]),
    ("object.pool.closed", &[FLIPPED_FILE]),
];

/// Recovery and repair.
const REPAIRS: &[Trial] = &[
    ("object.mend_unit.judge", &[made!(mended::slot_and_parity, SHM), TWO]),
    ("object.mend_unit.verify", &[FLIPPED]),
    ("object.blame.compare", &[made!(mended::slot_lost, SHM)]),
    ("object.blame.free", &[made!(fallen::free, PQ)]),
    ("object.blame.doubt", &[made!(mended::in_doubt, SHM)]),
    ("object.blame.verify", &[made!(verified::freed_in_parity, SHM)]),
    ("object.blame.verify", &[made!(verified::both_parities, PQ)]),
    ("object.recover.done-sync", &[RECOVERED_FILE]),
    ("object.recover.replay", &[RECOVERED]),
    ("object.recover.verify-overflow", &[made!(overflow::wrong_at_open, SHM)]),
    ("object.redo_judge.adds-up", &[made!(recovery::slot_lost, SHM)]),
    ("object.redo_judge.adds-up", &[made!(recovery::slot_lost, PQ)]),
    ("object.redo.cure", &[made!(recovery::wrong_row, SHM)]),
    ("object.redo.cure-row", &[made!(recovery::slot_lost, SHM)]),
    ("object.redo.cure-row", &[made!(recovery::slot_lost, PQ)]),
    ("object.redo.cured", &[made!(recovery::cured_again, SHM)]),
    ("object.redo.cured-sync", &[made!(recovery::cured_again, FILE)]),
    ("object.redo.heal", &[made!(recovery::bad_data, SHM)]),
    ("object.redo.heal", &[made!(recovery::bad_row, SHM)]),
    ("object.redo_parity.as-judged", &[made!(fallen::completed, SHM)]),
    ("object.redo_parity.heal-parity", &[made!(recovery::bad_parity, SHM)]),
    ("object.redo_parity.parity-p", &[RECOVERED]),
    ("object.redo_parity.parity-q", &[made!(recovery::slot_lost, PQ)]),
    ("object.redo_parity.recompute", &[RECOVERED]),
    ("object.redo.redone", &[made!(recovery::cured_again, SHM)]),
    ("object.redo.store", &[RECOVERED]),
    ("object.redo.verify", &[made!(recovery::bad_row_patched, SHM)]),
    ("object.redo_parity.to-be", &[made!(blessed::between_stores, SHM)]),
    ("object.redo_parity.verify-summed", &[made!(blessed::replayed, SHM)]),
    ("object.repair.heal", &[made!(mended::poisoned, SHM)]),
    ("object.repair.heal-side", &[made!(mended::poisoned_sides, SHM)]),
    ("object.repair.judge", &[made!(mended::loaded, PQ)]),
    ("object.repair.newest", &[made!(mended::older_parity, PQ)]),
    ("object.repair.store", &[FLIPPED]),
    ("object.repair.stored-drain", &[made!(mended::without_intent, SHM)]),
    ("object.repair.stored-sync", &[FLIPPED_FILE]),
    ("object.repair.verify-rows", &[made!(verified::under_parity, PQ)]),
    ("object.scrub.as-judged", &[made!(blessed::remade, SHM)]),
    ("object.scrub.as-judged", &[made!(fallen::remade, SHM)]),
    ("object.scrub.parity-drain", &[made!(mended::told_after, SHM)]),
    ("object.scrub.parity-p", &[FLIPPED_P]),
    ("object.scrub.parity-q", &[FLIPPED_Q]),
    ("object.scrub.parity-sync", &[made!(mended::flipped_p, FILE)]),
    ("object.scrub.parity-sync", &[made!(mended::told_after, FILE)]),
    ("object.scrub.verify-rows", &[made!(verified::two_rows, SHM)]),
    ("object.settle.F2", &[made!(marks::one_after_another, SHM)]),
    ("object.settle.F2-for", &[made!(marks::idle, SHM)]),
    ("object.settle.F2-now", &[scene("close", SHM)]),
    ("object.settle.flush", &[made!(marks::idle, SHM)]),
    ("object.sweep.verify", &[made!(mended::consistent, SHM)]),
    ("object.sweep.verify-entry", &[made!(mended::consistent, SHM)]),
    ("object.tx.verify-open", &[made!(mended::changed, SHM)]),
    ("object.tx.verify-read", &[made!(mended::read, SHM)]),
    ("object.whole_page.try", &[made!(entries::page_back, SHM)]),
    ("object.judged.verify-slot", &[made!(verified::slots, SHM)]),
    ("redundancy.parity.check-p", &[FLIPPED_P]),
    ("redundancy.parity.check-q", &[FLIPPED_Q]),
];

/// Mirrored records and the journal.
const RECORDS: &[Trial] = &[
    ("redundancy.events.a:put", &[EVENTS]),
    ("redundancy.events.a:append", &[EVENTS_FILE]),
    ("redundancy.events.b:put", &[EVENTS]),
    ("redundancy.events.b:append", &[EVENTS_FILE]),
    ("redundancy.events.drain-a", &[EVENTS]),
    ("redundancy.events.drain-b", &[EVENTS]),
    ("redundancy.events.heal", &[made!(journal::poisoned, SHM)]),
    ("redundancy.events.heal-page", &[made!(journal::scrubbed, SHM)]),
    ("redundancy.events.sum", &[EVENTS]),
    ("redundancy.events.verify", &[made!(journal::told, SHM)]),
    ("redundancy.intent.a:put", &[REPAIR]),
    ("redundancy.intent.a:append", &[REPAIR_FILE]),
    ("redundancy.intent.b:put", &[REPAIR]),
    ("redundancy.intent.b:append", &[REPAIR_FILE]),
    ("redundancy.intent.drain-a", &[RELOCATE]),
    ("redundancy.intent.drain-b", &[REPAIR]),
    ("redundancy.intent.clear", &[made!(copies::clear_intent, SHM)]),
    ("redundancy.intent.heal", &[made!(copies::heal_intent, SHM)]),
    ("redundancy.mirror.sum", &[CREATED]),
    ("redundancy.mirror.verify", &[made!(verified::regions, SHM)]),
    ("redundancy.progress.a:put", &[REPAIR]),
    ("redundancy.progress.a:append", &[REPAIR_FILE]),
    ("redundancy.progress.b:put", &[REPAIR]),
    ("redundancy.progress.b:append", &[REPAIR_FILE]),
    ("redundancy.progress.drain-a", &[REPAIR]),
    ("redundancy.progress.drain-b", &[REPAIR]),
    ("redundancy.progress.clear", &[made!(copies::clear_progress, SHM)]),
    ("redundancy.progress.heal", &[made!(copies::heal_progress, SHM)]),
    ("redundancy.remap.a:put", &[RELOCATE]),
    ("redundancy.remap.a:append", &[RELOCATE_FILE]),
    ("redundancy.remap.b:put", &[RELOCATE]),
    ("redundancy.remap.b:append", &[RELOCATE_FILE]),
    ("redundancy.remap.clear", &[made!(copies::clear_remap, SHM)]),
    ("redundancy.remap.copy", &[made!(mended::dead, SHM)]),
    ("redundancy.remap.drain-a", &[RELOCATE, MOVING]),
    ("redundancy.remap.drain-b", &[RELOCATE]),
    ("redundancy.remap.drain-copy", &[MOVING]),
    ("redundancy.remap.heal", &[made!(copies::heal_remap, SHM)]),
    ("redundancy.remap.heal-copy", &[made!(mended::moving_to_bad, SHM)]),
    ("redundancy.remap.sync-copy", &[made!(mended::dead, FILE)]),
    ("redundancy.remap.verify-copy", &[made!(mended::moving_in_vain, SHM)]),
    ("redundancy.superblock.a:put", &[RELOCATE]),
    ("redundancy.superblock.a:append", &[GROW_FILE]),
    ("redundancy.superblock.b:put", &[RELOCATE]),
    ("redundancy.superblock.b:append", &[GROW_FILE]),
    ("redundancy.superblock.drain-a", &[GROW]),
    ("redundancy.superblock.drain-b", &[RELOCATE]),
    ("redundancy.superblock.sum", &[CREATED]),
    ("redundancy.superblock.verify", &[made!(recovery::wrong_superblock, SHM)]),
    ("redundancy.superblock.clear", &[made!(copies::clear_superblock, SHM)]),
    ("redundancy.superblock.heal", &[made!(copies::heal_superblock, SHM)]),
];

/// Places that only tests see: there is nothing to switch off.
pub const STEPS: &[&str] = &[
    "logs.group.writing",
    "logs.numbers.drawn",
    "logs.ring.recorded",
    "object.chunks.step-shown",
    "object.chunks.step-slots",
    "object.commit.step-applied",
    "object.commit.step-columns",
    "object.commit.step-done",
    "object.commit.step-durable",
    "object.commit.step-locked",
    "object.commit.step-numbered",
    "object.commit.step-put-off",
    "object.grow.step-extended",
    "object.grow.step-formatted",
    "object.grow.step-known",
    "object.grow.step-listed",
    "object.in_place.step-intent",
    "object.in_place.step-known",
    "object.in_place.step-stored",
    "object.judged.step-read",
    "object.mend_unit.step-held",
    "object.overflow.step-stored",
    "object.overflow.step-taken",
    "object.owed.step-owed",
    "object.recover.step-parity",
    "object.redo.step-cure",
    "object.redo.step-cured",
    "object.redo.step-newer",
    "object.redo.step-reached",
    "object.redo.step-stored",
    "object.redo_parity.step-sum",
    "object.repair.step-held",
    "object.repair.step-installed",
    "object.repair.step-intent",
    "object.scrub.step-remake",
    "object.scrub.step-settle",
    "redundancy.remap.copied",
    "redundancy.remap.recorded",
];

/// The trials, one after the other.
pub fn trials() -> impl Iterator<Item = Trial> {
    TRIALS.iter().flat_map(|part| part.iter().copied())
}
