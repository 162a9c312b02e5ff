//! What the program stored, what was damaged, and what may therefore be said of each page. Knows
//! nothing of sums and parity.

use std::collections::BTreeSet;

use holdfast_faultmem::Injected;
use holdfast_pmem::PAGE;
use holdfast_redundancy::Wrong;
use holdfast_redundancy::events::{Event, Finder, Outcome};

use super::machine::ROOM;

/// Bytes of a page.
pub const LEN: usize = PAGE as usize;

/// One page of the data file.
#[derive(Debug, Clone)]
pub struct Page {
    /// What the program made of it, with damage that became part of it.
    pub now: Vec<u8>,
    /// What it has been before, whole.
    pub past: Vec<Vec<u8>>,
    /// What the medium holds: `now`, and damage.
    pub seen: Vec<u8>,
    /// Ranges damaged while the page was covered.
    pub hit: Vec<(usize, usize)>,
    /// All ranges that were ever damaged: what a crash may show again.
    pub scars: Vec<(usize, usize)>,
    /// It was damaged at any time: the journal may tell so.
    pub ever: bool,
    /// It cannot be read.
    pub unreadable: bool,
    /// It was stored to since a pass last covered it.
    pub dirty: bool,
    /// Nobody but the engine knows whether it is covered: it may be, and may not.
    pub vague: bool,
    /// It was damaged while nobody knew: nothing is demanded of it until it is put right.
    pub unknown: bool,
    /// Stores so far.
    pub stores: u64,
}

impl Page {
    fn of(bytes: Vec<u8>) -> Self {
        Self {
            seen: bytes.clone(),
            now: bytes,
            past: Vec::new(),
            hit: Vec::new(),
            scars: Vec::new(),
            ever: false,
            unreadable: false,
            dirty: false,
            vague: false,
            unknown: false,
            stores: 0,
        }
    }

    /// Whether it is not what the program made of it.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.unreadable || self.seen != self.now
    }

    /// Damage to a page that is stored to becomes part of it. Answers whether there was any.
    fn absorb(&mut self) -> bool {
        let damaged = !self.unreadable && self.seen != self.now;
        if damaged {
            self.now.clone_from(&self.seen);
            self.hit.clear();
        }
        damaged
    }

    /// Whether every byte is what the program has made of it at some time.
    #[must_use]
    pub fn is_legitimate(&self, bytes: &[u8]) -> bool {
        let strange = |at: usize| !self.was(at, bytes[at]);
        // Most pages are just what they are now.
        *bytes == self.now[..] || !(0..bytes.len()).any(strange)
    }

    /// Whether the program has ever stored this byte there.
    #[must_use]
    pub fn was(&self, at: usize, byte: u8) -> bool {
        self.now[at] == byte || self.past.iter().any(|version| version[at] == byte)
    }

    /// Whether a byte may, after a crash, be changed to `byte`: it was damaged once, and the
    /// program has stored that.
    #[must_use]
    pub fn may_become(&self, at: usize, byte: u8) -> bool {
        self.scars.iter().any(|(from, to)| (*from..*to).contains(&at)) && self.was(at, byte)
    }

    fn is_hit(&self, byte: usize) -> bool {
        self.unreadable || self.hit.iter().any(|(from, to)| (*from..*to).contains(&byte))
    }
}

/// What became of a page while the engine worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It was damaged, and is what the program made of it.
    Repaired,
    /// So many bytes that were not damaged are not what they were.
    Reverted(u64),
}

/// The page of whose bytes an event tells.
fn of_page(event: &Event) -> Option<u64> {
    (event.wrong == Some(Wrong::Data)).then_some(event.at / PAGE)
}

/// The page that was to be repaired, whatever came of it: who repairs tells, or who opens the file
/// after one that was killed in the middle.
#[must_use]
pub fn begun(event: &Event) -> Option<u64> {
    of_page(event).filter(|_| event.finder == Finder::Repair)
}

/// The page of whose repair an event tells.
#[must_use]
pub fn repaired(event: &Event) -> Option<u64> {
    of_page(event).filter(|_| event.outcome == Outcome::Repaired)
}

/// The data file as it should be.
#[derive(Debug, Clone)]
pub struct Model {
    /// All pages there is room for.
    pub pages: Vec<Page>,
    /// Bytes of the file.
    pub size: u64,
    /// Stores to each page when the pass began, and whether it was damaged.
    begun: Vec<(u64, bool)>,
    /// Faults of writes that were taken down.
    settled: usize,
    /// Damage that became part of pages.
    pub absorbed: u64,
    /// Repairs that a store met before anybody looked.
    pub repaired: u64,
    /// Data pages of a stripe, parity pages of a stripe.
    pub stripe: (u64, u64),
    /// Stripes whose parity may be of bytes that are gone.
    pub unusable: Vec<bool>,
    /// Pages that came back, which the journal has to tell.
    came_back: BTreeSet<u64>,
    /// The newest event of the journal when it was last held against this.
    heard: u64,
    /// The same when all pages were as they must be.
    calm: u64,
    /// Calls fail: of what came back the journal tells only that it was wrong, or nobody could see
    /// that it is right again.
    pub calls_fail: bool,
}

impl Model {
    /// A file of these pages.
    #[must_use]
    pub fn new(pages: &[Option<Vec<u8>>], size: u64, parity: u32) -> Self {
        let mut all: Vec<Page> =
            pages.iter().map(|page| Page::of(page.clone().unwrap_or(vec![0; LEN]))).collect();
        all.resize_with(ROOM as usize, || Page::of(vec![0; LEN]));
        let stripe = (4, u64::from(parity));
        let unusable = vec![false; ROOM.div_ceil(stripe.0) as usize];
        Self {
            pages: all,
            size,
            begun: Vec::new(),
            settled: 0,
            absorbed: 0,
            repaired: 0,
            stripe,
            unusable,
            came_back: BTreeSet::new(),
            heard: 0,
            calm: 0,
            calls_fail: false,
        }
    }

    /// The same on another medium, which has no log of faults yet.
    #[must_use]
    pub fn again(&self) -> Self {
        Self { settled: 0, ..self.clone() }
    }

    /// Forgets what pages were before: where no crash can show it again.
    pub fn forget_past(&mut self) {
        for page in &mut self.pages {
            page.past.clear();
            page.scars.clear();
        }
    }

    /// All is as it must be, and what the journal has said so far is judged: what it says of pages
    /// from here on is of damage that comes yet.
    pub fn all_calm(&mut self, last: Option<&Event>) {
        self.calm = last.map_or(self.calm, |event| event.sequence + 1);
        self.pages.iter_mut().for_each(|page| page.ever = false);
    }

    /// Whether an event was told since then.
    #[must_use]
    pub const fn is_new(&self, event: &Event) -> bool {
        event.sequence >= self.calm
    }

    /// Pages the file has.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.size.div_ceil(PAGE)
    }

    /// The page numbered `page`.
    #[must_use]
    pub fn page(&self, page: u64) -> &Page {
        &self.pages[page as usize]
    }

    /// The pages of a stripe that the file has.
    #[must_use]
    pub fn row(&self, stripe: u64) -> std::ops::Range<u64> {
        (stripe * self.stripe.0).min(self.count())..((stripe + 1) * self.stripe.0).min(self.count())
    }

    fn parts(at: u64, len: u64) -> impl Iterator<Item = (usize, std::ops::Range<usize>, usize)> {
        let end = at + len;
        (at / PAGE..end.div_ceil(PAGE)).map(move |page| {
            let (from, to) = (at.max(page * PAGE), end.min((page + 1) * PAGE));
            let inside = (from % PAGE) as usize..(to - page * PAGE) as usize;
            (page as usize, inside, (from - at) as usize)
        })
    }

    /// The program stores.
    pub fn stored(&mut self, at: u64, bytes: &[u8]) {
        for (page, inside, from) in Self::parts(at, bytes.len() as u64) {
            let part = &bytes[from..from + inside.len()];
            let page = &mut self.pages[page];
            self.absorbed += u64::from(page.absorb());
            page.past.push(page.now.clone());
            page.now[inside.clone()].copy_from_slice(part);
            page.seen[inside].copy_from_slice(part);
            (page.dirty, page.stores) = (true, page.stores + 1);
        }
    }

    /// Bytes are changed behind everybody's back. Answers how many covered pages that hits.
    pub fn damaged(&mut self, at: u64, bytes: &[u8]) -> u64 {
        let mut covered = 0;
        for (page, inside, from) in Self::parts(at, bytes.len() as u64) {
            let Some(page) = self.pages.get_mut(page) else { continue };
            let before = page.is_damaged();
            let part = &bytes[from..from + inside.len()];
            if page.seen[inside.clone()] == *part {
                continue;
            }
            page.seen[inside.clone()].copy_from_slice(part);
            page.scars.push((inside.start, inside.end));
            page.ever = true;
            page.unknown |= page.vague;
            if page.dirty || page.vague {
                self.absorbed += u64::from(page.absorb());
            } else {
                page.hit.push((inside.start, inside.end));
                covered += u64::from(!before && page.is_damaged());
            }
        }
        covered
    }

    /// A page cannot be read any more.
    pub fn poisoned(&mut self, page: u64) {
        self.pages[page as usize].unreadable = true;
    }

    /// Writes that went wrong have come to what they come to. Answers the covered pages hit.
    pub fn settle(&mut self, injected: &[Injected]) -> u64 {
        let mut covered = 0;
        for fault in injected.iter().skip(self.settled) {
            let holdfast_faultmem::Damage::Write(kind) = fault.damage else { continue };
            if !fault.settled {
                // Newer stores took its place.
                continue;
            }
            if fault.at < ROOM * PAGE {
                covered += self.damaged(fault.at, &fault.after);
            }
            if let holdfast_faultmem::FaultKind::Misdirected { to } = kind
                && to < ROOM * PAGE
            {
                covered += self.damaged(to, &fault.intended);
            }
        }
        self.settled = injected.len();
        covered
    }

    /// The file is made longer or shorter.
    pub fn resized(&mut self, size: u64) {
        let (old, new) = (self.size, size);
        self.size = size;
        if let Some(last) = new.checked_sub(1).filter(|_| new < old) {
            // It may count as cut off, though it lost nothing; and parity is of what is gone.
            self.pages[(last / PAGE) as usize].vague = true;
            self.unusable[(last / PAGE / self.stripe.0) as usize] = true;
        }
        for number in new.min(old) / PAGE..ROOM {
            let page = &mut self.pages[number as usize];
            let keep = new.min(old).saturating_sub(number * PAGE).min(PAGE) as usize;
            self.absorbed += u64::from(page.absorb());
            for version in [&mut page.now, &mut page.seen].into_iter().chain(&mut page.past) {
                version[keep..].fill(0);
            }
            (page.dirty, page.stores) = (number * PAGE < old.max(new), page.stores + 1);
            (page.unreadable, page.hit) = (false, Vec::new());
        }
    }

    /// A pass begins.
    pub fn begin_pass(&mut self) {
        self.begun = self.pages.iter().map(|page| (page.stores, page.is_damaged())).collect();
    }

    /// It is over: what was stored to before it began is covered. Of stores in between, `bits` of
    /// the
    /// source tell. Beside damage that parity may still undo without it, a page may be put off.
    pub fn end_pass(&mut self, bits: &BTreeSet<u64>) {
        for stripe in 0..self.unusable.len() as u64 {
            let row = self.row(stripe);
            let begun = |page: u64| self.begun.get(page as usize).copied().unwrap_or((0, true));
            // Damage that was stored over in between may have been seen before it was.
            let hurt = |page: &u64| self.page(*page).is_damaged() || begun(*page).1;
            let damaged = row.clone().filter(hurt).count() as u64;
            let behind = |page: &u64| self.page(*page).dirty || hurt(page);
            let missing = row.clone().filter(behind).count() as u64;
            let among = row.clone().any(|page| self.page(page).stores > begun(page).0);
            let stores: Vec<u64> = row.clone().map(|page| begun(page).0).collect();
            for (page, begun) in row.zip(stores) {
                let between = self.page(page).stores > begun;
                let page = (&mut self.pages[page as usize], bits.contains(&page));
                // Put off, or covered in the stripe's last moment.
                let unsure = damaged > 0 && (among || self.stripe.1 > 1);
                let behind = page.0.dirty || page.0.vague;
                page.0.vague = unsure && behind && !(between && page.1);
                page.0.dirty &= between && page.1;
            }
            let unusable = &mut self.unusable[stripe as usize];
            let gone = missing > damaged && missing > self.stripe.1;
            *unusable = damaged > 0 && (*unusable || gone || among);
        }
    }

    /// Whether redundancy suffices for every damaged page of a stripe.
    #[must_use]
    pub fn can_give_back(&self, stripe: u64) -> bool {
        let pages = self.row(stripe).map(|page| self.page(page));
        let missing = pages.filter(|page| page.dirty || page.vague || page.is_damaged());
        missing.count() as u64 <= self.stripe.1 && !self.unusable[stripe as usize]
    }

    /// What became of a page, of which the medium now holds `bytes`.
    pub fn changed(&mut self, number: u64, bytes: Option<&[u8]>) -> Change {
        let page = &mut self.pages[number as usize];
        if let (true, Some(bytes)) = (page.unknown, bytes) {
            page.now.copy_from_slice(bytes);
            page.seen.copy_from_slice(bytes);
            return Change::None;
        }
        let Some(bytes) = bytes else {
            return if page.unreadable { Change::None } else { Change::Reverted(PAGE) };
        };
        if page.unreadable {
            // Of what could not be read, nothing but the right bytes may take the place.
            let wrong = bytes.iter().zip(&page.now).filter(|(a, b)| a != b).count() as u64;
            if wrong > 0 {
                return Change::Reverted(wrong);
            }
        } else if *bytes == page.seen[..] {
            return Change::None;
        }
        let mut wrong = 0;
        for (i, byte) in bytes.iter().enumerate() {
            let right = *byte == page.now[i] && page.is_hit(i);
            wrong += u64::from(*byte != page.seen[i] && !right);
        }
        if wrong > 0 {
            return Change::Reverted(wrong);
        }
        page.seen.copy_from_slice(bytes);
        page.unreadable = false;
        if page.is_damaged() {
            return Change::None;
        }
        page.hit.clear();
        self.came_back.insert(number);
        Change::Repaired
    }

    /// Holds the journal against what came back since this was asked last: a page of whose repair
    /// it does not tell.
    pub fn unnamed(&mut self, events: &[Event]) -> Option<u64> {
        let newest = events.last().map_or(0, |event| event.sequence);
        // A side file that was made anew begins to count anew.
        let heard = if newest < self.heard { 0 } else { self.heard };
        self.heard = newest;
        let of_now = events.iter().filter(|event| event.sequence > heard);
        let about = |event| if self.calls_fail { begun(event) } else { repaired(event) };
        let named: BTreeSet<u64> = of_now.filter_map(about).collect();
        std::mem::take(&mut self.came_back).difference(&named).next().copied()
    }

    /// The medium was put right by the test: no page is damaged.
    pub fn put_right(&mut self) {
        for page in &mut self.pages {
            page.seen.clone_from(&page.now);
            page.hit.clear();
            page.unreadable = false;
        }
    }

    /// Everything is covered, whatever it was before.
    pub fn all_covered(&mut self) {
        self.pages.iter_mut().for_each(|page| {
            (page.dirty, page.vague, page.unknown) = (false, false, false);
        });
        self.unusable.fill(false);
    }
}
