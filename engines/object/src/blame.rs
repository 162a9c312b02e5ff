//! What a column comes from that does not add up although all that lies over it verifies.
//!
//! Bytes whose last write was lost are older ones, with the sums of that time: a slot, a directory
//! entry, a page with an object and its slot. They *verify*, and only parity, which was patched for
//! the newer ones, knows better. With P and Q the row is located. With P alone any unit may be to
//! blame, P included; recomputing P would make the loss permanent. But what P says a row was has
//! sums of its own. So each object and each entry over the columns is looked at as P says that it
//! was written. What is stored of a sum is not linear: such another state verifies only where the
//! difference comes from this very object or entry, which then *claims* its columns.
//!
//! | the other state | so | done |
//! |---|---|---|
//! | verifies, and is newer | its last write was lost | brought back |
//! | verifies, and is older | the write of P was lost | P is recomputed |
//! | verifies, and nothing tells the order | one or the other was | neither is changed: in doubt |
//! | none verifies | P, free bytes, or what was overwritten since, are to blame | P is recomputed |
//!
//! `newer.rs` knows the order. Where it does not, what else claims columns in the same row does:
//! pages get lost whole.

use holdfast_codes::xor_into;
use holdfast_heap::format::{CHUNK_LEN, SLOT_LEN, SUM_LEN};
use holdfast_heap::sums::{Slot, granule_range};
use holdfast_heap::verify::{
    Direct, Found, Overlay, Source, check_granule, read_entry, read_slot, read_sum,
};
use holdfast_heap::{Spot, Unit};
use holdfast_layout::{Certify, RawPtr};
use holdfast_pmem::{MediaError, Medium, Site};
use holdfast_redundancy::{Wrong, Zone};
use std::collections::BTreeMap;

use crate::changes::Changes;
use crate::newer::{Order, order_of};
use crate::shared::Shared;

/// Comparing what a row is with what parity says it was written to be.
const COMPARE: Site = Site::new("object.blame.compare");
/// Believing what parity says only where sums of its own bear it out.
const VERIFY: Site = Site::new("object.blame.verify");
/// Leaving alone what may be the older state, or the newer.
const DOUBT: Site = Site::new("object.blame.doubt");

/// Part of a row whose last write was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Newer {
    /// Where.
    pub(crate) at: u64,
    /// What was to be written there.
    pub(crate) bytes: Vec<u8>,
    /// What it concerns.
    pub(crate) wrong: Wrong,
}

/// Something that may be older than what was committed; or parity over it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// Its first byte: of the object, or of the entry.
    pub(crate) at: u64,
    /// Its length.
    pub(crate) len: u64,
    /// What it concerns.
    pub(crate) wrong: Wrong,
    /// The object; null for an entry.
    pub(crate) object: RawPtr,
    /// The columns that parity must keep: offset in the row and length.
    pub(crate) columns: Vec<(u64, u64)>,
}

/// What became known of columns that do not add up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// What to bring back: at most one range of each row.
    pub(crate) newer: Vec<Newer>,
    /// What nothing that is kept can decide.
    pub(crate) doubts: Vec<Doubt>,
    /// Whether parity is what is older, by something that verifies in both states.
    pub(crate) parity_older: bool,
}

/// Something over a row that verifies as it is and, otherwise, as parity says.
#[derive(Debug)]
struct Claim {
    row: u32,
    /// How the state of parity stands to the present one.
    order: Order,
    /// Its bytes over the columns: offset from the first column, and length.
    parts: Vec<(usize, usize)>,
    doubt: Doubt,
    contradicted: bool,
}

impl Claim {
    fn is(&self, order: Order) -> bool {
        !self.contradicted && self.order == order
    }
}

/// Another state of an object, which verifies.
struct Other {
    order: Order,
    /// The ranges that make it differ.
    changed: Vec<(u64, u64)>,
    /// What to say if nothing tells the order.
    doubt: Doubt,
}

/// The columns that are judged.
#[derive(Clone, Copy)]
struct Columns<'a> {
    zone: &'a Zone,
    col: u64,
    /// Rows XOR parity.
    syndrome: &'a [u8],
}

impl Columns<'_> {
    /// The part of `[from, from + len)` in the row at `at` that lies over the columns.
    fn within(&self, at: u64, (from, len): (u64, u64)) -> Option<(usize, usize)> {
        let end = (from + len).min(at + self.syndrome.len() as u64);
        let from = from.max(at);
        (from < end).then(|| ((from - at) as usize, (end - from) as usize))
    }
}

impl<M: Medium> Shared<M> {
    /// What the columns from `col` on come from that do not add up by `syndrome`, seen through
    /// `changes`. They are held, and everything over them verifies. `located` is the row that P
    /// and Q name; without, any may be to blame.
    pub(crate) fn judge_columns(
        &self,
        zone: &Zone,
        col: u64,
        syndrome: &[u8],
        changes: &Changes,
        located: Option<u32>,
    ) -> Judged {
        let first = syndrome.iter().position(|b| *b != 0);
        let last = syndrome.iter().rposition(|b| *b != 0);
        let (Some(first), Some(last)) = (first, last) else { return Judged::default() };
        if !self.m.enabled(COMPARE) {
            return Judged::default();
        }
        let columns = Columns { zone, col: col + first as u64, syndrome: &syndrome[first..=last] };
        let (mut claims, mut torn) = (Vec::new(), false);
        for row in (0..zone.data_rows()).filter(|row| located.is_none_or(|r| r == *row)) {
            torn |= !self.claims_of(columns, changes, row, &mut claims);
        }
        contradict(columns, &mut claims);
        follow_the_row(&mut claims);
        if located.is_some() {
            // One write of the row was lost, or those of both P and Q: no doubt what is whose.
            let older = claims.iter().any(|claim| claim.is(Order::Older));
            let to = if older { Order::Older } else { Order::Newer };
            let unknown = claims.iter_mut().filter(|claim| claim.is(Order::Unknown));
            unknown.for_each(|claim| claim.order = to);
        }
        self.judge_claims(columns, claims, torn)
    }

    /// `torn`: in some row something would not verify as parity says.
    fn judge_claims(&self, columns: Columns<'_>, claims: Vec<Claim>, torn: bool) -> Judged {
        let parity_older = claims.iter().any(|claim| claim.is(Order::Older));
        let mut judged = Judged { parity_older, ..Judged::default() };
        let mut rows: Vec<u32> =
            claims.iter().filter(|c| c.is(Order::Newer)).map(|c| c.row).collect();
        rows.dedup();
        let all_newer = claims.iter().all(|claim| claim.is(Order::Newer));
        for row in &rows {
            let mine = || claims.iter().filter(|c| c.row == *row && c.is(Order::Newer));
            // What no sum covers comes along where it is nobody else's.
            let parts = if all_newer && rows.len() == 1 && !torn {
                vec![(0, columns.syndrome.len())]
            } else {
                mine().flat_map(|claim| claim.parts.iter().copied()).collect()
            };
            let wrong = mine().map(|claim| claim.doubt.wrong).next().unwrap_or(Wrong::Data);
            judged.newer.extend(self.newer_of(columns, *row, &parts, wrong));
        }
        if self.m.enabled(DOUBT) {
            let doubtful = |claim: &Claim| claim.contradicted || claim.order == Order::Unknown;
            judged.doubts = claims.into_iter().filter(doubtful).map(|c| c.doubt).collect();
        }
        judged
    }

    /// The range of a row around `parts`, with these as parity says.
    fn newer_of(
        &self,
        columns: Columns<'_>,
        row: u32,
        parts: &[(usize, usize)],
        wrong: Wrong,
    ) -> Option<Newer> {
        let first = parts.iter().map(|(from, _)| *from).min()?;
        let end = parts.iter().map(|(from, len)| from + len).max()?;
        let at = columns.zone.at(row, columns.col + first as u64);
        let mut bytes = vec![0; end - first];
        self.m.read(at, &mut bytes).ok()?;
        let mut change = vec![0; bytes.len()];
        for (from, len) in parts {
            let part = &columns.syndrome[*from..from + len];
            change[from - first..][..*len].copy_from_slice(part);
        }
        xor_into(&mut bytes, &change);
        Some(Newer { at, bytes, wrong })
    }

    /// Adds the claims of a row. False if something over it would not verify as parity says.
    fn claims_of(
        &self,
        columns: Columns<'_>,
        changes: &Changes,
        row: u32,
        claims: &mut Vec<Claim>,
    ) -> bool {
        let at = columns.zone.at(row, columns.col);
        let mut bytes = columns.syndrome.to_vec();
        let mut there = vec![0; bytes.len()];
        let Some(table) = self.heap.zone_of(at) else { return true };
        if self.m.read(at, &mut there).is_err() {
            return false;
        }
        xor_into(&mut bytes, &there);
        let direct = Direct(&self.m);
        let overlay = Overlay { under: &direct, at, bytes: &bytes };
        let (now, then) = (changes.over(&direct), changes.over(&overlay));
        let mut whole = true;
        let mut places: BTreeMap<u64, (Spot, Vec<u64>)> = BTreeMap::new();
        table.units_over(at, bytes.len() as u64, &mut |unit| match unit {
            Unit::Entry { at: entry, chunk } => {
                let parts = Vec::from_iter(columns.within(at, (entry, CHUNK_LEN as u64)));
                match self.compare_entry(entry, chunk, &now, &then) {
                    Ok(None) => {}
                    Ok(Some(order)) => {
                        let (len, wrong) = (CHUNK_LEN as u64, Wrong::Directory);
                        let object = RawPtr::NULL;
                        let doubt = Doubt { at: entry, len, wrong, object, columns: Vec::new() };
                        claims.push(Claim { row, order, parts, doubt, contradicted: false });
                    }
                    Err(Torn) => whole = false,
                }
            }
            Unit::Granule { spot, granule } => {
                let (_, granules) = places.entry(spot.slot).or_insert((spot, Vec::new()));
                if !granules.contains(&granule) {
                    granules.push(granule);
                }
            }
        });
        for (spot, granules) in places.into_values().filter(|_| self.heap.sums().active()) {
            match self.compare_object(&spot, &granules, &now, &then) {
                Ok(None) => {}
                Ok(Some(Other { order, changed, doubt })) => {
                    let parts = changed.iter().filter_map(|range| columns.within(at, *range));
                    let parts = parts.collect();
                    claims.push(Claim { row, order, parts, doubt, contradicted: false });
                }
                Err(Torn) => whole = false,
            }
        }
        let new = claims.iter_mut().filter(|claim| claim.row == row);
        new.for_each(|claim| {
            let column = |(from, len): &(usize, usize)| (columns.col + *from as u64, *len as u64);
            claim.doubt.columns = claim.parts.iter().map(column).collect();
        });
        whole
    }

    /// How two states of an entry stand to each other; `None` if they are the same.
    fn compare_entry(
        &self,
        at: u64,
        chunk: u32,
        now: &impl Source,
        then: &impl Source,
    ) -> Result<Option<Order>, Torn> {
        let certify = self.blame_certify();
        let sums = self.heap.sums();
        let now_there = read_entry(now, sums, at, certify)?;
        match (now_there, read_entry(then, sums, at, certify)?) {
            (Some(before), Some(after)) if before == after => Ok(None),
            (Some(before), Some(after)) => {
                Ok(Some(self.order_of_entries(at, (chunk, &before, &after), now, then, certify)))
            }
            _ => Err(Torn),
        }
    }

    /// How two states of an object stand to each other; `None` if they are the same.
    fn compare_object(
        &self,
        spot: &Spot,
        granules: &[u64],
        now: &impl Source,
        then: &impl Source,
    ) -> Result<Option<Other>, Torn> {
        let (sums, certify) = (self.heap.sums(), self.blame_certify());
        let (before, after) = (read_slot(now, spot)?, read_slot(then, spot)?);
        let slots_differ = before != after;
        let mut changed = Vec::new();
        // A whole state beside one that is not: that was damaged, whatever came last.
        let mut damaged = false;
        if slots_differ {
            changed.push((spot.slot, SLOT_LEN as u64));
            if check_granule(then, sums, spot, 0, certify)? != Found::Good {
                return Err(Torn);
            }
        }
        for granule in granules {
            let differs = after.is_live() && granule_differs(now, then, spot, &after, *granule)?;
            if !(differs || slots_differ) {
                continue;
            }
            if check_granule(then, sums, spot, *granule, certify)?.is_bad() {
                return Err(Torn);
            }
            damaged |= check_granule(now, sums, spot, *granule, certify)?.is_bad();
            changed.push(Unit::Granule { spot: *spot, granule: *granule }.range());
            if *granule > 0 {
                changed.push((spot.sum_at(*granule), SUM_LEN));
            }
        }
        if changed.is_empty() {
            return Ok(None);
        }
        let order = match (damaged, slots_differ) {
            (true, _) => Order::Newer,
            (_, true) => order_of(&before, &after, spot),
            _ => Order::Unknown,
        };
        let generation = if before.is_live() { before.generation } else { after.generation };
        let len = u64::from(if before.is_live() { before.len } else { after.len });
        let wrong = if slots_differ { Wrong::Slot } else { Wrong::Data };
        let object = RawPtr::new(spot.object, generation);
        let doubt = Doubt { at: spot.object, len: len.max(1), wrong, object, columns: Vec::new() };
        Ok(Some(Other { order, changed, doubt }))
    }

    /// Whether sums decide about what is believed.
    fn blame_certify(&self) -> Certify {
        Certify::when(self.m.enabled(VERIFY))
    }
}

/// Something does not verify, or cannot be read.
struct Torn;

impl From<MediaError> for Torn {
    fn from(_: MediaError) -> Self {
        Self
    }
}

/// Whether what a live slot says of a granule is not the same in two states.
fn granule_differs(
    now: &impl Source,
    then: &impl Source,
    spot: &Spot,
    slot: &Slot,
    granule: u64,
) -> Result<bool, MediaError> {
    let (start, len) = granule_range(granule, u64::from(slot.len).min(spot.capacity));
    if granule > 0 && len == 0 {
        return Ok(false);
    }
    let (mut before, mut after) = (vec![0; len as usize], vec![0; len as usize]);
    now.read(spot.object + start, &mut before)?;
    then.read(spot.object + start, &mut after)?;
    let sums = (read_sum(now, spot, slot, granule)?, read_sum(then, spot, slot, granule)?);
    Ok(before != after || sums.0 != sums.1)
}

/// Marks claims of two rows to the same difference. It can only come from one of them, unless
/// both say that it does not.
fn contradict(columns: Columns<'_>, claims: &mut [Claim]) {
    let mut owners: Vec<Option<usize>> = vec![None; columns.syndrome.len()];
    for i in 0..claims.len() {
        for (from, len) in claims[i].parts.clone() {
            for byte in (from..from + len).filter(|byte| columns.syndrome[*byte] != 0) {
                let other = *owners[byte].get_or_insert(i);
                let both_older =
                    claims[i].order == Order::Older && claims[other].order == Order::Older;
                if claims[other].row != claims[i].row && !both_older {
                    claims[other].contradicted = true;
                    claims[i].contradicted = true;
                }
            }
        }
    }
}

/// What does not tell itself goes with what does in its row, if all of that says the same.
fn follow_the_row(claims: &mut [Claim]) {
    for i in 0..claims.len() {
        let row = claims[i].row;
        let any = |order| claims.iter().any(|claim| claim.row == row && claim.order == order);
        let order = match (any(Order::Newer), any(Order::Older)) {
            (true, false) => Order::Newer,
            (false, true) => Order::Older,
            _ => continue,
        };
        if claims[i].order == Order::Unknown {
            claims[i].order = order;
        }
    }
}
