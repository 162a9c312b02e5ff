//! What all handles of an open pool share, and small questions about it.

use holdfast_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use holdfast_sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::sync::Arc;

use holdfast_heap::{Heap, ZoneTable};
use holdfast_layout::{Ptr, RawPtr, Region, Superblock};
use holdfast_logs::{Log, Numbers};
use holdfast_pmem::{Clock, Medium, MediumKind, SyncError};
use holdfast_redundancy::events::{Cause, Event, Finder, Journal};
use holdfast_redundancy::intent::RepairIntent;
use holdfast_redundancy::progress::{Progress, ScrubProgress};
use holdfast_redundancy::remap::RemapTable;
use holdfast_redundancy::{Columns, Place, Zone};
use holdfast_txn::TxError;

use crate::anchor::Anchor;
use crate::batch::Batch;
use crate::error::Error;
use crate::hopeless::Hopeless;
use crate::lane::LaneState;
use crate::marks::{Freed, Redoing, Remade, Suspects};
use crate::options::{OpenOptions, VerifyReads};
use crate::overflow::LogChunks;
use crate::owed::Owed;
use crate::touched::Touched;
use crate::versions::Versions;
use crate::view::Lanes;

/// The log lane of system transactions; lane `n` of users is log lane `n + 1`.
pub(crate) const SYSTEM_LANE: u32 = 0;

/// Records only the repairing thread writes.
#[derive(Debug)]
pub(crate) struct Repairer {
    pub(crate) intent: RepairIntent,
    pub(crate) remap: RemapTable,
    pub(crate) progress: ScrubProgress,
    pub(crate) scrubbed: Progress,
    pub(crate) scratch: holdfast_redundancy::parity::Scratch,
    /// Columns are held: a relocation, which takes many, must wait until they are released.
    pub(crate) holds_columns: bool,
    /// Columns that wait to be completed are being completed: nobody else may judge them.
    pub(crate) completes: bool,
    /// The row beside which the last unit was made good.
    pub(crate) beside: u32,
    /// Frames that were to move and could not.
    pub(crate) stuck: Vec<u64>,
    /// Pages that this repair has found lost: for the units over one it is not tried again.
    pub(crate) given_up: Vec<u64>,
    /// Pages that this repair has healed, each as often as it did.
    pub(crate) healed: Vec<u64>,
    /// Units that were searched for a cure in vain.
    pub(crate) hopeless: Hopeless,
    /// How often something was stored.
    pub(crate) installs: u64,
}

/// A place to be looked at once no lock is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suspicion {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) cause: Cause,
    pub(crate) finder: Finder,
    /// It could not be looked after before.
    pub(crate) again: bool,
}

/// Counters of an open pool.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) conflicts: AtomicU64,
    pub(crate) detected: AtomicU64,
    pub(crate) repaired: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// The state of an open pool.
#[derive(Debug)]
pub(crate) struct Shared<M: Medium> {
    pub(crate) m: M,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) regions: Mutex<Vec<Region>>,
    /// Sequence of the region table, also of one whose write failed half way.
    pub(crate) regions_sequence: AtomicU64,
    pub(crate) options: OpenOptions,
    pub(crate) inline_max: u64,
    pub(crate) heap: Heap,
    zones: [OnceLock<Zone>; holdfast_heap::heap::ZONES_MAX],
    pub(crate) columns: Columns,
    pub(crate) log: Log,
    pub(crate) numbers: Numbers,
    pub(crate) versions: Versions,
    pub(crate) touched: Touched,
    pub(crate) lanes: Lanes<LaneState>,
    pub(crate) system: Mutex<Batch>,
    /// Log chunks whose commit is complete, waiting for the watermark.
    pub(crate) retiring: Mutex<Vec<LogChunks>>,
    pub(crate) retiring_count: AtomicUsize,
    /// Places found bad while nothing could be done about them.
    pub(crate) suspects: Suspects<Suspicion>,
    /// Places whose columns were in doubt and could not be settled, until the next scrub, and the
    /// parity of columns over which something is lost.
    pub(crate) unsettled: Mutex<Vec<u64>>,
    /// Page columns, by the offset of their P, in which a page was made up: see `made_up.rs`.
    pub(crate) made_up: Mutex<Vec<u64>>,
    /// A scrub has looked at the entries of all chunks.
    pub(crate) directories_seen: AtomicBool,
    /// Pages of parity that agree with the rows because they were made from them: see
    /// `one_sided.rs`.
    pub(crate) one_sided: Mutex<Vec<u64>>,
    /// Directory entries in doubt, whose chunks nobody gets.
    pub(crate) withheld: Mutex<Vec<(u64, bool)>>,
    /// Pages that memory stands in for.
    pub(crate) stand_ins: Mutex<Vec<u64>>,
    /// Commits whose durable changes met a media error and are being completed: until then no
    /// column of theirs can be judged.
    pub(crate) redoing: Redoing,
    /// What they changed.
    pub(crate) owed: Mutex<Vec<Owed>>,
    /// Counts how often parity is made anew from rows: see `anew.rs`.
    pub(crate) remade: Remade,
    /// Events of an opening that is not through: they reach the journal if it succeeds.
    pub(crate) early: Mutex<Option<Vec<Event>>>,
    pub(crate) repairer: Mutex<Repairer>,
    pub(crate) journal: Journal,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Counters,
    verify: AtomicU8,
    read_only: AtomicBool,
    /// Commits are in the log alone: see `owed.rs`.
    pub(crate) unstored: AtomicBool,
    freed: Freed,
    file: bool,
    anchor: AtomicU64,
    /// Set once the pool may be closed clean: recovery is behind it and no repair is pending.
    pub(crate) closable: AtomicBool,
}

/// What `Shared` is put together from.
#[derive(Debug)]
pub(crate) struct Parts<M: Medium> {
    pub(crate) m: M,
    pub(crate) superblock: Superblock,
    pub(crate) regions: Vec<Region>,
    pub(crate) regions_sequence: u64,
    pub(crate) options: OpenOptions,
    pub(crate) heap: Heap,
    pub(crate) log: Log,
    pub(crate) first_number: u64,
    pub(crate) repairer: Repairer,
    pub(crate) journal: Journal,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) read_only: bool,
}

impl<M: Medium> Shared<M> {
    pub(crate) fn new(parts: Parts<M>) -> Self {
        let lanes = parts.superblock.lanes;
        let file = parts.m.kind() == MediumKind::File;
        // On a file, writing in place would need a sync of its own: contents travel in the
        // record as far as it can carry them.
        let longest = parts.log.max_record_len() as u64;
        let inline_max = if file { longest / 2 } else { parts.options.inline_max };
        let this = Self {
            inline_max: inline_max.min(longest / 4),
            heap: parts.heap,
            zones: core::array::from_fn(|_| OnceLock::new()),
            columns: Columns::new(),
            numbers: Numbers::new(lanes as usize, parts.first_number),
            log: parts.log,
            versions: Versions::new(parts.options.version_bits, file),
            touched: Touched::new(),
            lanes: Lanes::new(lanes - 1, |_| LaneState::default()),
            system: Mutex::new(Batch::default()),
            retiring: Mutex::new(Vec::new()),
            retiring_count: AtomicUsize::new(0),
            suspects: Suspects::default(),
            unsettled: Mutex::new(Vec::new()),
            made_up: Mutex::new(Vec::new()),
            directories_seen: AtomicBool::new(false),
            one_sided: Mutex::new(Vec::new()),
            withheld: Mutex::new(Vec::new()),
            stand_ins: Mutex::new(Vec::new()),
            redoing: Redoing::default(),
            remade: Remade::default(),
            owed: Mutex::new(Vec::new()),
            early: Mutex::new(Some(Vec::new())),
            repairer: Mutex::new(parts.repairer),
            journal: parts.journal,
            clock: parts.clock,
            counters: Counters::default(),
            verify: AtomicU8::new(policy_code(parts.options.verify)),
            read_only: AtomicBool::new(parts.read_only),
            unstored: AtomicBool::new(false),
            // Whatever was freed before this open is complete, and no record of it is alive.
            freed: Freed::new(lanes as usize, parts.first_number - 1),
            file,
            anchor: AtomicU64::new(parts.superblock.anchor),
            options: parts.options,
            superblock: Mutex::new(parts.superblock),
            regions: Mutex::new(parts.regions),
            regions_sequence: AtomicU64::new(parts.regions_sequence),
            m: parts.m,
            closable: AtomicBool::new(false),
        };
        for zone in this.heap.zones() {
            this.touched.add_zone(zone);
        }
        this
    }

    /// Makes a zone known to columns and parity, before anybody can take a place in it: what is
    /// written where no zone is known has no parity.
    pub(crate) fn know_zone(&self, table: &ZoneTable, zone: Zone) {
        self.columns.add_zone(&zone);
        self.touched.add_zone(table);
        // A zone is made known once, by open or by growth under the region table's lock.
        let _ = self.zones[usize::from(table.index())].set(zone);
    }

    /// The zone whose data holds `at`.
    #[inline]
    pub(crate) fn zone_of(&self, at: u64) -> Option<&Zone> {
        self.zones().find(|z| z.contains(at))
    }

    /// The same, and where in its data that is.
    pub(crate) fn place_of(&self, at: u64) -> Option<(&Zone, Place)> {
        let zone = self.zone_of(at)?;
        Some((zone, zone.place(at)?))
    }

    /// The zone of this number.
    #[inline]
    pub(crate) fn zone(&self, index: u32) -> Option<&Zone> {
        self.zones.get(index as usize)?.get()
    }

    /// All zones.
    #[inline]
    pub(crate) fn zones(&self) -> impl Iterator<Item = &Zone> {
        self.zones.iter().map_while(OnceLock::get)
    }

    #[inline]
    pub(crate) fn is_file(&self) -> bool {
        self.file
    }

    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Ends writing for good: a sync failed, and what it covered may be gone.
    pub(crate) fn stop(&self, error: SyncError) -> TxError {
        self.stop_writing();
        drop(error);
        TxError::ReadOnly
    }

    /// Ends writing for good if what was done failed in a sync.
    pub(crate) fn or_stop<T>(&self, done: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::Sync(_)) = done {
            self.stop_writing();
            self.refuse_cut_off()?;
        }
        done
    }

    /// Ends writing for good if the file behind was cut off: what cannot be read then is no damage
    /// to be repaired.
    ///
    /// # Errors
    /// It was.
    pub(crate) fn refuse_cut_off(&self) -> Result<(), Error> {
        if !self.m.cut_off() {
            return Ok(());
        }
        self.stop_writing();
        Err(Error::CutOff)
    }

    /// The pool is read-only from now on.
    pub(crate) fn stop_writing(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn verify_reads(&self) -> VerifyReads {
        match self.verify.load(Ordering::Relaxed) {
            0 => VerifyReads::Never,
            1 => VerifyReads::FirstTouch,
            _ => VerifyReads::Always,
        }
    }

    pub(crate) fn set_verify_reads(&self, policy: VerifyReads) {
        self.verify.store(policy_code(policy), Ordering::Relaxed);
    }

    pub(crate) fn anchor(&self) -> Ptr<Anchor> {
        RawPtr::from_word(self.anchor.load(Ordering::Relaxed)).typed()
    }

    pub(crate) fn set_anchor(&self, anchor: Ptr<Anchor>) {
        self.anchor.store(anchor.raw().word(), Ordering::Relaxed);
    }

    /// Log lane of a user lane.
    #[inline]
    pub(crate) fn log_lane(&self, lane: u32) -> u32 {
        lane + 1
    }

    /// The highest number of a commit that freed anything.
    pub(crate) fn last_freed(&self) -> u64 {
        self.freed.last()
    }

    /// Records that commit `number` of log lane `lane`, whose holder calls, freed something.
    pub(crate) fn note_freed_in(&self, lane: usize, number: u64) {
        self.freed.note_in(lane, number);
    }

    /// Records that a commit of the engine's own freed something.
    pub(crate) fn note_freed(&self, number: u64) {
        self.freed.note_shared(SYSTEM_LANE as usize, number);
    }

    /// Notes a place to be repaired after the current commit.
    pub(crate) fn suspect(&self, at: u64, len: u64, cause: Cause, finder: Finder) {
        self.suspects.add(Suspicion { at, len, cause, finder, again: false });
    }

    /// The repairer, once no commit is being completed after a media error.
    pub(crate) fn repairer(&self) -> MutexGuard<'_, Repairer> {
        loop {
            let mut repairer = self.repairer_now();
            if !self.redoing.any() {
                repairer.healed.clear();
                return repairer;
            }
            drop(repairer);
            holdfast_sync::thread::yield_now();
        }
    }

    /// The repairer, whatever else is going on.
    pub(crate) fn repairer_now(&self) -> MutexGuard<'_, Repairer> {
        self.repairer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn superblock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ranges of log chunks, which count as zeros in parity.
    pub(crate) fn exempt(&self) -> impl Fn(u64, u64) -> Option<(u64, u64)> + '_ {
        |at, len| self.heap.log_chunk_in(at, len)
    }
}

fn policy_code(policy: VerifyReads) -> u8 {
    match policy {
        VerifyReads::Never => 0,
        VerifyReads::FirstTouch => 1,
        VerifyReads::Always => 2,
    }
}
