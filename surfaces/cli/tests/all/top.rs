//! Watching: the figures are those of the pool and its owner, files for other programs are whole at
//! every moment, and a terminal is left as it was found.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Here, SURELY, ended, owner_listens, shown_until, terminal};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// The figures of a page as Prometheus reads it, by name and labels; fails if it cannot be read.
fn figures(page: &str) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    let mut families = Vec::new();
    assert!(page.ends_with('\n'), "half a page: {page}");
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            assert!(!families.contains(&name.to_owned()), "twice: {line}");
            families.push(name.to_owned());
        } else if !line.starts_with("# HELP ") {
            let (name, figure) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            assert_eq!(families.last().map(String::as_str), Some(family), "{line}");
            found.push((name.to_owned(), figure.parse().unwrap()));
        }
    }
    found
}

fn figure(figures: &[(String, f64)], name: &str) -> f64 {
    let is_it = |figure: &&(String, f64)| figure.0 == format!("holdfast_{name}");
    figures.iter().find(is_it).unwrap_or_else(|| panic!("{name}: {figures:?}")).1
}

#[test]
fn once_is_a_look_at_a_pool_that_nobody_has_open() {
    let here = Here::new();
    here.pool("a.pool");
    here.good(&["inject", "bitflip", "a.pool", "--part", "object"]);
    here.expect(1, &["repair", "a.pool"]);
    let before = fs::read(here.path("a.pool")).unwrap();
    let files = ["top", "a.pool", "--once", "--prometheus", "a.prom", "--html", "a.html"];
    let told = here.good(&files).out;
    for word in ["nobody", "P and Q, metadata and log twice", "16 MiB", "repaired"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let told = here.json(0, &["top", "a.pool", "--once"]);
    assert_eq!((&told["rates"], &told["owner"]), (&Value::Null, &Value::Null), "{told}");
    assert_eq!(told["events"].as_array().unwrap().len(), 1, "{told}");
    let page = figures(&fs::read_to_string(here.path("a.prom")).unwrap());
    let pool = "{pool=\"a.pool\"}";
    assert_eq!(figure(&page, &format!("size_bytes{pool}")), f64::from(16 << 20));
    assert_eq!(figure(&page, &format!("in_use{pool}")), 0.0);
    assert_eq!(figure(&page, "journal_events{pool=\"a.pool\",outcome=\"repaired\"}"), 1.0);
    assert_eq!(figure(&page, "scrub_state{pool=\"a.pool\",state=\"idle\"}"), 1.0);
    assert!(!page.iter().any(|(name, _)| name.contains("commits")), "nobody told: {page:?}");
    let html = fs::read_to_string(here.path("a.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    for foreign in ["<script", "http://", "https://", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(foreign), "{foreign}: {html}");
    }
    assert!(!html.contains("refresh"), "nobody replaces it: {html}");
    assert!(fs::read(here.path("a.pool")).unwrap() == before, "looking changed it");
    let names: Vec<_> = fs::read_dir(here.folder()).unwrap().flatten().collect();
    assert!(names.iter().all(|name| !name.file_name().to_string_lossy().ends_with(".tmp")));
}

/// Ends a thread however the test ends: one that fails would wait for it for ever.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn lines_tell_what_the_owner_does_and_files_are_whole_at_every_moment() {
    let here = Here::new();
    here.pool("a.pool");
    let mut owner = here.started(&["map", "load", "a.pool", "m", "-", "--batch", "1"]);
    let mut lines = owner.stdin.take().unwrap();
    owner_listens(&here, "a.pool");
    let words = ["top", "a.pool", "--interval", "50ms", "--json", "--prometheus", "p", "--html"];
    let mut watcher = here.started(&[&words[..], &["h"]].concat());
    let mut told = BufReader::new(watcher.stdout.take().unwrap());
    let stop = AtomicBool::new(false);
    let page = std::thread::scope(|scope| {
        let stop = &stop;
        let _end = Stop(stop);
        scope.spawn(move || {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                writeln!(lines, "k{}\tv", n % 100).unwrap();
                n += 1;
            }
        });
        let begun = Instant::now();
        let (mut looks, mut busy, mut pages, mut last) = (0, 0, 0, None);
        while looks < 30 || busy < 5 || pages <= 3 || last.is_none() {
            assert!(begun.elapsed() < SURELY, "{looks} {busy} {pages} {last:?}");
            let mut line = String::new();
            told.read_line(&mut line).unwrap();
            let look: Value = serde_json::from_str(&line).unwrap();
            looks += 1;
            let rates = &look["rates"];
            let commits = rates["commits_per_second"].as_f64().unwrap_or(0.0);
            busy += u64::from(rates["since_open"] == false && commits > 1.0);
            // Files that are replaced are never seen half written.
            if let (Ok(prometheus), Ok(html)) =
                (fs::read_to_string(here.path("p")), fs::read_to_string(here.path("h")))
            {
                let page = figures(&prometheus);
                assert!(html.ends_with("</html>\n") && html.contains("refresh"));
                if figure(&page, "owner_answers{pool=\"a.pool\"}") == 1.0 {
                    pages += 1;
                    let commits = figure(&page, "commits_total{pool=\"a.pool\"}");
                    last = (commits > 5.0).then_some(page).or(last);
                }
            }
        }
        last.unwrap()
    });
    assert!(figure(&page, "transaction_seconds{pool=\"a.pool\",quantile=\"0.99\"}") > 0.0);
    send(&watcher, Signal::INT);
    drop(told);
    let done = ended(watcher);
    assert!(done.code == 0 || done.code == -1, "{}{}", done.code, done.err);
    assert_eq!(ended(owner).code, 0);
}

#[test]
fn an_interrupt_ends_lines() {
    let here = Here::new();
    here.pool("a.pool");
    let mut watcher = here.started(&["top", "a.pool", "--interval", "1min"]);
    let mut told = BufReader::new(watcher.stdout.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert!(line.contains("closed") && line.contains("scrub") && line.contains("free"), "{line}");
    send(&watcher, Signal::INT);
    let done = ended(watcher);
    assert_eq!(done.code, 0, "{}", done.err);
}

#[test]
fn a_pool_that_grows_is_watched_on() {
    let here = Here::new();
    here.pool("a.pool");
    let mut watcher = here.started(&["top", "a.pool", "--interval", "50ms", "--json"]);
    let mut told = BufReader::new(watcher.stdout.take().unwrap());
    let mut size = || {
        let mut line = String::new();
        told.read_line(&mut line).unwrap();
        let look: Value = serde_json::from_str(&line).unwrap();
        let kinds = look["bytes"].as_object().unwrap_or_else(|| panic!("{line}"));
        kinds.values().map(|kind| kind.as_u64().unwrap()).sum::<u64>()
    };
    assert!(size() <= 16 << 20);
    here.good(&["pool", "grow", "a.pool", "256M"]);
    let begun = Instant::now();
    while size() < 200 << 20 {
        assert!(begun.elapsed() < SURELY, "it still sees the old size");
    }
    send(&watcher, Signal::INT);
    ended(watcher);
}

#[test]
fn a_terminal_shows_it_and_is_left_as_it_was() {
    let here = Here::new();
    here.good(&["pool", "create", "a.pool", "--size", "16M", "--label", "\u{1b}[31mred\u{9b}"]);
    for end in ["q", "\u{3}", "INT", "TERM", "HUP"] {
        let (mut sits, runs) = terminal();
        let before = rustix::termios::tcgetattr(&runs).unwrap();
        let mut command = here.command(&["top", "a.pool", "--interval", "1s"]);
        command.stdin(runs.try_clone().unwrap()).stderr(Stdio::piped());
        let child = command.stdout(runs.try_clone().unwrap()).spawn().unwrap();
        drop(command);
        // A blank that is there already is not drawn, so this is the last word.
        let shown = shown_until(&mut sits, "again");
        for word in ["redundancy", "events", "space", "commits", "scrub", "u{1b}[31mred"] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
        assert!(!shown.contains("\u{1b}[31mred"), "a label reached the terminal: {shown}");
        match end {
            "INT" => send(&child, Signal::INT),
            "TERM" => send(&child, Signal::TERM),
            "HUP" => send(&child, Signal::HUP),
            key => sits.write_all(key.as_bytes()).unwrap(),
        }
        let done = ended(child);
        assert_eq!(done.code, 0, "{end:?}: {}", done.err);
        let after = rustix::termios::tcgetattr(&runs).unwrap();
        assert_eq!(format!("{:?}", after.local_modes), format!("{:?}", before.local_modes));
        drop(runs);
        let mut rest = Vec::new();
        // The other end is gone: what is left can be read, then an error.
        let _ = sits.read_to_end(&mut rest);
        let all = shown + &String::from_utf8_lossy(&rest);
        assert!(all.contains("\u{1b}[?1049h") && all.contains("\u{1b}[?1049l"), "{end:?}");
    }
}

#[test]
fn a_terminal_that_obeys_no_signs_gets_lines() {
    let here = Here::new();
    here.pool("a.pool");
    for name in ["dumb", "", "none"] {
        let (mut sits, runs) = terminal();
        let mut command = here.command(&["top", "a.pool", "--interval", "50ms"]);
        if name == "none" {
            command.env_remove("TERM")
        } else {
            command.env("TERM", name)
        };
        command.stdin(runs.try_clone().unwrap()).stderr(Stdio::piped());
        let child = command.stdout(runs.try_clone().unwrap()).spawn().unwrap();
        drop(command);
        let shown = shown_until(&mut sits, "free");
        assert!(!shown.contains('\u{1b}'), "{name:?}: {shown:?}");
        send(&child, Signal::INT);
        assert_eq!(ended(child).code, 0, "{name:?}");
    }
}

#[test]
fn a_terminal_that_takes_no_output_is_put_back_all_the_same() {
    use rustix::termios::{Action, tcflow, tcgetattr};
    let here = Here::new();
    here.pool("a.pool");
    for signals in [&[Signal::TERM][..], &[Signal::INT, Signal::INT], &[Signal::INT, Signal::TERM]]
    {
        let (mut sits, runs) = terminal();
        let before = tcgetattr(&runs).unwrap();
        let mut command = here.command(&["top", "a.pool", "--interval", "50ms"]);
        command.stdin(runs.try_clone().unwrap()).stderr(Stdio::piped());
        let child = command.stdout(runs.try_clone().unwrap()).spawn().unwrap();
        drop(command);
        shown_until(&mut sits, "again");
        tcflow(&runs, Action::OOff).unwrap();
        // It looks again, and hangs in telling so.
        std::thread::sleep(Duration::from_millis(1200));
        for signal in signals {
            send(&child, *signal);
            std::thread::sleep(Duration::from_millis(100));
        }
        let done = ended(child);
        assert_eq!(done.code, 32, "{signals:?}: {}", done.err);
        let after = tcgetattr(&runs).unwrap();
        assert_eq!(format!("{:?}", after.local_modes), format!("{:?}", before.local_modes));
        assert_eq!(format!("{:?}", after.input_modes), format!("{:?}", before.input_modes));
    }
}

#[test]
fn what_cannot_be_watched_or_written() {
    let here = Here::new();
    here.pool("a.pool");
    fs::create_dir(here.path("folder")).unwrap();
    for (words, kind) in [
        (&["--prometheus", "folder"][..], "not-a-file"),
        (&["--html", "no/where"], "not-found"),
        (&["--prometheus", "/dev/full"], "not-a-file"),
    ] {
        let told = here.json(8, &[&["top", "a.pool", "--once"], words].concat());
        assert_eq!(told["error"]["kind"], kind, "{words:?}: {told}");
    }
    // Files are replaced: a pool never is, nor a file by another of the same name.
    here.pool("b.pool");
    let pools = ["a.pool", "b.pool"].map(|name| (name, fs::read(here.path(name)).unwrap()));
    for (name, before) in &pools {
        for option in ["--html", "--prometheus"] {
            let told = here.json(8, &["top", "a.pool", "--once", option, name]);
            assert_eq!(told["error"]["kind"], "refused", "{option} {name}: {told}");
        }
        assert!(fs::read(here.path(name)).unwrap() == *before, "{name}");
    }
    fs::create_dir_all(here.path("sub")).unwrap();
    let whole = here.path("x");
    for same in ["x", "./x", "sub/../x", whole.to_str().unwrap()] {
        here.expect(16, &["top", "a.pool", "--once", "--html", "x", "--prometheus", same]);
    }
    assert!(!here.path("x").exists());
    assert!(!here.path("x").exists());
    for interval in ["0", "soon", "-1s", "2h"] {
        here.expect(16, &["top", "a.pool", "--once", "--interval", interval]);
    }
    // A pool that is cut off under the look ends it with an error.
    let mut watcher = here.started(&["top", "a.pool", "--interval", "50ms"]);
    let mut told = BufReader::new(watcher.stdout.take().unwrap());
    told.read_line(&mut String::new()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(here.path("a.pool")).unwrap();
    file.set_len(1 << 20).unwrap();
    let done = ended(watcher);
    assert_eq!(done.code, 8, "{}", done.err);
    assert!(done.err.contains("cut off"), "{}", done.err);
}
