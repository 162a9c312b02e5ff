//! A program in C that attaches itself from inside: what it does from then on is seen, what it did
//! before is never taken for damage.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::{Here, rot, until};
use serde_json::Value;

const PAGE: usize = 4096;
/// Fewer than the kernel maps at once as one large page, of which one store is all it tells.
const PAGES: usize = 500;
const COMMAND: &str = env!("CARGO_BIN_EXE_holdfast");

/// Compiles the program; `None` where there is no compiler.
fn compiled(here: &Here) -> Option<PathBuf> {
    let room = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = library();
    let done = Command::new("cc")
        .args(["-Wall", "-Werror", "-O1", "-pthread", "-o"])
        .arg(here.path("attach"))
        .arg("-I")
        .arg(room.join("../preload/include"))
        .arg(room.join("tests/c/attach.c"))
        .arg(&library)
        .arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display()))
        .status();
    match done {
        Ok(done) => {
            assert!(done.success(), "it does not compile");
            Some(here.path("attach"))
        }
        Err(error) => {
            eprintln!("skipped: no C compiler: {error}");
            None
        }
    }
}

fn library() -> PathBuf {
    Path::new(COMMAND).parent().unwrap().join("deps/libholdfast_preload.so")
}

fn content() -> Vec<u8> {
    (0..PAGES * PAGE).map(|at| (at / PAGE * 5 + at % 241) as u8).collect()
}

/// A folder with the file and the program.
fn place() -> Option<(Here, PathBuf)> {
    let here = Here::new();
    fs::write(here.path("a.db"), content()).unwrap();
    let program = compiled(&here)?;
    Some((here, program))
}

fn started(here: &Here, program: &Path, options: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.current_dir(here.folder()).arg(COMMAND).arg("a.db").args(options);
    command.args(["--json", "--summary", "sum.json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for a line of the program.
fn line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line
}

/// Lets it go on to its end, and waits for what the supervisor has to say.
fn summary(here: &Here, mut child: Child) -> Value {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let done = crate::common::ended(child);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let mut found = None;
    until("a summary", || {
        let text = fs::read_to_string(here.path("sum.json")).unwrap_or_default();
        found = serde_json::from_str(&text).ok();
        found.is_some()
    });
    found.unwrap()
}

/// What the supervisor that was started in a folder has open.
fn held_by_supervisor(here: &Here) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let ours = processes.filter(|process| {
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        words.windows(7).any(|word| word == b"--serve")
            && fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == here.folder())
    });
    let held = ours.flat_map(|process| fs::read_dir(process.join("fd")).into_iter().flatten());
    held.flatten().filter_map(|fd| fs::read_link(fd.path()).ok()).collect()
}

/// What the program leaves in the file.
fn expected() -> Vec<u8> {
    let mut bytes = content();
    for (page, text) in [
        (1, "stored before"),
        (2, "written before"),
        (3, "stored after"),
        (4, "written after"),
        (5, "stored by a child"),
        (6, "last words"),
    ] {
        bytes[page * PAGE..][..text.len()].copy_from_slice(text.as_bytes());
    }
    (10..PAGES).for_each(|page| bytes[page * PAGE + 100] ^= 0x5a);
    bytes
}

#[test]
fn a_file_that_is_new_is_covered_as_it_is_and_looked_after() {
    let Some((here, program)) = place() else { return };
    let mut child = started(&here, &program, &["--period", "500ms", "--match", "*.db"]);
    assert_eq!(line(&mut child), "attached\n");
    let held = held_by_supervisor(&here);
    let has = |name: &str| held.iter().any(|path| path.ends_with(name));
    assert!(has("a.db") && has("sum.json") && !has("kept.txt"), "{held:?}");
    let sum = summary(&here, child);
    let file = &sum["files"][0];
    assert_eq!((&sum["files_exit"], &sum["spaces"]), (&0.into(), &2.into()), "{sum}");
    assert_eq!((&file["good"], &file["corrupt"]), (&PAGES.into(), &0.into()), "{sum}");
    assert!(file["bytes_by_store"].as_u64() >= Some(2 * PAGE as u64), "{sum}");
    assert!(file["bytes_by_write"].as_u64() >= Some(PAGE as u64), "{sum}");
    assert!(fs::read(here.path("a.db")).unwrap() == expected());
    for page in [1, 3, 6, 30] {
        rot(&here.path("a.db"), if page == 3 { 4 * 3 } else { page });
    }
    here.expect(1, &["repair", "a.db"]);
    assert!(fs::read(here.path("a.db")).unwrap() == expected());
}

#[test]
fn what_was_written_before_is_never_taken_for_damage() {
    let Some((here, program)) = place() else { return };
    here.good(&["protect", "a.db"]);
    let mut child = started(&here, &program, &["--period", "500ms"]);
    assert_eq!(line(&mut child), "attached\n");
    let sum = summary(&here, child);
    let file = &sum["files"][0];
    assert!(fs::read(here.path("a.db")).unwrap() == expected(), "{sum}");
    assert_eq!((&file["corrupt"], &file["repaired"]), (&0.into(), &0.into()), "{sum}");
    assert_eq!(file["changed"], true, "{sum}");
    let undecided: Vec<u64> =
        file["undecided_pages"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert!([1, 2].iter().all(|page| undecided.contains(page)), "{sum}");
    assert!(![3, 4, 6].iter().any(|page| undecided.contains(page)), "seen: {undecided:?}");
    assert_eq!(sum["files_exit"], 2, "{sum}");
}

#[test]
fn what_cannot_be_attached_goes_on_alone() {
    let Some((here, program)) = place() else { return };
    let refused = |supervisor: &str, options: &[&str], why: &str| {
        let mut command = Command::new(&program);
        command.current_dir(here.folder()).arg(supervisor).arg("a.db").args(options);
        let done = crate::common::finish(&["attach"], &mut command);
        assert_eq!((done.code, done.out), (5, format!("refused: {why}\n")), "{}", done.err);
        done.err
    };
    refused("/nowhere/holdfast", &[], "No such file or directory");
    refused("no-such-supervisor", &[], "No such file or directory");
    let told = refused(COMMAND, &["--period", "0"], "Connection refused");
    assert!(told.contains("no time"), "{told}");
    refused("/bin/false", &[], "Connection refused");
    assert!(!here.path("a.db.holdfast").exists());
}

#[test]
fn a_library_that_is_loaded_late_refuses() {
    let here = Here::new();
    let source = "#include <dlfcn.h>\n#include <errno.h>\n\
        int main(int n, char **w) { void *l = dlopen(w[1], RTLD_NOW | RTLD_GLOBAL); (void)n;\n\
        if (!l) return 2; int (*f)(const char *, const char *const *) =\n\
        (int (*)(const char *, const char *const *))dlsym(l, \"holdfast_guard_attach\");\n\
        if (!f) return 3; return f(w[2], 0) == -1 && errno == ENOTSUP ? 0 : 4; }\n";
    fs::write(here.path("late.c"), source).unwrap();
    let mut compile = Command::new("cc");
    compile.current_dir(here.folder()).args(["-o", "late", "late.c", "-ldl"]);
    match compile.status() {
        Ok(done) => assert!(done.success()),
        Err(error) => {
            eprintln!("skipped: no C compiler: {error}");
            return;
        }
    }
    let done = Command::new(here.path("late")).arg(library()).arg(COMMAND).status().unwrap();
    assert_eq!(done.code(), Some(0));
}
