//! Regions in the side file: where their parts are, and how each is read and stored.
//!
//! Regions come in groups, so that a file may grow for ever: the states of a group's regions, their
//! entries, their parity, and the states once more. A part of the data file that has no storage
//! leaves its part of the side file unwritten, and a sparse side file takes no space for it.

use core::ops::Range;
use std::collections::BTreeMap;

use holdfast_codes::crc32c;
use holdfast_layout::Certify;
use holdfast_layout::bytes::{get_u32, get_u64, put_u32, put_u64};
use holdfast_pmem::track::{NOTED, RecordPlaces};
use holdfast_pmem::{MediaError, Medium, MediumKind, PAGE, Site, SyncError};
use holdfast_redundancy::{PageStripes, Unsure, verdict};

use crate::bits::Bits;
use crate::error::Result;
use crate::format::{
    BITS_LEN, ENTRY_LEN, KIND_CLEAN, KIND_SUSPECT, OBSERVED_START, RECORD_LEN, REGION_LEN,
    STALE_START,
};
use crate::header::Header;
use crate::options::Durability;
use crate::why::{Reason, Why, sum_of};

/// The sum of a record.
const SUM: Site = Site::new("mapped.side.sum");
/// Believing only records whose sum is right.
const VERIFY_RECORD: Site = Site::new("mapped.side.verify-record");

/// Believing first stores on record only where nothing else lies among them.
const VERIFY_RECORDS: Site = Site::new("mapped.side.verify-records");
/// Believing reasons only of the set of pages they were told of.
const VERIFY_WHY: Site = Site::new("mapped.side.verify-why");
/// Rewriting a page of states with what the other copy says.
const STATE_HEAL: Site = Site::new("mapped.side.state-heal");
/// Rewriting a page of entries that is lost.
const ENTRY_HEAL: Site = Site::new("mapped.side.entry-heal");
/// Making a page anew on which first stores are recorded.
const RECORDS_HEAL: Site = Site::new("mapped.side.records-heal");
/// What stands for an entry that is lost: no page is taken for never covered.
pub(crate) const LOST_ENTRY: u64 = u64::MAX;

/// Whether somebody may store to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Clean,
    Suspect,
}

/// The record of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionRecord {
    pub(crate) kind: Kind,
    /// Rises with each write.
    pub(crate) generation: u64,
    /// Sum of the region's entries.
    pub(crate) meta: u32,
    /// The same without those of stale pages, as of the last pass: it holds where one was cut off.
    pub(crate) rest: u32,
    /// Pages of the region that are in the file.
    pub(crate) pages: u32,
    /// When the whole region was last verified.
    pub(crate) verified_ns: u64,
    /// When it was last covered.
    pub(crate) covered_ns: u64,
    /// Stripes whose parity is of content that is gone.
    pub(crate) unusable: u64,
    /// Why pages are undecided.
    pub(crate) why: Why,
}

/// A region's state as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The newest record that verifies.
    pub(crate) record: Option<RegionRecord>,
    /// What the records that verify say of undecided pages, the newest in front.
    pub(crate) whys: [Option<Why>; 2],
    /// When it was covered, by the record that knows of the earlier time.
    pub(crate) covered_ns: u64,
    /// Whether any record that verifies says suspect, or none verifies.
    pub(crate) suspect: bool,
    pub(crate) stale: Bits,
    pub(crate) observed: Bits,
    /// Nothing was ever written there.
    pub(crate) empty: bool,
    /// Copies that do not verify or cannot be read.
    pub(crate) damaged: [bool; 2],
}

/// Where the parts of the regions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    stripes: PageStripes,
    group: u64,
    start: u64,
    seed: u32,
}

/// Both copies of a region's state, the one written first in front.
pub(crate) const COPIES: [verdict::Side; 2] = [verdict::Side::B, verdict::Side::A];

impl Places {
    pub(crate) fn of(header: &Header) -> Self {
        Self {
            stripes: header.stripes,
            group: u64::from(header.group),
            start: header.side_len * 2,
            seed: header.seed(),
        }
    }

    const fn states_len(&self) -> u64 {
        (self.group * REGION_LEN).next_multiple_of(PAGE)
    }

    const fn entries_len(&self) -> u64 {
        (self.group * self.stripes.pages() as u64 * ENTRY_LEN as u64).next_multiple_of(PAGE)
    }

    const fn records_len(&self) -> u64 {
        (self.group * self.stripes.pages() as u64).next_multiple_of(PAGE)
    }

    const fn parity_len(&self) -> u64 {
        self.group * self.stripes.stripes() as u64 * self.stripes.parity_len() as u64
    }

    const fn group_len(&self) -> u64 {
        2 * self.states_len() + self.entries_len() + self.records_len() + self.parity_len()
    }

    /// Regions of the group that `at` of the side file lies in.
    fn group_at(&self, at: u64) -> Range<u64> {
        let first = at.saturating_sub(self.start) / self.group_len() * self.group;
        first..first + self.group
    }

    /// Saturates: what lies beyond every medium is refused by it.
    fn group_start(&self, region: u64) -> u64 {
        (region / self.group).saturating_mul(self.group_len()).saturating_add(self.start)
    }

    /// Bytes the side file needs for `regions` regions.
    pub(crate) fn len_for(&self, regions: u64) -> u64 {
        regions.div_ceil(self.group).saturating_mul(self.group_len()).saturating_add(self.start)
    }

    pub(crate) fn state(&self, region: u64, copy: verdict::Side) -> u64 {
        let inside = region % self.group * REGION_LEN;
        let second = match copy {
            verdict::Side::A => 0,
            verdict::Side::B => self.group_len() - self.states_len(),
        };
        self.group_start(region).saturating_add(second + inside)
    }

    pub(crate) fn entries(&self, region: u64) -> u64 {
        let inside = region % self.group * u64::from(self.stripes.pages()) * ENTRY_LEN as u64;
        self.group_start(region).saturating_add(self.states_len() + inside)
    }

    /// The byte in which a first store to a page is recorded, by sources that do.
    pub(crate) fn record(&self, region: u64, inside: u32) -> u64 {
        let pages = region % self.group * u64::from(self.stripes.pages()) + u64::from(inside);
        let before = self.states_len() + self.entries_len();
        self.group_start(region).saturating_add(before + pages)
    }

    /// Where those bytes are, for pages by their number in the file; `None` if the numbers of the
    /// header cannot be.
    pub(crate) fn records(&self) -> Option<RecordPlaces> {
        let pages = self.group * u64::from(self.stripes.pages());
        RecordPlaces::in_groups(self.record(0, 0), pages, self.group_len())
    }

    pub(crate) fn parity(&self, region: u64, stripe: u32) -> u64 {
        let stripes = region % self.group * u64::from(self.stripes.stripes()) + u64::from(stripe);
        let inside = stripes * self.stripes.parity_len() as u64;
        let before = self.states_len() + self.entries_len() + self.records_len();
        self.group_start(region).saturating_add(before + inside)
    }

    /// The sum of a region's entries, those of `except` taken as zeros.
    pub(crate) fn meta(&self, region: u64, entries: &[u64], except: Bits) -> u32 {
        let seed = crc32c(self.seed, &region.to_le_bytes());
        // A long run of bytes is summed ten times as fast as its words one by one.
        let mut bytes = [0; 64 * ENTRY_LEN];
        entries.chunks(64).zip(0..).fold(seed, |sum, (some, chunk)| {
            for (i, entry) in some.iter().enumerate() {
                let left_out = except.has(chunk * 64 + i as u32);
                put_u64(&mut bytes, i * ENTRY_LEN, if left_out { 0 } else { *entry });
            }
            crc32c(sum, &bytes[..some.len() * ENTRY_LEN])
        })
    }

    /// What a region's record is to say of the pages that its bits say are undecided.
    pub(crate) fn why(&self, region: u64, pages: Bits, reason: impl Fn(u32) -> Reason) -> Why {
        Why::of(sum_of(self.seed, region, pages), pages, reason)
    }

    fn encode(&self, region: u64, record: &RegionRecord) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[4] = match record.kind {
            Kind::Clean => KIND_CLEAN,
            Kind::Suspect => KIND_SUSPECT,
        };
        put_u64(&mut bytes, 8, record.generation);
        put_u32(&mut bytes, 16, record.meta);
        put_u32(&mut bytes, 20, record.pages);
        put_u64(&mut bytes, 24, record.verified_ns);
        put_u64(&mut bytes, 32, record.covered_ns);
        put_u64(&mut bytes, 40, record.unusable);
        put_u32(&mut bytes, 48, record.rest);
        record.why.encode(&mut bytes);
        let sum = self.record_sum(region, &bytes);
        put_u32(&mut bytes, 0, sum);
        bytes
    }

    fn record_sum(&self, region: u64, bytes: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &region.to_le_bytes()), &bytes[4..RECORD_LEN])
    }

    fn decode(&self, region: u64, bytes: &[u8], certify: Certify) -> Option<RegionRecord> {
        let certified = certify.agrees(get_u32(bytes, 0), self.record_sum(region, bytes));
        let kind = match bytes[4] {
            KIND_CLEAN => Kind::Clean,
            KIND_SUSPECT => Kind::Suspect,
            _ => return None,
        };
        let record = RegionRecord {
            kind,
            generation: get_u64(bytes, 8),
            meta: get_u32(bytes, 16),
            pages: get_u32(bytes, 20),
            verified_ns: get_u64(bytes, 24),
            covered_ns: get_u64(bytes, 32),
            unusable: get_u64(bytes, 40),
            rest: get_u32(bytes, 48),
            why: Why::decode(bytes),
        };
        let possible = record.pages <= self.stripes.pages()
            && record.generation <= holdfast_layout::format::SEQUENCE_MAX;
        (certified && possible).then_some(record)
    }
}

/// One page's entry: the sum last covered, and the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) current: u32,
    pub(crate) previous: u32,
}

impl Entry {
    pub(crate) const fn decode(word: u64) -> Self {
        Self { current: word as u32, previous: (word >> 32) as u32 }
    }

    pub(crate) const fn encode(self) -> u64 {
        self.current as u64 | (self.previous as u64) << 32
    }

    /// Whether the page was ever covered.
    pub(crate) const fn is_covered(self) -> bool {
        self.current != 0 || self.previous != 0
    }
}

/// The side file.
#[derive(Debug)]
pub(crate) struct Side<S> {
    pub(crate) s: S,
    pub(crate) places: Places,
    pub(crate) durability: Durability,
}

impl<S: Medium> Side<S> {
    /// Orders what this thread stored to the side file before what it does next, as far as its
    /// durability asks: what survives the death of a process in a file needs no order at all.
    pub(crate) fn persist(&self, site: Site) -> Result<()> {
        match self.s.kind() {
            MediumKind::File => sync_file(&self.s, self.durability, site)?,
            MediumKind::Dax | MediumKind::Shm => self.s.drain(site),
        }
        Ok(())
    }

    /// Makes room for `regions` regions.
    pub(crate) fn reach(&self, regions: u64) -> Result<()> {
        let len = self.places.len_for(regions);
        if len > self.s.len() {
            self.s.grow(len)?;
        }
        Ok(())
    }

    /// Of `regions`, those of which there may be something in the side file, in runs. A hole in it
    /// has nothing, and to look there would give it storage where files are in memory.
    pub(crate) fn written(&self, regions: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut next = regions.start;
        while next < regions.end {
            let Some(at) = self.s.storage_from(self.places.group_start(next)) else { break };
            let found = self.places.group_at(at);
            let run = found.start.max(next)..found.end.min(regions.end);
            next = found.end;
            match runs.last_mut() {
                _ if run.is_empty() => {}
                Some(last) if last.end == run.start => last.end = run.end,
                _ => runs.push(run),
            }
        }
        runs
    }

    /// What is known of a region. What cannot be read counts as damaged, never as clean.
    pub(crate) fn state(&self, region: u64) -> Found {
        let certify = Certify::when(self.s.enabled(VERIFY_RECORD));
        let copies = COPIES.map(|copy| {
            let mut bytes = [0; REGION_LEN as usize];
            let at = self.places.state(region, copy);
            self.s.read(at, &mut bytes).ok().map(|()| bytes)
        });
        let records =
            copies.map(|bytes| bytes.and_then(|bytes| self.places.decode(region, &bytes, certify)));
        let newest = records.into_iter().flatten().max_by_key(|record| record.generation);
        let mut whys = records;
        whys.sort_by_key(|record| core::cmp::Reverse(record.map(|record| record.generation)));
        let whys = whys.map(|record| record.map(|record| record.why));
        let suspect = records.into_iter().flatten().any(|r| r.kind == Kind::Suspect);
        let bits = |start: u64| {
            copies.map(|bytes| bytes.map(|bytes| Bits::decode(&bytes[start as usize..])))
        };
        let either = |start| match bits(start) {
            [Some(b), Some(a)] => a.or(b),
            [one, other] => one.or(other).unwrap_or(Bits::first(self.places.stripes.pages())),
        };
        let observed = match bits(OBSERVED_START) {
            [Some(b), Some(a)] => a.and(b),
            [one, other] => one.or(other).unwrap_or(Bits::NONE),
        };
        // A pass that is over has renewed both.
        let covered_ns = records.into_iter().flatten().map(|record| record.covered_ns).min();
        Found {
            record: newest,
            whys,
            covered_ns: covered_ns.unwrap_or(0),
            suspect: suspect || newest.is_none(),
            stale: either(STALE_START),
            observed,
            empty: copies.iter().all(|bytes| bytes.is_some_and(|b| b.iter().all(|x| *x == 0))),
            damaged: records.map(|record| record.is_none()),
        }
    }

    /// Why pages of a region are undecided, as far as it is known of exactly those that its bits
    /// say are, and which of them were not told. They are for people, but for one thing:
    /// what a page with a reason was before is not believed of it after a stop of the machine.
    pub(crate) fn reasons(&self, region: u64, found: &Found) -> (BTreeMap<u32, Unsure>, Bits) {
        let (mut reasons, mut presumed) = (BTreeMap::new(), Bits::NONE);
        let pages = found.stale.without(found.observed);
        if pages.is_empty() {
            return (reasons, presumed);
        }
        let certify = Certify::when(self.s.enabled(VERIFY_WHY));
        let sum = sum_of(self.places.seed, region, pages);
        let mut whys = found.whys.iter().flatten();
        let Some(why) = whys.find(|why| certify.agrees(why.of, sum)) else {
            return (reasons, presumed);
        };
        let first = region.saturating_mul(u64::from(self.places.stripes.pages()));
        let at = |inside: u32| first.saturating_add(inside.into()).saturating_mul(PAGE);
        for inside in pages.iter() {
            let Some(Reason { why, told }) = why.reason(inside, at(inside)) else { continue };
            reasons.insert(inside, why);
            if !told {
                presumed.insert(inside);
            }
        }
        (reasons, presumed)
    }

    /// Pages of a region of which a first store is on record. What cannot be read proves nothing,
    /// nor does any of it if some is what nobody writes there: a stray write may hold any byte.
    pub(crate) fn recorded(&self, region: u64) -> Bits {
        let mut bits = Bits::NONE;
        let found = self.read_records(region).unwrap_or_default();
        let strange = found.iter().any(|byte| ![0, NOTED].contains(byte));
        if strange && self.s.enabled(VERIFY_RECORDS) {
            return bits;
        }
        for (inside, _) in (0..).zip(found).filter(|(_, byte)| *byte == NOTED) {
            bits.insert(inside);
        }
        bits
    }

    fn read_records(&self, region: u64) -> Result<Vec<u8>, MediaError> {
        let mut bytes = vec![0; self.places.stripes.pages() as usize];
        self.s.read(self.places.record(region, 0), &mut bytes)?;
        Ok(bytes)
    }

    /// Clears the records of first stores to a region; whether there were any. What cannot be
    /// cleared cannot be read either, and is not believed; who wants to record there is refused.
    pub(crate) fn clear_records(&self, site: Site, region: u64) -> bool {
        let found = self.read_records(region);
        if found.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
            return false;
        }
        let (at, len) = (self.places.record(region, 0), u64::from(self.places.stripes.pages()));
        for page in (at - at % PAGE..at.saturating_add(len)).step_by(PAGE as usize) {
            let bad = self.s.read(page, &mut vec![0; PAGE as usize]).is_err();
            if bad && self.s.enabled(RECORDS_HEAL) {
                // Other regions may have records there: losing them makes nothing worse than
                // undecided.
                let _ = self.s.heal(RECORDS_HEAL, page, &[0; PAGE as usize]);
            }
        }
        let _ = self.s.put(site, at, &vec![0; len as usize]);
        true
    }

    /// Stores one copy of a region's record. The other one has to be durable as it is or was.
    pub(crate) fn put_record(
        &self,
        site: Site,
        region: u64,
        copy: verdict::Side,
        record: &RegionRecord,
    ) -> Result<()> {
        let mut bytes = self.places.encode(region, record);
        if !self.s.enabled(SUM) {
            bytes[..4].fill(0);
        }
        self.put_state(site, region, copy, 0, &bytes)
    }

    /// Stores part of one copy of a region's state. A page that is bad is rewritten with what the
    /// other copy says of all regions in it.
    fn put_state(
        &self,
        site: Site,
        region: u64,
        copy: verdict::Side,
        from: u64,
        bytes: &[u8],
    ) -> Result<()> {
        if !self.s.enabled(site) {
            return Ok(());
        }
        let at = self.places.state(region, copy);
        if self.s.put(site, at + from, bytes).is_err() {
            let twin = self.places.state(region, copy.other());
            let mut page = vec![0; PAGE as usize];
            self.s.read(twin - twin % PAGE, &mut page)?;
            // A state lies in one page.
            let start = (at % PAGE + from) as usize;
            page[start..start + bytes.len()].copy_from_slice(bytes);
            self.s.heal(STATE_HEAL, at - at % PAGE, &page)?;
        }
        Ok(())
    }

    /// Makes a region one that was never covered, both copies.
    pub(crate) fn wipe_state(&self, site: Site, region: u64) -> Result<()> {
        for copy in COPIES {
            self.put_state(site, region, copy, 0, &[0; REGION_LEN as usize])?;
        }
        Ok(())
    }

    /// Stores the stale pages of a region, and the observed ones unless they stay, both copies.
    pub(crate) fn put_bits(
        &self,
        site: Site,
        region: u64,
        stale: Bits,
        observed: Option<Bits>,
    ) -> Result<()> {
        // Side by side in one line, which is flushed once.
        let mut bytes = stale.encode().to_vec();
        bytes.extend(observed.iter().flat_map(|observed| observed.encode()));
        for copy in COPIES {
            self.put_state(site, region, copy, STALE_START, &bytes)?;
        }
        Ok(())
    }

    /// All entries of a region.
    pub(crate) fn entries(&self, region: u64) -> Result<Vec<u64>, MediaError> {
        let count = self.places.stripes.pages() as usize;
        let mut bytes = vec![0; count * ENTRY_LEN];
        self.s.read(self.places.entries(region), &mut bytes)?;
        Ok((0..count).map(|i| get_u64(&bytes, i * ENTRY_LEN)).collect())
    }

    /// The entry of one page.
    pub(crate) fn entry(&self, region: u64, inside: u32) -> Result<Entry, MediaError> {
        let mut bytes = [0; ENTRY_LEN];
        let at = self.places.entries(region) + u64::from(inside) * ENTRY_LEN as u64;
        self.s.read(at, &mut bytes)?;
        Ok(Entry::decode(get_u64(&bytes, 0)))
    }

    pub(crate) fn put_entry(&self, site: Site, region: u64, inside: u32, entry: u64) -> Result<()> {
        if !self.s.enabled(site) {
            return Ok(());
        }
        let at = self.places.entries(region) + u64::from(inside) * ENTRY_LEN as u64;
        if self.s.put(site, at, &entry.to_le_bytes()).is_err() {
            let (start, inside) = (at - at % PAGE, (at % PAGE) as usize);
            let mut page = [0; PAGE as usize];
            if self.s.read(start, &mut page).is_err() {
                // The sums of every region in it are lost: those regions come to be in doubt.
                page = [0xff; PAGE as usize];
            }
            page[inside..inside + ENTRY_LEN].copy_from_slice(&entry.to_le_bytes());
            self.s.heal(ENTRY_HEAL, start, &page)?;
        }
        Ok(())
    }

    /// The parity pages of a stripe.
    pub(crate) fn parity(
        &self,
        region: u64,
        stripe: u32,
        into: &mut [u8],
    ) -> Result<(), MediaError> {
        if into.is_empty() {
            return Ok(());
        }
        self.s.read(self.places.parity(region, stripe), into)
    }

    /// Stores the parity pages of a stripe; a page that cannot be written is healed with them.
    pub(crate) fn put_parity(
        &self,
        sites: (Site, Site),
        region: u64,
        stripe: u32,
        parity: &[u8],
    ) -> Result<()> {
        if !self.s.enabled(sites.0) {
            return Ok(());
        }
        let start = self.places.parity(region, stripe);
        for (i, page) in parity.chunks(PAGE as usize).enumerate() {
            let at = start + i as u64 * PAGE;
            if self.s.put(sites.0, at, page).is_err() {
                self.s.heal(sites.1, at, page)?;
            }
        }
        Ok(())
    }
}

/// Makes what is stored to a file durable, where power cuts count. In memory there is nothing to
/// wait for here: who stored has drained it, or nobody has.
pub(crate) fn sync_file<M: Medium>(
    m: &M,
    durability: Durability,
    site: Site,
) -> Result<(), SyncError> {
    match (m.kind(), durability) {
        (MediumKind::File, Durability::Power) => m.sync(site),
        _ => Ok(()),
    }
}

const _: () = assert!(OBSERVED_START as usize == STALE_START as usize + BITS_LEN);
const _: () = assert!(OBSERVED_START as usize + BITS_LEN <= REGION_LEN as usize);
