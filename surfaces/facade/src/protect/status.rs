//! What is covered, by sums and by parity, and what was found.

use holdfast_mapped::live::{self, Live};
use holdfast_mapped::{Counts, Coverage, Covered, Folios, State};
use holdfast_pmem::track::SourceKind;
use holdfast_pmem::track::folios::FolioReport;
use holdfast_redundancy::Unsure;

use crate::protect::Engine;
use crate::protect::told::Told;

/// A pass that the thread of a [`ProtectedMap`](crate::protect::ProtectedMap) made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastPass {
    /// When it began, in nanoseconds since 1970.
    pub at_ns: u64,
    /// How long it took.
    pub nanos: u64,
    /// What it did.
    pub covered: Covered,
}

/// What is known of a protected file at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProtectStatus {
    /// What the side file says of itself.
    pub state: State,
    /// Data pages of a stripe.
    pub data: u32,
    /// Parity pages of a stripe.
    pub parity: u32,
    /// Bytes of the file that are looked after.
    pub size: u64,
    /// Bytes the file has.
    pub file_size: u64,
    /// What is covered by sums and, apart, by parity. Without the process that has the file mapped,
    /// only what is on record.
    pub coverage: Coverage,
    /// Why pages were left undecided, each reason with the pages of which it is known. Of pages for
    /// which none is known no more is said than that no store to them was seen.
    pub undecided: Vec<(Unsure, u64)>,
    /// The file is not the one that was left: another inode, length or time of change.
    pub changed: bool,
    /// Regions in which a page that differs proves nothing.
    pub doubtful: u64,
    /// Regions whose records had a damaged copy.
    pub damaged: u64,
    /// Somebody untracked wrote to it: it is checked, not repaired, until all of it is accepted.
    pub contested: Option<String>,
    /// The process that has it mapped or works with it, by its number where that is known.
    pub in_use: Option<Option<u32>>,
    /// Found and done since it was opened here.
    pub counts: Counts,
    /// Events of the journal: damages found, repaired, lost, and pages that became undecided.
    pub found: [u64; 4],
    /// Pages that were found damaged, and are at a look of now: by whoever keeps the file, or here
    /// if nobody does. If whoever keeps it does not answer, the last word of the journal counts.
    pub left: u64,
    /// Pages that were found damaged, differ, and cannot be judged any more.
    pub unclear: u64,
    /// The folio policy that was recorded.
    pub folios: Folios,
    /// What came of it here, if the file is mapped.
    pub folio_report: Option<FolioReport>,
    /// How stores are noticed, if the file is mapped.
    pub tracking: Option<SourceKind>,
    /// Better ways, and why the system does not permit them.
    pub passed_over: Vec<String>,
    /// Whether writers from outside can be noticed; if not, what differs is undecided in use, and
    /// nothing is repaired.
    pub listens: bool,
    /// The last pass of the thread, if there is one.
    pub last_pass: Option<LastPass>,
    /// Why the last pass failed, if it did.
    pub last_error: Option<String>,
    /// What whoever keeps the file told just now; without it, the rest is what is on record.
    pub live: Option<Live>,
}

impl ProtectStatus {
    /// What an engine knows.
    pub(crate) fn of(engine: &Engine, file_size: u64) -> holdfast_mapped::Result<Self> {
        let stripes = engine.stripes();
        let events = engine.events();
        let contested = engine.is_contested();
        Ok(Self {
            state: engine.state(),
            data: stripes.data(),
            parity: stripes.parity(),
            size: engine.size(),
            file_size,
            coverage: engine.coverage()?,
            undecided: engine.undecided(),
            changed: false,
            doubtful: 0,
            damaged: 0,
            contested: contested.then(|| "somebody untracked wrote to it".to_owned()),
            in_use: None,
            counts: engine.counts(),
            found: live::found(&events),
            left: live::damaged(&events).len() as u64,
            unclear: 0,
            folios: engine.folios(),
            folio_report: None,
            tracking: None,
            passed_over: Vec::new(),
            listens: true,
            last_pass: None,
            last_error: None,
            live: None,
        })
    }

    /// Looks at the pages once more that were found damaged: a program may have given them other
    /// content since, which no journal tells.
    pub(crate) fn look_again(&mut self, engine: &Engine) -> holdfast_mapped::Result<()> {
        (self.left, self.unclear) = engine.damage_left(&engine.events())?;
        Ok(())
    }

    /// What the process that keeps the file told.
    #[must_use]
    pub fn of_told(told: Told) -> Self {
        let Told { process, live, .. } = told;
        // No stripe has more, or it would not have been believed.
        let small = |number: u64| u32::try_from(number).unwrap_or(0);
        Self {
            state: State::Open,
            data: small(live.data),
            parity: small(live.parity),
            size: live.size,
            file_size: live.file_size,
            coverage: live.coverage,
            undecided: live.undecided.clone(),
            changed: false,
            doubtful: 0,
            damaged: 0,
            contested: live.contested.then(|| "somebody untracked wrote to it".to_owned()),
            in_use: Some(Some(process)),
            counts: live.counts,
            found: live.found,
            left: live.damaged,
            unclear: live.unclear,
            folios: live.folios,
            folio_report: None,
            tracking: Some(live.keeping.tracking),
            passed_over: Vec::new(),
            listens: true,
            last_pass: None,
            last_error: None,
            live: Some(live),
        }
    }
}
