//! Code that is generic over media and names its sites: reports and elision know it by its names.

use holdfast_explore::{Explorer, Hinge, Shared, Verdict};
use holdfast_pmem::{MediaError, Medium, MediumKind, Site};

/// A value of two words at 0, changed through a second one at 128 and a switch at 64 that says
/// which of the two holds.
fn set<M: Medium>(m: &M, value: u64, drained: bool) -> Result<(), MediaError> {
    let other = 1 - word(m, 64)?;
    let bytes = [value.to_le_bytes(), value.to_le_bytes()].concat();
    m.put(Site::new("cell.set.copy"), other * 128, &bytes)?;
    if drained {
        m.drain(Site::new("cell.set.F1"));
    }
    m.put(Site::new("cell.set.switch"), 64, &other.to_le_bytes())?;
    m.drain(Site::new("cell.set.F2"));
    Ok(())
}

fn word<M: Medium>(m: &M, at: u64) -> Result<u64, MediaError> {
    let mut le = [0; 8];
    m.read(at, &mut le)?;
    Ok(u64::from_le_bytes(le))
}

fn get<M: Medium>(m: &M) -> Verdict<u64> {
    let at = word(m, 64)? * 128;
    let (value, twin) = (word(m, at)?, word(m, at + 8)?);
    if value == twin { Ok(value) } else { Err("the value is torn".into()) }
}

fn explorer(drained: bool) -> Explorer<Shared, u64> {
    Explorer::new("cell", 4096, MediumKind::Dax, Ok, |m: &mut Shared, seen| seen.agree(&get(m)?))
        .op("set 3", move |m| Ok(set(m, 3, drained)?), |model| *model = 3)
        .op("set 4", move |m| Ok(set(m, 4, drained)?), |model| *model = 4)
}

#[test]
fn a_missing_drain_is_told_by_the_names_around_it() {
    let failure = explorer(false).run().failure.expect("the switch may come first");
    let Hinge::NoFence { first, then, fence } = failure.hinge else { panic!("{failure}") };
    let names = [first.site, then.site, fence.expect("F2").site].map(Site::name);
    assert_eq!(names, ["cell.set.copy", "cell.set.switch", "cell.set.F2"]);
    assert!(first.place.file().ends_with("mediums.rs"), "{failure}");
    assert_eq!(failure.mended, Some(true), "{failure}");
}

#[test]
fn each_named_place_is_needed() {
    let elisions = explorer(true).elisions();
    elisions.assert_all_needed();
    let names: Vec<&str> = elisions.tried.iter().map(|elision| elision.site).collect();
    assert_eq!(names, ["cell.set.F1", "cell.set.F2", "cell.set.copy", "cell.set.switch"]);
    let without = explorer(true).without("cell.set.F1").run().failure.expect("needed");
    assert!(matches!(without.hinge, Hinge::NoFence { .. }), "{without}");
}

/// A value in one of two sectors, and in a third one which of the two holds, changed on a medium of
/// any kind: what the kind has no use for is done all the same.
fn set_on<M: Medium>(m: &M, value: u64) -> Verdict {
    let other = 1 - word(m, 1024)?;
    let file = m.kind() == MediumKind::File;
    m.zero(Site::new("cell.set_on.zero"), other * 512, 8)?;
    m.xor(Site::new("cell.set_on.copy"), other * 512, &value.to_le_bytes())?;
    m.drain(Site::new("cell.set_on.F1"));
    if file {
        m.sync(Site::new("cell.set_on.S1"))?;
    }
    m.put(Site::new("cell.set_on.switch"), 1024, &other.to_le_bytes())?;
    m.drain(Site::new("cell.set_on.F2"));
    if file {
        m.sync(Site::new("cell.set_on.S2"))?;
    }
    Ok(())
}

#[test]
fn what_does_nothing_on_a_file_is_not_accused_there() {
    let explorer = Explorer::new("file", 4096, MediumKind::File, Ok, |m: &mut Shared, seen| {
        seen.agree(&word(m, word(m, 1024)? * 512)?)
    });
    let explorer = explorer.op("set 3", |m| set_on(m, 3), |model| *model = 3).op(
        "set 4",
        |m| set_on(m, 4),
        |model| *model = 4,
    );
    let elisions = explorer.elisions();
    elisions.assert_all_needed();
    let names: Vec<&str> = elisions.tried.iter().map(|elision| elision.site).collect();
    assert_eq!(names, ["cell.set_on.S1", "cell.set_on.S2"]);
}
