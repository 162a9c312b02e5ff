//! The steps of CI with a cargo that only takes notes: order, failure, skipping, arguments.

use std::path::Path;

use crate::support::Tree;

/// The calls of cargo when every step runs; the checks of this program call no cargo but metadata.
const STEPS: [&str; 4] = [
    "fmt --all -- --check []",
    "clippy --workspace --all-targets -- -D warnings []",
    "doc --workspace --no-deps [-D warnings]",
    "test --workspace -- --show-output []",
];

/// The call that builds and runs the programs in C.
const PROGRAMS: &str = "test --quiet -p holdfast-capi --test programs -- --nocapture []";

/// A C surface with one function, and the header that is made from it.
fn c_surface(tree: &Tree) {
    tree.crate_at("surfaces/capi", "holdfast-capi", "");
    tree.write("surfaces/capi/cbindgen.toml", "language = \"C\"\n");
    let source = tree.read("surfaces/capi/src/lib.rs");
    let function = "\n/// Does nothing.\n#[unsafe(no_mangle)]\n\
                    pub extern \"C\" fn holdfast_nothing(of: u32) -> u32 {\n    of\n}\n";
    tree.write("surfaces/capi/src/lib.rs", &(source + function));
    tree.write("surfaces/capi/include/holdfast.h", "");
    tree.xtask(&["capi", "--write"]).passed();
}

#[test]
fn the_c_surface_needs_its_header_and_its_programs() {
    let tree = Tree::new();
    c_surface(&tree);
    assert!(tree.read("surfaces/capi/include/holdfast.h").contains("holdfast_nothing"));
    tree.xtask_with(&tree.fake_cargo("nothing"), &["capi"]).passed();
    assert_eq!(tree.calls(), [PROGRAMS]);
    tree.xtask_with(&tree.fake_cargo("programs"), &["capi"]).refused("1 functions");
    tree.write("surfaces/capi/include/holdfast.h", "old\n");
    tree.xtask_with(&tree.fake_cargo("nothing"), &["capi"]).refused("cargo xtask capi --write");
    assert_eq!(tree.calls(), [PROGRAMS]);
    let nothing_runs = tree.fake_cargo("test");
    tree.xtask_with(&nothing_runs, &["capi", "--header"]).refused("cargo xtask capi --write");
    tree.xtask(&["capi", "--write"]).passed();
    tree.xtask_with(&nothing_runs, &["capi", "--header"]).passed();
    assert_eq!(tree.calls(), [] as [&str; 0]);
}

#[test]
fn every_step_runs_in_order_and_the_missing_crates_are_named() {
    let tree = Tree::new();
    let said = tree.xtask_with(&tree.fake_cargo("nothing"), &["ci"]);
    said.passed();
    assert_eq!(tree.calls(), STEPS);
    for part in [
        "] clippy: cargo clippy --workspace",
        "left out: there is no holdfast-capi yet",
        "left out: there is no holdfast-campaign yet",
        "left out: there is no holdfast-guard yet",
        "left out: there is no holdfast-cli yet",
        "ci: passed in",
    ] {
        assert!(said.text.contains(part), "not said: {part}\n{}", said.text);
    }
}

#[test]
fn steps_of_crates_that_exist_run() {
    let tree = Tree::new();
    tree.crate_at("testing/campaign", "holdfast-campaign", "");
    tree.crate_at("surfaces/guard", "holdfast-guard", "");
    tree.crate_at("surfaces/cli", "holdfast-cli", "");
    tree.crate_at("tools/lab", "lab", "");
    c_surface(&tree);
    let cargo = tree.fake_cargo("nothing");
    // What the tests would have built: it takes notes as well.
    tree.write("target/debug/.fingerprint", "");
    for program in ["holdfast", "holdfast-campaign", "lab"] {
        tree.copy(&cargo, &format!("target/debug/{program}"));
    }
    tree.xtask_with(&cargo, &["ci"]).passed();
    let calls = tree.calls();
    assert_eq!(calls[..4], STEPS, "the programs in C are among the tests");
    let built = "test --workspace --no-run --quiet []";
    let demo = "demo --text 1048576 --faults 300 --kills 8 []";
    let last = [demo, "object --tier ci []", "mapped --tier ci []", "--smoke []"];
    assert_eq!(calls[4..], last.map(|words| [built, words]).concat());
}

/// The tests build the program that runs them: the steps behind them start the new one.
#[test]
fn a_program_that_is_built_anew_meanwhile_is_found_again() {
    let tree = Tree::new();
    tree.crate_at("testing/models", "holdfast-models", "");
    let cargo = tree.fake_cargo("nothing");
    let own = tree.root().join("target/own");
    tree.copy(Path::new(env!("CARGO_BIN_EXE_xtask")), "target/own");
    let anew = format!(
        "case \"$1\" in test) mv \"{0}\" \"{0}.old\"; cp \"{0}.old\" \"{0}\"; \
                        rm \"{0}.old\";; esac\n",
        own.display()
    );
    let script = tree.read("target/fake-cargo") + &anew;
    tree.program("target/fake-cargo", &script);
    // What would have been built for the checkers: it takes notes as well.
    let built = "target/models/x86_64-unknown-linux-gnu/models/holdfast-models";
    tree.copy(&cargo, built);
    tree.xtask_as(&own, &cargo, &["ci"]).passed();
    let models = |call: &String| call.starts_with("--built-of");
    assert_eq!(tree.calls().iter().filter(|call| models(call)).count(), 2, "{:?}", tree.calls());
}

#[test]
fn the_first_failure_stops_the_run() {
    let tree = Tree::new();
    let said = tree.xtask_with(&tree.fake_cargo("clippy"), &["ci"]);
    said.refused("ci: FAILED in");
    assert_eq!(tree.calls(), STEPS[..2]);
    assert!(said.text.contains("not run"), "{}", said.text);
}

#[test]
fn with_keep_going_the_rest_runs_and_the_exit_code_still_tells() {
    let tree = Tree::new();
    tree.xtask_with(&tree.fake_cargo("clippy"), &["ci", "--keep-going"]).refused("ci: FAILED in");
    assert_eq!(tree.calls(), STEPS);
}

#[test]
fn a_check_that_finds_something_fails_the_run() {
    let tree = Tree::new();
    tree.write("core/layout/src/x.rs", "//! x\nfn f() { todo!() }\n");
    tree.xtask_with(&tree.fake_cargo("nothing"), &["ci"]).refused("x.rs:2: stub:");
    assert_eq!(tree.calls(), STEPS[..1]);
}

#[test]
fn single_steps_can_be_chosen() {
    let tree = Tree::new();
    let cargo = tree.fake_cargo("nothing");
    tree.xtask_with(&cargo, &["ci", "--only", "test", "--only", "layers"]).passed();
    assert_eq!(tree.calls(), STEPS[3..]);
    let said = tree.xtask_with(&cargo, &["ci", "--only", "none"]);
    assert_eq!(said.code, Some(16));
    assert!(said.text.contains("no step none; the steps are: fmt, "), "{}", said.text);
}

#[test]
fn what_there_is_not_is_misuse_and_nothing_is_started() {
    let tree = Tree::new();
    let cargo = tree.fake_cargo("nothing");
    tree.write("testing/fuzz/corpus/pool/one", "");
    for (arguments, says) in [
        (&["fuzz", "--target", "nope"][..], "no target nope; there are pool"),
        (&["models", "shuttle", "--schedules", "0"], "--schedules"),
    ] {
        let said = tree.xtask_with(&cargo, arguments);
        assert_eq!(said.code, Some(16), "{}", said.text);
        assert!(said.text.contains(says), "{}", said.text);
    }
    assert_eq!(tree.calls(), [] as [&str; 0]);
}

#[test]
fn campaigns_and_benches_get_their_arguments_as_they_came() {
    let tree = Tree::new();
    let cargo = tree.fake_cargo("bad");
    tree.xtask_with(&cargo, &["campaign", "object", "--tier", "long", "--seed", "7"]).passed();
    tree.xtask_with(&cargo, &["bench", "codes", "-q"]).passed();
    assert_eq!(
        tree.calls(),
        [
            "run --profile release -p holdfast-campaign -- object --tier long --seed 7 []",
            "run --profile release -p holdfast-bench -- codes -q []",
        ]
    );
    // The fake's own exit code: what it means is for the program to say.
    assert_eq!(tree.xtask_with(&cargo, &["campaign", "bad"]).code, Some(7));
}
