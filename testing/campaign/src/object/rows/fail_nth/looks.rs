//! Who only looks at a pool, borrows from it or loads from it, while calls fail: sound bytes are
//! called corrupt by nobody, what is lent is right, and what is said to be healed is there.

use holdfast_faultmem::FailMode;
use holdfast_layout::RawPtr;
use holdfast_object::Error;
use holdfast_pmem::Medium;
use holdfast_redundancy::{Verdict, Wrong};

use super::Failing;
use crate::object::driver::Driver;
use crate::object::model::name;
use crate::object::wrong::{Lie, told};
use crate::tally::{Fault, Judged, Violation};

/// Checks a pool in which nothing is wrong. With a call that fails, what it was about is in doubt,
/// or is a copy that cannot be had; without, nothing is found.
pub(super) fn check(driver: &Driver, fail: Failing) -> Judged<Result<(), Error>> {
    let report = match driver.pool.check(|_, _| {}) {
        Ok(report) => report,
        Err(error) => return Ok(Err(error)),
    };
    let mut copies = match fail {
        None => 0,
        Some((_, FailMode::Once)) => 1,
        Some((_, FailMode::Forever)) => usize::MAX,
    };
    let mut is_accused = |verdict: Verdict| match verdict {
        Verdict::Corrupt(Wrong::Mirror { .. }) => {
            let unread = copies > 0;
            copies = copies.saturating_sub(1);
            !unread
        }
        verdict => matches!(verdict, Verdict::Corrupt(_)),
    };
    let accused = { report.findings.iter() }
        .find(|finding| is_accused(finding.verdict))
        .map(|finding| format!("{finding:?}"))
        .or_else(|| told(Lie::Accuses).then(|| "as somebody wanted".to_owned()));
    if let Some(finding) = accused {
        let story = format!("a check of a sound pool says: {finding}");
        return Err(Violation::new(Fault::FalseReport, story));
    }
    if fail.is_none() && !report.is_clean() {
        let story = format!("a check in which nothing failed is in doubt: {:?}", report.findings);
        return Err(Violation::new(Fault::FalseReport, story));
    }
    Ok(Ok(()))
}

/// Borrows each object. Answers the first error; the others are lent all the same.
pub(super) fn view(driver: &Driver) -> Judged<Result<(), Error>> {
    let mut answer = Ok(());
    for (word, object) in driver.ledger.objects().iter() {
        let view = match driver.pool.view_raw(RawPtr::from_word(word)) {
            Ok(view) => view,
            Err(error) => {
                answer = answer.and(Err(error));
                continue;
            }
        };
        let offset = RawPtr::from_word(word).offset();
        let lent = driver.medium.view(offset, view.len()) == Some(view.address());
        // What lies there, without a call that could fail.
        let image = driver.medium.crash_point().newest().into_bytes();
        let there = image.get(offset as usize..(offset + view.len()) as usize);
        let same = lent && there == Some(&object.bytes[..]);
        if !same || told(Lie::WrongByte) {
            let story = format!("{} is lent as something else", name(word));
            return Err(Violation::new(Fault::Wrong, story));
        }
    }
    Ok(answer)
}

/// What is said to be healed can be read.
pub(super) fn healed(driver: &Driver, at: u64) -> Judged<()> {
    driver.medium.read(at, &mut [0]).map_err(|error| {
        let story = format!("{at:#x} is said to be healed, and is not: {error}");
        Violation::new(Fault::Wrong, story)
    })
}
