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
//! | does not, as other columns do not add up | pages were lost together | judged with these |
//! | none verifies | P, free bytes, or what was overwritten since | P is recomputed |
//!
//! `newer.rs` knows the order. Where it does not, what else claims columns in the same row does:
//! pages get lost whole. Where P and Q agree on a row, that decides, but nothing goes back by its
//! own numbers: that is in doubt.
//!
//! What cannot be read at the moment says nothing, neither that it is torn nor that it is not: its
//! page is mended, and then it is judged. Only what stays bad counts as torn, or comes after dozens
//! of others. And bytes of a place are free ones because its slot says so, which lies on another
//! page, whose last write may have been lost as well: where such bytes differ, the columns of the
//! slot have to add up.

use holdfast_codes::{gf_inv, gf_mul_into, gf_pow_g, xor_into};
use holdfast_heap::format::{CHUNK_LEN, SLOT_LEN, SUM_LEN};
use holdfast_heap::sums::{Slot, granule_range};
use holdfast_heap::verify::{
    Direct, Found, Overlay, Source, check_granule, read_entry, read_slot, read_sum,
};
use holdfast_heap::{ChunkEntry, Spot, Unit};
use holdfast_layout::{Certify, RawPtr};
use holdfast_pmem::{MediaError, Medium, PAGE, Site};
use holdfast_redundancy::{Wrong, Zone, zone};
use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::changes::Changes;
use crate::mend_unit::parts_of;
use crate::newer::{Order, order_of};
use crate::shared::Shared;
use crate::versions::Version;

/// Comparing what a row is with what parity says it was written to be.
const COMPARE: Site = Site::new("object.blame.compare");
/// Believing what parity says only where sums of its own bear it out.
const VERIFY: Site = Site::new("object.blame.verify");
/// Looking at the slots of free bytes that differ.
const FREE: Site = Site::new("object.blame.free");
/// Leaving alone what may be the older state, or the newer.
const DOUBT: Site = Site::new("object.blame.doubt");

/// What two states are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// Part of a row, without sums that tell what is in it.
    Row,
    /// A place, and the version of its word when it was judged; none if somebody held that.
    Place(Spot, Option<Version>),
    /// A directory entry: its chunk, as it is and as it was written to be.
    Entry {
        /// Where.
        at: u64,
        /// Of which chunk.
        chunk: u32,
        /// As it is.
        before: ChunkEntry,
        /// As parity says.
        after: ChunkEntry,
    },
}

/// Something whose last write was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Newer {
    /// What it is.
    pub(crate) of: Of,
    /// Where which bytes were to be written, each range in one page.
    pub(crate) parts: Vec<(u64, Vec<u8>)>,
    /// What it concerns.
    pub(crate) wrong: Wrong,
    /// As if it were in doubt: what parity must keep unless it is brought back.
    pub(crate) doubt: Doubt,
    /// It says nothing of that itself: other things in its row do.
    pub(crate) follows: bool,
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
    /// The row it lies in.
    pub(crate) row: u32,
    /// The columns that parity must keep: offset in the row, and by what the states differ.
    pub(crate) columns: Vec<(u64, Vec<u8>)>,
    /// The parity that says so, if the other one cannot be read, or was made from the rows.
    pub(crate) of: Option<zone::Unit>,
}

impl Doubt {
    /// Whether both are about the same bytes, over the same page of columns.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        let page = |doubt: &Self| doubt.columns.first().map(|(col, _)| col / PAGE);
        self.at == other.at && page(self) == page(other)
    }

    /// Whether the states differ in any of these columns.
    pub(crate) fn lies_over(&self, (from, len): (u64, u64)) -> bool {
        let over = |col: &u64| (from..from + len).contains(col);
        self.columns.iter().any(|(col, bytes)| {
            (*col..).zip(bytes).any(|(col, differs)| *differs != 0 && over(&col))
        })
    }

    /// The columns as offset in the row and length.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.columns.iter().map(|(col, bytes)| (*col, bytes.len() as u64))
    }
}

/// What became known of columns that do not add up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// What to bring back.
    pub(crate) newer: Vec<Newer>,
    /// What nothing that is kept can decide.
    pub(crate) doubts: Vec<Doubt>,
    /// The other pages of what does not verify as parity says.
    pub(crate) torn: Vec<u64>,
}

impl Judged {
    /// The doubts are those of one parity alone.
    pub(crate) fn of(mut self, parity: zone::Unit) -> Self {
        self.doubts.iter_mut().for_each(|doubt| doubt.of = Some(parity));
        self
    }

    /// Only what is newer by its own numbers.
    pub(crate) fn by_its_own(self) -> Self {
        let newer = self.newer.into_iter().filter(|newer| !newer.follows).collect();
        Self { newer, ..Self::default() }
    }

    /// Of how many things something is known.
    pub(crate) fn says(&self) -> usize {
        self.newer.len() + self.doubts.len()
    }
}

/// Something over a row that verifies as it is and, otherwise, as parity says.
#[derive(Debug)]
struct Claim {
    row: u32,
    /// How the state of parity stands to the present one.
    order: Order,
    of: Of,
    /// The ranges in which the states differ.
    changed: Vec<(u64, u64)>,
    /// Its bytes over the columns: offset from the first column, and length.
    parts: Vec<(usize, usize)>,
    doubt: Doubt,
    contradicted: bool,
    /// Its order is that of what lies in the row beside it.
    follows: bool,
}

impl Claim {
    fn is(&self, order: Order) -> bool {
        !self.contradicted && self.order == order
    }
}

/// Another state of something, which verifies.
struct Other {
    of: Of,
    order: Order,
    /// The ranges that make it differ.
    changed: Vec<(u64, u64)>,
    /// What to say if nothing tells the order.
    doubt: Doubt,
}

impl Other {
    fn claim(self, row: u32) -> Claim {
        let Self { of, order, changed, doubt } = self;
        let doubt = Doubt { row, ..doubt };
        let (parts, contradicted, follows) = (Vec::new(), false, false);
        Claim { row, order, of, changed, parts, doubt, contradicted, follows }
    }
}

/// By what columns from one on differ from their parity.
#[derive(Clone, Copy)]
pub(crate) struct Apart<'a> {
    /// The first.
    pub(crate) col: u64,
    /// P XOR what the rows give, or Q.
    pub(crate) by: &'a [u8],
    /// It is Q that says so.
    pub(crate) of_q: bool,
}

impl<'a> Apart<'a> {
    /// By what a row differs, if it is to blame.
    pub(crate) fn of_row(&self, row: u32) -> Cow<'a, [u8]> {
        if !self.of_q {
            return Cow::Borrowed(self.by);
        }
        let mut by = vec![0; self.by.len()];
        gf_mul_into(&mut by, self.by, gf_inv(gf_pow_g(row as usize)));
        Cow::Owned(by)
    }
}

/// The columns that are judged.
#[derive(Clone, Copy)]
struct Columns<'a> {
    zone: &'a Zone,
    col: u64,
    /// Rows XOR parity.
    syndrome: &'a [u8],
    of_q: bool,
}

impl<'a> Columns<'a> {
    /// By what a row differs, if it is to blame.
    fn of_row(&self, row: u32) -> Cow<'a, [u8]> {
        Apart { col: self.col, by: self.syndrome, of_q: self.of_q }.of_row(row)
    }

    /// The part of `[from, from + len)` in the row at `at` that lies over the columns.
    fn within(&self, at: u64, (from, len): (u64, u64)) -> Option<(usize, usize)> {
        let end = (from + len).min(at + self.syndrome.len() as u64);
        let from = from.max(at);
        (from < end).then(|| ((from - at) as usize, (end - from) as usize))
    }
}

/// Other pages than those that are judged.
#[derive(Clone, Copy)]
pub(crate) struct Others<'a> {
    /// As parity says that they were.
    pub(crate) by_parity: &'a Changes,
    /// They cannot be read, and nothing can be done about it.
    pub(crate) given_up: &'a [u64],
}

impl Others<'_> {
    /// Whether a page is not worth another try.
    pub(crate) fn stays_bad(&self, error: &MediaError) -> bool {
        stays_bad(self.given_up, error)
    }
}

/// Whether what could not be read is one of the pages that stay so.
pub(crate) fn stays_bad(given_up: &[u64], error: &MediaError) -> bool {
    given_up.contains(&(error.at / PAGE * PAGE))
}

/// The two sides that are compared.
#[derive(Clone, Copy)]
struct Sides<'a> {
    /// What is replayed over both.
    changes: &'a Changes,
    others: Others<'a>,
}

impl<M: Medium> Shared<M> {
    /// What columns come from that do not add up, seen through `changes`, with `others` beside
    /// them. They are held, and everything over them verifies. `located` is the row that P and Q
    /// name; without, any may be to blame.
    ///
    /// # Errors
    /// Something that is needed for it cannot be read, and was not given up.
    pub(crate) fn judge_columns(
        &self,
        zone: &Zone,
        Apart { col, by: syndrome, of_q }: Apart<'_>,
        changes: &Changes,
        located: Option<u32>,
        others: Others<'_>,
    ) -> Result<Judged, MediaError> {
        let first = syndrome.iter().position(|b| *b != 0);
        let last = syndrome.iter().rposition(|b| *b != 0);
        let (Some(first), Some(last)) = (first, last) else { return Ok(Judged::default()) };
        if !self.m.enabled(COMPARE) {
            return Ok(Judged::default());
        }
        let syndrome = &syndrome[first..=last];
        let columns = Columns { zone, col: col + first as u64, syndrome, of_q };
        let sides = Sides { changes, others };
        let (mut claims, mut judged) = (Vec::new(), Judged::default());
        for row in (0..zone.data_rows()).filter(|row| located.is_none_or(|r| r == *row)) {
            self.claims_of(columns, sides, row, &mut claims, &mut judged.torn)?;
        }
        contradict(columns, &mut claims);
        if located.is_some() {
            // One write of the row was lost, or those of both P and Q; that would be two.
            for claim in claims.iter_mut().filter(|claim| claim.order != Order::Idle) {
                let back = claim.order == Order::Older;
                claim.order = if back { Order::Unknown } else { Order::Newer };
            }
        } else {
            follow_the_row(&mut claims);
        }
        for claim in claims {
            if claim.is(Order::Newer) {
                match self.newer_of(columns, sides, claim) {
                    Err(e) if sides.others.stays_bad(&e) => {}
                    newer => judged.newer.extend(newer?),
                }
            } else if (claim.contradicted || claim.order == Order::Unknown) && self.m.enabled(DOUBT)
            {
                judged.doubts.push(claim.doubt);
            }
        }
        Ok(judged)
    }

    /// What a claim is about as it was written, without what is replayed over it. `None` if that
    /// is what is there.
    ///
    /// # Errors
    /// Something of it cannot be read: what differs there is not to become parity.
    fn newer_of(
        &self,
        columns: Columns<'_>,
        sides: Sides<'_>,
        claim: Claim,
    ) -> Result<Option<Newer>, MediaError> {
        let at = columns.zone.at(claim.row, columns.col);
        let bytes = self.as_parity_says(at, &columns.of_row(claim.row))?;
        let direct = Direct(&self.m);
        let beside = sides.others.by_parity.over(&direct);
        let then = Overlay { under: &beside, at, bytes: &bytes };
        let mut parts = Vec::new();
        for (start, len) in claim.changed {
            let (mut from, end) = (start, start + len);
            while from < end {
                let to = end.min((from / PAGE + 1) * PAGE);
                let (mut old, mut new) =
                    (vec![0; (to - from) as usize], vec![0; (to - from) as usize]);
                direct.read(from, &mut old)?;
                then.read(from, &mut new)?;
                if old != new {
                    parts.push((from, new));
                }
                from = to;
            }
        }
        parts.sort_unstable();
        parts.dedup();
        let Claim { of, doubt, follows, .. } = claim;
        let newer = Newer { of, parts, wrong: doubt.wrong, doubt, follows };
        Ok((!newer.parts.is_empty()).then_some(newer))
    }

    /// Bytes of a row with `syndrome` taken out of them.
    ///
    /// # Errors
    /// The row cannot be read.
    pub(crate) fn as_parity_says(&self, at: u64, syndrome: &[u8]) -> Result<Vec<u8>, MediaError> {
        let mut bytes = vec![0; syndrome.len()];
        self.m.read(at, &mut bytes)?;
        xor_into(&mut bytes, syndrome);
        Ok(bytes)
    }

    /// Adds the claims of a row, and the other pages of what would not verify as parity says.
    fn claims_of(
        &self,
        columns: Columns<'_>,
        sides: Sides<'_>,
        row: u32,
        claims: &mut Vec<Claim>,
        torn: &mut Vec<u64>,
    ) -> Result<(), MediaError> {
        let at = columns.zone.at(row, columns.col);
        let bytes = match self.as_parity_says(at, &columns.of_row(row)) {
            Err(e) if sides.others.stays_bad(&e) => return Ok(()),
            bytes => bytes?,
        };
        let direct = Direct(&self.m);
        let beside = sides.others.by_parity.over(&direct);
        let overlay = Overlay { under: &beside, at, bytes: &bytes };
        let (now, then) = (sides.changes.over(&direct), sides.changes.over(&overlay));
        let first = claims.len();
        let mut places: BTreeMap<u64, (Spot, Vec<u64>)> = BTreeMap::new();
        let mut unread = None;
        self.units_over(at, bytes.len() as u64, &mut |unit| match unit {
            Unit::Entry { at, chunk } => match self.compare_entry(at, chunk, &now, &then) {
                Ok(Some(other)) => claims.push(other.claim(row)),
                Err(Unjudged::Unread(e)) if !sides.others.stays_bad(&e) => unread = Some(e),
                _ => {}
            },
            Unit::Granule { spot, granule } => {
                let (_, granules) = places.entry(spot.slot).or_insert((spot, Vec::new()));
                if !granules.contains(&granule) {
                    granules.push(granule);
                }
            }
        });
        if let Some(error) = unread {
            return Err(error);
        }
        for (spot, granules) in places.into_values().filter(|_| self.heap.sums().active()) {
            match self.compare_object(&spot, &granules, &now, &then) {
                Ok(None) => {}
                Ok(Some(other)) => claims.push(other.claim(row)),
                Err(Unjudged::Unread(e)) if !sides.others.stays_bad(&e) => return Err(e),
                Err(_) => pages_beside(&spot, &granules, at / PAGE * PAGE, torn),
            }
        }
        for claim in &mut claims[first..] {
            let ranges = claim.changed.iter().filter_map(|range| columns.within(at, *range));
            claim.parts = ranges.collect();
            for (from, len) in &claim.parts {
                let (mut old, mut new) = (vec![0; *len], vec![0; *len]);
                let read = now.read(at + *from as u64, &mut old);
                match read.and_then(|()| then.read(at + *from as u64, &mut new)) {
                    Err(e) if sides.others.stays_bad(&e) => continue,
                    read => read?,
                }
                xor_into(&mut old, &new);
                claim.doubt.columns.push((columns.col + *from as u64, old));
            }
        }
        Ok(())
    }

    /// How two states of an entry stand to each other; `None` if they are the same.
    fn compare_entry(
        &self,
        at: u64,
        chunk: u32,
        now: &impl Source,
        then: &impl Source,
    ) -> Result<Option<Other>, Unjudged> {
        let certify = self.blame_certify();
        let sums = self.heap.sums();
        let now_there = read_entry(now, sums, at, certify)?;
        let (before, after) = match (now_there, read_entry(then, sums, at, certify)?) {
            (Some(before), Some(after)) if before == after => return Ok(None),
            (Some(before), Some(after)) => (before, after),
            _ => return Err(Unjudged::Torn),
        };
        let order = self.order_of_entries(at, (chunk, &before, &after), now, then, certify);
        let (len, wrong, object) = (CHUNK_LEN as u64, Wrong::Directory, RawPtr::NULL);
        let doubt = Doubt { at, len, wrong, object, row: 0, columns: Vec::new(), of: None };
        let of = Of::Entry { at, chunk, before, after };
        Ok(Some(Other { of, order, changed: vec![(at, len)], doubt }))
    }

    /// How two states of an object stand to each other; `None` if they are the same.
    fn compare_object(
        &self,
        spot: &Spot,
        granules: &[u64],
        now: &impl Source,
        then: &impl Source,
    ) -> Result<Option<Other>, Unjudged> {
        let (sums, certify) = (self.heap.sums(), self.blame_certify());
        // What is read from here on counts for the version that there is now.
        let version = self.versions.now(self.versions.index(spot.object));
        let (before, after) = (read_slot(now, spot)?, read_slot(then, spot)?);
        let slots_differ = before != after;
        let mut changed = Vec::new();
        // A whole state beside one that is not: that was damaged, whatever came last.
        let mut damaged = false;
        if slots_differ {
            changed.push((spot.slot, SLOT_LEN as u64));
            if check_granule(then, sums, spot, 0, certify)? != Found::Good {
                return Err(Unjudged::Torn);
            }
        } else if !after.is_live() && self.free_bytes_differ(now, then, spot, granules)? {
            return Err(Unjudged::Free);
        }
        for granule in granules {
            let differs = after.is_live() && granule_differs(now, then, spot, &after, *granule)?;
            if !(differs || slots_differ) {
                continue;
            }
            if check_granule(then, sums, spot, *granule, certify)?.is_bad() {
                return Err(Unjudged::Torn);
            }
            damaged |= check_granule(now, sums, spot, *granule, certify)?.is_bad();
            if !after.is_live() {
                // Of a place that is to be free the slot comes back; no sum covers its bytes.
                continue;
            }
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
        // A slot that is damaged may say any length.
        let (at, len) = (spot.object, len.clamp(1, spot.capacity.max(1)));
        let doubt = Doubt { at, len, wrong, object, row: 0, columns: Vec::new(), of: None };
        Ok(Some(Other { of: Of::Place(*spot, version), order, changed, doubt }))
    }

    /// Whether granules of a place that is free in two states are not the same in them.
    fn free_bytes_differ(
        &self,
        now: &impl Source,
        then: &impl Source,
        spot: &Spot,
        granules: &[u64],
    ) -> Result<bool, MediaError> {
        for granule in granules.iter().filter(|_| self.m.enabled(FREE)) {
            let (from, len) = granule_range(*granule, spot.capacity);
            let (mut before, mut after) = (vec![0; len as usize], vec![0; len as usize]);
            now.read(spot.object + from, &mut before)?;
            then.read(spot.object + from, &mut after)?;
            if before != after {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How the page at `at` with the bytes `after` stands to the one with `before`, by the slots
    /// and entries in which they differ; `Idle` if nothing but free bytes tells them apart.
    pub(crate) fn order_of_pages(&self, at: u64, before: &[u8], after: &[u8]) -> Order {
        let direct = Direct(&self.m);
        let now = Overlay { under: &direct, at, bytes: before };
        let then = Overlay { under: &direct, at, bytes: after };
        let mut orders = Vec::new();
        self.units_over(at, before.len() as u64, &mut |unit| {
            let other = match unit {
                Unit::Entry { at, chunk } => self.compare_entry(at, chunk, &now, &then),
                Unit::Granule { spot, granule } => {
                    self.compare_object(&spot, &[granule], &now, &then)
                }
            };
            // What is torn in either counts as bad there.
            orders.extend(other.ok().flatten().map(|other| other.order));
        });
        match (orders.contains(&Order::Newer), orders.contains(&Order::Older)) {
            (true, false) => Order::Newer,
            (false, true) => Order::Older,
            (false, false) if !orders.contains(&Order::Unknown) => Order::Idle,
            _ => Order::Unknown,
        }
    }

    /// Whether sums decide about what is believed.
    pub(crate) fn blame_certify(&self) -> Certify {
        Certify::when(self.m.enabled(VERIFY))
    }
}

/// Why two states of something are not compared.
enum Unjudged {
    /// One does not verify.
    Torn,
    /// Its bytes are free ones as far as its slot says, and differ.
    Free,
    /// Something of it cannot be read.
    Unread(MediaError),
}

impl From<MediaError> for Unjudged {
    fn from(error: MediaError) -> Self {
        Self::Unread(error)
    }
}

/// Adds the pages, but for `page`, of parts of these granules and of the first one, whose sum
/// covers the slot.
fn pages_beside(spot: &Spot, granules: &[u64], page: u64, into: &mut Vec<u64>) {
    for granule in granules.iter().copied().chain([0]) {
        for part in parts_of(&Unit::Granule { spot: *spot, granule }) {
            let (first, end) = (part.at / PAGE * PAGE, part.at + part.len);
            let pages = (first..end).step_by(PAGE as usize).filter(|other| *other != page);
            into.extend(pages);
        }
    }
    into.sort_unstable();
    into.dedup();
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
                let older = |i: usize| matches!(claims[i].order, Order::Older | Order::Idle);
                let both_older = older(i) && older(other);
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
            (claims[i].order, claims[i].follows) = (order, true);
        }
    }
}
