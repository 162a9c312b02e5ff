//! Compiles the tests and examples in C and C++ against the header and the static library, and
//! runs them. Without a compiler it says so and passes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Longest run of a program, as `timeout` takes it: hundreds of commits one by one, and a disk that
/// is busy may take seconds for each.
const LIMIT: &str = "600";

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
fn compiler(variable: &str, usual: &str, source: &str) -> Option<String> {
    let name = std::env::var(variable).unwrap_or_else(|_| usual.to_owned());
    let works = Command::new(&name).arg("--version").output().is_ok_and(|o| o.status.success());
    if !works {
        eprintln!("{source} skipped: no `{name}`; install it, or name another by {variable}");
    }
    works.then_some(name)
}

fn expect_success(output: &Output, what: &str) {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
}

/// What the linker needs besides the library; `holdfast.pc.in` has the same.
const LIBRARIES: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

/// Compiles one program and runs it.
fn build_and_run(source: &str) {
    let include = format!("-I{}", here().join("include").display());
    let library = library();
    let libraries: Vec<_> = std::iter::once(library.to_str().unwrap()).chain(LIBRARIES).collect();
    build_and_run_with(source, &[&include], &libraries);
}

/// The same with what pkg-config says, or whoever else. It is run with the path of a pool that does
/// not exist yet.
fn build_and_run_with(source: &str, flags: &[&str], libraries: &[&str]) {
    let cpp = Path::new(source).extension().is_some_and(|e| e == "cpp");
    let (found, standard) = if cpp {
        (compiler("CXX", "c++", source), "-std=c++17")
    } else {
        (compiler("CC", "cc", source), "-std=c11")
    };
    let Some(compiler) = found else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let output = Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-g"])
        .args(["-D_POSIX_C_SOURCE=200809L", "-pthread"])
        .args(flags)
        .arg(here().join(source))
        .args(libraries)
        .arg("-o")
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

/// What is installed is what the examples say is enough: `$(pkg-config --cflags --libs holdfast)`.
#[test]
fn the_file_for_pkg_config_is_enough() {
    let works = Command::new("pkg-config").arg("--version").output().is_ok();
    if !works {
        eprintln!("holdfast.pc skipped: no `pkg-config`; install it");
        return;
    }
    let prefix = tempfile::tempdir().unwrap();
    let (include, lib) = (prefix.path().join("include"), prefix.path().join("lib"));
    std::fs::create_dir(&include).unwrap();
    std::fs::create_dir(&lib).unwrap();
    for header in ["holdfast.h", "holdfast.hpp"] {
        std::fs::copy(here().join("include").join(header), include.join(header)).unwrap();
    }
    std::fs::copy(library(), lib.join("libholdfast_capi.a")).unwrap();
    let template = std::fs::read_to_string(here().join("holdfast.pc.in")).unwrap();
    let text = template
        .replace("@PREFIX@", prefix.path().to_str().unwrap())
        .replace("@LIBDIR@", "lib")
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    assert!(!text.contains('@'), "{text}");
    std::fs::write(lib.join("holdfast.pc"), text).unwrap();
    let asked = |what: &str| {
        let output = Command::new("pkg-config")
            .env("PKG_CONFIG_PATH", &lib)
            .args(["--static", what, "holdfast"])
            .output()
            .unwrap();
        expect_success(&output, "pkg-config");
        String::from_utf8(output.stdout).unwrap()
    };
    let (flags, libraries) = (asked("--cflags"), asked("--libs"));
    let flags: Vec<_> = flags.split_whitespace().collect();
    let libraries: Vec<_> = libraries.split_whitespace().collect();
    build_and_run_with("examples/bank.c", &flags, &libraries);
    build_and_run_with("examples/words.cpp", &flags, &libraries);
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
