//! Which units explain that columns do not add up, each with its own part of the difference.
//!
//! With Q every byte of a column is a code word of its own, and names the unit that is wrong there.
//! Two damages in a page of columns name two, at bytes that may lie between each other; and what is
//! wrong in one row has to be judged together, since an object and its slot lie at different bytes
//! of it. So the difference is parted by who explains it.
//!
//! One byte alone names a row by chance as soon as two are wrong over it. So bytes are taken
//! together as long as one unit explains them: all of the columns, else what lies between stretches
//! that add up. Only what no unit explains is looked at byte by byte, and then there have to be two
//! that all of its bytes name, and sums to bear that out: else several are wrong over each other,
//! and nobody is named.

use core::ops::Range;

use holdfast_pmem::Medium;
use holdfast_redundancy::parity::{Suspect, suspect};
use holdfast_redundancy::{Zone, zone};

use crate::anew::Differ;
use crate::shared::Shared;

/// Bytes that add up between two stretches: fewer come about by chance.
const GAP: usize = 8;

/// A unit that explains a part of a difference.
#[derive(Debug)]
pub(crate) struct Blamed {
    /// Which.
    pub(crate) suspect: Suspect,
    /// The first of the columns.
    pub(crate) col: u64,
    /// By what they differ: of Q if that is to blame, else of P. Zeros where another unit is.
    pub(crate) by: Vec<u8>,
    /// The columns, between which some may be another's: first, and how many.
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl Blamed {
    /// Whether some of these columns are among them.
    pub(crate) fn lies_over(&self, (from, len): (u64, u64)) -> bool {
        self.ranges.iter().any(|(col, n)| *col < from + len && from < col + n)
    }
}

impl<M: Medium> Shared<M> {
    /// The units that explain how columns differ from their parity: byte by byte only if there are
    /// sums to tell whether it is true.
    pub(crate) fn blamed(&self, zone: &Zone, differ: &Differ) -> Vec<Blamed> {
        blamed(zone, differ, self.heap.sums().active())
    }
}

fn blamed(zone: &Zone, differ: &Differ, sums: bool) -> Vec<Blamed> {
    let (p, q) = (&differ.by.p[..], &differ.by.q[..]);
    let owners = owners(zone, p, q, sums);
    let mut all: Vec<Blamed> = Vec::new();
    let mut last = None;
    for (i, owner) in owners.iter().enumerate() {
        let Some(suspect) = *owner else { continue };
        let at = differ.col + i as u64;
        let known = all.iter().position(|blamed| blamed.suspect == suspect);
        let n = known.unwrap_or_else(|| {
            let (by, ranges) = (Vec::new(), Vec::new());
            all.push(Blamed { suspect, col: at, by, ranges });
            all.len() - 1
        });
        let blamed = &mut all[n];
        blamed.by.resize((at - blamed.col) as usize, 0);
        blamed.by.push(if suspect == Suspect::Unit(zone::Unit::Q) { q[i] } else { p[i] });
        match blamed.ranges.last_mut().filter(|_| last == Some(n)) {
            Some((from, len)) => *len = at + 1 - *from,
            None => blamed.ranges.push((at, 1)),
        }
        last = Some(n);
    }
    all
}

/// Whether there are two of them, all of which are named.
fn two(mut suspects: impl Iterator<Item = Suspect>) -> bool {
    let mut known = Vec::new();
    suspects.all(|suspect| {
        if !known.contains(&suspect) {
            known.push(suspect);
        }
        suspect != Suspect::Several && known.len() <= 2
    })
}

/// Who explains each byte that differs.
fn owners(zone: &Zone, p: &[u8], q: &[u8], sums: bool) -> Vec<Option<Suspect>> {
    let differs = |i: usize| p[i] != 0 || q.get(i).is_some_and(|byte| *byte != 0);
    let part = |range: Range<usize>| {
        let q = if zone.has_q() { &q[range.clone()] } else { &[] };
        suspect(zone, &p[range], q)
    };
    let mut owners = vec![None; p.len()];
    let mut own = |range: Range<usize>, who: &dyn Fn(usize) -> Suspect| {
        range.filter(|i| differs(*i)).for_each(|i| owners[i] = Some(who(i)));
    };
    let whole = part(0..p.len());
    if whole != Suspect::Several {
        own(0..p.len(), &|_| whole);
        return owners;
    }
    let mut from = 0;
    while let Some(first) = (from..p.len()).find(|i| differs(*i)) {
        let mut end = first + 1;
        while let Some(next) = (end..p.len().min(end + GAP)).find(|i| differs(*i)) {
            end = next + 1;
        }
        let stretch = part(first..end);
        let byte = |i: usize| part(i..i + 1);
        match stretch {
            Suspect::Several if sums && two((first..end).filter(|i| differs(*i)).map(byte)) => {
                own(first..end, &byte);
            }
            who => own(first..end, &|_| who),
        }
        from = end;
    }
    owners
}
