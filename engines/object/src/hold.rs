//! Holding what one committed state takes from another, while it does.
//!
//! A repair that rebuilds what does not verify gives back the bytes that somebody verified before.
//! Bringing back a lost write is another thing: a state that verifies gives way to one that does,
//! too, and somebody may hold the first. So what it is about is held as a committer would: version
//! words are taken as they were when it was judged, and released at a new number. Who read or
//! opened the old state then runs again; under a view nothing changes. An entry changes only where
//! nobody can have taken its chunk for what it said. Nobody waits for anything: columns are held.

use holdfast_heap::verify::Direct;
use holdfast_heap::{ChunkEntry, ChunkKind, Unit, ZoneTable};
use holdfast_pmem::{Medium, PAGE};
use holdfast_sync::{MutexGuard, PoisonError};

use crate::blame::{Newer, Of};
use crate::changes::Changes;
use crate::newer::{Order, order_near};
use crate::shared::Shared;
use crate::versions::Version;

/// Version words and chunks that are held, for one change.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    words: Vec<(u32, Version)>,
    /// Entries to be made known: zone, chunk, and whether it was reserved for this.
    entries: Vec<(u8, u32, Option<ChunkKind>)>,
}

impl<M: Medium> Shared<M> {
    /// Takes what `newer` is about. False if that cannot be; then nothing more is held.
    pub(crate) fn hold(&self, newer: &Newer, holding: &mut Holding) -> bool {
        match newer.of {
            Of::Place(spot, Some(version)) => {
                self.hold_word(self.versions.index(spot.object), version, holding)
            }
            Of::Place(_, None) | Of::Row => false,
            Of::Entry { at, chunk, before, after } => {
                let Some(table) = self.heap.zone_of(at) else { return false };
                self.hold_entry(table, (at, chunk), &before, &after, holding)
            }
        }
    }

    /// Makes the entries in a range known as they will be after the changes. For who opens a pool.
    pub(crate) fn know_future(&self, changes: &Changes, (at, len): (u64, u64)) {
        let Some(table) = self.heap.zone_of(at).filter(|table| at < table.chunks_at()) else {
            return;
        };
        let direct = Direct(&self.m);
        table.units_over(at, len, &mut |unit| {
            if let Unit::Entry { chunk, .. } = unit {
                // One that does not verify is known as it was.
                let _ = self.heap.load_entry(&changes.over(&direct), table.index(), chunk);
            }
        });
    }

    /// Takes the words of all that has bytes in `[at, at + len)`; with entries among it, only if
    /// this process knows them all as they will be.
    pub(crate) fn hold_range(&self, at: u64, bytes: &[u8], holding: &mut Holding) -> bool {
        let Some(table) = self.heap.zone_of(at) else { return false };
        let mut held = true;
        let direct = Direct(&self.m);
        let then = holdfast_heap::verify::Overlay { under: &direct, at, bytes };
        table.units_over(at, bytes.len() as u64, &mut |unit| match unit {
            Unit::Granule { spot, .. } => {
                let word = self.versions.index(spot.object);
                held = held && self.hold_now(word, holding);
            }
            Unit::Entry { at, chunk } => {
                let before = self.heap.entry_found(&direct, at);
                if let Ok(Some(after)) = self.heap.entry_found(&then, at) {
                    let before = before.ok().flatten().unwrap_or(after);
                    held = held && self.hold_entry(table, (at, chunk), &before, &after, holding);
                }
            }
        });
        held
    }

    /// Takes words at whatever versions they have: all, or none, and nothing held before. What lies
    /// under them was judged with its columns held, without which nobody stores there.
    pub(crate) fn hold_words(&self, words: &[u32], holding: &mut Holding) -> bool {
        let held = words.iter().all(|word| self.hold_now(*word, holding));
        if !held {
            // Nothing has changed: who read what they stand for need not run again.
            for (word, version) in holding.words.drain(..) {
                self.versions.unlock(word, version);
            }
        }
        held
    }

    /// Takes a word at whatever version it has.
    fn hold_now(&self, word: u32, holding: &mut Holding) -> bool {
        holding.words.iter().any(|(held, _)| *held == word)
            || self.versions.now(word).is_some_and(|v| self.hold_word(word, v, holding))
    }

    fn hold_word(&self, word: u32, version: Version, holding: &mut Holding) -> bool {
        if let Some((_, held)) = holding.words.iter().find(|(held, _)| *held == word) {
            return *held == version;
        }
        let taken = self.versions.try_lock(&self.m, word, version);
        if taken {
            holding.words.push((word, version));
        }
        taken
    }

    /// An entry that this process knows as it will be may be stored. Else it knows it as it is,
    /// since it was opened; then nobody may have come to rely on that.
    fn hold_entry(
        &self,
        table: &ZoneTable,
        (at, chunk): (u64, u32),
        before: &ChunkEntry,
        after: &ChunkEntry,
        holding: &mut Holding,
    ) -> bool {
        let zone = table.index();
        let Some(known) = table.entry(chunk) else {
            if self.is_withheld(at) {
                holding.entries.push((zone, chunk, None));
                return true;
            }
            // Whoever reserved it knew it so, and writes its entry from there.
            return table.reserved(chunk, after.kind) == Some(*after);
        };
        if known == *after {
            return true;
        }
        if known != *before {
            return false;
        }
        let taken = match known.kind {
            ChunkKind::Free => table.reserve_if(chunk, ChunkKind::Free),
            // Nobody has looked for a free place in it yet.
            ChunkKind::Run => self.heap.claim_unread_run(zone, chunk),
            ChunkKind::Large | ChunkKind::Tail => return self.hold_long(table, chunk, holding),
            ChunkKind::Log => false,
        };
        if taken {
            holding.entries.push((zone, chunk, Some(known.kind)));
        }
        taken
    }

    /// The object that a chunk is part of.
    fn hold_long(&self, table: &ZoneTable, chunk: u32, holding: &mut Holding) -> bool {
        let known = |chunk: u32| table.entry(chunk);
        let head = match known(chunk) {
            Some(entry) if entry.kind == ChunkKind::Tail => chunk.checked_sub(entry.count),
            Some(entry) if entry.kind == ChunkKind::Large => Some(chunk),
            _ => return false,
        };
        let head = head.and_then(|head| Some((head, known(head)?)));
        if let Some((head, entry)) = head.filter(|(_, entry)| entry.kind == ChunkKind::Large) {
            let word = self.versions.index(table.large_spot(head, &entry).object);
            if !self.hold_now(word, holding) {
                return false;
            }
        }
        holding.entries.push((table.index(), chunk, None));
        true
    }

    /// Makes the entries on a page known that was rebuilt from parity, which no lost write has kept
    /// from them: it may be newer than what was found when the pool was opened. What nothing orders
    /// is given to nobody until a scrub finds all at one. The columns are held.
    pub(crate) fn know_rebuilt(&self, page: u64) {
        let Some(table) = self.heap.zone_of(page).filter(|table| page < table.chunks_at()) else {
            return;
        };
        let mut holding = Holding::default();
        table.units_over(page, PAGE, &mut |unit| {
            let Unit::Entry { at, chunk } = unit else { return };
            let after = self.heap.entry_found(&Direct(&self.m), at).ok().flatten();
            let Some(after) = after.filter(|after| table.plausible(chunk, after)) else { return };
            let Some(before) = table.entry(chunk) else {
                // Who else has reserved it writes its entry.
                if self.is_withheld(at) {
                    self.hold_entry(table, (at, chunk), &after, &after, &mut holding);
                }
                return;
            };
            match order_near(before.generation, after.generation) {
                Order::Newer => {
                    self.hold_entry(table, (at, chunk), &before, &after, &mut holding);
                }
                Order::Unknown if before != after && before.kind == ChunkKind::Free => {
                    self.withhold(at);
                }
                _ => {}
            }
        });
        self.release(holding);
    }

    /// Makes entries known as they are now, and releases all words at a number of their own: to
    /// everybody else, a commit changed these objects.
    pub(crate) fn release(&self, holding: Holding) {
        for (zone, chunk, reserved) in holding.entries {
            let load = || self.heap.load_entry(&Direct(&self.m), zone, chunk).is_ok();
            // It may be that it could not be read for once.
            let loaded = load() || load();
            if let Some(table) = self.heap.zone(zone) {
                match reserved {
                    // What its entry says now may be anything: nobody is given a free chunk then.
                    Some(ChunkKind::Free) if !loaded => {}
                    Some(kind) if !loaded => table.unreserve(chunk, kind),
                    _ => self.withheld_now().retain(|(at, _)| *at != table.entry_at(chunk)),
                }
            }
        }
        if holding.words.is_empty() {
            return;
        }
        let number = self.numbers.skip(&self.m);
        for (word, _) in holding.words {
            self.versions.release(word, number);
        }
    }

    /// Entries in doubt whose chunks, free as far as they say, are given to nobody; and whether
    /// this pass has come upon the doubt.
    pub(crate) fn withheld_now(&self) -> MutexGuard<'_, Vec<(u64, bool)>> {
        self.withheld.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_withheld(&self, at: u64) -> bool {
        self.withheld_now().iter().any(|(entry, _)| *entry == at)
    }

    /// Keeps the chunk of an entry in doubt from being used.
    pub(crate) fn withhold(&self, at: u64) {
        let Some(table) = self.heap.zone_of(at).filter(|table| at < table.chunks_at()) else {
            return;
        };
        let chunk = ((at - table.entry_at(0)) / holdfast_heap::format::CHUNK_LEN as u64) as u32;
        let mut withheld = self.withheld_now();
        match withheld.iter_mut().find(|(entry, _)| *entry == at) {
            Some((_, seen)) => *seen = true,
            None if table.reserve_if(chunk, ChunkKind::Free) => withheld.push((at, true)),
            // It is a run, or an object's: nothing new is put there, or only beside what there is.
            None => self.heap.shut_run(table.index(), chunk),
        }
    }

    /// Makes the entries known again that a whole pass found in no doubt any more: as they are now,
    /// which may be what parity said.
    pub(crate) fn end_withholding(&self) {
        self.withheld_now().retain(|(at, seen)| {
            let Some(table) = self.heap.zone_of(*at).filter(|_| !*seen) else { return *seen };
            let len = holdfast_heap::format::CHUNK_LEN as u64;
            let chunk = ((at - table.entry_at(0)) / len) as u32;
            // The next pass looks at one that cannot be read.
            self.heap.load_entry(&Direct(&self.m), table.index(), chunk).is_err()
        });
    }
}
