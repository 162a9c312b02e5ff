//! Stores to the other pages of the stripe of a page that is being repaired. They need no second
//! look after the writers stopped: of what was read of them counts only what agrees with its entry,
//! and what comes out only if it agrees with the entry of the page.

use std::sync::{Arc, Mutex};

use crate::common::bent::{Asked, Bend, Bent};
use crate::common::{Counter, Machine, Stopped, content, tiny};
use holdfast_faultmem::Watched;
use holdfast_mapped::{AtRest, Force, Mapped, Mended, Writing};
use holdfast_pmem::{Medium, MediumKind, PAGE, Site};

const STORE: Site = Site::new("test.half");
const PAGES: u64 = 16;

/// What comes right after a look at the bits of a region.
type Then = Arc<Mutex<Option<Box<dyn FnMut() + Send>>>>;

/// A source after whose looks at a region somebody stores at once.
#[derive(Clone)]
struct Late {
    inner: Watched,
    then: Then,
}

impl Bend for Late {
    fn inner(&self) -> &Watched {
        &self.inner
    }

    fn after(&self, asked: Asked, len: u64) {
        if asked == Asked::Peek
            && len > PAGE
            && let Some(mut then) = self.then.lock().unwrap().take()
        {
            then();
        }
    }
}

/// Page 5 is rebuilt from a stripe of which page 6 is torn: half of it was stored behind the look
/// at the bits. What became of page 5, and whether any page holds what nobody stored.
fn among_torn_pages(parity: u32, off: &[&str]) -> (Mended, bool) {
    let machine = Machine::new(MediumKind::Shm, PAGES * PAGE);
    for off in off {
        machine.medium.elide_name(off);
    }
    let source = Late { inner: machine.data.clone(), then: Arc::default() };
    let engine = Mapped::protect(
        machine.data.clone(),
        machine.side.clone(),
        Bent(source.clone()),
        machine.world.clone(),
        Arc::new(Counter::default()),
        &tiny(parity),
    );
    let engine = engine.unwrap();
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.rot(5, 100);
    let rotten = machine.page(5);
    let twin = machine.clone();
    *source.then.lock().unwrap() = Some(Box::new(move || {
        twin.data.put(STORE, 6 * PAGE, &content(6, 1)[..2048]).unwrap();
    }));
    let writers = Stopped::default();
    let twin = machine.clone();
    *writers.between.lock().unwrap() = Some(Box::new(move || {
        twin.data.put(STORE, 6 * PAGE + 2048, &content(6, 1)[2048..]).unwrap();
    }));
    let mended = engine.repair(5, &writers, Force::No).unwrap();
    assert!(source.then.lock().unwrap().is_none(), "nobody looked");
    let stored = if mended == Mended::Repaired { content(6, 1) } else { machine.page(6) };
    let held = [content(5, 0), rotten].contains(&machine.page(5)) && machine.page(6) == stored;
    (mended, held && machine.page(6)[..2048] == content(6, 1)[..2048])
}

#[test]
fn torn_copies_of_its_neighbours_are_not_taken_for_their_pages() {
    assert_eq!(among_torn_pages(1, &[]), (Mended::Lost, true), "one page more than parity has");
    assert_eq!(among_torn_pages(2, &[]), (Mended::Repaired, true));
    let unjudged = among_torn_pages(1, &["mapped.repair.judge"]);
    assert_eq!(unjudged, (Mended::Repaired, false), "so this test can fail");
}

#[test]
fn stores_to_the_stripe_behind_the_rebuild_are_kept_and_take_nothing_away() {
    let machine = Machine::new(MediumKind::Shm, PAGES * PAGE);
    let engine = machine.protect(&tiny(1));
    engine.admit(0, u64::MAX, Writing::NotYet).unwrap();
    machine.rot(5, 100);
    let writers = Stopped::default();
    let twin = machine.clone();
    *writers.between.lock().unwrap() = Some(Box::new(move || {
        [4, 6, 7].into_iter().for_each(|page| twin.store(page, 3));
    }));
    // To put it off would be to lose it: the next pass makes parity of what was stored.
    assert_eq!(engine.repair(5, &writers, Force::No).unwrap(), Mended::Repaired);
    assert_eq!(machine.page(5), content(5, 0));
    assert_eq!(engine.pass().unwrap().pages, 3);
    assert!(engine.verify_all().unwrap().is_clean());
    for page in 4..8 {
        let whole = content(page, if page == 5 { 0 } else { 3 });
        assert_eq!(machine.page(page), whole);
        machine.rot(page, 7);
        assert_eq!(engine.repair(page, &AtRest, Force::No).unwrap(), Mended::Repaired);
        assert_eq!(machine.page(page), whole);
    }
}
