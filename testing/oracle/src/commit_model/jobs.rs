//! What lanes do: picks a transaction, opens what it touches, and lays out its steps.
//!
//! Opening is steps 0 to 2 of a commit: lock, verify the old bytes whatever the read policy,
//! repair if they are damaged, and compute new content, sums and deltas from the verified bytes.

use super::geometry::{CHUNK_WORDS, MAX_ZONES, UNITS};
use super::mutant::Mutant;
use super::record::{
    Entry, MAX_ENTRIES, Meta, Overflow, free_meta, live_meta, log_meta, pack_overflow, seal,
    sum_delta,
};
use super::repair::{Evidence, find_repair};
use super::state::{World, meta_of, verifies};
use super::step::{self, Cover, Plan, Section, Site, Step, commit, deltas};
use crate::rng::Rng;

/// Seal seed of log bytes.
pub(super) const LOG_BYTES: u64 = 0x4C4F_4742;

/// Picks and opens a transaction for a lane. `None` if what was picked is not possible now.
pub(super) fn pick(world: &mut World, lane: usize, rng: &mut Rng) -> Option<Vec<Step>> {
    let before = world.unit_lock.clone();
    let mut job = Job { world, lane, rng, repairs: Vec::new() };
    let steps = match job.rng.below(100) {
        _ if job.has_orphan() && job.rng.percent(40) => job.give_back(),
        0..40 => job.update_small(),
        40..46 => job.allocate_small(),
        46..52 => job.free_small(),
        52..62 => job.update_large(),
        62..70 => job.free_large(),
        70..86 => job.fresh_large(),
        86..97 => job.overflow(),
        _ => job.grow(),
    };
    let repairs = job.repairs;
    if steps.is_none() {
        world.unit_lock = before;
        return (!repairs.is_empty()).then(|| vec![Step::Flush(repairs), Step::Drain(Site::Other)]);
    }
    steps.map(|steps| std::iter::once(Step::Flush(repairs)).chain(steps).collect())
}

/// Opens the objects of a transaction that has taken its log chunks, or gives the chunks back if
/// others hold too many of the objects.
pub(super) fn open_objects(
    world: &mut World,
    lane: usize,
    chunks: [usize; 2],
    rng: &mut Rng,
) -> Vec<Step> {
    let before = world.unit_lock.clone();
    let mut job = Job { world, lane, rng, repairs: Vec::new() };
    let steps = job.overflow_body(chunks);
    let repairs = job.repairs;
    let steps = steps.unwrap_or_else(|| {
        world.unit_lock = before;
        commit(world, return_chunks(world, &chunks))
    });
    std::iter::once(Step::Flush(repairs)).chain(steps).collect()
}

struct Job<'a> {
    world: &'a mut World,
    lane: usize,
    rng: &'a mut Rng,
    /// Words repaired while opening, to be flushed.
    repairs: Vec<usize>,
}

impl Job<'_> {
    /// Locks and verifies a unit; `false` if another lane is in the way.
    fn open(&mut self, unit: usize) -> bool {
        if self.world.unit_lock[unit].is_some() {
            return false;
        }
        let trusts = self.world.mutant == Some(Mutant::PatchUnverified);
        let good = verifies(self.world.geometry, self.world.medium.visible(), unit);
        if !good && !trusts && !self.repair(unit) {
            return false;
        }
        self.world.unit_lock[unit] = Some(self.lane);
        true
    }

    /// Online repair. The columns must be at rest; they are then consistent as loads see them.
    fn repair(&mut self, unit: usize) -> bool {
        let geometry = self.world.geometry;
        let held = |word| self.world.column_lock[geometry.column(word)].is_some();
        if geometry.unit_words(unit).any(held) {
            return false;
        }
        let found = self.world.medium.visible();
        let evidence = Evidence { geometry, found, after: found };
        let Some((word, value)) = find_repair(&evidence, unit, &|_| false) else {
            self.world.tally.unrepaired_online += 1;
            return false;
        };
        self.world.medium.store(word, value);
        self.world.tally.repairs += 1;
        self.repairs.push(word);
        true
    }

    /// Opens a random unit of the wanted kind and state.
    fn open_some(&mut self, chunk: bool, state: Meta) -> Option<usize> {
        let geometry = self.world.geometry;
        let start = self.rng.below(self.world.units().min(self.world.focus));
        for i in 0..self.world.units() {
            let unit = (start + i) % self.world.units();
            if geometry.is_chunk(unit) != chunk || self.world.unit_lock[unit].is_some() {
                continue;
            }
            if self.open(unit) {
                if meta_of(geometry, self.world.medium.visible(), unit) == state {
                    return Some(unit);
                }
                self.world.unit_lock[unit] = None;
            }
        }
        None
    }

    /// New content for `words` words of a live unit, and the certifying word that goes with it.
    fn rewrite(&mut self, unit: usize, words: usize) -> Vec<(usize, u64)> {
        let geometry = self.world.geometry;
        let range = geometry.content(unit);
        let mut content = self.world.medium.visible()[range.clone()].to_vec();
        let old_meta = self.world.medium.load(geometry.meta(unit));
        let mut patched = old_meta;
        let (first, len) = (self.rng.below(content.len()), content.len());
        let mut writes = Vec::new();
        for i in (first..first + words).map(|i| i % len) {
            let value = self.rng.next();
            patched ^= sum_delta(i, content[i] ^ value);
            content[i] = value;
            writes.push((range.start + i, value));
        }
        let is_chunk = geometry.is_chunk(unit);
        let trusts = self.world.mutant == Some(Mutant::PatchUnverified) && !is_chunk;
        let meta = if trusts { patched } else { live_meta(is_chunk, unit, &content) };
        writes.push((geometry.meta(unit), meta));
        writes
    }

    /// A commit whose record holds all its writes.
    fn logged(&self, units: Vec<usize>, writes: Vec<(usize, u64)>) -> Vec<Step> {
        let section = Section {
            plan: Plan { entries: words(&writes), overflow: None, logical: writes.clone() },
            deltas: deltas(self.world, &writes),
            stores: writes,
            release: units,
            unlogged: false,
        };
        commit(self.world, section)
    }

    fn update_small(&mut self) -> Option<Vec<Step>> {
        let first = self.open_some(false, Meta::Live)?;
        let second = if self.rng.percent(40) { self.open_some(false, Meta::Live) } else { None };
        let words = if second.is_some() { 1 } else { 1 + self.rng.below(2) };
        let units: Vec<_> = std::iter::once(first).chain(second).collect();
        let writes = units.iter().flat_map(|&unit| self.rewrite(unit, words)).collect();
        Some(self.logged(units, writes))
    }

    /// The content of a small fresh object travels in the record.
    fn allocate_small(&mut self) -> Option<Vec<Step>> {
        let unit = self.open_some(false, Meta::Free)?;
        let writes = self.fresh_content(unit);
        Some(self.logged(vec![unit], writes))
    }

    fn free_small(&mut self) -> Option<Vec<Step>> {
        let unit = self.open_some(false, Meta::Live)?;
        Some(self.logged(vec![unit], vec![(self.world.geometry.meta(unit), free_meta(unit))]))
    }

    fn update_large(&mut self) -> Option<Vec<Step>> {
        let unit = self.open_some(true, Meta::Live)?;
        let words = 1 + self.rng.below(MAX_ENTRIES - 1);
        let writes = self.rewrite(unit, words);
        Some(self.logged(vec![unit], writes))
    }

    fn free_large(&mut self) -> Option<Vec<Step>> {
        let unit = self.open_some(true, Meta::Live)?;
        Some(self.logged(vec![unit], vec![(self.world.geometry.meta(unit), free_meta(unit))]))
    }

    /// Random content and the certifying word of a unit to be allocated.
    fn fresh_content(&mut self, unit: usize) -> Vec<(usize, u64)> {
        let geometry = self.world.geometry;
        let content: Vec<_> = geometry.content(unit).map(|_| self.rng.next()).collect();
        let meta = live_meta(geometry.is_chunk(unit), unit, &content);
        geometry.content(unit).zip(content).chain([(geometry.meta(unit), meta)]).collect()
    }

    /// A large fresh object: an intent record, its content and parity in place, a drain, then an
    /// ordinary commit of its directory word. One in four gives up before that commit.
    fn fresh_large(&mut self) -> Option<Vec<Step>> {
        let chunk = self.open_some(true, Meta::Free)?;
        let mut writes = self.fresh_content(chunk);
        let promised = writes.clone();
        let meta = writes.pop().expect("the certifying word comes last");
        let aborts = self.rng.one_in(4);
        let world = &*self.world;
        let content = Section {
            plan: Plan { entries: vec![Entry::Fresh { chunk }], ..Plan::default() },
            deltas: deltas(world, &writes),
            stores: writes,
            release: if aborts { vec![chunk] } else { Vec::new() },
            unlogged: true,
        };
        let publish = Section {
            plan: Plan { entries: words(&[meta]), overflow: None, logical: promised },
            deltas: deltas(world, &[meta]),
            stores: vec![meta],
            release: vec![chunk],
            unlogged: false,
        };
        let mut steps = vec![Step::AwaitCovered(Cover::FreedBy(chunk))];
        if world.mutant == Some(Mutant::FreshUncovered) {
            steps.clear();
        }
        steps.extend(match world.mutant {
            Some(Mutant::FreshWithoutIntent) => {
                let mut steps = step::apply(world, &content);
                steps.extend([Step::ReleaseUnits(content.release), Step::Drain(Site::F2)]);
                steps
            }
            _ => commit(world, content),
        });
        let mut publish = commit(world, publish);
        if world.mutant == Some(Mutant::FreshContentWithRecord) && !aborts {
            // The intent stays published until the end; the content waits for F1 of its record.
            steps.truncate(steps.len() - 2);
            publish.retain(|s| !matches!(s, Step::PublishBound | Step::PublishNumber));
        }
        if !aborts {
            steps.extend(publish);
        }
        self.world.tally.fresh += 1;
        Some(steps)
    }

    /// A transaction too long for its place: two chunks become log space. Half of the time its
    /// objects are locked before, half of the time after the chunks are taken.
    fn overflow(&mut self) -> Option<Vec<Step>> {
        let chunks = [self.open_some(true, Meta::Free)?, self.open_some(true, Meta::Free)?];
        let mut steps = commit(self.world, take_chunks(self.world, chunks));
        steps.extend(self.covered(Mutant::LogBytesUncovered));
        if self.rng.one_in(2) {
            steps.push(Step::OpenObjects(chunks));
        } else {
            steps.extend(self.overflow_body(chunks)?);
        }
        self.world.tally.overflows += 1;
        Some(steps)
    }

    /// The rest: both chunks take the same log bytes, the record vouches for them, and they are
    /// zeroed and given back when nothing can be replayed from them.
    fn overflow_body(&mut self, chunks: [usize; 2]) -> Option<Vec<Step>> {
        let units = vec![self.open_some(false, Meta::Live)?, self.open_some(false, Meta::Live)?];
        let writes: Vec<_> = units.iter().flat_map(|&unit| self.rewrite(unit, 2)).collect();
        let world = &*self.world;
        let (in_ring, beyond) = writes.split_at(MAX_ENTRIES);
        let log_bytes = pack_overflow(beyond);
        let overflow = Some(Overflow { chunks, seal: seal(LOG_BYTES, &log_bytes) });
        let mut steps = Vec::new();
        let copies = if world.mutant == Some(Mutant::LogChunkNoReplica) { 1 } else { 2 };
        for chunk in &chunks[..copies] {
            let log = world.geometry.content(*chunk).zip(log_bytes);
            steps.extend(log.map(|(word, value)| Step::Store { word, value }));
            steps.push(Step::Flush(world.geometry.content(*chunk).collect()));
        }
        let main = Section {
            plan: Plan { entries: words(in_ring), overflow, logical: writes.clone() },
            deltas: deltas(world, &writes),
            stores: writes,
            release: units,
            unlogged: false,
        };
        steps.extend(commit(world, main));
        steps.extend(self.covered(Mutant::LogChunkZeroedEarly));
        steps.extend(commit(world, return_chunks(world, &chunks)));
        Some(steps)
    }

    /// The step that waits until the lane's last record cannot be replayed any more.
    fn covered(&self, left_out: Mutant) -> Option<Step> {
        let keep = self.world.mutant != Some(left_out);
        keep.then_some(Step::AwaitCovered(Cover::OwnLast))
    }

    fn has_orphan(&self) -> bool {
        let (geometry, image) = (self.world.geometry, self.world.medium.visible());
        let orphan = |unit: usize| {
            self.world.unit_lock[unit].is_none()
                && geometry.is_chunk(unit)
                && meta_of(geometry, image, unit) == Meta::Log
        };
        (0..self.world.units()).any(orphan)
    }

    /// Returns log space that a crash left behind. Nothing of its generation can be replayed.
    fn give_back(&mut self) -> Option<Vec<Step>> {
        let chunk = self.open_some(true, Meta::Log)?;
        self.world.tally.orphans += 1;
        Some(commit(self.world, return_chunks(self.world, &[chunk])))
    }

    fn grow(&mut self) -> Option<Vec<Step>> {
        if self.world.growing || self.world.zones == MAX_ZONES {
            return None;
        }
        self.world.growing = true;
        Some(step::grow(self.world))
    }
}

/// Entries that set words.
fn words(writes: &[(usize, u64)]) -> Vec<Entry> {
    writes.iter().map(|&(at, value)| Entry::Word { at, value }).collect()
}

/// The intent: from here on the chunks are log space, and zero. Their old bytes leave parity.
fn take_chunks(world: &World, chunks: [usize; 2]) -> Section {
    let metas = chunks.map(|chunk| (world.geometry.meta(chunk), log_meta(chunk)));
    let mut entries: Vec<_> = chunks.iter().map(|&chunk| Entry::Zero { chunk }).collect();
    entries.extend(words(&metas));
    let zeroes = chunks.iter().flat_map(|&chunk| world.geometry.content(chunk));
    let stores: Vec<_> = zeroes.map(|word| (word, 0)).chain(metas).collect();
    Section {
        plan: Plan { entries, overflow: None, logical: metas.to_vec() },
        deltas: deltas(world, &stores),
        stores,
        release: Vec::new(),
        unlogged: false,
    }
}

/// The return: the log bytes become zero, as parity has counted them all along.
fn return_chunks(world: &World, chunks: &[usize]) -> Section {
    let metas: Vec<_> =
        chunks.iter().map(|&chunk| (world.geometry.meta(chunk), free_meta(chunk))).collect();
    let mut entries: Vec<_> = chunks.iter().map(|&chunk| Entry::Zero { chunk }).collect();
    let zeroes = chunks.iter().flat_map(|&chunk| world.geometry.content(chunk));
    let mut stores: Vec<_> = zeroes.map(|word| (word, 0)).collect();
    if world.mutant == Some(Mutant::LogChunkNotZeroed) {
        entries.clear();
        stores.clear();
    }
    entries.extend(words(&metas));
    stores.extend(&metas);
    let meta_delta =
        |&chunk: &usize| (world.geometry.meta(chunk), log_meta(chunk) ^ free_meta(chunk));
    Section {
        plan: Plan { entries, overflow: None, logical: metas },
        // The directory words are log space by the time this runs; only they are in parity.
        deltas: chunks.iter().map(meta_delta).collect(),
        stores,
        release: chunks.to_vec(),
        unlogged: false,
    }
}

const _: () = assert!(CHUNK_WORDS == 4 && UNITS == 8, "the writes above are laid out for these");
