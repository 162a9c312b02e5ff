//! The repair intent: which bytes a repair is about to replace, and the sum of the replacement.
//!
//! # Life of a repair
//!
//! 1. the replacement is computed and verified in DRAM
//! 2. [`RepairIntent::begin`]: the intent is durable in both sides (**two drains**)
//! 3. the replacement is stored in its place and made durable
//! 4. [`RepairIntent::clear`] (**two drains**)
//!
//! After a crash, recovery reads the intent before anything else judges those bytes: if they have
//! the sum of the intent, step 3 was complete; else they are rebuilt again. Without it, half
//! installed bytes would look like a second, unexplained damage.

use holdfast_layout::bytes::{get_u32, get_u64, put_u32, put_u64};
use holdfast_layout::format::{INTENT_PAGE, KIND_INTENT};
use holdfast_pmem::{Medium, Site};

use crate::error::{Error, Result};
use crate::format::INTENT_LEN;
use crate::mirror::{Mirror, MirrorSites};
use crate::record::Record;

const SITES: MirrorSites = MirrorSites {
    b: Site::new("redundancy.intent.b"),
    drain_b: Site::new("redundancy.intent.drain-b"),
    a: Site::new("redundancy.intent.a"),
    drain_a: Site::new("redundancy.intent.drain-a"),
    clear: Site::new("redundancy.intent.clear"),
    heal: Site::new("redundancy.intent.heal"),
};

/// Bytes that are being replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intent {
    /// First byte, as an offset into the pool.
    pub at: u64,
    /// Length in bytes.
    pub len: u64,
    /// CRC-32C of the replacement, seeded with 0.
    pub sum: u32,
}

/// The owner's handle of the repair intent.
#[derive(Debug)]
pub struct RepairIntent {
    record: Record,
    active: Option<Intent>,
}

impl RepairIntent {
    /// Writes the record of a new pool: no repair is going on.
    ///
    /// # Errors
    /// As [`Record::write`].
    pub fn create<M: Medium>(m: &M, mirror: Mirror) -> Result<Self> {
        let mut record = Record::create(mirror, INTENT_PAGE, KIND_INTENT, SITES);
        record.write(m, 0, &[])?;
        Ok(Self { record, active: None })
    }

    /// The handle of a record both copies of which are lost: what it said is given up. Writes
    /// nothing; the next [`begin`](Self::begin) or [`clear`](Self::clear) makes it whole.
    #[must_use]
    pub fn lost(mirror: Mirror) -> Self {
        Self { record: Record::create(mirror, INTENT_PAGE, KIND_INTENT, SITES), active: None }
    }

    /// Reads the intent of a pool of `size` bytes. Writes nothing.
    ///
    /// # Errors
    /// [`Error::BothCopies`]; [`Error::Table`] if it names bytes outside the pool.
    pub fn load<M: Medium>(m: &M, mirror: Mirror, size: u64) -> Result<Self> {
        let record = Record::load(m, mirror, INTENT_PAGE, KIND_INTENT, SITES)?;
        let page = record.page();
        let active = (page.count > 0).then(|| Intent {
            at: get_u64(&page.body, 0),
            len: get_u64(&page.body, 8),
            sum: get_u32(&page.body, 16),
        });
        let inside = |i: &Intent| i.len > 0 && i.at.checked_add(i.len).is_some_and(|e| e <= size);
        match active {
            Some(intent) if !inside(&intent) => Err(Error::Table {
                what: "repair intent",
                place: INTENT_PAGE,
                expected: "a range inside the pool",
                found: intent.at,
            }),
            active => Ok(Self { record, active }),
        }
    }

    /// The repair going on: one that was interrupted, if the record was just loaded.
    #[must_use]
    pub const fn active(&self) -> Option<Intent> {
        self.active
    }

    /// The record, to heal its copies.
    pub const fn record(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Makes the intent durable; only then may the bytes be replaced.
    ///
    /// # Errors
    /// As [`Record::write`]; then nothing may be replaced.
    pub fn begin<M: Medium>(&mut self, m: &M, intent: Intent) -> Result<()> {
        let mut body = [0; INTENT_LEN];
        put_u64(&mut body, 0, intent.at);
        put_u64(&mut body, 8, intent.len);
        put_u32(&mut body, 16, intent.sum);
        self.record.write(m, 1, &body)?;
        self.active = Some(intent);
        Ok(())
    }

    /// Says that the replacement is durable.
    ///
    /// # Errors
    /// As [`Record::write`]; the intent then stays, which is harmless: its sum agrees.
    pub fn clear<M: Medium>(&mut self, m: &M) -> Result<()> {
        self.record.write(m, 0, &[])?;
        self.active = None;
        Ok(())
    }
}
