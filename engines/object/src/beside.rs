//! Units to be given up although P and Q could make them good: a second row over their columns is
//! wrong as well, and nothing says which, for what is damaged there has no sum: free bytes, slack,
//! P and Q themselves excepted, of which one without the other is enough.
//!
//! Each row in turn is taken for the second one. From what P and Q differ by follows how the two
//! rows do; where only the unit's own row is wrong, that comes out with any other one, so the same
//! row serves all parts of a unit. Of a stray write or a lost frame that goes on in the next row,
//! the second damage does so too: it is looked for as many rows further on.
//!
//! Last, rows whose units all verify as they are: who stores over damage that nobody had met, in
//! what was free, passes it on to P and Q, which say then of a sound row what it is not.

use holdfast_codes::{PqSums, xor_into};
use holdfast_heap::Unit;
use holdfast_layout::Certify;
use holdfast_pmem::Medium;
use holdfast_redundancy::parity::{self, Scratch, Syndromes};
use holdfast_redundancy::zone::Piece;
use holdfast_redundancy::{Exempt, Zone};

use crate::changes::Changes;
use crate::mend_unit::{Cure, First, Part, current, try_parts};
use crate::shared::{Repairer, Shared};

/// Trials beside one row.
const TRIALS_MAX: usize = 16;

/// A part, and what P and Q say of its columns.
struct Told {
    now: Vec<u8>,
    pieces: Vec<(Piece, Syndromes)>,
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
    let scratch = &mut repairer.scratch;
    let told: Vec<Option<Told>> = parts.iter().map(|part| by.told(part, scratch)).collect();
    let first = First::default();
    // The next unit mostly lies beside the same damage.
    let rows = zone.data_rows();
    let last = repairer.beside.min(rows);
    let each = |sound| (last..rows).chain(0..last).map(move |row| (row, sound));
    for (row, sound) in each(false).chain(each(true)) {
        let beside =
            |told: &Option<Told>| told.as_ref().and_then(|told| by.beside(told, row, sound));
        let rebuilt = told.iter().map(|told| Vec::from_iter(beside(told))).collect();
        let cure = try_parts(shared, unit, parts, rebuilt, changes, &first, TRIALS_MAX);
        if cure.is_some() {
            repairer.beside = row;
            return cure;
        }
    }
    None
}

impl<M: Medium, E: Exempt> By<'_, M, E> {
    fn told(&self, part: &Part, scratch: &mut Scratch) -> Option<Told> {
        let Self { shared, zone, exempt, .. } = self;
        let mut of = |piece: Piece| {
            let mut all = Syndromes { p: Vec::new(), q: Vec::new() };
            for page in piece.pages() {
                let found =
                    parity::syndromes(&shared.m, zone, page.col, page.len, *exempt, scratch);
                let found = match found {
                    Ok(found) => found,
                    Err(_) if page == piece => return None,
                    // Over a border: a column that says nothing takes nothing from the other.
                    Err(_) => {
                        let zeros = vec![0; page.len as usize];
                        Syndromes { p: zeros.clone(), q: zeros }
                    }
                };
                all.p.extend(found.p);
                all.q.extend(found.q);
            }
            Some((piece, all))
        };
        let pieces = zone.split(part.at, part.len).map(&mut of).collect::<Option<Vec<_>>>()?;
        Some(Told { now: current(shared, part)?, pieces })
    }

    /// What a part is if row `row` is wrong as well, unless units of that row speak against it; or,
    /// if it is `sound`, parity of it is.
    fn beside(&self, told: &Told, row: u32, sound: bool) -> Option<Vec<u8>> {
        let Self { shared, zone, changes, exempt, certify } = *self;
        let mut bytes = told.now.clone();
        let mut done = 0;
        for (other, (piece, found)) in (row..).zip(&told.pieces) {
            let len = piece.len as usize;
            let into = done..done + len;
            done += len;
            if other == piece.row {
                // Of this row itself nothing but the damage is known to be wrong there.
                xor_into(&mut bytes[into], &found.p);
                continue;
            }
            let at = zone.at(other, piece.col);
            if other >= zone.data_rows() || exempt.first_in(at, piece.len).is_some() {
                return None;
            }
            let (mut p, mut q) = (vec![0; len], vec![0; len]);
            let mut sums = PqSums::new(&mut p, &mut q);
            sums.add_p(&found.p);
            sums.add_q(&found.q);
            let (mine, its) = sums.solve_rows(piece.row as usize, other as usize);
            let then = shared.as_parity_says(at, its)?;
            if !sound
                && shared.bad_units(at, &then, changes, certify) > 0
                && !shared.has_bad_units(at, piece.len, changes, certify)
            {
                return None;
            }
            xor_into(&mut bytes[into], mine);
        }
        Some(bytes)
    }
}
