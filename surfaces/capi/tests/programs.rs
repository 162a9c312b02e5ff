//! Compiles the tests and examples in C and C++ against the header and the static library, and
//! runs them. Without a compiler it says so and passes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Longest run of a program, as `timeout` takes it.
const LIMIT: &str = "60";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The static library of the profile and target this test was built with.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    // Cargo leaves it beside the tests, or one folder up when it was asked for.
    let found = [deps.join("libholdfast_capi.a"), deps.join("../libholdfast_capi.a")];
    let newest = |path: &&PathBuf| path.metadata().and_then(|m| m.modified()).ok();
    found.iter().filter(|path| path.exists()).max_by_key(newest).unwrap().clone()
}

/// The compiler of a language, if there is one.
fn compiler(variable: &str, usual: &str) -> Option<String> {
    let name = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    let works = Command::new(&name).arg("--version").output().is_ok_and(|o| o.status.success());
    if !works {
        eprintln!("skipped: there is no `{name}`; install it, or name another by {variable}");
    }
    works.then_some(name)
}

fn expect_success(output: &Output, what: &str) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
}

/// Compiles one program and runs it with the path of a pool that does not exist yet.
fn build_and_run(source: &str) {
    let cpp = Path::new(source).extension().is_some_and(|e| e == "cpp");
    let (found, standard) = if cpp {
        (compiler("CXX", "c++"), "-std=c++17")
    } else {
        (compiler("CC", "cc"), "-std=c11")
    };
    let Some(compiler) = found else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let output = Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"])
        .args(["-D_POSIX_C_SOURCE=200809L", "-pthread"])
        .arg("-I")
        .arg(here().join("include"))
        .arg(here().join(source))
        .arg(library())
        .args(["-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    expect_success(&output, &format!("compiling {source}"));
    let output = Command::new("timeout")
        .arg(LIMIT)
        .arg(&program)
        .arg(folder.path().join("test.pool"))
        .output()
        .unwrap();
    expect_success(&output, &format!("running {source}"));
}

macro_rules! programs {
    ($($name:ident $source:literal;)+) => {$(
        #[test]
        fn $name() {
            build_and_run($source);
        }
    )+

        #[test]
        fn every_program_is_run() {
            let listed = [$($source),+];
            for folder in ["tests/c", "examples"] {
                for entry in std::fs::read_dir(here().join(folder)).unwrap() {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    let source = format!("{folder}/{name}");
                    let is_program = name.ends_with(".c") || name.ends_with(".cpp");
                    assert!(!is_program || listed.contains(&source.as_str()), "{source}");
                }
            }
        }
    };
}

programs! {
    handles_are_looked_up "tests/c/handles.c";
    addresses_are_looked_at "tests/c/nulls.c";
    handles_in_many_hands "tests/c/threads.c";
    objects_and_transactions "tests/c/objects.c";
    maps_of_all_kinds "tests/c/maps.c";
    entries_are_visited_while_the_map_changes "tests/c/cursors.c";
    damage_is_repaired "tests/c/repair.c";
    what_goes_gives_back "tests/c/raii.cpp";
    example_bank "examples/bank.c";
    example_words "examples/words.cpp";
}
