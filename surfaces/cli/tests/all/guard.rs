//! `guard` on the command line: programs of others, run as anybody would run them. What the summary
//! says, the codes, the signals, and what is refused with which words.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::common::{Done, Here, rot};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PAGE: usize = 4096;

/// A folder with a file of so many pages.
fn with_file(pages: usize) -> Here {
    let here = Here::new();
    let content: Vec<u8> = (0..pages * PAGE).map(|at| (at / PAGE * 7 + at % 251) as u8).collect();
    fs::write(here.path("a.db"), content).unwrap();
    here
}

/// Overwrites a page by `write`, through the shell's own tools.
fn dd(page: usize) -> String {
    format!("printf '%04096d' {page} | dd of=a.db bs=4096 seek={page} conv=notrunc status=none")
}

/// Runs `sh` under guard; the summary as an object, and what the program printed.
fn sh(here: &Here, code: i32, options: &[&str], script: &str) -> (Value, Done) {
    let mut words = vec!["guard", "--json", "--summary", "sum.json"];
    words.extend(options);
    words.extend(["--", "sh", "-c", script]);
    let done = here.expect(code, &words);
    let text = fs::read_to_string(here.path("sum.json")).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["schema"], &value["command"]), (&1.into(), &"guard".into()));
    assert_eq!(value["exit"], code, "{value}");
    (value, done)
}

/// Waits until something is so.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what} does not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_program_runs_as_it_does_alone_and_its_file_is_covered() {
    let here = with_file(20);
    let script = format!("{}; read line; echo \"said $line\"; echo beside >&2", dd(3));
    let mut child = here.started(&["guard", "--match", "*.db", "--", "sh", "-c", &script]);
    use std::io::Write;
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let done = crate::common::ended(child);
    assert_eq!((done.code, done.out.as_str()), (0, "said hello\n"), "{}", done.err);
    assert!(done.err.starts_with("beside\n"), "{}", done.err);
    // `dd` makes the file its standard output, by which the C library may write whenever it likes:
    // more counts as written than was.
    assert!(!done.err.contains("by write 0;"), "{}", done.err);
    for told in ["a.db: 20 pages, 20 good", "by write", "passes", "waited", "corrupt 0"] {
        assert!(done.err.contains(told), "{told}: {}", done.err);
    }
    here.good(&["verify", "a.db"]);
    // It has a side file now, so no pattern is needed; rot is put right, and told by the code.
    let before = fs::read(here.path("a.db")).unwrap();
    rot(&here.path("a.db"), 9);
    let (sum, done) = sh(&here, 1, &[], "exec 3<>a.db");
    assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""));
    let file = &sum["files"][0];
    assert_eq!(
        (&file["repaired"], &file["corrupt"], &file["lost"]),
        (&1.into(), &1.into(), &0.into())
    );
    assert_eq!(
        (&file["good"], &file["pages"], &file["closed"]),
        (&20.into(), &20.into(), &true.into())
    );
    assert!(fs::read(here.path("a.db")).unwrap() == before);
    // What was written meanwhile without us is undecided, and left.
    fs::write(here.path("a.db"), vec![1; 20 * PAGE]).unwrap();
    let (sum, _) = sh(&here, 4, &[], "exec 3<>a.db");
    let file = &sum["files"][0];
    assert_eq!(
        (&file["undecided"], &file["repaired"], &file["changed"]),
        (&20.into(), &0.into(), &true.into())
    );
    assert_eq!(file["reasons"][0]["pages"], 20, "{file}");
    assert!(fs::read(here.path("a.db")).unwrap() == vec![1; 20 * PAGE]);
}

#[test]
fn a_drill_damages_and_gives_back_and_is_no_damage() {
    let here = with_file(40);
    let before = fs::read(here.path("a.db")).unwrap();
    let drill = ["--match", "*.db", "--period", "30ms", "--drill", "3", "--drill-seed", "9"];
    let (sum, _) = sh(&here, 0, &drill, "exec 3<>a.db; sleep 1");
    let file = &sum["files"][0];
    assert!(file["drilled"].as_u64() > Some(0), "{file}");
    for same in ["given_back", "corrupt", "repaired"] {
        assert_eq!(file[same], file["drilled"], "{file}");
    }
    assert_eq!((&sum["drill_seed"], &file["drill_kept"]), (&9.into(), &Value::Array(vec![])));
    assert!(fs::read(here.path("a.db")).unwrap() == before);
    here.good(&["verify", "a.db"]);
    // Without a seed one is made up, and told.
    let words = ["guard", "--period", "100ms", "--drill", "1", "--", "sh", "-c"];
    let done = here.good(&[&words[..], &["exec 3<>a.db; sleep 2"]].concat());
    assert!(done.err.contains("  drilled ") && !done.err.contains("drilled 0"), "{}", done.err);
    assert!(done.err.contains("drills from seed"), "{}", done.err);
    here.expect(16, &["guard", "--drill", "0", "--", "true"]);
}

#[test]
fn the_code_is_the_programs_if_it_failed() {
    let here = with_file(4);
    let (sum, _) = sh(&here, 7, &["--match", "*.db"], &format!("{}; exit 7", dd(1)));
    assert_eq!((&sum["program"]["code"], &sum["files_exit"]), (&7.into(), &0.into()));
    let (sum, _) = sh(&here, 128 + 9, &[], "kill -9 $$");
    assert_eq!(sum["program"]["signal"], 9);
    assert_eq!(sum["files"], Value::Array(Vec::new()), "nobody opened it");
    here.good(&["verify", "a.db"]);
}

#[test]
fn signals_are_the_programs_and_the_summary_comes_all_the_same() {
    let here = with_file(4);
    let script = format!(
        "trap 'exit 5' TERM; trap '' INT; {}; : > ready; while :; do sleep 0.05; done",
        dd(2)
    );
    let child = here.started(&["guard", "--match", "*.db", "--", "sh", "-c", &script]);
    until("the program", || here.path("ready").exists());
    signal(&child, Signal::INT);
    signal(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    signal(&child, Signal::TERM);
    let done = crate::common::ended(child);
    assert_eq!(done.code, 5, "{}", done.err);
    assert!(done.err.contains("a.db: 4 pages, 4 good"), "{}", done.err);
    // What the program leaves behind is guarded on, until it is told to end, too.
    let script = "sleep 300 & echo $$ $! > made; mv made again; wait";
    let child = here.started(&["guard", "--", "sh", "-c", script]);
    until("the program", || here.path("again").exists());
    signal(&child, Signal::TERM);
    let again = fs::read_to_string(here.path("again")).unwrap();
    let (gone, left) = again.trim().split_once(' ').unwrap();
    let (gone, left) = (Path::new("/proc").join(gone), Path::new("/proc").join(left));
    // A second signal that comes before would be one with the first.
    until("the end of the program", || !gone.exists());
    assert!(left.exists(), "it was not told yet");
    signal(&child, Signal::TERM);
    let done = crate::common::ended(child);
    assert_eq!(done.code, 128 + 15, "{}", done.err);
    assert!(!left.exists());
}

#[test]
fn what_cannot_be_guarded_is_not_started() {
    let here = with_file(4);
    let refused = |code: i32, words: &[&str], cause: &str| {
        let done = here.expect(code, &[&["guard"], words].concat());
        assert!(done.err.contains(cause), "{words:?}: {}", done.err);
        let done = here.expect(code, &[&["guard", "--json"], words].concat());
        let object: Value = serde_json::from_str(&done.out).unwrap();
        assert!(object["error"]["remedy"].is_string() && object["exit"] == code, "{object}");
    };
    refused(16, &[], "PROGRAM");
    refused(16, &["--"], "PROGRAM");
    refused(16, &["--period", "0", "--", "true"], "no time");
    refused(16, &["--match", "", "--", "true"], "empty");
    refused(16, &["--match", "*.[ab]", "--", "true"], "`[`");
    refused(16, &["--match", "*.db:0s", "--", "true"], "no time");
    refused(16, &["--own-core", "0", "--same-core", "--", "true"], "cannot be used with");
    refused(8, &["--own-core", "4000", "--", "true"], "processor 4000");
    refused(8, &["--", "no-such-program"], "no such program");
    refused(8, &["--", "./nowhere"], "no such program");
    refused(8, &["--", "./a.db"], "not executable");
    refused(8, &["--preload", "nowhere.so", "--", "true"], "nowhere.so");
    refused(8, &["--preload", "/", "--", "true"], "no library");
    refused(8, &["--summary", "/nowhere/sum", "--", "true"], "/nowhere/sum");
    let program = |name: &str, bytes: &[u8], mode: u32| {
        fs::write(here.path(name), bytes).unwrap();
        fs::set_permissions(here.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    let shell = fs::read("/bin/sh").unwrap();
    program("uid", &shell, 0o4755);
    refused(8, &["--", "./uid"], "set-uid");
    let mut other = shell.clone();
    other[18] = 183;
    program("other", &other, 0o755);
    refused(8, &["--", "./other"], "another machine");
    program("script", b"#!/nowhere/interpreter\n", 0o755);
    refused(8, &["--", "./script"], "cannot be guarded");
    assert!(!here.path("a.db.holdfast").exists());
}

#[test]
fn files_that_cannot_be_guarded_are_told_at_once_and_the_program_runs() {
    let here = with_file(700);
    here.good(&["protect", "a.db"]);
    let good = fs::read(here.path("a.db.holdfast")).unwrap();
    let data = fs::read(here.path("a.db")).unwrap();
    let at = good.windows(8).position(|word| word == b"HOLDSIDE").unwrap();
    let mut damaged = good.clone();
    for copy in [0, 64 << 10] {
        damaged[copy + at + 60] ^= 1;
    }
    let cases = [
        (&good[..1000], "a.db.holdfast"),
        (&vec![0; 200_000][..], "not a side file"),
        (&damaged, "headers of the side file are damaged"),
        (&crate::common::newer(&good, at), "version 9"),
    ];
    for (side, cause) in cases {
        fs::write(here.path("a.db.holdfast"), side).unwrap();
        let (sum, done) = sh(&here, 8, &[], "exec 3<>a.db; echo ran");
        assert_eq!(done.out, "ran\n");
        assert!(done.err.contains("not guarded") && done.err.contains(cause), "{}", done.err);
        assert_eq!(sum["refused"].as_array().unwrap().len(), 1, "{sum}");
        assert!(fs::read(here.path("a.db.holdfast")).unwrap() == side, "{cause}");
        assert!(fs::read(here.path("a.db")).unwrap() == data);
    }
    // Of another file: nothing in it is taken for damage.
    fs::write(here.path("a.db.holdfast"), &good).unwrap();
    fs::remove_file(here.path("a.db")).unwrap();
    fs::write(here.path("a.db"), vec![3; 700 * PAGE]).unwrap();
    let (sum, _) = sh(&here, 4, &[], "exec 3<>a.db");
    assert_eq!(
        (&sum["files"][0]["changed"], &sum["files"][0]["repaired"]),
        (&true.into(), &0.into())
    );
    assert!(fs::read(here.path("a.db")).unwrap() == vec![3; 700 * PAGE]);
}

#[test]
fn a_second_guard_leaves_the_file_to_the_first() {
    let here = with_file(4);
    let script = format!("{}; : > ready; read line; exit 0", dd(2));
    let mut child = here.started(&["guard", "--match", "*.db", "--", "sh", "-c", &script]);
    until("the program", || here.path("ready").exists());
    let (sum, done) = sh(&here, 8, &["--match", "*.db"], "exec 3<>a.db");
    let why = sum["refused"][0]["why"].as_str().unwrap();
    assert!(why.contains(&format!("process {}", child.id())), "{why}");
    assert!(done.err.contains("not guarded"), "{}", done.err);
    // The end of its input is the end of the program.
    drop(child.stdin.take());
    let done = crate::common::ended(child);
    // The other program had it open for writing: from then on nobody can be sure.
    assert!(done.code == 8 || done.code == 0, "{}", done.err);
    here.good(&["verify", "a.db"]);
}

#[test]
fn commands_on_a_guarded_file_say_who_guards_it_and_leave_it_alone() {
    let here = with_file(8);
    let script = format!("{}; : > ready; read line; exit 0", dd(2));
    let mut words = vec!["guard", "--json", "--summary", "sum.json", "--match", "*.db"];
    words.extend(["--period", "50ms", "--", "sh", "-c", &script]);
    let mut child = here.started(&words);
    until("the program", || here.path("ready").exists());
    std::thread::sleep(Duration::from_millis(200));
    let told = here.good(&["status", "a.db"]).out;
    let by = format!("guarded by process {} since 20", child.id());
    assert!(told.contains(&by) && told.contains("8 of 8 pages"), "{told}");
    let status = here.json(0, &["status", "a.db"]);
    assert_eq!((&status["guarded"], &status["process"]), (&true.into(), &child.id().into()));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs() as i64 - (status["since_ns"].as_u64().unwrap() / 1_000_000_000) as i64;
    assert!((-3..60).contains(&age), "{age}");
    for words in [
        &["verify", "a.db"][..],
        &["repair", "a.db"],
        &["repair", "a.db", "--force"],
        &["repair", "a.db", "--before", "b"],
        &["unprotect", "a.db"],
        &["unprotect", "a.db", "--force"],
        &["protect", "a.db"],
        &["protect", "a.db", "--again"],
    ] {
        let done = here.expect(8, words);
        assert!(done.err.contains(&by) && done.err.contains("nothing was changed"), "{}", done.err);
        assert_eq!(here.json(8, words)["error"]["kind"], "locked", "{words:?}");
    }
    // The end of its input is the end of the program.
    drop(child.stdin.take());
    let done = crate::common::ended(child);
    let sum: Value = serde_json::from_slice(&fs::read(here.path("sum.json")).unwrap()).unwrap();
    assert_eq!(done.code, 0, "being asked is no writing: {sum}");
    here.good(&["verify", "a.db"]);
}

#[test]
fn files_have_periods_of_their_own() {
    let here = with_file(4);
    fs::copy(here.path("a.db"), here.path("b.log")).unwrap();
    let script = "exec 3<>a.db 4<>b.log; sleep 1.2";
    let options = ["--period", "1min", "--match", "*.db", "--match", "*.log:100ms"];
    let (sum, _) = sh(&here, 0, &options, script);
    let of = |name: &str| {
        let files = sum["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"].as_str().unwrap().ends_with(name));
        let file = file.unwrap_or_else(|| panic!("{name}: {sum}"));
        (file["period_ns"].as_u64().unwrap(), file["passes"].as_u64().unwrap())
    };
    let (slow, quick) = (of("a.db"), of("b.log"));
    assert_eq!((slow.0, quick.0), (60_000_000_000, 100_000_000));
    assert!(slow.1 <= 1 && quick.1 >= 4, "{slow:?} {quick:?}");
}

#[test]
fn its_own_processor_is_its_own() {
    let here = with_file(4);
    let cpus = fs::read_to_string("/proc/self/status").unwrap();
    let list = cpus.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let first: String = list.trim().chars().take_while(char::is_ascii_digit).collect();
    if list.trim() == first {
        eprintln!("skipped: one processor only");
        return;
    }
    let script = "grep Cpus_allowed_list /proc/self/status";
    let (sum, done) = sh(&here, 0, &["--own-core", &first], script);
    let (_, mask) = done.out.split_once('\t').unwrap();
    assert!(!mask.trim().split([',', '-']).any(|number| number == first), "{mask}");
    assert_eq!(sum["placement"]["own"].to_string(), first);
    assert!(sum["spent_ns"].as_u64().unwrap() > 0);
    let (sum, _) = sh(&here, 0, &["--same-core"], "true");
    assert_eq!(sum["placement"], "same");
}
