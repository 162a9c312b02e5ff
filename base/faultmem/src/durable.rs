//! The persisted image, and the stores on their way to it.
//!
//! Every store of a word is an [`Event`] with a store number. Events wait in the log of their
//! 64-byte line until a barrier makes them durable; a crash before that picks among them. All
//! addresses here are physical: bytes of the file, after relocation.

use std::collections::BTreeMap;

use holdfast_pmem::{LINE, PAGE};

use crate::faults::Clear;
use crate::rng::{Rng, share};
use crate::view::WORD;

/// Words of a cache line.
pub(crate) const WORDS_PER_LINE: u64 = LINE / WORD;
/// Bytes of a sector: the unit that a disk writes whole.
pub(crate) const SECTOR: u64 = 512;
const LINES_PER_SECTOR: u64 = SECTOR / LINE;
const LINES_PER_PAGE: u64 = PAGE / LINE;

/// What will become of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Durable at its barrier; may leak before.
    Plain,
    /// A sync that covered it failed: it may or may not be on the medium, and no later sync of
    /// its own will put it there.
    Unsynced,
    /// The device will drop it; the number is its place in the log of injected faults.
    Lost(usize),
}

/// One store into one word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    /// Store number, ascending over the whole medium; equal numbers reach the medium together.
    pub(crate) number: u64,
    /// The whole word after the store.
    pub(crate) value: u64,
    /// Word within its line.
    pub(crate) word: u8,
    /// Bytes of the word that the store covered, one bit each.
    pub(crate) bytes: u8,
    /// What will become of it.
    pub(crate) fate: Fate,
}

/// A word whose last store the device dropped: it shows the persisted value again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dropped {
    /// Physical word number.
    pub(crate) word: u64,
    /// The store that was dropped.
    pub(crate) event: Event,
    /// Whether the program stored the word again since, so that its view must stay.
    pub(crate) stored_again: bool,
}

/// How far a bad page has come that is rewritten: the program sees it whole already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rewrite {
    /// Under way: bad as long as nothing of it has arrived.
    Begun,
    /// Switched off: the device was never asked to clear the page, and nothing else asks it. So it
    /// stays bad, and whatever is stored there stays on its way.
    InVain,
}

/// What is on the medium and what is on its way.
#[derive(Debug, Clone)]
pub(crate) struct Durable {
    /// The persisted image, padded with zeroes to whole pages.
    bytes: Vec<u8>,
    /// Bytes of the medium.
    len: u64,
    /// Stores not yet durable, by line, each log in order of store numbers.
    pending: BTreeMap<u64, Vec<Event>>,
    /// Bad pages.
    bad: BTreeMap<u64, Clear>,
    /// Pages that were bad and that only a crash shows so.
    rewrites: BTreeMap<u64, Rewrite>,
    /// Fingerprint of `bytes`, kept up to date once somebody asked for it.
    fingerprint: Option<u64>,
}

impl Durable {
    pub(crate) fn new(mut bytes: Vec<u8>) -> Self {
        let len = bytes.len() as u64;
        bytes.resize(len.next_multiple_of(PAGE) as usize, 0);
        Self {
            bytes,
            len,
            pending: BTreeMap::new(),
            bad: BTreeMap::new(),
            rewrites: BTreeMap::new(),
            fingerprint: None,
        }
    }

    /// The persisted image in whole pages.
    pub(crate) fn padded(&self) -> &[u8] {
        &self.bytes
    }

    /// The persisted image.
    pub(crate) fn image(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    pub(crate) fn grow(&mut self, len: u64) {
        self.bytes.resize(len.next_multiple_of(PAGE) as usize, 0);
        self.len = len;
    }

    pub(crate) fn pending(&self) -> &BTreeMap<u64, Vec<Event>> {
        &self.pending
    }

    pub(crate) fn bad(&self) -> &BTreeMap<u64, Clear> {
        &self.bad
    }

    pub(crate) fn bad_mut(&mut self) -> &mut BTreeMap<u64, Clear> {
        &mut self.bad
    }

    /// Begins the rewrite of a page, which clears it if it is bad and the rewrite is in force.
    pub(crate) fn begin_rewrite(&mut self, page: u64, on: bool) {
        if self.bad.remove(&page).is_some() || self.rewrites.contains_key(&page) {
            self.rewrites.insert(page, if on { Rewrite::Begun } else { Rewrite::InVain });
        }
    }

    /// The rewrite of a page is on the medium.
    pub(crate) fn end_rewrite(&mut self, page: u64) {
        if self.rewrites.get(&page) == Some(&Rewrite::Begun) {
            self.rewrites.remove(&page);
        }
    }

    /// Whether the page of a line stays bad although the program sees it whole.
    pub(crate) fn is_in_vain(&self, line: u64) -> bool {
        self.rewrites.get(&(line / LINES_PER_PAGE)) == Some(&Rewrite::InVain)
    }

    /// The pages that are bad after a crash which leaves the given bytes of the file other than
    /// they are persisted.
    pub(crate) fn bad_after(
        &self,
        arrived: impl Iterator<Item = u64> + Clone,
    ) -> BTreeMap<u64, Clear> {
        let mut bad = self.bad.clone();
        for (&page, &rewrite) in &self.rewrites {
            if rewrite == Rewrite::InVain || !arrived.clone().any(|at| at / PAGE == page) {
                bad.insert(page, Clear::Able);
            }
        }
        bad
    }

    /// The fingerprint of the persisted image: all words if nobody has asked before.
    pub(crate) fn known_fingerprint(&self) -> u64 {
        self.fingerprint.unwrap_or_else(|| {
            let words = self.bytes.len() as u64 / WORD;
            (0..words).fold(0, |sum, word| sum ^ share(word, self.persisted(word)))
        })
    }

    /// Whether the fingerprint is at hand.
    pub(crate) fn has_fingerprint(&self) -> bool {
        self.fingerprint.is_some()
    }

    /// Keeps the fingerprint at hand from now on, `known` if the caller has it already.
    pub(crate) fn keep_fingerprint(&mut self, known: Option<u64>) {
        self.fingerprint = Some(known.unwrap_or_else(|| self.known_fingerprint()));
    }

    /// The persisted value of a word.
    pub(crate) fn persisted(&self, word: u64) -> u64 {
        let at = (word * WORD) as usize;
        let mut le = [0; WORD as usize];
        le.copy_from_slice(&self.bytes[at..at + WORD as usize]);
        u64::from_le_bytes(le)
    }

    fn set(&mut self, word: u64, value: u64) {
        if let Some(sum) = self.fingerprint {
            let old = self.persisted(word);
            self.fingerprint = Some(sum ^ share(word, old) ^ share(word, value));
        }
        let at = (word * WORD) as usize;
        self.bytes[at..at + WORD as usize].copy_from_slice(&value.to_le_bytes());
    }

    /// The newest value of a word, stored or persisted.
    pub(crate) fn newest(&self, word: u64) -> u64 {
        let slot = (word % WORDS_PER_LINE) as u8;
        let log = self.pending.get(&(word / WORDS_PER_LINE));
        let last = log.and_then(|log| log.iter().rev().find(|event| event.word == slot));
        last.map_or_else(|| self.persisted(word), |event| event.value)
    }

    /// Whether a line has stores on their way.
    pub(crate) fn is_dirty(&self, line: u64) -> bool {
        self.pending.contains_key(&line)
    }

    /// Whether a line has stores that a failed sync left in doubt.
    pub(crate) fn is_unsynced(&self, line: u64) -> bool {
        let log = self.pending.get(&line);
        log.is_some_and(|log| log.iter().any(|event| event.fate == Fate::Unsynced))
    }

    /// Whether a store of this fate still waits for its barrier.
    pub(crate) fn is_on_its_way(&self, fate: Fate) -> bool {
        self.pending.values().flatten().any(|event| event.fate == fate)
    }

    /// Whether the device will drop a store that waits in the log of this line.
    pub(crate) fn drops_any(&self, line: u64) -> bool {
        let log = self.pending.get(&line);
        log.is_some_and(|log| log.iter().any(|event| matches!(event.fate, Fate::Lost(_))))
    }

    /// Appends a store to the log of its line.
    pub(crate) fn push(&mut self, line: u64, event: Event) {
        self.pending.entry(line).or_default().push(event);
    }

    /// Makes the words of a line selected by `words` durable as they were when store `upto` was
    /// the newest. Never moves a word back: what a newer barrier persisted is no longer in the
    /// log. Returns the words whose store the device drops instead.
    pub(crate) fn persist(&mut self, line: u64, upto: u64, words: u8) -> Vec<Dropped> {
        if self.is_in_vain(line) {
            return Vec::new();
        }
        let Some(log) = self.pending.get_mut(&line) else { return Vec::new() };
        let mut newest: [Option<Event>; WORDS_PER_LINE as usize] = Default::default();
        log.retain(|event| {
            let covered = event.number <= upto && words >> event.word & 1 == 1;
            if covered {
                let slot = &mut newest[usize::from(event.word)];
                // Pieces of one dropped write within a word are dropped together.
                let same = slot
                    .filter(|old| old.fate == event.fate && matches!(event.fate, Fate::Lost(_)));
                let bytes = event.bytes | same.map_or(0, |old| old.bytes);
                *slot = Some(Event { bytes, ..*event });
            }
            !covered
        });
        let later = log.iter().fold(0_u8, |set, event| set | 1 << event.word);
        if log.is_empty() {
            self.pending.remove(&line);
        }
        let mut dropped = Vec::new();
        for event in newest.into_iter().flatten() {
            // Another thread may persist something there before the rewrite has: poison goes first.
            self.end_rewrite(line / LINES_PER_PAGE);
            let word = line * WORDS_PER_LINE + u64::from(event.word);
            if let Fate::Lost(_) = event.fate {
                let stored_again = later >> event.word & 1 == 1;
                dropped.push(Dropped { word, event, stored_again });
            } else {
                self.set(word, event.value);
            }
        }
        dropped
    }

    /// Lines that a sync of everything up to store `upto` writes back: those of every sector
    /// that was stored into since the last sync, failed or not.
    pub(crate) fn lines_to_sync(&self, upto: u64) -> Vec<u64> {
        let counts = |event: &Event| event.number <= upto && event.fate != Fate::Unsynced;
        let mut lines = Vec::new();
        let mut stale = None;
        for (&line, log) in &self.pending {
            if stale == Some(line / LINES_PER_SECTOR) {
                lines.push(line);
            } else if log.iter().any(counts) {
                stale = Some(line / LINES_PER_SECTOR);
                let first = line - line % LINES_PER_SECTOR;
                lines.extend(self.pending.range(first..=line).map(|(&line, _)| line));
            }
        }
        lines
    }

    /// Leaves every pending store of `lines` in doubt: a sync that covered it has failed.
    pub(crate) fn leave_in_doubt(&mut self, lines: impl IntoIterator<Item = u64>) {
        for line in lines {
            for event in self.pending.get_mut(&line).into_iter().flatten() {
                if event.fate == Fate::Plain {
                    event.fate = Fate::Unsynced;
                }
            }
        }
    }

    /// Changes a word wherever it is kept: on the medium and in every store on its way, so that
    /// no choice of a crash image hides the change.
    pub(crate) fn damage(&mut self, word: u64, change: impl Fn(u64) -> u64) {
        self.set(word, change(self.persisted(word)));
        let slot = (word % WORDS_PER_LINE) as u8;
        for event in self.pending.get_mut(&(word / WORDS_PER_LINE)).into_iter().flatten() {
            if event.word == slot {
                event.value = change(event.value);
            }
        }
    }

    /// Loses the content of a page: what was on its way is gone and garbage is left.
    pub(crate) fn ruin(&mut self, page: u64, clear: Clear, seed: u64) {
        let lines = page * LINES_PER_PAGE..(page + 1) * LINES_PER_PAGE;
        let lost: Vec<u64> = self.pending.range(lines.clone()).map(|(&line, _)| line).collect();
        for line in lost {
            self.pending.remove(&line);
        }
        let mut rng = Rng::new(seed, page);
        for word in lines.start * WORDS_PER_LINE..lines.end * WORDS_PER_LINE {
            self.set(word, rng.next());
        }
        self.rewrites.remove(&page);
        self.bad.insert(page, clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64, word: u8, value: u64) -> Event {
        Event { number, value, word, bytes: 0xff, fate: Fate::Plain }
    }

    #[test]
    fn the_newest_persisted_store_wins() {
        let mut durable = Durable::new(vec![0; PAGE as usize]);
        durable.push(0, event(1, 0, 11));
        durable.push(0, event(2, 0, 22));
        durable.persist(0, 2, 0xff);
        durable.persist(0, 1, 0xff);
        assert_eq!(durable.persisted(0), 22);
        assert!(!durable.is_dirty(0));
    }

    #[test]
    fn later_stores_stay_pending() {
        let mut durable = Durable::new(vec![0; PAGE as usize]);
        durable.push(0, event(1, 0, 11));
        durable.push(0, event(2, 0, 22));
        durable.persist(0, 1, 0xff);
        assert_eq!((durable.persisted(0), durable.newest(0)), (11, 22));
    }

    #[test]
    fn the_fingerprint_follows_changes() {
        let mut durable = Durable::new(vec![7; PAGE as usize]);
        durable.keep_fingerprint(None);
        durable.push(3, event(1, 4, 99));
        durable.persist(3, 1, 0xff);
        durable.damage(5, |word| word ^ 1);
        durable.ruin(0, Clear::Able, 3);
        durable.grow(3 * PAGE);
        let fresh = Durable::new(durable.image().to_vec());
        assert!(durable.has_fingerprint() && !fresh.has_fingerprint());
        assert_eq!(durable.known_fingerprint(), fresh.known_fingerprint());
    }

    #[test]
    fn a_sync_takes_the_whole_sector_or_nothing() {
        let mut durable = Durable::new(vec![0; PAGE as usize]);
        durable.push(1, event(1, 0, 1));
        durable.push(9, event(2, 0, 2));
        durable.leave_in_doubt([1, 9]);
        assert!(durable.lines_to_sync(9).is_empty(), "nothing was stored since the failed sync");
        durable.push(3, event(3, 0, 3));
        durable.push(5, event(4, 0, 4));
        assert_eq!(durable.lines_to_sync(9), [1, 3, 5], "a store makes its sector dirty again");
    }
}
