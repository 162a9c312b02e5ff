//! Every named place of the engine switched off in turn: some story must then end wrong. The same
//! stories end well with nothing switched off, so each of them can fail, and each place is needed.
//!
//! Among them are the two wrong orders of a pass, taking after looking and taking without a note,
//! and parity that only the last row of a stripe decides about. So are the two ways in which a
//! source of writes may forget: what it did not tell, and the first store after it told.

use std::collections::BTreeSet;

use crate::common::{PASSED, on_direct_access};
use crate::stories::{
    a_pass_over_a_part, a_record_rots, a_store_after_a_look, a_stranger_comes_late,
    a_stranger_is_heard, a_stranger_wrote_beside, an_entry_rots, bad_pages_are_rewritten,
    closed_is_believed, covered_before_cleared, cut_off_and_crashed, direct, file_bits_die,
    file_bits_live, file_records, header_is_cleared, header_is_healed, looking_after_a_crash,
    memory_bits_die, memory_bits_live, memory_records, neighbour_moves, neighbour_rots,
    one_copy_knows_of_the_close, one_copy_knows_of_writers, one_copy_knows_what_is_covered,
    our_own_store_proves_nothing, parity_is_scrubbed, parity_rots_too, reasons_are_of_their_pages,
    records_are_scrubbed, repair_is_dropped, repair_lasts, rot_beside_a_pass_that_was_cut_off,
    rot_is_found, seen_off_is_believed, store_before_a_repair, store_while_covering,
    tracking_is_lost, undecided_stays, writers_stand,
};
use crate::{busy, dates, drained, lengths, memory, older, promises, records};
use holdfast_faultmem::{Passed, told_apart};

/// A story: whether it ended wrong with this place switched off.
type Story = fn(&str) -> bool;

/// What a source of writes may do wrong, and the stories that end wrong then.
const SOURCE: &[(&str, &[Story])] = &[
    ("faultmem.watched.invalidate", &[a_store_after_a_look]),
    ("faultmem.watched.selective", &[a_pass_over_a_part]),
];

/// Each place, and the stories of which at least one must end wrong without it.
const TABLE: &[(&str, &[Story])] = &[
    ("mapped.admit.clean-a:enabled", &[closed_is_believed]),
    ("mapped.admit.clean-b:enabled", &[closed_is_believed]),
    ("mapped.admit.clean-drain:sync", &[closed_is_believed, seen_off_is_believed]),
    ("mapped.admit.records:enabled", &[records::old_records_are_cleared]),
    ("mapped.admit.records-drain:sync", &[records::cleared_before_suspect]),
    ("mapped.admit.cut:enabled", &[cut_off_and_crashed]),
    ("mapped.admit.cut-drain:sync", &[cut_off_and_crashed]),
    ("mapped.admit.gone:enabled", &[lengths::cut_off_and_a_hole]),
    ("mapped.admit.gone-drain:sync", &[lengths::cut_off_and_a_hole]),
    ("mapped.admit.suspect-a:enabled", &[one_copy_knows_of_writers]),
    ("mapped.admit.suspect-b:enabled", &[one_copy_knows_of_writers]),
    ("mapped.admit.suspect-drain:sync", &[one_copy_knows_of_writers]),
    ("mapped.check.doubt", &[looking_after_a_crash]),
    ("mapped.check.proven", &[older::agreeing_is_no_proof]),
    ("mapped.check.stale", &[undecided_stays]),
    ("mapped.check.vouches", &[a_stranger_is_heard]),
    ("mapped.commit.B:sync", &[file_bits_live]),
    ("mapped.commit.C:sync", &[covered_before_cleared]),
    ("mapped.commit.D:sync", &[file_bits_live]),
    ("mapped.commit.E:sync", &[file_bits_live, file_bits_die]),
    ("mapped.commit.N:sync", &[file_bits_live]),
    ("mapped.check.lost", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.bits:enabled", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.drain:sync", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.forget", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.record:enabled", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.since", &[memory::a_pass_came_before_the_question]),
    ("mapped.heal.stores", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.look.lost", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.look.again", &[neighbour_moves]),
    ("mapped.look.intact", &[promises::a_source_dies_in_its_answer]),
    ("mapped.side.verify-records", &[records::among_strange_bytes_none_is_a_record]),
    ("mapped.protect.close-date", &[dates::a_file_is_closed_with_its_date]),
    ("mapped.protect.date", &[dates::a_file_is_protected_with_its_date]),
    ("mapped.recover.date", &[dates::a_file_is_opened_with_its_date]),
    ("mapped.repair.date", &[dates::a_repair_leaves_its_date]),
    ("mapped.recover.lower", &[promises::less_is_promised_first]),
    ("mapped.recover.raise", &[promises::more_is_there_before_it_is_promised]),
    ("mapped.recover.raise-data", &[promises::more_is_there_before_it_is_promised]),
    ("mapped.protect.rest", &[promises::rest_is_there_before_it_is_promised]),
    ("mapped.protect.rest-data", &[promises::rest_is_there_before_it_is_promised]),
    ("mapped.recover.wiped", &[promises::a_wiped_region_is_not_a_new_one]),
    ("mapped.commit.any-row", &[rot_is_found]),
    ("mapped.commit.batch:enabled", &[memory_bits_live, file_bits_live]),
    ("mapped.commit.blanket", &[tracking_is_lost]),
    ("mapped.commit.clear:enabled", &[memory_bits_live, memory_bits_die]),
    ("mapped.commit.entry:enabled", &[rot_is_found]),
    ("mapped.commit.forget", &[records::what_is_covered_is_off_the_record]),
    ("mapped.commit.quiet", &[busy::a_page_that_rests_is_decided]),
    ("mapped.commit.records:enabled", &[records::recovery_uses_records_up]),
    ("mapped.commit.narrow:enabled", &[memory_bits_live, memory_bits_die]),
    ("mapped.look.neighbours", &[neighbour_rots]),
    ("mapped.commit.parity:enabled", &[rot_is_found]),
    ("mapped.commit.parity-heal", &[bad_pages_are_rewritten]),
    ("mapped.commit.record-a:enabled", &[one_copy_knows_what_is_covered]),
    ("mapped.commit.record-b:enabled", &[one_copy_knows_what_is_covered]),
    ("mapped.commit.rest:enabled", &[rot_beside_a_pass_that_was_cut_off]),
    ("mapped.commit.take-first", &[store_while_covering]),
    ("mapped.look.denied", &[older::parity_says_otherwise]),
    ("mapped.look.gives-back", &[older::not_blessed_by_a_store_beside]),
    ("mapped.look.vouch", &[an_entry_rots]),
    ("mapped.look.vouches", &[a_stranger_wrote_beside]),
    ("mapped.engine.verify-meta", &[an_entry_rots]),
    ("mapped.engine.verify-page", &[rot_is_found]),
    ("mapped.header.a:append", &[header_is_healed]),
    ("mapped.header.a:put", &[direct]),
    ("mapped.header.b:put", &[direct]),
    ("mapped.header.clear", &[header_is_cleared]),
    ("mapped.header.drain-a:drain", &[one_copy_knows_of_the_close]),
    ("mapped.header.drain-b:drain", &[direct]),
    ("mapped.header.b:append", &[one_copy_knows_of_the_close]),
    ("mapped.header.drain-a:sync", &[promises::one_copy_knows_of_the_rest]),
    ("mapped.header.drain-b:sync", &[promises::rest_is_there_before_it_is_promised]),
    ("mapped.header.heal", &[header_is_healed]),
    ("mapped.recover.interrupted", &[our_own_store_proves_nothing]),
    ("mapped.recover.recorded", &[memory_records, file_records, records::a_record_is_proof]),
    ("mapped.repair.confirm", &[repair_is_dropped]),
    (
        "mapped.repair.forget-sync",
        &[
            records::a_repair_is_off_the_record,
            records::a_repair_is_on_no_record_without_its_intent,
        ],
    ),
    ("mapped.repair.freeze", &[writers_stand]),
    ("mapped.repair.heal", &[repair_lasts]),
    ("mapped.repair.judge", &[parity_rots_too]),
    ("mapped.repair.last", &[a_stranger_comes_late]),
    ("mapped.repair.recheck", &[store_before_a_repair]),
    ("mapped.repair.store", &[repair_lasts]),
    ("mapped.repair.store-drain", &[repair_lasts, repair_is_dropped]),
    ("mapped.repair.store-sync", &[repair_lasts, repair_is_dropped]),
    ("mapped.scrub.parity:enabled", &[parity_is_scrubbed]),
    ("mapped.scrub.parity-drain:sync", &[parity_is_scrubbed]),
    ("mapped.scrub.parity-heal", &[parity_is_scrubbed]),
    ("mapped.scrub.record-a:enabled", &[records_are_scrubbed]),
    ("mapped.scrub.record-b:enabled", &[records_are_scrubbed]),
    ("mapped.scrub.record-drain:sync", &[records_are_scrubbed]),
    ("mapped.scrub.verify-parity", &[parity_is_scrubbed]),
    ("mapped.side.entry-heal", &[bad_pages_are_rewritten]),
    ("mapped.side.records-heal:enabled", &[records::a_bad_page_is_made_anew]),
    ("mapped.side.records-heal:heal", &[records::a_bad_page_is_made_anew]),
    ("mapped.side.state-heal", &[bad_pages_are_rewritten]),
    ("mapped.side.sum", &[closed_is_believed]),
    ("mapped.side.verify-record", &[a_record_rots]),
    ("mapped.side.verify-why", &[reasons_are_of_their_pages]),
];

/// Flushes and drains that do nothing on a file, and the same stories of a file whose side file is
/// mapped with direct access: its program's stores are synced, ours are flushed and drained.
const DIRECT: &[(&str, &[Story])] = &[
    ("mapped.admit.clean-a:put", &[closed_is_believed]),
    ("mapped.admit.clean-b:put", &[closed_is_believed]),
    ("mapped.admit.clean-drain:drain", &[seen_off_is_believed]),
    ("mapped.admit.cut:put", &[cut_off_and_crashed]),
    ("mapped.admit.cut-drain:drain", &[drained::a_cut_is_noted_before_the_length]),
    ("mapped.admit.gone-drain:drain", &[drained::what_is_cut_off_is_wiped_before_the_length]),
    ("mapped.admit.gone:put", &[lengths::cut_off_and_a_hole]),
    ("mapped.admit.records:put", &[records::cleared_before_suspect]),
    ("mapped.admit.records-drain:drain", &[records::cleared_before_suspect]),
    ("mapped.admit.suspect-a:put", &[one_copy_knows_of_writers]),
    ("mapped.admit.suspect-b:put", &[one_copy_knows_of_writers]),
    ("mapped.admit.suspect-drain:drain", &[one_copy_knows_of_writers]),
    ("mapped.commit.B:drain", &[file_bits_live]),
    ("mapped.commit.C:drain", &[covered_before_cleared]),
    ("mapped.commit.E:drain", &[file_bits_live, file_bits_die]),
    ("mapped.commit.N:drain", &[file_bits_live]),
    ("mapped.commit.batch:put", &[file_bits_live, bad_pages_are_rewritten]),
    ("mapped.commit.clear:put", &[closed_is_believed]),
    ("mapped.commit.entry:put", &[closed_is_believed, covered_before_cleared]),
    ("mapped.commit.narrow:put", &[file_records]),
    ("mapped.commit.parity:put", &[file_bits_live]),
    ("mapped.commit.record-a:put", &[one_copy_knows_what_is_covered]),
    ("mapped.commit.record-b:put", &[records_are_scrubbed]),
    ("mapped.commit.records:put", &[records::recovery_uses_records_up]),
    ("mapped.commit.rest:put", &[rot_beside_a_pass_that_was_cut_off]),
    ("mapped.heal.bits:put", &[memory::what_was_stored_went_with_the_memory]),
    ("mapped.heal.drain:drain", &[memory::a_doubt_that_no_journal_takes_lasts]),
    ("mapped.heal.record:put", &[memory::what_was_stored_went_with_the_memory]),
    ("pmem.track.Forgotten:drain", &[records::a_repair_is_on_no_record_without_its_intent]),
    ("mapped.scrub.parity:put", &[parity_is_scrubbed]),
    ("mapped.scrub.parity-drain:drain", &[drained::parity_is_there_before_it_counts]),
    ("mapped.scrub.record-drain:drain", &[drained::one_copy_of_a_record_is_whole]),
    ("mapped.scrub.record-a:put", &[records_are_scrubbed]),
    ("mapped.scrub.record-b:put", &[records_are_scrubbed]),
];

/// Places that only tests see.
const STEPS: [&str; 2] = ["mapped.repair.step-frozen", "mapped.repair.step-intent"];

#[test]
fn the_table_has_every_place() {
    let mut places = BTreeSet::new();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let names = text.split("Site::new(\"").skip(1).map(|part| part.split('"').next().unwrap());
        places.extend(names.map(str::to_owned));
    }
    let names = TABLE.iter().map(|(place, _)| place.split(':').next().unwrap());
    let listed: BTreeSet<String> = names.chain(STEPS).map(str::to_owned).collect();
    assert_eq!(places, listed);
}

#[test]
fn every_story_ends_well_with_nothing_switched_off() {
    let all = TABLE.iter().chain(SOURCE);
    let mut stories: Vec<Story> = all.flat_map(|(_, s)| s.iter().copied()).collect();
    stories.sort_by_key(|story| *story as usize);
    stories.dedup_by_key(|story| *story as usize);
    PASSED.with_borrow_mut(BTreeSet::clear);
    for story in stories {
        assert!(!story("nothing"), "{:?}", TABLE.iter().find(|(_, s)| s.contains(&story)));
    }
    for (place, stories) in DIRECT {
        assert!(
            stories.iter().all(|story| !on_direct_access(true, || story("nothing"))),
            "{place}"
        );
    }
    PASSED.with_borrow(names_are_told_apart);
}

/// A name stands for one line of the source; what is done there in more ways than one (synced on a
/// file and drained elsewhere, asked about and then stored) is switched off each by itself. What is
/// passed with direct access counts as well.
fn names_are_told_apart(passed: &BTreeSet<Passed>) {
    let is_ours = |name: &str| name.starts_with("mapped.") && !STEPS.contains(&name);
    let ours = passed.iter().filter(|(site, ..)| is_ours(site.name()));
    let deeds: Vec<(String, String)> =
        ours.map(|(site, kind, at)| (kind.at(*site), at.to_string())).collect();
    let tried: BTreeSet<&str> = TABLE.iter().chain(DIRECT).map(|(place, _)| *place).collect();
    let known = |deed: &str| tried.contains(deed);
    let wrong = told_apart(deeds.iter().map(|(deed, at)| (&**deed, &**at)), known);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_place_switched_off_is_noticed() {
    let mut missed = Vec::new();
    let plain = TABLE.iter().chain(SOURCE).map(|trial| (trial, false));
    for ((name, stories), direct) in plain.chain(DIRECT.iter().map(|trial| (trial, true))) {
        let killed = stories.iter().any(|story| {
            let story = || on_direct_access(direct, || story(name));
            // A story that merely gives up has seen nothing.
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(story)).unwrap_or(false)
        });
        if !killed {
            missed.push(*name);
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:#?}");
}
