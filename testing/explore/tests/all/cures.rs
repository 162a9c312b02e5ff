//! What a failure hangs on is tried at whatever call the hinge names: also where that is a sync, an
//! append or the rewrite of a page.

use holdfast_explore::{Explorer, Hinge, Shared, SiteKind, Verdict};
use holdfast_faultmem::Clear;
use holdfast_pmem::{MediaError, Medium, MediumKind, Site};

const DATA: u64 = 0;
const FLAG: u64 = 4096;
const STORE: Site = Site::new("cures.store");
const ORDER: Site = Site::new("cures.order");

fn word(m: &Shared, at: u64) -> Result<u64, MediaError> {
    let mut le = [0; 8];
    m.read(at, &mut le)?;
    Ok(u64::from_le_bytes(le))
}

/// A value at [`DATA`], which counts once [`FLAG`] is set; where the flag cannot be read it is not.
fn get(m: &Shared) -> Verdict<u64> {
    match (word(m, FLAG).unwrap_or(0), word(m, DATA)?) {
        (0, _) => Ok(0),
        (_, 0) => Err("what counts is not there".into()),
        (_, value) => Ok(value),
    }
}

fn explorer(
    name: &str,
    kind: MediumKind,
    set: impl Fn(&Shared) -> Verdict + Send + Sync + 'static,
) -> Explorer<Shared, u64> {
    Explorer::new(name, 8192, kind, Ok, |m: &mut Shared, seen| seen.agree(&get(m)?))
        .op("set 7", move |m| set(m), |model| *model = 7)
        .longest(1)
}

fn store(m: &Shared, at: u64, value: u64) -> Verdict {
    Ok(m.store(STORE, at, &value.to_le_bytes())?)
}

/// Whether nothing but a flush before `ORDER`, and a fence, is missing; and what the hinge is.
fn cured(explorer: &Explorer<Shared, u64>) -> Hinge {
    let report = explorer.run();
    let failure = report.failure.expect("something is missing");
    assert_eq!(failure.hinge.cure().map(|spot| spot.site), Some(ORDER), "{failure}");
    assert_eq!(failure.mended, Some(true), "{failure}");
    failure.hinge
}

#[test]
fn a_sync_of_memory_that_covers_no_store_without_its_flush() {
    let set = |m: &Shared| {
        store(m, DATA, 7)?;
        m.sync(ORDER)?;
        m.put(STORE, FLAG, &1_u64.to_le_bytes())?;
        m.drain(STORE);
        Ok(())
    };
    let hinge = cured(&explorer("sync", MediumKind::Dax, set));
    assert!(matches!(hinge, Hinge::NoFlush { .. }), "{hinge}");
}

#[test]
fn a_sync_of_a_range_of_memory() {
    let set = |m: &Shared| {
        store(m, DATA, 7)?;
        m.sync_range(ORDER, DATA, 8)?;
        m.put(STORE, FLAG, &1_u64.to_le_bytes())?;
        m.drain(STORE);
        Ok(())
    };
    let hinge = cured(&explorer("sync-range", MediumKind::Dax, set));
    assert!(matches!(hinge, Hinge::NoFlush { .. }), "{hinge}");
}

#[test]
fn an_append_that_arrives_before_what_was_put() {
    for (name, kind) in [("append", MediumKind::File), ("append-to-memory", MediumKind::Dax)] {
        let set = move |m: &Shared| {
            m.put(STORE, DATA, &7_u64.to_le_bytes())?;
            m.append(ORDER, FLAG, &1_u64.to_le_bytes())?;
            Ok(m.sync(STORE)?)
        };
        let hinge = cured(&explorer(name, kind, set));
        let Hinge::NoFence { first, .. } = hinge else { panic!("{hinge}") };
        assert_eq!(first.site, STORE, "{hinge}");
    }
}

#[test]
fn the_rewrite_of_a_page_that_arrives_before_what_was_put() {
    for (name, kind) in [("heal", MediumKind::File), ("heal-of-memory", MediumKind::Dax)] {
        let set = |m: &Shared| {
            m.poison(FLAG, 1, Clear::Able)?;
            m.put(STORE, DATA, &7_u64.to_le_bytes())?;
            let mut page = vec![0; 4096];
            page[0] = 1;
            m.heal(ORDER, FLAG, &page)?;
            Ok(m.sync(STORE)?)
        };
        let explorer = explorer(name, kind, set);
        let hinge = cured(&explorer);
        assert!(matches!(hinge, Hinge::NoFence { .. }), "{hinge}");
        assert!(explorer.run().sites.iter().any(|(_, kind)| *kind == SiteKind::Heal));
    }
}
