//! What a file in use leaves uncovered, asked of whoever keeps it; traces of it; what the journal
//! of a side file says. Codes that tell damage from what a person has to decide.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Here, PAGE, dd, ended, rot, signal, until, until_it_stands};

const PAGES: usize = 40;

/// A folder with a file.
fn with_file() -> Here {
    Here::with_file(PAGES)
}

/// A guard whose program does this, says so, and ends with its input.
fn guarded(here: &Here, options: &[&str], does: &str) -> Child {
    let script = format!("exec 3<>a.db; {does}; : > ready; read line; exit 0");
    let first = ["guard", "--json", "--summary", "sum.json", "--match", "*.db"];
    let child = here.started(&[&first, options, &["--", "sh", "-c", &script]].concat());
    until("the program", || here.path("ready").exists());
    child
}

/// The end of it: nothing that was asked has disturbed it.
fn well(here: &Here, mut child: Child) -> Value {
    drop(child.stdin.take());
    let done = ended(child);
    let sum: Value = serde_json::from_slice(&fs::read(here.path("sum.json")).unwrap()).unwrap();
    assert_eq!(done.code, 0, "{sum}");
    sum
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_guard_tells_what_is_not_covered_and_goes_on() {
    let here = with_file();
    let child = guarded(&here, &["--period", "1min"], &format!("{}; {}", dd(3), dd(21)));
    // One that is held up may be too late with its answer.
    let mut status = Value::Null;
    until("an answer", || {
        status = here.json(0, &["status", "a.db"]);
        status["live"] == true
    });
    assert_eq!(status["guarded"], true, "{status}");
    assert_eq!((&status["process"], &status["pages"]), (&child.id().into(), &PAGES.into()));
    // The file was made to be guarded just now: nothing is known to be covered before a pass.
    assert!(number(&status["without_sum"]) >= 2, "{status}");
    assert!(number(&status["oldest_uncovered_ns"]) > 0, "{status}");
    assert_eq!((&status["period_ns"], &status["left"]), (&60_000_000_000_u64.into(), &0.into()));
    assert_eq!(status["tracking"], "async protect");
    let mut told = String::new();
    until("an answer in words", || {
        told = here.good(&["status", "a.db"]).out;
        !told.contains("not shown")
    });
    for word in ["guarded by process", "one each 60.00 s", "verdicts", "windows by share"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    // One that stands still does not answer: a second later it is what the side file says.
    signal(&child, Signal::STOP);
    until_it_stands(child.id());
    let began = Instant::now();
    let status = here.json(0, &["status", "a.db"]);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!((&status["live"], &status["guarded"]), (&false.into(), &true.into()), "{status}");
    assert!(status.get("windows").is_none(), "{status}");
    let told = here.good(&["status", "a.db"]).out;
    assert!(told.contains("did not answer within a second"), "{told}");
    signal(&child, Signal::CONT);
    until("an answer", || here.json(0, &["status", "a.db"])["live"] == true);
    well(&here, child);
    here.good(&["verify", "a.db"]);
    assert_eq!(here.json(0, &["status", "a.db"])["live"], false);
}

#[test]
fn windows_and_verdicts_are_those_of_the_last_passes() {
    let here = with_file();
    let child = guarded(&here, &["--period", "50ms"], &dd(3));
    let mut status = Value::Null;
    until("a look at all of it", || {
        status = here.json(0, &["status", "a.db"]);
        // There are no verdicts in an answer that the guard was too late for.
        let looked = status["verdicts"]["at_ns"].as_u64() > Some(0);
        let all = looked && status["without_sum"] == 0;
        all && status["windows"].as_array().is_some_and(|windows| windows.len() > 3)
    });
    assert_eq!(status["verdicts"]["good"], PAGES, "{status}");
    assert_eq!(status["verdicts"]["corrupt"], 0);
    let windows = status["windows"].as_array().unwrap();
    assert!(windows.iter().all(|window| window["pages"] == PAGES), "{status}");
    assert!(windows.iter().any(|window| window["stored"] == 0), "{status}");
    let classes = status["window_histogram"].as_array().unwrap();
    assert_eq!(classes.iter().map(number).sum::<u64>(), windows.len() as u64);
    assert_eq!(status["last_pass_ns"], windows.last().unwrap()["time_ns"]);
    assert!(number(&status["longest_wait_ns"]) > 0, "{status}");
    well(&here, child);
}

#[test]
fn a_trace_tells_how_much_was_not_covered() {
    let here = with_file();
    let options = ["--period", "50ms", "--trace", "traces"];
    let does = format!("sleep 0.3; {}; {}; sleep 0.3", dd(3), dd(21));
    let child = guarded(&here, &options, &does);
    // While it runs, too.
    let trace = here.path("traces/a.db.trace");
    until("a trace", || fs::read_to_string(&trace).is_ok_and(|text| text.lines().count() > 3));
    here.json(0, &["status", "--trace", "traces/a.db.trace"]);
    well(&here, child);
    let found = here.json(0, &["status", "--trace", "traces/a.db.trace"]);
    let (passes, single) = (number(&found["passes"]), &found["joined"][0]);
    assert!(passes > 3 && single["windows"] == passes && single["passes"] == 1, "{found}");
    let shares = ["mean_share", "largest_share", "largest_share_stripes"];
    let shares = shares.map(|share| single[share].as_f64().unwrap());
    assert!(shares.is_sorted() && shares[0] > 0.0 && shares[2] <= 1.0, "{found}");
    assert!(number(&single["most_pages"]) >= 1, "{found}");
    let lasts =
        single["lasts_times"].as_f64().unwrap() * single["mean_share_stripes"].as_f64().unwrap();
    assert!((lasts - 1.0).abs() < 1e-9, "{found}");
    let told = here.good(&["status", "--trace", "traces/a.db.trace", "--data", "8"]).out;
    assert!(told.contains("stripes of 8 pages") && told.contains("1 pass"), "{told}");
    assert!(told.contains("x as long"), "{told}");
    // What is none is told by its line.
    fs::write(here.path("none"), "holdfast-trace 1\n5 10 3+8\n").unwrap();
    let done = here.expect(8, &["status", "--trace", "none"]);
    assert!(done.err.contains("line 2 of the trace"), "{}", done.err);
    fs::write(here.path("none"), [0xff; 300]).unwrap();
    here.expect(8, &["status", "--trace", "none"]);
    here.expect(8, &["status", "--trace", "nowhere"]);
    here.expect(8, &["status", "--trace", "."]);
    here.expect(16, &["status"]);
    here.expect(16, &["status", "a.db", "--trace", "none"]);
    here.expect(8, &["guard", "--trace", "none", "--", "true"]);
}

/// Damages two pages of a stripe, which is more than its parity gives back.
fn beyond(path: &Path) {
    rot(path, 8);
    rot(path, 9);
}

#[test]
fn codes_tell_damage_from_what_a_person_decides() {
    let here = with_file();
    let path = here.path("a.db");
    here.good(&["protect", "a.db"]);
    let content = fs::read(&path).unwrap();
    // Damage only.
    beyond(&path);
    here.expect(4, &["verify", "a.db"]);
    assert_eq!(here.json(0, &["status", "a.db"])["left"], 0, "nobody found it yet");
    here.expect(4, &["repair", "a.db"]);
    // Once it is in the journal, status knows, too.
    let status = here.json(4, &["status", "a.db"]);
    assert_eq!((&status["left"], &status["journal"]["lost"]), (&2.into(), &2.into()), "{status}");
    assert!(here.expect(4, &["status", "a.db"]).out.contains("damage left"));
    // Both: somebody wrote meanwhile, and a repair looked at it.
    let with = |page: usize| {
        let file = fs::File::options().write(true).open(&path).unwrap();
        let at = (page * PAGE) as u64;
        std::os::unix::fs::FileExt::write_all_at(&file, b"somebody", at).unwrap();
    };
    with(20);
    let found = here.json(2, &["verify", "a.db"]);
    assert_eq!((&found["corrupt"], &found["undecided"]), (&0.into(), &3.into()), "all may be");
    here.expect(2, &["repair", "a.db"]);
    here.expect(2, &["status", "a.db"]);
    // Of what is damaged after that it is known again.
    rot(&path, 30);
    rot(&path, 31);
    here.expect(6, &["verify", "a.db"]);
    here.expect(6, &["repair", "a.db"]);
    here.expect(6, &["status", "a.db"]);
    // Repaired, and undecided still.
    let mut now = fs::read(&path).unwrap();
    now[30 * PAGE..31 * PAGE].copy_from_slice(&content[30 * PAGE..31 * PAGE]);
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, &now).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    here.expect(3, &["repair", "a.db"]);
    here.expect(2, &["status", "a.db"]);
    // What was given other content, or its own, is no damage whatever the journal says.
    fs::write(&path, &content).unwrap();
    here.good(&["protect", "a.db", "--again"]);
    here.good(&["verify", "a.db"]);
    here.good(&["status", "a.db"]);
}

#[test]
fn a_guard_tells_the_two_apart_as_well() {
    let here = with_file();
    here.good(&["protect", "a.db"]);
    let run = |code: i32| {
        let words = ["guard", "--json", "--summary", "sum.json", "--", "sh", "-c", "exec 3<>a.db"];
        here.expect(code, &words);
        let text = fs::read_to_string(here.path("sum.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()
    };
    beyond(&here.path("a.db"));
    assert_eq!(run(4)["files"][0]["lost"], 2);
    fs::write(here.path("a.db"), vec![1; PAGES * PAGE]).unwrap();
    let sum = run(2);
    assert_eq!((&sum["files_exit"], &sum["files"][0]["lost"]), (&2.into(), &0.into()), "{sum}");
}

#[test]
fn events_of_a_side_file_are_shown() {
    let here = with_file();
    here.good(&["protect", "a.db"]);
    assert!(here.good(&["events", "a.db"]).out.contains("no events"));
    rot(&here.path("a.db"), 5);
    here.expect(1, &["repair", "a.db"]);
    let lines = |words: &[&str]| -> Vec<Value> {
        let done = here.good(&[words, &["--json"]].concat());
        done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = lines(&["events", "a.db"]);
    let came: Vec<_> = all.iter().map(|event| (&event["page"], &event["outcome"])).collect();
    assert_eq!(came, [(&json!(5), &json!("detected")), (&json!(5), &json!("repaired"))]);
    let later = lines(&["events", "a.db", "--from", "2"]);
    assert_eq!((later.len(), &later[0]), (1, &all[1]));
    let shown = here.good(&["events", "a.db"]).out;
    assert!(shown.contains("detected") && shown.lines().count() == 2, "{shown}");
    // Elsewhere, and why a page could not be decided.
    fs::rename(here.path("a.db.holdfast"), here.path("side")).unwrap();
    let mut now = fs::read(here.path("a.db")).unwrap();
    now[7 * PAGE] ^= 1;
    fs::write(here.path("a.db"), now).unwrap();
    here.expect(2, &["repair", "a.db", "--side", "side"]);
    let all = lines(&["events", "a.db", "--side", "side"]);
    assert_eq!((&all[2]["page"], &all[2]["reason"]), (&7.into(), &4.into()), "{all:?}");
    let shown = here.good(&["events", "a.db", "--side", "side"]).out;
    assert!(shown.contains("changed while it was not protected"), "{shown}");
    // Neither a pool nor protected.
    let done = here.expect(8, &["events", "a.db"]);
    assert!(done.err.contains("a.db"), "{}", done.err);
    // As it grows, and while somebody keeps the file.
    fs::rename(here.path("side"), here.path("a.db.holdfast")).unwrap();
    let mut child = guarded(&here, &[], ":");
    assert_eq!(lines(&["events", "a.db"])[..2], all[..2]);
    drop(child.stdin.take());
    assert_eq!(ended(child).code, 2, "page 7 is undecided");
}
