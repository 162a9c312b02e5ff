//! How far the scrub is: kept on the medium, so that a pass goes on after the pool is reopened.
//!
//! The record is written every so many bytes, not at each: after a crash some bytes are scrubbed
//! twice, none is left out.

use holdfast_layout::bytes::{get_u32, get_u64, put_u32, put_u64};
use holdfast_layout::format::{KIND_PROGRESS, PROGRESS_PAGE};
use holdfast_pmem::{Medium, Site};

use crate::error::{Error, Result};
use crate::format::PROGRESS_LEN;
use crate::mirror::{Mirror, MirrorSites};
use crate::record::Record;

const SITES: MirrorSites = MirrorSites {
    b: Site::new("redundancy.progress.b"),
    drain_b: Site::new("redundancy.progress.drain-b"),
    a: Site::new("redundancy.progress.a"),
    drain_a: Site::new("redundancy.progress.drain-a"),
    clear: Site::new("redundancy.progress.clear"),
    heal: Site::new("redundancy.progress.heal"),
};

/// Most of anything a pass counts: far beyond any, and sums of them do not overflow.
const COUNT_MAX: u64 = 1 << 60;

/// What the scrub is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ScrubState {
    /// No pass is going on.
    #[default]
    Idle,
    /// A pass is going on; after an open it goes on from where it was.
    Running,
    /// A pass was stopped to be continued on demand.
    Paused,
    /// The last pass was given up.
    Cancelled,
}

impl ScrubState {
    const fn code(self) -> u32 {
        match self {
            Self::Idle => 0,
            Self::Running => 1,
            Self::Paused => 2,
            Self::Cancelled => 3,
        }
    }

    const fn from_code(code: u32) -> Option<Self> {
        match code {
            0 => Some(Self::Idle),
            1 => Some(Self::Running),
            2 => Some(Self::Paused),
            3 => Some(Self::Cancelled),
            _ => None,
        }
    }
}

/// Progress of the scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Number of the pass, from 1; 0 before the first.
    pub pass: u64,
    /// Where to go on, as an offset into the pool; what lies before it is done in this pass.
    pub next: u64,
    /// When the pass started, in nanoseconds of the clock given at open.
    pub started_ns: u64,
    /// Bytes verified in this pass: of objects, and of columns.
    pub scanned: u64,
    /// Live objects verified in this pass.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Damages found in this pass.
    pub found: u64,
    /// Damages repaired in this pass.
    pub repaired: u64,
    /// Damages beyond repair in this pass.
    pub lost: u64,
    /// Verdicts that could not be reached in this pass.
    pub undecided: u64,
    /// What the scrub is doing.
    pub state: ScrubState,
}

/// The owner's handle of the scrub progress.
#[derive(Debug)]
pub struct ScrubProgress {
    record: Record,
}

impl ScrubProgress {
    /// Writes the record of a new pool: no pass yet.
    ///
    /// # Errors
    /// As [`Record::write`].
    pub fn create<M: Medium>(m: &M, mirror: Mirror) -> Result<Self> {
        let record = Record::create(mirror, PROGRESS_PAGE, KIND_PROGRESS, SITES);
        let mut this = Self { record };
        this.store(m, &Progress::default())?;
        Ok(this)
    }

    /// The handle of a record both copies of which are lost: as if no pass had ever run. Writes
    /// nothing; the next [`store`](Self::store) makes it whole.
    #[must_use]
    pub fn lost(mirror: Mirror) -> Self {
        Self { record: Record::create(mirror, PROGRESS_PAGE, KIND_PROGRESS, SITES) }
    }

    /// Reads the progress of a pool of `size` bytes. Writes nothing.
    ///
    /// # Errors
    /// [`Error::BothCopies`]; [`Error::Table`] if its state is unknown or its position is outside
    /// the pool.
    pub fn load<M: Medium>(m: &M, mirror: Mirror, size: u64) -> Result<(Self, Progress)> {
        let record = Record::load(m, mirror, PROGRESS_PAGE, KIND_PROGRESS, SITES)?;
        let progress = decode(&record.page().body, size)?;
        Ok((Self { record }, progress))
    }

    /// The record, to heal its copies.
    pub const fn record(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Makes `progress` durable.
    ///
    /// # Errors
    /// As [`Record::write`].
    pub fn store<M: Medium>(&mut self, m: &M, progress: &Progress) -> Result<()> {
        self.record.write(m, 1, &encode(progress))
    }
}

/// Reads the progress without owning it: for observers of a pool in use.
///
/// # Errors
/// As [`ScrubProgress::load`].
pub fn observe<M: Medium>(m: &M, mirror: Mirror, size: u64) -> Result<Progress> {
    ScrubProgress::load(m, mirror, size).map(|(_, progress)| progress)
}

fn encode(progress: &Progress) -> [u8; PROGRESS_LEN] {
    let mut body = [0; PROGRESS_LEN];
    put_u64(&mut body, 0, progress.pass);
    put_u64(&mut body, 8, progress.next);
    put_u64(&mut body, 16, progress.started_ns);
    put_u64(&mut body, 24, progress.scanned);
    put_u64(&mut body, 32, progress.found);
    put_u64(&mut body, 40, progress.repaired);
    put_u64(&mut body, 48, progress.lost);
    put_u64(&mut body, 56, progress.undecided);
    put_u32(&mut body, 64, progress.state.code());
    put_u64(&mut body, 72, progress.objects);
    put_u64(&mut body, 80, progress.object_bytes);
    body
}

fn decode(body: &[u8], size: u64) -> Result<Progress> {
    let fail = |expected, found| {
        Err(Error::Table { what: "scrub progress", place: PROGRESS_PAGE, expected, found })
    };
    let next = get_u64(body, 8);
    if next > size {
        return fail("a position inside the pool", next);
    }
    let code = get_u32(body, 64);
    let Some(state) = ScrubState::from_code(code) else {
        return fail("a state this build knows", code.into());
    };
    let count = |at| get_u64(body, at).min(COUNT_MAX);
    Ok(Progress {
        pass: get_u64(body, 0),
        next,
        started_ns: get_u64(body, 16),
        scanned: count(24),
        objects: count(72),
        object_bytes: count(80),
        found: count(32),
        repaired: count(40),
        lost: count(48),
        undecided: count(56),
        state,
    })
}
