//! The checks on a real workspace, through cargo and git: it passes, and each breakage is named.

use crate::support::Tree;

#[test]
fn a_clean_workspace_passes_every_check() {
    let tree = Tree::new();
    for check in ["layers", "tidy", "formats", "papers"] {
        tree.xtask(&[check]).passed();
    }
    let said = tree.xtask(&["formats"]);
    assert!(said.text.contains("1 structures, 2 fields"), "{}", said.text);
}

#[test]
fn layers_reads_the_edges_from_the_manifests() {
    let tree = Tree::new();
    let up = "holdfast-layout = { path = \"../../core/layout\" }";
    tree.crate_at("base/codes", "holdfast-codes", up);
    tree.xtask(&["layers"]).refused("base/codes/Cargo.toml: layers: holdfast-codes may not depend");

    // The same edge for tests, for a build script, and for one kind of machine only.
    for table in ["dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
        tree.crate_at("base/codes", "holdfast-codes", &format!("[{table}]\n{up}"));
        tree.xtask(&["layers"]).refused("above it (core over base)");
    }
    let renamed = "x = { package = \"holdfast-layout\", path = \"../../core/layout\" }";
    tree.crate_at("base/codes", "holdfast-codes", renamed);
    tree.xtask(&["layers"]).refused("holdfast-codes may not depend on holdfast-layout");
}

#[test]
fn layers_refuses_a_crate_it_does_not_know() {
    let tree = Tree::new();
    tree.crate_at("core/common", "holdfast-common", "");
    tree.xtask(&["layers"])
        .refused("core/common/Cargo.toml: layers: crate holdfast-common has no row");
}

#[test]
fn tidy_names_file_line_and_rule_of_each_breakage() {
    let tree = Tree::new();
    let name = concat!("Pango", "lin");
    let cases = [
        ("core/layout/src/x.rs", "fn f() {}\n", "core/layout/src/x.rs:1: module-doc:"),
        ("core/layout/src/x.rs", "//! x\nfn f() {\n", "core/layout/src/x.rs:2: parse: not Rust"),
        ("core/layout/src/x.rs", "//! x\nfn f() { g().unwrap() }\n", "x.rs:2: unwrap:"),
        ("core/layout/src/x.rs", "//! x\nunsafe impl Send for S {}\n", "x.rs:2: safety:"),
        ("core/layout/src/x.rs", "//! x\nconst CRC_AT: u64 = 8;\n", "x.rs:2: offsets:"),
        ("core/layout/src/x.rs", "//! x\nfn f() { Site::new(\"A\"); }\n", "x.rs:2: sites:"),
        ("core/layout/src/x.rs", "//! x\nfn f() { println!(); }\n", "x.rs:2: output:"),
        ("core/layout/tests/x.rs", "//! x\nfn f() { todo!() }\n", "x.rs:2: stub:"),
        (
            "core/layout/tests/x.rs",
            "//! x\n#[test]\n#[ignore]\nfn f() {}\n",
            "x.rs:3: ignored-test:",
        ),
        ("docs/x.md", "text\n[a](b.md)\n", "docs/x.md:2: links:"),
    ];
    for (path, text, part) in cases {
        tree.write(path, text);
        tree.xtask(&["tidy"]).refused(part);
        tree.remove(path);
    }
    tree.write("docs/x.md", &format!("like {name}\n"));
    tree.xtask(&["tidy"]).refused("docs/x.md:1: names:");
    tree.write("docs/papers.md", &format!("like {name}\n# Mechanisms\n"));
    tree.remove("docs/x.md");
    tree.xtask(&["tidy"]).passed();
}

#[test]
fn tidy_looks_at_manifests_and_crate_docs() {
    let tree = Tree::new();
    let manifest = tree.read("base/codes/Cargo.toml");
    tree.write("base/codes/Cargo.toml", &manifest.replace("description = \"A crate\"\n", ""));
    tree.xtask(&["tidy"])
        .refused("base/codes/Cargo.toml: manifest: holdfast-codes has no description");
    tree.write("base/codes/Cargo.toml", &manifest.replace("[lints]\nworkspace = true\n", ""));
    tree.xtask(&["tidy"]).refused("base/codes/Cargo.toml: manifest: add `[lints]`");
    tree.write("base/codes/Cargo.toml", &manifest);
    tree.write("base/codes/src/lib.rs", "//! Short.\n");
    tree.xtask(&["tidy"]).refused("base/codes/src/lib.rs:1: crate-doc: crate doc of 1 lines");
}

#[test]
fn tidy_sees_new_files_but_not_ignored_or_deleted_ones() {
    let tree = Tree::new();
    tree.write("target/x.rs", "fn f() { todo!() }\n");
    tree.write("core/layout/src/gone.rs", "fn f() { todo!() }\n");
    let git =
        std::process::Command::new("git").args(["add", "."]).current_dir(tree.root()).status();
    assert!(git.expect("git runs").success());
    tree.xtask(&["tidy"]).refused("core/layout/src/gone.rs:1: stub:");
    tree.remove("core/layout/src/gone.rs");
    tree.xtask(&["tidy"]).passed();
}

#[test]
fn sites_are_listed_by_name() {
    let tree = Tree::new();
    let text = "//! x\nfn f() {\n    m.put(Site::new(\"layout.x.B\"), 0, b);\n    \
                m.drain(Site::new(\"layout.x.A\"));\n}\n";
    tree.write("core/layout/src/x.rs", text);
    let said = tree.xtask(&["tidy", "--sites"]);
    said.passed();
    let lines =
        "layout.x.A\tcore/layout/src/x.rs:4\tdrain\nlayout.x.B\tcore/layout/src/x.rs:3\tput\n";
    assert_eq!(said.text, lines);
    tree.xtask(&["tidy"]).passed();
}

#[test]
fn formats_compares_code_and_pages_and_drafts_the_tables() {
    let tree = Tree::new();
    let page = tree.read("docs/formats/layout.md");
    tree.write("docs/formats/layout.md", &page.replace("| 8 | 4 | `crc`", "| 8 | 8 | `crc`"));
    tree.xtask(&["formats"])
        .refused("docs/formats/layout.md:9: formats: layout HEAD: the page has");
    let said = tree.xtask(&["formats", "--print"]);
    said.passed();
    assert!(said.text.contains("| 8 | 4 | `crc` | sum of the rest | bit rot |"), "{}", said.text);
    tree.write("docs/formats/layout.md", &said.text);
    tree.xtask(&["formats"]).passed();
    tree.remove("docs/formats/layout.md");
    tree.xtask(&["formats"]).refused("core/layout/src/format.rs:6: formats: no table");
}

#[test]
fn papers_needs_modules_and_tests_that_exist() {
    let tree = Tree::new();
    tree.write("core/layout/tests/head.rs", "//! Heads.\n\n#[test]\nfn renamed() {}\n");
    tree.xtask(&["papers"])
        .refused("docs/papers.md:5: papers: O1: there is no test fn head_is_read");
}

#[test]
fn what_cannot_run_says_why_and_exits_with_eight() {
    let tree = Tree::new();
    tree.remove("docs/papers.md");
    let said = tree.xtask(&["papers"]);
    assert_eq!(said.code, Some(8));
    assert!(said.text.contains("no docs/papers.md"), "{}", said.text);
    tree.write("Cargo.toml", "[workspace\n");
    let said = tree.xtask(&["layers"]);
    assert_eq!(said.code, Some(8));
    assert!(said.text.contains("cargo metadata failed"), "{}", said.text);
}
