//! What was hurt so far, and what that may have cost.

use std::collections::BTreeSet;

use holdfast_faultmem::Clear;
use holdfast_layout::RawPtr;
use holdfast_object::Finding;
use holdfast_pmem::Medium;
use holdfast_redundancy::events::Event;

use super::super::exposed::{Exposed, Hurt, Places, beyond_parity};
use super::{Chaos, Injury, Kind, Range};

impl Chaos<'_> {
    /// Whether a fault since the last scrub left something older where a finding is, or where its
    /// object has a part.
    pub(super) fn may_be_older(&self, finding: &Finding) -> bool {
        let objects = self.driver.ledger.objects();
        let word = finding.object.word();
        let len = objects.get(word).map(|object| object.bytes.len() as u64);
        let mut parts = self.parts(word, len);
        parts.push((finding.at, finding.len));
        let concerned = self.domains_of(&parts);
        let fresh = self.injuries[self.judged..].iter().filter(|it| it.kind.leaves_older());
        let mut hurt = fresh.map(|it| (it.at, it.len)).chain(self.late.iter().copied());
        self.failed || hurt.any(|range| !self.domains_of(&[range]).is_disjoint(&concerned))
    }

    /// Where an object has its parts, as it was known at first or is now; of one of which it is
    /// not known how long it was, all that there is room for.
    fn parts(&self, word: u64, len: Option<u64>) -> Vec<Range> {
        let known = self.sky.calm(|| Places::of(self.driver));
        let exposed = Exposed::by(Vec::new(), [self.places.clone(), known]);
        // Behind the last place of a chunk others may be free.
        let room = || Some(exposed.room(RawPtr::from_word(word).offset())?.min(self.zone.chunk));
        let len = len.or_else(room).unwrap_or(1);
        exposed.parts(word, len)
    }

    /// What counts as one with any of these ranges.
    fn domains_of(&self, ranges: &[Range]) -> BTreeSet<u64> {
        ranges.iter().flat_map(|(at, len)| self.domains(*at, (*len).max(1))).collect()
    }

    /// What was hurt in the columns of an event, for who looks into it.
    pub(super) fn hurt_beside(&self, injuries: &[Injury], event: &Event) -> String {
        let of_event = self.domains(event.at, event.len.max(1));
        let there = |it: &&Injury| !self.domains(it.at, it.len).is_disjoint(&of_event);
        let told = |it: &Injury| format!("{} at {:#x}+{:#x}", it.kind, it.at, it.len);
        let all: Vec<String> = injuries.iter().filter(there).map(told).collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
    }

    /// What lies where something was hurt, and what a write that went wrong was to be, for who
    /// looks into it.
    pub(super) fn seen_there(&self, injury: &Injury) -> String {
        let mut now = vec![0; injury.len.min(64) as usize];
        let read = self.driver.medium.read(injury.at, &mut now);
        let log = self.driver.medium.injected();
        let write = injury.write.and_then(|number| log.get(number));
        let write = write.map(|w| {
            format!(
                "{:#x} is {:02x?}, meant {:02x?}; fell {:x?}, landed {:x?}",
                w.at, w.after, w.intended, w.fell, w.landed
            )
        });
        format!(
            "there is {now:02x?} ({read:?}), besides {}, bytes {:x?}; {write:?}",
            injury.besides, injury.bytes
        )
    }

    /// One injury, and how many scrubs there had been.
    fn told_of(&self, number: usize) -> String {
        let it = &self.injuries[number];
        let scrubs = self.scrubbed.iter().filter(|end| **end <= number).count();
        format!("{} at {:#x}+{:#x} after {scrubs} scrubs", it.kind, it.at, it.len)
    }

    /// All that was hurt so far, for who looks into what a thread met.
    pub(in super::super) fn history(&self) -> String {
        let mut told = vec![format!("zone {:x?}, calls failed {} times", self.zone, self.failures)];
        told.extend((0..self.injuries.len()).map(|number| self.told_of(number)));
        told.join(", ")
    }

    /// The same of an object, or a place, at any time; with the scrubs in between.
    pub(in super::super) fn hurt_over(&self, word: u64, len: u64) -> String {
        let parts = self.parts(word, Some(len));
        let concerned = self.domains_of(&parts);
        let mut told = vec![format!("parts {parts:x?}, zone {:x?}", self.zone)];
        for (number, it) in self.injuries.iter().enumerate() {
            if !self.domains_of(&[(it.at, it.len)]).is_disjoint(&concerned) {
                told.push(self.told_of(number));
            }
        }
        told.join(", ")
    }

    /// Where more was hurt than parity makes good, and what is of the objects there.
    pub(in super::super) fn exposed(&self) -> Exposed {
        let is_bad = |it: &Injury| it.kind == Kind::Poison(Clear::Unable);
        let hurt = self.injuries.iter().map(|it| ((it.at, it.len), is_bad(it)));
        let hurt: Vec<Hurt> = hurt.collect();
        let ends = self.scrubbed.iter().copied().chain([hurt.len()]);
        let rounds = ends.scan(0, |from, end| Some(&hurt[std::mem::replace(from, end)..end]));
        let places = [self.places.clone(), Places::of(self.driver)];
        let pages = beyond_parity(&self.zone, rounds, &places);
        Exposed::by(pages, places)
    }

    /// Where anything was hurt that no scrub has met; nothing, if it has met all.
    pub(in super::super) fn exposed_now(&self) -> Option<Exposed> {
        let hurt: Vec<Range> =
            { self.injuries[self.judged..].iter() }.map(|it| (it.at, it.len)).collect();
        let places = || [self.places.clone(), Places::of(self.driver)];
        (!hurt.is_empty()).then(|| Exposed::by(hurt, places()))
    }

    /// Columns in which a page is bad for good, and whatever else counts as one with it.
    pub(in super::super) fn dead(&self) -> BTreeSet<u64> {
        let dead = |it: &&Injury| it.kind == Kind::Poison(Clear::Unable);
        self.injuries.iter().filter(dead).flat_map(|it| self.domains(it.at, it.len)).collect()
    }
}
