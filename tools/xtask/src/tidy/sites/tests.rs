//! What the rule about sites refuses and what it leaves alone.

use super::super::at;
use super::*;

const COMMIT: &str = "engines/object/src/commit.rs";

fn texts(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<_> = files.iter().map(|(path, text)| at(path, text)).collect();
    check(&sources).into_iter().map(|finding| finding.to_string()).collect()
}

fn refused(text: &str, part: &str) {
    let found = texts(&[(COMMIT, text)]);
    assert!(found.len() == 1 && found[0].contains(part), "{text}: {found:?}");
}

#[test]
fn a_named_site_used_once_passes() {
    let text = "const F1: Site = Site::new(\"object.commit.F1\");\n\
                fn f(medium: &M, site: Site) {\n medium.drain(F1);\n medium.put(site, 0, b);\n \
                medium.xor(Site::new(\"object.commit.parity\"), 0, d);\n \
                medium.put(self.sites.record, 0, b);\n}\n\
                fn g(m: &M, heal: Site) {\n m.heal(heal, 0, p);\n}";
    assert_eq!(texts(&[(COMMIT, text)]), [""; 0]);
    let sources = [at(COMMIT, text)];
    assert_eq!(count(&sources), 2);
    assert_eq!(
        list(&sources),
        format!("object.commit.F1\t{COMMIT}:1\tdrain\nobject.commit.parity\t{COMMIT}:5\txor\n")
    );
}

#[test]
fn names_are_unique_over_all_crates() {
    let text = "fn f() { g(Site::new(\"object.commit.F1\")); g(Site::new(\"object.commit.F1\")); }";
    refused(text, "names engines/object/src/commit.rs:1 too");
}

#[test]
fn names_say_crate_and_file() {
    for name in ["F1", "commit.F1", "Object.commit.F1", "object.commit.", "object.commit.f 1"] {
        refused(&format!("fn f() {{ g(Site::new({name:?})); }}"), "write crate.file.Name");
    }
    for name in ["heap.commit.F1", "object.recover.F1"] {
        refused(&format!("fn f() {{ g(Site::new({name:?})); }}"), "start it with object.commit");
    }
    let deep = "fn f() { g(Site::new(\"object.commit.apply.data\")); }";
    assert_eq!(texts(&[("engines/object/src/commit/apply.rs", deep)]), [""; 0]);
}

#[test]
fn a_name_is_a_literal_even_in_a_macro() {
    refused("fn f(n: &'static str) { g(Site::new(n)); }", "named by a literal");
    let hidden = "macro_rules! site { ($n:expr) => { Site::new(concat!(\"object.\", $n)) } }";
    refused(hidden, "named by a literal");
}

#[test]
fn a_call_on_a_medium_carries_a_site() {
    for call in ["medium.put(at, b)", "self.medium.drain(x)", "pool.medium().sync(y)"] {
        refused(&format!("fn f() {{ {call}; }}"), "carries no site");
    }
}

#[test]
fn calls_on_other_things_are_left_alone() {
    for call in
        ["vec.drain(..3)", "m.append(&mut other)", "map.put(k, v)", "file.sync()", "it.step(2)"]
    {
        assert_eq!(texts(&[(COMMIT, &format!("fn f() {{ {call}; }}"))]), [""; 0], "{call}");
    }
}

#[test]
fn a_constant_stands_for_one_place() {
    let head = "const F1: Site = Site::new(\"object.commit.F1\");\n";
    let twice = format!("{head}fn f() {{ m.drain(F1); }}\nfn g() {{ m.drain(F1); }}");
    refused(&twice, "one site, one place");
    let guarded = format!("{head}fn f() {{ if m.enabled(F1) {{ m.drain(F1); }} }}");
    assert_eq!(texts(&[(COMMIT, &guarded)]), [""; 0]);
    let elsewhere = "const F1: Site = Site::new(\"object.repair.F1\");\nfn f() { m.drain(F1); }";
    let once = format!("{head}fn f() {{ m.drain(F1); }}");
    assert_eq!(texts(&[(COMMIT, &once), ("engines/object/src/repair.rs", elsewhere)]), [""; 0]);
}

#[test]
fn a_constant_shared_by_files_stands_for_one_place_too() {
    let sites = "pub const F1: Site = Site::new(\"object.sites.F1\");";
    let user = "use crate::sites;\nfn f() { m.drain(sites::F1); }";
    let found = texts(&[
        ("engines/object/src/sites.rs", sites),
        ("engines/object/src/commit.rs", user),
        ("engines/object/src/recover.rs", user),
    ]);
    assert!(found.len() == 1 && found[0].contains("one site, one place"), "{found:?}");
}

#[test]
fn a_site_nobody_uses_is_refused() {
    refused("pub const F1: Site = Site::new(\"object.commit.F1\");", "used nowhere");
    let typed = "pub const F1: pmem::Site = pmem::Site::new(\"object.commit.F1\");";
    refused(typed, "used nowhere");
}

#[test]
fn tests_and_other_groups_name_sites_as_they_like() {
    let text = "fn f() { m.put(Site::new(\"x\"), 0, b); }";
    assert_eq!(texts(&[("testing/bench/src/x.rs", text)]), [""; 0]);
    assert_eq!(texts(&[("engines/object/tests/x.rs", text)]), [""; 0]);
    let inside = format!("#[cfg(test)]\nmod tests {{ {text} }}");
    assert_eq!(texts(&[(COMMIT, &inside)]), [""; 0]);
}

#[test]
fn a_constant_is_handed_to_one_helper_once() {
    let head = "use crate::F2;\nconst F1: Site = Site::new(\"object.commit.F1\");\n";
    let once = format!("{head}fn f() {{ if m.enabled(F1) {{ self.side.put_bits(F1, a); }} }}");
    assert_eq!(texts(&[(COMMIT, &once)]), [""; 0]);
    let twice = format!("{head}fn f() {{ put_bits(F1, a); put_bits(F1, b); }}");
    refused(&twice, "handed on at");
    let asked = format!("{head}fn f() {{ m.enabled(F1); g(F1); }}\nfn g() {{ m.enabled(F1); }}");
    refused(&asked, "asked about at");
    // Also from another file, unless that has one of its own.
    let sites = "pub(crate) const F1: Site = Site::new(\"object.sites.F1\");\nfn f() { g(F1); }";
    let user = "use crate::sites::{self, F1};\nfn f() { g(sites::F1, a); }";
    let found = texts(&[("engines/object/src/sites.rs", sites), (COMMIT, user)]);
    assert!(found.len() == 1 && found[0].contains("handed on at"), "{found:?}");
}
