//! Elision and redundancy: what nobody misses survives, and what had nothing to do is listed.

use holdfast_explore::{
    Explorer, Medium as _, MediumKind, Redundant, Seen, Shared, Site, SiteKind,
};

use crate::transfer::{Wrong, explorer};

#[test]
fn every_place_of_the_right_structure_is_needed() {
    let elisions = explorer(Wrong::Nothing).elisions();
    elisions.assert_all_needed();
    assert_eq!(elisions.tried.len(), 5, "three flushes and two fences");
    assert!(!elisions.whole.redundant.iter().any(Redundant::always), "{elisions}");
}

#[test]
fn what_is_too_much_survives_and_is_listed() {
    let elisions = explorer(Wrong::TooMuch).elisions();
    let redundant: Vec<_> = elisions.whole.redundant.iter().filter(|one| one.always()).collect();
    let kinds: Vec<SiteKind> = redundant.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [SiteKind::Flush, SiteKind::Drain], "{elisions}");
    assert!(redundant.iter().all(|one| one.place.contains("transfer.rs")), "{elisions}");
    // Either of the two does, so each of the four is spared alone.
    assert_eq!(elisions.survivors().len(), 4, "{elisions}");
}

/// Stands for all that the next structure does.
const ALL: Site = Site::new("pair.all");

/// An item and, after a fence, a word that says it is there; all of it, and a fence too many, under
/// one name. The last fence is passed on another line than the first.
fn one_name(too_many: bool) -> Explorer<Shared, u64> {
    let set = move |m: &mut Shared| {
        m.put(ALL, 64, &[7; 8])?;
        m.drain(ALL);
        m.put(ALL, 0, &[1; 8])?;
        m.drain(ALL);
        if too_many {
            m.drain(ALL);
        }
        Ok(())
    };
    let check = |m: &mut Shared, seen: &Seen<u64>| {
        let mut words = [[0; 8]; 2];
        m.read(0, &mut words[0])?;
        m.read(64, &mut words[1])?;
        let torn = words[0] == [1; 8] && words[1] != [7; 8];
        if torn {
            Err("it is said to be there".into())
        } else {
            seen.agree(&u64::from(words[0][0]))
        }
    };
    Explorer::new("pair", 4096, MediumKind::Dax, Ok, check).op("set", set, |model| *model = 1)
}

#[test]
fn what_is_done_under_one_name_is_switched_off_line_by_line() {
    let elisions = one_name(false).elisions();
    elisions.assert_all_needed();
    assert_eq!(elisions.tried.len(), 4, "{elisions}");
    let elisions = one_name(true).elisions();
    let survived: Vec<_> = elisions.tried.iter().filter(|one| one.failure.is_none()).collect();
    let kinds: Vec<_> = survived.iter().map(|one| (one.site, one.kind)).collect();
    // The second and the third: either does.
    assert_eq!(kinds, [("pair.all", SiteKind::Drain); 2], "{elisions}");
    assert!(survived[0].place != survived[1].place, "{elisions}");
    assert!(elisions.to_string().contains(&format!("at {}", survived[0].place)), "{elisions}");
}
