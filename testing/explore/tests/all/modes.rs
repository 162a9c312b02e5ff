//! Modes: what a line keeps in order, words do not; files are torn by sectors and synced.

use holdfast_explore::{Explorer, Hinge, Mapping, Mode, Shared, Verdict};
use holdfast_pmem::MediumKind;

/// A value and a word that says it is there, `apart` bytes behind it, with one fence for both.
struct Cell {
    m: Mapping,
    apart: u64,
}

impl Cell {
    fn set(&self, value: u64) -> Verdict {
        self.m.store_u64(0, value)?;
        self.m.store_u64(self.apart, 1)?;
        if self.m.medium().mode() == Mode::Sectors {
            return Ok(self.m.sync()?);
        }
        self.m.flush(0, 8)?;
        self.m.flush(self.apart, 8)?;
        self.m.fence();
        Ok(())
    }

    fn get(&self) -> Verdict<Option<u64>> {
        Ok(if self.m.load_u64(self.apart)? == 1 { Some(self.m.load_u64(0)?) } else { None })
    }
}

fn explorer(kind: MediumKind, apart: u64) -> Explorer<Cell, Option<u64>> {
    Explorer::new(
        "cell",
        4096,
        kind,
        move |medium: Shared| Ok(Cell { m: Mapping::new(medium), apart }),
        |cell, seen| seen.agree(&cell.get()?),
    )
    .op("set 5", |cell| cell.set(5), |model: &mut Option<u64>| *model = Some(5))
    .longest(1)
}

#[test]
fn one_line_keeps_its_order_and_two_do_not() {
    assert!(!explorer(MediumKind::Dax, 8).run().is_clean(), "words come in any order");
    explorer(MediumKind::Dax, 8).modes(&[Mode::Lines]).run().assert_clean();
    let report = explorer(MediumKind::Dax, 64).modes(&[Mode::Lines]).run();
    let failure = report.failure.expect("lines come in any order");
    assert!(matches!(failure.hinge, Hinge::NoFence { .. }), "{failure}");
    assert_eq!((failure.arrived.len(), failure.missing.len()), (1, 1), "{failure}");
}

#[test]
fn a_file_is_torn_by_sectors() {
    explorer(MediumKind::File, 64).run().assert_clean();
    let failure = explorer(MediumKind::File, 512).run().failure.expect("two sectors, one sync");
    assert_eq!(failure.mode, Mode::Sectors);
    let Hinge::NoFence { fence: Some(fence), .. } = failure.hinge else { panic!("{failure}") };
    assert!(fence.place.file().ends_with("modes.rs"), "{failure}");
}

#[test]
fn all_modes_asked_for_are_run() {
    let report = explorer(MediumKind::Dax, 8).modes(&[Mode::Lines, Mode::Words]).run();
    assert_eq!(report.failure.expect("by words").mode, Mode::Words);
    assert_eq!(report.sequences, 2);
}

#[test]
fn what_returned_without_a_fence_is_not_durable() {
    let lazy = Explorer::new(
        "lazy",
        4096,
        MediumKind::Dax,
        |medium: Shared| Ok(Mapping::new(medium)),
        |m, seen| seen.agree(&m.load_u64(0)?),
    )
    .op(
        "set",
        |m| {
            m.store_u64(0, 1)?;
            Ok(m.flush(0, 8)?)
        },
        |model: &mut u64| *model = 1,
    );
    let failure = lazy.run().failure.expect("nothing waits for the flush");
    assert!(matches!(failure.hinge, Hinge::NotDurable { fence: None, .. }), "{failure}");
    assert_eq!(failure.crashes, [None], "{failure}");
}

#[test]
fn what_was_judged_is_not_judged_again() {
    let once = explorer(MediumKind::Dax, 8).modes(&[Mode::Lines]).run();
    let twice = explorer(MediumKind::Dax, 8).modes(&[Mode::Lines]).longest(2).run();
    // The second `set 5` changes nothing: one image, in the three instants of it.
    assert_eq!((twice.images, twice.instants), (once.images + 1, 2 * once.instants), "{twice}");
}
