//! `guard` on the command line: programs of others, run as anybody would run them. What the summary
//! says, the codes, the signals, and what is refused with which words.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{Done, Here, PAGE, SURELY, dd, finish, rot, signal, until};
use crate::unreadable::{ALLOW, ANSWER, IS, LOAD, NUMBER, behind, filters, step};
use rustix::process::Signal;
use serde_json::Value;

/// A folder with a file of so many pages.
fn with_file(pages: usize) -> Here {
    Here::with_file(pages)
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
    let (sum, _) = sh(&here, 2, &[], "exec 3<>a.db");
    let file = &sum["files"][0];
    assert_eq!(
        (&file["undecided"], &file["repaired"], &file["changed"]),
        (&20.into(), &0.into(), &true.into())
    );
    assert_eq!(file["reasons"][0]["pages"], 20, "{file}");
    assert!(fs::read(here.path("a.db")).unwrap() == vec![1; 20 * PAGE]);
}

/// Runs a program under a drill, longer each time, until something was drilled. On a busy machine
/// not everybody stands in time; such a drill is put off, for most of a second.
fn once_drilled(mut run: impl FnMut(&str) -> bool) {
    let lasts = [1, 2, 4, 8, 16, 32].map(|seconds| format!("exec 3<>a.db; sleep {seconds}"));
    assert!(lasts.iter().any(|script| run(script)), "nothing was ever drilled");
}

#[test]
fn a_drill_damages_and_gives_back_and_is_no_damage() {
    let here = with_file(40);
    let before = fs::read(here.path("a.db")).unwrap();
    let drill = ["--match", "*.db", "--period", "30ms", "--drill", "3", "--drill-seed", "9"];
    once_drilled(|script| {
        let (sum, _) = sh(&here, 0, &drill, script);
        let file = &sum["files"][0];
        for same in ["given_back", "corrupt", "repaired"] {
            assert_eq!(file[same], file["drilled"], "{file}");
        }
        assert_eq!((&sum["drill_seed"], &file["drill_kept"]), (&9.into(), &Value::Array(vec![])));
        assert!(fs::read(here.path("a.db")).unwrap() == before);
        here.good(&["verify", "a.db"]);
        file["drilled"].as_u64().unwrap() > 0
    });
    // Without a seed one is made up, and told.
    let words = ["guard", "--period", "100ms", "--drill", "1", "--", "sh", "-c"];
    once_drilled(|script| {
        let done = here.good(&[&words[..], &[script]].concat());
        assert!(done.err.contains("drills from seed"), "{}", done.err);
        assert!(fs::read(here.path("a.db")).unwrap() == before);
        done.err.contains("  drilled ") && !done.err.contains("drilled 0")
    });
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

/// The call by which stores are tracked, answered with an error.
const fn without_tracking(error: i32) -> [libc::sock_filter; 4] {
    [
        step(LOAD, 0, 0, NUMBER),
        step(IS, 0, 1, libc::SYS_userfaultfd as u32),
        step(ANSWER, 0, 0, 0x0005_0000 | error as u32),
        step(ANSWER, 0, 0, ALLOW),
    ]
}

static REFUSED: [libc::sock_filter; 4] = without_tracking(libc::EPERM);
static MISSING: [libc::sock_filter; 4] = without_tracking(libc::ENOSYS);

/// A container's filter refuses it, or the kernel has none. The program is not run without a guard.
#[test]
fn where_stores_cannot_be_tracked_nothing_is_started() {
    if !filters() {
        return;
    }
    let here = with_file(20);
    here.good(&["protect", "a.db"]);
    let all = || {
        let mut names: Vec<_> = fs::read_dir(here.folder()).unwrap().flatten().collect();
        names.sort_by_key(std::fs::DirEntry::path);
        let content = |entry: fs::DirEntry| (entry.path(), fs::read(entry.path()).unwrap());
        names.into_iter().map(content).collect::<Vec<_>>()
    };
    let before = all();
    let script = format!("echo ran > ran; {}", dd(3));
    for (filter, cause, remedy) in
        [(&REFUSED, "not permitted", "allow userfaultfd"), (&MISSING, "CONFIG_USERFAULTFD", "")]
    {
        let words = ["guard", "--match", "*.db", "--", "sh", "-c", &script];
        let done = finish(&words, behind(&mut here.command(&words), filter));
        assert_eq!((done.code, done.out.as_str()), (8, ""), "{}", done.err);
        for told in ["userfaultfd", cause, remedy, "nothing was started"] {
            assert!(done.err.contains(told), "{told}: {}", done.err);
        }
        let words = [&["guard", "--json"], &words[1..]].concat();
        let done = finish(&words, behind(&mut here.command(&words), filter));
        let object: Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!((done.code, &object["exit"]), (8, &8.into()), "{object}");
        assert!(object["error"]["cause"].to_string().contains("userfaultfd"), "{object}");
        assert!(all() == before, "something was changed");
    }
    here.good(&["verify", "a.db"]);
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
    let (sum, _) = sh(&here, 2, &[], "exec 3<>a.db");
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
    let begun = Instant::now();
    let mut child = here.started(&words);
    until("the program", || here.path("ready").exists());
    let mut told = String::new();
    until("a pass", || {
        told = here.good(&["status", "a.db"]).out;
        told.contains("8 of 8 pages")
    });
    let by = format!("guarded by process {} since 20", child.id());
    assert!(told.contains(&by), "{told}");
    let status = here.json(0, &["status", "a.db"]);
    assert_eq!((&status["guarded"], &status["process"]), (&true.into(), &child.id().into()));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs() as i64 - (status["since_ns"].as_u64().unwrap() / 1_000_000_000) as i64;
    assert!((-3..begun.elapsed().as_secs() as i64 + 5).contains(&age), "{age}");
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
    // A guard that is held up for seconds leaves stores waiting for as long: not each time.
    let mut quick = [0; 3];
    let kept = (0..4).any(|_| {
        quick = figures_of_the_quick_one();
        quick[1] >= 4 && quick[2] <= 20 * quick[0]
    });
    assert!(kept, "{quick:?}");
}

/// Guards two files with periods of their own for a while. The period, the passes and the longest
/// wait of the quick one; those of the slow one are what they have to be.
fn figures_of_the_quick_one() -> [u64; 3] {
    let here = with_file(4);
    fs::copy(here.path("a.db"), here.path("b.log")).unwrap();
    let script = "exec 3<>a.db 4<>b.log; sleep 2.5";
    let options = ["--period", "1min", "--match", "*.db", "--match", "*.log:100ms"];
    let (sum, _) = sh(&here, 0, &options, script);
    let of = |name: &str| {
        let files = sum["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"].as_str().unwrap().ends_with(name));
        let file = file.unwrap_or_else(|| panic!("{name}: {sum}"));
        ["period_ns", "passes", "oldest_ns"].map(|figure| file[figure].as_u64().unwrap())
    };
    let (slow, quick) = (of("a.db"), of("b.log"));
    assert_eq!((slow[0], quick[0]), (60_000_000_000, 100_000_000));
    // How long a store can have waited is bounded by the period, and is all the time where no pass
    // came by.
    assert!(slow[1] <= 1 && slow[2] > 2_400_000_000, "{slow:?} {quick:?}");
    quick
}

#[test]
fn stripes_are_as_they_were_wished() {
    for (data, parity) in [(8, 2), (3, 0)] {
        let here = with_file(30);
        let (wide, narrow) = (data.to_string(), parity.to_string());
        let options = ["--match", "*.db", "--data", &wide, "--parity", &narrow];
        let (sum, _) = sh(&here, 0, &options, &dd(3));
        let file = &sum["files"][0];
        assert_eq!((&file["data"], &file["parity"]), (&data.into(), &parity.into()), "{file}");
        assert!(sum["pace"].is_null() && file["good"] == 30, "{sum}");
        let status = here.json(0, &["status", "a.db"]);
        assert_eq!((&status["data"], &status["parity"]), (&data.into(), &parity.into()));
        // What is there stays, whatever is wished; damage costs what it must.
        let before = fs::read(here.path("a.db")).unwrap();
        (0..parity.max(1)).for_each(|page| rot(&here.path("a.db"), page));
        let code = if parity > 0 { 1 } else { 4 };
        let (sum, _) = sh(&here, code, &["--data", "5"], "exec 3<>a.db");
        let file = &sum["files"][0];
        assert_eq!((&file["data"], &file["repaired"]), (&data.into(), &parity.into()), "{file}");
        assert_eq!(fs::read(here.path("a.db")).unwrap() == before, parity > 0);
    }
    let here = with_file(4);
    for wrong in
        [["--data", "0"], ["--data", "65"], ["--parity", "3"], ["--pace", "0"], ["--pace", "fast"]]
    {
        here.expect(16, &[&["guard"][..], &wrong, &["--", "true"]].concat());
    }
}

#[test]
fn a_pace_spreads_passes_over_time_and_keeps_no_sync() {
    let here = with_file(512);
    let script = "head -c 2097152 /dev/urandom > new; exec 3<>a.db; cat new >&3; sleep 1.5; \
                  dd if=new of=a.db bs=4096 count=1 conv=notrunc,fsync status=none; : > synced";
    let options = ["--match", "*.db", "--period", "50ms", "--pace", "1M"];
    let begun = Instant::now();
    let (sum, done) = sh(&here, 0, &options, script);
    assert!(here.path("synced").exists(), "{}", done.err);
    let file = &sum["files"][0];
    assert_eq!((&sum["pace"], &file["good"]), (&(1 << 20).into(), &512.into()), "{sum}");
    // 2 MiB, but for a tenth of a second.
    assert!(file["oldest_ns"].as_u64() > Some(1_200_000_000), "{file}");
    assert!(file["covered_on_sync"] == 1 && begun.elapsed() < SURELY, "{file}");
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

/// What a program is started with: a low limit of descriptors, a signal that is ignored and one
/// that is blocked; and if `closed`, no standard input.
fn peculiar(command: &mut std::process::Command, closed: bool) -> &mut std::process::Command {
    use std::os::unix::process::CommandExt;
    let prepare = move || {
        // SAFETY: structures of numbers, of which zeros are some; system calls that read them, and
        // a descriptor that nobody uses any more.
        unsafe {
            let mut limit: libc::rlimit = core::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            limit.rlim_cur = 64;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            let mut set: libc::sigset_t = core::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGUSR2);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const set, core::ptr::null_mut());
            if closed {
                libc::close(0);
            }
        }
        Ok(())
    };
    // SAFETY: makes system calls only.
    unsafe { command.pre_exec(prepare) }
}

/// The lines that tell what a program has from whoever started it.
fn inherited(told: &str) -> Vec<&str> {
    const TELLING: [&str; 12] = [
        "Umask:",
        "Uid:",
        "Gid:",
        "Groups:",
        "SigBlk:",
        "SigIgn:",
        "Cap",
        "NoNewPrivs:",
        "Seccomp:",
        "Cpus_allowed:",
        "Mems_allowed:",
        "Max ",
    ];
    let others = |line: &&str| !line.contains(':');
    let telling = |line: &&str| TELLING.iter().any(|word| line.starts_with(word)) || others(line);
    told.lines().filter(telling).collect()
}

#[test]
fn a_program_begins_with_what_it_would_have_without_a_guard() {
    let here = with_file(4);
    let about = ["limits", "status", "personality", "timerslack_ns", "oom_score_adj", "cmdline"];
    let about = about.map(|name| format!("/proc/self/{name}"));
    let about: Vec<&str> = ["cat"].into_iter().chain(about.iter().map(String::as_str)).collect();
    for (words, closed) in
        [(&about[..], false), (&about[..], true), (&["ls", "/proc/self/fd"], true)]
    {
        let mut alone = std::process::Command::new(words[0]);
        let alone = peculiar(alone.current_dir(here.folder()).args(&words[1..]), closed);
        let alone = finish(words, alone);
        let guarded = [&["guard", "--summary", "sum", "--"], words].concat();
        let done = finish(&guarded, peculiar(&mut here.command(&guarded), closed));
        assert_eq!((done.code, done.err.as_str()), (alone.code, ""), "{words:?}");
        assert_eq!(inherited(&done.out), inherited(&alone.out), "{words:?}");
        assert!(!inherited(&alone.out).is_empty());
        if words[0] == "cat" {
            let mask = alone.out.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
            let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
            assert_ne!(mask >> (libc::SIGPIPE - 1) & 1, 0, "{}", alone.out);
        }
    }
}
