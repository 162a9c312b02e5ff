//! What must hold whatever a field was set to: nothing changes behind a failed open, and objects
//! that are not concerned are served right.

use holdfast_faultmem::Image;
use holdfast_layout::RawPtr;
use holdfast_object::Error;
use holdfast_txn::Transaction;

use crate::object::driver::Driver;
use crate::object::handle::Handle;
use crate::object::model::{Objects, name};
use crate::tally::{Fault, Judged, Violation};

/// A medium holds what it held.
///
/// # Errors
/// It does not, and `who` changed it.
pub fn unchanged(before: &Image, medium: &Handle, who: &str) -> Judged<()> {
    let after = medium.crash_point().newest();
    let (old, new) = (before.bytes(), after.bytes());
    if old == new && before.bad_pages() == after.bad_pages() {
        return Ok(());
    }
    let differs = |at: &usize| old.get(*at) != new.get(*at);
    let first = (0..old.len()).find(differs).unwrap_or(old.len());
    let last = (0..old.len()).rfind(differs).unwrap_or(old.len());
    let story = format!("{who} changed the pool from {first:#x} to {last:#x}");
    Err(Violation::new(Fault::Wrong, story))
}

/// The objects that lie in none of these ranges (first byte, bytes).
#[must_use]
pub fn apart(objects: &Objects, ranges: &[(u64, u64)]) -> Objects {
    let mut others = Objects::default();
    for (word, object) in objects.iter() {
        let at = RawPtr::from_word(word).offset();
        let end = at + (object.bytes.len() as u64).max(1);
        if ranges.iter().all(|(start, len)| at >= start + len || end <= *start) {
            others.insert(word, object.clone());
        }
    }
    others
}

/// Reads all objects through the engine; those expected must be right.
///
/// # Errors
/// One that is wrong, or refused.
pub fn served(driver: &Driver, expected: &Objects) -> Judged<()> {
    each(driver, expected, |error| {
        Err(Violation::new(Fault::Refused, format!("which is not concerned: {error}")))
    })
}

/// Reads all objects through the engine; those expected must be right, or refused: the damage may
/// be more than the redundancy covers.
///
/// # Errors
/// One that is wrong.
pub fn never_wrong(driver: &Driver, expected: &Objects) -> Judged<()> {
    each(driver, expected, |_| Ok(()))
}

fn each(driver: &Driver, expected: &Objects, refused: impl Fn(&Error) -> Judged<()>) -> Judged<()> {
    for (word, object) in driver.ledger.objects().iter() {
        let of = RawPtr::from_word(word);
        let mut bytes = vec![0; object.bytes.len()];
        let read = driver.pool.run(|tx| {
            tx.read_bytes(of, 0, &mut bytes)?;
            Ok((tx.len_of(of)?, tx.type_of(of)?))
        });
        if expected.get(word).is_none() {
            continue;
        }
        match read {
            Err(error) => {
                refused(&error).map_err(|v| v.during(format!("reading {}", name(word))))?
            }
            Ok((len, kind)) => {
                let same = len == object.bytes.len() as u64
                    && kind.0 == object.kind
                    && bytes[..] == object.bytes[..];
                if !same {
                    let story = format!("{}, which is not concerned, is changed", name(word));
                    return Err(Violation::new(Fault::Wrong, story));
                }
            }
        }
    }
    Ok(())
}
