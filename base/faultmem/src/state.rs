//! All that changes, behind one lock: the way of a store from the program to the medium.

use core::panic::Location;
use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_pmem::{LINE, MediaCause, MediaError, MediumKind, PAGE, Site};

use crate::counters::Thread;
use crate::durable::{Dropped, Durable, Event, Fate, WORDS_PER_LINE};
use crate::faults::{Arsenal, Damage, Fallen, FaultKind, Injected, Target, lands};
use crate::frames::Frames;
use crate::gate::Gate;
use crate::sites::Sites;
use crate::trace::Call;
use crate::view::{View, WORD};

/// A store on its way in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) site: Site,
    pub(crate) at: u64,
    pub(crate) bytes: &'a [u8],
    /// Whether all bytes of a sector reach the medium together.
    pub(crate) whole: bool,
    /// The thread whose next drain covers it; `None` if it is not flushed.
    pub(crate) flush_for: Option<u32>,
}

/// The faulty medium without its view.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) durable: Arc<Durable>,
    pub(crate) frames: Frames,
    pub(crate) threads: BTreeMap<u32, Thread>,
    pub(crate) sites: Sites,
    pub(crate) arsenal: Arsenal,
    pub(crate) injected: Vec<Injected>,
    /// Stores made so far.
    pub(crate) stores: u64,
    pub(crate) gate: Gate,
    /// Barriers passed so far.
    pub(crate) barriers: u64,
    /// Every call so far, if somebody wants to know.
    pub(crate) trace: Option<Vec<Call>>,
    /// Calls before which everything is made durable.
    pub(crate) cures: Vec<&'static Location<'static>>,
    kind: MediumKind,
    /// Number of the newest store.
    number: u64,
}

impl State {
    pub(crate) fn new(durable: Durable, kind: MediumKind) -> Self {
        Self {
            durable: Arc::new(durable),
            frames: Frames::default(),
            threads: BTreeMap::new(),
            sites: Sites::default(),
            arsenal: Arsenal::default(),
            injected: Vec::new(),
            stores: 0,
            gate: Gate::default(),
            barriers: 0,
            trace: None,
            cures: Vec::new(),
            kind,
            number: 0,
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn len(&self) -> u64 {
        self.durable.image().len() as u64
    }

    pub(crate) fn thread(&mut self, slot: u32) -> &mut Thread {
        self.threads.entry(slot).or_default()
    }

    /// Refuses a range that ends beyond the medium.
    pub(crate) fn in_range(&self, at: u64, len: u64) -> Result<(), MediaError> {
        match at.checked_add(len) {
            Some(end) if end <= self.len() => Ok(()),
            _ => Err(MediaError { at, len, cause: MediaCause::OutOfRange }),
        }
    }

    /// The first bad page of a range of the pool.
    pub(crate) fn first_bad(&self, at: u64, len: u64) -> Option<MediaError> {
        if self.durable.bad().is_empty() || len == 0 {
            return None;
        }
        let pages = at / PAGE..=(at + len - 1) / PAGE;
        let page = { pages }
            .filter(|&page| !self.frames.stands_in(page))
            .find(|&page| self.durable.bad().contains_key(&self.frames.physical_page(page)))?;
        Some(MediaError { at: page * PAGE, len: PAGE, cause: MediaCause::Poison })
    }

    /// Stores into the view and into the logs of the lines, up to the first bad page. The range
    /// was checked.
    pub(crate) fn write(&mut self, view: &View, write: &Write<'_>) -> Result<(), MediaError> {
        let bad = self.first_bad(write.at, write.bytes.len() as u64);
        let good = bad.map_or(write.bytes.len(), |bad| bad.at.saturating_sub(write.at) as usize);
        let write = Write { bytes: &write.bytes[..good], ..*write };
        self.stores += 1;
        let fault = self.aim(view, &write);
        self.number += u64::from(write.whole);
        let mut done = 0;
        while done < good {
            let at = write.at + done as u64;
            let len = ((LINE - at % LINE) as usize).min(good - done);
            self.write_line(view, &write, fault, at, &write.bytes[done..done + len]);
            done += len;
        }
        bad.map_or(Ok(()), Err)
    }

    /// Asks the armed faults whether one of them hits this write, and logs it.
    fn aim(&mut self, view: &View, write: &Write<'_>) -> Option<(FaultKind, usize)> {
        let len = write.bytes.len() as u64;
        if self.arsenal.is_empty() || len == 0 || self.frames.stands_in_any(write.at, len) {
            return None;
        }
        let mut before = vec![0; write.bytes.len()];
        view.read(write.at, &mut before);
        let target =
            Target { at: write.at, before: &before, intended: write.bytes, medium: self.len() };
        let (kind, after) = self.arsenal.fire(&target)?;
        let mut target_before = Vec::new();
        if let FaultKind::Misdirected { to } = kind {
            target_before.resize(write.bytes.len(), 0);
            view.read(to, &mut target_before);
        }
        self.injected.push(Injected {
            damage: Damage::Write(kind),
            site: Some(write.site),
            at: write.at,
            len: write.bytes.len() as u64,
            before,
            intended: write.bytes.to_vec(),
            after,
            target_before,
            settled: false,
            fell: Vec::new(),
            landed: Vec::new(),
            stores: self.stores,
        });
        Some((kind, self.injected.len() - 1))
    }

    /// Stores and flushes bytes within one line.
    fn write_line(
        &mut self,
        view: &View,
        write: &Write<'_>,
        fault: Option<(FaultKind, usize)>,
        at: u64,
        bytes: &[u8],
    ) {
        if self.frames.stands_in(at / PAGE) {
            return view.write(at, bytes);
        }
        let physical = self.frames.physical(at);
        let line = physical / LINE;
        // Storing what is there already adds no state a crash could show; but on a file it makes
        // a sector dirty again that a failed sync had left in doubt.
        let again = self.kind == MediumKind::File && self.durable.is_unsynced(line)
            // And where a misdirected store lands, something else is there.
            || matches!(fault, Some((FaultKind::Misdirected { .. }, _)));
        let durable = Arc::make_mut(&mut self.durable);
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let offset = (at % WORD) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(WORD as usize - offset));
            let old = view.load(at / WORD);
            let mut value = old.to_le_bytes();
            let word = (physical / LINE * WORDS_PER_LINE) + (at % LINE) / WORD;
            for (start, len) in stores_of(offset, piece.len()) {
                let from = start - offset;
                let before = value;
                value[start..start + len].copy_from_slice(&piece[from..from + len]);
                if value == before && !again {
                    continue;
                }
                self.number += u64::from(!write.whole);
                durable.push(
                    line,
                    Event {
                        number: self.number,
                        value: u64::from_le_bytes(value),
                        word: (word % WORDS_PER_LINE) as u8,
                        bytes: (((1_u16 << len) - 1) << start) as u8,
                        fate: fate(fault, at / WORD - write.at / WORD),
                    },
                );
            }
            let value = u64::from_le_bytes(value);
            if value != old {
                show(&self.frames, view, word, value);
            }
            (at, rest) = (at + piece.len() as u64, tail);
        }
        if let Some(slot) = write.flush_for {
            self.flush_line(slot, line);
        }
    }

    fn flush_line(&mut self, slot: u32, line: u64) {
        let number = self.number;
        let newest = self.durable.pending().get(&line).and_then(|log| log.last());
        let newest = newest.map(|event| event.number);
        let thread = self.thread(slot);
        // In order of flushing: those that saw the newest store of the line come last.
        let since = thread.flushed.iter().rev().take_while(|(_, upto)| Some(*upto) >= newest);
        let redundant = newest.is_none() || { since }.any(|&(flushed, _)| flushed == line);
        thread.flushed.push((line, number));
        thread.outstanding = true;
        thread.counters.lines_flushed += 1;
        thread.counters.redundant_flushes += u64::from(redundant);
    }

    /// Flushes the lines of a range of the pool for a thread.
    pub(crate) fn flush(&mut self, slot: u32, at: u64, len: u64) {
        for (line, _) in self.lines_of(at, len) {
            self.flush_line(slot, line);
        }
    }

    /// Whether a drain of this thread would make nothing durable.
    pub(crate) fn waits_for_nothing(&self, slot: u32) -> bool {
        let flushed = self.threads.get(&slot).map_or(&[][..], |thread| &thread.flushed);
        flushed.iter().all(|&(line, _)| !self.durable.is_dirty(line))
    }

    /// Makes everything stored so far durable, if that is to be tried at this place.
    pub(crate) fn cure(&mut self, view: &View, place: &'static Location<'static>) {
        if self.cures.contains(&place) {
            self.sync(view, self.number);
        }
    }

    /// Records a call, if calls are recorded.
    pub(crate) fn note(&mut self, call: Call) {
        if let Some(trace) = &mut self.trace {
            trace.push(call);
        }
    }

    /// Makes durable what the thread flushed: the content of each line as the flush saw it.
    pub(crate) fn drain(&mut self, view: &View, slot: u32) {
        let thread = self.thread(slot);
        let flushed = core::mem::take(&mut thread.flushed);
        thread.outstanding = false;
        thread.counters.drains += 1;
        thread.counters.redundant_drains += u64::from(flushed.is_empty());
        // A line flushed again and again needs its last flush only, unless the device drops one of
        // the stores in between: then each flush is a write-back of its own.
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        for (line, upto) in &flushed {
            let upto = last.get(line).map_or(*upto, |before| *before.max(upto));
            last.insert(*line, upto);
        }
        let dropping: Vec<u64> =
            last.keys().copied().filter(|line| self.durable.drops_any(*line)).collect();
        for (line, upto) in flushed.into_iter().filter(|(line, _)| dropping.contains(line)) {
            self.persist(view, line, upto, 0xff);
            last.remove(&line);
        }
        for (line, upto) in last {
            self.persist(view, line, upto, 0xff);
        }
    }

    /// Makes every sector durable that was stored into up to store `upto`.
    pub(crate) fn sync(&mut self, view: &View, upto: u64) {
        for line in self.durable.lines_to_sync(upto) {
            self.persist(view, line, upto, 0xff);
        }
    }

    /// Makes the words of a range of the pool durable as of store `upto`.
    pub(crate) fn persist_range(&mut self, view: &View, at: u64, len: u64, upto: u64) {
        for (line, words) in self.lines_of(at, len) {
            self.persist(view, line, upto, words);
        }
    }

    /// Leaves the pending stores of a range, or of everything, in doubt for good.
    pub(crate) fn leave_in_doubt(&mut self, range: Option<(u64, u64)>) {
        let lines: Vec<u64> = match range {
            Some((at, len)) => self.lines_of(at, len).into_iter().map(|(line, _)| line).collect(),
            None => self.durable.pending().keys().copied().collect(),
        };
        Arc::make_mut(&mut self.durable).leave_in_doubt(lines);
    }

    /// Physical lines behind a range of the pool, each with the words of it that the range
    /// touches, one bit per word.
    fn lines_of(&self, at: u64, len: u64) -> Vec<(u64, u8)> {
        if len == 0 {
            return Vec::new();
        }
        let end = at + len;
        let words = |line: u64| {
            let start = at.max(line * LINE) % LINE / WORD;
            let stop = (end.min((line + 1) * LINE) - line * LINE).div_ceil(WORD);
            ((1_u16 << stop) - (1_u16 << start)) as u8
        };
        (at / LINE..end.div_ceil(LINE))
            .map(|line| (self.frames.physical(line * LINE) / LINE, words(line)))
            .collect()
    }

    fn persist(&mut self, view: &View, line: u64, upto: u64, words: u8) {
        if !self.durable.is_dirty(line) {
            return;
        }
        for dropped in Arc::make_mut(&mut self.durable).persist(line, upto, words) {
            self.settle(view, dropped);
        }
    }

    /// A store that the device dropped has reached its barrier: the program's view falls back to
    /// what the medium holds, and a misdirected store lands where it lands.
    fn settle(&mut self, view: &View, dropped: Dropped) {
        let Dropped { word, event, stored_again } = dropped;
        let kept = self.durable.persisted(word);
        if !stored_again {
            show(&self.frames, view, word, kept);
        }
        let Fate::Lost(index) = event.fate else { return };
        let waits = self.durable.is_on_its_way(Fate::Lost(index));
        let entry = &mut self.injected[index];
        // Barriers may cover a write piece by piece: an append takes its own words only.
        entry.settled = !waits;
        let range = entry.at..entry.at + entry.len;
        let mut lands_at = None;
        self.frames.for_each_alias(word * WORD / PAGE, |page| {
            let at = page * PAGE + word * WORD % PAGE;
            if at < range.end && range.start < at + WORD {
                lands_at = Some(at);
            }
        });
        // Of a frame that was moved in between nobody sees what becomes of it.
        let Some(at) = lands_at else { return };
        let value = event.value.to_le_bytes();
        if !stored_again {
            let differs = |byte: &u64| kept.to_le_bytes()[*byte as usize] != value[*byte as usize];
            let fallen = |byte| Fallen { at: at + byte, stores: self.stores };
            entry.fell.extend((0..WORD).filter(differs).map(fallen));
        }
        let Damage::Write(FaultKind::Misdirected { to }) = entry.damage else { return };
        for byte in (0..WORD).filter(|byte| event.bytes >> byte & 1 == 1) {
            let target = to + (at + byte - range.start);
            let mut before = [0];
            view.read(target, &mut before);
            if before[0] != value[byte as usize] {
                let landed = Fallen { at: target, stores: self.stores };
                self.injected[index].landed.push(landed);
            }
            self.overwrite(view, target, &value[byte as usize..=byte as usize]);
        }
    }

    /// Overwrites bytes of the pool wherever they are kept.
    pub(crate) fn overwrite(&mut self, view: &View, at: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let offset = (at % WORD) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(WORD as usize - offset));
            self.damage(view, at, |word| {
                let mut bytes = word.to_le_bytes();
                bytes[offset..offset + piece.len()].copy_from_slice(piece);
                u64::from_le_bytes(bytes)
            });
            (at, rest) = (at + piece.len() as u64, tail);
        }
    }

    /// Changes the word that holds byte `at` of the pool wherever it is kept.
    pub(crate) fn damage(&mut self, view: &View, at: u64, change: impl Fn(u64) -> u64) {
        let word = self.frames.physical(at) / WORD;
        Arc::make_mut(&mut self.durable).damage(word, change);
        show(&self.frames, view, word, self.durable.newest(word));
    }

    /// Shows pages of the pool again after what lies behind them has changed.
    pub(crate) fn refresh(&self, view: &View, physical_page: u64) {
        let words = PAGE / WORD;
        for word in physical_page * words..(physical_page + 1) * words {
            show(&self.frames, view, word, self.durable.newest(word));
        }
    }
}

/// Puts a value of a physical word into the view, at every address that shows it.
fn show(frames: &Frames, view: &View, word: u64, value: u64) {
    let words = PAGE / WORD;
    frames.for_each_alias(word / words, |page| view.store(page * words + word % words, value));
}

/// What becomes of the stores into the word numbered `index` of a write.
fn fate(fault: Option<(FaultKind, usize)>, index: u64) -> Fate {
    match fault {
        None => Fate::Plain,
        Some((FaultKind::Torn(torn), _)) if lands(torn, index) => Fate::Plain,
        Some((_, entry)) => Fate::Lost(entry),
    }
}

/// The stores made for `len` bytes at `offset` of a word: one if it is the whole word, else byte by
/// byte, as the real medium does. A crash may come between them.
fn stores_of(offset: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let step = if len == WORD as usize { len } else { 1 };
    (offset..offset + len).step_by(step).map(move |start| (start, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_words_are_stored_whole() {
        let stores = |offset, len| stores_of(offset, len).collect::<Vec<_>>();
        assert_eq!(stores(0, 8), [(0, 8)]);
        assert_eq!(stores(0, 3), [(0, 1), (1, 1), (2, 1)]);
        assert_eq!(stores(6, 2), [(6, 1), (7, 1)]);
    }

    #[test]
    fn ranges_name_their_words() {
        let state = State::new(Durable::new(vec![0; PAGE as usize]), MediumKind::File);
        assert_eq!(state.lines_of(0, 64), [(0, 0xff)]);
        assert_eq!(state.lines_of(60, 8), [(0, 0x80), (1, 0x01)]);
        assert_eq!(state.lines_of(8, 9), [(0, 0b110)]);
        assert_eq!(state.lines_of(130, 0), []);
    }
}
