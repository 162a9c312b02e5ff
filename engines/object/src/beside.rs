//! Units to be given up although P and Q could make them good: a second row over their columns is
//! wrong as well, and nothing says which, for what is damaged there has no sum: free bytes, slack,
//! P and Q themselves excepted, of which one without the other is enough.
//!
//! Each row in turn is taken for the second one. From what P and Q differ by follows how the two
//! rows do; where only the unit's own row is wrong, that comes out with any other one, so the same
//! row serves all parts of a unit, but for those over whose columns P or Q is wrong instead: each
//! page of each part may also be what one of them says. Of a stray write or a lost frame that goes
//! on in the next row, the second damage does so too: it is looked for as many rows further on.
//!
//! Last, rows whose units all verify as they are: who stores over damage that nobody had met, in
//! what was free, passes it on to P and Q, which say then of a sound row what it is not.

use holdfast_codes::{PqSums, xor_into};
use holdfast_heap::Unit;
use holdfast_layout::Certify;
use holdfast_pmem::Medium;
use holdfast_redundancy::parity::{self, Syndromes};
use holdfast_redundancy::zone::Piece;
use holdfast_redundancy::{Exempt, Zone};

use crate::candidates::joined;
use crate::changes::Changes;
use crate::mend_unit::{Cure, First, Part, try_parts};
use crate::shared::{Repairer, Shared};

/// Trials beside one row: with each part alone and with most twos, of which one may lie on two
/// pages.
const TRIALS_MAX: usize = 256;

/// A part of a unit on one page, and what parity says of it.
struct Told {
    now: Vec<u8>,
    piece: Piece,
    /// How many rows after the one in which the part begins.
    further: u32,
    /// What P and Q differ by, if all of the columns can be read.
    found: Option<Syndromes>,
    /// What it is by P alone, by Q alone, or as it lies there.
    plain: Vec<Vec<u8>>,
}

/// By what a candidate is judged.
struct By<'a, M: Medium, E: Exempt> {
    shared: &'a Shared<M>,
    zone: &'a Zone,
    changes: &'a Changes,
    exempt: &'a E,
    certify: Certify,
}

/// What makes a unit good if some other row is wrong, too. Columns are held.
pub(crate) fn beside_each<M: Medium>(
    shared: &Shared<M>,
    repairer: &mut Repairer,
    unit: &Unit,
    parts: &[Part],
    changes: &Changes,
    exempt: &impl Exempt,
    certify: Certify,
) -> Option<Cure> {
    let zone = shared.zone_of(parts.first()?.at).filter(|zone| zone.has_q())?;
    let by = By { shared, zone, changes, exempt, certify };
    let told: Vec<Vec<Told>> =
        { parts.iter() }.map(|part| by.told(repairer, part)).collect::<Option<_>>()?;
    let first = First::default();
    // The next unit mostly lies beside the same damage.
    let rows = zone.data_rows();
    let last = repairer.beside.min(rows);
    let each = |sound| (last..rows).chain(0..last).map(move |row| (row, sound));
    for (row, sound) in each(false).chain(each(true)) {
        let may_be = |pages: &Vec<Told>| {
            let page = |told: &Told| {
                let beside = by.beside(told, row, sound).into_iter();
                beside.chain(told.plain.iter().cloned()).collect::<Vec<_>>()
            };
            pages.iter().fold(vec![Vec::new()], |all, told| joined(&all, &page(told)))
        };
        let rebuilt = told.iter().map(may_be).collect();
        let cure = try_parts(shared, unit, parts, rebuilt, changes, &first, TRIALS_MAX);
        if cure.is_some() {
            repairer.beside = row;
            return cure;
        }
    }
    None
}

impl<M: Medium, E: Exempt> By<'_, M, E> {
    /// Page by page: columns of the next one may have lost something else. `None` if a part cannot
    /// be read.
    fn told(&self, repairer: &mut Repairer, part: &Part) -> Option<Vec<Told>> {
        let Self { shared, zone, exempt, .. } = *self;
        let pieces = (0..).zip(zone.split(part.at, part.len));
        let pages = pieces.flat_map(|(further, piece)| piece.pages().map(move |p| (further, p)));
        let told = |(further, piece): (u32, Piece)| {
            let Piece { at, len, col, .. } = piece;
            let scratch = &mut repairer.scratch;
            let found = parity::syndromes(&shared.m, zone, col, len, exempt, scratch).ok();
            let mut plain = shared.range_candidates(repairer, at, len, exempt);
            let now = shared.read_now(at, len)?;
            // Where another page of it is wrong, this one may be as it has to be.
            plain.push(now.clone());
            Some(Told { now, piece, further, found, plain })
        };
        pages.map(told).collect()
    }

    /// What a part of a row is if the row as far from its own as `row` from the first is wrong as
    /// well, unless units of that row speak against it; or, if it is `sound`, parity of it is.
    fn beside(&self, told: &Told, row: u32, sound: bool) -> Option<Vec<u8>> {
        let Self { shared, zone, changes, exempt, certify } = *self;
        let (piece, found) = (told.piece, told.found.as_ref()?);
        let (mut bytes, other) = (told.now.clone(), row + told.further);
        if other == piece.row {
            // Of this row itself nothing but the damage is known to be wrong there.
            xor_into(&mut bytes, &found.p);
            return Some(bytes);
        }
        let at = zone.at(other, piece.col);
        if other >= zone.data_rows() || exempt.first_in(at, piece.len).is_some() {
            return None;
        }
        let (mut p, mut q) = (vec![0; bytes.len()], vec![0; bytes.len()]);
        let mut sums = PqSums::new(&mut p, &mut q);
        sums.add_p(&found.p);
        sums.add_q(&found.q);
        let (mine, its) = sums.solve_rows(piece.row as usize, other as usize);
        let then = shared.as_parity_says(at, its).ok()?;
        if !sound
            && shared.bad_units(at, &then, changes, certify) > 0
            && !shared.has_bad_units(at, piece.len, changes, certify)
        {
            return None;
        }
        xor_into(&mut bytes, mine);
        Some(bytes)
    }
}
