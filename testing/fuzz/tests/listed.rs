//! Each target is a method of the list of what was run: one that is not there would be missed by no
//! goal if nobody ever ran it.

use holdfast_fuzz::targets;

#[test]
fn each_target_is_in_the_list_of_what_is_run() {
    let names = targets::ALL.iter().map(|target| target.name);
    assert_eq!(holdfast_evidence::unlisted("fuzz", names), Vec::<String>::new());
}
