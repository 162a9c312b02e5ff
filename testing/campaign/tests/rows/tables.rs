//! What names rows names rows there are.

use holdfast_campaign::mapped;
use holdfast_campaign::object::goals::GOALS;
use holdfast_campaign::object::rows::nested::{scenes, wrong::WRONG};
use holdfast_campaign::object::rows::{ROWS, fail_nth, lost};
use holdfast_campaign::object::world::World;
use holdfast_campaign::report::SEE;
use holdfast_campaign::runner::Tier;
use holdfast_campaign::tally::Tally;

use super::row;

#[test]
fn goals_name_rows_there_are() {
    let known = |row: &&str| ROWS.iter().any(|known| known.name == *row);
    assert!(GOALS.iter().all(|goal| goal.rows.iter().all(known)));
}

#[test]
fn rows_that_see_are_rows() {
    for (campaign, name, _) in SEE {
        assert_eq!(row(campaign, name).name, *name);
    }
}

#[test]
fn wrong_variants_are_in_scenes_and_worlds_that_there_are() {
    for variant in WRONG {
        let (name, world) = variant.bed.split_once(" in ").expect("a scene and a world");
        assert!(scenes().any(|scene| scene.name == name), "{name}");
        assert!(World::usual().iter().any(|usual| usual.name == world), "{world}");
    }
}

#[test]
fn a_long_run_does_more_than_enough_lost_writes_of_each_kind() {
    let each = ((lost::ROW.cases)(Tier::Long) - lost::WRONG.len() as u64) / 4 * lost::FAULTS;
    assert!(each >= 400_000, "{each}");
}

#[test]
fn each_row_is_in_the_list_of_what_is_run() {
    for (campaign, rows) in [("object", ROWS), ("mapped", mapped::rows::ROWS)] {
        let names = rows.iter().map(|row| row.name);
        assert_eq!(holdfast_evidence::unlisted(campaign, names), Vec::<String>::new());
    }
}

#[test]
fn each_operation_is_asked_for_a_call_that_failed() {
    let row = row("object", "fail-nth");
    let mut nothing = Tally::default();
    (row.finish)(&mut nothing);
    let wrong = fail_nth::wrong::WRONG.len() as u64;
    assert_eq!(nothing.violated(), (row.cases)(Tier::Ci) - wrong);
}
