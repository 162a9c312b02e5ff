//! Pools whose fields were damaged: opened, checked, repaired.
//!
//! The first byte of the head chooses the pool, the bits of the second how it is met.

use holdfast_campaign::object::driver::Driver;
use holdfast_campaign::object::fields::meet::unchanged;
use holdfast_campaign::object::fields::specimen::use_maps;
use holdfast_campaign::object::handle::Handle;
use holdfast_campaign::object::ops::any_job;
use holdfast_faultmem::Clear;
use holdfast_object::{CheckReport, ScrubControl, ScrubOptions, Scrubbed};
use holdfast_pmem::{Medium, PAGE};
use holdfast_workloads::Rng;

use crate::bed::{Bed, Hurt, bed, must};
use crate::lie::lie;
use crate::script::Script;

/// The maps of the pool are walked and changed.
const MAPS: u8 = 1;
/// Transactions are run.
const JOBS: u8 = 2;
/// The pool is closed and opened again.
const AGAIN: u8 = 4;
/// The damage comes while the pool is open.
const IN_USE: u8 = 8;
/// Scrubs of one repair at most.
const ROUNDS: u32 = 3;

/// A pool, damaged and opened. `None` if it was refused.
fn opened(bed: &Bed, script: &Script) -> Option<(Driver, Hurt)> {
    let medium = bed.specimen.medium();
    if script.head[1] & IN_USE != 0 {
        let driver = must(bed.specimen.open(), "undamaged");
        let hurt = bed.damage(&driver.medium, &script.steps, |_| true);
        return Some((driver, hurt));
    }
    let hurt = bed.damage(&medium, &script.steps, |_| true);
    reopened(bed, medium).map(|driver| (driver, hurt))
}

/// Opens a closed pool. `None` if it is refused: then nothing was changed, and the next try is
/// refused as well, for the same reason.
pub(super) fn reopened(bed: &Bed, medium: Handle) -> Option<Driver> {
    let before = medium.crash_point().newest();
    let mut first: Option<String> = None;
    for _ in 0..2 {
        let answer = bed.specimen.world.open(&medium);
        let error = match (answer, &first) {
            (Ok((pool, _)), None) => return Some(bed.specimen.driver(medium, pool)),
            (Ok(_), Some(first)) => panic!("refused ({first}), and then opened"),
            (Err(error), None) => error.to_string(),
            (Err(error), Some(first)) => {
                let refused = lie("refused once", true, |_| false);
                assert!(refused, "refused ({first}), and then opened");
                lie("reason", error.to_string(), |_| String::new())
            }
        };
        planted(&medium, ["refused stores", "refused ruins"]);
        must(unchanged(&before, &medium, &format!("an open that failed ({error})")), "open");
        let first = first.get_or_insert_with(|| error.clone());
        assert_eq!(error, *first, "refused for another reason");
    }
    None
}

/// Changes that are no business of who looks: a byte, and a page that is bad now. Only in tests, by
/// these names.
pub(super) fn planted(medium: &Handle, [stores, ruins]: [&'static str; 2]) {
    if lie(stores, false, |_| true) {
        let _ = medium.flip_bit(medium.len() / 2, 3);
    }
    if lie(ruins, false, |_| true) {
        let _ = medium.poison(medium.len() - PAGE, 1, Clear::Able);
    }
}

/// Closes a pool and opens it again, as far as that goes.
fn again(bed: &Bed, driver: Driver, hurt: &Hurt) {
    let Driver { medium, pool, ledger, .. } = driver;
    drop(pool);
    let medium = bed.specimen.world.after(medium.crash_point().newest());
    if let Some(next) = reopened(bed, medium) {
        let next = Driver { ledger, ..next };
        Bed::read(&next, hurt, "closed and opened again");
        next.medium.abandon(next.pool);
    }
}

fn end(bed: &Bed, script: &Script, driver: Driver, hurt: &Hurt) {
    if script.head[1] & AGAIN != 0 {
        again(bed, driver, hurt);
    } else {
        driver.medium.abandon(driver.pool);
    }
}

/// Target `open`.
pub(super) fn open(input: &[u8]) {
    let script = Script::read(input);
    let bed = bed(script.head[0].into());
    let Some((driver, hurt)) = opened(bed, &script) else { return };
    Bed::read(&driver, &hurt, "opened");
    if script.head[1] & MAPS != 0
        && let Some(maps) = &bed.specimen.maps
    {
        // Whatever it says of maps that were damaged.
        let _ = use_maps(&driver, maps);
    }
    if script.head[1] & JOBS != 0 {
        let mut rng = Rng::new(script.head[1].into());
        for _ in 0..3 {
            let job = any_job(&mut rng, &Bed::expected(&driver, &hurt));
            // An error is an answer; that it can be told is all there is to ask.
            let _ = driver.run(&job).map_err(|error| error.to_string());
        }
        Bed::read(&driver, &hurt, "changed");
    }
    end(bed, &script, driver, &hurt);
}

/// Target `check`.
pub(super) fn check(input: &[u8]) {
    let script = Script::read(input);
    let bed = bed(script.head[0].into());
    let Some((driver, hurt)) = opened(bed, &script) else { return };
    let before = driver.medium.crash_point().newest();
    let look = || driver.pool.check(|_, _| {}).map_err(|error| error.to_string());
    let (first, second) = (look(), look());
    let second = lie("says nothing", second, |_| Err("something else".to_owned()));
    let second = second.map(|found| lie("counts another", found, another));
    let second = second.map(|found| lie("finds another", found, moved));
    assert_eq!(first, second, "a check is the same when it is made again");
    planted(&driver.medium, ["check stores", "check ruins"]);
    must(unchanged(&before, &driver.medium, "a check"), "check");
    Bed::read(&driver, &hurt, "checked");
    end(bed, &script, driver, &hurt);
}

/// A report with one finding more.
fn another(found: CheckReport) -> CheckReport {
    CheckReport { found: found.found + 1, ..found }
}

/// A report whose first finding, if there is one, is at another place.
fn moved(mut found: CheckReport) -> CheckReport {
    found.findings.iter_mut().take(1).for_each(|finding| finding.at += 1);
    found.column_bytes += u64::from(found.findings.is_empty());
    found
}

/// Target `repair`.
pub(super) fn repair(input: &[u8]) {
    let script = Script::read(input);
    let bed = bed(script.head[0].into());
    let Some((driver, hurt)) = opened(bed, &script) else { return };
    for _ in 0..ROUNDS {
        let options = ScrubOptions::default();
        let Ok(done) = driver.pool.scrub(options, &ScrubControl::default(), |_, _| {}) else {
            break;
        };
        let done = lie("found nothing", done, |done| {
            let report = CheckReport { found: 0, findings: Vec::new(), ..done.report };
            Scrubbed { report, ..done }
        });
        let done = lie("lost nothing", done, |done| Scrubbed { lost: 0, undecided: 0, ..done });
        let done = lie("repaired all", done, |done| Scrubbed {
            repaired: done.repaired + done.lost,
            lost: 0,
            undecided: 0,
            ..done
        });
        if says_clean(&done, &hurt) {
            let found = driver.pool.check(|_, _| {}).map_err(|error| error.to_string());
            let found = lie("check fails", found, |_| Err("it cannot".to_owned()));
            let found = found.unwrap_or_else(|error| panic!("a check after a repair: {error}"));
            let found = lie("finds more", found, another);
            let first = found.findings.first();
            assert!(found.is_clean(), "a repair said clean ({done:?}), a check finds {first:?}");
            break;
        }
    }
    Bed::read(&driver, &hurt, "repaired");
    end(bed, &script, driver, &hurt);
}

/// Whether a scrub says that all is well: nothing was found; or everything that was found is
/// repaired, and nothing of it had been made to verify.
fn says_clean(done: &Scrubbed, hurt: &Hurt) -> bool {
    let mended = !hurt.sealed && done.repaired > 0 && done.lost == 0 && done.undecided == 0;
    done.report.is_clean() || mended
}
