//! Log pages that could not be read and were rewritten: what is committed on them afterwards is
//! safe.
//!
//! What such a page held is worthless by then, and what comes to it later is made durable by
//! itself. So a rewrite that is switched off shows in one way only: it did not clear the page,
//! which is whole as long as the program runs and bad after every crash. Whoever loses the other
//! copy then has none.

use std::sync::Arc;

use holdfast_faultmem::Clear;
use holdfast_pmem::PAGE;

use super::Mutant;
use super::jury::{FEW, Jury, abandon, opened};
use crate::object::handle::Handle;
use crate::object::judge::scrub;
use crate::object::ops::{Choice, Job, Op};
use crate::object::raw::Bytes;
use crate::object::scenes::{settled, stage};
use crate::object::targets::{Area, Side, Target, Targets};
use crate::tally::{Judged, Tally};

/// Makes whole ranges unreadable; they were found on this very medium.
fn lose(medium: &Handle, ranges: &[Target]) {
    for range in ranges {
        let _ = medium.poison(range.at, range.len.next_multiple_of(PAGE), Clear::Able);
    }
}

/// Logs in `lost` turn bad and are rewritten; then something is committed, and with the crash the
/// logs in `gone` are lost.
fn rewritten(mutant: &Mutant, world: &'static str, lost: &[Side], gone: &[Side]) -> Judged<Tally> {
    let (world, mut rng) = (Arc::new(mutant.world(world)), mutant.rng(1));
    let driver = settled(&world, stage(&world, &mut rng)?)?;
    let targets = Targets::of(&Bytes::of(&driver.medium));
    let logs = |sides: &[Side]| -> Vec<Target> {
        sides.iter().flat_map(|side| targets.of_area(Area::Log(*side))).collect()
    };
    lose(&driver.medium, &logs(lost));
    scrub(&driver.pool)?;
    let gone = logs(gone);
    let (shared, ledger) = (Arc::clone(&world), driver.ledger.clone());
    let jury = Jury::new(FEW, &mut rng, move |image, site| {
        if !matches!(site, "object.settle.F2-now" | "") {
            return Ok(());
        }
        let medium = shared.after(image);
        lose(&medium, &gone);
        opened(&shared, medium, &ledger.promise()).map(abandon)
    });
    let of = Choice::of(&driver.ledger.objects()).small[0].0;
    jury.sit(&driver.medium);
    driver.must(&Job::new(&mut rng, [Op::Write { of, from: 0, len: 8 }]))?;
    driver.medium.clear_on_barrier();
    jury.look(&driver.medium.crash_point());
    abandon(driver);
    Ok(jury.end())
}

/// Copy A of all rings turned bad; later copy B is lost.
pub fn ring(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    rewritten(mutant, world, &[Side::A], &[Side::B])
}

/// Both copies of all rings turned bad while nothing was in them; later copy A is lost.
pub fn both_rings(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    rewritten(mutant, world, &[Side::A, Side::B], &[Side::A])
}

/// The whole log of a file turned bad while nothing was in it.
pub fn group(mutant: &Mutant, world: &'static str) -> Judged<Tally> {
    rewritten(mutant, world, &[Side::A, Side::B], &[])
}
