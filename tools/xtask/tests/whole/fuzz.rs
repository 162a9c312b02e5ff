//! Targets under libFuzzer, with programs in the place of cargo, cargo-fuzz and the targets that
//! only take notes: what a target begins with is written anew, and read with what is kept and
//! committed.

use crate::support::{Said, Tree};

/// Where the program of the targets is.
const PROGRAM: &str = "target/fuzz/x86_64-unknown-linux-gnu/release/target";

/// Notes which target it is and what it is told; says that it compared nothing, if asked to.
const NOTING: &str = "#!/bin/sh\necho \"$HOLDFAST_FUZZ_TARGET $*\" >> target/ran\n\
    for word; do case $word in -merge_control_file=*) printf '0\\n0\\n' > \"${word#*=}\";; \
    esac; done\n";

fn tree() -> Tree {
    let tree = Tree::new();
    tree.write("testing/fuzz/corpus/open/seed-000", "committed");
    tree.program("target/bin/cargo-fuzz", "#!/bin/sh\n");
    tree.program(PROGRAM, NOTING);
    tree.write("target/fuzz/seeds/open/seed-999", "what it began with once");
    tree
}

fn fuzz(tree: &Tree, failing: &str, more: &[&str]) -> Said {
    let arguments = [&["fuzz", "--target", "open"], more].concat();
    tree.xtask_among("target/bin", &tree.fake_cargo(failing), &arguments)
}

#[test]
fn what_a_target_begins_with_is_read_as_well() {
    for more in [&["--seconds", "1"][..], &["--merge"]] {
        let tree = tree();
        fuzz(&tree, "nothing", more).passed();
        let place = |path: &str| {
            tree.root().canonicalize().expect("it is there").join(path).display().to_string()
        };
        let seeds = place("target/fuzz/seeds/open");
        let writing = format!("run --profile test -p holdfast-fuzz -- seeds open {seeds} []");
        assert_eq!(tree.calls(), [writing]);
        assert!(!tree.root().join("target/fuzz/seeds/open/seed-999").exists(), "{more:?}");
        let ran = tree.read("target/ran");
        let [kept, committed] = ["target/fuzz/corpus/open", "testing/fuzz/corpus/open"].map(place);
        assert!(ran.starts_with("open "), "{ran}");
        assert!(ran.contains(&format!(" {kept} {committed} {seeds}")), "{more:?}: {ran}");
    }
}

#[test]
fn a_target_is_not_run_without_what_it_begins_with() {
    for more in [&["--seconds", "1"][..], &["--merge"]] {
        let tree = tree();
        let said = fuzz(&tree, "seeds", more);
        assert_ne!(said.code, Some(0), "{}", said.text);
        assert!(said.text.contains("open: what it begins with cannot be written"), "{}", said.text);
        assert!(!tree.root().join("target/ran").exists(), "{more:?}");
    }
}
