//! Protected files on the command line: codes, objects, words, and what is never done unasked.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::SystemTime;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Done, Here, ended, shown_until, terminal};

const PAGE: usize = 4096;
const PAGES: usize = 700;

fn content() -> Vec<u8> {
    (0..PAGES * PAGE).map(|at| (at / PAGE * 31 + at % 251) as u8).collect()
}

/// A folder with a protected file.
fn protected() -> Here {
    let here = Here::new();
    fs::write(here.path("a.db"), content()).unwrap();
    here.good(&["protect", "a.db"]);
    here
}

/// Changes a byte; as rot does, or as a program does.
fn change(here: &Here, page: usize, rot: bool) {
    let path = here.path("a.db");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let at = (page * PAGE + 100) as u64;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    file.set_modified(if rot { before } else { SystemTime::now() }).unwrap();
}

fn bytes(here: &Here) -> Vec<u8> {
    fs::read(here.path("a.db")).unwrap()
}

#[test]
fn damage_is_found_told_and_repaired() {
    let here = protected();
    here.good(&["verify", "a.db"]);
    change(&here, 3, true);
    change(&here, 600, true);
    let found = here.json(4, &["verify", "a.db"]);
    assert_eq!(found["corrupt_pages"], serde_json::json!([3, 600]));
    assert_eq!((&found["undecided"], &found["changed"]), (&0.into(), &false.into()));
    let told = here.expect(4, &["verify", "a.db"]);
    assert!(told.out.contains("corrupt") && told.out.contains("holdfast repair"), "{}", told.out);
    let done = here.json(1, &["repair", "a.db"]);
    assert_eq!(done["repaired_pages"], serde_json::json!([3, 600]));
    assert!(bytes(&here) == content());
    here.good(&["verify", "a.db"]);
    here.good(&["repair", "a.db"]);
    let status = here.json(0, &["status", "a.db"]);
    assert_eq!(status["pages"], PAGES);
    assert_eq!((&status["without_sum"], &status["without_parity"]), (&0.into(), &0.into()));
    assert_eq!(status["journal"]["repaired"], 2);
    assert!(status["last_pass_ns"].as_u64().unwrap() > 0);
    // More in one stripe than parity can give back.
    change(&here, 8, true);
    change(&here, 9, true);
    let left = here.json(4, &["repair", "a.db"]);
    assert_eq!(left["lost_pages"], serde_json::json!([8, 9]));
}

#[test]
fn what_a_file_is_protected_by_is_chosen() {
    for (data, parity) in [(8, 2), (1, 1), (4, 0)] {
        let here = Here::new();
        fs::write(here.path("a.db"), content()).unwrap();
        let (data, parity) = (data.to_string(), parity.to_string());
        let made = here.json(0, &["protect", "a.db", "--data", &data, "--parity", &parity]);
        assert_eq!((made["data"].to_string(), made["parity"].to_string()), (data, parity));
        assert!(made["trouble"].is_null(), "{made}");
        change(&here, 3, true);
        change(&here, 4, true);
        // Sums only: it is found, and nothing can give it back.
        let code = if made["parity"] == 0 { 4 } else { 1 };
        here.expect(4, &["verify", "a.db"]);
        here.expect(code, &["repair", "a.db"]);
        assert_eq!(bytes(&here) == content(), code == 1, "{made}");
    }
    let here = Here::new();
    fs::write(here.path("a.db"), content()).unwrap();
    // 2.8 MB: a tenth of a second's worth is saved up, the rest takes its time.
    let began = std::time::Instant::now();
    here.good(&["protect", "a.db", "--pace", "4M"]);
    assert!(began.elapsed().as_millis() > 400, "{:?}", began.elapsed());
    here.good(&["verify", "a.db"]);
    for wrong in [["--parity", "3"], ["--data", "0"], ["--pace", "fast"]] {
        here.expect(16, &[&["protect", "a.db"], &wrong[..]].concat());
    }
}

#[test]
fn what_somebody_wrote_is_named_and_stays() {
    let here = protected();
    change(&here, 5, false);
    let written = bytes(&here);
    let found = here.json(2, &["verify", "a.db"]);
    assert_eq!((&found["corrupt"], &found["undecided"]), (&0.into(), &1.into()));
    assert_eq!(found["undecided_pages"][0]["page"], 5);
    let told = here.expect(2, &["verify", "a.db"]);
    assert!(told.out.contains("changed while it was not protected"), "{}", told.out);
    let done = here.json(2, &["repair", "a.db"]);
    assert_eq!((&done["repaired"], &done["undecided"]), (&0.into(), &1.into()));
    assert!(bytes(&here) == written);
    // The reason is told by whoever looks later, too.
    let status = here.json(2, &["status", "a.db"]);
    let reasons = &status["undecided_reasons"];
    assert_eq!((&reasons[0]["reason"], &reasons[0]["pages"]), (&4.into(), &1.into()), "{reasons}");
    let shown = here.expect(2, &["status", "a.db"]).out;
    assert!(shown.contains("1 page: differs, and the file was changed while it"), "{shown}");
    let found = here.json(2, &["verify", "a.db"]);
    assert_eq!(
        (&found["undecided_pages"][0]["reason"], &found["changed"]),
        (&4.into(), &false.into())
    );
    // What it was, beside it.
    let done = here.json(0, &["repair", "a.db", "--before", "a.before"]);
    assert_eq!(done["given_back_pages"], serde_json::json!([5]));
    assert!(fs::read(here.path("a.before")).unwrap() == content());
    assert!(bytes(&here) == written);
    let again = here.expect(8, &["repair", "a.db", "--before", "a.before"]);
    assert!(again.err.contains("a.before"), "{}", again.err);
    here.expect(16, &["repair", "a.db", "--before", "b", "--force"]);
    // Taken for right, or brought back.
    let side = fs::read(here.path("a.db.holdfast")).unwrap();
    let time = fs::metadata(here.path("a.db")).unwrap().modified().unwrap();
    here.good(&["protect", "a.db", "--again"]);
    here.good(&["verify", "a.db"]);
    assert!(bytes(&here) == written);
    fs::write(here.path("a.db.holdfast"), side).unwrap();
    File::options().write(true).open(here.path("a.db")).unwrap().set_modified(time).unwrap();
    let done = here.json(1, &["repair", "a.db", "--force"]);
    assert_eq!(done["forced_pages"], serde_json::json!([5]));
    assert!(bytes(&here) == content());
    here.good(&["verify", "a.db"]);
}

#[test]
fn side_files_that_cannot_be_used_are_told_with_what_to_do() {
    let here = protected();
    let good = fs::read(here.path("a.db.holdfast")).unwrap();
    let at = good.windows(8).position(|word| word == b"HOLDSIDE").unwrap();
    let with = |bytes: &[u8], cause: &str| {
        fs::write(here.path("a.db.holdfast"), bytes).unwrap();
        for command in ["verify", "repair", "status", "unprotect"] {
            let done = here.run(&[command, "a.db"]);
            assert!(done.code & 8 != 0, "{command}: {} {}", done.code, done.err);
            let (what, to_do) = done.err.split_once("; ").unwrap();
            assert!(what.contains(cause) && !to_do.is_empty(), "{command}: {}", done.err);
            assert!(fs::read(here.path("a.db.holdfast")).unwrap() == bytes);
        }
        assert!(bytes_are(&here));
        here.good(&["unprotect", "a.db", "--force"]);
        assert!(!here.path("a.db.holdfast").exists());
    };
    with(&good[..1000], "cut off");
    with(&vec![0; 200_000], "not a side file");
    let mut damaged = good.clone();
    for copy in [0, 64 << 10] {
        damaged[copy + at + 60] ^= 1;
    }
    with(&damaged, "headers of the side file are damaged");
    with(&crate::common::newer(&good, at), "format version 9");
    let done = here.expect(8, &["verify", "a.db"]);
    assert!(done.err.contains("not protected") && done.err.contains("holdfast protect"));
    here.good(&["protect", "a.db", "--data", "8", "--parity", "2"]);
    let done = here.expect(8, &["protect", "a.db"]);
    assert!(done.err.contains("protected already"), "{}", done.err);
    here.good(&["verify", "a.db"]);
    here.expect(16, &["protect", "a.db", "--parity", "3"]);
}

#[test]
fn a_side_file_that_says_nothing_any_more_goes() {
    let here = protected();
    // Killed when the protection had ended, and the side file was still there.
    let kept = here.path("kept");
    fs::hard_link(here.path("a.db.holdfast"), &kept).unwrap();
    here.good(&["unprotect", "a.db"]);
    fs::rename(&kept, here.path("a.db.holdfast")).unwrap();
    let done = here.expect(8, &["verify", "a.db"]);
    assert!(done.err.contains("was ended"), "{}", done.err);
    // Not of a file that is not there: its name may be a mistake.
    fs::rename(here.path("a.db"), here.path("b.db")).unwrap();
    here.expect(8, &["unprotect", "a.db"]);
    assert!(here.path("a.db.holdfast").exists());
    fs::rename(here.path("b.db"), here.path("a.db")).unwrap();
    here.good(&["unprotect", "a.db"]);
    assert!(!here.path("a.db.holdfast").exists() && bytes_are(&here));
    here.good(&["protect", "a.db"]);
}

#[test]
fn a_length_that_only_the_side_file_knows_is_told_and_not_followed() {
    let here = protected();
    let good = fs::read(here.path("a.db.holdfast")).unwrap();
    let at = good.windows(8).position(|word| word == b"HOLDSIDE").unwrap();
    for size in [1_u64 << 40, 1 << 62, i64::MAX as u64] {
        let forged = crate::common::forged(&good, at + 88, &size.to_le_bytes());
        fs::write(here.path("a.db.holdfast"), forged).unwrap();
        let gone = size.div_ceil(PAGE as u64) - PAGES as u64;
        assert_eq!(here.json(2, &["verify", "a.db"])["gone"], gone);
        let done = here.json(2, &["repair", "a.db", "--before", "b"]);
        assert_eq!((&done["gone"], &done["missing"]), (&gone.into(), &0.into()), "{done}");
        assert!(fs::read(here.path("b")).unwrap() == content());
        fs::remove_file(here.path("b")).unwrap();
    }
}

#[test]
fn damage_is_told_with_the_time_when_it_was_not_there() {
    let here = protected();
    change(&here, 3, true);
    let found = here.json(4, &["verify", "a.db"]);
    assert_eq!(found["corrupt_verified_ns"], serde_json::json!([0]), "{found}");
    let told = here.expect(4, &["verify", "a.db"]).out;
    assert!(told.contains("corrupt; never verified before"), "{told}");
    let now = || {
        let since = SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        since.as_nanos() as u64
    };
    let begun = now();
    here.json(1, &["repair", "a.db"]);
    let ended = now();
    change(&here, 3, true);
    let found = here.json(4, &["verify", "a.db"]);
    let since = found["corrupt_verified_ns"][0].as_u64().unwrap();
    assert!((begun..=ended).contains(&since), "{begun} {since} {ended}");
    let told = here.expect(4, &["verify", "a.db"]).out;
    assert!(told.contains("corrupt; last verified 20"), "{told}");
    assert_eq!(here.json(0, &["status", "a.db"])["verified_ns"], since);
    // So do the events, of which the first found it when nothing had been verified yet.
    here.json(1, &["repair", "a.db"]);
    let events = here.good(&["events", "a.db", "--json"]).out;
    let events: Vec<serde_json::Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times: Vec<u64> = events.iter().map(|e| e["verified_ns"].as_u64().unwrap()).collect();
    assert_eq!(times, [0, 0, since, since], "detected and repaired, twice: {events:?}");
    let told = here.good(&["events", "a.db"]).out;
    assert_eq!(told.matches("; last verified 20").count(), 2, "{told}");
}

fn bytes_are(here: &Here) -> bool {
    bytes(here) == content()
}

#[test]
fn a_file_in_use_is_left_alone() {
    let here = protected();
    // Somebody has it open for writing.
    let held = here.path("a.db");
    let mut holder = std::process::Command::new("sh")
        .args(["-c", "exec 3<>\"$0\"; echo ready; read line", held.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Read;
    holder.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    change(&here, 5, true);
    let done = here.expect(8, &["repair", "a.db"]);
    assert!(done.err.contains("open for writing"), "{}", done.err);
    let found = here.json(2, &["verify", "a.db"]);
    assert_eq!((&found["corrupt"], &found["undecided"]), (&0.into(), &1.into()));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    here.expect(1, &["repair", "a.db"]);
    // Damage keeps the side file from being removed by mistake.
    change(&here, 5, true);
    let done = here.expect(8, &["unprotect", "a.db"]);
    assert!(done.err.contains("1 damaged") && done.err.contains("--force"), "{}", done.err);
    here.expect(1, &["repair", "a.db"]);
    here.good(&["unprotect", "a.db"]);
    assert!(!here.path("a.db.holdfast").exists() && bytes_are(&here));
}

/// Of a file that was cut off, nothing differs; what is gone is told.
#[test]
fn what_is_gone_with_the_end_of_a_file_is_named() {
    let here = protected();
    let file = File::options().write(true).open(here.path("a.db")).unwrap();
    file.set_len(600 * PAGE as u64).unwrap();
    drop(file);
    let done = here.expect(8, &["unprotect", "a.db"]);
    assert!(done.err.contains("100 pages gone with the end of the file"), "{}", done.err);
    assert!(!done.err.contains("0 damaged") && done.err.contains("--force"), "{}", done.err);
    change(&here, 5, true);
    let done = here.expect(8, &["unprotect", "a.db"]);
    let both = "0 damaged and 1 undecided pages, which only the side file can give back, and 100 \
                pages gone";
    assert!(done.err.contains(both), "{}", done.err);
    assert!(here.path("a.db.holdfast").exists());
    here.good(&["unprotect", "a.db", "--force"]);
}

/// Runs a command at a terminal and interrupts it once it shows how far it is; what it came to.
fn interrupted(here: &Here, words: &[&str], shows: &str) -> Done {
    let (mut sits, runs) = terminal();
    let mut command = here.command(words);
    let child = command.stderr(runs).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    drop(command);
    shown_until(&mut sits, shows);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    ended(child)
}

#[test]
fn long_commands_show_how_far_they_are_and_can_be_interrupted() {
    let here = Here::new();
    // So much that a signal falls into the middle.
    let mut file = File::create(here.path("a.db")).unwrap();
    let some: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
    for _ in 0..192 {
        std::io::Write::write_all(&mut file, &some).unwrap();
    }
    drop(file);
    let names = || {
        let found = fs::read_dir(here.folder()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut found: Vec<_> = found.collect();
        found.sort();
        found
    };
    let (alone, before) = (names(), bytes(&here));
    // One that is too fast is done again.
    let caught = |words: &[&str], shows: &str, undo: &dyn Fn()| {
        for _ in 0..20 {
            match interrupted(&here, words, shows).code {
                32 => return,
                0 => undo(),
                code => panic!("{words:?}: {code}"),
            }
        }
        panic!("{words:?}: never caught in the middle");
    };
    caught(&["protect", "a.db"], "covering", &|| drop(here.good(&["unprotect", "a.db"])));
    assert_eq!(names(), alone);
    here.good(&["protect", "a.db"]);
    let (side, both) = (fs::read(here.path("a.db.holdfast")).unwrap(), names());
    let put_back = || fs::write(here.path("a.db.holdfast"), &side).unwrap();
    caught(&["protect", "a.db", "--again"], "covering", &put_back);
    caught(&["verify", "a.db"], "verifying", &|| {});
    caught(&["unprotect", "a.db"], "verifying", &put_back);
    caught(&["repair", "a.db", "--before", "b"], "writing", &|| {
        fs::remove_file(here.path("b")).unwrap();
    });
    assert_eq!(names(), both);
    assert!(fs::read(here.path("a.db.holdfast")).unwrap() == side);
    caught(&["repair", "a.db"], "repairing", &|| {});
    assert!(bytes(&here) == before);
    here.good(&["verify", "a.db"]);
}
